package live

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

var errAway = errors.New("nobody answers")

// monitor is a monitor that does what a test tells it. It sends a moment every
// Every of the clock.
type fakeMonitor struct {
	address string

	mu       sync.Mutex
	away     error
	bench    session.Bench
	captures []session.Capture
	trouble  string
	cut      chan struct{} // closed when streams are to break
	tally
}

// tally is what a monitor was asked for.
type tally struct {
	asked   int // calls of GetBench
	streams int // that are open
	most    int // that were open at once
	begun   int
	idle    bool // what the last stream wanted
	sent    int  // moments
}

func (m *fakeMonitor) count() tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tally
}

func newMonitor(address, name string) *fakeMonitor {
	return &fakeMonitor{address: address, bench: session.Bench{Name: name}, cut: make(chan struct{})}
}

func (m *fakeMonitor) Address() string { return m.address }

// set changes what the monitor is.
func (m *fakeMonitor) set(change func(*fakeMonitor)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// leave makes the monitor break its streams and not answer; nil brings it back.
func (m *fakeMonitor) leave(err error) {
	m.set(func(m *fakeMonitor) {
		if m.away = err; err != nil {
			close(m.cut)
			m.cut = make(chan struct{})
		}
	})
}

// hold gives the bench to somebody, or to nobody.
func (m *fakeMonitor) hold(holder, capture string) {
	m.set(func(m *fakeMonitor) {
		m.bench.Holder, m.bench.CaptureID, m.captures = holder, capture, nil
		if capture != "" {
			m.captures = []session.Capture{{ID: capture, Holder: holder, TaskName: "gemm", State: session.Running}}
		}
	})
}

func (m *fakeMonitor) GetBench(ctx context.Context) (session.Bench, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	return m.bench, errors.Join(m.away, ctx.Err())
}

func (m *fakeMonitor) AskBench(ctx context.Context) (session.Bench, error) {
	return m.GetBench(ctx)
}

func (m *fakeMonitor) Captures(ctx context.Context) ([]session.Capture, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.captures, errors.Join(m.away, ctx.Err())
}

func (m *fakeMonitor) Watch(ctx context.Context, o session.WatchOptions, see func(session.Moment) error) error {
	m.mu.Lock()
	if m.away != nil {
		m.mu.Unlock()
		return m.away
	}
	m.streams++
	m.begun++
	m.most, m.idle = max(m.most, m.streams), o.Idle
	cut := m.cut
	m.mu.Unlock()
	defer m.set(func(m *fakeMonitor) { m.streams-- })
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-cut:
			return errAway
		case <-tick.C:
		}
		if n, ok := m.moment(o.Idle); ok {
			if err := see(n); err != nil {
				return err
			}
		}
	}
}

// moment is the next average: the n-th is n watts.
func (m *fakeMonitor) moment(idle bool) (n session.Moment, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bench.CaptureID == "" && !idle {
		return n, false
	}
	if m.trouble != "" {
		return session.Moment{Trouble: m.trouble}, true
	}
	m.sent++
	w := measure.Watt(m.sent)
	return session.Moment{
		CaptureID: m.bench.CaptureID, T: measure.Seconds(m.sent) / 10, Total: w, Rate: 20e3, Scans: uint64(m.sent) * 2000,
		Rails: []session.RailValue{{Rail: "aux", Power: w, Voltage: 12, Current: measure.Ampere(w / 12)}},
	}, true
}

// running starts a relay within a bubble of its own time; it ends with the test.
func running(t *testing.T, cfg Config) *Relay {
	t.Helper()
	r := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// pass lets time pass, and all that it brings about come to its end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// viewer collects what one who watches is told.
type viewer struct {
	mu     sync.Mutex
	news   []News
	cancel context.CancelFunc
	ended  chan error
}

// watch begins to watch. Each news takes so long.
func watch(t *testing.T, r *Relay, name string, o Options, slow time.Duration) *viewer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	v := &viewer{cancel: cancel, ended: make(chan error, 1)}
	go func() {
		v.ended <- r.Watch(ctx, name, o, func(n News) error {
			v.mu.Lock()
			v.news = append(v.news, n)
			v.mu.Unlock()
			time.Sleep(slow)
			return nil
		})
	}()
	t.Cleanup(cancel)
	return v
}

// told is what was told so far.
func (v *viewer) told() []News {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.news)
}

// leave ends the watch and returns all that was told.
func (v *viewer) leave(t *testing.T) []News {
	t.Helper()
	v.cancel()
	if err := <-v.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
	return v.told()
}

// last is the state that was told last.
func last(news []News) (s State) {
	for _, n := range news {
		if n.State != nil {
			s = *n.State
		}
	}
	return s
}

