// Package clocksync relates a meter's clock to the host's from what both saw:
// the power that the meter measured, and when the host started work and saw it
// end. No marker is needed, and nothing of the clocks need be known beforehand.
//
//	t_host = t_meter + offset − drift·(t_meter − start) + Σ jumps before t_meter
//
// The search is in two steps, each one pass over the samples: the trace in bins
// is correlated with the work to find which edge is which, whatever the meter's
// start time said; then a ramp is fitted to every edge of the power and a robust
// line to the edges' times. Memory does not grow with the trace.
package clocksync

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"wattmark/analysis/validate"
	"wattmark/measure"
)

// Trace yields a meter's samples in order of the meter's own time, from the
// first on, each time that it is called.
type Trace func() iter.Seq2[validate.Sample, error]

// Options say what is known beforehand. The zero value stands for the defaults.
type Options struct {
	// URate is the standard uncertainty of the meter's rate against the host's,
	// relative; default 500e-6, that of a PMD's time stamps.
	URate float64
	// UOnset is the standard uncertainty of how long after the host's time stamp the
	// power begins to rise, and of how long before the stamp of its end the work
	// was over, where that cannot be seen from the edges; default 0.15 ms.
	UOnset measure.Seconds
	// UFirst is the same of a program's first launch alone, which loads code;
	// default 0.3 ms.
	UFirst measure.Seconds
}

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	if o.URate == 0 {
		o.URate = 500e-6
	}
	if o.UOnset == 0 {
		o.UOnset = 0.15e-3
	}
	if o.UFirst == 0 {
		o.UFirst = 0.3e-3
	}
	return o
}

// ErrClocks is wrapped where the clocks cannot be related. What it wraps further
// says why.
var (
	ErrClocks = errors.New("the meter's clock cannot be found from the data")
	// ErrActivity: too little happens, or what happens is not in the trace.
	ErrActivity = fmt.Errorf("%w: the work is not seen in the power", ErrClocks)
	// ErrAmbiguous: several offsets fit alike.
	ErrAmbiguous = fmt.Errorf("%w: several offsets fit", ErrClocks)
)

// Edge is a start or an end of work that was looked for in the power.
type Edge struct {
	Host  measure.Seconds // the host's time stamp
	Meter measure.Seconds // when the power left its resting level, or came back to it
	U     measure.Seconds // standard uncertainty of Meter by noise and shape
	End   bool
	Step  measure.Watt    // how far the power went
	Rise  measure.Seconds // how long it took
	// Residual is the host's time stamp less the meter's time on the host's clock.
	Residual measure.Seconds
	Used     bool // not an outlier

	middle measure.Seconds // of the ramp, on the meter's clock
}

// Jump is where the meter's clock, or the host's, jumped against the other.
type Jump struct {
	At    measure.Seconds // meter's time, half-way between the edges on its sides
	UAt   measure.Seconds // half of the distance of those edges
	Size  measure.Seconds // what the offset gains there
	U     measure.Seconds // expanded uncertainty of Size, k = 2
	Edges [2]int          // edges before and after that bear it out
}

// Fit is the relation of the two clocks.
type Fit struct {
	// Start is the meter's time at which Offset holds: the first start of work.
	Start measure.Seconds
	// Offset is added to the meter's times, at Start: half-way between what the starts
	// and what the ends say, where there are several of both. OffsetU is expanded (k = 2), and
	// OffsetStat is its part from the edges' scatter alone, k = 1.
	Offset, OffsetU, OffsetStat measure.Seconds
	// Drift is what the meter's clock gains on the host's, in parts per million.
	DriftPPM, DriftUPPM float64
	// Late is how much later than the power the host saw the ends of the work than the
	// starts: sampling of its clock, waking up, and the power's own decay.
	Late, LateU measure.Seconds
	Jumps       []Jump
	// Single are edges of their own that lie off although all around them fit: a launch
	// that was late, not a clock that jumped.
	Single []Edge
	Edges  []Edge
	// Used and Rejected count the edges of the fit; Unseen those at which the power
	// did not step, or that lie too near to others.
	Used, Rejected, Unseen int
	// Scatter is the standard deviation of the used edges' residuals.
	Scatter measure.Seconds
	// Correlation of the power with the work at the offset, 0 to 1, and at the next
	// best other offset.
	Correlation, NextCorrelation float64
	// Samples is how many the trace has.
	Samples int64

	interval measure.Seconds // between samples
}

// Host maps a meter's time to the host's. Behind a jump backwards the host's time
// repeats itself: the caller must keep times in order.
func (f *Fit) Host(meter measure.Seconds) measure.Seconds {
	host := meter + f.Offset - measure.Seconds(f.DriftPPM*1e-6)*(meter-f.Start)
	for _, j := range f.Jumps {
		if meter > j.At {
			host += j.Size
		}
	}
	return host
}

// Find relates the meter's clock to the host's. The kernels' times are the host's,
// counted from any origin; the samples' are the meter's, counted from any other.
// Errors wrap ErrClocks, or come from the trace.
func Find(trace Trace, kernels []validate.Kernel, o Options) (*Fit, error) {
	o = o.withDefaults()
	c, err := coarsely(trace, busy(kernels, 0))
	if err != nil {
		return nil, err
	}
	// Work that follows work within two samples is one stretch of it to the meter.
	spans := busy(kernels, 2*c.interval)
	lags, err := c.search(spans, o.URate)
	if err != nil {
		return nil, err
	}
	var best *Fit
	for _, l := range lags {
		f, err := finely(trace, spans, l, c, o)
		if err != nil && (len(lags) == 1 || !errors.Is(err, ErrClocks)) {
			return nil, err
		}
		switch {
		case err != nil: // its edges are no edges
		case best == nil:
			best = f
		case f.tells(best):
			best = f
		case !best.tells(f):
			return nil, fmt.Errorf("%w: %.4f s and %.4f s both do, since the work repeats itself: record the idle GPU before and after the work, or give the offset",
				ErrAmbiguous, float64(best.Offset), float64(f.Offset))
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: no edge of the power lies where the work starts or ends", ErrActivity)
	}
	best.Correlation, best.NextCorrelation, best.Samples = lags[0].r, c.next, c.samples
	return best, nil
}

// tells reports whether f's edges fit so much better than g's that g is not to be
// believed.
func (f *Fit) tells(g *Fit) bool {
	if f.Used < g.Used/2 || f.Used < 3 {
		return false
	}
	const floor = 20e-6
	fs, gs := math.Max(float64(f.Scatter), floor), math.Max(float64(g.Scatter), floor)
	return gs > 3*fs || (f.Used >= g.Used+4 && gs > fs)
}

// busy merges kernels that lie less than gap apart into spans of work.
func busy(kernels []validate.Kernel, gap measure.Seconds) []validate.Span {
	var out []validate.Span
	for _, k := range kernels {
		if n := len(out); n > 0 && k.From-out[n-1].To <= gap {
			out[n-1].To = max(out[n-1].To, k.To)
			continue
		}
		out = append(out, k.Span)
	}
	return out
}
