package measure

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Part is a window of a combination, with the weight of its energy.
type Part struct {
	Window *Integrator
	Edges  Edges
	Weight float64
}

// Combined is Σ weight·energy over windows that one setup measured.
type Combined struct {
	Energy Estimate
	Budget []Contribution
	terms  terms
}

// ErrCombine: the windows cannot be combined.
var ErrCombine = errors.New("windows that do not belong together")

// Combine adds the energies of windows, each times its weight: a difference
// where weights are negative. What the windows share is one unknown: a gain, an
// offset, a shunt, the tick rate bears on the sum of the weighted integrals, so
// that it is subtracted before it is squared (GUM, 5.2.2; an offset cancels as
// far as the weighted durations do, a gain as far as the energies do). Noise,
// rounding, gaps, and where the windows begin and end are new in each window and
// are added by squares. Skews, whose sign is not known, are added by amounts.
// Errors wrap ErrCombine, or are those of Integrator.Result.
func Combine(parts []Part) (Combined, error) {
	var out Combined
	if len(parts) == 0 {
		return out, fmt.Errorf("combine: %w: there is none", ErrCombine)
	}
	c := combiner{moments: make([]Moments, len(parts[0].Window.setup.Rails)), lines: map[string]int{}}
	var first *Integrator
	for i, p := range parts {
		g, err := p.Window.ready()
		if err = errors.Join(p.Edges.validate(), err); err != nil {
			return out, fmt.Errorf("combine: window %d: %w", i+1, err)
		}
		first = cmp.Or(first, g)
		if !slices.Equal(first.setup.Rails, g.setup.Rails) || !slices.Equal(first.setup.Channels, g.setup.Channels) {
			return out, fmt.Errorf("combine: window %d: %w: it was measured under another setup", i+1, ErrCombine)
		}
		c.take(g, p)
	}
	c.shared(first)
	out.Energy.Energy, out.terms = Joule(c.energy.Value()), c.terms
	out.Energy.U, out.Budget = expand(out.terms)
	return out, nil
}

// WithScatter takes the observed scatter of repetitions, with its degrees of
// freedom (GUM, 4.2), in place of the lines of errors that are new in each
// window: noise, rounding, sampling and gaps. What the windows share, and where
// they begin and end, stays.
func (c Combined) WithScatter(source string, u Joule, dof float64) Combined {
	seen := func(t term) bool { return newEachWindow(t.Source) && t.Source != "window edges" }
	c.terms = append(slices.DeleteFunc(slices.Clone(c.terms), seen), term{Contribution{Source: source, U: u}, dof})
	c.Energy.U, c.Budget = expand(c.terms)
	return c
}

// newEachWindow reports whether a line of a window's budget is independent of
// the same line of another window.
func newEachWindow(source string) bool {
	own := []string{"noise ", "quantisation ", "sampling", "window sampling", "window edges", "gaps"}
	return slices.ContainsFunc(own, func(p string) bool { return strings.HasPrefix(source, p) })
}

// combiner adds windows up.
type combiner struct {
	energy  Sum
	moments []Moments // by rail, weighted
	terms   terms
	lines   map[string]int // index in terms by source
}

// take adds a window: its weighted moments, and the lines that are its own.
func (c *combiner) take(g *Integrator, p Part) {
	var total float64
	for r := range g.setup.Rails {
		c.moments[r] = c.moments[r].plus(g.Moments(r), p.Weight)
		rail, own := g.rail(r, p.Edges)
		total += float64(rail.Energy.Energy)
		for _, t := range own {
			switch {
			case newEachWindow(t.Source):
				c.bySquares(t, p.Weight)
			case strings.HasPrefix(t.Source, "skew "): // by amounts
				l := c.line(t)
				l.U += Joule(math.Abs(p.Weight)) * t.U
				l.Systematic = true
			}
		}
	}
	c.energy.Add(p.Weight * total)
	for _, t := range g.common(-1, &g.total, total, p.Edges) {
		if newEachWindow(t.Source) {
			c.bySquares(t, p.Weight)
		}
	}
}

// shared adds the lines of the unknowns that all windows share.
func (c *combiner) shared(g *Integrator) {
	for r := range g.setup.Rails {
		st := g.stats(r)
		st.m = c.moments[r]
		for _, t := range st.budget() {
			if !newEachWindow(t.Source) {
				c.terms = append(c.terms, t)
			}
		}
	}
	c.terms.add("tick rate", g.setup.Timebase.UTickHz*c.energy.Value(), true)
}

func (c *combiner) line(t term) *term {
	i, ok := c.lines[t.Source]
	if !ok {
		i = len(c.terms)
		c.lines[t.Source] = i
		t.U, t.dof, t.Systematic = 0, 0, false
		c.terms = append(c.terms, t)
	}
	return &c.terms[i]
}

// bySquares adds an independent line; the degrees of freedom are Welch's and
// Satterthwaite's.
func (c *combiner) bySquares(t term, w float64) {
	l := c.line(t)
	old, add := float64(l.U)*float64(l.U), w*w*float64(t.U)*float64(t.U)
	if old+add == 0 {
		return
	}
	var quartic float64
	if l.dof > 0 {
		quartic += old * old / l.dof
	}
	if t.dof > 0 {
		quartic += add * add / t.dof
	}
	if quartic > 0 {
		l.dof = (old + add) * (old + add) / quartic
	}
	l.U = Joule(math.Sqrt(old + add))
}

// plus returns m + k·n.
func (m Moments) plus(n Moments, k float64) Moments {
	return Moments{
		One: m.One + Seconds(k)*n.One, X: m.X + k*n.X, Y: m.Y + k*n.Y,
		XX: m.XX + k*n.XX, XY: m.XY + k*n.XY, YY: m.YY + k*n.YY,
	}
}
