package capture

import (
	"errors"
	"fmt"
	"time"
)

// Sentinel errors, wrapped with what was done and what to do next.
var (
	// ErrBusy: another holder has the bench; the error is a *BusyError.
	ErrBusy = errors.New("bench is busy")
	// ErrUnknown: there is no such capture on this monitor.
	ErrUnknown = errors.New("no such capture")
	// ErrRequest: the request cannot be meant so.
	ErrRequest = errors.New("bad request")
	// ErrTransition: the capture is not in a state in which this can happen.
	ErrTransition = errors.New("not possible in this state")
	// ErrNoStart: a trimmed read of a running capture whose start marker was not yet seen.
	ErrNoStart = errors.New("no start marker yet")
	// ErrPastEnd: a read from a chunk that the capture does not have.
	ErrPastEnd = errors.New("past the end of the capture")
	// ErrMended: a damaged record was met and became an event: read on from the next chunk.
	ErrMended = errors.New("damaged on the monitor's disk")
	// ErrStopped: the monitor is stopping.
	ErrStopped = errors.New("monitor is stopping")
	// ErrUnavailable: the bench's instrument cannot be used now.
	ErrUnavailable = errors.New("instrument is not available")
	// ErrMisfit: the bench names what its instrument does not have.
	ErrMisfit = errors.New("the bench does not fit the instrument")
)

// errUnopened is the trouble of a bench whose inputs only the instrument knows.
var errUnopened = fmt.Errorf("%w: it was not opened yet", ErrUnavailable)

// errDraining is what a monitor says that lets running captures end.
var errDraining = fmt.Errorf("%w: it takes no new captures; try again when it has been started anew", ErrStopped)

// BusyError says who holds the bench. It wraps ErrBusy.
type BusyError struct {
	Holder    string
	Since     time.Time
	CaptureID string
	Waited    time.Duration
}

func (e *BusyError) Error() string {
	s := fmt.Sprintf("%v: held by %s since %s (capture %s)", ErrBusy, e.Holder, e.Since.UTC().Format(time.RFC3339), e.CaptureID)
	if e.Waited > 0 {
		return s + fmt.Sprintf("; gave up after %v: wait longer, or ask them", e.Waited.Round(time.Millisecond))
	}
	return s + ": wait in line with --wait 10m, or ask them"
}

func (e *BusyError) Unwrap() error { return ErrBusy }
