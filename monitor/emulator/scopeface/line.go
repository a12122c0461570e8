package scopeface

import (
	"slices"
	"sync"
	"time"
)

// TriggerLine is a cable from one scope's trigger output to inputs of others. It is
// safe for concurrent use.
type TriggerLine struct {
	mu     sync.Mutex
	pulses []time.Duration // board times, ascending
}

// The pulse of a trigger output.
const (
	pulseVolts = 3.3
	pulseWidth = time.Millisecond
	keepPulses = 64
)

func (l *TriggerLine) pulse(at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pulses = append(l.pulses, at)
	if len(l.pulses) > keepPulses {
		l.pulses = slices.Delete(l.pulses, 0, 1)
	}
}

// after is the first pulse that begins between two instants.
func (l *TriggerLine) after(from, to time.Duration) (at time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pulses {
		if p >= from && p <= to {
			return p, true
		}
	}
	return 0, false
}

// volts is the line's voltage at an instant.
func (l *TriggerLine) volts(at time.Duration) float64 {
	if _, ok := l.after(at-pulseWidth, at); ok {
		return pulseVolts
	}
	return 0
}
