package board

import (
	"fmt"
	"math"
	"time"
)

// Edge is how power follows a change of the load: a polyline from no part of the change at the change
// itself to all of it at the last knot. Parts may exceed 1 on the way: cards overshoot.
type Edge []Knot

// Knot is the part of a change that is done a time after it.
type Knot struct {
	After time.Duration
	Part  float64
}

// Edges are the rises and falls of cards, by name. "ramp" has the widths found in the public recordings
// of an RTX 3090, "stacked" is the mean of 80 edges of each direction in 3090-square laid over each other
// (arXiv 2312.02741); "two-step" is made up. "exponential" is the first-order slew of Config.
var Edges = map[string][2]Edge{
	"exponential": {},
	"ramp":        {{{250 * time.Microsecond, 1}}, {{900 * time.Microsecond, 1}}},
	"two-step": {
		edge(0.05, 0.6, 0.3, 0.65, 0.35, 1),
		edge(0.1, 0.4, 0.5, 0.5, 0.6, 1),
	},
	"stacked": {
		edge(0.11, 0.316, 0.21, 0.759, 0.31, 0.875, 0.41, 0.917, 0.51, 0.968, 0.61, 1.004, 0.71, 1.019, 0.91, 1,
			1.01, 0.985, 1.2, 1),
		edge(0.15, 0.045, 0.25, 0.087, 0.35, 0.124, 0.65, 0.175, 0.75, 0.248, 0.85, 0.347, 0.95, 0.422, 1.05, 0.562,
			1.15, 0.7, 1.25, 0.884, 1.35, 0.939, 1.45, 0.969, 1.6, 1.01, 1.75, 1.04, 1.9, 1),
	},
}

// edge makes an edge of pairs of milliseconds and parts.
func edge(pairs ...float64) (e Edge) {
	for i := 0; i < len(pairs); i += 2 {
		e = append(e, Knot{time.Duration(pairs[i] * float64(time.Millisecond)), pairs[i+1]})
	}
	return e
}

// leg returns the ends of a straight part, counted from 0. Behind the last knot both are that knot.
func (e Edge) leg(k int) (from, to Knot) {
	if k > 0 {
		from = e[k-1]
	}
	if k < len(e) {
		return from, e[k]
	}
	return from, from
}

// segments returns the segments of a change to a level: one for each straight part and one behind
// them, or one of first-order slew.
func (e Edge) segments(at time.Duration, level float64) []segment {
	out := []segment{{start: at, target: level, edge: e}}
	for k := range e {
		out = append(out, segment{start: at + e[k].After, target: level, edge: e, leg: k + 1})
	}
	return out
}

// validate checks that knots follow each other and end at the whole change, within 10 ms.
func (e Edge) validate() error {
	last := Knot{Part: 1}
	for i, k := range e {
		if k.After <= last.After || k.After > 10*time.Millisecond || math.IsNaN(k.Part) || math.Abs(k.Part) > 2 {
			return fmt.Errorf("board: knot %d of an edge, %v of the change after %v: knots must follow each other within 10 ms",
				i, k.Part, k.After)
		}
		last = k
	}
	if last.Part != 1 {
		return fmt.Errorf("board: an edge ends at %v of the change: must be 1", last.Part)
	}
	return nil
}
