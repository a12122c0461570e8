package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"wattmark/api/auth"
	"wattmark/hostagent/measurement"
	"wattmark/store"
	"wattmark/store/postgres"
)

// streams are the program's three, so that tests can hold them.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is what the subcommands share.
type app struct {
	streams
	json bool
	db   string
	// trust is how services are known.
	trust auth.Client
	// args are the words of the command line behind the program's name.
	args    []string
	tracing *tracing // of run; nil where it is not wanted
	// lines reads answers from the standard input, once somebody was asked.
	lines *bufio.Reader
}

// defaultDB is the task database unless told otherwise.
const defaultDB = "power.db"

// Exit codes, for scripts.
const (
	exitFailed     = 1
	exitUsage      = 2
	exitIncomplete = 3 // measured, but the task is incomplete or untrimmed
	exitNotFound   = 4
	exitBusy       = 5
	exitDamaged    = 6 // db check or db backup found damage

	// As a shell has it: a program that is there and cannot be run, or is not there; what
	// ended by a signal has this and the signal's number.
	exitNoExec    = 126
	exitNoProgram = 127
	signalled     = 128
)

// codedError carries an exit code.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

func withCode(code int, err error) error { return codedError{err, code} }

// exitCode is the exit code for an error: that of the measured program, where it failed.
func exitCode(err error) int {
	var program *measurement.ProgramError
	if errors.As(err, &program) {
		return program.Code
	}
	var c codedError
	if errors.As(err, &c) {
		return c.code
	}
	return exitFailed
}

func run(ctx context.Context, args []string, s streams) error {
	a := &app{streams: s, args: args}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetIn(s.in)
	return root.ExecuteContext(ctx)
}

const longHelp = `wattmark measures what a GPU really draws.

A monitor reads the card's power rails with a meter; a host agent brackets GPU
work with marker kernels that can be seen in the power trace itself; the samples
between the markers end in a SQLite task database, as counts with the
calibration that was in force, and every joule comes with its uncertainty.

Start here:
  wattmark demo                             a whole bench in software
  wattmark monitor --instrument nvml        on the machine with the meter
  wattmark run --name gemm -- ./gemm 4096   on the GPU machine
  wattmark tasks; wattmark show 1

Exit codes: 0 measured; 1 failed; 2 wrong usage; 3 measured, but incomplete or
without a window; 4 no such task; 5 the bench is busy; 6 the database is damaged;
126 the program cannot be run; 127 there is no such program; 128 and its number
where a signal ended the measurement. A program that was measured and failed passes
its own exit code on.`

func (a *app) root() *cobra.Command {
	postgres.Register(func(text string) { fmt.Fprintln(a.err, "wattmark:", text) })
	root := &cobra.Command{
		Use: "wattmark", Short: "Measures what a GPU really draws", Long: longHelp,
		SilenceUsage: true, SilenceErrors: true, Version: version(),
	}
	root.PersistentFlags().StringVar(&a.db, "db", store.Conceal(firstOf(os.Getenv("WATTMARK_DB"), defaultDB)), "task database: a SQLite file, or postgres://user@host/database (also WATTMARK_DB)")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return withCode(exitUsage, errors.New(err.Error()+"\nSee: "+c.CommandPath()+" --help"))
	})
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Measure:", []*cobra.Command{a.demoCmd(), a.runCmd(), a.tinyCmd(), a.pulseCmd(), a.instructionsCmd()}},
		{"Look at what was measured:", []*cobra.Command{a.tasksCmd(), a.showCmd(), a.usersCmd(), a.exportCmd(), a.trimCmd(), a.deleteCmd(), a.importCmd(), a.tagCmd(), a.noteCmd()}},
		{"Learn from it:", []*cobra.Command{
			a.validateCmd(), a.sensorCmd(), a.correctCmd(), a.compareCmd(), a.totalCmd(), a.rooflineCmd(), a.modelCmd(), a.predictCmd(),
		}},
		{"The task database:", []*cobra.Command{a.dbCmd(), a.pinCmd(true), a.pinCmd(false)}},
		{"Many machines:", []*cobra.Command{a.clusterCmd(), a.relayCmd(), a.storeCmd()}},
		{"The two machines:", []*cobra.Command{a.monitorCmd(), a.hostCmd(), a.authCmd(), a.topCmd(), a.takeoverCmd(), a.doctorCmd()}},
		{"The bench:", []*cobra.Command{
			a.instrumentsCmd(), a.calibrateCmd(), a.recalculateCmd(), a.powersensor3Cmd(), a.emulateCmd(), a.replayCmd(),
		}},
		{"And:", []*cobra.Command{a.benchCmd(), a.manCmd(), a.versionCmd()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	a.addDBCopy(root)
	root.SetHelpCommandGroupID("And:")
	root.SetCompletionCommandGroupID("And:")
	checkUsage(root)
	addTrust(root.PersistentFlags(), &a.trust)
	root.PersistentPreRun = func(c *cobra.Command, _ []string) {
		a.db = store.Conceal(a.db) // it is shown
		c.SetContext(trusting(c.Context(), &a.trust))
		collectRarely(c)
	}
	return root
}

// checkUsage gives wrong arguments the exit code of wrong usage, and a place to
// read on, in a command and all below it.
func checkUsage(c *cobra.Command) {
	for _, sub := range c.Commands() {
		checkUsage(sub)
	}
	if !c.Runnable() {
		c.Args, c.RunE = cobra.ArbitraryArgs, noSuchCommand
		return
	}
	check := c.Args
	if check == nil {
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return withCode(exitUsage, fmt.Errorf("%w\nSee: %s --help", err, c.CommandPath()))
		}
		return nil
	}
}

// noSuchCommand is what a command that only groups others does by itself.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	hint := ""
	c.SuggestionsMinimumDistance = 2
	if s := c.SuggestionsFor(args[0]); len(s) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(s, " or "))
	}
	return withCode(exitUsage, fmt.Errorf("%s has no command %q%s\nSee: %s --help", c.CommandPath(), args[0], hint, c.CommandPath()))
}

// jsonFlag gives a command --json.
func (a *app) jsonFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.json, "json", false, "print one JSON object on standard output and nothing else")
	return c
}
