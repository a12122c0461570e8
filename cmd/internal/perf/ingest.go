package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/api/auth/pki"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/service"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
)

// backlogScans bounds the generator's lead over the database when it is not paced. The
// backlog then stays in the page cache, as in a steady state, and the slowest stage sets
// the pace of all.
const backlogScans = 32 << 20

// streamRun is one capture, streamed from the generator into the database.
type streamRun struct {
	dir, db string
	monitor monitorOptions
	length  time.Duration
	flat    bool // without pyramids
	// each, if set, is called every second with the processes' usage.
	each func(at time.Duration, host, monitor monitorNote)
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
// returns.
func (r *streamRun) run(ctx context.Context, s cli.Streams) (*streamReport, error) {
	p, err := startBenchMonitor(ctx, r.dir, r.monitor, s.Err)
	if err != nil {
		return nil, err
	}
	out, err := r.with(ctx, p)
	return out, errors.Join(err, p.stop())
}

// with opens the database, captures, and computes the bytes per scan from the growth of the
// file: the pyramid's rows by their length, the chunks by the rest.
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

// sizes are bytes of the database and of the pyramids in it.
type sizes struct{ all, pyramid float64 }

func sizeOf(ctx context.Context, db *store.DB) (n sizes, err error) {
	if err = db.SQL().QueryRowContext(ctx, databaseSize).Scan(&n.all); err != nil {
		return n, err
	}
	return n, db.SQL().QueryRowContext(ctx, `SELECT coalesce(sum(length(data)),0) FROM pyramid`).Scan(&n.pyramid)
}

// report computes rates over the time from the first scan to the last commit.
func (s *stream) report() *streamReport {
	last := s.db.done[len(s.db.done)-1].at
	took := last.Sub(s.begun).Seconds()
	r := &streamReport{
		Paced: s.run.monitor.paced, Transport: s.run.monitor.transport, Commits: s.db.commits,
		Scans: s.summary.Scans, Stored: s.trailer.Scans, Missing: s.delivered - int64(s.summary.Scans),
		Gaps:      s.summary.Gaps,
		DurationS: took, ScansPerS: float64(s.trailer.Scans) / took, RawBytesPerS: 12 * float64(s.trailer.Scans) / took,
		HostCPUS: s.host.cpu(), HostCores: s.host.cpu() / took, MonitorCPUS: s.monitor.cpu(),
		MonitorCores: s.monitor.cpu() / took,
	}
	if r.Paced {
		r.RateHz = s.run.monitor.rate
		l := latencies(s.db.done, s.begun, s.run.monitor.rate)
		r.LatencyP50S, r.LatencyP99S, r.LatencyMaxS = quantile(l, 0.5), quantile(l, 0.99), quantile(l, 1)
	}
	return r
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

// quantile returns the q-quantile of a sorted list by nearest rank; 0 of an empty one.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// stream is a streamRun in progress.
type stream struct {
	run *streamRun
	p   *monitorProcess
	db  *clockedStore
	id  string // of the capture
	n   measurement.Counters

	begun         time.Time   // the generator's first scan
	host, monitor monitorNote // used by the processes: before, then during
	summary       session.Summary
	trailer       session.Trailer
	delivered     int64
}

// capture starts a capture, streams it, stops it, and returns when all is stored.
func (s *stream) capture(ctx context.Context) error {
	bench, err := s.p.client.GetBench(ctx)
	if err != nil {
		return err
	}
	spec := marker.ProfileFor(bench.Setup, s.run.monitor.tag)
	_, holder := cli.Whoami()
	started, err := s.p.client.Start(ctx, session.Request{Holder: holder, TaskName: "bench", Marker: spec})
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

// transfer streams until the capture has been stopped and is stored. Four goroutines: the
// lease, the generator's permission, the stop, and the reader, whose end cancels the first
// two.
func (s *stream) transfer(ctx context.Context, task store.TaskID) error {
	g, gctx := errgroup.WithContext(ctx)
	side, cancel := context.WithCancel(gctx)
	defer cancel()
	g.Go(func() error { return s.p.client.KeepLease(side, s.id, 0) })
	g.Go(func() error { return s.feed(side) })
	g.Go(func() error { return s.stopAfter(gctx) })
	g.Go(func() (err error) {
		defer cancel() // lease and feed end here
		s.trailer, err = measurement.Transfer(gctx, s.db, s.p.client, task,
			monitorclient.ReadOptions{CaptureID: s.id, Follow: true}, &s.n)
		return err
	})
	return g.Wait()
}

// feed raises the generator's permission as the database follows. Paced runs need none.
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

// stopAfter plays the stop marker after the run's length, as a host does, and stops the
// capture.
func (s *stream) stopAfter(ctx context.Context) error {
	note, err := s.p.ask("usage")
	if err != nil {
		return err
	}
	s.begun = time.Unix(0, note.BegunNS)
	for next := s.begun; time.Since(s.begun) < s.run.length; {
		next = next.Add(min(time.Second, s.run.length))
		if !cli.SleepUntil(ctx, next) {
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
	if s.run.monitor.paced && !cli.SleepUntil(ctx, time.Now().Add(generatorLead)) {
		return context.Cause(ctx)
	}
	s.summary, err = s.p.client.Stop(ctx, s.id)
	return err
}

// conclude computes the usage of both processes over the run and fails for a capture that
// is incomplete or has no window.
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
	case s.summary.State != session.Complete:
		return fmt.Errorf("the capture ended incomplete: %s", s.summary.Reason)
	case s.summary.Window == nil:
		return fmt.Errorf("the capture has no window: %s", s.summary.NoWindowReason)
	}
	return nil
}

// monitorProcess is the parent's handle of the benchmark's monitor, a process of its own.
// Its methods are safe for concurrent use.
type monitorProcess struct {
	client *monitorclient.Client
	cmd    *exec.Cmd

	// asking is held from a command to its answer; commands without an answer may be sent
	// meanwhile. writing is held for one line.
	asking  sync.Mutex
	writing sync.Mutex
	in      io.WriteCloser
	out     *json.Decoder
}

// monitorOptions configure the monitor process; rate is in scans/s.
type monitorOptions struct {
	transport string // unix, tcp or tls
	rate      float64
	paced     bool
	tag       uint32
	profile   string
}

// startBenchMonitor starts this program again as a monitor with a generator, and connects
// to it. Spool and socket are in dir. The caller must call stop.
func startBenchMonitor(ctx context.Context, dir string, o monitorOptions, stderr io.Writer) (*monitorProcess, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the monitor process: %w", err)
	}
	listen := "unix:" + filepath.Join(dir, "m.sock")
	if o.transport != "unix" {
		listen = "tcp:127.0.0.1:0"
	}
	args := []string{
		"bench", "monitor", "--listen", listen, "--spool", filepath.Join(dir, "spool"),
		"--rate", strconv.FormatFloat(o.rate, 'g', -1, 64), "--tag", strconv.FormatUint(uint64(o.tag), 10),
	}
	var known auth.Client
	if o.transport == overTLS {
		if known, err = benchLab(filepath.Join(dir, "auth")); err != nil {
			return nil, err
		}
		args = append(args, "--auth", filepath.Join(dir, "auth"))
	}
	if o.paced {
		args = append(args, "--paced")
	}
	if o.profile != "" {
		args = append(args, "--profile", o.profile+".monitor")
	}
	p := &monitorProcess{cmd: exec.CommandContext(ctx, exe, args...)}
	p.cmd.Stderr = stderr
	p.cmd.WaitDelay = 5 * time.Second
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the monitor process: %w", err)
	}
	if err := p.connect(known); err != nil {
		return nil, errors.Join(fmt.Errorf("start the monitor process: %w", err), p.stop())
	}
	return p, nil
}

// connect reads the monitor's first line, its address, and dials it.
func (p *monitorProcess) connect(known auth.Client) error {
	var n monitorNote
	if err := p.out.Decode(&n); err != nil {
		return err
	}
	o, err := known.DialOptions(n.Address)
	if err == nil {
		p.client, err = monitorclient.Dial(n.Address, monitorclient.Options{Version: cli.Version(), Dial: o})
	}
	return err
}

// stop closes the process's input, which ends it, and waits for its exit.
func (p *monitorProcess) stop() error {
	var errs []error
	if p.client != nil {
		errs = append(errs, p.client.Close())
	}
	p.in.Close() // its end is the signal
	if err := p.cmd.Wait(); err != nil {
		errs = append(errs, fmt.Errorf("monitor process: %w", err))
	}
	return errors.Join(errs...)
}

// ask sends a command and returns the answer. It blocks while another command is answered.
func (p *monitorProcess) ask(verb string) (monitorNote, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	var n monitorNote
	err := p.send(verb)
	if err == nil {
		err = p.out.Decode(&n)
	}
	if err != nil {
		return n, fmt.Errorf("monitor process: %s: %w", verb, err)
	}
	return n, nil
}

// allow lets the generator deliver so many scans in all. It does not wait for an answer.
func (p *monitorProcess) allow(scans uint64) error {
	return p.send("allow " + strconv.FormatUint(scans, 10))
}

func (p *monitorProcess) send(line string) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := fmt.Fprintln(p.in, line)
	return err
}

// benchLab creates a CA, a server certificate and a token in dir, for the TLS transport,
// and returns the client's part of them.
func benchLab(dir string) (auth.Client, error) {
	now := time.Now()
	ca, err := pki.NewCA(dir, now)
	if err != nil {
		return auth.Client{}, err
	}
	p, err := ca.Server([]string{"localhost"}, now, time.Hour)
	if err != nil {
		return auth.Client{}, err
	}
	f := service.AuthFlags{Dir: dir, Life: service.Days(time.Hour)}
	text, tokenErr := f.AddToken("bench", auth.Measurer, now, "")
	return auth.Client{CA: filepath.Join(dir, pki.CACert), Token: text}, errors.Join(tokenErr,
		auth.WriteNew(filepath.Join(dir, pki.ServerKey), p.Key, 0o600),
		auth.WriteNew(filepath.Join(dir, pki.ServerCert), p.Cert, 0o644))
}

// overTLS is the transport with TLS and a token.
const overTLS = "tls"
