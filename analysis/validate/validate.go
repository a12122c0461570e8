// Package validate compares software readings of a GPU's power with the truth of a
// meter: energy, its error with a confidence interval, lag, bias, by kernel and
// overall, and a verdict in one sentence.
//
// The caller turns a task, files or a public recording into a [Subject]: the meter's samples, the Methods with their
// readings, and the Kernels, on the host's clock. [Run] judges it and returns a [Report] of MethodReports and
// KernelReports; [Summarise] combines the reports of several subjects. The meter's samples are read once and never
// all held; the sensor's readings, at most some hundred a second, are. A trace of any length takes memory for its
// readings, kernels and some 10⁵ cells.
package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
)

// Subject is one measurement to be judged: the meter's samples, the software's
// readings, and the times of the work. All times are seconds of the host's clock since
// Origin.
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
	// Total is the meter's energy of the work as stated elsewhere, with its U, for the
	// agreement of methods. Where it is zero, the energy by the samples is used.
	Total measure.Estimate
	// LooksAway: the meter is itself a sensor that does not look all the time, or the
	// GPU's own: it cannot judge.
	LooksAway bool
	Gaps      []Span // in which the meter lost samples
	Clock     Clock

	// Meter names the instrument of the truth, as far as known.
	Meter string
	// Cautions are limits of the measurement beyond the fields here, for the reader of
	// the verdict.
	Cautions []string

	Methods []Method
	// Work is the span that is judged; Kernels ran in it, in order of their starts.
	// They may be empty.
	Work    Span
	Kernels []Kernel
}

// Sample is one reading of the meter: the power at a time.
type Sample struct {
	At    measure.Seconds
	Power measure.Watt
}

// Span is a stretch of time; To lies after From.
type Span struct {
	From measure.Seconds `json:"from_s"`
	To   measure.Seconds `json:"to_s"`
}

// Length returns how long a span is.
func (s Span) Length() measure.Seconds { return s.To - s.From }

// Kernel is a named stretch of the work.
type Kernel struct {
	Name string
	Span
}

// Clock is the relation of the meter's clock to the host's.
type Clock struct {
	// Offset was added to the meter's times. U is expanded, k = 2.
	Offset  measure.Seconds `json:"clock_offset_s,omitzero"`
	OffsetU measure.Seconds `json:"clock_offset_u_s,omitzero"`
	// DriftPPM is the rate of the meter's clock against the host's, less one, in parts
	// per million.
	DriftPPM  measure.Number `json:"clock_drift_ppm,omitzero"`
	DriftUPPM measure.Number `json:"clock_drift_u_ppm,omitzero"`
	How       string         `json:"clock_how,omitempty"` // "markers", "recovered from the data", "given"

	// OffsetAt is the host's time at which Offset holds; nil for the middle of the work.
	OffsetAt *measure.Seconds `json:"clock_offset_at_s,omitempty"`
	// Found is the quality of a clock recovered from the data; nil for another one.
	*Found
}

// Found is the quality of a clock recovered from the edges of the power.
type Found struct {
	Edges       int             `json:"clock_edges"`                   // used
	Rejected    int             `json:"clock_edges_rejected"`          // off the line
	Unseen      int             `json:"clock_edges_unseen"`            // without a step of the power
	Scatter     measure.Seconds `json:"clock_edge_scatter_s,omitzero"` // standard deviation of an edge; NaN of too few
	Correlation measure.Number  `json:"clock_correlation,omitzero"`    // of the power with the work
	Breaks      []ClockBreak    `json:"clock_discontinuities,omitempty"`
}

// BreakKind is the cause of a discontinuity.
type BreakKind string

// The kinds of discontinuities.
const (
	Jump       BreakKind = "jump"        // the clock jumped, and is put together of pieces
	SingleEdge BreakKind = "single edge" // one edge alone is late, and was left out
)

// ClockBreak is a discontinuity of the clocks.
type ClockBreak struct {
	Kind BreakKind       `json:"kind"`
	At   measure.Seconds `json:"at_s"`   // of the host's clock since Origin
	UAt  measure.Seconds `json:"u_at_s"` // it lies within ± this
	Size measure.Seconds `json:"size_s"` // added to the meter's times there
	U    measure.Seconds `json:"u_s"`    // expanded, k = 2
	Note string          `json:"note"`
}

