// Package perf measures the product itself.
//
//	bench ingest   scans/s and latency from meter to database
//	bench trim     time from StopCapture to the trimmed stream
//	bench monitor  hidden: the second process of both
//	tests          benchmarks of storage, drivers, memory, pyramids, TLS and relays
//
//	generator → capture → spool ─ gRPC → Transfer → database
//	└──── monitor process ─────┘         └─ host process ──┘
//
// A generator stands in for the meter and plays the markers; everything behind it is the
// product's own code. The parent controls the monitor process over its standard input
// (monitorNote lists the commands).
package perf

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	_ "modernc.org/sqlite"
)

//go:embed help.md
var help string

// Commands returns bench with its subcommands.
func Commands(a *cli.App) []*cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Measure how fast this machine takes, moves and keeps samples", Args: cobra.NoArgs,
	}
	c.AddCommand(benchIngestCmd(a), benchTrimCmd(a), benchMonitorCmd(a))
	return cli.In(cli.And, help, c)
}

// benchFlagsShared are the flags of all benchmarks; see benchFlags.
type benchFlagsShared struct {
	dir, transport, profile string
}

// benchFlags adds the shared flags and --json to a command.
func benchFlags(a *cli.App, c *cobra.Command, f *benchFlagsShared) *cobra.Command {
	fl := c.Flags()
	fl.StringVar(&f.dir, "dir", os.TempDir(), "directory for spool and database, on the disk that is to be measured")
	fl.StringVar(&f.transport, "transport", "unix",
		"between the two processes: unix (socket), tcp (loopback), or tls (loopback, with a token)")
	fl.StringVar(&f.profile, "cpu-profile", "", "write CPU profiles to this path with .host and .monitor appended")
	return a.JSONFlag(c)
}

// scratch makes a directory below --dir and returns it with a function that removes it. It
// fails with ExitUsage for an unknown transport.
func (f benchFlagsShared) scratch() (dir string, remove func(), err error) {
	if f.transport != "unix" && f.transport != "tcp" && f.transport != overTLS {
		return "", nil, cli.Usagef("--transport %q: want unix, tcp or tls", f.transport)
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

func ofSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// goal is a result beside the bound that it should meet. Want is the bound as text; shown
// is the result as text, in the same unit.
type goal struct {
	Name   string  `json:"name"`
	Want   string  `json:"goal"`
	Result float64 `json:"result"`
	Met    bool    `json:"met"`

	shown string
}

// atLeast returns the goal result ≥ want, and atMost result ≤ want; both are divided by scale for display in unit.
func atLeast(name string, result, want float64, unit string, scale float64) goal {
	g := atMost(name, result, want, unit, scale)
	g.Want, g.Met = fmt.Sprintf("at least %g %s", want/scale, unit), result >= want
	return g
}

func atMost(name string, result, want float64, unit string, scale float64) goal {
	bound := fmt.Sprintf("at most %g %s", want/scale, unit)
	return goal{name, bound, result, result <= want, fmt.Sprintf("%.3g %s", result/scale, unit)}
}

func renderGoals(w io.Writer, goals []goal) {
	out.Table(w, out.Row{"", "goal", "result", ""}, goals, func(g goal) out.Row {
		return out.Row{g.Name, g.Want, g.shown, map[bool]string{true: "met", false: "MISSED"}[g.Met]}
	})
}

// machineReport describes the machine. Load1 is the load average of the minute before.
type machineReport struct {
	OS         string  `json:"os"`
	Arch       string  `json:"arch"`
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	Go         string  `json:"go"`
	FileSystem string  `json:"file_system,omitempty"`
	Load1      float64 `json:"load_1m"` // before the benchmark
}

// processorName is the first line of /proc/cpuinfo that names a processor.
var processorName = regexp.MustCompile(`(?m)^model name\s*: *(.*?)\s*$`)

// describeMachine describes this machine and the file system of dir. Without Linux's /proc the processor is "unknown"
// and the load 0.
func describeMachine(dir string) machineReport {
	m := machineReport{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: "unknown", Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(),
		FileSystem: out.FileSystem(dir),
	}
	processors, _ := os.ReadFile("/proc/cpuinfo")
	if name := processorName.FindSubmatch(processors); name != nil {
		m.CPU = string(name[1])
	}
	load, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(load), &m.Load1)
	return m
}

// render prints the machine, with a warning where the scratch directory is in memory.
func (m machineReport) render(w io.Writer) {
	fmt.Fprintf(w, "  machine  %s, %d cores, %s/%s, %s, %s, load %.2f before\n", m.CPU, m.Cores, m.OS, m.Arch, m.Go,
		m.FileSystem, m.Load1)
	if m.FileSystem == "tmpfs" || m.FileSystem == "ramfs" {
		fmt.Fprintln(w, "           the scratch directory is in memory: nothing below was durable; name a disk with --dir")
	}
}

// databaseSize returns the bytes of the last commit's pages, in the file or in its log.
const databaseSize = `SELECT page_count*page_size FROM pragma_page_count, pragma_page_size`

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

// benchIngestCmd returns bench ingest; the samples of its last run stay where --db names a new file.
func benchIngestCmd(a *cli.App) *cobra.Command {
	var f ingestFlags
	var fl *pflag.FlagSet
	c := cli.Command("ingest", "Samples from the meter to the database, end to end", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			db := ""
			if fl.Changed("db") {
				db = a.DB
			}
			return benchIngest(ctx, a, f, db)
		})
	fl = c.Flags()
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
	return run.run(ctx, cli.Raw(a.Err))
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

func (r *ingestReport) render(w io.Writer) {
	r.Machine.render(w)
	t := out.NewTable(w, "", "scans/s", "as int16", "bytes a scan", "monitor", "host", "sample to durable p50, p99")
	for _, s := range []*streamReport{r.Fast, r.Paced} {
		if s == nil {
			continue
		}
		name, latency := "full speed", ""
		if s.Paced {
			name, latency = "paced", fmt.Sprintf("%.1f ms, %.1f ms", 1e3*s.LatencyP50S, 1e3*s.LatencyP99S)
		}
		t.AppendRow(out.Row{
			name, fmt.Sprintf("%.2f M", s.ScansPerS/1e6), cli.SizeText(s.RawBytesPerS) + "/s",
			fmt.Sprintf("%.3f", s.BytesPerScan), fmt.Sprintf("%.2f cores", s.MonitorCores),
			fmt.Sprintf("%.2f cores", s.HostCores), latency,
		})
	}
	t.Render()
	fmt.Fprintln(w)
	renderGoals(w, r.Goals)
}
