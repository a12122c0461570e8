package perf

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/pyramid"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// listsReport is the time that pages of tasks took.
type listsReport struct {
	Tasks int          `json:"tasks"`
	MadeS float64      `json:"made_s"`
	Bytes float64      `json:"database_bytes"`
	Pages []pageReport `json:"pages"`
}

// pageReport is one question, asked again and again.
type pageReport struct {
	Database string  `json:"database"` // file or server
	Over     string  `json:"over"`     // process (a call of the store) or gRPC
	Question string  `json:"question"`
	Page     int     `json:"page"`
	Tasks    int     `json:"tasks"` // on it
	Calls    int     `json:"calls"`
	LeastS   float64 `json:"least_s"` // without other load
	P50S     float64 `json:"p50_s"`
	P99S     float64 `json:"p99_s"`

	// Of the calls with the processor to themselves: a fixed piece of work just before and
	// just after took at most quietRatio of its least. 0 where there are fewer than fewQuiet.
	QuietCalls int     `json:"quiet_calls"`
	QuietP50S  float64 `json:"quiet_p50_s"`
	QuietP99S  float64 `json:"quiet_p99_s"`
}

const (
	pageSize = 50
	farPage  = 5000
)

// listQuestion is a question for pages; goal marks those that the goals are about.
type listQuestion struct {
	name string
	q    store.ListQuery
	goal bool
}

var listQuestions = []listQuestion{
	{"all, newest first", store.ListQuery{}, true},
	{"of a user with 30 %", store.ListQuery{Filter: store.Filter{User: madeLab}}, true},
	{"of a user with 0.07 %", store.ListQuery{Filter: store.Filter{User: madeOther}}, true},
	{"gemm-* (40 %), newest first", store.ListQuery{Filter: store.Filter{Name: "gemm-*"}}, true},
	{"gemm-* by name", store.ListQuery{Filter: store.Filter{Name: "gemm-*"}, Order: store.ByName}, true},
	{"gemm-11* (1.8 %) by name", store.ListQuery{Filter: store.Filter{Name: "gemm-11*"}, Order: store.ByName}, true},
	{"gemm-11* (1.8 %), newest first", store.ListQuery{Filter: store.Filter{Name: "gemm-11*"}}, true},
	{"gemm-117* (0.16 %), newest first", store.ListQuery{Filter: store.Filter{Name: "gemm-117*"}}, true},
	{"of a user, gemm-*", store.ListQuery{Filter: store.Filter{User: madeLab, Name: "gemm-*"}}, false},
	{"by energy", store.ListQuery{Order: store.ByEnergy}, false},
	{"of a user by energy", store.ListQuery{Filter: store.Filter{User: madeLab}, Order: store.ByEnergy}, false},
	{"by length", store.ListQuery{Order: store.ByDuration}, false},
	{"by launch", store.ListQuery{Order: store.ByLaunched}, false},
	{"incomplete ones (1 %)", store.ListQuery{Filter: store.Filter{States: []store.State{store.Incomplete}}}, false},
}

// benchLists makes tasks and asks for pages of them, of a file and, where its address
// is given, of a server.
func benchLists(ctx context.Context, dir, address string, tasks, calls int) (*listsReport, error) {
	r := &listsReport{Tasks: tasks}
	made, err := r.ask(ctx, "file", filepath.Join(dir, "tasks.db"), tasks, calls)
	if err != nil {
		return nil, err
	}
	r.MadeS = made.Seconds()
	if address != "" {
		_, err = r.ask(ctx, "server", address, tasks, calls)
	}
	return r, err
}

func (r *listsReport) ask(ctx context.Context, kind, address string, tasks, calls int) (made time.Duration, err error) {
	db, err := store.Open(ctx, address)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if page, err := db.List(ctx, store.ListQuery{Limit: 1}); err != nil {
		return 0, err
	} else if len(page.Tasks) > 0 {
		return 0, cli.WithCode(cli.ExitUsage,
			fmt.Errorf("%s holds tasks: a benchmark wants an empty database: name another", store.Conceal(address)))
	}
	if made, err = makeUpTasks(ctx, address, tasks); err != nil {
		return 0, err
	}
	if kind == "file" {
		if err := db.SQL().QueryRowContext(ctx, databaseSize).Scan(&r.Bytes); err != nil {
			return 0, err
		}
	}
	remote, stop, err := listServer(ctx, db)
	if err != nil {
		return 0, err
	}
	defer stop()
	for _, question := range listQuestions {
		q := question.q
		q.Limit = pageSize
		for page := 1; page <= farPage; page += farPage - 1 {
			if q.After, err = placeBehind(ctx, db, q, (page-1)*pageSize); err != nil {
				return 0, err
			}
			if page > 1 && q.After == nil {
				continue // there is no such page
			}
			p, err := timePages(ctx, calls, func() (int, error) {
				page, err := db.List(ctx, q)
				return len(page.Tasks), err
			})
			if err != nil {
				return 0, err
			}
			r.add(p, kind, "process", question.name, page)
			if page > 1 {
				continue // gRPC's tokens are opaque; its overhead is the same
			}
			if p, err = timePages(ctx, calls, func() (int, error) { return remotePage(ctx, remote, q) }); err != nil {
				return 0, err
			}
			r.add(p, kind, "gRPC", question.name, page)
		}
	}
	return made, nil
}

