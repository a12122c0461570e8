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
	"math"
	"os"
	"os/signal"
	"slices"
	"time"

	"wattmark/cmd/campaign/faults"
	"wattmark/cmd/campaign/model"
	"wattmark/cmd/campaign/processes"
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
	o := faults.Options{}
	f.IntVar(&o.Schedules, "schedules", 1000, "how many schedules are played")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the first; the others follow it")
	f.IntVar(&o.Workers, "workers", 0, "how many are played at a time; 0 for 16")
	f.StringVar(&o.Dir, "dir", "", "where their folders are made; in memory when empty")
	f.BoolVar(&o.Stop, "stop", false, "end at the first violation")
	limit := f.Duration("limit", 0, "begin no other schedule after so long; 0 for no limit")
	verbose := f.Bool("verbose", false, "tell each schedule")
	ackFirst := f.Bool("break-sync", false, "play against a monitor that acknowledges before it syncs: it must be caught")
	releaseFirst := f.Bool("break-store", false, "play against a host that releases before it stores: it must be caught")
	commitFirst := f.Bool("break-commit", false, "play against a host whose commits are not synced: it must be caught")
	real := f.Int("real", 0, "then as many schedules against real processes in network namespaces, from the same seed on; wants root")
	together := f.Bool("together", false, "those processes on one machine, with no faults of the network: wants no root")
	program := f.String("wattmark", "wattmark", "the program whose processes those are")
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
	switch {
	case *ackFirst:
		o.Broken = faults.AckBeforeSync
	case *commitFirst:
		o.Broken = faults.CommitBeforeSync
	case *releaseFirst:
		o.Broken = faults.ReleaseBeforeStore
	}
	o.Tell = func(r faults.Result) {
		if *verbose || len(r.Violations) > 0 {
			tell(out, r)
		}
	}
	r := faults.Report{}
	if o.Schedules > 0 {
		var err error
		if r, err = faults.Run(ctx, o); err != nil {
			return err
		}
		report(out, r)
	}
	broken := !r.OK()
	if *real > 0 {
		again, err := playReal(ctx, out, processes.Options{Program: *program, Dir: o.Dir, Seed: o.Seed, Schedules: *real, Until: o.Until, Workers: o.Workers, Together: *together}, *verbose)
		if err != nil {
			return err
		}
		broken = broken || again
	}
	if broken {
		return errBroken
	}
	return nil
}

// playReal plays schedules against real processes and tells whether an invariant was
// broken.
func playReal(ctx context.Context, out io.Writer, o processes.Options, verbose bool) (broken bool, err error) {
	o.Tell = func(r processes.Result) {
		if verbose || len(r.Violations) > 0 {
			fmt.Fprintf(out, "%v\n  %s in %v\n", r.Schedule, r.Outcome, r.Took.Round(time.Millisecond))
		}
		for _, v := range r.Violations {
			fmt.Fprintf(out, "  VIOLATION: %s\n", v)
		}
	}
	r, err := processes.Run(ctx, o)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "%d of %d schedules of real processes in %v: %d with violations\n\n%s\n", r.Played, r.Asked, r.Took.Round(time.Millisecond), len(r.Violated), r.Table())
	return len(r.Violated) > 0, nil
}

func tell(out io.Writer, r faults.Result) {
	fmt.Fprintf(out, "%v\n  %s in %v\n", r.Schedule, r.Outcome, r.Took.Round(time.Millisecond))
	if !math.IsNaN(r.Off) {
		fmt.Fprintf(out, "  its energy is off by %.2f U\n", r.Off)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(out, "  VIOLATION: %s\n", v)
	}
	if len(r.Violations) > 0 {
		fmt.Fprintf(out, "  again: go run ./cmd/campaign --schedules 1 --verbose --seed %d\n", r.Schedule.Seed)
	}
}

func report(out io.Writer, r faults.Report) {
	fmt.Fprintf(out, "%d of %d schedules in %v\n\n%s\n", r.Played, r.Asked, r.Took.Round(time.Millisecond), r.Table())
	fmt.Fprintf(out, "faults by step:")
	for _, s := range faults.Steps {
		fmt.Fprintf(out, " %s %d;", s, r.Reached[s])
	}
	fmt.Fprintf(out, "\nsteps of captures seen in their logs: %d of different kinds\n", len(r.Moves))
	fmt.Fprintf(out, "captures rightly kept on the monitor: %d\n", r.Kept)
	if len(r.Off) > 0 {
		slices.Sort(r.Off)
		at := func(share float64) float64 { return r.Off[int(share*float64(len(r.Off)-1))] }
		fmt.Fprintf(out, "energies of %d complete tasks off by: median %.2f U, 95 %% %.2f U, most %.2f U\n", len(r.Off), at(0.5), at(0.95), at(1))
	}
	fmt.Fprintf(out, "%d schedules with violations, %d goroutines left behind\n", len(r.Violated), len(r.Leaks))
	for _, l := range r.Leaks {
		fmt.Fprintf(out, "left behind:\n%s\n", l)
	}
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
