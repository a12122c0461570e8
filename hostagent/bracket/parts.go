package bracket

import (
	"fmt"
	"slices"
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
)

// mark is a boundary between two parts of the work.
type mark struct {
	label string
	index int       // of the Timer's marks
	at    time.Time // without a Timer
}

// Mark says that from here on, in the order of a stream (0: the device's own),
// the work is called label. It does not wait. On a measurement that has failed
// meanwhile it returns why.
func (m *Measurement) Mark(label string, stream uintptr) error {
	if label == "" {
		return fmt.Errorf("mark: %w: a mark needs a label", measure.ErrText)
	}
	if err := measure.CheckText("label", label); err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if err := m.enter("mark", working); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if err := m.alive(); err != nil {
		return fmt.Errorf("mark %s: %w", label, err)
	}
	x := mark{label: label, at: time.Now()}
	if t, ok := m.cfg.Device.(Timer); ok {
		var err error
		if x.index, err = t.Mark(stream); err != nil {
			return fmt.Errorf("mark %s: %w", label, err)
		}
	}
	m.marks = append(m.marks, x)
	return nil
}

// parts are the parts of the work between begin, marks and end.
func (m *Measurement) parts() ([]hostagent.Kernel, error) {
	end := time.Now()
	if t, ok := m.cfg.Device.(Timer); ok {
		var err error
		if end, err = t.Settle(); err != nil {
			return nil, err
		}
		times, err := t.Times()
		if err != nil {
			return nil, err
		}
		for i := range m.marks {
			m.marks[i].at = times[m.marks[i].index]
		}
	}
	return split(m.cfg.Name, m.begun, end, m.marks), nil
}

// split cuts a span at its marks, in the order in which they were reached.
// Their times come from the GPU's clock: what lies outside by that clock's
// uncertainty is taken to the nearest end.
func split(name string, begin, end time.Time, marks []mark) []hostagent.Kernel {
	var out []hostagent.Kernel
	at := begin
	slices.SortStableFunc(marks, func(a, b mark) int { return a.at.Compare(b.at) })
	for _, x := range append(marks[:len(marks):len(marks)], mark{at: end}) {
		to := x.at
		if to.Before(at) {
			to = at
		}
		if to.After(end) {
			to = end
		}
		out = append(out, hostagent.Kernel{Name: name, Span: hostagent.Span{Start: at, End: to}})
		at, name = to, x.label
	}
	return out
}
