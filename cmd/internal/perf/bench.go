// Package perf measures the product itself.
//
//	bench ingest   scans/s and latency from meter to database
//	bench trim     time from StopCapture to the trimmed stream
//	bench monitor  hidden: the second process of both
//	tests          benchmarks of storage, drivers, memory, TLS and relays
//
//	generator → capture → spool ─ gRPC → Transfer → database
//	└──── monitor process ─────┘         └─ host process ──┘
//
// A generator stands in for the meter and plays the markers; everything behind it is the
// product's own code. The parent controls the monitor process over its standard input
// (monitorNote lists the commands).
package perf

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
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

// limitsReport are the machine's own limits, for scale: B/s, and s for one sync of 4 KiB.
type limitsReport struct {
	MemcpyBytesPerS float64 `json:"memcpy_bytes_per_s"`
	WriteBytesPerS  float64 `json:"write_and_sync_bytes_per_s"`
	SyncP50S        float64 `json:"sync_p50_s"`
	SyncP99S        float64 `json:"sync_p99_s"`
}

// measureLimits measures memory and disk; it takes about a second.
func measureLimits(ctx context.Context, dir string) (limitsReport, error) {
	var r limitsReport
	r.MemcpyBytesPerS = memcpyRate()
	f, err := os.Create(filepath.Join(dir, "limits"))
	if err != nil {
		return r, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if r.WriteBytesPerS, err = writeRate(f); err != nil {
		return r, err
	}
	var took []float64
	// Each commit of the database costs at least one such sync.
	for range 100 {
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		begin := time.Now()
		_, err := f.Write(make([]byte, 4096))
		if err = errors.Join(err, f.Sync()); err != nil {
			return r, err
		}
		took = append(took, time.Since(begin).Seconds())
	}
	slices.Sort(took)
	r.SyncP50S, r.SyncP99S = took[len(took)/2], took[len(took)*99/100]
	return r, nil
}

// memcpyRate returns B/s of copies between blocks of 64 MiB, larger than caches.
func memcpyRate() float64 {
	const size = 64 << 20
	src, dst := make([]byte, size), make([]byte, size)
	copy(src, dst) // touch the pages first
	copy(dst, src)
	begin, n := time.Now(), 0
	for time.Since(begin) < 200*time.Millisecond {
		n += copy(dst, src)
	}
	return float64(n) / time.Since(begin).Seconds()
}

// writeRate returns B/s of writing 256 MiB in sequence and syncing once.
func writeRate(f *os.File) (float64, error) {
	b := make([]byte, 4<<20)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range b {
		b[i] = byte(rng.Uint32()) // a file system may compress
	}
	const blocks = 64
	begin := time.Now()
	for range blocks {
		if _, err := f.Write(b); err != nil {
			return 0, err
		}
	}
	err := f.Sync()
	return float64(blocks*len(b)) / time.Since(begin).Seconds(), err
}

// rowsReport is the table of the paper, a row per sample with twelve columns.
type rowsReport struct {
	Rows          int     `json:"rows"`
	RowsPerS      float64 `json:"rows_per_s"`
	BytesPerRow   float64 `json:"bytes_per_sample"`
	RowsPerCommit int     `json:"rows_per_transaction"`
}

// rowsPerCommit amortises the sync: single commits would measure the disk, not the rows.
const rowsPerCommit = 10000

// paperTable is the paper's table, without its index.
const paperTable = `CREATE TABLE data(taskID INTEGER, taskName TEXT, user TEXT, power REAL,
	current1 REAL, current2 REAL, current3 REAL, voltage1 REAL, voltage2 REAL, voltage3 REAL,
	taskTime REAL, seqNum INTEGER)`

// measureRows inserts the generator's scans into the paper's table for about the given
// time: one prepared statement, large transactions, and the store's durability (WAL,
// synchronous=FULL).
func measureRows(ctx context.Context, dir string, length time.Duration) (rowsReport, error) {
	r := rowsReport{RowsPerCommit: rowsPerCommit}
	path := filepath.Join(dir, "rows.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return r, err
	}
	db.SetMaxOpenConns(1)
	defer db.Close()
	if _, err := db.ExecContext(ctx, paperTable); err != nil {
		return r, fmt.Errorf("row table: %w", err)
	}
	g := NewGenerator(10e6, false)
	begin := time.Now()
	for time.Since(begin) < length {
		if err := insertRows(ctx, db, g, r.Rows, rowsPerCommit); err != nil {
			return r, fmt.Errorf("row table: %w", err)
		}
		r.Rows += rowsPerCommit
	}
	r.RowsPerS = float64(r.Rows) / time.Since(begin).Seconds()
	var size float64
	if err := db.QueryRowContext(ctx, databaseSize).Scan(&size); err != nil {
		return r, fmt.Errorf("row table: %w", err)
	}
	if r.Rows > 0 {
		r.BytesPerRow = size / float64(r.Rows)
	}
	return r, nil
}

// databaseSize returns the bytes of the last commit's pages, in the file or in its log.
const databaseSize = `SELECT page_count*page_size FROM pragma_page_count, pragma_page_size`

// insertRows inserts n rows, numbered from first, in one transaction. Six counts become
// three currents (1 mA) and voltages (0.5 mV); power is the sum of their products.
func insertRows(ctx context.Context, db *sql.DB, g *generator, first, n int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to roll back
	insert, err := tx.PrepareContext(ctx, `INSERT INTO data VALUES(?,?,?,?,?,?,?,?,?,?,?,?)`)
	if err != nil {
		return err
	}
	for i := first; i < first+n; i++ {
		at := i % generatorPeriod
		v := func(c int, gain float64) float64 { return gain * float64(g.busy[c][at]) }
		i1, v1, i2, v2, i3, v3 := v(0, 1e-3), v(1, 5e-4), v(2, 1e-3), v(3, 5e-4), v(4, 1e-3), v(5, 5e-4)
		if _, err := insert.ExecContext(ctx, 1, "matrix product", "researcher", i1*v1+i2*v2+i3*v3, i1, i2, i3, v1, v2,
			v3, float64(i)*1e-7, i); err != nil {
			return err
		}
	}
	return tx.Commit()
}
