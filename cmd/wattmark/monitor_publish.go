package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"wattmark/monitor"
	"wattmark/monitor/capture"
	"wattmark/store/relay"
)

// publishFlags say which cluster a monitor publishes its captures to.
type publishFlags struct {
	clusterFlags
	// after is how long after a capture's end its host may take to publish the task.
	after time.Duration
}

func (f *publishFlags) addTo(fl *pflag.FlagSet) {
	f.register(fl, "cluster", "also publish captures to this cluster, and drop what hosts released only once it has them: nodes with commas between them", "")
	fl.DurationVar(&f.after, "record-after", 10*time.Minute, "how long after a capture's end its host may take to publish the task; then the monitor files what it knows itself")
}

// capturePublisher publishes a monitor's captures. It reads the spool as a host does, at
// its own pace: what is captured waits for nobody.
type capturePublisher struct {
	mon   *monitor.Monitor
	flags publishFlags
	log   *slog.Logger

	mu   sync.Mutex
	busy map[string]bool // captures, by their names
}

const (
	lookEvery  = 500 * time.Millisecond // for new captures
	claimEvery = 2 * time.Second        // for their hosts' tasks
	tryAgain   = 5 * time.Second
	tryFor     = 15 * time.Second // before it is said that the cluster does not answer
	oldAtOnce  = 2                // captures that have ended, beside the one that runs
)

// Run publishes until the context ends. Without a cluster it does nothing.
func (p *capturePublisher) Run(ctx context.Context) {
	if p.flags.servers == "" {
		return
	}
	p.busy = map[string]bool{}
	bus := p.connect(ctx)
	if bus == nil {
		return
	}
	defer bus.Close()
	p.log.Info("publishing captures", "servers", p.flags.servers, "partitions", bus.Partitions())
	p.all(ctx, &relay.Publisher{Bus: bus, Program: version()})
}

// connect tries until the cluster is there; nil where the context has ended.
func (p *capturePublisher) connect(ctx context.Context) *relay.Bus {
	for {
		trying, cancel := context.WithTimeout(ctx, tryFor)
		bus, err := p.flags.dial(trying, "monitor", p.log)
		cancel()
		if err == nil {
			return bus
		}
		if ctx.Err() == nil {
			p.log.Warn("captures are not published: they wait in the spool", "error", err)
		}
		if !sleepUntil(ctx, time.Now().Add(tryAgain)) {
			return nil
		}
	}
}

// all publishes each capture on a goroutine of its own.
func (p *capturePublisher) all(ctx context.Context, pub *relay.Publisher) {
	old := make(chan struct{}, oldAtOnce)
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		for _, i := range p.mon.Captures() {
			c, err := p.mon.Capture(i.CaptureID)
			if err != nil || c.HasBeenReplicated() || i.State == capture.Arming || !p.take(i.CaptureID) {
				continue
			}
			turn := old
			if !i.State.Ended() {
				turn = nil
			}
			wg.Go(func() {
				defer p.done(i.CaptureID)
				p.one(ctx, pub, c, turn)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *capturePublisher) take(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[id] {
		return false
	}
	p.busy[id] = true
	return true
}

func (p *capturePublisher) done(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, id)
}

// one publishes a capture, and sees to it that a task of it is there too; an old one waits
// for its turn. What goes wrong is tried again when the capture is met next.
func (p *capturePublisher) one(ctx context.Context, pub *relay.Publisher, c *capture.Capture, turn chan struct{}) {
	s := &captureSending{pub: pub, c: c}
	err := func() error {
		if turn != nil {
			select {
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				return nil
			}
		}
		return s.samples(ctx)
	}()
	if err == nil && s.to != nil {
		p.log.Info("published a capture", "capture", c.ID(), "chunks", s.chunks)
		if s.chunks > 0 { // of nothing there is nothing to say
			err = p.claim(ctx, s)
		}
	}
	if err == nil && ctx.Err() == nil && s.to != nil {
		err = p.mon.Replicated(c.ID())
	}
	if err == nil || ctx.Err() != nil || p.dropped(c) {
		return
	}
	p.log.Warn("could not publish a capture: it stays in the spool, and is tried again", "capture", c.ID(), "error", err)
	sleepUntil(ctx, time.Now().Add(tryAgain))
}

// dropped reports whether nobody wants a capture any more.
func (p *capturePublisher) dropped(c *capture.Capture) bool {
	_, err := p.mon.Capture(c.ID())
	return errors.Is(err, capture.ErrUnknown)
}

// claim waits until the host's task of a capture is in the cluster. Where that takes too
// long, the capture is filed as a task of its own; the host's takes its place when it comes.
func (p *capturePublisher) claim(ctx context.Context, s *captureSending) error {
	for {
		claimed, err := s.to.Claimed(ctx)
		if err != nil || claimed {
			return err
		}
		if time.Since(s.ended()) >= p.flags.after {
			break
		}
		if p.dropped(s.c) || !sleepUntil(ctx, time.Now().Add(min(claimEvery, p.flags.after))) {
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
		p.log.Warn("no host has published what a capture is of: it was filed as the monitor saw it", "capture", s.c.ID(), "holder", s.c.Header().Holder, "key", done.Key)
	}
	return err
}
