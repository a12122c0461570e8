package capture

import (
	"context"
	"errors"
	"fmt"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// Drain lets nobody take the bench any more, those in line included. The
// channel is closed once it is free. It may be called again.
func (o *Owner) Drain() <-chan struct{} { return o.line.close() }

// StopCause ends Run with a reason of its own for the capture that then runs.
type StopCause string

func (s StopCause) Error() string { return string(s) }

// monitorStopped is what a capture is told when its monitor ends.
const monitorStopped = "the monitor was stopped"

// whyStopped is what a capture is told of the end of its monitor's context.
func whyStopped(ctx context.Context) string {
	var s StopCause
	if errors.As(context.Cause(ctx), &s) {
		return string(s)
	}
	return monitorStopped
}

// maker is Config.Setup.
type maker = func(instrument.Inputs) (measure.Setup, error)

// Replace makes rails otherwise from the next opening of the instrument on. The
// capture that runs keeps what it began with. Nothing changes where setup cannot be
// made of what the instrument delivered last; the error wraps ErrMisfit.
func (o *Owner) Replace(setup maker, calibrate calibrator) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.inputs != nil {
		if _, err := setup(*o.inputs); err != nil {
			return fmt.Errorf("%w: %w", ErrMisfit, err)
		}
	}
	o.cfg.Setup, o.cfg.Calibrate = setup, calibrate
	o.told = false
	return nil
}

// maker and calibrator are those in force.
func (o *Owner) maker() maker {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cfg.Setup
}

func (o *Owner) calibrator() calibrator {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cfg.Calibrate
}
