package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/cluster"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/spool"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/relay"
)

// publishFlags select the cluster that a monitor publishes its captures to.
type publishFlags struct {
	cluster.ClusterFlags
	// after is the time that a host has, from the end of its capture, to publish the
	// task.
	after time.Duration
}

func (f *publishFlags) addTo(fl *pflag.FlagSet) {
	f.Register(fl, "also publish captures to this cluster, and drop what hosts released only once it has them: nodes with "+
		"commas between them", "")
	fl.DurationVar(&f.after, "record-after", 10*time.Minute,
		"how long after a capture's end its host may take to publish the task; then the monitor files what it knows "+
			"itself")
}

// capturePublisher publishes a monitor's captures. It reads the spool as a host
// does, at its own pace: a slow cluster never delays a capture.
type capturePublisher struct {
	mon   *monitor.Monitor
	flags publishFlags
	log   *slog.Logger
	busy  sync.Map // captures being published, by id
}

// Periods and limits of the publication.
const (
	lookEvery  = 500 * time.Millisecond // for new captures
	claimEvery = 2 * time.Second        // for their hosts' tasks
	tryAgain   = 5 * time.Second
	tryFor     = 15 * time.Second // before a warning that the cluster does not answer
	oldAtOnce  = 2                // captures that have ended, beside the one that runs
)

// Run publishes until ctx ends; without a cluster it returns at once. Until the cluster
// answers, captures wait in the spool.
func (p *capturePublisher) Run(ctx context.Context) {
	if p.flags.Servers == "" {
		return
	}
	for range backoff.Rounds(ctx.Done(), tryAgain) {
		trying, cancel := context.WithTimeout(ctx, tryFor)
		bus, err := p.flags.Dial(trying, "monitor", p.log)
		cancel()
		if err == nil {
			defer bus.Close()
			p.log.Info("publishing captures", "servers", p.flags.Servers, "partitions", bus.Partitions())
			p.all(ctx, &relay.Publisher{Bus: bus, Program: cli.Version()})
			return
		}
		if ctx.Err() == nil {
			p.log.Warn("captures are not published: they wait in the spool", "error", err)
		}
	}
}

// all starts a goroutine per capture not yet published, and returns when ctx has
// ended and they have. Ended captures take turns, oldAtOnce at a time, so that a
// backlog leaves bandwidth to the running one.
func (p *capturePublisher) all(ctx context.Context, pub *relay.Publisher) {
	old := make(chan struct{}, oldAtOnce)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range backoff.Rounds(ctx.Done(), lookEvery) {
		for _, i := range p.mon.List() {
			c, err := p.mon.Get(i.ID)
			if err != nil || c.Has(spool.MarkReplicated) || i.State == session.Arming {
				continue
			}
			if _, busy := p.busy.LoadOrStore(i.ID, true); busy {
				continue
			}
			turn := old
			if !i.State.Ended() { // a running capture never waits for a turn
				turn = nil
			}
			wg.Go(func() {
				defer p.busy.Delete(i.ID)
				p.one(ctx, pub, c, turn)
			})
		}
	}
}

