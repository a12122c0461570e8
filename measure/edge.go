package measure

import (
	"math"
	"slices"
	"sort"
)

// How a card's power follows a kernel, one statement for markers, clocks and sensors.
const (
	// PowerSettles is when power has followed a change of the load: the slowest recorded card's, within 1.9 ms.
	PowerSettles Seconds = 2e-3
	// UPowerDelay is the standard uncertainty of the begin of the power's response behind the kernel's time stamp. It
	// is an estimate: a regulator's input current follows its load within its switching period
	// and input filter, some 10 µs, and %globaltimer of an H200 steps by 1 µs or less. The public
	// recordings cannot show it: their clocks were related by hand (arXiv 2312.02741).
	UPowerDelay Seconds = 20e-6
	// UPowerResponse is the standard uncertainty of the mean delay of the response, from its begin to its middle, which
	// an average over a longer window cannot show: recorded cards rise within 0.1 to 0.4 ms and fall within
	// 0.3 to 1.9 ms (3090-square, a100-step).
	UPowerResponse Seconds = 0.25e-3
)

// edgeScans is how many scans are remembered on either side of a window's end.
const edgeScans = 64

// edge remembers the rails' readings around one end of the window: how much
// energy a shift of that end gains or loses.
type edge struct {
	at       float64 // ticks
	rails    []railMeter
	shift    []float64 // by rail: ticks of its readings behind their scan's
	scans    int       // remembered on either side, at most
	ticks    []float64 // of the scans remembered
	readings []pair    // the rails', scan by scan
	after    int       // how many scans do not lie before the end
}

// observe takes the scans of a block that are near the end.
func observe[T reading](e *edge, s *stretch[T]) {
	if e.after == e.scans {
		return
	}
	mid := s.find(func(t float64) bool { return t >= e.at })
	end := min(s.n, mid+e.scans-e.after)
	for i := max(0, mid-e.scans); i < end; i++ {
		e.ticks = append(e.ticks, s.at(i))
		for r := range e.rails {
			e.readings = append(e.readings, pairAt(&e.rails[r], s.cols, i))
		}
	}
	e.after += end - mid
	if old := len(e.ticks) - e.after - e.scans; old > 0 {
		e.ticks, e.readings = slices.Delete(e.ticks, 0, old), slices.Delete(e.readings, 0, old*len(e.rails))
	}
}

// of returns the end's tick for the readings of rail r: those lie their skew
// behind their scan's tick. The sum of all rails, r = −1, has the mean of it.
func (e *edge) of(r int) float64 {
	if r >= 0 {
		return e.at - e.shift[r]
	}
	var s float64
	for _, d := range e.shift {
		s += d
	}
	return e.at - s/float64(len(e.shift))
}

// beside returns the power of rail r, or of the sum for r = −1, at the scans on
// either side of the end; where there is none on one side, that of the other.
func (e *edge) beside(r int) (before, after float64) {
	mid := sort.SearchFloat64s(e.ticks, e.of(r))
	return e.power(max(mid-1, 0), r), e.power(min(mid, len(e.ticks)-1), r)
}

// shifts is how much energy a shift of an end passes over, by the shift: the
// trace on either side, seen from the end. The nearest reading goes on to the
// end itself: a step across the end is one, not a ramp.
type shifts struct{ left, right reach }

// reach is one side: distances from the end, the power there and the energy up
// to there.
type reach struct{ at, power, energy []float64 }

func (e *edge) shifts(r int) (out shifts) {
	n, at := len(e.ticks), e.of(r)
	mid := sort.SearchFloat64s(e.ticks, at)
	for i := mid - 1; i >= 0; i-- {
		out.left.grow(at-e.ticks[i], e.power(i, r))
	}
	for i := mid; i < n; i++ {
		out.right.grow(e.ticks[i]-at, e.power(i, r))
	}
	switch mid { // no data on one side: it is as on the other
	case 0:
		out.left.grow(0, e.power(0, r))
	case n:
		out.right.grow(0, e.power(n-1, r))
	}
	return out
}

// grow adds the next reading away from the end.
func (s *reach) grow(at, power float64) {
	if len(s.at) == 0 {
		s.at, s.power, s.energy = append(s.at, 0), append(s.power, power), append(s.energy, 0)
	}
	n := len(s.at) - 1
	s.energy = append(s.energy, s.energy[n]+(at-s.at[n])*(s.power[n]+power)/2)
	s.at, s.power = append(s.at, at), append(s.power, power)
}

// by returns the energy between the end and the end shifted by d ticks, in
// watt·ticks, negative for a shift back. Beyond the remembered scans the power
// stays.
func (s *shifts) by(d float64) float64 {
	side, sign := &s.right, 1.0
	switch {
	case d == 0:
		return 0
	case d < 0:
		side, sign, d = &s.left, -1, -d
	}
	i := max(sort.SearchFloat64s(side.at, d)-1, 0)
	p, x := side.power[i], d-side.at[i]
	if i+1 < len(side.at) {
		p += (side.power[i+1] - p) * x / (side.at[i+1] - side.at[i]) / 2
	}
	return sign * (side.energy[i] + p*x)
}

