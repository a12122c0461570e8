package live

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// demand is the sampling that the viewers of a bench want together.
type demand uint8

const (
	none     demand = iota // no viewers
	captures               // while captures run
	idle                   // of a free bench, too
)

// bench is one monitor and its viewers.
type bench struct {
	cfg     *Config
	monitor Monitor
	address string
	changed chan struct{} // buffered by one: viewers came or went
	ask     chan struct{} // buffered by one: poll at once

	fed atomic.Bool // polled without being asked, see feed

	asking sync.Mutex              // held during a poll
	asked  time.Time               // end of the last poll
	tasks  map[string]store.TaskID // of the captures in now

	mu      sync.Mutex
	now     State
	viewers map[*mailbox]bool // true for those that want a free bench sampled
	history []Moment          // of Config.Keep, oldest first
	last    string            // id of the newest capture that was seen
	seen    string            // capture of the last moment
}

// join adds a viewer, and sends it the state and the history.
func (b *bench) join(m *mailbox, alsoIdle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.viewers[m] = alsoIdle
	s := b.now
	b.expire(time.Now())
	m.put(News{Address: b.address, State: &s, History: append([]Moment{}, b.history...)})
	backoff.Nudge(b.changed)
}

// leave removes a viewer. The stream may linger, see run.
func (b *bench) leave(m *mailbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.viewers, m)
	backoff.Nudge(b.changed)
}

// demand returns the largest demand among the viewers.
func (b *bench) demand() (d demand) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, alsoIdle := range b.viewers {
		if d = max(d, captures); alsoIdle {
			d = idle
		}
	}
	return d
}

// state returns the state as known.
func (b *bench) state() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// stateNow returns the state, after a poll where the last one is older than Config.Poll.
func (b *bench) stateNow(ctx context.Context) State {
	if s := b.state(); b.fed.Load() && s.Reach != Unasked {
		return s
	}
	b.asking.Lock()
	defer b.asking.Unlock()
	if b.asked.IsZero() || time.Since(b.asked) >= b.cfg.Poll {
		b.poll(ctx, b.monitor.AskBench)
	}
	return b.state()
}

// update changes the state, and sends it to all viewers where that is news.
func (b *bench) update(change func(*State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.now
	change(&next)
	if reflect.DeepEqual(next, b.now) {
		return
	}
	b.now = next
	for m := range b.viewers {
		m.put(News{Address: b.address, State: new(next)})
	}
}

// expire drops moments that are older than Config.Keep. The lock is held.
func (b *bench) expire(now time.Time) {
	young := slices.IndexFunc(b.history, func(m Moment) bool { return now.Sub(m.At) <= b.cfg.Keep })
	if young < 0 {
		young = len(b.history)
	}
	b.history = slices.Delete(b.history, 0, young)
}

// run feeds the viewers while there are any, until ctx ends. Another demand begins another
// stream; a stream ends Config.Linger after its last viewer.
func (b *bench) run(ctx context.Context) {
	var stop func()
	fed := none
	end := func() {
		if stop != nil {
			stop()
		}
		stop, fed = nil, none
	}
	defer end()
	var linger <-chan time.Time
	for {
		switch d := b.demand(); {
		case d == fed:
			linger = nil
		case d == none:
			if linger == nil {
				linger = time.After(b.cfg.Linger)
			}
		default:
			end()
			stop, fed, linger = b.feed(ctx, d), d, nil
		}
		select {
		case <-ctx.Done():
			return
		case <-b.changed:
		case <-linger:
			linger = nil
			if b.demand() == none {
				end()
			}
		}
	}
}

// feed polls and watches the monitor until stop is called, which waits for the end of both. It
// polls every Config.Poll, and at once after a nudge of ask.
func (b *bench) feed(ctx context.Context, d demand) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	b.fed.Store(true)
	wg.Go(func() {
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
	})
	wg.Go(func() { b.watchAgain(ctx, d == idle) })
	return func() {
		cancel()
		wg.Wait()
		b.fed.Store(false)
		b.update(func(s *State) { s.Unwatched = "" })
	}
}