// one publishes a capture and ensures that a task of it exists in the cluster;
// only then may the spool drop it. Failures are logged, and retried when all meets
// the capture again.
func (p *capturePublisher) one(ctx context.Context, pub *relay.Publisher, c *capture.Capture, turn chan struct{}) {
	s := &captureSending{pub: pub, c: c}
	if turn != nil {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
	err := s.samples(ctx)
	if turn != nil {
		<-turn
	}
	if err == nil && s.to != nil {
		p.log.Info("published a capture", "capture", c.ID(), "chunks", s.chunks)
		if s.chunks > 0 { // an empty capture needs no task
			err = p.claim(ctx, s)
		}
	}
	switch {
	case err == nil && ctx.Err() == nil && s.to != nil:
		err = p.mon.Replicated(c.ID())
	case errors.Is(err, spool.ErrForgotten) && c.Summary().State.Ended():
		p.log.Error("a capture cannot be published: its host stored and released parts of it before publishing began",
			"capture", c.ID(), "error", err)
		err = p.mon.Replicated(c.ID()) // its host alone decides
	}
	if err == nil || ctx.Err() != nil || p.dropped(c) {
		return
	}
	p.log.Warn("could not publish a capture: it stays in the spool, and is tried again", "capture", c.ID(), "error", err)
	cli.SleepUntil(ctx, time.Now().Add(tryAgain))
}

// dropped reports whether the spool no longer has the capture.
func (p *capturePublisher) dropped(c *capture.Capture) bool {
	_, err := p.mon.Get(c.ID())
	return errors.Is(err, capture.ErrUnknown)
}

// claim waits until the host's task of a capture is in the cluster. After
// flags.after it files the capture as a task of its own; the host's replaces it
// when it comes.
func (p *capturePublisher) claim(ctx context.Context, s *captureSending) error {
	for {
		claimed, err := s.to.Claimed(ctx)
		if err != nil || claimed {
			return err
		}
		// The host's time runs from the last scan, by the monitor's clock and also over its restarts.
		if ended := s.c.Started().Add(s.sum.End.Duration()); time.Since(ended) >= p.flags.after {
			break
		}
		if p.dropped(s.c) || !cli.SleepUntil(ctx, time.Now().Add(min(claimEvery, p.flags.after))) {
			return fmt.Errorf("capture %s: %w", s.c.ID(), context.Cause(ctx))
		}
	}
	if filed, err := s.to.Filed(ctx); err != nil || filed {
		return err
	}
	o, err := s.outcome(ctx)
	if err != nil {
		return err
	}
	done, err := s.to.File(ctx, o)
	if err == nil {
		p.log.Warn("no host has published what a capture is of: it was filed as the monitor saw it", "capture",
			s.c.ID(), "holder", s.c.Header().Holder, "key", done.Key)
	}
	return err
}

// captureSending implements capture.Receiver: it forwards to the cluster the
// stream that a host would receive, trimmed to the markers as far as they were
// found. One goroutine uses it.
type captureSending struct {
	pub    *relay.Publisher
	c      *capture.Capture
	ctx    context.Context
	to     *relay.Capture // nil before the stream begins
	chunks uint64
	sum    session.Summary
}

// samples returns when the cluster has all chunks of the capture, which has then ended. As
// long as Published reports that the stream is needed again, it is read and sent from the
// start.
func (s *captureSending) samples(ctx context.Context) error {
	for again := true; again; {
		var cancel context.CancelFunc
		s.ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		s.chunks = 0
		err := s.c.Read(s.ctx, capture.ReadOptions{Follow: true}, s)
		if err == nil {
			again, err = s.to.Published(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Header begins the stream in the cluster, once: a second reading continues it.
func (s *captureSending) Header(h session.Opening) (err error) {
	if s.to != nil {
		return nil
	}
	user, _, _ := strings.Cut(h.Holder, "@")
	s.to, err = s.pub.Capture(s.ctx, relay.CaptureHeader{
		Header: store.Header{
			Bench: h.Bench, BenchGPU: h.GPU, Instrument: h.Instrument, Setup: h.Setup, CalibrationID: h.CalibrationID,
			Started: h.Started,
		}, Task: store.NewTask{
			Name: cmp.Or(h.TaskName, "capture "+h.CaptureID), User: cmp.Or(user, "unknown"), Launched: h.Started,
			CaptureID: h.CaptureID, Marker: h.Marker,
		},
	})
	return err
}

func (s *captureSending) Chunk(h chunk.Chunk, payload []byte) error {
	s.chunks++
	return s.to.Chunk(&h, payload)
}

func (s *captureSending) Event(e measure.Event) error {
	s.to.Event(e)
	return nil
}

// Trailer keeps the summary: markers, window, end and reason.
func (s *captureSending) Trailer(t session.Trailer) error {
	s.sum = t.Summary
	return nil
}

// outcome returns the result as the monitor alone can compute it: the energy
// between the markers. It is always incomplete, without kernels and software
// readings, and Reason lists the causes.
func (s *captureSending) outcome(ctx context.Context) (store.Outcome, error) {
	o := store.Outcome{State: store.Incomplete, Markers: s.sum.Markers}
	why := []string{"filed by its monitor: no host has published what was measured"}
	if s.sum.Reason != "" {
		why = append(why, "the capture ended early: "+s.sum.Reason)
	}
	if s.sum.Window == nil {
		why = append(why, "no window: "+s.sum.NoWindowReason)
	} else if r, err := s.integrate(ctx); err != nil {
		why = append(why, fmt.Sprintf("no result: %v", err))
	} else {
		o.Result = r
		why = append(why, "the window is what lies between the markers, guards included")
	}
	o.Reason = strings.Join(why, "; ")
	return o, ctx.Err()
}

// integrate computes the energy of the window from the spool, with the markers'
// time uncertainties.
func (s *captureSending) integrate(ctx context.Context) (*measure.Result, error) {
	h := s.c.Header()
	g, err := measure.NewIntegrator(&h.Setup, s.sum.Window.From, s.sum.Window.To)
	if err != nil {
		return nil, err
	}
	marker.Inform(g, h.Marker, s.sum.Markers)
	if err := s.c.Read(ctx, capture.ReadOptions{}, &adding{g: g, setup: &h.Setup}); err != nil {
		return nil, err
	}
	var e measure.Edges
	if start, stop := marker.Pair(s.sum.Markers); start != nil && stop != nil {
		e = measure.Edges{UFrom: start.U, UTo: stop.U}
	}
	r, err := g.Result(e)
	return &r, err
}

// adding implements capture.Receiver and integrates the samples of a stream.
type adding struct {
	g     *measure.Integrator
	setup *measure.Setup
	block measure.Block
}

func (*adding) Header(session.Opening) error  { return nil }
func (*adding) Event(measure.Event) error     { return nil }
func (*adding) Trailer(session.Trailer) error { return nil }

// Chunk decodes a chunk and adds its samples; block is reused.
func (a *adding) Chunk(h chunk.Chunk, payload []byte) error {
	err := chunk.ParsePayload(&h, payload)
	if err == nil {
		err = chunk.Decode(&h, a.setup.Timebase, len(a.setup.Channels), &a.block)
	}
	if err != nil {
		return err
	}
	return a.g.Add(&a.block)
}