func (r *listsReport) add(p pageReport, kind, over, question string, page int) {
	p.Database, p.Over, p.Question, p.Page = kind, over, question, page
	r.Pages = append(r.Pages, p)
}

// placeBehind returns the place behind which the tasks after the first n begin; nil where
// there are none, and for n of 0.
func placeBehind(ctx context.Context, db *store.DB, q store.ListQuery, n int) (at *store.Position, err error) {
	for q.After = nil; n > 0; n -= q.Limit {
		q.Limit = min(n, 1000)
		page, err := db.List(ctx, q)
		if err != nil || page.Next == nil {
			return nil, err
		}
		at, q.After = page.Next, page.Next
	}
	return at, nil
}

// listServer serves the database over gRPC on loopback TCP, as wattmark host does.
func listServer(ctx context.Context, db *store.DB) (c *client.Client, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	service := api.New(ctx, db, api.Options{})
	service.Register(server)
	go func() { _ = server.Serve(l) }() // it ends with Stop
	c, err = client.Dial(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		server.Stop()
		return nil, nil, err
	}
	return c, func() { _ = c.Close(); service.Close(); server.Stop() }, nil
}

// remotePage asks for the first page over gRPC.
func remotePage(ctx context.Context, c *client.Client, q store.ListQuery) (n int, err error) {
	states := make([]client.State, len(q.States))
	for i, s := range q.States {
		states[i] = client.State(s)
	}
	ask := client.Query{User: q.User, Name: q.Name, States: states, Order: client.Order(q.Order), Page: q.Limit}
	for _, err := range c.Tasks(ctx, ask) {
		if err != nil {
			return n, err
		}
		if n++; n == q.Limit {
			break // the client would ask for the next page
		}
	}
	return n, nil
}

// slowest is the longest time of the goals' questions.
func (r *listsReport) slowest(database, over string, of func(pageReport) float64) measure.Seconds {
	worst := 0.0
	for _, p := range r.Pages {
		for _, q := range listQuestions {
			if q.goal && q.name == p.Question && p.Database == database && p.Over == over {
				worst = max(worst, of(p))
			}
		}
	}
	return measure.Seconds(worst)
}

// A call is quiet where the fixed piece of work took at most quietRatio of its least just
// before and just after. Fewer than fewQuiet tell nothing.
const (
	quietRatio = 1.25
	fewQuiet   = 30
)

// timePages calls a few times to warm up, and then the given number of times, with the fixed piece
// of work between the calls.
func timePages(ctx context.Context, calls int, call func() (int, error)) (p pageReport, err error) {
	took := make([]float64, 0, calls)
	var work fixedWork
	alone := make([]time.Duration, 1, calls+1) // before and after each call
	for i := -calls / 10; i < calls; i++ {
		alone[len(alone)-1] = work.do()
		begin := time.Now()
		if p.Tasks, err = call(); err != nil {
			return p, err
		}
		if i >= 0 {
			took, alone = append(took, time.Since(begin).Seconds()), append(alone, 0)
		}
		if err := ctx.Err(); err != nil {
			return p, err
		}
	}
	alone[len(alone)-1] = work.do()
	p.Calls = calls
	p.quiet(took, alone)
	slices.Sort(took)
	p.LeastS, p.P50S, p.P99S = took[0], quantile(took, 0.5), quantile(took, 0.99)
	return p, nil
}

// quiet keeps the times of the calls that had the processor to themselves.
func (p *pageReport) quiet(took []float64, alone []time.Duration) {
	limit := time.Duration(quietRatio * float64(slices.Min(alone)))
	var quiet []float64
	for i, t := range took {
		if alone[i] <= limit && alone[i+1] <= limit {
			quiet = append(quiet, t)
		}
	}
	if p.QuietCalls = len(quiet); len(quiet) >= fewQuiet {
		slices.Sort(quiet)
		p.QuietP50S, p.QuietP99S = quantile(quiet, 0.5), quantile(quiet, 0.99)
	}
}

// fixedWork sorts the same numbers again and again: it allocates nothing and fits the
// processor's first cache, so the excess is other programs' (and other virtual
// machines') share of the core.
type fixedWork [2000]uint32

// do returns the time of the second of two runs: the first brings it into the caches.
func (w *fixedWork) do() (took time.Duration) {
	for range 2 {
		x := uint32(1)
		for i := range w {
			x = 1664525*x + 1013904223 // Numerical Recipes' linear congruential generator
			w[i] = x
		}
		begin := time.Now()
		slices.Sort(w[:])
		took = time.Since(begin)
	}
	return took
}