// poll updates the state from the monitor's bench and captures. asking is held.
func (b *bench) poll(ctx context.Context, about func(context.Context) (session.Bench, error)) {
	bench, err := about(ctx)
	var held []session.Capture
	if err == nil {
		held, err = b.monitor.Captures(ctx)
	}
	if ctx.Err() != nil {
		return // the caller's end is no fault of the monitor
	}
	now := time.Now()
	reach, why := Present, ""
	var list []Capture
	var last Capture
	if err == nil {
		list, last = b.withTasks(ctx, bench.CaptureID, held)
	} else {
		reach, why = Away, err.Error()
	}
	b.asked = now
	b.update(func(s *State) {
		if s.Reach != reach {
			s.Reach, s.Since = reach, now
		}
		if s.Why = why; err != nil {
			return
		}
		if c, ok := s.capture(last.ID); ok && last.Holder == "" {
			last.Capture = c.Capture // it was released meanwhile
			last.State = session.Released
		}
		s.Bench, s.Captures, s.Last = bench, list, last
		s.Recording = b.cfg.Recorder != nil && b.cfg.Recorder.Recording(b.address)
	})
}

// withTasks adds the captures' tasks, and returns the newest capture that no longer holds the
// bench. Polls are a second apart, so captures are also known from the ids of moments:
//
//	newest seen is not the holder    it has ended since
//	holder changed since last poll   the former holder has ended, and moments of the
//	                                 present one arrived first
//	else                             as at the last poll
//
// A task that the database does not have yet is looked up again at the next poll; of known
// ones the id is kept.
func (b *bench) withTasks(ctx context.Context, holding string, held []session.Capture) (list []Capture, last Capture) {
	known := b.tasks
	b.mu.Lock()
	newest, before := b.last, b.now
	if holding != "" {
		b.last = holding
	}
	b.mu.Unlock()
	found := map[string]store.TaskID{}
	taskOf := func(id string) store.TaskID {
		t, ok := found[id]
		if !ok {
			if t = known[id]; t == 0 && b.cfg.TaskOf != nil {
				t, _ = b.cfg.TaskOf(ctx, id)
			}
			found[id] = t
		}
		return t
	}
	list = lists.Map(held, func(c session.Capture) Capture { return Capture{c, taskOf(c.ID)} })
	switch held := before.Bench.CaptureID; {
	case newest != "" && newest != holding:
		last.ID = newest
	case held != "" && held != holding: // the next one's samples arrived before this poll
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
	b.tasks = found
	return list, last
}

// watchAgain watches the rails, and begins again every Config.Poll where that breaks.
func (b *bench) watchAgain(ctx context.Context, alsoIdle bool) {
	o := session.WatchOptions{Every: b.cfg.Every, Idle: alsoIdle, Wave: true}
	for range backoff.Rounds(ctx.Done(), b.cfg.Poll) {
		err := b.monitor.Watch(ctx, o, func(m session.Moment) error {
			b.arrived(m)
			return ctx.Err()
		})
		if err != nil && ctx.Err() == nil {
			b.update(func(s *State) { s.Unwatched = err.Error() })
			backoff.Nudge(b.ask)
		}
	}
}

// arrived takes a moment of the monitor's: it keeps it for later viewers and sends it to
// the present ones. A moment of another capture polls the holder at once.
func (b *bench) arrived(m session.Moment) {
	b.update(func(s *State) { s.Unwatched = m.Trouble })
	if m.Trouble != "" {
		return
	}
	m.Rails = slices.Clip(m.Rails)
	if m.Min == 0 && m.Max == 0 { // of an older monitor
		m.Min, m.Max = m.Total, m.Total
	}
	x := Moment{Moment: m, At: time.Now(), Peak: m.Total, Merged: 1}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now.Reach != Present || b.seen != m.CaptureID {
		backoff.Nudge(b.ask)
	}
	b.seen = m.CaptureID
	if m.CaptureID != "" {
		b.last = m.CaptureID
	}
	kept := x
	kept.Wave = nil
	b.history = append(b.history, kept)
	b.expire(x.At)
	for box := range b.viewers {
		box.put(News{Address: b.address, Moment: &x})
	}
}

// mailbox holds the news that one viewer has not taken yet, at most one a bench. put may
// be called from any goroutine; take belongs to the viewer's.
type mailbox struct {
	wake chan struct{} // buffered by one: there is news

	mu      sync.Mutex
	pending []News               // by arrival
	sent    map[string]time.Time // of the last moment of each bench, by its address
}

// put adds news of a bench to its pending ones.
func (m *mailbox) put(n News) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.pending, func(p News) bool { return p.Address == n.Address })
	if i < 0 {
		i = len(m.pending)
		m.pending = append(m.pending, News{Address: n.Address})
	}
	p := &m.pending[i]
	if n.State != nil {
		p.State = n.State
	}
	if n.History != nil {
		p.History = n.History
	}
	switch {
	case n.Moment == nil:
	case p.Moment == nil:
		p.Moment = new(*n.Moment)
	default:
		p.Moment.absorb(*n.Moment)
	}
	backoff.Nudge(m.wake)
}

