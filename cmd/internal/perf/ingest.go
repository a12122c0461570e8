package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
)

// Goals of the ingest benchmark, on two cores.
const (
	goalScansPerS    = 30e6
	leastScansPerS   = 15e6
	goalBytesPerScan = 4.5
	goalPyramidBytes = 0.08 * 12 // of the raw counts of a scan
	goalLatencyP99S  = 0.1
	goalHostCores    = 0.5
)

// ingestReport is the JSON of bench ingest. Fast runs as fast as the slowest stage, Paced
// at a meter's rate.
type ingestReport struct {
	Machine machineReport `json:"machine"`
	Fast    *streamReport `json:"fast,omitempty"`
	Paced   *streamReport `json:"paced,omitempty"`
	Goals   []goal        `json:"goals"`
}

// ingestFlags are the flags of bench ingest; times in s, rate in scans/s.
type ingestFlags struct {
	benchFlagsShared
	seconds, rate, pacedSeconds float64
}

// benchIngestCmd returns bench ingest.
func benchIngestCmd(a *cli.App) *cobra.Command {
	var f ingestFlags
	c := &cobra.Command{
		Use: "ingest", Short: "Samples from the meter to the database, end to end", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db := ""
			if cmd.Flags().Changed("db") {
				db = a.DB
			}
			return benchIngest(cmd.Context(), a, f, db)
		},
	}
	fl := c.Flags()
	fl.Float64Var(&f.seconds, "seconds", 5, "length of the run at full speed; 0 leaves it out")
	fl.Float64Var(&f.rate, "paced", 10e6, "scans a second of the paced run; 0 leaves it out")
	fl.Float64Var(&f.pacedSeconds, "paced-seconds", 30, "length of the paced run")
	return benchFlags(a, c, &f.benchFlagsShared)
}

// benchIngest makes all runs one after another and prints the report; it takes about a
// minute by default. keep names a new database for the last run's samples; empty keeps
// none.
func benchIngest(ctx context.Context, a *cli.App, f ingestFlags, keep string) error {
	if f.seconds <= 0 && f.rate <= 0 {
		return cli.Usagef("nothing to do: give --seconds or --paced a value above 0")
	}
	if keep != "" {
		if _, err := os.Stat(keep); !errors.Is(err, os.ErrNotExist) {
			return cli.Usagef("--db %s exists: a benchmark does not write to your tasks; name a new file", keep)
		}
	}
	dir, remove, err := f.scratch()
	if err != nil {
		return err
	}
	defer remove()
	r := &ingestReport{Machine: describeMachine(dir)}
	fast := &streamRun{name: "fast", length: ofSeconds(f.seconds)}
	if f.rate <= 0 {
		fast.db = keep
	}
	if r.Fast, err = ingestOnce(ctx, a, f, dir, fast); err != nil {
		return err
	}
	if f.rate > 0 {
		if r.Paced, err = ingestOnce(ctx, a, f, dir, &streamRun{
			name: "paced", length: ofSeconds(f.pacedSeconds), monitorOptions: monitorOptions{paced: true}, db: keep,
		}); err != nil {
			return err
		}
	}
	r.judge()
	return a.Print(r, r.render)
}

// ingestOnce makes one run in a directory of its own, so that the database holds one task
// and its size is that task's; without a path the database is in that directory too. It
// returns nil for a run of no length.
func ingestOnce(ctx context.Context, a *cli.App, f ingestFlags, dir string, run *streamRun) (*streamReport, error) {
	if run.length <= 0 {
		return nil, nil
	}
	run.benchFlagsShared, run.rate, run.dir = f.benchFlagsShared, f.rate, filepath.Join(dir, run.name)
	run.db = cmp.Or(run.db, filepath.Join(run.dir, "power.db"))
	if run.rate <= 0 {
		run.rate = 10e6
	}
	if f.profile != "" {
		run.profile = f.profile + "." + run.name
	}
	if err := os.Mkdir(run.dir, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(run.dir)
	bar := a.Progress(run.name + " run")
	defer bar.End()
	run.each = func(at time.Duration, _, _ monitorNote) { bar.Set(int(at), int(run.length)) }
	return run.run(ctx, a.Err)
}

// judge compares the results with the goals. A missed goal is no error.
func (r *ingestReport) judge() {
	if f := r.Fast; f != nil {
		r.Goals = append(r.Goals, atLeast("full speed", f.ScansPerS, goalScansPerS, "million scans/s", 1e6),
			atLeast("full speed, least", f.ScansPerS, leastScansPerS, "million scans/s", 1e6),
			atMost("full speed, stored", f.BytesPerScan, goalBytesPerScan, "bytes a scan", 1),
			atMost("full speed, pyramid", f.PyramidBytes, goalPyramidBytes, "bytes a scan", 1), f.complete("full speed"))
	}
	if p := r.Paced; p != nil {
		r.Goals = append(r.Goals, atMost("paced, sample to durable p99", p.LatencyP99S, goalLatencyP99S, "ms", 1e-3),
			atMost("paced, host", p.HostCores, goalHostCores, "cores", 1),
			atMost("paced, stored", p.BytesPerScan, goalBytesPerScan, "bytes a scan", 1), p.complete("paced"))
	}
}

// render prints the machine, the runs and the goals.
func (r *ingestReport) render(w io.Writer) {
	r.Machine.render(w)
	t := out.NewTable(w)
	t.AppendHeader(table.Row{"", "scans/s", "as int16", "bytes a scan", "monitor", "host", "sample to durable p50, p99"})
	for _, s := range []struct {
		name string
		r    *streamReport
	}{{"full speed", r.Fast}, {"paced", r.Paced}} {
		if s.r == nil {
			continue
		}
		latency := ""
		if s.r.Paced {
			latency = fmt.Sprintf("%.1f ms, %.1f ms", 1e3*s.r.LatencyP50S, 1e3*s.r.LatencyP99S)
		}
		t.AppendRow(table.Row{
			s.name, fmt.Sprintf("%.2f M", s.r.ScansPerS/1e6), cli.SizeText(s.r.RawBytesPerS) + "/s",
			fmt.Sprintf("%.3f", s.r.BytesPerScan),
			fmt.Sprintf("%.2f cores", s.r.MonitorCores), fmt.Sprintf("%.2f cores", s.r.HostCores), latency,
		})
	}
	t.Render()
	fmt.Fprintln(w)
	renderGoals(w, r.Goals)
}
