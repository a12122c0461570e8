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
	nearest := math.Inf(1)
	for _, t := range times {
		nearest = min(nearest, math.Abs(t-e.at))
	}
	reach = max(reach, nearest)
	var s, n float64
	for i, t := range times {
		if math.Abs(t-e.at) > reach {
			continue
		}
		n++
		if r >= 0 {
			s += power[i*e.rails+r]
			continue
		}
		for _, p := range power[i*e.rails : (i+1)*e.rails] {
			s += p
		}
	}
	return s / n, n > 0
}
