// Package cli holds the parts that all commands share: the App with its streams and
// global flags, the root command and its groups, exit codes, signals, the opening of the
// task database, TLS and tokens of a client, traces, output files, and the parsing of
// task numbers, times and sizes.
//
//	main → Main → Run → Root(families) → a family's command → its function of *App
//
// An App belongs to one command line; nothing in it may be used by two at once.
package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres"
)

// Streams are the standard input, output and error of a command line, replaced in tests.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// App holds the streams and the values of global flags of one command line.
type App struct {
	Streams
	JSON bool   // --json
	DB   string // --db, without a password; host://ADDRESS for the database of a wattmark host
	host string // --host, in place of --db
	// Context is the named set of the client configuration to use (--context); empty for that of the files.
	Context string
	// Quiet leaves out progress and hints: --quiet.
	Quiet bool
	// Wide lets lines and tables be wider than the terminal, ASCII has no other signs: --wide, --ascii.
	Wide, ASCII bool
	// Trust holds the certificates and the token for connections to services.
	Trust auth.Client
	// Args are the words of the command line after the program's name.
	Args []string
	kept string // what remains of an interrupted command's data: Keep
	// lines buffers In for Line; nil until its first call.
	lines *bufio.Reader
}

// DefaultDB is the default of --db.
const DefaultDB = "power.db"

// Exit codes, for scripts.
const (
	ExitFailed     = 1
	ExitUsage      = 2
	ExitIncomplete = 3 // measured, but the task is incomplete or untrimmed
	ExitNotFound   = 4
	ExitBusy       = 5
	ExitDamaged    = 6 // in the database

	// As in a shell:
	ExitNoExec    = 126 // the measured program exists and cannot be run
	ExitNoProgram = 127 // there is no such program
	Signalled     = 128 // plus the number of the signal that ended it
)

// codedError carries an exit code.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// WithCode wraps an error so that ExitCode returns code for it; nil stays nil.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return codedError{err, code}
}

// Usagef returns an error with the exit code ExitUsage, formatted as by fmt.Errorf.
func Usagef(format string, args ...any) error {
	return WithCode(ExitUsage, fmt.Errorf(format, args...))
}

// NotFoundf returns an error with the exit code ExitNotFound, formatted as by fmt.Errorf.
func NotFoundf(format string, args ...any) error {
	return WithCode(ExitNotFound, fmt.Errorf(format, args...))
}

// ExitCode returns the exit code for an error: the measured program's own if it failed, then
// that of WithCode, else ExitFailed.
func ExitCode(err error) int {
	if program, ok := errors.AsType[*measurement.ProgramError](err); ok {
		return program.Code
	}
	if c, ok := errors.AsType[codedError](err); ok {
		return c.code
	}
	return ExitFailed
}

// wrongNumber matches cobra's errors about the number of arguments.
var wrongNumber = regexp.MustCompile(`^(accepts|requires) .*arg|^unknown command`)

// noCommand returns the error of a command that has no such one below it: with those alike, else with all of them.
func noCommand(c *cobra.Command, name string) error {
	hint := didYouMean(c, name, "")
	if names := lists.Map(c.Commands(), (*cobra.Command).Name); hint == "" && c.HasParent() && len(names) > 0 {
		hint = fmt.Sprintf(": it has %s", strings.Join(names, ", "))
	}
	return Usagef("%s has no command %q%s\nSee: %s --help", c.CommandPath(), name, hint, c.CommandPath())
}

// didYouMean returns the question for the commands below c whose names are like name, each with a prefix.
func didYouMean(c *cobra.Command, name, prefix string) string {
	c.SuggestionsMinimumDistance = 2
	found := c.SuggestionsFor(name)
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", prefix, strings.Join(found[:min(len(found), 3)], " or "+prefix))
}

