// Package validate holds what software says of a GPU's power against the truth
// of a meter: energy, its error with a confidence interval, lag, bias, by kernel
// and overall, and a verdict in one sentence.
//
// Who has tasks, files or a public recording makes a [Subject] of it. The meter's
// samples are read once and never all held; the sensor's readings, which come
// some hundred times a second at most, are.
package validate

import (
	"iter"
	"time"

	"wattmark/measure"
)

// Subject is one measurement to be judged: the meter's samples, what software
// read meanwhile, and when the GPU worked. All times are seconds of the host's
// clock since Origin.
type Subject struct {
	Name   string // as in "task 42", or a recording's folder
	GPU    string // model and UUID, as far as known
	Driver string // as far as known
	Origin time.Time

	// Truth yields the meter's samples in order of time, already on the host's
	// clock. It is read once. An error ends it and the validation.
	Truth iter.Seq2[Sample, error]
	// Systematic is the truth's relative standard uncertainty (k = 1) that does not
	// average out: gains and shunts; Offset alike, in watts.
	Systematic float64
	Offset     measure.Watt
	Missing    []string // rails that the meter does not measure
	// Total is the meter's energy of the work as it is stated elsewhere, with its U: what
	// methods are held against. Where it is zero, it is worked out from the samples.
	Total measure.Estimate
	// LooksAway: the meter is itself a sensor that does not look all the time, or the
	// GPU's own: it cannot judge.
	LooksAway bool
	Gaps      []Span // in which the meter lost samples
	Clock     Clock

	// Meter names what the truth was measured with, as far as known.
	Meter string
	// Cautions are what whoever reads the verdict must know, beyond what the fields
	// here say.
	Cautions []string

	Methods []Method
	// Work is the span that is judged; Kernels are what ran in it, in order of their
	// starts, and may be empty.
	Work    Span
	Kernels []Kernel
}

// Sample is one reading of the meter: the power at a time.
type Sample struct {
	At    measure.Seconds
	Power measure.Watt
}

// Span is a stretch of time; To lies after From.
type Span struct{ From, To measure.Seconds }

// Length returns how long a span is.
func (s Span) Length() measure.Seconds { return s.To - s.From }

// Kernel is a named stretch of the work.
type Kernel struct {
	Name string
	Span
}

// Clock says how the meter's clock was put on the host's, and how well.
type Clock struct {
	// Offset was added to the meter's times, at the middle of the work; Drift is what the
	// meter's clock gains on the host's, in parts per million.
	Offset, OffsetU     measure.Seconds // U: expanded, k = 2
	DriftPPM, DriftUPPM float64
	How                 string // "markers", "recovered from the data", "given"

	// OffsetAt is when Offset holds where that is not the middle of the work.
	OffsetAt *measure.Seconds
	// Found says how well a clock recovered from the data fits; nil for another one.
	Found *FoundClock
}

// FoundClock is what the edges of the power say of the clocks.
type FoundClock struct {
	Edges, Rejected, Unseen int             // used, off the line, and not seen
	Scatter                 measure.Seconds // standard deviation of an edge; NaN where there are too few
	Correlation             float64         // of the power with the work
	Breaks                  []ClockBreak
}

// ClockBreak is a place at which the clocks do not run on evenly.
type ClockBreak struct {
	At   measure.Seconds // of the host's clock since Origin
	UAt  measure.Seconds // it lies within ± this
	Size measure.Seconds // what the meter's times gain there
	U    measure.Seconds // expanded, k = 2
	// Jump: the clock jumped and is put together of pieces; else one edge alone is
	// late, and was left out.
	Jump bool
	Note string
}

// Method is one way to read the GPU's own sensor.
type Method struct {
	Name     string
	Readings []Reading // in order of time
	// Energy is what the method itself said of the work, where it has a rule of its
	// own (SMA, MTSM, PAPI, the counter); NaN where the readings are to be integrated.
	Energy measure.Joule
	// Silent: the method itself has no energy, and Note says why; its readings are not
	// integrated in its place.
	Silent bool
	U      measure.Joule // that the method states of Energy (k = 2); 0 where it states none
	Made   uint64        // readings that the method made, where Readings are fewer; else 0
	Note   string
}

// Reading is one value of the sensor.
type Reading struct {
	At    measure.Seconds
	Power measure.Watt
}
