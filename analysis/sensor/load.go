package sensor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// signals are k piecewise constant functions of time with common steps. They are not
// changed once made, and safe for concurrent use.
type signals struct {
	k     int
	at    []float64 // pieces begin here, in seconds; the last is the end
	value []float64 // [piece·k + signal]
	sum   []float64 // [piece·k + signal]: integrals from the first piece on
}

// push appends a piece that begins at an instant; row has k values.
func (s *signals) push(at float64, row ...float64) {
	s.close(at)
	s.value = append(s.value, row...)
}

// close ends the last piece, and appends the integrals up to there.
func (s *signals) close(at float64) {
	if n := len(s.at); n == 0 {
		s.sum = make([]float64, s.k)
	} else {
		d, last, v := at-s.at[n-1], s.sum[len(s.sum)-s.k:], s.value[len(s.value)-s.k:]
		for i := range s.k {
			s.sum = append(s.sum, last[i]+d*v[i])
		}
	}
	s.at = append(s.at, at)
}

func (s *signals) pieces() int { return len(s.at) - 1 }

// piece returns the piece that an instant lies in, the nearest where in none.
func (s *signals) piece(t float64) int {
	i := sort.Search(len(s.at), func(i int) bool { return s.at[i] > t }) - 1
	return max(0, min(i, s.pieces()-1))
}

// after is piece(t) for an instant at or after the beginning of piece p: it walks a few
// pieces before it searches.
func (s *signals) after(p int, t float64) int {
	for n := 0; p+1 < s.pieces() && s.at[p+1] <= t; n++ {
		if p++; n > 8 {
			return s.piece(t)
		}
	}
	return p
}

// Load is a power over time, constant from one change to the next: a sequence of
// kernels, or a meter's samples. It is not changed once made, and safe for concurrent
// use.
type Load struct{ signals }

// ErrLoad is wrapped by errors about unusable loads.
var ErrLoad = errors.New("no usable load")

// NewLoad makes a load that draws watts[i] from at[i] to at[i+1]: n powers and n+1
// instants in ascending order, all finite. Errors wrap ErrLoad.
func NewLoad(at []measure.Seconds, watts []measure.Watt) (*Load, error) {
	if len(watts) == 0 || len(at) != len(watts)+1 {
		return nil, fmt.Errorf("sensor: %w: %d instants for %d powers: want one more", ErrLoad, len(at), len(watts))
	}
	l := &Load{signals{k: 1}}
	for i, w := range watts {
		d := float64(at[i+1] - at[i])
		if !(d >= 0) || math.IsInf(d, 0) || math.IsNaN(float64(w)) || math.IsInf(float64(w), 0) {
			return nil, fmt.Errorf("sensor: %w: piece %d draws %v from %v to %v", ErrLoad, i, w, at[i], at[i+1])
		}
		l.push(float64(at[i]), float64(w))
	}
	l.close(float64(at[len(watts)]))
	return l, nil
}

// End returns the end of the last piece.
func (l *Load) End() measure.Seconds { return measure.Seconds(l.at[len(l.at)-1]) }

// Energy returns the load's energy between two instants; from is not after to. Before
// its beginning and after its end the load keeps the power of the nearest piece.
func (l *Load) Energy(from, to measure.Seconds) measure.Joule {
	until := func(t float64) float64 {
		p := l.piece(t)
		return l.sum[p] + (t-l.at[p])*l.value[p]
	}
	return measure.Joule(until(float64(to)) - until(float64(from)))
}

// Mean returns the mean power between two instants, the power itself where they are one.
func (l *Load) Mean(from, to measure.Seconds) measure.Watt {
	if to <= from {
		return measure.Watt(l.value[l.piece(float64(to))])
	}
	return measure.Watt(float64(l.Energy(from, to)) / float64(to-from))
}

// response is a model with its constants.
type response struct {
	model    Model
	constant measure.Seconds // window or τ
	delay    measure.Seconds
}

// at returns the readings of a sensor of gain one at instants in ascending order.
func (r response) at(l *Load, at []measure.Seconds) []measure.Watt {
	t, out := make([]float64, len(at)), make([]float64, len(at))
	for i, x := range at {
		t[i], out[i] = float64(x), float64(l.Mean(x-r.delay-r.constant, x-r.delay))
	}
	if r.model == FirstOrder && r.constant > 0 {
		l.lagged(r, t, out)
	}
	return watts(out)
}

