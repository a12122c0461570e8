package validate

import (
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
	Verdict  string
	Cautions []string
	Trace    Trace

	// How the intervals were made.
	Level     float64
	Resamples int
	Seed      uint64
}

// Agreement says how a method's error lies to its interval.
type Agreement string

// The agreements.
const (
	Agrees  Agreement = "agrees"  // zero lies within the interval
	Reads   Agreement = "differs" // it does not
	Unknown Agreement = "unknown" // the method says nothing
)

// MethodReport is one method against the truth.
type MethodReport struct {
	Name, Note string
	// Own: the energy follows the method's own rule; else its readings were
	// integrated by trapezoids.
	Own    bool
	Energy measure.Joule
	// ErrorPct is 100·(E/E_truth − 1), and [Lo, Hi] its interval; half of it comes
	// from the truth's uncertainty and half from resampling blocks as long as Block.
	ErrorPct, Lo, Hi float64
	Block            measure.Seconds
	Agreement        Agreement

	// Of the readings, each against the truth's mean over the time that it stands for.
	Readings int
	MAPEPct  float64
	RMSE     measure.Watt
	Bias     measure.Watt
	// Update is the median time between two values that differ.
	Update measure.Seconds
	// Lag is by how much the readings trail the truth. Correlation belongs to it.
	Lag, LagU   measure.Seconds
	Correlation float64
	LagNote     string

	Points []Reading // for a plot, thinned

	late float64 // the error over the second half of the work, in per cent
}

// KernelReport is the work's kernels of one name.
type KernelReport struct {
	Name     string
	Launches int
	Busy     measure.Seconds
	Truth    measure.Estimate
	Methods  []KernelMethod // in the order of Report.Methods
}

// KernelMethod is what a method's readings say of the kernels of one name.
type KernelMethod struct {
	Name             string
	Energy           measure.Joule
	ErrorPct, Lo, Hi float64
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
