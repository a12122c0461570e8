package sampler

import (
	"math"
	"slices"
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
	"wattmark/store"
)

// The methods that a GPU's condition is stored under.
const (
	SMClock      = "gpu.sm_clock_hz"
	MemoryClock  = "gpu.memory_clock_hz"
	Temperature  = "gpu.temperature_c"
	ThrottleBits = "gpu.throttle_bits" // nvmlClocksEventReasons
)

// ConditionReadings returns a condition as it is stored; what the GPU does not
// tell is left out.
func ConditionReadings(c hostagent.Condition, at time.Time) []store.Reading {
	all := []store.Reading{
		{Method: SMClock, Value: float64(c.SM)},
		{Method: MemoryClock, Value: float64(c.Memory)},
		{Method: Temperature, Value: c.Temperature},
		{Method: ThrottleBits, Value: float64(c.Throttle)},
	}
	out := slices.DeleteFunc(all, func(r store.Reading) bool { return math.IsNaN(r.Value) })
	for i := range out {
		out[i].At = at
	}
	if len(out) == 1 { // no clock and no temperature: such a GPU tells no throttling either
		return nil
	}
	return out
}

// ConditionAt is a condition with its time.
type ConditionAt struct {
	At time.Time
	hostagent.Condition
}

// Conditions finds the conditions among a task's readings, by time.
func Conditions(readings []store.Reading) []ConditionAt {
	at := map[int64]*hostagent.Condition{}
	for _, r := range readings {
		c := at[r.At.UnixNano()]
		if c == nil {
			c = &hostagent.Condition{SM: measure.Hertz(math.NaN()), Memory: measure.Hertz(math.NaN()), Temperature: math.NaN()}
		}
		switch r.Method {
		case SMClock:
			c.SM = measure.Hertz(r.Value)
		case MemoryClock:
			c.Memory = measure.Hertz(r.Value)
		case Temperature:
			c.Temperature = r.Value
		case ThrottleBits:
			c.Throttle = uint64(max(r.Value, 0))
		default:
			continue
		}
		at[r.At.UnixNano()] = c
	}
	out := make([]ConditionAt, 0, len(at))
	for ns, c := range at {
		out = append(out, ConditionAt{time.Unix(0, ns).UTC(), *c})
	}
	slices.SortFunc(out, func(a, b ConditionAt) int { return a.At.Compare(b.At) })
	return out
}
