package measure

import "math"

// edgeScans is how many scans are remembered on either side of a window's end.
const edgeScans = 64

// edge remembers the rails' power around one end of the window: how much
// energy a shift of that end gains or loses.
type edge struct {
	at            float64 // ticks
	rails         int
	before, after []float64
	left, right   []float64 // rails a scan, in watts
	head          int       // where the oldest of before is overwritten next
}

func newEdge(at float64, rails int) edge {
	return edge{
		at: at, rails: rails,
		before: make([]float64, 0, edgeScans), after: make([]float64, 0, edgeScans),
		left: make([]float64, edgeScans*rails), right: make([]float64, edgeScans*rails),
	}
}

// observe takes the scans of a block that are near the end.
func (e *edge) observe(s *stretch, rails []railMeter) {
	if len(e.after) == edgeScans {
		return
	}
	mid := s.find(func(t float64) bool { return t >= e.at })
	for i := max(0, mid-edgeScans); i < mid; i++ {
		if len(e.before) < edgeScans {
			e.before = append(e.before, 0)
		}
		e.before[e.head] = s.at(i)
		for r := range rails {
			e.left[e.head*e.rails+r] = rails[r].powerAt(s.cols, i)
		}
		e.head = (e.head + 1) % edgeScans
	}
	for i := mid; i < s.n && len(e.after) < edgeScans; i++ {
		for r := range rails {
			e.right[len(e.after)*e.rails+r] = rails[r].powerAt(s.cols, i)
		}
		e.after = append(e.after, s.at(i))
	}
}

// levels are the mean power before and after an end, in watts.
type levels struct{ before, after float64 }

// mid is the linear part of the sensitivity to a shift, half its asymmetry.
func (l levels) mid() float64  { return (l.before + l.after) / 2 }
func (l levels) half() float64 { return (l.after - l.before) / 2 }

// levels returns the mean power within reach ticks on either side (the nearest
// scan at least) of rail r, or of the sum of all rails for r = −1.
func (e *edge) levels(r int, reach float64) levels {
	before, okB := e.mean(e.before, e.left, r, reach)
	after, okA := e.mean(e.after, e.right, r, reach)
	switch {
	case !okB:
		before = after
	case !okA:
		after = before
	}
	return levels{before, after}
}

func (e *edge) mean(times []float64, power []float64, r int, reach float64) (mean float64, ok bool) {
	reach = max(reach, nearest(times, e.at))
	var s, n float64
	for i, t := range times {
		if math.Abs(t-e.at) <= reach {
			s += e.power(power, i, r)
			n++
		}
	}
	return s / n, n > 0
}

// jump returns how far the power steps between two neighbouring scans, of those
// that reach into reach ticks around the end (the pair across the end at least):
// the largest change less what the changes beside it share, for a ramp over
// several scans is no step. It is of rail r or of the sum of all rails for
// r = −1, in watts.
func (e *edge) jump(r int, reach float64) (most float64) {
	before := len(e.before)
	n := before + len(e.after)
	at := func(i int) (tick, power float64) { // in order of time
		if i < before {
			k := (e.oldest() + i) % before
			return e.before[k], e.power(e.left, k, r)
		}
		return e.after[i-before], e.power(e.right, i-before, r)
	}
	change := func(i int) float64 { // from scan i − 1 to scan i
		if i < 1 || i >= n {
			return 0
		}
		_, p0 := at(i - 1)
		_, p1 := at(i)
		return math.Abs(p1 - p0)
	}
	for i := 1; i < n; i++ {
		t0, _ := at(i - 1)
		t1, _ := at(i)
		if i == before || t1 >= e.at-reach && t0 <= e.at+reach {
			most = max(most, change(i)-max(change(i-1), change(i+1)))
		}
	}
	return most
}

// oldest is the index in before of the oldest scan.
func (e *edge) oldest() int {
	if len(e.before) < edgeScans {
		return 0
	}
	return e.head
}

// power returns the power of a remembered scan, of rail r or of the sum for r = −1.
func (e *edge) power(power []float64, i, r int) float64 {
	if r >= 0 {
		return power[i*e.rails+r]
	}
	var s float64
	for _, p := range power[i*e.rails : (i+1)*e.rails] {
		s += p
	}
	return s
}

// nearest returns the distance of the time that is nearest to at.
func nearest(times []float64, at float64) float64 {
	d := math.Inf(1)
	for _, t := range times {
		d = min(d, math.Abs(t-at))
	}
	return d
}
