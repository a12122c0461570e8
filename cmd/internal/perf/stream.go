package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
)

// streamRun is one capture, streamed from the generator into the database.
type streamRun struct {
	monitorOptions
	name   string // of its directory and in its progress
	db     string // path
	length time.Duration
	flat   bool // without pyramids
	// each is called every second with the processes' usage.
	each func(at time.Duration, host, monitor monitorNote)

	p             *monitorProcess
	tasks         *clockedStore
	id            string // of the capture
	stored        measurement.Counters
	begun         time.Time   // the generator's first scan
	host, monitor monitorNote // used by the processes: before, then during
	summary       session.Summary
	trailer       session.Trailer
	delivered     int64
}

// streamReport is the result of a streamRun.
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

// clockedStore is the task database; it records when each chunk became durable.
type clockedStore struct {
	*store.DB
	mu      sync.Mutex
	done    []durable
	commits int
}

// durable is a chunk and the time at which its transaction was committed.
type durable struct {
	at    time.Time
	first uint64
	scans int
}

// AppendChunks stores the chunks and records the time of the commit.
func (s *clockedStore) AppendChunks(ctx context.Context, id store.TaskID, chunks []*chunk.Chunk,
	events []measure.Event,
) error {
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

// run makes the capture with the product's own parts: monitor service, client, Transfer and
// store. It blocks for length and the time to drain. The monitor process ends before it
// returns. The bytes per scan follow from the growth of the database: the pyramid's rows by
// their length, the chunks by the rest.
func (r *streamRun) run(ctx context.Context, stderr io.Writer) (out *streamReport, err error) {
	if r.p, err = startBenchMonitor(ctx, r.monitorOptions, stderr); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.p.stop()) }()
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
	if r.profile != "" {
		stop, err := startProfile(r.profile + ".host")
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	r.tasks, r.host = &clockedStore{DB: db}, processUsage()
	if r.monitor, err = r.p.ask("usage"); err != nil {
		return nil, err
	}
	if err := r.capture(ctx); err != nil {
		return nil, err
	}
	out = r.report()
	full, err := sizeOf(ctx, db)
	if err != nil {
		return nil, err
	}
	pyramid := full.pyramid - empty.pyramid
	out.BytesPerScan = (full.all - empty.all - pyramid) / float64(out.Stored)
	out.PyramidBytes = pyramid / float64(out.Stored)
	return out, r.p.client.Release(ctx, r.id)
}

// sizeOf returns the bytes of the database and of the pyramids in it.
func sizeOf(ctx context.Context, db *store.DB) (n struct{ all, pyramid float64 }, err error) {
	if err = db.SQL().QueryRowContext(ctx, databaseSize).Scan(&n.all); err != nil {
		return n, err
	}
	return n, db.SQL().QueryRowContext(ctx, `SELECT coalesce(sum(length(data)),0) FROM pyramid`).Scan(&n.pyramid)
}