func moments(news []News) (out []Moment) {
	for _, n := range news {
		if n.Moment != nil {
			out = append(out, *n.Moment)
		}
	}
	return out
}

// Nobody watches: nothing is asked. Many watch: the monitor sees one. All leave: after
// a while nothing is asked any more.
func TestViewersShareOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		r := running(t, Config{Monitors: []Monitor{m}})
		pass(time.Minute)
		if m.count().asked != 0 || m.count().begun != 0 {
			t.Errorf("asked %d times and watched %d times for nobody", m.count().asked, m.count().begun)
		}
		var all []*viewer
		for range 20 {
			all = append(all, watch(t, r, "lab:1", Options{Idle: true}, 0))
		}
		pass(10*time.Second + 20*time.Millisecond)
		for i, v := range all {
			news := v.leave(t)
			if n := len(moments(news)); n != 200 {
				t.Errorf("viewer %d was told of %d moments, want 200", i, n)
			}
			if s := last(news); s.Reach != Present || s.Bench.Name != "desk" {
				t.Errorf("viewer %d: %+v", i, s)
			}
		}
		synctest.Wait()
		if m.count().begun != 1 || m.count().most != 1 || m.count().asked > 12 {
			t.Errorf("%d streams, %d at once, %d questions for 20 viewers in 10 s", m.count().begun, m.count().most, m.count().asked)
		}
		if m.count().streams != 1 {
			t.Error("a page that is loaded anew would open the instrument again")
		}
		pass(3 * time.Second)
		asked := m.count().asked
		pass(time.Minute)
		if m.count().streams != 0 || m.count().asked != asked {
			t.Errorf("%d streams, %d questions for nobody", m.count().streams, m.count().asked-asked)
		}
	})
}

// A viewer that takes a second for each news gets the mean of what it missed, holds up
// nobody, and never has more than one news waiting.
func TestSlowViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		m.hold("ada@lab", "c1")
		r := running(t, Config{Monitors: []Monitor{m}})
		slow := watch(t, r, "", Options{}, time.Second)
		quick := watch(t, r, "", Options{}, 0)
		pass(60 * time.Second)
		b := r.benches[0]
		b.mu.Lock()
		for box := range b.viewers {
			box.mu.Lock()
			if len(box.pending) > 1 {
				t.Errorf("%d news wait for a viewer", len(box.pending))
			}
			box.mu.Unlock()
		}
		b.mu.Unlock()
		if n := len(moments(quick.leave(t))); n < 595 {
			t.Errorf("a quick viewer was told of %d moments beside a slow one", n)
		}
		before := len(slow.told())
		got := moments(slow.leave(t))
		if n := len(slow.told()); n > before {
			t.Errorf("a viewer that had left was told of %d news", n-before)
		}
		if len(got) < 50 || len(got) > 65 {
			t.Errorf("a viewer that takes one a second was told of %d moments in a minute", len(got))
		}
		// The n-th average is n watts: the mean of those merged must follow from how many.
		var told int
		for _, x := range got {
			first, end := told+1, told+x.Merged
			if want := measure.Watt(first+end) / 2; x.Total != want || x.Peak != measure.Watt(end) || x.Rails[0].Power != want {
				t.Fatalf("of averages %d to %d: total %v, rail %v, peak %v, want the mean %v", first, end, x.Total, x.Rails[0].Power, x.Peak, want)
			}
			told = end
		}
		if told < 580 {
			t.Errorf("the moments told stand for %d averages", told)
		}
	})
}

// Every says how often a viewer wants moments; states come at once.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		m.hold("ada@lab", "c1")
		r := running(t, Config{Monitors: []Monitor{m}})
		v := watch(t, r, "desk-is-not-known-yet", Options{}, 0)
		if err := <-v.ended; !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "lab:1") {
			t.Errorf("got %v", err)
		}
		v = watch(t, r, "lab:1", Options{Every: 2 * time.Second}, 0)
		pass(10*time.Second + 20*time.Millisecond)
		news := v.leave(t)
		if n := len(moments(news)); n != 5 {
			t.Errorf("%d moments in 10 s, one every 2 s was asked for", n)
		}
	})
}

// A monitor goes away and comes back: viewers are told why, and that it is back, and
// see on.
func TestMonitorAwayAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		r := running(t, Config{Monitors: []Monitor{m}})
		v := watch(t, r, "lab:1", Options{Idle: true}, 0)
		pass(5 * time.Second)
		m.leave(errAway)
		pass(5 * time.Second)
		s := last(v.told())
		if s.Reach != Away || !strings.Contains(s.Why, "nobody answers") || time.Since(s.Since) < 4*time.Second || s.Bench.Name != "desk" {
			t.Errorf("away: %+v", s)
		}
		seen := len(moments(v.told()))
		m.leave(nil)
		pass(3 * time.Second)
		news := v.leave(t)
		if s := last(news); s.Reach != Present || s.Why != "" || s.Unwatched != "" || time.Since(s.Since) > 3*time.Second {
			t.Errorf("back: %+v", s)
		}
		if n := len(moments(news)) - seen; n < 15 {
			t.Errorf("%d moments in 3 s after it came back", n)
		}
	})
}

