package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
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
	RawBytesPerS float64 `json:"raw_bytes_per_s"` // 12 bytes a scan
	BytesPerScan float64 `json:"database_bytes_per_scan"`
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
	out.BytesPerScan = (full - empty) / float64(out.Stored)
	return out, p.client.Release(ctx, st.id)
}

func sizeOf(ctx context.Context, db *store.DB) (bytes float64, err error) {
	err = db.SQL().QueryRowContext(ctx, databaseSize).Scan(&bytes)
	return bytes, err
}

// stream is a streamRun under way.
type stream struct {
	run *streamRun
	p   *monitorProcess
	db  *clockedStore
	id  string // of the capture
	n   measurement.Counters

	begun         time.Time   // the generator's first scan
	host, monitor monitorNote // used by the processes: before, then during
	summary       monitorclient.Summary
	trailer       monitorclient.Trailer
	delivered     int64
}

// capture takes the bench, streams, stops, and waits until all is stored.
func (s *stream) capture(ctx context.Context) error {
	bench, err := s.p.client.GetBench(ctx)
	if err != nil {
		return err
	}
	spec := marker.ProfileFor(bench.Setup, s.run.monitor.tag)
	_, holder := whoami()
	started, err := s.p.client.Start(ctx, monitorclient.StartRequest{Holder: holder, TaskName: "bench", Marker: spec})
	if err != nil {
		return err
	}
	s.id = started.CaptureID
	task, err := s.db.BeginTask(ctx, store.NewTask{
		Name: "bench", User: "bench", Launched: time.Now(), Monitor: s.p.client.Address(), CaptureID: s.id, Marker: spec,
	})
	if err != nil {
		return err
	}
	if err := s.transfer(ctx, task); err != nil {
		return err
	}
	return s.conclude()
}

// transfer streams until the capture was stopped and all of it is stored.
func (s *stream) transfer(ctx context.Context, task store.TaskID) error {
	g, gctx := errgroup.WithContext(ctx)
	side, cancel := context.WithCancel(gctx)
	defer cancel()
	g.Go(func() error { return s.p.client.KeepLease(side, s.id, 0) })
	g.Go(func() error { return s.feed(side) })
	g.Go(func() error { return s.stopAfter(gctx) })
	g.Go(func() (err error) {
		defer cancel() // the lease and the feed are no longer needed
		s.trailer, err = measurement.Transfer(gctx, s.db, s.p.client, task, monitorclient.ReadOptions{CaptureID: s.id, Follow: true}, &s.n)
		return err
	})
	return g.Wait()
}

// feed lets the generator go on as the database follows.
func (s *stream) feed(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !s.run.monitor.paced {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.p.allow(s.n.Scans.Load() + backlogScans); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

// stopAfter plays the stop marker after the run's length, as a host does, and
// stops the capture.
func (s *stream) stopAfter(ctx context.Context) error {
	note, err := s.p.ask("usage")
	if err != nil {
		return err
	}
	s.begun = time.Unix(0, note.BegunNS)
	for next := s.begun; time.Since(s.begun) < s.run.length; {
		next = next.Add(min(time.Second, s.run.length))
		if !sleepUntil(ctx, next) {
			return fmt.Errorf("the stream ended before its time: %w", context.Cause(ctx))
		}
		if s.run.each == nil {
			continue
		}
		if note, err = s.p.ask("usage"); err != nil {
			return err
		}
		s.run.each(time.Since(s.begun), processUsage(), note)
	}
	if _, err := s.p.ask("stop"); err != nil {
		return err
	}
	// A host waits until the marker must have been seen; without a pace there is
	// nothing to wait for.
	if s.run.monitor.paced && !sleepUntil(ctx, time.Now().Add(generatorLead)) {
		return context.Cause(ctx)
	}
	s.summary, err = s.p.client.Stop(ctx, s.id)
	return err
}

func (s *stream) conclude() error {
	host := processUsage()
	monitor, err := s.p.ask("usage")
	if err != nil {
		return err
	}
	s.host.UserS, s.host.SystemS = host.UserS-s.host.UserS, host.SystemS-s.host.SystemS
	s.monitor.UserS, s.monitor.SystemS = monitor.UserS-s.monitor.UserS, monitor.SystemS-s.monitor.SystemS
	s.delivered = monitor.Scans
	switch {
	case len(s.db.done) == 0:
		return errors.New("no chunk was stored")
	case s.summary.State != monitorclient.Complete:
		return fmt.Errorf("the capture ended incomplete: %s", s.summary.Reason)
	case s.summary.Window == nil:
		return fmt.Errorf("the capture has no window: %s", s.summary.NoWindowReason)
	}
	return nil
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

// quantile of a sorted list; 0 of an empty one.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