// columns fills out, one row of k for each instant, with the response of a sensor of
// gain one to each signal. The instants ascend, in seconds.
//
// A boxcar's response is the difference of two integrals over the window's length.
func (s *signals) columns(r response, at []float64, out []float64) {
	if r.model == FirstOrder && r.constant > 0 {
		s.lagged(r, at, out)
		return
	}
	w, d := float64(r.constant), float64(r.delay)
	if len(at) == 0 {
		return
	}
	k, p, q := s.k, s.piece(at[0]-d), s.piece(at[0]-d-w)
	for i, t := range at {
		row := out[i*k : (i+1)*k]
		to := t - d
		p = s.after(p, to)
		if w <= 0 {
			copy(row, s.value[p*k:(p+1)*k])
			continue
		}
		from := to - w
		q = s.after(q, from)
		tail, head := to-s.at[p], from-s.at[q]
		for j := range row {
			row[j] = (s.sum[p*k+j] + tail*s.value[p*k+j] - s.sum[q*k+j] - head*s.value[q*k+j]) / w
		}
	}
}

// lagged is columns of a first-order lag. It follows the signals exactly: from one change
// to the next a value v nears y exponentially, y ← v + (y − v)·e^(−Δt/τ). At the
// beginning of the signals it has settled.
func (s *signals) lagged(r response, at []float64, out []float64) {
	k, tau, d := s.k, float64(r.constant), float64(r.delay)
	y := append(make([]float64, 0, 16), s.value[:k]...)
	piece, step, decay := 0, -1.0, 0.0
	for i, t := range at {
		t -= d
		for piece+1 < s.pieces() && s.at[piece+1] <= t {
			if n := s.at[piece+1] - s.at[piece]; math.Abs(n-step) > 1e-12 { // a meter's steps are alike
				step, decay = n, math.Exp(-n/tau)
			}
			for j, v := range s.value[piece*k : (piece+1)*k] {
				y[j] = v + (y[j]-v)*decay
			}
			piece++
		}
		e := math.Exp(-max(t-s.at[piece], 0) / tau)
		row := out[i*k : (i+1)*k]
		for j, v := range s.value[piece*k : (piece+1)*k] {
			row[j] = v + (y[j]-v)*e
		}
	}
}

// traceStep is the least length of a piece of a trace. A sensor's window is many times that.
const traceStep = measure.Seconds(1e-3)

// Trace gathers a meter's samples into a Load of even pieces, by trapezoids, which keep
// the energy. The zero value is ready.
type Trace struct {
	at    []measure.Seconds
	watts []measure.Watt

	begun  bool
	last   measure.Seconds
	power  measure.Watt
	joules float64 // since the last of at
}

// Add adds a sample. Samples ascend in time; one that does not, or is not finite, is
// left out.
func (t *Trace) Add(at measure.Seconds, p measure.Watt) {
	if math.IsNaN(float64(p)) || math.IsInf(float64(p), 0) || t.begun && at <= t.last {
		return
	}
	if !t.begun {
		t.begun, t.last, t.power, t.at = true, at, p, append(t.at, at)
		return
	}
	t.joules += float64(t.power+p) / 2 * float64(at-t.last)
	t.last, t.power = at, p
	if d := at - t.at[len(t.at)-1]; d >= traceStep {
		t.watts = append(t.watts, measure.Watt(t.joules/float64(d)))
		t.at, t.joules = append(t.at, at), 0
	}
}

// Load returns the samples gathered so far as a load. Errors wrap ErrLoad.
func (t *Trace) Load() (*Load, error) {
	if n := len(t.at); n > 0 && t.last > t.at[n-1] { // the rest is a piece, too
		t.watts = append(t.watts, measure.Watt(t.joules/float64(t.last-t.at[n-1])))
		t.at, t.joules = append(t.at, t.last), 0
	}
	return NewLoad(t.at[:len(t.watts)+min(1, len(t.at))], t.watts)
}

// Phase is a stretch of one kind of work.
type Phase struct {
	Name     string
	From, To measure.Seconds
}

// Known is a load up to a few unknown weights: signals whose weighted sum is the power. Kernel events give one signal
// for each kind of work, which is one while it runs; the weights are its levels, in watts. A meter's trace gives two,
// its watts and the constant one; the weights are the sensor's gain and offset.
type Known struct {
	signals
	names []string // of the levels; none for a meter
	ends  int      // signals beyond the levels, one for the end of each long kernel
	warm  int      // and behind them those of kernels that warm up
}

// rest is the kind of load between kernels.
const rest = "no kernel"

// mostKinds bounds the number of levels that are fitted; the rarest kinds share one.
const mostKinds = 8

