package capture

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"wattmark/measure"
)

// RailValue is one rail, averaged over a moment.
type RailValue struct {
	Rail    string
	Power   measure.Watt
	Voltage measure.Volt   // 0 where it is not measured
	Current measure.Ampere // 0 where it is not measured
}

// Moment is what a live viewer sees: averages since the one before.
type Moment struct {
	CaptureID string          // empty for a free bench
	T         measure.Seconds // device time at the end of the average
	Rails     []RailValue
	Total     measure.Watt
	Dropped   uint64 // moments lost so far because the viewer was slow
	Rate      measure.Hertz
	Scans     uint64 // seen since the capture, or the look at the free bench, began
	Lost      uint64 // scans known to be lost since then
	Gaps      uint64 // stretches of them
	OverRange uint64 // readings at the end of a converter's range since then; of a free bench, those that the instrument tells of
	// Trouble says why a free bench cannot be sampled now; there are no rails then.
	Trouble string
}

// watchers are the live viewers of a bench. They cost nothing while there are
// none, and never hold up a capture.
type watchers struct {
	count atomic.Int32
	loss  struct{ lost, gaps, over atomic.Uint64 } // of what is sampled now
	mu    sync.Mutex
	all   map[*watcher]struct{}
	idle  int           // viewers who want a free bench sampled
	wants chan struct{} // has one when idle has changed

	id    string // of the capture that runs; empty for a free bench
	setup *measure.Setup
	power *measure.PowerMeter
	cols  measure.Columns
}

// watcher is one viewer with an average of its own.
type watcher struct {
	every   time.Duration
	idle    bool
	out     chan Moment
	dropped uint64

	until   float64 // tick at which the average ends
	n       int
	p, v, i []float64 // sums by rail
}

// begin says which capture runs from now on; none, for a look at a free bench.
func (w *watchers) begin(id string, setup *measure.Setup) error {
	m, err := measure.NewPowerMeter(setup)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.id, w.setup, w.power = id, setup, m
	w.loss.lost.Store(0)
	w.loss.gaps.Store(0)
	w.loss.over.Store(0)
	for v := range w.all {
		v.reset(len(setup.Rails))
	}
	return nil
}

// add begins to watch; the channel gets moments until remove.
func (w *watchers) add(o WatchOptions) *watcher {
	v := &watcher{every: o.Every, idle: o.Idle, out: make(chan Moment, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*watcher]struct{}{}
	}
	if w.setup != nil {
		v.reset(len(w.setup.Rails))
	}
	w.all[v] = struct{}{}
	w.count.Add(1)
	if o.Idle {
		w.idle++
		w.nudge()
	}
	return v
}

func (w *watchers) remove(v *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, v)
	w.count.Add(-1)
	if v.idle {
		w.idle--
		w.nudge()
	}
}

// nudge tells the bench's owner that other viewers are there. mu is held.
func (w *watchers) nudge() {
	select {
	case w.wants <- struct{}{}:
	default:
	}
}

// wanted tells whether anybody wants a free bench sampled.
func (w *watchers) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle > 0
}

func (v *watcher) reset(rails int) {
	v.n, v.until = 0, 0
	v.p, v.v, v.i = make([]float64, rails), make([]float64, rails), make([]float64, rails)
}

// event takes note of scans that are lost, and of readings that are clipped.
func (w *watchers) event(e measure.Event) {
	switch e.Kind {
	case measure.EventGap:
		w.loss.gaps.Add(1)
		w.loss.lost.Add(e.Scans)
	case measure.EventOverRange:
		w.loss.over.Add(e.Scans)
	}
}

// block adds a block to the averages. It is called by the pipeline.
func (w *watchers) block(b *measure.Block) {
	if w.count.Load() == 0 || b.Scans() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	end := b.TickAt(w.setup.Timebase, b.Scans()-1)
	for r := range w.setup.Rails {
		w.power.Rail(r, b, &w.cols)
		p, v, i := sum(w.cols.P), sum(w.cols.V), sum(w.cols.I)
		for x := range w.all {
			x.p[r] += p
			x.v[r] += v
			x.i[r] += i
		}
	}
	next := b.FirstScan + uint64(b.Scans())
	for x := range w.all {
		x.n += b.Scans()
		if x.until == 0 {
			x.until = end
		}
		if end >= x.until {
			x.average(w, end, next)
		}
	}
}

func sum[T ~float64](s []T) (t float64) {
	for _, v := range s {
		t += float64(v)
	}
	return t
}

// average ends a viewer's average at a tick, before the scan that is next.
func (v *watcher) average(w *watchers, end float64, next uint64) {
	lost := w.loss.lost.Load()
	m := Moment{
		CaptureID: w.id, T: w.setup.Timebase.Seconds(end), Rails: make([]RailValue, len(v.p)),
		Rate: w.setup.Timebase.SampleRate(), Lost: lost, Scans: next - min(next, lost),
		Gaps: w.loss.gaps.Load(), OverRange: w.loss.over.Load(),
	}
	n := float64(v.n)
	for r := range v.p {
		m.Rails[r] = RailValue{
			Rail: w.setup.Rails[r].Name, Power: measure.Watt(v.p[r] / n),
			Voltage: measure.Volt(v.v[r] / n), Current: measure.Ampere(v.i[r] / n),
		}
		m.Total += m.Rails[r].Power
		v.p[r], v.v[r], v.i[r] = 0, 0, 0
	}
	v.n = 0
	v.until = end + w.setup.Timebase.Ticks(measure.SecondsOf(v.every))
	if w.id != "" || v.idle {
		v.send(m)
	}
}

// send hands a moment to the viewer. One that the viewer has not taken yet
// gives way to it, and is counted as dropped.
func (v *watcher) send(m Moment) {
	select {
	case <-v.out:
		v.dropped++
	default:
	}
	m.Dropped = v.dropped
	v.out <- m
}

// trouble tells those who want a free bench sampled why that cannot be.
func (w *watchers) trouble(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v := range w.all {
		if v.idle {
			v.send(Moment{Trouble: why})
		}
	}
}

// WatchOptions say what a live viewer wants.
type WatchOptions struct {
	// Every is the distance of the averages in device time.
	Every time.Duration
	// Idle also samples a bench that nobody holds, until somebody takes it.
	Idle bool
}

// Watch sends live averages of the rails to send, every so often in device
// time, until ctx ends or send fails. What send is too slow for is dropped and
// counted; the capture is never held up.
func (o *Owner) Watch(ctx context.Context, opt WatchOptions, send func(Moment) error) error {
	v := o.live.add(opt)
	defer o.live.remove(v)
	for {
		select {
		case m := <-v.out:
			if err := send(m); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-o.done:
			return ErrStopped
		}
	}
}