// longReport is a long capture: stored, drawn and exported.
type longReport struct {
	LengthS      float64         `json:"length_s"` // of the capture, at its own rate
	RateHz       float64         `json:"sample_rate_hz"`
	Scans        uint64          `json:"scans"`
	RawBytes     float64         `json:"raw_bytes"` // 12 a scan
	StoredS      float64         `json:"stored_s"`  // coded and durable, at full speed
	BytesPerScan float64         `json:"database_bytes_per_scan"`
	PyramidShare float64         `json:"pyramid_of_raw"`
	Draws        []drawReport    `json:"draws"`
	Export       exportingReport `json:"export"`
}

// drawReport is one span, drawn in so many columns.
type drawReport struct {
	SpanS    float64 `json:"span_s"`
	Columns  int     `json:"columns"`
	BinScans uint64  `json:"bin_scans"`
	ColdS    float64 `json:"cold_s"` // opened anew, with nothing of the file in memory
	WarmP50S float64 `json:"warm_p50_s"`
	WarmP99S float64 `json:"warm_p99_s"`
}

// exportingReport is an export to Parquet, in a process of its own.
type exportingReport struct {
	Bytes      int64   `json:"bytes"`
	WallS      float64 `json:"wall_s"`
	CPUS       float64 `json:"cpu_s"`
	RawPerCPUS float64 `json:"raw_bytes_per_cpu_s"`
	PeakBytes  int64   `json:"peak_rss_bytes"`
}

const (
	drawColumns = 2000
	drawCalls   = 100
)

func benchLong(ctx context.Context, dir string, length time.Duration) (*longReport, error) {
	r := &longReport{LengthS: length.Seconds(), RateHz: longRateHz, Scans: uint64(length.Seconds() * longRateHz)}
	r.RawBytes = 12 * float64(r.Scans)
	path := filepath.Join(dir, "long.db")
	db, err := store.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }() // the one of an error; it was only read
	m := madeCapture{G: NewGenerator(longRateHz, false), Rate: longRateHz, Scans: r.Scans}
	id, took, err := m.Store(ctx, db, "long")
	if err != nil {
		return nil, err
	}
	size, err := sizeOf(ctx, db)
	if err != nil {
		return nil, err
	}
	r.StoredS, r.PyramidShare = took.Seconds(), size.pyramid/r.RawBytes
	r.BytesPerScan = (size.all - size.pyramid) / float64(r.Scans)
	for _, span := range zooms(r.LengthS) {
		if db, err = r.draw(ctx, db, path, id, measure.Seconds(span)); err != nil {
			return nil, err
		}
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	r.Export, err = exportBeside(ctx, path, filepath.Join(dir, "long.parquet"), id, r.RawBytes)
	return r, err
}

// zooms are the spans that a capture is drawn at, the longest first: tenths of each other,
// and those that take longest, just before the bins of a level are fine enough.
func zooms(length float64) (out []float64) {
	for span := length; span >= 0.01; span /= 10 {
		out = append(out, span)
	}
	for level := range pyramid.Levels {
		if span := drawColumns * float64(pyramid.BinScans(level)-1) / longRateHz; span < length {
			out = append(out, span)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

// draw draws the middle of the capture, first with a database that was opened anew, as a
// host opens it, and a file of which nothing is in the system's memory.
func (r *longReport) draw(ctx context.Context, db *store.DB, path string, id store.TaskID,
	span measure.Seconds,
) (*store.DB, error) {
	if err := db.Close(); err != nil {
		return db, err
	}
	db, err := store.Open(ctx, path)
	if err != nil {
		return db, err
	}
	if err := db.OpenAll(ctx); err != nil {
		return db, err
	}
	if err := forget(path); err != nil {
		return db, err
	}
	from := (measure.Seconds(r.LengthS) - span) / 2
	call := func() (int, error) {
		e, err := db.Envelope(ctx, id, from, from+span, drawColumns)
		if err != nil {
			return 0, err
		}
		return int(e.BinScans), nil
	}
	begin := time.Now()
	bin, err := call()
	if err != nil {
		return db, err
	}
	d := drawReport{
		SpanS: float64(span), Columns: drawColumns, BinScans: uint64(bin),
		ColdS: time.Since(begin).Seconds(),
	}
	p, err := timePages(ctx, drawCalls, call)
	d.WarmP50S, d.WarmP99S = p.P50S, p.P99S
	r.Draws = append(r.Draws, d)
	return db, err
}

// exportBeside exports the counts with the program itself.
func exportBeside(ctx context.Context, db, to string, id store.TaskID, raw float64) (r exportingReport, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	defer os.Remove(to)
	cmd := exec.CommandContext(ctx, self, "export", strconv.FormatInt(int64(id), 10), "--raw", "--all", "-o", to,
		"--db", db, "--json")
	cmd.Stderr = os.Stderr
	begin := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("export: %w", err)
	}
	r.WallS = time.Since(begin).Seconds()
	var said exchange.ExportReport
	if err := json.Unmarshal(out, &said); err != nil {
		return r, fmt.Errorf("export: %w", err)
	}
	r.Bytes = said.Bytes
	r.CPUS = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	r.RawPerCPUS, r.PeakBytes = raw/r.CPUS, peakBytes(cmd.ProcessState)
	return r, nil
}
