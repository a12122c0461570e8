package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) benchCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Measure how fast this machine takes, moves and keeps samples",
		Long: `Measure how fast this machine takes, moves and keeps samples. A generator stands
in for the meter; all else is what a measurement uses, the monitor in a process
of its own. Every goal is printed beside its result, also when it was missed; the
exit code is 0 all the same, scripts look at goals[].met.

Scratch files are made below --dir and removed at the end. A directory in memory
makes the figures worthless: the report names the file system.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(a.benchIngestCmd(), a.benchSecureCmd(), a.benchTrimCmd(), a.benchMemoryCmd(), a.benchInstrumentsCmd(), a.benchStoreCmd(), a.benchRelayCmd(), a.benchMonitorCmd())
	return c
}

// benchFlagsShared are flags that all benchmarks have.
type benchFlagsShared struct {
	dir, transport, profile string
}

func (a *app) benchFlags(c *cobra.Command, f *benchFlagsShared) *cobra.Command {
	fl := c.Flags()
	fl.StringVar(&f.dir, "dir", os.TempDir(), "directory for spool and database, on the disk that is to be measured")
	fl.StringVar(&f.transport, "transport", "unix", "between the two processes: unix (socket), tcp (loopback), or tls (loopback, with a token)")
	fl.StringVar(&f.profile, "profile", "", "write CPU profiles to this path with .host and .monitor appended")
	return a.jsonFlag(c)
}

// check refuses what cannot be and makes a scratch directory.
func (f *benchFlagsShared) scratch() (dir string, remove func(), err error) {
	if f.transport != "unix" && f.transport != "tcp" && f.transport != overTLS {
		return "", nil, withCode(exitUsage, fmt.Errorf("--transport %q: want unix, tcp or tls", f.transport))
	}
	base, err := filepath.Abs(f.dir)
	if err == nil {
		dir, err = os.MkdirTemp(base, "wattmark-bench-")
	}
	if err != nil {
		return "", nil, fmt.Errorf("scratch directory: %w: name another with --dir", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// goal is what was asked of a result.
type goal struct {
	Name   string  `json:"name"`
	Want   string  `json:"goal"`
	Result float64 `json:"result"`
	Met    bool    `json:"met"`

	shown string
}

// ingestReport is what bench ingest prints.
type ingestReport struct {
	Machine machineReport `json:"machine"`
	Limits  limitsReport  `json:"limits"`
	Rows    rowsReport    `json:"row_per_sample"`
	Fast    *streamReport `json:"fast,omitempty"`
	Paced   *streamReport `json:"paced,omitempty"`
	Pairs   []pairReport  `json:"pairs,omitempty"`
	Goals   []goal        `json:"goals"`
}

// pairReport is two runs at full speed, one behind the other.
type pairReport struct {
	With       float64 `json:"scans_per_s_with_pyramid"`
	Without    float64 `json:"scans_per_s_without"`
	WithCPU    float64 `json:"cpu_s_per_scan_with_pyramid"` // of both processes
	WithoutCPU float64 `json:"cpu_s_per_scan_without"`
}

type ingestFlags struct {
	benchFlagsShared
	seconds, rate, pacedSeconds, rowSeconds float64
	pairs                                   int
}

func (a *app) benchIngestCmd() *cobra.Command {
	var f ingestFlags
	c := &cobra.Command{
		Use: "ingest", Short: "Samples from the meter to the database, end to end", Args: cobra.NoArgs,
		Long: `Stream six 16-bit channels (noise of 4 counts, steps, ripple) through capture,
marker detector, coding and spool in one process, gRPC, and SQLite (WAL,
synchronous=FULL) in another: first as fast as the slowest stage lets them, then
paced like a meter, with the time from sample to durable. The paper's table with
a row a sample and the machine's limits stand beside it for scale.

