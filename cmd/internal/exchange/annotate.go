package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/proftrace"
)

func annotateCmd(a *cli.App) *cobra.Command {
	var trace, output string
	c := cli.Command("annotate TASK --trace FILE", "Write joules into a profiler's trace",
		cli.OneTask, func(ctx context.Context, args []string) error {
			if trace == "" {
				return cli.Usagef("name the profiler's trace with --trace")
			}
			if output == "" { // trace.json.gz becomes trace.joules.json.gz, report.sqlite report.joules.json
				stem, gz := strings.CutSuffix(trace, ".gz")
				output = strings.TrimSuffix(stem, filepath.Ext(stem)) + ".joules.json"
				if gz {
					output += ".gz"
				}
			}
			return annotate(ctx, a, args[0], trace, output)
		})
	c.Flags().StringVar(&trace, "trace", "",
		"trace of torch.profiler or another in Trace Event JSON, SQLite of Nsight Systems, or *kernel_trace.csv of rocprofv3")
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default: FILE with .joules before its ending)")
	return a.HostFlag(a.JSONFlag(c))
}

// AnnotateReport is the JSON of annotate.
type AnnotateReport struct {
	Task int64  `json:"task_id"`
	File string `json:"file"`
	*measurement.Annotated
	// ByPower is how the clocks were related where the trace has none of the task's launches; nil for none.
	ByPower *PowerRelation `json:"by_power,omitempty"`
}

// annotate reads the trace, relates it and writes it. All is checked before anything is stored or written.
func annotate(ctx context.Context, a *cli.App, task, trace, output string) (err error) {
	db, err := a.OpenToChange(ctx)
	if cli.CannotWrite(err) { // then a trace with kernels that the task lacks is refused
		db, err = a.OpenDB(ctx, task)
	}
	if err != nil {
		return err
	}
	defer db.Close()
	t, err := report.TaskResult(a, ctx, db, task, 0)
	if err != nil {
		return err
	}
	name := filepath.Base(trace)
	table := strings.HasSuffix(trace, kernelTable)
	made, err := converted(ctx, trace)
	if err != nil {
		return err
	}
	if made != "" {
		trace = made
		defer func() { err = errors.Join(err, os.Remove(made)) }()
	}
	read, boot, by, err := placed(ctx, db, t, trace, table)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	source := name
	if by != nil && by.Shift != 0 {
		source += fmt.Sprintf(", placed by the steps of the power, ± %v, which the energies' U does not include", by.U)
	}
	x, err := measurement.Annotate(ctx, db, t.ID, read, source)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if x.Shift += boot; by != nil {
		x.Shift += by.Shift
	}
	if err := writeJoules(ctx, db, t, x, trace, output); err != nil {
		return err
	}
	// Those that were recorded in the program stay.
	if have, fault := db.Ranges(ctx, t); fault == nil && have == nil {
		err = db.PutRanges(ctx, t.ID, store.Ranges{Ranges: x.Ranges, Spans: x.Spans, Notes: []string{"by the trace " + name}})
	}
	if err != nil && !errors.Is(err, store.ErrReadOnly) {
		return err
	}
	return printAnnotated(a, &AnnotateReport{int64(t.ID), output, x, by})
}

// placed reads a trace and moves it to the host's clock: a table of rocprofv3 by the machine's, another by the power
// where that is needed. It returns both shifts.
func placed(ctx context.Context, db *store.DB, t *store.Task, trace string, table bool) (
	read *attribute.Trace, boot measure.Seconds, by *PowerRelation, err error,
) {
	read, err = cli.ReadFile(trace, func(r io.Reader, _ string) (*attribute.Trace, error) { return proftrace.Read(r) })
	if err == nil {
		err = measurement.Bend(ctx, db, t)
	}
	if err == nil && table {
		boot, err = sinceBoot(ctx, db, t, read)
	}
	if err == nil {
		by, err = byPower(ctx, db, t, read, boot != 0)
	}
	return read, boot, by, err
}

// writeJoules writes a copy of the trace with the energies and powers.
func writeJoules(
	ctx context.Context, db *store.DB, t *store.Task, x *measurement.Annotated, trace, output string,
) error {
	marks, err := powers(ctx, db, t, x)
	if err != nil {
		return err
	}
	marks.Events, marks.External, marks.Shift = x.Marks, x.Copies, int64(x.Shift*1e9)
	marks.About = map[string]any{
		"task_id": t.ID, "energy_j": t.Result.Total.Energy, "energy_u_j": t.Result.Total.U, "program": cli.Version(),
		"rule": "a kernel has its part of its name's energy by time, a range the kernels launched in it; U at k = 2",
	}
	_, err = cli.ReadFile(trace, func(r io.Reader, _ string) (struct{}, error) {
		return struct{}{}, cli.WriteFile(output, cli.Compressed(output, func(w io.Writer) error {
			return proftrace.Write(w, r, *marks)
		}))
	})
	return err
}

func isSQLite(path string) bool {
	const magic = "SQLite format 3\x00"
	head := make([]byte, len(magic))
	_, err := cli.ReadFile(path, func(r io.Reader, _ string) (int, error) { return io.ReadFull(r, head) })
	return err == nil && string(head) == magic
}

