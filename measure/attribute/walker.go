package attribute

import (
	"cmp"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// feed draws kernels once for several walkers, and holds those that the last one still needs.
type feed struct {
	next func() (Kernel, error, bool)
	stop func()
	buf  []Kernel
	base int // number of the first in buf
	end  bool
	// step is the resolution of the stamps, s: what kernels or pauses last, and by how much the next of either
	// differs, at least.
	step, long, pause, last float64
}

// coarsest is the largest step of a GPU's stamps, s: global timers count in steps from 32 ns to 1.024 µs. Kernels and
// pauses that are alike to the nanosecond show no step below their own length.
const coarsest = 1.024e-6

// look takes a kernel's stamps into step. Less than the rounding of four stamps to 1 ns does not count.
func (f *feed) look(k Kernel) {
	long, pause := float64(k.End-k.Start), float64(k.Start)-f.last
	for _, v := range []float64{long, math.Abs(pause), math.Abs(long - f.long), math.Abs(pause - f.pause)} {
		if v > 2.5e-9 && (f.step == 0 || v < f.step) {
			f.step = min(v, coarsest)
		}
	}
	f.long, f.pause, f.last = long, pause, float64(k.End)
}

// at returns kernel number i; ok is false behind the last one.
func (f *feed) at(i int) (k Kernel, ok bool, err error) {
	for i >= f.base+len(f.buf) {
		if f.end {
			return Kernel{}, false, nil
		}
		k, err, ok := f.next()
		if err != nil {
			return Kernel{}, false, err
		}
		if f.end = !ok; ok {
			f.buf = append(f.buf, k)
			f.look(k)
		}
	}
	return f.buf[i-f.base], true, nil
}

// walker sums the duty of each column over time: 1/n each for n kernels at once, and
// 1 for active idle or idle where none runs, so that the duties come to 1.
type walker struct {
	s       *Solver
	feed    *feed
	number  int // of the next kernel
	ahead   Kernel
	more    bool
	begun   bool
	last    float64 // host's begin of the last one drawn
	running ends
	t       float64   // device time, s
	share   []float64 // integral of each duty, s
	spans   []uint64  // stretches of each column
}

// draw takes the next kernel that touches the window.
func (w *walker) draw() error {
	for {
		k, ok, err := w.feed.at(w.number)
		if w.more = ok; err != nil || !ok {
			return err
		}
		w.number++
		if k.Name < 0 || k.Name >= len(w.s.model.Columns) || !(k.Start <= k.End) {
			return ErrKernel
		}
		if float64(k.Start) < w.last {
			return ErrOrder
		}
		w.last = float64(k.Start)
		if w.time(float64(k.End)) >= w.s.from && w.time(float64(k.Start)) <= w.s.to {
			w.ahead = k
			return nil
		}
	}
}

// time is a host's instant in the scans' time.
func (w *walker) time(host float64) float64 {
	c := &w.s.model.Clock
	return float64(c.A-w.s.model.Delay) + c.B*host + float64(c.Off(measure.Seconds(host)))
}

// to moves on to an instant of device time.
func (w *walker) to(t float64) error {
	for {
		begin, end := math.Inf(1), math.Inf(1)
		if w.more {
			begin = max(w.time(float64(w.ahead.Start)), w.s.from)
		}
		if len(w.running) > 0 {
			end = w.time(float64(w.running[0].End))
		}
		if min(begin, end) > t {
			w.step(t)
			return nil
		}
		w.step(min(begin, end))
		if end <= begin {
			w.running.pop()
			if len(w.running) == 0 {
				w.spans[w.rest()]++
			}
			continue
		}
		w.running.push(w.ahead)
		w.spans[w.s.model.Columns[w.ahead.Name]]++
		w.begun = true
		if err := w.draw(); err != nil {
			return err
		}
	}
}

// rest is the column of the time in which no kernel runs.
func (w *walker) rest() int {
	if w.begun && w.more {
		return w.s.columns - 2
	}
	return w.s.columns - 1
}

// step goes through a stretch of constant duties.
func (w *walker) step(t float64) {
	dt := t - w.t
	if !(dt > 0) {
		return
	}
	w.t = t
	if len(w.running) == 0 {
		w.share[w.rest()] += dt
	}
	for i := range w.running {
		w.share[w.s.model.Columns[w.running[i].Name]] += dt / float64(len(w.running))
	}
}

// Span is a range of a program: what a thread did between two instants of the host's clock, in ns.
type Span struct {
	Thread   int
	From, To int64
	// Process: it counts for all threads, as one that begins on a thread and ends on another.
	Process bool
}

// Started is a kernel when a thread launched it, with its energy and U.
type Started struct {
	Thread int
	At     int64
	Busy   measure.Seconds
	measure.Share
}

// SpanUse is the energy of the kernels that were launched within a span, whenever they ran.
type SpanUse struct {
	Launches uint64
	Busy     measure.Seconds
	measure.Share
}

func (u *SpanUse) add(k *Started) {
	u.Launches++
	u.Busy += k.Busy
	u.Add(&k.Share)
}

// Spans returns the energies of the kernels launched within each span: by its own thread, nested spans
// included. With adopt, a launch of a thread that has no span open counts for those of the only thread that
// has (autograd's threads launch for the one that called backward); where several have, for none of a
// thread's. It sorts launches.
func Spans(spans []Span, launches []Started, adopt bool) []SpanUse {
	out := make([]SpanUse, len(spans))
	order := lists.Order(len(spans), func(a, b int) int { return cmp.Compare(spans[a].From, spans[b].From) })
	slices.SortFunc(launches, func(a, b Started) int { return cmp.Compare(a.At, b.At) })
	const process = -1
	open := map[int][]int{}
	for i := range launches {
		k := &launches[i]
		for len(order) > 0 && spans[order[0]].From <= k.At {
			s := &spans[order[0]]
			thread := s.Thread
			if s.Process {
				thread = process
			}
			open[thread], order = append(open[thread], order[0]), order[1:]
		}
		for thread, list := range open {
			if list = slices.DeleteFunc(list, func(n int) bool { return spans[n].To < k.At }); len(list) > 0 {
				open[thread] = list
			} else {
				delete(open, thread)
			}
		}
		for _, n := range open[process] {
			out[n].add(k)
		}
		within := open[k.Thread]
		if adopt && len(within) == 0 {
			// The spans of the only thread that has some open.
			threads := 0
			for thread, list := range open {
				if thread != process {
					threads, within = threads+1, list
				}
			}
			if threads > 1 {
				within = nil
			}
		}
		for _, n := range within {
			out[n].add(k)
		}
	}
	return out
}

// Trace is what a profiler recorded. Times are in ns on its clock: since 1970 where HostClock.
type Trace struct {
	HostClock bool
	Kernels   []Profiled
	Calls     map[uint32]Call // by correlation
	Ranges    []Range
	Devices   map[uint32]bool // that ran kernels
}

// Move adds ns to all times.
func (t *Trace) Move(ns int64) {
	for i := range t.Kernels {
		t.Kernels[i].Start += ns
		t.Kernels[i].End += ns
	}
	for c, x := range t.Calls {
		t.Calls[c] = Call{Thread: x.Thread, At: x.At + ns}
	}
	for i := range t.Ranges {
		t.Ranges[i].From += ns
		t.Ranges[i].To += ns
	}
}

// Profiled is one execution of a kernel. Event is the number of its event in the file.
type Profiled struct {
	Event          int
	Start, End     int64
	Name           string
	Device, Stream uint32
	Correlation    uint32
	Grid, Block    [3]uint32
}

// Call is the call that launched kernels.
type Call struct {
	Thread int
	At     int64
}

// Range is a span that the program named: a user's annotation, or an operation of the framework (Op).
type Range struct {
	Event    int
	From, To int64
	Thread   int
	Name     string
	Op       bool
	Process  bool  // as in Span
	External int64 // the range's id, which its copy on the GPU's side has, 0 for none
}

// Mark is the energy of one event.
type Mark struct {
	measure.Share
	Busy measure.Seconds // of its kernels
}
