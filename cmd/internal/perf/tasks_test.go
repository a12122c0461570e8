package perf

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// storeReport is the result of the store benchmark.
type storeReport struct {
	Machine machineReport `json:"machine"`
	Limits  limitsReport  `json:"limits"`
	Lists   *listsReport  `json:"lists,omitempty"`
	Long    *longReport   `json:"long,omitempty"`
	Peers   []peerReport  `json:"peers,omitempty"`
	Goals   []goal        `json:"goals"`
}

type storeFlags struct {
	benchFlagsShared
	tasks, calls, samples int
	length                time.Duration
	postgres              string
}

func benchStore(ctx context.Context, log io.Writer, f storeFlags) (*storeReport, error) {
	dir, remove, err := f.scratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	r := &storeReport{Machine: describeMachine(dir)}
	if r.Limits, err = measureLimits(ctx, dir); err != nil {
		return nil, err
	}
	if f.tasks > 0 { // first: they want an empty database
		if r.Lists, err = benchLists(ctx, dir, f.postgres, f.tasks, f.calls); err != nil {
			return nil, err
		}
	}
	if f.samples > 0 {
		if r.Peers, err = benchPeers(ctx, dir, f.postgres, f.samples); err != nil {
			return nil, err
		}
	}
	if f.length > 0 {
		if r.Long, err = benchLong(ctx, dir, f.length); err != nil {
			return nil, err
		}
	}
	r.judge()
	r.render(log)
	return r, nil
}

// The made-up lab: 1000 users, of whom the first has three of ten tasks and the others
// the rest; 1000 names of four kinds, gemm of 40 % of the tasks; two of three have tags.
const (
	madeUsers = 1000
	madeLab   = "user 1"
	madeOther = "user 77"
)

// madeAtOnce is how many tasks one statement makes.
const madeAtOnce = 50000

// madeTasksSQL makes tasks %[1]d to %[2]d, in words that SQLite and PostgreSQL both
// understand. a, b and c are as good as drawn by lot, and follow from the number.
const madeTasksSQL = `WITH RECURSIVE s(i) AS (SELECT cast(%[1]d AS bigint) UNION ALL SELECT i+1 FROM s WHERE i<%[2]d),
h AS (SELECT i, (i*2654435761 %% 4294967296)/65536 AS a, (i*2246822519 %% 4294967291)/65536 AS b, (i*3266489917 %% 4294967279)/65536 AS c FROM s)
INSERT INTO task(user_id, name, launched_ns, launched, state, reason, monitor, capture_id, gpu, gpu_uuid, driver, job,
	marker_code, marker_chip_s, marker_guard, marker_tag_bits, marker_tag,
	chunks, scans, has_result, from_s, to_s, samples, first_scan, gaps, lost, end_scan, energy_j, energy_u_j, mean_w, peak_w, nvml_j)
SELECT CASE WHEN a %% 10 < 3 THEN 1 ELSE 1 + b %% %[3]d END,
	CASE WHEN c %% 10 < 4 THEN 'gemm-' WHEN c %% 10 < 7 THEN 'conv-' WHEN c %% 10 < 9 THEN 'fft-' ELSE 'axpy-' END || (b/16 %% 250),
	1750000000000000000 + i*1000000000, '2025-06-15T15:06:40.000000Z', CASE WHEN a %% 100 = 7 THEN 3 ELSE 2 END, '', 'monitor:7551', 'capture-' || i,
	'NVIDIA H200', 'GPU-5bd0f4ae-0000-0000-0000-00000000000' || (a %% 8), '570.86.15', CASE WHEN c %% 4 = 0 THEN 'job-' || (b %% 5000) END,
	1, 0.002, 4, 8, 1,
	8, 2000000, 1, 0.5, 0.5 + (1 + a)/6553.6, 200000, 50000, 0, 0, 250000, (1 + b)/10.0, (1 + b)/2000.0, 250.0 + c/200.0, 600.5, (1 + b)/11.0
FROM h`

