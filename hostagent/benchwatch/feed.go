package benchwatch

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/hostagent/monitorclient"
	"wattmark/store"
)

// run feeds the viewers while there are any, until ctx ends. Another wish begins
// another stream; the last viewer's is ended after a while.
func (b *bench) run(ctx context.Context) {
	var stop func()
	is := nothing
	end := func() {
		if stop != nil {
			stop()
		}
		stop, is = nil, nothing
	}
	defer end()
	var linger <-chan time.Time
	for {
		switch w := b.wanted(); {
		case w == is:
			linger = nil
		case w == nothing:
			if linger == nil {
				linger = time.After(b.cfg.Linger)
			}
		default:
			end()
			stop, is, linger = b.feed(ctx, w), w, nil
		}
		select {
		case <-ctx.Done():
			return
		case <-b.changed:
		case <-linger:
			linger = nil
			if b.wanted() == nothing {
				end()
			}
		}
	}
}

// feed asks and watches the monitor until stop is called, which waits for its end.
func (b *bench) feed(ctx context.Context, w want) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var g errgroup.Group
	b.setFed(true)
	for _, f := range []func(){func() { b.pollAgain(ctx) }, func() { b.watchAgain(ctx, w == idle) }} {
		g.Go(func() error {
			f()
			return nil
		})
	}
	return func() {
		cancel()
		_ = g.Wait() // neither returns an error
		b.setFed(false)
		b.update(func(s *State) { s.Unwatched = "" })
	}
}

func (b *bench) setFed(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fed = on
}

// pollAgain asks the monitor now and then, and at once where ask says so.
func (b *bench) pollAgain(ctx context.Context) {
	tick := time.NewTicker(b.cfg.Poll)
	defer tick.Stop()
	for {
		b.asking.Lock()
		b.poll(ctx, b.monitor.GetBench)
		b.asking.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.ask:
		}
	}
}

// poll asks the monitor what it is and holds. asking is held.
func (b *bench) poll(ctx context.Context, about func(context.Context) (monitorclient.Bench, error)) {
	bench, err := about(ctx)
	var held []monitorclient.Capture
	if err == nil {
		held, err = b.monitor.Captures(ctx)
	}
	if ctx.Err() != nil {
		return // who asked went away: that says nothing of the monitor
	}
	now := time.Now()
	if err != nil {
		b.answered(now)
		b.update(func(s *State) {
			if s.Reach != Away {
				s.Reach, s.Since = Away, now
			}
			s.Why = err.Error()
		})
		return
	}
	list, last := b.withTasks(ctx, bench.CaptureID, held)
	b.answered(now)
	b.update(func(s *State) {
		if s.Reach != Present {
			s.Reach, s.Since = Present, now
		}
		if c, ok := s.capture(last.ID); ok && last.Holder == "" {
			last.Capture = c.Capture // it was released meanwhile
			last.State = monitorclient.Released
		}
		s.Why, s.Bench, s.Captures, s.Last = "", bench, list, last
	})
}

// answered notes when the monitor was asked.
func (b *bench) answered(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = now
}

// withTasks adds the tasks that captures are for, and finds the newest one that no
// longer holds the bench.
func (b *bench) withTasks(ctx context.Context, holding string, held []monitorclient.Capture) (list []Capture, last Capture) {
	b.mu.Lock()
	known, id := b.tasks, b.last
	if holding != "" {
		b.last = holding
	}
	b.mu.Unlock()
	found := map[string]store.TaskID{}
	taskOf := func(id string) store.TaskID {
		t, ok := found[id]
		if !ok {
			// What the database cannot say now it may say next time.
			if t = known[id]; t == 0 && b.cfg.TaskOf != nil {
				t, _ = b.cfg.TaskOf(ctx, id)
			}
			found[id] = t
		}
		return t
	}
	for _, c := range held {
		list = append(list, Capture{c, taskOf(c.ID)})
	}
	before := b.state()
	switch held := before.Bench.CaptureID; {
	case id != "" && id != holding:
		last.ID = id
	case held != "" && held != holding: // the next one's samples came before this
		last.ID = held
	default:
		last = before.Last
	}
	for _, c := range list {
		if c.ID == last.ID {
			last = c
		}
	}
	if last.ID != "" {
		last.Task = taskOf(last.ID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks = found
	return list, last
}

// watchAgain watches the rails, and begins again where that breaks.
func (b *bench) watchAgain(ctx context.Context, alsoIdle bool) {
	tick := time.NewTicker(b.cfg.Poll)
	defer tick.Stop()
	for {
		err := b.monitor.Watch(ctx, monitorclient.WatchOptions{Every: b.cfg.Every, Idle: alsoIdle}, func(m monitorclient.Moment) error {
			b.arrived(m)
			return ctx.Err()
		})
		if err != nil && ctx.Err() == nil {
			b.update(func(s *State) { s.Unwatched = err.Error() })
			nudge(b.ask)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// arrived takes a moment of the monitor's.
func (b *bench) arrived(m monitorclient.Moment) {
	if m.Trouble != "" {
		b.update(func(s *State) { s.Unwatched = m.Trouble })
		return
	}
	b.mu.Lock()
	news := b.now.Reach != Present || b.seen != m.CaptureID
	clear := b.now.Unwatched != ""
	b.seen = m.CaptureID
	if m.CaptureID != "" {
		b.last = m.CaptureID
	}
	b.mu.Unlock()
	if clear {
		b.update(func(s *State) { s.Unwatched = "" })
	}
	if news { // somebody took the bench, or gave it back: who?
		nudge(b.ask)
	}
	m.Rails = slices.Clip(m.Rails)
	b.saw(Moment{Moment: m, At: time.Now(), Peak: m.Total, Merged: 1})
}
