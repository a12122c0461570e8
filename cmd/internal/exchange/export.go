// Package exchange has export and import: tasks as CSV, JSON, Parquet, Arrow, SQLite,
// Perfetto traces, and recordings of other programs as tasks.
//
//	import: file → incoming (readings, or scans) → task, whole or not at all
//	export: task → table or timeline → one file
package exchange

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/store"
)

func exportCmd(a *cli.App) *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use: "export TASK…", Short: "Write tasks for other programs: CSV, Parquet, SQLite and more",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 != f.every {
				return errors.New("name one or more tasks, or all of them with --all-tasks")
			}
			return cli.Tasks(c, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.fromGiven, f.toGiven = cmd.Flags().Changed("from"), cmd.Flags().Changed("to")
			if err := f.formatByName(); err != nil {
				return err
			}
			return export(cmd.Context(), a, args, f)
		},
	}
	report.ResultFlag(c, &f.result)
	fl := c.Flags()
	fl.StringVar(&f.format, "format", "", cli.FormatNames()+" (default: by the ending of FILE, else csv)")
	fl.StringVarP(&f.output, "output", "o", "-", "file or folder to write; - for standard output")
	fl.BoolVar(&f.all, "all", false, "also the samples outside of the window, markers among them")
	fl.BoolVar(&f.raw, "raw", false, "counts as the meter delivered them instead of volts, amperes and watts")
	fl.StringArrayVar(&f.rails, "rail", nil, "only this rail's columns; may be given again")
	fl.DurationVar(&f.from, "from", 0, "only from this device time on, as wattmark show plots it")
	fl.DurationVar(&f.to, "to", 0, "only up to this device time")
	fl.BoolVar(&f.hostTime, "host-time", false, "a column host_ns with the host's clock (csv, parquet, arrow)")
	fl.BoolVar(&f.every, "all-tasks", false, "all tasks of the database")
	return a.HostFlag(a.JSONFlag(c))
}

// ExportReport is the JSON of export: the file or folder written, its size in bytes (all
// files of a folder), and the tasks in it.
type ExportReport struct {
	Format  string  `json:"format"`
	File    string  `json:"file"`
	TaskIDs []int64 `json:"task_ids"`
	Bytes   int64   `json:"bytes"`
}

// export writes the tasks of args, or all with --all-tasks, in the chosen format. All flags
// and task numbers are checked before the database is opened; a file appears whole or not
// at all. With --json it refuses standard output, which the samples would share.
func export(ctx context.Context, a *cli.App, args []string, f exportFlags) error {
	info, err := f.check(len(args))
	if err != nil {
		return err
	}
	if a.JSON && f.toStdout() {
		return cli.Usagef("--json says what was written to a file: name one with -o")
	}
	if f.toStdout() && out.IsTerminal(a.Out) && info.Name != "csv" && info.Name != "kernels" {
		return cli.Usagef("%s is binary, and standard output a terminal: name a file with -o, or redirect it", info.Name)
	}
	db, err := a.OpenDB(ctx, args...)
	if err != nil {
		return err
	}
	defer db.Close()
	// The number of tasks is known only now: check again whether the format holds so many.
	if f.every {
		if args, err = withSamples(ctx, db); err == nil {
			_, err = f.check(len(args))
		}
		if err != nil {
			return err
		}
	}
	// Read all tasks before the file is created: an unknown number leaves nothing behind.
	var tasks []*store.Task
	for _, arg := range args {
		t, err := report.TaskResult(a, ctx, db, arg, f.result)
		if err != nil {
			return err
		}
		tasks = append(tasks, t)
	}
	if err := exportTasks(ctx, a, db, tasks, info, f); err != nil || f.toStdout() {
		return err
	}
	return printExported(a, tasks, f)
}

// withSamples returns the numbers of all tasks that have samples, oldest first, as
// arguments. It fails with ExitNotFound where there is none.
func withSamples(ctx context.Context, db *store.DB) (args []string, err error) {
	list, err := task.EveryTask(ctx, db.Tasks, store.Query{})
	if err != nil {
		return nil, err
	}
	for _, t := range slices.Backward(list) {
		if t.Scans > 0 {
			args = append(args, fmt.Sprint(t.ID))
		}
	}
	if len(args) == 0 {
		err = cli.NotFoundf("no task has samples: measure something first (wattmark demo)")
	}
	return args, err
}

// exportTasks writes the tasks with the writer of the format. Formats that write a folder
// or a database create it themselves; the others write a stream, to standard output or,
// compressed by the ending, to the file. Formats for one task use tasks[0].
func exportTasks(ctx context.Context, a *cli.App, db *store.DB, tasks []*store.Task, info cli.FormatInfo, f exportFlags,
) error {
	t, from := tasks[0], newCounted(a, db, "writing "+f.output, tasks)
	defer from.bar.End()
	if !f.toStdout() {
		a.Keep("no file was written")
	}
	write := func(w io.Writer) error { return exportTable(ctx, w, from, t, f) }
	switch info.Name {
	case "recording": // the raw counts, which the replay instrument plays again, and host.json
		return cli.WriteWhole(f.output, func(part string) error {
			return errors.Join(recordInto(ctx, part, from, t), writeHostSide(ctx, part, db, t))
		})
	case "sqlite":
		return exportSQLite(ctx, f.output, from, tasks, f)
	case "kernels":
		write = func(w io.Writer) error { return report.ExportKernels(ctx, w, db, t) }
	case "perfetto":
		write = func(w io.Writer) error { return exportTimelines(ctx, w, from, tasks, f) }
	}
	if f.toStdout() {
		return write(cli.Raw(a.Out))
	}
	return cli.WriteFile(f.output, cli.Compressed(f.output, write))
}