// madeTagsSQL gives two of three tasks two tags each.
const madeTagsSQL = `INSERT INTO task_tag(task_id, key, value)
	SELECT task_id, 'node', 'node-' || (task_id %% 97) FROM task WHERE task_id BETWEEN %[1]d AND %[2]d AND task_id %% 3 > 0
	UNION ALL SELECT task_id, 'project', CASE WHEN task_id %% 5 = 0 THEN 'training' ELSE 'survey' END FROM task WHERE task_id BETWEEN %[1]d AND %[2]d AND task_id %% 3 > 0`

// makeUpTasks fills an empty database with n tasks, over a connection of its own:
// the store has no bulk insert for tasks, since real ones come singly.
func makeUpTasks(ctx context.Context, address string, n int) (time.Duration, error) {
	driver, source := "sqlite", "file:"+address+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	if store.OnServer(address) {
		driver, source = "pgx", address
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	begin := time.Now()
	users := fmt.Sprintf(`WITH RECURSIVE s(i) AS (SELECT cast(1 AS bigint) UNION ALL SELECT i+1 FROM s WHERE i<%d)
		INSERT INTO "user"(login) SELECT 'user ' || i FROM s`, madeUsers)
	if _, err := db.ExecContext(ctx, users); err != nil {
		return 0, fmt.Errorf("make users: %w", err)
	}
	for at := 1; at <= n; at += madeAtOnce {
		last := min(at+madeAtOnce-1, n)
		for _, q := range []string{fmt.Sprintf(madeTasksSQL, at, last, madeUsers), fmt.Sprintf(madeTagsSQL, at, last)} {
			if _, err := db.ExecContext(ctx, q); err != nil {
				return 0, fmt.Errorf("make tasks from %d on: %w", at, err)
			}
		}
	}
	// A server sweeps and looks at its tables by itself, after a minute; a file is never looked at.
	if store.OnServer(address) {
		_, err = db.ExecContext(ctx, "VACUUM ANALYZE")
	}
	return time.Since(begin), err
}

// Goals of the store's benchmark.
const (
	goalPageP50S   = 0.5e-3 // in this process, of a file
	goalPageP99S   = 1e-3
	goalRemoteP50S = 1.5e-3

	goalStockS = 8 // for a million samples

	goalWarmS        = 5e-3
	goalColdS        = 20e-3
	goalPyramidShare = 0.08
	goalExportPerS   = 100e6 // of raw counts, per core
)

// judge holds the results against the goals.
func (r *storeReport) judge() {
	for _, p := range r.Peers {
		if strings.Contains(p.Name, "stock sqlite3") {
			million := p.ReadS * 1e6 / float64(p.Samples)
			r.Goals = append(r.Goals, atMost("a million samples, view in stock sqlite3", million, goalStockS, "s", 1))
		}
	}
	if l := r.Lists; l != nil {
		p50 := func(p pageReport) float64 { return p.P50S }
		p99 := func(p pageReport) float64 { return p.P99S }
		r.Goals = append(r.Goals,
			atMost("pages by user and by name's beginning, the slowest p50", float64(l.slowest("file", "process", p50)),
				goalPageP50S, "ms", 1e-3),
			atMost("the slowest p99", float64(l.slowest("file", "process", p99)), goalPageP99S, "ms", 1e-3),
			atMost("over gRPC, the slowest p50", float64(l.slowest("file", "gRPC", p50)), goalRemoteP50S, "ms", 1e-3))
	}
	if l := r.Long; l != nil {
		warm, cold := 0.0, 0.0
		for _, d := range l.Draws {
			warm, cold = max(warm, d.WarmP50S), max(cold, d.ColdS)
		}
		r.Goals = append(r.Goals,
			atMost("drawn in 2000 columns, warm, the slowest zoom's p50", warm, goalWarmS, "ms", 1e-3),
			atMost("the same, cold", cold, goalColdS, "ms", 1e-3),
			atMost("pyramid", l.PyramidShare, goalPyramidShare, "% of the raw counts", 0.01),
			atLeast("export to Parquet, raw counts per core", l.Export.RawPerCPUS, goalExportPerS, "MB/s", 1e6))
	}
}

func (r *storeReport) render(w io.Writer) {
	r.Machine.render(w)
	fmt.Fprintf(w, "  limits   memcpy %s/s, write and sync %s/s, sync of 4 KiB p50 %v, p99 %v\n\n",
		cli.SizeText(r.Limits.MemcpyBytesPerS), cli.SizeText(r.Limits.WriteBytesPerS),
		measure.Seconds(r.Limits.SyncP50S), measure.Seconds(r.Limits.SyncP99S))
	if len(r.Peers) > 0 {
		renderPeers(w, r.Peers)
	}
	if r.Lists != nil {
		r.Lists.render(w)
	}
	if r.Long != nil {
		r.Long.render(w)
	}
	renderGoals(w, r.Goals)
}

func (l *listsReport) render(w io.Writer) {
	fmt.Fprintf(w, "  %d tasks of %d users, %s, made in %.0f s; pages of %d\n\n", l.Tasks, madeUsers,
		cli.SizeText(l.Bytes), l.MadeS, pageSize)
	t := out.NewTable(w)
	t.AppendHeader(table.Row{
		"tasks", "page", "database", "asked", "on it", "least", "p50", "p99", "quiet", "their p50",
		"p99",
	})
	for _, p := range l.Pages {
		over := map[string]string{"process": "in the process", "gRPC": "over gRPC"}[p.Over]
		ms := func(s float64) string { return fmt.Sprintf("%.3f ms", 1e3*s) }
		row := table.Row{
			p.Question, p.Page, p.Database, over, p.Tasks, ms(p.LeastS), ms(p.P50S), ms(p.P99S),
			fmt.Sprintf("%.0f %%", 100*float64(p.QuietCalls)/float64(p.Calls)), "", "",
		}
		if p.QuietP50S > 0 {
			row[9], row[10] = ms(p.QuietP50S), ms(p.QuietP99S)
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintf(w, "  quiet: the calls just before and after which a fixed sort took at most %g of its least, so "+
		"that nothing else had a share of the processor\n\n", quietRatio)
}

func (l *longReport) render(w io.Writer) {
	fmt.Fprintf(w, "  %v at %g kS/s, six channels, %s of raw counts: coded and stored in %.1f s (%.3g M scans/s), "+
		"%.3g bytes a scan, pyramid %.2g %% of the raw counts\n",
		measure.Seconds(l.LengthS), l.RateHz/1e3, cli.SizeText(l.RawBytes), l.StoredS, float64(l.Scans)/l.StoredS/1e6,
		l.BytesPerScan, 100*l.PyramidShare)
	x := l.Export
	fmt.Fprintf(w,
		"  exported to Parquet, %s, in %.1f s: %s of raw counts per second of processor, at most %s in memory\n\n",
		cli.SizeText(x.Bytes), x.WallS, cli.SizeText(x.RawPerCPUS), cli.SizeText(x.PeakBytes))
	t := out.NewTable(w)
	t.AppendHeader(table.Row{"drawn", "bins of", "cold", "warm p50", "warm p99"})
	for _, d := range l.Draws {
		ms := func(s float64) string { return fmt.Sprintf("%.2f ms", 1e3*s) }
		t.AppendRow(table.Row{
			measure.Seconds(d.SpanS), fmt.Sprintf("%d scans", d.BinScans), ms(d.ColdS),
			ms(d.WarmP50S), ms(d.WarmP99S),
		})
	}
	t.Render()
	fmt.Fprintln(w)
}

// renderPeers shows each way with its ratio to the first, which is ours.
func renderPeers(w io.Writer, peers []peerReport) {
	ours := peers[0]
	t := out.NewTable(w)
	t.AppendHeader(table.Row{
		fmt.Sprintf("%d samples", ours.Samples), "stored, samples/s", "of ours", "bytes a sample",
		"of ours", "read", "of ours",
	})
	for _, p := range peers {
		row := table.Row{
			p.Name, "", "", "", "", fmt.Sprintf("%.3g s", p.ReadS),
			fmt.Sprintf("%.3g", p.ReadS/ours.ReadS),
		}
		if p.SamplesPerS > 0 {
			row[1], row[2] = fmt.Sprintf("%.3g M", p.SamplesPerS/1e6),
				fmt.Sprintf("1/%.3g", ours.SamplesPerS/p.SamplesPerS)
			row[3], row[4] = fmt.Sprintf("%.4g", p.BytesPerSample),
				fmt.Sprintf("%.3g", p.BytesPerSample/ours.BytesPerSample)
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintln(w)
}
