package measure

import (
	"errors"
	"fmt"
	"math"
)

// Sentinel errors of the integrator, wrapped with the figures and a hint.
var (
	// ErrWindow: the window's ends are not finite, or it is empty or reversed.
	ErrWindow = errors.New("not a window")
	// ErrNoData: the samples do not reach over the whole window.
	ErrNoData = errors.New("window outside the data")
	// ErrOrder: a block came before the end of the one added last.
	ErrOrder = errors.New("blocks out of order")
)

// Integrator integrates the rails' power over a window of device time. It is
// not safe for concurrent use; its memory does not grow with the data.
type Integrator struct {
	setup    Setup
	from, to Seconds
}

// NewIntegrator prepares the integration of [from, to] in device time (zero is
// the first scan of the capture). A window that cannot be is ErrWindow.
func NewIntegrator(s *Setup, from, to Seconds) (*Integrator, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("integrate: %w", err)
	}
	if !(from < to) || math.IsInf(float64(from), 0) || math.IsInf(float64(to), 0) {
		return nil, fmt.Errorf("integrate from %v to %v: %w: the end must lie after the start, both finite", from, to, ErrWindow)
	}
	return &Integrator{setup: *s, from: from, to: to}, nil
}

// Add takes the next block. Blocks come in order of time and may lie wholly or
// partly outside of the window, but at least one scan at or before its start
// and one at or after its end must come by. The block is not kept.
func (g *Integrator) Add(b *Block) error {
	return errors.New("integrate: not built yet")
}

// Result returns the energies with their budgets, given the uncertainty of the
// window's ends. It may be called again with other edges. Data that does not
// reach over the window is ErrNoData.
func (g *Integrator) Result(e Edges) (Result, error) {
	return Result{}, errors.New("integrate: not built yet")
}

// Covered returns the span of device time of the scans added so far; ok is
// false before the first.
func (g *Integrator) Covered() (first, last Seconds, ok bool) { return 0, 0, false }
