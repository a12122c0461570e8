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
	"bufio"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	_ "modernc.org/sqlite"
)

// benchCmd returns the command bench with its subcommands.
func benchCmd(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Measure how fast this machine takes, moves and keeps samples", Args: cobra.NoArgs,
	}
	c.AddCommand(benchIngestCmd(a), benchTrimCmd(a), benchMonitorCmd(a))
	return c
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

// goal is a result beside the bound that it should meet. Want is the bound as text; shown
// is the result as text, in the same unit.
type goal struct {
	Name   string  `json:"name"`
	Want   string  `json:"goal"`
	Result float64 `json:"result"`
	Met    bool    `json:"met"`

	shown string
}

// ingestReport is the JSON of bench ingest. Fast runs as fast as the slowest stage, Paced
// at a meter's rate; Rows is the table of the paper with a row per sample.
type ingestReport struct {
	Machine machineReport `json:"machine"`
	Limits  limitsReport  `json:"limits"`
	Rows    rowsReport    `json:"row_per_sample"`
	Fast    *streamReport `json:"fast,omitempty"`
	Paced   *streamReport `json:"paced,omitempty"`
	Pairs   []pairReport  `json:"pairs,omitempty"`
	Goals   []goal        `json:"goals"`
}

// pairReport is a pair of runs at full speed, one with and one without the pyramid.
type pairReport struct {
	With       float64 `json:"scans_per_s_with_pyramid"`
	Without    float64 `json:"scans_per_s_without"`
	WithCPU    float64 `json:"cpu_s_per_scan_with_pyramid"` // of both processes
	WithoutCPU float64 `json:"cpu_s_per_scan_without"`
}

// ingestFlags are the flags of bench ingest; times in s, rate in scans/s.
type ingestFlags struct {
	benchFlagsShared
	seconds, rate, pacedSeconds, rowSeconds float64
	pairs                                   int
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
	fl.IntVar(&f.pairs, "pairs", 3, "pairs of runs at full speed, with and without the pyramid; 0 leaves them out")
	fl.Float64Var(&f.rowSeconds, "row-seconds", 2, "length of the row-a-sample run")
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
	if r.Limits, err = measureLimits(ctx, dir); err != nil {
		return err
	}
	if r.Rows, err = measureRows(ctx, dir, ofSeconds(f.rowSeconds)); err != nil {
		return err
	}
	if r.Pairs, err = ingestPairs(ctx, a, f, dir); err != nil {
		return err
	}
	run := ingestRun{name: "fast", length: ofSeconds(f.seconds)}
	if f.rate <= 0 {
		run.keep = keep
	}
	if r.Fast, err = ingestOnce(ctx, a, f, dir, run); err != nil {
		return err
	}
	if f.rate > 0 {
		if r.Paced, err = ingestOnce(ctx, a, f, dir, ingestRun{
			name: "paced", length: ofSeconds(f.pacedSeconds), paced: true, keep: keep,
		}); err != nil {
			return err
		}
	}
	r.judge()
	return a.Print(r, r.render)
}

