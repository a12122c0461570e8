package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// backlogScans is how far the generator may be ahead of the database when it
// is not paced: it keeps what is under way in the page cache, as a steady state
// does, and makes the slowest stage set the pace of all.
const backlogScans = 32 << 20

// streamRun is one capture streamed from the generator to the database.
type streamRun struct {
	dir, db string
	monitor monitorOptions
	length  time.Duration
	flat    bool // without pyramids
	// each is called every second, with what both processes have used.
	each func(at time.Duration, host, monitor monitorNote)
}

// streamReport is what became of it.
type streamReport struct {
	Paced        bool    `json:"paced"`
	Transport    string  `json:"transport"`
	RateHz       float64 `json:"sample_rate_hz,omitempty"`
	Scans        uint64  `json:"scans"`         // taken by the capture
	Stored       uint64  `json:"scans_stored"`  // from the start marker on, in the database
	Missing      int64   `json:"scans_missing"` // delivered by the generator, but not taken
	Gaps         uint64  `json:"gaps"`
	DurationS    float64 `json:"duration_s"` // first scan taken to last chunk durable
	ScansPerS    float64 `json:"scans_per_s"`
	RawBytesPerS float64 `json:"raw_bytes_per_s"`         // 12 bytes a scan
	BytesPerScan float64 `json:"database_bytes_per_scan"` // without the pyramid
	PyramidBytes float64 `json:"pyramid_bytes_per_scan"`
	Commits      int     `json:"commits"`
	HostCPUS     float64 `json:"host_cpu_s"`
	HostCores    float64 `json:"host_cores"`
	MonitorCPUS  float64 `json:"monitor_cpu_s"`
	MonitorCores float64 `json:"monitor_cores"`
	// Sample to durable: only of a paced run, where a sample has a time.
	LatencyP50S float64 `json:"latency_p50_s,omitempty"`
	LatencyP99S float64 `json:"latency_p99_s,omitempty"`
	LatencyMaxS float64 `json:"latency_max_s,omitempty"`
}

// clockedStore is the task database with a note of when chunks became durable.
type clockedStore struct {
	*store.DB
	mu      sync.Mutex
	done    []durable
	commits int
}

// durable is a chunk that is safe.
type durable struct {
	at    time.Time
	first uint64
	scans int
}

func (s *clockedStore) AppendChunks(ctx context.Context, id store.TaskID, chunks []*chunk.Chunk, events []measure.Event) error {
	err := s.DB.AppendChunks(ctx, id, chunks, events)
	at := time.Now()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	for _, c := range chunks {
		s.done = append(s.done, durable{at, c.FirstScan, c.Scans})
	}
	return nil
}

// run makes the capture. Everything but the generator and the clock is what a
// measurement uses: the monitor's service, its client, Transfer, the store.
func (r *streamRun) run(ctx context.Context, s streams) (*streamReport, error) {
	p, err := startBenchMonitor(ctx, r.dir, r.monitor, s.err)
	if err != nil {
		return nil, err
	}
	out, err := r.with(ctx, p)
	return out, errors.Join(err, p.stop())
}

func (r *streamRun) with(ctx context.Context, p *monitorProcess) (*streamReport, error) {
	db, err := store.Open(ctx, r.db)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if r.flat {
		db.DeferPyramids()
	}
	empty, err := sizeOf(ctx, db)
	if err != nil {
		return nil, err
	}
	if r.monitor.profile != "" {
		stop, err := startProfile(r.monitor.profile + ".host")
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	st := &stream{run: r, p: p, db: &clockedStore{DB: db}, host: processUsage()}
	if st.monitor, err = p.ask("usage"); err != nil {
		return nil, err
	}
	if err := st.capture(ctx); err != nil {
		return nil, err
	}
	out := st.report()
	full, err := sizeOf(ctx, db)
	if err != nil {
		return nil, err
	}
	chunks, pyramid := full.all-empty.all-(full.pyramid-empty.pyramid), full.pyramid-empty.pyramid
	out.BytesPerScan, out.PyramidBytes = chunks/float64(out.Stored), pyramid/float64(out.Stored)
	return out, p.client.Release(ctx, st.id)
}

// sizes are in bytes.
type sizes struct{ all, pyramid float64 }

func sizeOf(ctx context.Context, db *store.DB) (n sizes, err error) {
	if err = db.SQL().QueryRowContext(ctx, databaseSize).Scan(&n.all); err != nil {
		return n, err
	}
	return n, db.SQL().QueryRowContext(ctx, `SELECT coalesce(sum(length(data)),0) FROM pyramid`).Scan(&n.pyramid)
}

func (s *stream) report() *streamReport {
	last := s.db.done[len(s.db.done)-1].at
	took := last.Sub(s.begun).Seconds()
	r := &streamReport{
		Paced: s.run.monitor.paced, Transport: s.run.monitor.transport, Commits: s.db.commits,
		Scans: s.summary.Scans, Stored: s.trailer.Scans, Missing: s.delivered - int64(s.summary.Scans), Gaps: s.summary.Gaps,
		DurationS: took, ScansPerS: float64(s.trailer.Scans) / took, RawBytesPerS: 12 * float64(s.trailer.Scans) / took,
		HostCPUS: s.host.cpu(), HostCores: s.host.cpu() / took, MonitorCPUS: s.monitor.cpu(), MonitorCores: s.monitor.cpu() / took,
	}
	if r.Paced {
		r.RateHz = s.run.monitor.rate
		l := latencies(s.db.done, s.begun, s.run.monitor.rate)
		r.LatencyP50S, r.LatencyP99S, r.LatencyMaxS = quantile(l, 0.5), quantile(l, 0.99), quantile(l, 1)
	}
	return r
}

// latencies returns the times from scan to durable, sorted, of scans spread
// evenly over each chunk, as many as its scans deserve.
func latencies(done []durable, begun time.Time, rate float64) []float64 {
	var out []float64
	for _, d := range done {
		n := max(1, d.scans/1024)
		since := d.at.Sub(begun).Seconds()
		for i := range n {
			scan := float64(d.first) + (float64(i)+0.5)*float64(d.scans)/float64(n)
			out = append(out, since-scan/rate)
		}
	}
	slices.Sort(out)
	return out
}

// quantile of a sorted list by nearest rank; 0 of an empty one.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