// Method is one way to read the GPU's own sensor.
type Method struct {
	Name     string
	Readings []Reading // in order of time
	// Energy of the work by the method's own rule (SMA, MTSM, PAPI, the counter); NaN
	// where the readings are to be integrated.
	Energy measure.Joule
	// Silent: the method has no energy, for the reason in Note; its readings are not
	// integrated instead.
	Silent bool
	U      measure.Joule // that the method states of Energy (k = 2); 0 where it states none
	Made   uint64        // readings that the method made, where Readings are fewer; else 0
	Note   string
}

// Reading is one value of the sensor.
type Reading struct {
	At    measure.Seconds `json:"time_s"`
	Power measure.Watt    `json:"power_w"`
}

// ErrSubject is wrapped by errors about subjects that cannot be judged.
var ErrSubject = errors.New("cannot be validated")

// refuse returns an error that names the subject and wraps ErrSubject.
func (s *Subject) refuse(format string, a ...any) error {
	return fmt.Errorf("%s: %w: %w", s.Name, ErrSubject, fmt.Errorf(format, a...))
}

// check refuses subjects that cannot be judged. Errors wrap ErrSubject.
func (s *Subject) check() error {
	from, to := float64(s.Work.From), float64(s.Work.To)
	switch {
	case s.Truth == nil:
		return s.refuse("it has no samples of a meter: measure it beside one (wattmark run with a monitor)")
	case math.IsNaN(from+to) || math.IsInf(from+to, 0):
		return s.refuse("its work lies from %v s to %v s: give it a window (wattmark trim)", from, to)
	case !(to > from):
		return s.refuse("its work has no length (%.6f s to %.6f s): give it a window (wattmark trim)", from, to)
	case !(s.Systematic >= 0) || math.IsInf(s.Systematic, 0) || !(s.Offset >= 0) || math.IsInf(float64(s.Offset), 0):
		return s.refuse("the truth's uncertainty is %v relative and %v: both must be zero or positive and finite",
			s.Systematic, s.Offset)
	case len(s.Methods) == 0:
		return s.refuse("no software method was read beside the meter: measure again without --no-methods, or " +
			"wattmark import nvidia-smi")
	}
	for i := range s.Methods {
		if err := s.Methods[i].check(); err != nil {
			return s.refuse("%w", err)
		}
	}
	for i, k := range s.Kernels {
		if f, t := float64(k.From), float64(k.To); math.IsNaN(f+t) || math.IsInf(f+t, 0) || t < f {
			return s.refuse("kernel %d (%s) runs from %v s to %v s: leave it out or mend its times", i+1, k.Name, f, t)
		}
	}
	for i, g := range s.Gaps {
		if !(g.To >= g.From) {
			return s.refuse("gap %d runs from %v to %v: mend its times", i+1, g.From, g.To)
		}
	}
	return nil
}

// check refuses a method without a name, and readings that are not finite or go back in
// time.
func (m *Method) check() error {
	if m.Name == "" {
		return errors.New("a method has no name: name it")
	}
	for i, r := range m.Readings {
		at, p := float64(r.At), float64(r.Power)
		if math.IsNaN(at+p) || math.IsInf(at+p, 0) {
			return fmt.Errorf("method %s: reading %d is %v W at %v s: leave out what is no number", m.Name, i+1, p, at)
		}
		if i > 0 && r.At < m.Readings[i-1].At {
			return fmt.Errorf("method %s: reading %d at %.6f s comes after one at %.6f s: sort the readings by time",
				m.Name, i+1, at, float64(m.Readings[i-1].At))
		}
	}
	return nil
}