// FlagError words pflag's error: for an unknown flag it asks for those of fl that are alike, for a number or a time it
// says what is wanted.
func FlagError(fl *pflag.FlagSet, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		var all cobra.Command // by whose commands cobra finds names alike
		run := func(*cobra.Command, []string) {}
		fl.VisitAll(func(f *pflag.Flag) { all.AddCommand(&cobra.Command{Use: f.Name, Hidden: f.Hidden, Run: run}) })
		return fmt.Errorf("%w%s", err, didYouMean(&all, unknown.GetSpecifiedName(), "--"))
	}
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	kind := bad.GetFlag().Value.Type()
	if wants := config.Wants(kind); wants != "" && (errors.Is(err, strconv.ErrSyntax) || kind == "duration" || kind == "days") {
		return fmt.Errorf("--%s %s: want %s", bad.GetFlag().Name, bad.GetValue(), wants)
	}
	return err
}

// CheckUsage changes a command and all below it so that wrong arguments get the exit code
// ExitUsage and a hint to --help. A command that only groups others prints its help without
// arguments, else an error with similar names.
func CheckUsage(c *cobra.Command) {
	for _, sub := range c.Commands() {
		CheckUsage(sub)
	}
	if !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return noCommand(c, args[0])
		}
		c.SetFlagErrorFunc(func(of *cobra.Command, err error) error {
			if args := of.Flags().Args(); of == c && len(args) > 0 {
				return noCommand(c, args[0]) // its flags are unknown, too
			}
			return Usagef("%w\nSee: %s --help", FlagError(of.Flags(), err), of.CommandPath())
		})
		return
	}
	check := c.Args
	if check == nil {
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := check(c, args)
		switch {
		case err == nil:
			return nil
		case c.HasAvailableSubCommands() && strings.HasPrefix(err.Error(), "unknown command"):
			return noCommand(c, args[0])
		case wrongNumber.MatchString(err.Error()):
			_, name, _ := strings.Cut(c.CommandPath(), " ")
			_, wants, _ := strings.Cut(strings.TrimSuffix(c.Use, " [flags]"), " ")
			err = fmt.Errorf("%s wants %s, not %s", name, cmp.Or(wants, "no arguments"), measure.Plural(len(args), "argument"))
		}
		return Usagef("%w\nSee: %s --help", err, c.CommandPath())
	}
}

// JSONFlag adds --json to a command and returns the command.
func (a *App) JSONFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.JSON, "json", false, "print one JSON object on standard output and nothing else")
	return c
}

// Command returns a command that calls run with the command line's context and arguments,
// once args accepts these.
func Command(use, short string, args cobra.PositionalArgs, run func(context.Context, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(c *cobra.Command, args []string) error { return run(c.Context(), args) },
	}
}

// Family is the constructor of one package's commands, each with its group (In).
type Family func(*App) []*cobra.Command

// Named is a family with the names of its commands, separated by spaces.
type Named struct {
	Names    string
	Commands Family
}

// FamiliesFor returns the families that a command line needs: that of its first word, none for the version, and all
// where the first word is a global flag, help or no command. To build all commands takes 2 ms and a megabyte, and the
// garbage collection that follows as much again.
func FamiliesFor(args []string, families []Named) (all []Family) {
	if len(args) == 1 && (args[0] == "version" || args[0] == "--version") {
		return nil
	}
	for _, f := range families {
		if len(args) > 0 && slices.Contains(strings.Fields(f.Names), args[0]) {
			return []Family{f.Commands}
		}
		all = append(all, f.Commands)
	}
	return all
}

// The groups of the program's help, in the order of Root.
const (
	Measure  = "Measure:"
	Look     = "Look at what was measured:"
	Learn    = "Learn from it:"
	Database = "Keep the task database:"
	Many     = "Use many machines:"
	Machines = "Set up and watch the two machines:"
	Bench    = "Look after the meter:"
	And      = "And:"
)

// In puts the commands of a family into a group of the root's help and gives each, and
// those below it, the Long and Example of its section of help: Markdown with a heading
// "# PATH" per command and its examples in a block of shell.
func In(group, help string, commands ...*cobra.Command) []*cobra.Command {
	sections := map[string]string{}
	for s := range strings.SplitSeq("\n"+help, "\n# ") {
		path, text, _ := strings.Cut(s, "\n")
		sections[path] = text
	}
	for _, c := range commands {
		c.GroupID = group
		explain(c, sections)
	}
	return commands
}