// printExported prints the file's name and size, summed over the files of a folder.
func printExported(a *cli.App, tasks []*store.Task, f exportFlags) error {
	r := ExportReport{Format: f.format, File: f.output}
	r.TaskIDs = lists.Map(tasks, func(t *store.Task) int64 { return int64(t.ID) })
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
	if err != nil || a.JSON {
		return errors.Join(err, a.PrintJSON(r))
	}
	_, err = fmt.Fprintf(a.Out, "Written to %s (%s, %s)\n", r.File, r.Format, cli.SizeText(r.Bytes))
	return err
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	in := &cobra.Command{Use: "import", Short: "Take in what other tools recorded, as a task or beside one"}
	in.AddCommand(importSmiCmd(a), importCSVCmd(a), importPMDCmd(a), importDumpCmd(a), importDatasetCmd(a),
		importRecordingCmd(a))
	return cli.In(cli.Look, help, exportCmd(a), publishCmd(a), annotateCmd(a), in)
}

// exportFlags are the flags of export. result is the number of a result, 0 for the one in
// use; from and to are device times, valid where fromGiven and toGiven.
type exportFlags struct {
	format, output            string
	all, raw, hostTime, every bool
	result                    uint
	rails                     []string
	from, to                  time.Duration
	fromGiven, toGiven        bool
}

func (f *exportFlags) toStdout() bool { return f.output == "" || f.output == "-" }

// formatByName sets the format by the ending of the file where --format is missing, and
// fails with ExitUsage where ending and format contradict each other, or where the ending
// asks for a compression that the format does not take. An unknown format passes: check
// refuses it.
func (f *exportFlags) formatByName() error {
	if f.toStdout() {
		f.format = cmp.Or(f.format, "csv")
		return nil
	}
	end, pack := cli.Ending(f.output), ""
	if end == ".gz" || end == ".zst" {
		pack, end = end, cli.Ending(strings.TrimSuffix(strings.ToLower(f.output), end))
	}
	// The ending is .gz or .zst behind the format's own one, or the format's own alone.
	byName := slices.IndexFunc(cli.ExportFormats, func(x cli.FormatInfo) bool { return slices.Contains(x.Ends, end) })
	if f.format == "" {
		switch {
		case byName >= 0:
			f.format = cli.ExportFormats[byName].Name
		case end == "" && pack == "":
			f.format = "csv"
		default:
			var ends []string
			for _, f := range cli.ExportFormats {
				ends = append(ends, f.Ends...)
				if f.Text && len(f.Ends) > 0 {
					ends = append(ends, f.Ends[0]+".gz", f.Ends[0]+".zst")
				}
			}
			return cli.Usagef("%s: no format has the ending %s: end the name in %s, or name the format with --format",
				f.output, end+pack, strings.Join(ends, ", "))
		}
	}
	i := slices.IndexFunc(cli.ExportFormats, func(x cli.FormatInfo) bool { return x.Name == f.format })
	switch {
	case i < 0: // refused later
		return nil
	case pack != "" && !cli.ExportFormats[i].Text:
		return cli.Usagef("%s: %s is written as it is: leave %s out (csv, "+
			"kernels and perfetto can be compressed)", f.output, f.format, pack)
	}
	ends := cli.ExportFormats[i].Ends
	if f.format == "kernels" {
		ends = cli.ExportFormats[0].Ends // its lines are CSV
	}
	return cli.CheckEnding(strings.TrimSuffix(strings.ToLower(f.output), pack), f.format, ends...)
}

// check returns the format, or fails with ExitUsage for flags that it cannot follow. tasks
// is the number of tasks to write.
func (f *exportFlags) check(tasks int) (cli.FormatInfo, error) {
	usage := func(format string, a ...any) (cli.FormatInfo, error) {
		return cli.FormatInfo{}, cli.Usagef(format, a...)
	}
	i := slices.IndexFunc(cli.ExportFormats, func(x cli.FormatInfo) bool { return x.Name == f.format })
	if i < 0 {
		return usage("format %q: want %s", f.format, cli.FormatNames())
	}
	info := cli.ExportFormats[i]
	switch {
	case f.toStdout() && info.Name == "recording":
		return usage("a recording is a folder: name it with -o")
	case f.toStdout() && info.File:
		return usage("%s cannot go to standard output: name a file with -o", info.Name)
	case tasks > 1 && !info.Many:
		return usage("a file of format %s holds one task, not %d: its columns are the task's own rails. Export each "+
			"to a file of its own, or choose sqlite or perfetto, which hold several", info.Name, tasks)
	case tasks > 1 && f.result != 0:
		return usage("--result is the number of one task's result: export that task alone")
	case f.raw && !info.Raw:
		return usage("--raw: %s has no place for counts: choose csv, parquet or arrow", info.Name)
	case f.hostTime && !info.Raw:
		return usage("--host-time is a column of csv, parquet and arrow; perfetto and kernels are on the " +
			"host's clock anyway")
	case len(f.rails) > 0 && !info.Rails:
		return usage("--rail: %s has no columns of single rails: choose csv, parquet, arrow or perfetto", info.Name)
	case (f.fromGiven || f.toGiven) && !info.Span:
		return usage("--from and --to: %s is written as a whole", info.Name)
	case f.fromGiven && f.toGiven && f.to <= f.from:
		return usage("--to must lie after --from")
	}
	return info, nil
}