// Report is the result of a validation; its JSON form is that of wattmark validate
// --json. Energies are in joules over Work; every U is expanded (k = 2). Undetermined
// figures are NaN, and null or left out in JSON.
type Report struct {
	Name     string          `json:"name"`
	GPU      string          `json:"gpu,omitempty"`
	Driver   string          `json:"driver,omitempty"`
	Meter    string          `json:"instrument,omitempty"`
	Verdict  string          `json:"verdict"`
	Origin   time.Time       `json:"started"`
	Work     Span            `json:"-"`
	Duration measure.Seconds `json:"duration_s"` // of Work
	Samples  uint64          `json:"samples"`    // of the meter within the work

	Truth
	Mean measure.Watt    `json:"mean_w"` // of the truth
	Peak measure.Watt    `json:"peak_w,omitzero"`
	Lost measure.Seconds `json:"lost_s,omitempty"` // in gaps within the work
	Clock
	// Alternation is the share of the truth's variance that lies within intervals as
	// long as the slowest method's updates, Swing its standard deviation over its mean.
	Alternation measure.Number `json:"alternation,omitzero"`
	Swing       measure.Number `json:"-"`

	Methods []MethodReport `json:"methods"`
	// Kernels are by name, the largest energy first, in equal shares where several ran at
	// once. With NoKernel, the time without a kernel, they add up to KernelSum, the energy
	// of the work. Both are nil without kernels.
	Kernels   []KernelReport `json:"kernels"`
	NoKernel  *KernelReport  `json:"no_kernel,omitempty"`
	KernelSum *KernelReport  `json:"kernel_sum,omitempty"`

	// Unmeasured names the rails that the meter does not measure, Missing bounds each.
	Unmeasured []string      `json:"missing_rails"`
	Missing    []MissingRail `json:"missing_bounds,omitempty"`
	// MissingPower bounds the missing rails' power together; NaN where one of them has no
	// bound, zero where none is missing.
	MissingPower measure.Watt `json:"missing_most_w,omitempty,omitzero"`
	Cautions     []string     `json:"cautions,omitempty"`
	Trace        Trace        `json:"-"`

	// The parameters of the intervals.
	Level     float64 `json:"level"`
	Resamples int     `json:"resamples"`
	Seed      uint64  `json:"seed"`
}

// Truth is an energy by the meter.
type Truth struct {
	Energy measure.Joule `json:"meter_j"`
	U      measure.Joule `json:"meter_u_j"`
}

// Interval is a confidence interval, [low, high] in JSON.
type Interval struct{ Lo, Hi measure.Number }

// MarshalJSON writes a pair of numbers or nulls.
func (i Interval) MarshalJSON() ([]byte, error) { return json.Marshal([2]measure.Number{i.Lo, i.Hi}) }

// UnmarshalJSON reads a pair of numbers or nulls.
func (i *Interval) UnmarshalJSON(b []byte) error {
	var pair [2]measure.Number
	err := json.Unmarshal(b, &pair)
	i.Lo, i.Hi = pair[0], pair[1]
	return err
}

// Agreement is the relation of a method's energy over the work to the meter's, within
// the uncertainties of both ([measure.Estimate.Against]). It does not extend to other
// work like this: that is the interval.
type Agreement = measure.Agreement

const (
	Agrees  = measure.Agrees
	Reads   = measure.Differs
	Unknown = measure.Unknown
)

// MethodReport is one method against the truth.
type MethodReport struct {
	Name   string        `json:"method"`
	Energy measure.Joule `json:"energy_j,omitzero"`
	U      measure.Joule `json:"energy_u_j,omitempty,omitzero"` // stated by the method (k = 2); 0 for none
	// Own: the energy follows the method's own rule; else its readings were
	// integrated by trapezoids.
	Own bool `json:"own_rule"`
	// ErrorPct is 100·(E/E_truth − 1). Interval holds it for other work like this: from
	// the truth's uncertainty, the method's own, and from resampling blocks of length
	// Block.
	ErrorPct measure.Number `json:"error_pct,omitzero"`
	Interval Interval       `json:"interval"`
	// EndsPct is the part of ErrorPct that comes from the lag at the begin and the end of the
	// work; Interval is without it.
	EndsPct   measure.Number  `json:"ends_pct,omitzero"`
	Block     measure.Seconds `json:"block_s,omitzero"`
	Agreement Agreement       `json:"agreement"` // over this work

	// Readings counts those that the method made, Compared those that were kept (of equal
	// ones in a row the first and the last): each against the truth's mean over the time
	// that it stands for.
	Readings int            `json:"readings"`
	Compared int            `json:"compared"`
	MAPEPct  measure.Number `json:"mape_pct,omitzero"`
	RMSE     measure.Watt   `json:"rmse_w,omitzero"`
	Bias     measure.Watt   `json:"bias_w,omitzero"`
	// Update is the median time between two values that differ.
	Update measure.Seconds `json:"update_s,omitzero"`
	// Lag is the delay of the readings behind the truth, at the largest Correlation.
	Lag         measure.Seconds `json:"lag_s,omitzero"`
	LagU        measure.Seconds `json:"lag_u_s,omitzero"`
	Correlation measure.Number  `json:"correlation,omitzero"`
	LagNote     string          `json:"lag_note,omitempty"`
	Note        string          `json:"note,omitempty"`

	Points []Reading `json:"-"` // for a plot, thinned

	late  float64 // the error over the second half of the work, in per cent
	blind bool    // the power changes faster than the method's values
}

// judged reports whether a method has an energy.
func (m *MethodReport) judged() bool { return !math.IsNaN(float64(m.ErrorPct)) }