// ingestPairs alternates runs with and without the pyramid, so that other load on the
// machine affects both alike.
func ingestPairs(ctx context.Context, a *cli.App, f ingestFlags, dir string) (out []pairReport, err error) {
	for i := 0; i < f.pairs && f.seconds > 0; i++ {
		var p pairReport
		for _, flat := range []bool{i%2 == 0, i%2 != 0} { // neither is always the first
			r, err := ingestOnce(ctx, a, f, dir, ingestRun{
				name: fmt.Sprintf("pair%d", i+1), length: ofSeconds(f.seconds), flat: flat,
			})
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

// ingestRun is one run. flat leaves the pyramid out; keep is the path of its database,
// empty for a file in the scratch directory.
type ingestRun struct {
	name        string
	length      time.Duration
	paced, flat bool
	keep        string
}

// ingestOnce makes one run in a directory of its own, so that the database holds one task
// and its size is that task's. It returns nil for a run of no length.
func ingestOnce(ctx context.Context, a *cli.App, f ingestFlags, dir string, r ingestRun) (*streamReport, error) {
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
	bar := newBenchBar(a.Err, r.name+" run", r.length)
	run.each = func(at time.Duration, _, _ monitorNote) { bar.update(at) }
	defer bar.clear()
	return run.run(ctx, a.Streams)
}

// ofSeconds converts seconds to a Duration.
func ofSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	return cli.In(cli.And, help, benchCmd(a))
}

// Goals of the ingest benchmark, on two cores.
const (
	goalScansPerS    = 30e6
	leastScansPerS   = 15e6
	goalBytesPerScan = 4.5
	goalPyramidBytes = 0.08 * 12 // of the raw counts of a scan
	goalPyramidRatio = 0.85
	goalLatencyP99S  = 0.1
	goalHostCores    = 0.5
)

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

// judge compares the results with the goals. A missed goal is no error.
func (r *ingestReport) judge() {
	if f := r.Fast; f != nil {
		r.Goals = append(r.Goals, atLeast("full speed", f.ScansPerS, goalScansPerS, "million scans/s", 1e6),
			atLeast("full speed, least", f.ScansPerS, leastScansPerS, "million scans/s", 1e6),
			atMost("full speed, stored", f.BytesPerScan, goalBytesPerScan, "bytes a scan", 1),
			atMost("full speed, pyramid", f.PyramidBytes, goalPyramidBytes, "bytes a scan", 1))
		r.Goals = append(r.Goals, f.complete("full speed"))
	}
	if len(r.Pairs) > 0 {
		r.Goals = append(r.Goals, atLeast("ingest with the pyramid, of that without, median", r.ratio(),
			goalPyramidRatio, "%", 0.01))
	}
	if p := r.Paced; p != nil {
		r.Goals = append(r.Goals, atMost("paced, sample to durable p99", p.LatencyP99S, goalLatencyP99S, "ms", 1e-3),
			atMost("paced, host", p.HostCores, goalHostCores, "cores", 1),
			atMost("paced, stored", p.BytesPerScan, goalBytesPerScan, "bytes a scan", 1), p.complete("paced"))
	}
}

// ratio returns the median over the pairs of speed with the pyramid to speed without.
func (r *ingestReport) ratio() float64 {
	var of []float64
	for _, p := range r.Pairs {
		of = append(of, p.With/p.Without)
	}
	slices.Sort(of)
	return quantile(of, 0.5)
}

// complete returns the goal that no scan is missing and no gap was recorded.
func (r *streamReport) complete(name string) goal {
	lost := float64(r.Missing) + float64(r.Gaps)
	return goal{name + ", samples missing or gaps", "0", lost, lost == 0, fmt.Sprint(lost)}
}

// render prints the machine, its limits, the runs, the pairs, and the goals.
func (r *ingestReport) render(w io.Writer) {
	r.Machine.render(w)
	fmt.Fprintf(w, "  limits   memcpy %s/s, write and sync %s/s, sync of 4 KiB p50 %v, p99 %v\n\n",
		cli.SizeText(r.Limits.MemcpyBytesPerS), cli.SizeText(r.Limits.WriteBytesPerS),
		measure.Seconds(r.Limits.SyncP50S), measure.Seconds(r.Limits.SyncP99S))
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
	t.AppendRow(table.Row{
		"row a sample", fmt.Sprintf("%.2f M", r.Rows.RowsPerS/1e6), cli.SizeText(12*r.Rows.RowsPerS) + "/s",
		fmt.Sprintf("%.3f", r.Rows.BytesPerRow), "", "", "",
	})
	t.Render()
	for _, p := range r.Pairs {
		fmt.Fprintf(w, "  with the pyramid %.1f M scans/s, without %.1f: %.0f %%; processor %.1f and %.1f ns a scan\n",
			p.With/1e6, p.Without/1e6, 100*p.With/p.Without, 1e9*p.WithCPU, 1e9*p.WithoutCPU)
	}
	fmt.Fprintln(w)
	renderGoals(w, r.Goals)
}

// render prints the machine, with a warning where the scratch directory is in memory.
func (m machineReport) render(w io.Writer) {
	fmt.Fprintf(w, "  machine  %s, %d cores, %s/%s, %s, %s, load %.2f before\n", m.CPU, m.Cores, m.OS, m.Arch, m.Go,
		m.FileSystem, m.Load1)
	if m.FileSystem == "tmpfs" || m.FileSystem == "ramfs" {
		fmt.Fprintln(w, "           the scratch directory is in memory: nothing below was durable; name a disk with --dir")
	}
}

// renderGoals prints goals and results as a table.
func renderGoals(w io.Writer, goals []goal) {
	t := out.NewTable(w)
	t.AppendHeader(table.Row{"", "goal", "result", ""})
	for _, g := range goals {
		verdict := "met"
		if !g.Met {
			verdict = "MISSED"
		}
		t.AppendRow(table.Row{g.Name, g.Want, g.shown, verdict})
	}
	t.Render()
}

// benchBar shows the progress of a run on one line of a terminal; other writers get
// nothing.
type benchBar struct {
	w      io.Writer
	name   string
	length time.Duration
}

func newBenchBar(w io.Writer, name string, length time.Duration) *benchBar {
	b := &benchBar{w, name, length}
	b.update(0)
	return b
}

func (b *benchBar) update(at time.Duration) {
	if !out.IsTerminal(b.w) {
		return
	}
	const width = 30
	n := min(width, int(width*at/max(b.length, 1)))
	fmt.Fprintf(b.w, "\r\x1b[K%-14s %s%s %.0f of %.0f s", b.name, strings.Repeat("█", n), strings.Repeat("░", width-n),
		at.Seconds(), b.length.Seconds())
}

func (b *benchBar) clear() {
	if out.IsTerminal(b.w) {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
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

func describeMachine(dir string) machineReport {
	return machineReport{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), Cores: runtime.GOMAXPROCS(0),
		Go: runtime.Version(), FileSystem: out.FileSystem(dir), Load1: loadAverage(),
	}
}

// cpuModel returns the processor's name from /proc/cpuinfo; "unknown" on other systems.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// loadAverage returns the load of the last minute; 0 on systems without /proc/loadavg.
func loadAverage() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return v
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
