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
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
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
	fl.StringVar(&f.profile, "profile", "", "write CPU profiles to this path with .host and .monitor appended")
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

// ofSeconds converts seconds to a Duration.
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

// atLeast returns the goal result ≥ want; both are divided by scale for display in unit.
func atLeast(name string, result, want float64, unit string, scale float64) goal {
	bound := fmt.Sprintf("at least %g %s", want/scale, unit)
	return goal{name, bound, result, result >= want, fmt.Sprintf("%.3g %s", result/scale, unit)}
}

// atMost returns the goal result ≤ want; both are divided by scale for display in unit.
func atMost(name string, result, want float64, unit string, scale float64) goal {
	bound := fmt.Sprintf("at most %g %s", want/scale, unit)
	return goal{name, bound, result, result <= want, fmt.Sprintf("%.3g %s", result/scale, unit)}
}

// renderGoals prints goals and results as a table.
func renderGoals(w io.Writer, goals []goal) {
	t := out.NewTable(w)
	t.AppendHeader(table.Row{"", "goal", "result", ""})
	for _, g := range goals {
		t.AppendRow(table.Row{g.Name, g.Want, g.shown, map[bool]string{true: "met", false: "MISSED"}[g.Met]})
	}
	t.Render()
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