// KernelReport is the work's kernels of one name, with their equal shares of the
// power where several ran at once.
type KernelReport struct {
	Name     string          `json:"name"`
	Launches int             `json:"launches"`
	Busy     measure.Seconds `json:"busy_s"`  // the sum of their durations
	Share    measure.Seconds `json:"share_s"` // the time by equal shares
	Truth
	Methods []KernelMethod `json:"methods"` // in the order of Report.Methods
}

// KernelLine is a line of a table by kernel.
type KernelLine struct {
	Kind KernelKind
	KernelReport
}

// KernelKind is the content of a line by kernel.
type KernelKind string

const (
	OneKernel     KernelKind = "kernel"
	OtherKernels  KernelKind = "others"    // names that the table has no room for
	WithoutKernel KernelKind = "no_kernel" // no kernel ran
	AllKernels    KernelKind = "sum"
)

// KernelMethod is a method's energy of the kernels of one name.
type KernelMethod struct {
	Name      string         `json:"method"`
	Energy    measure.Joule  `json:"energy_j,omitzero"`
	ErrorPct  measure.Number `json:"error_pct,omitzero"`
	Interval  Interval       `json:"interval"`
	Agreement Agreement      `json:"agreement,omitempty"` // with the meter's energy; none of a sum
}

// MissingRail is a rail that the meter does not measure.
type MissingRail struct {
	Name   string       `json:"name"`
	Most   measure.Watt `json:"most_w,omitzero"` // bound by the connector's specification, NaN for none
	Reason string       `json:"reason"`
}

// Trace is the truth around the work, drawn into columns of equal length.
type Trace struct {
	From, To measure.Seconds
	Columns  []Column
}

// Column is one column: NaN where no sample lies.
type Column struct{ Mean, Min, Max measure.Watt }

// tracer keeps the least and the largest sample of each column.
type tracer struct {
	edges    []float64
	min, max []float64
}

// add puts a sample into its column.
func (t *tracer) add(s Sample) {
	n := len(t.min)
	from, to := t.edges[0], t.edges[n]
	at, p := float64(s.At), float64(s.Power)
	if at < from || at >= to {
		return
	}
	// Rounding can put a time just before the end into a column behind the last.
	c := min(n-1, int(float64(n)*(at-from)/(to-from)))
	t.min[c], t.max[c] = min(t.min[c], p), max(t.max[c], p)
}

// finish adds the means; a column without samples has the mean of the line between its
// neighbours.
func (t *tracer) finish(c *cumulative) Trace {
	n := len(t.min)
	out := Trace{From: seconds(t.edges[0]), To: seconds(t.edges[n]), Columns: make([]Column, n)}
	for i := range out.Columns {
		mean := c.between(t.edges[i], t.edges[i+1]) / (t.edges[i+1] - t.edges[i])
		lo, hi := t.min[i], t.max[i]
		if lo > hi {
			lo, hi = mean, mean
		}
		out.Columns[i] = Column{measure.Watt(mean), measure.Watt(min(lo, mean)), measure.Watt(max(hi, mean))}
	}
	return out
}

// thin keeps the readings near the work, at most as many as a plot can show: beyond
// that the first, least, largest and last of each stretch. A reading holds until the
// next one, so one before and one behind are kept.
func thin(r []Reading, from, to float64, most int) []Reading {
	// A reading holds until the next one: the last before the plot and the first behind it
	// lead the line to its edges.
	first, end := 0, len(r)
	for first+1 < len(r) && float64(r[first+1].At) < from {
		first++
	}
	for end-2 >= first && float64(r[end-2].At) > to {
		end--
	}
	in := r[first:end]
	if len(in) == 1 && !(float64(in[0].At) >= from && float64(in[0].At) <= to) {
		return nil // all of them lie on one side
	}
	if len(in) <= most {
		return slices.Clone(in)
	}
	// Four readings of each stretch keep its outline: both ends, and the extremes between.
	step := (len(in) + most/4 - 1) / (most / 4)
	var out []Reading
	for i := 0; i < len(in); i += step {
		part := in[i:min(i+step, len(in))]
		powers := lists.Map(part, func(x Reading) float64 { return float64(x.Power) })
		lo, hi := floats.MinIdx(powers), floats.MaxIdx(powers)
		last := -1
		for _, j := range []int{0, min(lo, hi), max(lo, hi), len(part) - 1} {
			if j > last {
				out, last = append(out, part[j]), j
			}
		}
	}
	return out
}
