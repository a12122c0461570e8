package attribute

import (
	"iter"
	"math"
)

// feed draws kernels once for several walkers, and holds those that the last one still needs.
type feed struct {
	next func() (Kernel, error, bool)
	stop func()
	buf  []Kernel
	base int // number of the first in buf
	end  bool
}

func newFeed(kernels iter.Seq2[Kernel, error]) *feed {
	f := &feed{}
	f.next, f.stop = iter.Pull2(kernels)
	return f
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
		}
	}
	return f.buf[i-f.base], true, nil
}

// drop lets go of the kernels before number i.
func (f *feed) drop(i int) {
	if n := i - f.base; n > 1024 {
		f.buf, f.base = append(f.buf[:0], f.buf[n:]...), i
	}
}

// walker follows the duty of each column through time: 1/n each for n kernels at once, and
// 1 for active idle or idle where none runs, so that the duties come to 1.
type walker struct {
	s       *Solver
	feed    *feed
	number  int     // of the next kernel
	shift   float64 // added to device times of kernels, s
	ahead   Kernel
	more    bool
	begun   bool
	last    float64 // host's begin of the last one drawn
	running ends
	count   []int     // running, by column
	t       float64   // device time, s
	share   []float64 // integral of each duty, s
	lag     []float64 // duty behind the first-order lag
	spans   []uint64  // stretches of each column
}

func (s *Solver) newWalker(f *feed, shift float64) (*walker, error) {
	n := s.columns
	w := &walker{
		s: s, feed: f, shift: shift, t: s.from, last: math.Inf(-1),
		count: make([]int, n), share: make([]float64, n), lag: make([]float64, n), spans: make([]uint64, n),
	}
	w.lag[n-1] = 1 // the window begins idle; the first scans, within five lags, are not used
	return w, w.draw()
}

// draw takes the next kernel that touches the window.
func (w *walker) draw() error {
	for {
		k, ok, err := w.feed.at(w.number)
		w.number++
		if w.more = ok; err != nil || !ok {
			w.number--
			return err
		}
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
	return float64(c.A-w.s.model.Delay) + c.B*host + w.shift
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
			k := w.running.pop()
			w.count[w.s.model.Columns[k.Name]]--
			if len(w.running) == 0 {
				w.spans[w.rest()]++
			}
			continue
		}
		w.running.push(w.ahead)
		column := w.s.model.Columns[w.ahead.Name]
		w.count[column]++
		w.spans[column]++
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

// duty is what a column has of the present instant.
func (w *walker) duty(column int) float64 {
	if len(w.running) == 0 {
		if column == w.rest() {
			return 1
		}
		return 0
	}
	return share(w.count[column], len(w.running))
}

// step goes through a stretch of constant duties: the lag follows 1 − exp(−dt/τ).
func (w *walker) step(t float64) {
	dt := t - w.t
	if !(dt > 0) {
		return
	}
	w.t = t
	tau := float64(w.s.model.Tau)
	gain := 1.0
	if tau > 0 {
		gain = -math.Expm1(-dt / tau)
	}
	for i := range w.share {
		d := w.duty(i)
		w.share[i] += d * dt
		w.lag[i] += (d - w.lag[i]) * gain
	}
}

// integral is that of a column's duty behind the lag, up to a constant: from τ·L' = s − L
// follows ∫L = ∫s − τ·L.
func (w *walker) integral(column int) float64 {
	return w.share[column] - float64(w.s.model.Tau)*w.lag[column]
}
