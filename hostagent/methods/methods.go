// Package methods reads a GPU's own power sensor the way software is said to, all
// ways at once and each on a thread of its own, so that they can be held against
// a meter over the same work:
//
//	sma           GetPowerUsage every 15 ms, not synchronised to anything: E = ΣP·15 ms
//	mtsm          GetPowerUsage again and again while the work runs: E = T/N·ΣP
//	papi          GetPowerUsage once, when the work has ended: E = P·T
//	counter       the energy counter's slope between its own updates, times T
//	counter-ends  the energy counter after the work less before it
//	average       the average field over its time stamps, by trapezoids
//	instant       the instant field, alike
//
// The first three are those of Arafa et al., "Verified Instruction-Level Energy
// Consumption Measurement for NVIDIA GPUs" (2020). docs/methods.md tells more.
package methods

import (
	"time"

	"wattmark/hostagent"
	"wattmark/measure"
)

// Method names a way to use the sensor. The names are stored.
type Method string

// The methods.
const (
	SMA         Method = "sma"
	MTSM        Method = "mtsm"
	PAPI        Method = "papi"
	Counter     Method = "counter"
	CounterEnds Method = "counter-ends"
	Average     Method = "average"
	Instant     Method = "instant"
)

// All lists the methods in the order in which they are shown.
func All() []Method {
	return []Method{SMA, MTSM, PAPI, Average, Instant, Counter, CounterEnds}
}

// Options tune the threads. Zero values are good ones.
type Options struct {
	// SMAEvery is the beat of SMA; 15 ms when zero.
	SMAEvery time.Duration
	// MTSMEvery is the least distance of MTSM's readings; 0.5 ms when zero, the
	// 2 kHz that the paper's loop came to. A call of NVML now takes a thousandth of
	// that: negative reads without pause, and keeps a processor busy.
	MTSMEvery time.Duration
	// FieldsEvery is the distance of the readings of the fields; 10 ms when zero.
	FieldsEvery time.Duration
	// CounterPause is how long the energy counter is left alone between its calls,
	// which take 3 ms; 10 ms when zero. Negative leaves the counter out.
	CounterPause time.Duration
	// Line puts the times of readings on the line of the measurement, which a wall clock
	// that is set does not move; nil to take them as they are.
	Line func(time.Time) time.Time
}

func (o Options) defaults() Options {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.SMAEvery, 15*time.Millisecond)
	set(&o.MTSMEvery, 500*time.Microsecond)
	set(&o.FieldsEvery, 10*time.Millisecond)
	set(&o.CounterPause, 10*time.Millisecond)
	return o
}

// Trace is what a method read, on the host's wall clock: watts, joules for the
// counter. Equal readings in a row are told by the first and the last of them.
type Trace struct {
	Method Method
	Points []Point
}

// Point is one reading.
type Point struct {
	At    time.Time
	Value float64
}

// sensor reads one register at a time where the GPU's library can, so that a
// method's calls cost what they cost everybody.
type sensor struct {
	hostagent.PowerSensor
	registers hostagent.PowerRegisters // nil where all are read at once
}

func newSensor(s hostagent.PowerSensor) sensor {
	r, _ := s.(hostagent.PowerRegisters)
	return sensor{s, r}
}

func (s sensor) usage() (measure.Watt, error) {
	if s.registers != nil {
		return s.registers.ReadUsage()
	}
	r, err := s.Read()
	return r.Usage, err
}

func (s sensor) fields() (instant, average measure.Watt, err error) {
	if s.registers != nil {
		return s.registers.ReadFields()
	}
	r, err := s.Read()
	return r.Instant, r.Average, err
}