// A kernel that lasts a good part of a recording ends piecemeal: its last blocks do not keep the GPU busy. With a
// constant power up to its end, the early fall of the readings would be taken for a faster sensor. So the energy of
// its last milliseconds is an unknown of its own.
const (
	longKernel = measure.Seconds(1)
	lastOf     = measure.Seconds(5e-3)
)

// A kernel's power drifts after it began, by clocks, voltages and temperatures, which a constant level would
// take for a sensor that follows more slowly. So the commonest kinds each have two more unknowns, the
// weights of 1 − exp(−t/τ) with t since the begin, which together come near any such course between.
const warmKinds = 3

var warmTau = [2]float64{0.05, 0.5} // s

// warmStep is the least length of a piece of that course, a third of the time since the kernel began.
const warmStep = 10e-3

// FromMeter takes a meter's trace as the load.
func FromMeter(l *Load) *Known {
	k := &Known{signals: signals{k: 2}}
	for i, w := range l.value {
		k.push(l.at[i], w, 1)
	}
	k.close(float64(l.End()))
	return k
}

// FromPhases takes phases in ascending order as the load; the time between them is a
// kind of its own. Where two overlap, the later one counts. Phases of a name are taken
// to draw the same power, but for the last 5 ms of a long one. Errors wrap ErrLoad.
func FromPhases(phases []Phase) (*Known, error) {
	if len(phases) == 0 {
		return nil, fmt.Errorf("sensor: %w: no kernel ran", ErrLoad)
	}
	names, signal := kinds(phases)
	k := &Known{names: append([]string{rest}, names...)}
	span := phases[len(phases)-1].To - phases[0].From
	long := func(p *Phase) bool { return p.To-p.From >= max(span/5, longKernel) }
	k.ends = len(lists.Filter(phases, long))
	k.warm = len(warmTau) * min(len(names), warmKinds)
	k.k = len(k.names) + k.ends + k.warm
	row := make([]float64, k.k)
	ended := 0
	piece := func(at measure.Seconds, kind int) {
		clear(row)
		row[kind] = 1
		k.push(float64(at), row...)
	}
	// A second of rest before the first and behind the last phase bounds the signals.
	end := phases[0].From
	piece(end-1, 0)
	for i, p := range phases {
		to := p.To
		if i+1 < len(phases) {
			to = min(to, phases[i+1].From)
		}
		if !(p.To >= p.From) || i > 0 && p.From < phases[i-1].From {
			return nil, fmt.Errorf("sensor: %w: phase %d (%s, from %v to %v) is not in order", ErrLoad, i+1, p.Name,
				p.From, p.To)
		}
		if p.From > end {
			piece(end, 0)
		}
		piece(p.From, signal[p.Name])
		k.warmUp(row, signal[p.Name], float64(p.From), float64(to-lastOf))
		if long(&p) && to == p.To {
			k.push(float64(to-lastOf), row...)
			k.value[len(k.value)-k.ends-k.warm+ended] = 0.1 / float64(lastOf)
			ended++
		}
		end = to
	}
	piece(end, 0)
	k.close(float64(end) + 1)
	return k, nil
}

// warmUp cuts a kernel of a kind into pieces of its course, the last of which begins before to. The row is
// that of the last.
func (k *Known) warmUp(row []float64, kind int, from, to float64) {
	first := k.k - k.warm + len(warmTau)*(kind-1)
	if kind*len(warmTau) > k.warm {
		return
	}
	for t := 0.0; t < to-from; {
		step := max(warmStep, t/3)
		for i, tau := range warmTau {
			row[first+i] = 1 + math.Exp(-t/tau)*math.Expm1(-step/tau)*tau/step // the mean over the piece
		}
		if t == 0 {
			copy(k.value[len(k.value)-k.k:], row)
		} else {
			k.push(from+t, row...)
		}
		t += step
	}
}

// kinds numbers the names of phases from 1 on by their total time, the longest first;
// those beyond the eighth share the last number. signal is the number of a phase's name.
func kinds(phases []Phase) (names []string, signal map[string]int) {
	took := map[string]float64{}
	for _, p := range phases {
		took[p.Name] += float64(p.To - p.From)
	}
	names = slices.SortedFunc(maps.Keys(took),
		func(a, b string) int { return cmp.Or(cmp.Compare(took[b], took[a]), cmp.Compare(a, b)) })
	signal = map[string]int{}
	for i, n := range names {
		signal[n] = min(i, mostKinds-1) + 1
	}
	if len(names) > mostKinds {
		names = append(names[:mostKinds-1], "other kernels")
	}
	return names, signal
}

// metered reports whether the load is a meter's trace.
func (k *Known) metered() bool { return k.names == nil }
