package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// storeReport is what bench store prints.
type storeReport struct {
	Machine machineReport `json:"machine"`
	Limits  limitsReport  `json:"limits"`
	Lists   *listsReport  `json:"lists,omitempty"`
	Long    *longReport   `json:"long,omitempty"`
	Peers   []peerReport  `json:"peers,omitempty"`
	Goals   []goal        `json:"goals"`
}

type storeFlags struct {
	benchFlagsShared
	tasks, calls, samples int
	length                time.Duration
	postgres              string
}

func (a *app) benchStoreCmd() *cobra.Command {
	var f storeFlags
	c := &cobra.Command{
		Use: "store", Short: "The task database: lists of many tasks, a long capture, and other ways to keep samples", Args: cobra.NoArgs,
		Long: `Measure the task database on its own: pages out of many made-up tasks, in this
process and over gRPC; a long capture, stored at full speed, drawn at several zooms
and exported; and the same samples kept in other ways – a row a sample in SQLite,
rows sent to a PostgreSQL server by COPY, CSV – for scale.

--postgres names an empty database on a server, in which the same is done; what is
made there stays.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.benchStore(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.IntVar(&f.tasks, "tasks", 1_000_000, "tasks to list; 0 leaves the lists out")
	fl.IntVar(&f.calls, "calls", 1000, "how often each page is asked for")
	fl.IntVar(&f.samples, "samples", 1_000_000, "samples to keep in each way; 0 leaves the comparison out")
	fl.DurationVar(&f.length, "length", time.Hour, "length of a capture at 100 kS/s; 0 leaves it out")
	fl.StringVar(&f.postgres, "postgres", "", "address of an empty database on a PostgreSQL server")
	return a.benchFlags(c, &f.benchFlagsShared)
}

func (a *app) benchStore(ctx context.Context, f storeFlags) error {
	if f.tasks < 0 || f.samples < 0 || f.length < 0 || f.calls < 1 {
		return withCode(exitUsage, errors.New("--tasks, --samples and --length must not be negative, --calls must be at least 1"))
	}
	dir, remove, err := f.scratch()
	if err != nil {
		return err
	}
	defer remove()
	r := &storeReport{Machine: describeMachine(dir)}
	if r.Limits, err = measureLimits(ctx, dir); err != nil {
		return err
	}
	if f.profile != "" {
		stop, err := startProfile(f.profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	if f.tasks > 0 { // first: they want an empty database
		if r.Lists, err = benchLists(ctx, dir, f.postgres, f.tasks, f.calls); err != nil {
			return err
		}
	}
	if f.samples > 0 {
		if r.Peers, err = benchPeers(ctx, dir, f.postgres, f.samples); err != nil {
			return err
		}
	}
	if f.length > 0 {
		if r.Long, err = a.benchLong(ctx, dir, f.length); err != nil {
			return err
		}
	}
	r.judge()
	if a.json {
		return a.printJSON(r)
	}
	r.render(a.out)
	return nil
}
