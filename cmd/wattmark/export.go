package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"wattmark/store"
)

const exportHelp = `Write what was measured for other programs, in any length and little memory. docs/export.md
lists columns, units and metadata.

  csv           device time, total power, and current, voltage and power of each rail;
                units and calibration in comment lines that begin with #
  parquet       the same columns; with --raw the counts, which become volts and amperes
                by the calibration in the file's metadata
  arrow         the same as an Arrow IPC file (Feather 2); arrow-stream: as a stream
  sqlite        a database of its own with the paper's plain table "data" of twelve
                columns, primary key (taskID, seqNum)
  perfetto      a trace for https://ui.perfetto.dev: kernels by stream, rails as
                counters, markers; times are the host's (CLOCK_REALTIME)
  chrome        the same as JSON for chrome://tracing
  kernels       the timeline of a program that run --auto recorded, one line a kernel,
                on the host's clock in nanoseconds since 1970
  recording     a folder with the raw counts as the meter delivered them, which
                "wattmark monitor --instrument replay --port FOLDER" plays again, and
                what the host knew (host.json)

Only the window is written, unless --all is given; --from and --to cut out a part of it.
Traces show all samples, with the window as a slice and the markers around it.
sqlite, perfetto and chrome hold several tasks, the others one: their columns are the
task's rails. Without --format the ending of FILE tells it: .csv, .parquet, .arrow,
.feather, .ipc, .arrows, .db, .sqlite, .sqlite3, .pftrace, .perfetto-trace, .json or
.recording; .gz or .zst behind .csv, .json and .pftrace compresses. Another ending is
refused. A file is there whole, or not at all.`

func (a *app) exportCmd() *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use: "export TASK…", Short: "Write tasks for other programs: CSV, Parquet, Arrow, SQLite, Perfetto and more",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 != f.every {
				return errors.New("name one or more tasks, or all of them with --all-tasks")
			}
			return nil
		},
		Long: exportHelp,
		Example: `  wattmark export 42 -o gemm.parquet
  wattmark export 42 --format csv --rail pcie_12v --from 1.5s --to 1.6s
  wattmark export 42 43 -o both.pftrace
  wattmark export --all-tasks --format sqlite -o paper.db
  wattmark export 42 --format recording -o gemm.recording`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.fromGiven, f.toGiven = cmd.Flags().Changed("from"), cmd.Flags().Changed("to")
			if err := f.formatByName(); err != nil {
				return err
			}
			return a.export(cmd.Context(), args, f)
		},
	}
	resultFlag(c, &f.result)
	fl := c.Flags()
	fl.StringVar(&f.format, "format", "", formatNames()+" (default: by the ending of FILE, else csv)")
	fl.StringVarP(&f.output, "output", "o", "-", "file or folder to write; - for standard output")
	fl.BoolVar(&f.all, "all", false, "also the samples outside of the window, markers among them")
	fl.BoolVar(&f.raw, "raw", false, "counts as the meter delivered them instead of volts, amperes and watts")
	fl.StringArrayVar(&f.rails, "rail", nil, "only this rail's columns; may be given again")
	fl.DurationVar(&f.from, "from", 0, "only from this device time on, as wattmark show plots it")
	fl.DurationVar(&f.to, "to", 0, "only up to this device time")
	fl.BoolVar(&f.hostTime, "host-time", false, "a column host_ns with the host's clock (csv, parquet, arrow)")
	fl.BoolVar(&f.every, "all-tasks", false, "all tasks of the database")
	return a.jsonFlag(c)
}

// exportReport is what export --json prints beside a file.
type exportReport struct {
	Format  string  `json:"format"`
	File    string  `json:"file"`
	TaskIDs []int64 `json:"task_ids"`
	Bytes   int64   `json:"bytes"`
}

func (a *app) export(ctx context.Context, args []string, f exportFlags) error {
	info, err := f.check(len(args))
	if err != nil {
		return err
	}
	toStdout := f.output == "" || f.output == "-"
	if a.json && toStdout {
		return withCode(exitUsage, errors.New("--json says what was written to a file: name one with -o"))
	}
	for _, arg := range args {
		if _, err := taskID(arg); err != nil {
			return err
		}
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	if f.every {
		if args, err = withSamples(ctx, db); err == nil {
			_, err = f.check(len(args))
		}
		if err != nil {
			return err
		}
	}
	var tasks []*store.Task
	for _, arg := range args {
		t, err := a.taskResult(ctx, db, arg, f.result)
		if err != nil {
			return err
		}
		tasks = append(tasks, t)
	}
	if err := a.exportTasks(ctx, db, tasks, info, f, toStdout); err != nil || toStdout {
		return err
	}
	return a.printExported(tasks, f)
}

// withSamples are all tasks that have samples, oldest first.
func withSamples(ctx context.Context, db *store.DB) (args []string, err error) {
	list, err := everyTask(ctx, db, store.Query{})
	if err != nil {
		return nil, err
	}
	for _, t := range slices.Backward(list) {
		if t.Scans > 0 {
			args = append(args, fmt.Sprint(t.ID))
		}
	}
	if len(args) == 0 {
		err = withCode(exitNotFound, errors.New("no task has samples: measure something first (wattmark demo)"))
	}
	return args, err
}

func (a *app) exportTasks(ctx context.Context, db *store.DB, tasks []*store.Task, info formatInfo, f exportFlags, toStdout bool) error {
	t := tasks[0]
	write := func(w io.Writer) error { return exportTable(ctx, w, db, t, f) }
	switch info.name {
	case "recording":
		return exportRecording(ctx, f.output, db, t)
	case "sqlite":
		return exportSQLite(ctx, f.output, db, tasks, f)
	case "kernels":
		write = func(w io.Writer) error { return exportKernels(ctx, w, db, t) }
	case "perfetto", "chrome":
		write = func(w io.Writer) error { return exportTimelines(ctx, w, db, tasks, f) }
	}
	if toStdout {
		return write(a.out)
	}
	return writeFile(f.output, compressed(f.output, write))
}

func (a *app) printExported(tasks []*store.Task, f exportFlags) error {
	r := exportReport{Format: f.format, File: f.output}
	for _, t := range tasks {
		r.TaskIDs = append(r.TaskIDs, int64(t.ID))
	}
	err := filepath.WalkDir(f.output, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		i, err := d.Info()
		if err == nil {
			r.Bytes += i.Size()
		}
		return err
	})
	if err != nil || a.json {
		return errors.Join(err, a.printJSON(r))
	}
	_, err = fmt.Fprintf(a.out, "Written to %s (%s, %s)\n", r.File, r.Format, sizeText(r.Bytes))
	return err
}
