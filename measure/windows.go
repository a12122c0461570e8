package measure

import (
	"fmt"
	"slices"
)

// Windows integrates several windows of one capture in a single pass over its
// blocks: each block goes to the windows that it bears on alone. It is not safe
// for concurrent use.
type Windows struct {
	tb   Timebase
	gs   []*Integrator
	span []Window
	next int // windows before it are done
	// around is how much before a window its readings are wanted, in ticks.
	around float64
}

// NewWindows prepares the integration of windows, which must be in the order of
// their ends.
func NewWindows(s *Setup, windows []Window) (*Windows, error) {
	w := &Windows{tb: s.Timebase, span: slices.Clone(windows)}
	for i, x := range windows {
		if i > 0 && x.To < windows[i-1].To {
			return nil, fmt.Errorf("integrate: window %d ends before the one before it: %w", i+1, ErrOrder)
		}
		g, err := NewIntegrator(s, x.From, x.To)
		if err != nil {
			return nil, fmt.Errorf("window %d: %w", i+1, err)
		}
		w.around = float64(g.ends[0].scans+2*listenScans) * s.Timebase.TicksPerScan
		w.gs = append(w.gs, g)
	}
	return w, nil
}

// Add takes the next block. Errors are those of Integrator.Add.
func (w *Windows) Add(b *Block) error {
	n := b.Scans()
	if n == 0 {
		return nil
	}
	last := b.TickAt(w.tb, n-1)
	for w.next < len(w.gs) {
		// As many scans as an edge remembers behind the window are still wanted.
		if _, t, ok := w.gs[w.next].Covered(); !ok || w.tb.Ticks(t) <= w.tb.Ticks(w.span[w.next].To)+w.around {
			break
		}
		w.next++
	}
	for i := w.next; i < len(w.gs); i++ {
		if last+w.around < w.tb.Ticks(w.span[i].From) {
			continue
		}
		if err := w.gs[i].Add(b); err != nil {
			return err
		}
	}
	return nil
}

// Done reports whether no later block bears on any window.
func (w *Windows) Done() bool { return w.next == len(w.gs) }

// Integrators returns the integrators of the windows, in their order.
func (w *Windows) Integrators() []*Integrator { return w.gs }