--db keeps the database of the last run; the file must not exist yet.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db := ""
			if cmd.Flags().Changed("db") {
				db = a.db
			}
			return a.benchIngest(cmd.Context(), f, db)
		},
	}
	fl := c.Flags()
	fl.Float64Var(&f.seconds, "seconds", 5, "length of the run at full speed; 0 leaves it out")
	fl.Float64Var(&f.rate, "paced", 10e6, "scans a second of the paced run; 0 leaves it out")
	fl.Float64Var(&f.pacedSeconds, "paced-seconds", 30, "length of the paced run")
	fl.IntVar(&f.pairs, "pairs", 3, "pairs of runs at full speed, with and without the pyramid; 0 leaves them out")
	fl.Float64Var(&f.rowSeconds, "row-seconds", 2, "length of the row-a-sample run")
	return a.benchFlags(c, &f.benchFlagsShared)
}

func (a *app) benchIngest(ctx context.Context, f ingestFlags, keep string) error {
	if f.seconds <= 0 && f.rate <= 0 {
		return withCode(exitUsage, errors.New("nothing to do: give --seconds or --paced a value above 0"))
	}
	if keep != "" {
		if _, err := os.Stat(keep); !errors.Is(err, os.ErrNotExist) {
			return withCode(exitUsage, fmt.Errorf("--db %s exists: a benchmark does not write to your tasks; name a new file", keep))
		}
	}
	dir, remove, err := f.scratch()
	if err != nil {
		return err
	}
	defer remove()
	r := &ingestReport{Machine: describeMachine(dir)}
	if r.Limits, err = measureLimits(ctx, dir); err != nil {
		return err
	}
	if r.Rows, err = measureRows(ctx, dir, ofSeconds(f.rowSeconds)); err != nil {
		return err
	}
	if r.Pairs, err = a.ingestPairs(ctx, f, dir); err != nil {
		return err
	}
	run := ingestRun{name: "fast", length: ofSeconds(f.seconds)}
	if f.rate <= 0 {
		run.keep = keep
	}
	if r.Fast, err = a.ingestOnce(ctx, f, dir, run); err != nil {
		return err
	}
	if f.rate > 0 {
		if r.Paced, err = a.ingestOnce(ctx, f, dir, ingestRun{name: "paced", length: ofSeconds(f.pacedSeconds), paced: true, keep: keep}); err != nil {
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

// ingestPairs makes runs with and without the pyramid in turn, so that what else
// runs on the machine is in both.
func (a *app) ingestPairs(ctx context.Context, f ingestFlags, dir string) (out []pairReport, err error) {
	for i := 0; i < f.pairs && f.seconds > 0; i++ {
		var p pairReport
		for _, flat := range []bool{i%2 == 0, i%2 != 0} { // neither is always the first
			r, err := a.ingestOnce(ctx, f, dir, ingestRun{name: fmt.Sprintf("pair%d", i+1), length: ofSeconds(f.seconds), flat: flat})
			if err != nil {
				return nil, err
			}
			rate, cpu := &p.With, &p.WithCPU
			if flat {
				rate, cpu = &p.Without, &p.WithoutCPU
			}
			*rate, *cpu = r.ScansPerS, (r.HostCPUS+r.MonitorCPUS)/float64(r.Stored)
		}
		out = append(out, p)
	}
	return out, nil
}

// ingestRun is one run of the benchmark; keep is where its database stays.
type ingestRun struct {
	name        string
	length      time.Duration
	paced, flat bool
	keep        string
}

// ingestOnce makes one run in a directory of its own, so that each database
// holds one task and its size is that task's.
func (a *app) ingestOnce(ctx context.Context, f ingestFlags, dir string, r ingestRun) (*streamReport, error) {
	if r.length <= 0 {
		return nil, nil
	}
	dir = filepath.Join(dir, r.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	run := streamRun{dir: dir, db: filepath.Join(dir, "power.db"), length: r.length, flat: r.flat}
	if r.keep != "" {
		run.db = r.keep
	}
	rate := f.rate
	if rate <= 0 {
		rate = 10e6
	}
	run.monitor = monitorOptions{transport: f.transport, rate: rate, paced: r.paced, tag: 0x5a}
	if f.profile != "" {
		run.monitor.profile = f.profile + "." + r.name
	}
	bar := newBenchBar(a.err, r.name+" run", r.length)
	run.each = func(at time.Duration, _, _ monitorNote) { bar.update(at) }
	defer bar.clear()
	return run.run(ctx, a.streams)
}

func ofSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
