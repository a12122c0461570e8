package validate

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"

	"wattmark/measure"
)

// cumulative is the energy that had passed at each of many instants, from one
// pass over samples that are joined by lines (the trapezoid rule, with the ends of
// every span interpolated). The instants are fixed beforehand, so memory does not
// grow with the samples.
type cumulative struct {
	cuts   []float64 // in order, each once
	energy []float64 // that passed since the first sample; NaN outside of the samples
	watts  []float64 // the power there
	next   int       // the first cut that has not been passed

	n           uint64
	first, last Sample
	total       float64
}

// newCumulative takes the instants, which it sorts.
func newCumulative(cuts []float64) *cumulative {
	slices.Sort(cuts)
	c := &cumulative{cuts: slices.Compact(cuts)}
	c.energy, c.watts = make([]float64, len(c.cuts)), make([]float64, len(c.cuts))
	for i := range c.energy {
		c.energy[i], c.watts[i] = math.NaN(), math.NaN()
	}
	return c
}

// add takes the next sample.
func (c *cumulative) add(s Sample) error {
	at, p := float64(s.At), float64(s.Power)
	if math.IsNaN(at+p) || math.IsInf(at+p, 0) {
		return fmt.Errorf("sample %d: %v W at %v s is no finite reading: repair or cut the trace there", c.n+1, p, at)
	}
	if c.n == 0 {
		c.first = s
		for c.next < len(c.cuts) && c.cuts[c.next] < at {
			c.next++
		}
		c.mark(at, 0, p)
	} else {
		t0, p0 := float64(c.last.At), float64(c.last.Power)
		if at < t0 {
			return fmt.Errorf("sample %d at %.6f s comes after one at %.6f s: sort the samples by time", c.n+1, at, t0)
		}
		if at > t0 {
			slope := (p - p0) / (at - t0)
			for c.next < len(c.cuts) && c.cuts[c.next] <= at {
				d := c.cuts[c.next] - t0
				c.energy[c.next] = c.total + d*(p0+slope*d/2)
				c.watts[c.next] = p0 + slope*d
				c.next++
			}
			c.total += (at - t0) * (p0 + p) / 2
		}
	}
	c.last = s
	c.n++
	return nil
}

// mark sets the cuts at the very first sample.
func (c *cumulative) mark(at, energy, p float64) {
	for c.next < len(c.cuts) && c.cuts[c.next] == at {
		c.energy[c.next], c.watts[c.next] = energy, p
		c.next++
	}
}

// hold carries the first and the last sample on by at most reach, for cuts that
// lie that little beyond them.
func (c *cumulative) hold(reach float64) {
	if c.n == 0 {
		return
	}
	for i := sort.SearchFloat64s(c.cuts, float64(c.first.At)-reach); i < len(c.cuts) && c.cuts[i] < float64(c.first.At); i++ {
		c.energy[i], c.watts[i] = (c.cuts[i]-float64(c.first.At))*float64(c.first.Power), float64(c.first.Power)
	}
	for i := sort.SearchFloat64s(c.cuts, float64(c.last.At)); i < len(c.cuts) && c.cuts[i] <= float64(c.last.At)+reach; i++ {
		if c.cuts[i] > float64(c.last.At) {
			c.energy[i], c.watts[i] = c.total+(c.cuts[i]-float64(c.last.At))*float64(c.last.Power), float64(c.last.Power)
		}
	}
}

// at returns the energy at an instant that is one of the cuts.
func (c *cumulative) at(t float64) float64 {
	i := sort.SearchFloat64s(c.cuts, t)
	if i == len(c.cuts) || c.cuts[i] != t {
		return math.NaN()
	}
	return c.energy[i]
}

// between returns the energy of a span whose ends are cuts.
func (c *cumulative) between(from, to float64) float64 { return c.at(to) - c.at(from) }

// over adds all of a sequence.
func (c *cumulative) over(seq iter.Seq2[Sample, error], each func(Sample)) error {
	for s, err := range seq {
		if err == nil {
			err = c.add(s)
		}
		if err != nil {
			return err
		}
		each(s)
	}
	return nil
}

// cells returns the energies between neighbouring cuts from one to another.
func (c *cumulative) cells(edges []float64) []float64 {
	out := make([]float64, len(edges)-1)
	last := c.at(edges[0])
	for i := range out {
		next := c.at(edges[i+1])
		out[i], last = next-last, next
	}
	return out
}

// ofReadings runs a method's readings through the same cuts; a single reading
// stands for all time.
func ofReadings(cuts []float64, r []Reading, reach float64) *cumulative {
	c := &cumulative{cuts: cuts, energy: make([]float64, len(cuts)), watts: make([]float64, len(cuts))}
	for i := range c.energy {
		c.energy[i], c.watts[i] = math.NaN(), math.NaN()
	}
	for _, x := range r {
		_ = c.add(Sample(x)) // checked before
	}
	if len(r) == 1 {
		reach = math.Inf(1)
	}
	c.hold(reach)
	return c
}

func seconds(v float64) measure.Seconds { return measure.Seconds(v) }
