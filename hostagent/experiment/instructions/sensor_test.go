package instructions

import (
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
)

// fakeSensor reads a fake GPU as a Hopper's does: an instantaneous value, a mean
// over the last second that reads half a watt high, and a counter that runs 3 %
// fast and moves every 100 ms. Its calls take time.
type fakeSensor struct {
	m      *fakeMachine
	broken error
}

func (s fakeSensor) Read() (gpu.PowerReading, error) {
	time.Sleep(5 * time.Millisecond)
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	now := time.Now()
	return gpu.PowerReading{
		At: now, Instant: s.m.load + fakeIdle, Usage: fakeIdle + usageOffset + s.m.meanLoad(now, time.Second),
	}, s.broken
}

func (s fakeSensor) ReadEnergy() (measure.Joule, error) {
	time.Sleep(3 * time.Millisecond)
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	at := time.Now().Truncate(100 * time.Millisecond)
	return measure.Joule(counterGain * float64(s.m.energyAt(at))), nil
}

func (s fakeSensor) Condition() gpu.Condition {
	return gpu.Condition{SM: 1.98e9, Temperature: 41}
}

// meanLoad is the mean over the time before now.
func (m *fakeMachine) meanLoad(now time.Time, over time.Duration) measure.Watt {
	sum, end := 0.0, now
	for n := len(m.history) - 1; n >= 0; n-- {
		c := m.history[n]
		from := c.at
		if from.Before(now.Add(-over)) {
			from = now.Add(-over)
		}
		if end.After(from) {
			sum += float64(c.load) * end.Sub(from).Seconds()
		}
		if end = from; !c.at.After(now.Add(-over)) {
			break
		}
	}
	return measure.Watt(sum / over.Seconds())
}

// energyAt is the energy up to an instant.
func (m *fakeMachine) energyAt(at time.Time) measure.Joule {
	var e float64
	for n, c := range m.history {
		end := at
		if n+1 < len(m.history) && m.history[n+1].at.Before(at) {
			end = m.history[n+1].at
		}
		if c.at.After(at) {
			break
		}
		e += float64(c.load+fakeIdle) * end.Sub(c.at).Seconds()
	}
	return measure.Joule(e)
}