// converted returns a temporary file with the trace of an export of Nsight Systems or of a table of rocprofv3, empty
// for what is a trace already.
func converted(ctx context.Context, path string) (string, error) {
	table := strings.HasSuffix(path, kernelTable)
	if !table && !isSQLite(path) {
		return "", nil
	}
	f, err := os.CreateTemp("", "wattmark-trace-*.json")
	if err != nil {
		return "", err
	}
	if table {
		err = rocprof(f, path)
	} else {
		err = proftrace.Convert(ctx, f, path)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// kernelTable is how the name of rocprofv3's table of kernels ends. Those of calls and ranges lie beside it.
const kernelTable = "kernel_trace.csv"

// rocprof writes rocprofv3's tables as a trace.
func rocprof(w io.Writer, path string) error {
	var x proftrace.Rocprof
	for name, table := range map[string]*io.Reader{
		kernelTable: &x.Kernels, "hip_api_trace.csv": &x.Calls, "marker_api_trace.csv": &x.Ranges,
	} {
		f, err := os.Open(strings.TrimSuffix(path, kernelTable) + name)
		if errors.Is(err, os.ErrNotExist) && name != kernelTable {
			continue
		}
		if err != nil {
			return err
		}
		defer f.Close()
		*table = f
	}
	return logfile.In(filepath.Base(path), proftrace.ConvertRocprof(w, x))
}

// mostPoints bounds the points of a counter: more scans are averaged.
const mostPoints = 200_000

// powers are the rails' over the time of the trace.
func powers(ctx context.Context, db *store.DB, t *store.Task, x *measurement.Annotated) (*proftrace.Marks, error) {
	f := *t.Clock
	meter := func(ns int64) measure.Seconds {
		s, _ := f.Meter(measurement.HostSeconds(f, time.Unix(0, ns)))
		return s
	}
	w := measure.Window{From: meter(x.From), To: meter(x.To)}
	same := func(s string) string { return s }
	line, err := exchange.NewTimeline(ctx, db, t, cli.Version(), exchange.Choice{Window: &w}, same)
	if err != nil {
		return nil, err
	}
	tb := t.Setup.Timebase
	each := 1 + int(float64(w.To-w.From)/float64(tb.Seconds(tb.TicksPerScan))/mostPoints)
	m, fault := &proftrace.Marks{}, error(nil)
	m.Counters = lists.Map(line.Counters, func(c int) string { return line.Power.Columns[c].Name })
	m.Powers, m.Fault = means(line, each, &fault), func() error { return fault }
	return m, nil
}

// means yields the counters' means over so many scans each.
func means(line *exchange.Timeline, each int, fault *error) iter.Seq2[int64, []measure.Watt] {
	host := len(line.Power.Columns) - 1 // host_ns
	return func(yield func(int64, []measure.Watt) bool) {
		sums, at, n := make([]measure.Watt, len(line.Counters)), 0.0, 0
		for b, err := range line.Power.Batches {
			if err != nil {
				*fault = err
				return
			}
			for i := range b.Rows {
				for k, c := range line.Counters {
					sums[k] += measure.Watt(b.Columns[c].F64[i])
				}
				first := b.Columns[host].I64[i]
				if n++; n == 1 {
					at = float64(first)
				}
				if n < each {
					continue
				}
				for k := range sums {
					sums[k] /= measure.Watt(n)
				}
				if !yield(int64((at+float64(first))/2), sums) {
					return
				}
				clear(sums)
				n = 0
			}
		}
	}
}

// printAnnotated prints how the trace was related, and the energies of its ranges.
func printAnnotated(a *cli.App, r *AnnotateReport) error {
	if a.JSON {
		return a.PrintJSON(r)
	}
	apart := fmt.Sprintf("clocks %v apart", r.Shift)
	if zero := time.Unix(0, 0).Add(r.Shift.Duration()); zero.Year() > 2000 {
		apart = "its clock was zero at " + zero.UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	fmt.Fprintf(a.Out, "Written to %s: %d kernels, %d of them recorded with task %d, %s\n", r.File, r.Kernels, r.Matched,
		r.Task, apart)
	switch p := r.ByPower; {
	case p == nil:
	case p.Unconfirmed:
		fmt.Fprintln(a.Out, "Placed by this machine's clock since its start, which the power does not confirm")
	default:
		fmt.Fprintf(a.Out, "Clocks related by %d steps of the power, ± %v (k = 2), correlation %.2f\n", p.Edges, p.U,
			p.Correlation)
		if p.Alone {
			fmt.Fprintln(a.Out, "By nothing else: another run of the same program would fit as well")
		}
	}
	if r.Added > 0 {
		fmt.Fprintf(a.Out, "%d kernels that only the trace has were stored with the task\n", r.Added)
	}
	if r.Outside > 0 {
		fmt.Fprintf(a.Out, "%d kernels ran outside of the task's window: without energy\n", r.Outside)
	}
	if len(r.Ranges) > 0 {
		report.RenderRanges(a, &store.Ranges{Ranges: r.Ranges})
	}
	return nil
}