// Who has the bench is told as soon as samples of a capture come, with the task that it
// is for; and who had it last, once it is over.
func TestHolderAndTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		var calls atomic.Int32
		var begun atomic.Pointer[time.Time]
		taskOf := func(_ context.Context, id string) (store.TaskID, error) {
			calls.Add(1)
			if id != "c1" || time.Since(*begun.Load()) < 2*time.Second { // the host writes it a little later
				return 0, nil
			}
			return 42, nil
		}
		r := running(t, Config{Monitors: []Monitor{m}, TaskOf: taskOf})
		v := watch(t, r, "lab:1", Options{Idle: true}, 0)
		pass(4*time.Second + 450*time.Millisecond)
		now := time.Now()
		begun.Store(&now)
		m.hold("ada@lab", "c1")
		pass(150 * time.Millisecond) // less than a poll
		s := last(v.told())
		if c, ok := s.Holding(); s.Bench.Holder != "ada@lab" || !ok || c.TaskName != "gemm" || c.Task != 0 {
			t.Errorf("taken: %+v", s)
		}
		pass(4 * time.Second)
		s = last(v.told())
		if c, _ := s.Holding(); c.Task != 42 {
			t.Errorf("the task was written: %+v", c)
		}
		m.hold("", "")
		pass(1200 * time.Millisecond)
		before := calls.Load()
		pass(10 * time.Second)
		s = last(v.leave(t))
		if s.Bench.Holder != "" || s.Last.ID != "c1" || s.Last.Task != 42 || s.Last.TaskName != "gemm" || s.Last.State != session.Released {
			t.Errorf("given back: %+v", s)
		}
		if calls.Load() != before {
			t.Error("a task that is known is looked for again")
		}
	})
}

// One capture follows another at once: the first is told as the last.
func TestCapturesInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		r := running(t, Config{Monitors: []Monitor{m}})
		v := watch(t, r, "lab:1", Options{}, 0)
		m.hold("ada@lab", "c1")
		pass(2500 * time.Millisecond)
		m.hold("bob@lab", "c2")
		for range 3 {
			pass(150 * time.Millisecond) // by the moment that came first, and then by polls
			if s := last(v.told()); s.Bench.Holder != "bob@lab" || s.Last.ID != "c1" || s.Last.Holder != "ada@lab" || s.Last.State != session.Released {
				t.Errorf("%+v", s)
			}
			pass(time.Second)
		}
		m.hold("", "")
		pass(2 * time.Second)
		if s := last(v.leave(t)); s.Bench.Holder != "" || s.Last.ID != "c2" {
			t.Errorf("%+v", s)
		}
	})
}

// A capture that begins and ends between two polls is known by its identity, and so is
// its task.
func TestShortCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		r := running(t, Config{Monitors: []Monitor{m}, Poll: 10 * time.Second, TaskOf: func(context.Context, string) (store.TaskID, error) { return 7, nil }})
		v := watch(t, r, "lab:1", Options{Idle: true}, 0)
		pass(5 * time.Second)
		b := r.benches[0]
		b.arrived(session.Moment{CaptureID: "brief", Total: 1})
		pass(11 * time.Second)
		if s := last(v.leave(t)); s.Last.ID != "brief" || s.Last.Task != 7 {
			t.Errorf("%+v", s.Last)
		}
	})
}

// A free bench is sampled while one of its viewers wants that; others see captures.
func TestIdleIsWhatOneWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		r := running(t, Config{Monitors: []Monitor{m}})
		quiet := watch(t, r, "lab:1", Options{}, 0)
		pass(5 * time.Second)
		if m.count().idle || m.count().sent != 0 {
			t.Error("a free bench was sampled though nobody wanted it")
		}
		keen := watch(t, r, "lab:1", Options{Idle: true}, 0)
		pass(5 * time.Second)
		if !m.count().idle || m.count().sent < 40 {
			t.Errorf("idle %v, %d moments", m.count().idle, m.count().sent)
		}
		keen.leave(t)
		pass(time.Second)
		sent := m.count().sent
		pass(10 * time.Second)
		if m.count().idle || m.count().sent != sent {
			t.Errorf("idle %v: a free bench is sampled on for nobody", m.count().idle)
		}
		quiet.leave(t)
		m.set(func(m *fakeMonitor) { m.trouble = "the port is taken" })
		keen = watch(t, r, "lab:1", Options{Idle: true}, 0)
		pass(2 * time.Second)
		if s := last(keen.leave(t)); s.Unwatched != "the port is taken" || s.Reach != Present {
			t.Errorf("%+v", s)
		}
	})
}

