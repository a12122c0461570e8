package attribute

import (
	"container/heap"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// Engine shares a power trace among kernels. Scans are pushed in order of time
// (Add); kernels are drawn as they are needed, in order of their begin.
// It is not safe for concurrent use. Close must be called.
type Engine struct {
	cfg      Config
	from, to float64
	beside   float64 // how far from an edge its powers are read
	rate     float64 // seconds of the meter a second of the host
	next     func() (Kernel, error, bool)
	stop     func()

	ahead   Kernel // the next to begin
	more    bool
	begun   float64 // host's begin of the last one drawn
	running ends
	names   []account
	active  []int // distinct names that run
	// between is the time without kernels, until it is known whether another one
	// follows: active idle then, idle otherwise.
	between, activeIdle, idle account
	any                       bool // a kernel has begun
	pauses, brief             uint64
	opened                    bool // the window has begun

	trace   trace
	at      float64     // up to where the energy is booked
	pending measure.Sum // booked since the set of running kernels changed last
	since   float64
	total   measure.Sum
	seen    bool
	first   float64
	err     error
}

// New prepares the sharing of a window among kernels, which come in order of
// their begin. An error among them is returned by Add or Result.
func New(cfg Config, kernels iter.Seq2[Kernel, error]) (*Engine, error) {
	w := cfg.Window
	if !(w.From < w.To) || math.IsInf(float64(w.From), 0) || math.IsInf(float64(w.To), 0) {
		return nil, fmt.Errorf("attribute: from %v to %v: %w", w.From, w.To, ErrWindow)
	}
	if !(cfg.Clock.B > 0) {
		return nil, fmt.Errorf("attribute: a clock that runs at %v: %w", cfg.Clock.B, ErrWindow)
	}
	e := &Engine{
		cfg: cfg, from: float64(w.From - cfg.Delay), to: float64(w.To - cfg.Delay),
		rate: cfg.Clock.B, begun: math.Inf(-1),
	}
	mid, _ := cfg.Clock.Host((w.From + w.To) / 2)
	_, u := cfg.Clock.Meter(mid)
	// Half a window is as far as anything can lie beside an edge.
	e.beside = min(max(float64(cfg.Resolution), float64(u)), (e.to-e.from)/2)
	e.at, e.since = e.from, e.from
	e.next, e.stop = iter.Pull2(kernels)
	if err := e.draw(); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

// Close releases the kernels' source.
func (e *Engine) Close() { e.stop() }

// Add takes the next scan's instant in seconds of device time and its power in
// watts. Errors wrap ErrOrder, ErrKernel, or are the kernels' own.
func (e *Engine) Add(at, watts float64) error {
	if e.err != nil {
		return e.err
	}
	if e.seen && at < e.trace.last() {
		e.err = fmt.Errorf("attribute: a scan at %v after one at %v: %w", at, e.trace.last(), ErrOrder)
		return e.err
	}
	if !e.seen {
		e.first, e.seen = at, true
	}
	if e.at >= e.to && e.trace.last() >= e.to+e.beside {
		return nil // nothing behind bears on the window
	}
	e.trace.push(at, watts)
	// An edge is booked once the power behind it is known.
	return e.advance(min(at-e.beside, e.to))
}

// advance books all edges up to an instant, and the energy up to there.
func (e *Engine) advance(until float64) error {
	if !e.opened && until > e.from {
		e.between.edge(1, e.trace.at(e.from-e.beside), e.trace.at(e.from+e.beside), e.host(e.from), &e.cfg.Clock)
		e.opened = true
	}
	for e.err == nil {
		t, host, end, ok := e.edge()
		if !ok || t > until {
			break
		}
		e.book(t)
		if end {
			e.change(t, host, e.running.pop().Name, -1)
			continue
		}
		e.running.push(e.ahead)
		e.change(t, host, e.ahead.Name, 1)
		if err := e.draw(); err != nil {
			return err
		}
	}
	if until > e.at {
		e.book(until)
	}
	for r := &e.trace; r.head+1 < len(r.t) && r.t[r.head+1] <= e.at-e.beside; {
		r.head++ // no instant from here on needs that scan
	}
	return e.err
}

// edge is the next begin or end within the window; an end goes before a begin.
func (e *Engine) edge() (t, host float64, end, ok bool) {
	if len(e.running) > 0 {
		host = float64(e.running[0].End)
		t, end, ok = min(e.meter(host), e.to), true, true
	}
	if e.more {
		if s := max(e.meter(float64(e.ahead.Start)), e.from); !ok || s < t {
			return s, float64(e.ahead.Start), false, true
		}
	}
	return t, host, end, ok
}

// book integrates up to an instant that the trace reaches.
func (e *Engine) book(to float64) {
	ts, ps := e.trace.t, e.trace.p
	i := max(e.trace.head+sort.SearchFloat64s(ts[e.trace.head:], e.at)-1, e.trace.head)
	for ; i+1 < len(ts) && e.at < to; i++ {
		a, b := max(e.at, ts[i]), min(to, ts[i+1])
		if !(b > a) {
			continue
		}
		slope := (ps[i+1] - ps[i]) / (ts[i+1] - ts[i])
		e.pending.Add((b - a) * (ps[i] + slope*((a-ts[i])+(b-ts[i]))/2))
		e.at = b
	}
}

// Result ends the sharing. Scans that do not reach over the window are ErrNoData.
func (e *Engine) Result() (Result, error) {
	if e.err != nil {
		return Result{}, e.err
	}
	eps := 1e-6 * float64(e.cfg.Resolution)
	if !e.seen || e.first > e.from+eps || e.trace.last() < e.to-eps {
		return Result{}, fmt.Errorf("attribute: window from %v to %v: %w", e.cfg.Window.From, e.cfg.Window.To,
			ErrNoData)
	}
	if err := e.advance(e.to); err != nil {
		return Result{}, err
	}
	for e.more { // those behind the window may be faulty, too
		if err := e.draw(); err != nil {
			return Result{}, err
		}
	}
	e.settle()
	if len(e.active) == 0 {
		e.between.edge(-1, e.trace.at(e.to-e.beside), e.trace.at(e.to+e.beside), e.host(e.to), &e.cfg.Clock)
	}
	e.idle.take(&e.between)
	e.between = account{}
	out := Result{
		ActiveIdle: e.activeIdle.use(&e.cfg), Idle: e.idle.use(&e.cfg), Pauses: e.pauses, Brief: e.brief,
	}
	out.Total = measure.Joule(e.total.Value())
	out.Kernels = lists.Map(e.names, func(a account) Use { return a.use(&e.cfg) })
	return out, nil
}

// change books the pending energy, and then moves one kernel in or out.
func (e *Engine) change(t, host float64, name, by int) {
	length := e.at - e.since
	e.settle()
	before, after, f := e.trace.at(t-e.beside), e.trace.at(t+e.beside), &e.cfg.Clock
	was := len(e.running) - by
	if was == 0 {
		e.between.edge(-1, before, after, host, f)
		if e.any {
			e.activeIdle.take(&e.between)
			e.pauses++
			if length < float64(e.cfg.Brief) {
				e.brief++
			}
		} else {
			e.idle.take(&e.between)
		}
		e.between, e.any = account{}, true
	}
	if e.names[name].running == 0 {
		e.active = append(e.active, name)
	}
	for _, n := range e.active {
		a := &e.names[n]
		d := -share(a.running, was)
		if n == name {
			a.running += by
		}
		a.edge(d+share(a.running, was+by), before, after, host, f)
	}
	if e.names[name].running == 0 {
		e.active = slices.DeleteFunc(e.active, func(n int) bool { return n == name })
	}
	if was+by == 0 {
		e.between.edge(1, before, after, host, f)
	}
}

func share(of, all int) float64 {
	if all == 0 {
		return 0
	}
	return float64(of) / float64(all)
}

// settle books the pending energy for the kernels that ran.
func (e *Engine) settle() {
	energy, length := e.pending, e.at-e.since
	e.pending, e.since = measure.Sum{}, e.at
	e.total.Take(&energy, 1)
	if len(e.active) == 0 {
		e.between.energy.Take(&energy, 1)
		e.between.share.Add(length)
		e.between.busy.Add(length)
		return
	}
	var all int
	for _, n := range e.active {
		all += e.names[n].running
	}
	for _, n := range e.active {
		a := &e.names[n]
		k := share(a.running, all)
		a.energy.Take(&energy, k)
		a.share.Add(k * length)
	}
}

// meter is an instant of the host on the scans' clock.
func (e *Engine) meter(host float64) float64 {
	return float64(e.cfg.Clock.A-e.cfg.Delay) + e.rate*host + float64(e.cfg.Clock.Off(measure.Seconds(host)))
}

// host is the inverse of meter.
func (e *Engine) host(t float64) float64 {
	host, _ := e.cfg.Clock.Host(measure.Seconds(t) + e.cfg.Delay)
	return float64(host)
}

// draw fetches the next kernel that touches the window.
func (e *Engine) draw() error {
	for {
		k, err, ok := e.next()
		if e.more = ok; !ok || err != nil {
			e.err = err
			return err
		}
		switch {
		case k.Name < 0 || !(k.Start <= k.End) || math.IsInf(float64(k.Start), 0) || math.IsInf(float64(k.End), 0):
			e.err = fmt.Errorf("attribute: name %d from %v to %v: %w", k.Name, float64(k.Start), float64(k.End),
				ErrKernel)
		case float64(k.Start) < e.begun:
			e.err = fmt.Errorf("attribute: a kernel begins at %v, after one at %v: %w", float64(k.Start), e.begun,
				ErrOrder)
		}
		if e.err != nil {
			return e.err
		}
		e.begun = float64(k.Start)
		if n := k.Name + 1 - len(e.names); n > 0 {
			e.names = append(e.names, make([]account, n)...)
		}
		a := &e.names[k.Name]
		a.launches++
		if e.rate*float64(k.End-k.Start) < float64(e.cfg.Resolution) {
			a.short++
		}
		if start, end := e.meter(float64(k.Start)), e.meter(float64(k.End)); end >= e.from && start <= e.to {
			a.busy.Add(min(end, e.to) - max(start, e.from)) // within the window
			e.ahead = k
			return nil
		}
	}
}

// ends is a heap of the kernels that run, by their end. push and pop move kernels without an allocation for each, as
// heap.Push and heap.Pop make; those panic.
type ends []Kernel

func (h ends) Len() int           { return len(h) }
func (h ends) Less(i, j int) bool { return h[i].End < h[j].End }
func (h ends) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (*ends) Push(any)            { panic("attribute: use push") }
func (*ends) Pop() any            { panic("attribute: use pop") }

func (h *ends) push(k Kernel) {
	*h = append(*h, k)
	heap.Fix(h, len(*h)-1)
}

func (h *ends) pop() Kernel {
	k, last := (*h)[0], len(*h)-1
	h.Swap(0, last)
	*h = (*h)[:last]
	heap.Fix(h, 0)
	return k
}
