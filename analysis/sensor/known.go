package sensor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"wattmark/measure"
)

// Phase is a time during which one kind of work ran.
type Phase struct {
	Name     string
	From, To measure.Seconds
}

// Known is what is known of the load: signals that stay the same from one change
// to the next, whose weighted sum is the power. Of kernel events there is one
// signal for each kind of work, which is one while it runs; the weights are the
// levels, and are fitted. Of a meter's trace the signals are its watts and one, and
// the weights are the sensor's gain and offset.
type Known struct {
	at    []float64 // pieces begin here; the last is the end
	k     int
	value []float64 // [piece·k + signal]
	sum   []float64 // integrals before each of at
	names []string  // of the levels; none for a meter
	// Signals beyond the levels are what a long kernel's end may have drawn otherwise.
	ends int
}

// rest is the kind of load while nothing is said to run.
const rest = "no kernel"

// mostKinds bounds the number of levels that are fitted; what runs least is one
// kind together.
const mostKinds = 8

// A kernel that lasts a good part of a recording ends piecemeal: its last blocks do
// not keep the GPU busy. Were it taken to draw the same up to its last moment, what
// the sensor says behind its end would be read as the sensor's haste. So the energy
// of its last milliseconds is an unknown of its own.
const (
	longKernel = measure.Seconds(1)
	lastOf     = measure.Seconds(5e-3)
)

// FromMeter takes a meter's trace as the load.
func FromMeter(l *Load) *Known {
	k := &Known{k: 2}
	for i, w := range l.watts {
		k.push(float64(l.at[i]), float64(w), 1)
	}
	k.close(float64(l.End()))
	return k
}

// FromPhases takes phases in ascending order as the load; where none runs, the
// load is one of its own. Where two overlap, the later one counts. Phases of a
// name are taken to draw the same power, but for the very end of a long one.
func FromPhases(phases []Phase) (*Known, error) {
	if len(phases) == 0 {
		return nil, fmt.Errorf("sensor: %w: no kernel ran", ErrLoad)
	}
	index := kinds(phases)
	k := &Known{names: append([]string{rest}, index.names...)}
	span := phases[len(phases)-1].To - phases[0].From
	long := func(p Phase) bool { return p.To-p.From >= max(span/5, longKernel) }
	for _, p := range phases {
		if long(p) {
			k.ends++
		}
	}
	k.k = len(k.names) + k.ends
	row := make([]float64, k.k)
	ended := 0
	piece := func(at measure.Seconds, kind int) {
		clear(row)
		row[kind] = 1
		k.push(float64(at), row...)
	}
	end := phases[0].From
	piece(end-1, 0)
	for i, p := range phases {
		to := p.To
		if i+1 < len(phases) {
			to = min(to, phases[i+1].From)
		}
		if !(p.To >= p.From) || i > 0 && p.From < phases[i-1].From {
			return nil, fmt.Errorf("sensor: %w: phase %d (%s, from %v to %v) is not in order", ErrLoad, i+1, p.Name, p.From, p.To)
		}
		if p.From > end {
			piece(end, 0)
		}
		piece(p.From, index.of[p.Name])
		if long(p) && to == p.To {
			k.push(float64(to-lastOf), row...)
			k.value[len(k.value)-k.ends+ended] = 0.1 / float64(lastOf)
			ended++
		}
		end = to
	}
	piece(end, 0)
	k.close(float64(end) + 1)
	return k, nil
}

type kindIndex struct {
	names []string
	of    map[string]int // signal of a phase's name
}

func kinds(phases []Phase) kindIndex {
	took := map[string]float64{}
	for _, p := range phases {
		took[p.Name] += float64(p.To - p.From)
	}
	var x kindIndex
	for n := range took {
		x.names = append(x.names, n)
	}
	slices.SortFunc(x.names, func(a, b string) int { return cmp.Or(cmp.Compare(took[b], took[a]), cmp.Compare(a, b)) })
	x.of = map[string]int{}
	for i, n := range x.names {
		x.of[n] = min(i, mostKinds-1) + 1
	}
	if len(x.names) > mostKinds {
		x.names = append(x.names[:mostKinds-1], "other kernels")
	}
	return x
}

func (k *Known) push(at float64, row ...float64) {
	n := len(k.at)
	if n == 0 {
		k.sum = make([]float64, k.k)
	} else {
		k.integrate(at - k.at[n-1])
	}
	k.at = append(k.at, at)
	k.value = append(k.value, row...)
}

func (k *Known) close(at float64) {
	k.integrate(at - k.at[len(k.at)-1])
	k.at = append(k.at, at)
}

func (k *Known) integrate(d float64) {
	last := k.sum[len(k.sum)-k.k:]
	v := k.value[len(k.value)-k.k:]
	for i := range k.k {
		k.sum = append(k.sum, last[i]+d*v[i])
	}
}

// metered tells whether the load is a meter's trace.
func (k *Known) metered() bool { return k.names == nil }

func (k *Known) pieces() int { return len(k.at) - 1 }

func (k *Known) piece(t float64) int {
	i := sort.Search(len(k.at), func(i int) bool { return k.at[i] > t }) - 1
	return max(0, min(i, k.pieces()-1))
}

// columns fills out, one row of k for each instant, with what a sensor of gain one
// sees of each signal. The instants ascend.
func (k *Known) columns(r response, at []float64, out []float64) {
	if r.model == FirstOrder && r.constant > 0 {
		k.lagged(r, at, out)
		return
	}
	w, d := float64(r.constant), float64(r.delay)
	if len(at) == 0 {
		return
	}
	p, q := k.piece(at[0]-d), k.piece(at[0]-d-w)
	for i, t := range at {
		row := out[i*k.k : (i+1)*k.k]
		to := t - d
		p = k.after(p, to)
		if w <= 0 {
			copy(row, k.value[p*k.k:(p+1)*k.k])
			continue
		}
		from := to - w
		q = k.after(q, from)
		tail, head := to-k.at[p], from-k.at[q]
		for j := range row {
			row[j] = (k.sum[p*k.k+j] + tail*k.value[p*k.k+j] - k.sum[q*k.k+j] - head*k.value[q*k.k+j]) / w
		}
	}
}

// after is the piece of an instant at or after the beginning of piece p.
func (k *Known) after(p int, t float64) int {
	for n := 0; p+1 < k.pieces() && k.at[p+1] <= t; n++ {
		if p++; n > 8 {
			return k.piece(t)
		}
	}
	return p
}

func (k *Known) lagged(r response, at []float64, out []float64) {
	tau, d := float64(r.constant), float64(r.delay)
	y := append(make([]float64, 0, 16), k.value[:k.k]...)
	piece, step, decay := 0, -1.0, 0.0
	for i, t := range at {
		t -= d
		for piece+1 < k.pieces() && k.at[piece+1] <= t {
			if s := k.at[piece+1] - k.at[piece]; math.Abs(s-step) > 1e-12 { // a meter's steps are alike
				step, decay = s, math.Exp(-s/tau)
			}
			for j, v := range k.value[piece*k.k : (piece+1)*k.k] {
				y[j] = v + (y[j]-v)*decay
			}
			piece++
		}
		e := math.Exp(-max(t-k.at[piece], 0) / tau)
		row := out[i*k.k : (i+1)*k.k]
		for j, v := range k.value[piece*k.k : (piece+1)*k.k] {
			row[j] = v + (y[j]-v)*e
		}
	}
}