// Who comes later sees the last minute, and no more.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		r := running(t, Config{Monitors: []Monitor{m}})
		early := watch(t, r, "", Options{Idle: true}, 0)
		pass(2 * time.Minute)
		late := watch(t, r, "", Options{}, 0)
		pass(time.Second)
		h := late.leave(t)[0].History
		if len(h) < 1190 || len(h) > 1201 || h[0].At.After(h[1].At) || time.Since(h[0].At) > 62*time.Second {
			t.Errorf("%d moments of the last minute", len(h))
		}
		if n := len(early.leave(t)[0].History); n != 0 {
			t.Errorf("%d moments before anything was sampled", n)
		}
	})
}

// All benches at once, one of them away; and by name, unless two have it.
func TestSeveralBenches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newMonitor("lab:1", "desk"), newMonitor("lab:2", "desk"), newMonitor("lab:3", "rack")
		b.leave(errAway)
		r := running(t, Config{Monitors: []Monitor{a, b, c, newMonitor("lab:3", "again")}})
		all := r.States(t.Context())
		if len(all) != 3 || all[0].Reach != Present || all[1].Reach != Away || all[2].Bench.Name != "rack" {
			t.Fatalf("%+v", all)
		}
		for range 50 {
			r.States(t.Context())
		}
		if a.count().asked != 1 {
			t.Errorf("asked %d times within a poll", a.count().asked)
		}
		if b, err := r.find("rack"); err != nil || b.address != "lab:3" {
			t.Errorf("%+v, %v", b, err)
		}
		b.leave(nil)
		pass(2 * time.Second)
		r.States(t.Context())
		if _, err := r.find("desk"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "2 benches") {
			t.Errorf("got %v", err)
		}
		v := watch(t, r, "", Options{Idle: true}, 0)
		pass(3 * time.Second)
		seen := map[string]int{}
		for _, n := range v.leave(t) {
			if n.Moment != nil {
				seen[n.Address]++
			}
		}
		if len(seen) != 3 || seen["lab:2"] < 25 {
			t.Errorf("moments by bench: %v", seen)
		}
	})
}

// The end of Run ends watches, and says why.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMonitor("lab:1", "desk")
		r := New(Config{Monitors: []Monitor{m}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = r.Run(ctx) }()
		v := watch(t, r, "", Options{Idle: true}, 0)
		pass(time.Second)
		cancel()
		if err := <-v.ended; !errors.Is(err, ErrStopped) {
			t.Errorf("got %v", err)
		}
		if m.count().streams != 0 {
			t.Error("a stream outlives the relay")
		}
		full := errors.New("full")
		r = running(t, Config{Monitors: []Monitor{m}})
		if err := r.Watch(t.Context(), "", Options{}, func(News) error { return full }); !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
	})
}

// What is of another capture, or of other rails, is no mean of both.
func TestAbsorbKeepsApart(t *testing.T) {
	rail := func(name string, w measure.Watt) []session.RailValue {
		return []session.RailValue{{Rail: name, Power: w}}
	}
	old := Moment{Moment: session.Moment{CaptureID: "a", T: 1, Total: 10, Rails: rail("x", 10), Min: 9, Max: 21, Wave: []measure.Watt{9, 11}}, Merged: 3, Peak: 20}
	for _, n := range []Moment{
		{Moment: session.Moment{CaptureID: "b", T: 2, Total: 2, Rails: rail("x", 2)}, Merged: 1, Peak: 2},
		{Moment: session.Moment{CaptureID: "a", T: 2, Total: 2, Rails: rail("y", 2)}, Merged: 1, Peak: 2},
		{Moment: session.Moment{CaptureID: "a", T: 0.5, Total: 2, Rails: rail("x", 2)}, Merged: 1, Peak: 2},
	} {
		got := old
		got.absorb(n)
		if got.Total != 2 || got.Merged != 1 || got.Peak != 2 {
			t.Errorf("%+v", got)
		}
	}
	n := Moment{Moment: session.Moment{CaptureID: "a", T: 2, Total: 2, Rails: rail("x", 2), Min: 1, Max: 3, Wave: []measure.Watt{2}}, Merged: 1, Peak: 2}
	got := old
	got.absorb(n)
	if got.Total != 8 || got.Rails[0].Power != 8 || got.Merged != 4 || got.Peak != 20 || n.Rails[0].Power != 2 ||
		got.Min != 1 || got.Max != 21 || !slices.Equal(got.Wave, []measure.Watt{9, 11, 2}) || len(old.Wave) != 2 {
		t.Errorf("%+v, and the newer one is %+v", got, n)
	}
}
