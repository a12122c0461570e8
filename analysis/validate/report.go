package validate

import (
	"math"
	"time"

	"wattmark/measure"
)

// Report is what a validation found. Energies are in joules over Work; every U is
// expanded (k = 2); what cannot be told is NaN.
type Report struct {
	Name, GPU, Driver, Meter string
	Origin                   time.Time
	Work                     Span
	Samples                  uint64 // of the meter within the work

	Truth      measure.Estimate
	Mean, Peak measure.Watt // of the truth
	// Alternation is the share of the truth's variance that lies within intervals as
	// long as the slowest method's updates, Swing its standard deviation over its mean.
	Alternation, Swing float64

	Clock   Clock
	Missing []MissingRail
	// MissingPower bounds what the missing rails may carry together; NaN where one of
	// them has no bound.
	MissingPower measure.Watt
	Lost         measure.Seconds // in gaps within the work

	Methods  []MethodReport
	Kernels  []KernelReport // by name, the largest energy first
	NoKernel *KernelReport  // what was drawn while no kernel ran; nil without kernels
	Verdict  string
	Cautions []string
	Trace    Trace

	// How the intervals were made.
	Level     float64
	Resamples int
	Seed      uint64
}

// Agreement says whether a method's energy over the work agrees with the meter's,
// within the meter's uncertainty and the method's own ([measure.Estimate.Against]).
// How other work like this would come out is another question: that is the interval.
type Agreement = measure.Agreement

// The agreements.
const (
	Agrees  = measure.Agrees
	Reads   = measure.Differs
	Unknown = measure.Unknown
)

// MethodReport is one method against the truth.
type MethodReport struct {
	Name, Note string
	// Own: the energy follows the method's own rule; else its readings were
	// integrated by trapezoids.
	Own    bool
	Energy measure.Joule
	U      measure.Joule // that the method states of it (k = 2); 0 where it states none
	// ErrorPct is 100·(E/E_truth − 1), and [Lo, Hi] the interval that holds it for other
	// work like this: from the truth's uncertainty, the method's own, and from resampling
	// blocks as long as Block.
	ErrorPct, Lo, Hi float64
	Block            measure.Seconds
	Agreement        Agreement

	// Readings are those that the method made. Compared are those that were kept (of
	// equal ones in a row the first and the last): each against the truth's mean over the
	// time that it stands for.
	Readings, Compared int
	MAPEPct            float64
	RMSE               measure.Watt
	Bias               measure.Watt
	// Update is the median time between two values that differ.
	Update measure.Seconds
	// Lag is by how much the readings trail the truth. Correlation belongs to it.
	Lag, LagU   measure.Seconds
	Correlation float64
	LagNote     string

	Points []Reading // for a plot, thinned

	late  float64 // the error over the second half of the work, in per cent
	blind bool    // the power changes faster than there are new values
}

// told reports whether a method states an energy.
func (m *MethodReport) told() bool { return !math.IsNaN(m.ErrorPct) }

// KernelReport is the work's kernels of one name, with their equal shares of the
// power where several ran at once.
type KernelReport struct {
	Name     string
	Launches int
	Busy     measure.Seconds // the sum of their durations
	Share    measure.Seconds // the time by equal shares
	Truth    measure.Estimate
	Methods  []KernelMethod // in the order of Report.Methods
}

// KernelLine is a line of a table by kernel.
type KernelLine struct {
	Kind KernelKind
	KernelReport
}

// KernelKind says what a line by kernel holds.
type KernelKind string

// The kinds.
const (
	OneKernel     KernelKind = "kernel"
	OtherKernels  KernelKind = "others"    // names that the table has no room for
	WithoutKernel KernelKind = "no_kernel" // no kernel ran
	AllKernels    KernelKind = "sum"
)

// KernelMethod is what a method's readings say of the kernels of one name.
type KernelMethod struct {
	Name             string
	Energy           measure.Joule
	ErrorPct, Lo, Hi float64
	Agreement        Agreement // with the meter's energy of these kernels
}

// MissingRail is a rail that the meter does not see.
type MissingRail struct {
	Name string
	// Most is what it can carry after the connector's specification, NaN for unknown.
	Most   measure.Watt
	Reason string
}

// Trace is the truth around the work, drawn into columns of equal length.
type Trace struct {
	From, To measure.Seconds
	Columns  []Column
}

// Column is one column: NaN where no sample lies.
type Column struct{ Mean, Min, Max measure.Watt }