// capture starts a capture, streams it, stops it, and returns when all is stored. Four
// goroutines: the lease, the generator's permission, the stop, and the reader, whose end
// cancels the first two. It fails for a capture that is incomplete or has no window.
func (r *streamRun) capture(ctx context.Context) error {
	id, spec, err := r.p.begin(ctx)
	if err != nil {
		return err
	}
	r.id = id
	task, err := r.tasks.BeginTask(ctx, store.NewTask{
		Name: "bench", User: "bench", Launched: time.Now(), Monitor: r.p.client.Address(), CaptureID: id, Marker: spec,
	})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	side, cancel := context.WithCancel(gctx)
	defer cancel()
	g.Go(func() error { return r.p.client.KeepLease(side, id, 0) })
	g.Go(func() error { return r.feed(side) })
	g.Go(func() error { return r.stopAfter(gctx) })
	g.Go(func() (err error) {
		defer cancel() // lease and feed end here
		r.trailer, err = measurement.Transfer(gctx, r.tasks, r.p.client, task,
			monitorclient.ReadOptions{CaptureID: id, Follow: true}, &r.stored)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	host := processUsage()
	monitor, err := r.p.ask("usage")
	if err != nil {
		return err
	}
	r.host.CPUS, r.monitor.CPUS, r.delivered = host.CPUS-r.host.CPUS, monitor.CPUS-r.monitor.CPUS, monitor.Scans
	switch {
	case len(r.tasks.done) == 0:
		return errors.New("no chunk was stored")
	case r.summary.State != session.Complete:
		return fmt.Errorf("the capture ended incomplete: %s", r.summary.Reason)
	case r.summary.Window == nil:
		return fmt.Errorf("the capture has no window: %s", r.summary.NoWindowReason)
	}
	return nil
}

// feed raises the generator's permission as the database follows. Paced runs need none.
func (r *streamRun) feed(ctx context.Context) error {
	if r.paced {
		return nil
	}
	// A bounded lead over the database stays in the page cache, as in a steady state, and the slowest stage sets the
	// pace of all.
	const backlog = 32 << 20 // scans
	for range backoff.Every(ctx.Done(), 5*time.Millisecond) {
		allow := fmt.Sprintf("allow %d", r.stored.Scans.Load()+backlog)
		if err := r.p.send(allow); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// stopAfter plays the stop marker after the run's length, as a host does, and stops the
// capture.
func (r *streamRun) stopAfter(ctx context.Context) error {
	note, err := r.p.ask("usage")
	if err != nil {
		return err
	}
	r.begun = time.Unix(0, note.BegunNS)
	for next := r.begun; time.Since(r.begun) < r.length; {
		next = next.Add(min(time.Second, r.length))
		if !cli.SleepUntil(ctx, next) {
			return fmt.Errorf("the stream ended before its time: %w", context.Cause(ctx))
		}
		if note, err = r.p.ask("usage"); err != nil {
			return err
		}
		r.each(time.Since(r.begun), processUsage(), note)
	}
	if _, err := r.p.ask("stop"); err != nil {
		return err
	}
	// A host waits until the marker must have been seen; without a pace there is
	// nothing to wait for.
	if r.paced && !cli.SleepUntil(ctx, time.Now().Add(generatorLead)) {
		return context.Cause(ctx)
	}
	r.summary, err = r.p.client.Stop(ctx, r.id)
	return err
}

// report computes rates over the time from the first scan to the last commit.
func (r *streamRun) report() *streamReport {
	done := r.tasks.done
	took, scans := done[len(done)-1].at.Sub(r.begun).Seconds(), float64(r.trailer.Scans)
	out := &streamReport{
		Paced: r.paced, Transport: r.transport, Commits: r.tasks.commits, Scans: r.summary.Scans, Stored: r.trailer.Scans,
		Missing: r.delivered - int64(r.summary.Scans), Gaps: r.summary.Gaps,
		DurationS: took, ScansPerS: scans / took, RawBytesPerS: 12 * scans / took, HostCPUS: r.host.CPUS,
		HostCores: r.host.CPUS / took, MonitorCPUS: r.monitor.CPUS, MonitorCores: r.monitor.CPUS / took,
	}
	if r.paced {
		out.RateHz = r.rate
		l := latencies(done, r.begun, r.rate)
		out.LatencyP50S, out.LatencyP99S, out.LatencyMaxS = quantile(l, 0.5), quantile(l, 0.99), quantile(l, 1)
	}
	return out
}

// complete returns the goal that no scan is missing and no gap was recorded.
func (r *streamReport) complete(name string) goal {
	lost := float64(r.Missing) + float64(r.Gaps)
	return goal{name + ", samples missing or gaps", "0", lost, lost == 0, fmt.Sprint(lost)}
}

// latencies returns the times in s from scan to commit, sorted. Scans are sampled evenly
// over each chunk, one of 1024, since all scans of a chunk become durable together.
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

// quantile returns the q-quantile of a list, which it sorts, by nearest rank; 0 of an empty one.
func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[max(0, int(math.Ceil(q*float64(len(list))))-1)]
}
