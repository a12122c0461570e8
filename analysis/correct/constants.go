package correct

import (
	"math"

	"wattmark/analysis/sensor"
	"wattmark/measure"
)

// WithConstants adds to an energy's budget what the uncertainties of a profile's window,
// lag and delay make: energy works it out again under a profile in which one of them
// is off by its standard uncertainty. Where that fails the constant is left out.
func WithConstants(e Energy, p *sensor.Profile, energy func(*sensor.Profile) (Energy, error)) Energy {
	list := e.Budget
	for _, c := range []struct {
		source string
		u      measure.Seconds // k = 2
		of     func(*sensor.Profile) *measure.Seconds
	}{
		{"sensor's window", p.UWindow, func(q *sensor.Profile) *measure.Seconds { return &q.Window }},
		{"sensor's lag", p.UTau, func(q *sensor.Profile) *measure.Seconds { return &q.Tau }},
		{"sensor's delay", p.UDelay, func(q *sensor.Profile) *measure.Seconds { return &q.Delay }},
	} {
		if !(c.u > 0) {
			continue
		}
		q := *p
		*c.of(&q) += c.u / 2
		if other, err := energy(&q); err == nil {
			list = append(list, measure.Contribution{Source: c.source, U: measure.Joule(math.Abs(float64(other.Energy - e.Energy))), Systematic: true})
		}
	}
	e.budget(list)
	return e
}

// SmoothEnergy undoes a window as [Deconvolve] does, and gives a span's energy with
// the profile's own uncertainties in it.
func SmoothEnergy(renewals []Reading, p *sensor.Profile, floor measure.Watt, span Span) (*Smooth, Energy, error) {
	under := func(q *sensor.Profile) (*Smooth, Energy, error) {
		s, err := Deconvolve(renewals, q, p.Period/2, floor)
		if err != nil {
			return nil, Energy{}, err
		}
		e, err := s.Energy(span)
		return s, e, err
	}
	s, e, err := under(p)
	if err != nil {
		return s, e, err
	}
	return s, WithConstants(e, p, func(q *sensor.Profile) (Energy, error) {
		_, e, err := under(q)
		return e, err
	}), nil
}

// LevelsEnergy fits powers as [FindLevels] does, and gives a span's energy with the
// profile's own uncertainties in it.
func LevelsEnergy(renewals []Reading, p *sensor.Profile, activities []Activity, span Span) (*Levels, Energy, error) {
	under := func(q *sensor.Profile) (*Levels, Energy, error) {
		l, err := FindLevels(renewals, q, activities)
		if err != nil {
			return nil, Energy{}, err
		}
		e, err := l.Energy(span)
		return l, e, err
	}
	l, e, err := under(p)
	if err != nil {
		return l, e, err
	}
	return l, WithConstants(e, p, func(q *sensor.Profile) (Energy, error) {
		_, e, err := under(q)
		return e, err
	}), nil
}
