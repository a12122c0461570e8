// Command campaign plays schedules of faults against a measuring place and tells
// which invariants were broken: docs/reliability.md.
//
//	go run ./cmd/campaign --schedules 5000 --seed 1
//	go run ./cmd/campaign --seed 182 --schedules 1 --verbose
//	go run ./cmd/campaign --model
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"time"

	"wattmark/cmd/campaign/faults"
	"wattmark/cmd/campaign/model"
	"wattmark/cmd/campaign/play"
	"wattmark/cmd/campaign/processes"
	"wattmark/cmd/campaign/relays"
	"wattmark/monitor/capture"
	"wattmark/store"
)

// errBroken: an invariant was broken; what and how was told.
var errBroken = errors.New("an invariant was broken")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("campaign", flag.ContinueOnError)
	f.SetOutput(out)
	o := play.Options{}
	f.IntVar(&o.Schedules, "schedules", 1000, "how many schedules are played")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the first; the others follow it")
	f.IntVar(&o.Workers, "workers", 0, "how many are played at a time; 0 for 16, and 6 of real processes")
	f.StringVar(&o.Dir, "dir", "", "where their folders are made; in memory when empty")
	f.BoolVar(&o.Stop, "stop", false, "end at the first violation")
	limit := f.Duration("limit", 0, "begin no other schedule after so long; 0 for no limit")
	verbose := f.Bool("verbose", false, "tell each schedule")
	ackFirst := f.Bool("break-sync", false, "play against a monitor that acknowledges before it syncs: it must be caught")
	releaseFirst := f.Bool("break-store", false, "play against a host that releases before it stores: it must be caught")
	commitFirst := f.Bool("break-commit", false, "play against a host whose commits are not synced: it must be caught")
	real := f.Int("real", 0, "then as many schedules against real processes in network namespaces, from the same seed on; wants root")
	relayed := f.Int("relays", 0, "then as many schedules of tasks on their way to a store, from the same seed on; imports of files where --wattmark is named")
	together := f.Bool("together", false, "those processes on one machine, with no faults of the network: wants no root")
	program := f.String("wattmark", "", "the program whose processes those are")
	onlyModel := f.Bool("model", false, "explore the model of the protocol instead, also two hosts beside each other")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *onlyModel {
		return explore(out)
	}
	if *limit > 0 {
		o.Until = time.Now().Add(*limit)
	}
	broken := faults.Whole
	switch {
	case *ackFirst:
		broken = faults.AckBeforeSync
	case *commitFirst:
		broken = faults.CommitBeforeSync
	case *releaseFirst:
		broken = faults.ReleaseBeforeStore
	}
	o.Tell = func(r play.Result) {
		if *verbose || len(r.Violations) > 0 {
			fmt.Fprint(out, r)
		}
	}
	return playAll(ctx, o, broken, processes.Options{Program: *program, Together: *together}, *real, *relayed, out)
}

// playAll plays schedules of the three worlds in turn and writes a report of each:
// faults in one process, real processes, and tasks on their way to a store. It returns
// errBroken where a schedule violated a promise.
func playAll(ctx context.Context, o play.Options, broken faults.Broken, p processes.Options, real, relayed int, out io.Writer) error {
	bad := false
	if o.Schedules > 0 {
		r, err := faults.Run(ctx, o, broken)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%v\n\n%s%d goroutines left behind\n", &r.Report, r.String(), len(r.Leaks))
		bad = !r.OK()
	}
	if real > 0 {
		o.Schedules = real
		p.Options = o
		r, err := processes.Run(ctx, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "real processes: %v\n\n%s\n", &r, processes.Table(&r))
		bad = bad || len(r.Violated) > 0
	}
	if relayed > 0 {
		o.Schedules = relayed
		r, err := relays.Run(ctx, relays.Options{Options: o, Program: p.Program})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "relays: %v\n\n%s\n", &r, relays.Table(&r))
		bad = bad || len(r.Violated) > 0
	}
	if bad {
		return errBroken
	}
	return nil
}

func explore(out io.Writer) error {
	broken := false
	sum := map[string]int{}
	for _, r := range []model.Rules{{Captures: 1, Chunks: 2}, {Captures: 1, Chunks: 2, Hands: true}, {Captures: 2, Chunks: 2}, {Captures: 2, Chunks: 1, Together: true}} {
		r.Capture, r.Task = capture.Life(), store.Life()
		begun := time.Now()
		got := model.Explore(r)
		fmt.Fprintf(out, "%d captures of %d chunks, together %v, others' hands %v: %d states, %d transitions in %v\n",
			r.Captures, r.Chunks, r.Together, r.Hands, got.States, got.Steps, time.Since(begun).Round(time.Millisecond))
		for row, n := range got.Taken {
			sum[row] += n
		}
		if got.Violation != "" {
			broken = true
			fmt.Fprintf(out, "VIOLATION: %s\nby: %q\n", got.Violation, got.Trace)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(sum)) {
		fmt.Fprintf(out, "%12d times %s\n", sum[row], row)
	}
	if broken {
		return errBroken
	}
	return nil
}