// jump returns how far the power steps, and how far it changes, between two neighbouring scans, of those
// that reach into reach ticks around the end (the pair across the end at least),
// in watts, of rail r or of the sum of all rails for r = −1.
func (e *edge) jump(r int, reach float64) (step, change float64) {
	at := e.of(r)
	for i := 1; i < len(e.ticks); i++ {
		t0, t1 := e.ticks[i-1], e.ticks[i]
		if t0 < at && t1 >= at || t1 >= at-reach && t0 <= at+reach {
			step, change = max(step, e.step(i, r)), max(change, math.Abs(e.power(i, r)-e.power(i-1, r)))
		}
	}
	return step, change
}

// change returns the difference of the power at reach ticks on either side of the end, in watts, of rail r or of the
// sum of all rails for r = −1.
func (e *edge) change(r int, reach float64) float64 {
	at, last := e.of(r), len(e.ticks)-1
	if reach == 0 || last < 0 {
		return 0
	}
	i := max(sort.SearchFloat64s(e.ticks, at-reach)-1, 0)
	j := min(sort.SearchFloat64s(e.ticks, at+reach), last)
	return math.Abs(e.power(j, r) - e.power(i, r))
}

// inner returns the sum of squares of the steps that jump looks at and that lie
// between two scans of [lo, hi] ticks, in W².
func (e *edge) inner(r int, reach, lo, hi float64) (squares float64) {
	at := e.of(r)
	for i := 1; i < len(e.ticks); i++ {
		t0, t1 := e.ticks[i-1], e.ticks[i]
		if t0 >= lo && t1 <= hi && t1 >= at-reach && t0 <= at+reach {
			s := e.step(i, r)
			squares += s * s
		}
	}
	return squares
}

// step returns how far the power steps from the remembered scan i − 1 to scan i:
// the change less the larger of the changes beside it, for a ramp over several scans
// is no step. It is of rail r or of the sum for r = −1, in watts.
func (e *edge) step(i, r int) float64 {
	change := func(i int) float64 {
		if i < 1 || i >= len(e.ticks) {
			return 0
		}
		return math.Abs(e.power(i, r) - e.power(i-1, r))
	}
	return max(change(i)-max(change(i-1), change(i+1)), 0)
}

// power returns the power of the remembered scan i, of rail r or of the sum for
// r = −1.
func (e *edge) power(i, r int) (p float64) {
	readings := e.readings[i*len(e.rails):]
	if r >= 0 {
		return e.rails[r].power(readings[r])
	}
	for r := range e.rails {
		p += e.rails[r].power(readings[r])
	}
	return p
}

// span integrates the readings of rail r from tick a to tick b, which lie within
// the remembered scans; beyond the data its first and its last scan go on.
func (e *edge) span(r int, a, b float64) (out groupSums) {
	sign := 1.0
	if b < a {
		a, b, sign = b, a, -1
	}
	put := func(p pair, w float64) {
		if w > 0 {
			out = out.plus(sumsOf(p, e.rails[r].power(p)), sign*w)
		}
	}
	var t0 float64
	var p0 pair
	for i, t1 := range e.ticks {
		p1 := e.readings[i*len(e.rails)+r]
		switch from, to := max(a, t0), min(b, t1); {
		case i == 0:
			put(p1, min(b, t1)-a)
		case to > from:
			k := (to - from) / (2 * (t1 - t0))
			put(p0, k*((t1-from)+(t1-to)))
			put(p1, k*((from-t0)+(to-t0)))
		}
		t0, p0 = t1, p1
	}
	if len(e.ticks) > 0 {
		put(p0, b-max(a, t0))
	}
	return out
}

// jumps sums the energy that sampling may hide between the scans. The trapezoid rule turns a
// step of ΔP between two readings Δt apart into a ramp, and is wrong by
// ΔP·Δt/√12 rms, as the step may lie anywhere between them. What counts as a step
// is a change less the larger of its two neighbours: of a ramp over several
// readings, or of a ripple that the scans follow, the rule hides far less (for a
// kink of slope s it is within s·Δt²/8).
type jumps struct {
	begun       bool
	last        float64 // the reading before
	older, late float64 // the changes before last and to last, not below zero
	squares     float64 // of the steps, in W²
}

// take adds the next readings of a run. They are summed one by one, so that how
// the run was cut does not matter.
func (j *jumps) take(p []float64) {
	if len(p) == 0 {
		return
	}
	if !j.begun {
		*j = jumps{begun: true, last: p[0], squares: j.squares}
	}
	// Floats that are not negative are in the order of their bits, and whole numbers
	// are compared without a branch.
	last, squares := j.last, j.squares
	older, late := math.Float64bits(j.older), math.Float64bits(j.late)
	for _, v := range p {
		change := math.Float64bits(math.Abs(v - last))
		step := math.Float64frombits(late) - math.Float64frombits(min(late, max(older, change)))
		squares += step * step
		last, older, late = v, late, change
	}
	j.last, j.squares = last, squares
	j.older, j.late = math.Float64frombits(older), math.Float64frombits(late)
}

// end closes a run: a gap follows, or the end of the window. The change across it
// is no step between neighbours.
func (j *jumps) end() {
	j.squares = j.sum()
	*j = jumps{squares: j.squares}
}

// sum is the sum of squares of all steps, as if the run ended here.
func (j *jumps) sum() float64 {
	step := max(j.late-j.older, 0)
	return j.squares + step*step
}
