package measure

import (
	"math"
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
	at            float64 // ticks
	rails         []railMeter
	shift         []float64 // by rail: ticks of its readings behind their scan's
	scans         int       // remembered on either side
	before, after []float64
	left, right   []pair // the rails' readings, scan by scan
	head          int    // where the oldest of before is overwritten next
}

func newEdge(at float64, rails []railMeter, shift []float64, scans int) edge {
	return edge{
		at: at, rails: rails, shift: shift, scans: scans,
		before: make([]float64, 0, scans), after: make([]float64, 0, scans),
		left: make([]pair, scans*len(rails)), right: make([]pair, scans*len(rails)),
	}
}

// observe takes the scans of a block that are near the end.
func observe[T reading](e *edge, s *stretch[T]) {
	if len(e.after) == e.scans {
		return
	}
	n := len(e.rails)
	mid := s.find(func(t float64) bool { return t >= e.at })
	for i := max(0, mid-e.scans); i < mid; i++ {
		if len(e.before) < e.scans {
			e.before = append(e.before, 0)
		}
		e.before[e.head] = s.at(i)
		for r := range e.rails {
			e.left[e.head*n+r] = pairAt(&e.rails[r], s.cols, i)
		}
		e.head = (e.head + 1) % e.scans
	}
	for i := mid; i < s.n && len(e.after) < e.scans; i++ {
		for r := range e.rails {
			e.right[len(e.after)*n+r] = pairAt(&e.rails[r], s.cols, i)
		}
		e.after = append(e.after, s.at(i))
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
	n, at := len(e.before)+len(e.after), e.of(r)
	mid := sort.Search(n, func(i int) bool { return e.tick(i) >= at })
	return e.power(max(mid-1, 0), r), e.power(min(mid, n-1), r)
}

// shifts is how much energy a shift of an end passes over, by the shift: the
// trace on either side, seen from the end. The nearest reading goes on to the
// end itself: a step across the end is one, not a ramp.
type shifts struct{ left, right reach }

// reach is one side: distances from the end, the power there and the energy up
// to there.
type reach struct{ at, power, energy []float64 }

func (e *edge) shifts(r int) (out shifts) {
	n, at := len(e.before)+len(e.after), e.of(r)
	mid := sort.Search(n, func(i int) bool { return e.tick(i) >= at })
	for i := mid - 1; i >= 0; i-- {
		out.left.grow(at-e.tick(i), e.power(i, r))
	}
	for i := mid; i < n; i++ {
		out.right.grow(e.tick(i)-at, e.power(i, r))
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

// jump returns how far the power steps between two neighbouring scans, of those
// that reach into reach ticks around the end (the pair across the end at least),
// in watts, of rail r or of the sum of all rails for r = −1.
func (e *edge) jump(r int, reach float64) (most float64) {
	at := e.of(r)
	for i := 1; i < len(e.before)+len(e.after); i++ {
		t0, t1 := e.tick(i-1), e.tick(i)
		if t0 < at && t1 >= at || t1 >= at-reach && t0 <= at+reach {
			most = max(most, e.step(i, r))
		}
	}
	return most
}

// inner returns the sum of squares of the steps that jump looks at and that lie
// between two scans of [lo, hi] ticks, in W².
func (e *edge) inner(r int, reach, lo, hi float64) (squares float64) {
	at := e.of(r)
	for i := 1; i < len(e.before)+len(e.after); i++ {
		t0, t1 := e.tick(i-1), e.tick(i)
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
	n := len(e.before) + len(e.after)
	change := func(i int) float64 {
		if i < 1 || i >= n {
			return 0
		}
		return math.Abs(e.power(i, r) - e.power(i-1, r))
	}
	return max(change(i)-max(change(i-1), change(i+1)), 0)
}

// place returns where the remembered scan i, in order of time, is kept: the oldest of before lies at head, or
// at 0 while head is behind the last one.
func (e *edge) place(i int) (k int, times []float64, readings []pair) {
	if n := len(e.before); i < n {
		return (e.head + i) % n, e.before, e.left
	}
	return i - len(e.before), e.after, e.right
}

// tick returns the time of the remembered scan i.
func (e *edge) tick(i int) float64 {
	k, times, _ := e.place(i)
	return times[k]
}

// power returns the power of the remembered scan i, of rail r or of the sum for
// r = −1.
func (e *edge) power(i, r int) (p float64) {
	k, _, readings := e.place(i)
	if n := len(e.rails); r >= 0 {
		return e.rails[r].power(readings[k*n+r])
	}
	for r := range e.rails {
		p += e.rails[r].power(readings[k*len(e.rails)+r])
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
	n := len(e.before) + len(e.after)
	put := func(p pair, w float64) {
		if w > 0 {
			out = out.plus(sumsOf(p, e.rails[r].power(p)), sign*w)
		}
	}
	var t0 float64
	var p0 pair
	for i := range n {
		k, times, readings := e.place(i)
		t1, p1 := times[k], readings[k*len(e.rails)+r]
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
	if n > 0 {
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
