package machine

import (
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sys/unix"
)

// ClockMethod is the method of the readings of how far the machine's clock may be off UTC, in seconds.
const ClockMethod = "machine.clock_error_s"

// ClockState is the kernel's state of its clock: whether a time service (NTP, or PTP through chrony) disciplines it, by
// how much it is still to be moved, and the largest error.
type ClockState struct {
	Synchronised     bool
	Offset, MaxError time.Duration
}

// ReadClock reads the kernel's clock state (adjtimex); it sets nothing.
func ReadClock() (s ClockState, err error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return s, fmt.Errorf("adjtimex: %w", err)
	}
	unit := time.Microsecond
	if t.Status&unix.STA_NANO != 0 {
		unit = time.Nanosecond
	}
	return ClockState{
		Synchronised: state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0,
		Offset:       time.Duration(t.Offset) * unit, MaxError: time.Duration(t.Maxerror) * time.Microsecond,
	}, nil
}

// Readings returns the state as stored readings: none of a clock that nothing disciplines.
func (s ClockState) Readings(at time.Time) []store.Reading {
	if !s.Synchronised {
		return nil
	}
	return []store.Reading{{Method: ClockMethod, At: at, Value: (s.Offset.Abs() + s.MaxError).Seconds()}}
}

// UTC returns by how much the machine's clock may be off UTC, the most of a task's readings before and after the work;
// NaN where the clock was free at one of them.
func UTC(readings []store.Reading) measure.Seconds {
	most, n := 0.0, 0
	for _, r := range readings {
		if r.Method == ClockMethod {
			most, n = max(most, r.Value), n+1
		}
	}
	if n < 2 {
		return measure.Seconds(math.NaN())
	}
	return measure.Seconds(most)
}
