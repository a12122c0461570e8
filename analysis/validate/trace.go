package validate

import (
	"math"
	"slices"

	"wattmark/measure"
)

// tracer keeps the least and the largest sample of each column.
type tracer struct {
	edges    []float64
	min, max []float64
}

func newTrace(edges []float64) *tracer {
	n := len(edges) - 1
	return &tracer{edges: edges, min: constant(math.Inf(1), n), max: constant(math.Inf(-1), n)}
}

func (t *tracer) add(s Sample) {
	n := len(t.min)
	from, to := t.edges[0], t.edges[n]
	at, p := float64(s.At), float64(s.Power)
	if at < from || at >= to {
		return
	}
	c := min(n-1, int(float64(n)*(at-from)/(to-from)))
	t.min[c], t.max[c] = min(t.min[c], p), max(t.max[c], p)
}

// finish adds the means; a column without samples has what the line between its
// neighbours says.
func (t *tracer) finish(c *cumulative) Trace {
	n := len(t.min)
	out := Trace{From: seconds(t.edges[0]), To: seconds(t.edges[n]), Columns: make([]Column, n)}
	for i := range out.Columns {
		mean := c.between(t.edges[i], t.edges[i+1]) / (t.edges[i+1] - t.edges[i])
		lo, hi := t.min[i], t.max[i]
		if lo > hi {
			lo, hi = mean, mean
		}
		out.Columns[i] = Column{measure.Watt(mean), measure.Watt(min(lo, mean)), measure.Watt(max(hi, mean))}
	}
	return out
}

// thin keeps what of a method's readings is near the work, at most as many as a
// plot can show: beyond that the first, least, largest and last of each stretch. A
// reading holds until the next one, so one before and one behind belong to them.
func thin(r []Reading, from, to float64, most int) []Reading {
	first, end := 0, len(r)
	for first+1 < len(r) && float64(r[first+1].At) < from {
		first++
	}
	for end-2 >= first && float64(r[end-2].At) > to {
		end--
	}
	in := r[first:end]
	if len(in) == 1 && !(float64(in[0].At) >= from && float64(in[0].At) <= to) {
		return nil // all of them lie on one side
	}
	if len(in) <= most {
		return slices.Clone(in)
	}
	step := (len(in) + most/4 - 1) / (most / 4)
	var out []Reading
	for i := 0; i < len(in); i += step {
		part := in[i:min(i+step, len(in))]
		lo, hi := 0, 0
		for j, x := range part {
			if x.Power < part[lo].Power {
				lo = j
			}
			if x.Power > part[hi].Power {
				hi = j
			}
		}
		last := -1
		for _, j := range []int{0, min(lo, hi), max(lo, hi), len(part) - 1} {
			if j > last {
				out, last = append(out, part[j]), j
			}
		}
	}
	return out
}