// take returns the news that are due: all states, and the moment of a bench whose last one
// is at least every old. next is when a moment that waits is due; zero where none waits.
func (m *mailbox) take(now time.Time, every time.Duration) (out []News, next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rest []News
	for _, n := range m.pending {
		if at := m.sent[n.Address].Add(every); n.Moment != nil && now.Before(at) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			rest = append(rest, News{Address: n.Address, Moment: n.Moment})
			n.Moment = nil
		} else if n.Moment != nil {
			m.sent[n.Address] = now
		}
		if n.State != nil || n.Moment != nil || n.History != nil {
			out = append(out, n)
		}
	}
	m.pending = rest
	return out, next
}

// maxWave bounds the wave of moments that a slow viewer gets as one.
const maxWave = 1024

// absorb adds a newer moment to one that was not sent yet. Averages of the same rails
// under the same capture become one mean, weighted by Merged: the monitor's averages are
// of equal lengths. Else the newer one replaces the older.
func (m *Moment) absorb(n Moment) {
	if m.CaptureID != n.CaptureID || n.T <= m.T || !sameRails(m.Rails, n.Rails) {
		*m = n
		return
	}
	a, b := float64(m.Merged), float64(n.Merged)
	rails := slices.Clone(n.Rails) // they are shared with other viewers
	for i, r := range m.Rails {
		x := &rails[i]
		x.Power = mean(a, b, r.Power, x.Power)
		x.Voltage = mean(a, b, r.Voltage, x.Voltage)
		x.Current = mean(a, b, r.Current, x.Current)
	}
	n.Min, n.Max = min(m.Min, n.Min), max(m.Max, n.Max)
	if n.Wave = append(slices.Clone(m.Wave), n.Wave...); len(n.Wave) > maxWave {
		n.Wave = n.Wave[len(n.Wave)-maxWave:]
	}
	n.Rails, n.Total, n.Peak, n.Merged = rails, mean(a, b, m.Total, n.Total), max(m.Peak, n.Peak), m.Merged+n.Merged
	*m = n
}

// mean returns (a·x + b·y) / (a + b).
func mean[T ~float64](a, b float64, x, y T) T { return T((a*float64(x) + b*float64(y)) / (a + b)) }

// sameRails reports whether two moments have the same rails in the same order.
func sameRails(a, b []session.RailValue) bool {
	return slices.EqualFunc(a, b, func(a, b session.RailValue) bool { return a.Rail == b.Rail })
}
