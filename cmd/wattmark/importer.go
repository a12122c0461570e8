package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/smilog"
	"wattmark/store"
)

func (a *app) importCmd() *cobra.Command {
	c := &cobra.Command{Use: "import", Short: "Take in what other tools recorded, as a task or beside one"}
	c.AddCommand(a.importSmiCmd(), a.importCSVCmd(), a.importPMDCmd(), a.importDumpCmd())
	return c
}

// smiFlags are the flags of import nvidia-smi.
type smiFlags struct {
	task   int64
	offset time.Duration
	zone   string
	given  bool // --utc-offset
}

func (a *app) importSmiCmd() *cobra.Command {
	var f smiFlags
	c := &cobra.Command{
		Use: "nvidia-smi FILE --task N", Short: "Take in a log of nvidia-smi as a software method of a task", Args: cobra.ExactArgs(1),
		Long: `Take in the CSV that nvidia-smi wrote while a task ran:

  nvidia-smi --query-gpu=timestamp,power.draw,power.draw.average,power.draw.instant \
             --format=csv -lms 20 > smi.csv

Its readings are stored with the task, and each power column becomes a method that
wattmark show holds against the meter. Taking in a log again replaces it.

nvidia-smi writes local time and does not say whose. Without --utc-offset or --zone
this machine's zone and UTC are tried; the file is refused unless exactly one of them
makes it cover the task's work.`,
		Example: "  wattmark import nvidia-smi smi.csv --task 42\n  wattmark import nvidia-smi smi.csv --task 42 --utc-offset 1h\n  wattmark import nvidia-smi smi.csv --task 42 --zone Europe/Berlin",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.given = cmd.Flags().Changed("utc-offset")
			return a.importSmi(cmd.Context(), args[0], f)
		},
	}
	fl := c.Flags()
	fl.Int64Var(&f.task, "task", 0, "number of the task")
	fl.DurationVar(&f.offset, "utc-offset", 0, "how far the log's local time was ahead of UTC, as in 1h or -5h30m")
	fl.StringVar(&f.zone, "zone", "", "the log's time zone, as in Europe/Berlin")
	return a.jsonFlag(c)
}

func (a *app) importSmi(ctx context.Context, path string, f smiFlags) error {
	switch {
	case f.task < 1:
		return withCode(exitUsage, errors.New("name the task with --task: list them with wattmark tasks"))
	case f.given && f.zone != "":
		return withCode(exitUsage, errors.New("give --utc-offset or --zone, not both"))
	case f.offset > 14*time.Hour || f.offset < -14*time.Hour:
		return withCode(exitUsage, fmt.Errorf("--utc-offset %v: no place on earth is so far from UTC", f.offset))
	}
	log, err := readSmi(path)
	if err != nil {
		return err
	}
	db, err := a.openToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	t, err := a.task(ctx, db, fmt.Sprint(f.task))
	if err != nil {
		return err
	}
	from, to, err := workSpan(ctx, db, t.ID)
	if err != nil {
		return err
	}
	zone, err := f.place(log, from, to)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	results, err := storeSmi(ctx, db, t.ID, log, from, to)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return a.printImported(ctx, db, t, log, zone, results)
}

// maxSmi is more than a day of nvidia-smi as fast as it goes.
const maxSmi = 1 << 30

// readSmi reads a log with its times as they stand there.
func readSmi(path string) (*smilog.Log, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plain, _, err := decompressed(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer plain.Close()
	in := &io.LimitedReader{R: plain, N: maxSmi}
	log, err := smilog.Parse(in, 0)
	if in.N == 0 {
		return nil, fmt.Errorf("%s: not less than 1 GiB: cut out what belongs to the task", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nWant what nvidia-smi --query-gpu=timestamp,power.draw --format=csv writes: mend or remove that line", path, err)
	}
	return log, nil
}

// workSpan is when a task's work ran, by the host's clock.
func workSpan(ctx context.Context, db *store.DB, id store.TaskID) (from, to time.Time, err error) {
	ks, err := db.Kernels(ctx, id)
	if err != nil {
		return from, to, err
	}
	for i, k := range ks {
		if i == 0 || k.Start.Before(from) {
			from = k.Start
		}
		if k.End.After(to) {
			to = k.End
		}
	}
	if !from.Before(to) {
		return from, to, fmt.Errorf("task %d: it is not known when its work ran", id)
	}
	return from, to, nil
}