// explain sets the help texts of c and of all commands below it by their paths. A command
// without a section keeps its own.
func explain(c *cobra.Command, sections map[string]string) {
	if text, ok := sections[c.CommandPath()]; ok {
		long, example, _ := strings.Cut(text, "```sh\n")
		example, _, _ = strings.Cut(example, "\n```")
		c.Long = strings.TrimSpace(strings.TrimSpace(long) + "\n\n" + c.Long)
		if example != "" {
			c.Example = "  " + strings.ReplaceAll(example, "\n", "\n  ")
		}
	}
	for _, sub := range c.Commands() {
		explain(sub, sections)
	}
}

// Main runs the program with the process's arguments and streams. After an error it prints
// that and ends the process with the error's exit code.
func Main(families ...Family) {
	ctx, stop := UntilAsked(context.Background())
	defer stop()
	io := Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	if err := Run(ctx, os.Args[1:], io, families...); err != nil {
		if !Silently(err) {
			fmt.Fprintln(NewScreen(os.Stderr, false, wantsASCII()), "wattmark:", Printable(err))
		}
		os.Exit(ExitCode(err))
	}
}

// Run runs one command line, without the program's name, and blocks until it ends. Its error is the one for the
// user. Concurrent calls are safe.
func Run(ctx context.Context, args []string, s Streams, families ...Family) error {
	a := &App{Streams: s, Args: args}
	root := Root(a, families...)
	root.SetArgs(args)
	root.SetOut(NewScreen(s.Out, false, wantsASCII())) // help
	root.SetErr(s.Err)
	root.SetIn(s.In)
	return a.said(ctx, root.ExecuteContext(ctx))
}

const longHelp = `wattmark measures what a GPU really draws.

Start here:
  wattmark demo                             a whole bench in software
  wattmark run -- ./gemm 4096               a program, by the GPU's own sensor
  wattmark run --instrument powersensor3 --port /dev/ttyACM0 -- ./gemm 4096
                                            the same by a meter
  wattmark tasks; wattmark show 1

Exit codes: 0 measured; 1 failed; 2 wrong usage; 3 measured, but incomplete or
without a window; 4 no such task; 5 bench busy; 6 database damaged; 126 program
cannot be run; 127 no such program; 128 + the signal that ended it; else that
of the measured program.`

// mainCommands are the commands to which the program's help gives a line each, in this order.
const mainCommands = "run demo tasks show export compare validate doctor monitor host top instruments calibrate"

// shortHelp returns the program's help: by group the main commands, and the names of the others.
func shortHelp(root *cobra.Command) string {
	var b strings.Builder
	about, _, _ := strings.Cut(root.Long, "\n\nExit codes")
	fmt.Fprintf(&b, "%s\n\n", about)
	for _, g := range root.Groups() {
		var names []string
		fmt.Fprint(&b, g.Title)
		for _, c := range root.Commands() {
			if c.GroupID == g.ID && !slices.Contains(strings.Fields(mainCommands), c.Name()) {
				names = append(names, c.Name())
			}
		}
		more := " "
		for _, name := range strings.Fields(mainCommands) {
			if c, _, err := root.Find([]string{name}); err == nil && c.GroupID == g.ID {
				fmt.Fprintf(&b, "\n  %-12s %s", name, c.Short)
				more = "\n  more: "
			}
		}
		fmt.Fprintf(&b, "%s%s\n", more, strings.Join(names, ", "))
	}
	fmt.Fprint(&b, "\nwattmark COMMAND --help tells how to use a command, wattmark help all lists all\n"+
		"commands, the flags that all have (as --db, --context, --quiet), and exit codes.\n")
	return b.String()
}

// addHelp makes the program's help the short one, and adds wattmark help all, which lists all commands. Help for what
// is no command is an error.
func addHelp(root *cobra.Command) {
	all := &cobra.Command{Use: "all", Hidden: true}
	root.AddCommand(all)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		c, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = noCommand(c, rest[0])
		}
		return err
	}
	usual := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if s, ok := c.OutOrStdout().(*Screen); ok && s.Columns > 0 {
			c.Long, root.Long = joined(c.Long), joined(root.Long)
		}
		switch c {
		case root:
			fmt.Fprint(c.OutOrStdout(), shortHelp(root))
		case all:
			usual(root, args)
		default:
			usual(c, args)
		}
	})
}

