package validate

import (
	"errors"
	"fmt"
	"math"
)

// ErrSubject is wrapped by errors about subjects that cannot be judged.
var ErrSubject = errors.New("cannot be validated")

func (s *Subject) refuse(format string, a ...any) error {
	return fmt.Errorf("%s: %w: %w", s.Name, ErrSubject, fmt.Errorf(format, a...))
}

// check refuses what no verdict can follow from.
func (s *Subject) check() error {
	from, to := float64(s.Work.From), float64(s.Work.To)
	switch {
	case s.Truth == nil:
		return s.refuse("it has no samples of a meter: measure it beside one (wattmark run with a monitor)")
	case math.IsNaN(from+to) || math.IsInf(from+to, 0):
		return s.refuse("its work lies from %v s to %v s: give it a window (wattmark trim)", from, to)
	case !(to > from):
		return s.refuse("its work has no length (%.6f s to %.6f s): give it a window (wattmark trim)", from, to)
	case !(s.Systematic >= 0) || math.IsInf(s.Systematic, 0) || !(s.Offset >= 0) || math.IsInf(float64(s.Offset), 0):
		return s.refuse("the truth's uncertainty is %v relative and %v: both must be zero or positive and finite", s.Systematic, s.Offset)
	case len(s.Methods) == 0:
		return s.refuse("no software method was read beside the meter: measure again without --no-methods, or wattmark import nvidia-smi")
	}
	for i := range s.Methods {
		if err := s.Methods[i].check(); err != nil {
			return s.refuse("%w", err)
		}
	}
	for i, k := range s.Kernels {
		if f, t := float64(k.From), float64(k.To); math.IsNaN(f+t) || math.IsInf(f+t, 0) || t < f {
			return s.refuse("kernel %d (%s) runs from %v s to %v s: leave it out or mend its times", i+1, k.Name, f, t)
		}
	}
	for i, g := range s.Gaps {
		if !(g.To >= g.From) {
			return s.refuse("gap %d runs from %v to %v: mend its times", i+1, g.From, g.To)
		}
	}
	return nil
}

func (m *Method) check() error {
	if m.Name == "" {
		return errors.New("a method has no name: name it")
	}
	for i, r := range m.Readings {
		at, p := float64(r.At), float64(r.Power)
		if math.IsNaN(at+p) || math.IsInf(at+p, 0) {
			return fmt.Errorf("method %s: reading %d is %v W at %v s: leave out what is no number", m.Name, i+1, p, at)
		}
		if i > 0 && r.At < m.Readings[i-1].At {
			return fmt.Errorf("method %s: reading %d at %.6f s comes after one at %.6f s: sort the readings by time", m.Name, i+1, at, float64(m.Readings[i-1].At))
		}
	}
	return nil
}