// Root returns the program's command with those of all families below it. Its PersistentPreRun
// runs before every command: it conceals a password in --db, puts the trust of services
// into the context and sets the garbage collector of services.
func Root(a *App, families ...Family) *cobra.Command {
	postgres.Register(func(text string) { fmt.Fprintln(a.Err, "wattmark:", text) })
	root := &cobra.Command{
		Use: "wattmark", Short: "Measures what a GPU really draws", Long: longHelp,
		SilenceUsage: true, SilenceErrors: true, Version: Version(),
	}
	root.PersistentFlags().StringVar(&a.DB, "db", store.Conceal(cmp.Or(os.Getenv("WATTMARK_DB"), DefaultDB)),
		"task database: a SQLite file, or postgres://user@host/database (also WATTMARK_DB)")
	for _, title := range []string{Measure, Look, Learn, Database, Many, Machines, Bench, And} {
		root.AddGroup(&cobra.Group{ID: title, Title: title})
	}
	for _, f := range families {
		root.AddCommand(f(a)...)
	}
	root.AddCommand(In(And, "", a.manCmd(), a.versionCmd())...)
	root.SetHelpCommandGroupID(And)
	root.SetCompletionCommandGroupID(And)
	CheckUsage(root)
	addHelp(root)
	if len(a.Args) > 0 && strings.HasPrefix(a.Args[0], cobra.ShellCompRequestCmd) {
		a.CompleteValues(root)
	}
	root.SetUsageFunc(writeUsage)
	AddTrust(root.PersistentFlags(), &a.Trust)
	root.PersistentFlags().StringVar(&a.Context, "context", "",
		"use this context of the client configuration (also WATTMARK_CONTEXT; see wattmark config)")
	root.PersistentFlags().BoolVar(&a.Quiet, "quiet", false,
		"print results, warnings and errors alone: no progress, no hints")
	root.PersistentFlags().BoolVar(&a.Wide, "wide", false, "let lines and tables be wider than the terminal")
	root.PersistentFlags().BoolVar(&a.ASCII, "ascii", false, "write ASCII alone (default: where the locale has no UTF-8)")
	Configured(root.PersistentFlags(), append([]string{"db"}, TrustFlags...)...)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := errors.Join(a.chooseHost(c.Flags()), a.configure(c)); err != nil {
			return err
		}
		a.DB = store.Conceal(a.DB) // messages print it
		a.Out = NewScreen(Raw(a.Out), a.Wide, a.ASCII || wantsASCII())
		a.Err = NewScreen(Raw(a.Err), a.Wide, a.ASCII || wantsASCII())
		c.SetContext(Trusting(c.Context(), &a.Trust))
		CollectRarely(c)
		return nil
	}
	return root
}

// Release is the version of the next tag; the revision comes from the build.
const Release = "0.1.0"

// Version returns the release, with "+" and 12 digits of the Git revision if the build
// recorded one.
func Version() string { return measurement.WithRevision(Release) }

func (a *App) versionCmd() *cobra.Command {
	return a.JSONFlag(Command("version", "Print the version", cobra.NoArgs, func(context.Context, []string) error {
		v, system, arch := runtime.Version(), runtime.GOOS, runtime.GOARCH
		if a.JSON {
			return a.PrintJSON(map[string]string{"version": Version(), "go": v, "os": system, "arch": arch})
		}
		_, err := fmt.Fprintf(a.Out, "wattmark %s (%s, %s/%s)\n", Version(), v, system, arch)
		return err
	}))
}

// serviceGC is GOGC, in percent, of services and of their benchmarks. Their heaps are some
// tens of megabytes; with GOGC 100 a collection comes with every eightieth page of a list,
// and the 99th percentile of a page is 1.2 ms instead of 0.7 ms. Samples are stored faster,
// too. The monitor keeps GOGC 100: it may run on a machine with little memory.
const serviceGC = 400

// CollectRarely sets GOGC to serviceGC in the commands that serve, except the monitor. The
// environment variable GOGC takes precedence.
func CollectRarely(c *cobra.Command) {
	serves := slices.Contains([]string{"host", "store", "bench"}, family(c))
	if serves && c.Name() != "monitor" && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(serviceGC)
	}
}
