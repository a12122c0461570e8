// Package clocksync relates a meter's clock to the host's from the meter's power
// and the host's time stamps of its kernels. It needs neither a marker nor any prior
// knowledge of the clocks.
//
//	t_host = t_meter + offset − drift·(t_meter − start) + Σ jumps before t_meter
//
// Its nouns: a Trace yields the meter's samples, an Edge is one start or end of work,
// a Fit is the relation of the clocks, with its Jumps. The search takes two steps,
// each one pass over the samples:
//
//  1. coarse: the trace in bins is correlated with the work, by Fourier transform, to
//     find which edge is which, independent of the meter's stated start time;
//  2. fine: a ramp is fitted to every edge of the power, and a robust line with jumps
//     to the edges' times (Huber's loss, iteratively reweighted).
//
// Memory does not grow with the trace. All times are in seconds, powers in watts.
// Functions are pure but for reading the trace, and safe for concurrent use.
package clocksync

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/measure"
)

// Trace yields a meter's samples in order of the meter's own time; each call starts
// again at the first. An error ends the iteration and is returned by Find.
type Trace func() iter.Seq2[validate.Sample, error]

// Prior uncertainties, all standard (k = 1).
const (
	// uRate is that of the meter's rate against the host's, relative, as of a PMD's
	// time stamps.
	uRate = 500e-6
	// uOnset is that of the delay from the host's time stamp of a start to the rise of
	// the power, and from the end of the work to its time stamp, where the edges do not
	// show it, in seconds. It is of a program's own time stamps around a launch;
	// measure.UPowerDelay, of the GPU's stamps, is a small part of it.
	uOnset = 0.15e-3
	// uFirst is the same of a program's first launch alone, which loads code.
	uFirst = 0.3e-3
)

// Errors of Find. All wrap ErrClocks; the others name the cause.
var (
	ErrClocks = errors.New("the meter's clock cannot be found from the data")
	// ErrActivity: the work has too few edges, or they are not in the trace.
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
	Size  measure.Seconds // change of the offset
	U     measure.Seconds // expanded uncertainty of Size, k = 2
	Edges [2]int          // edges before and after that bear it out
}

// Fit is the relation of the two clocks.
type Fit struct {
	// Start is the meter's time at which Offset holds: the first start of work.
	Start measure.Seconds
	// Offset is added to the meter's times, at Start: half-way between the offset by
	// the starts and that by the ends, where there are several of both. OffsetU is
	// expanded (k = 2).
	Offset, OffsetU measure.Seconds
	// DriftPPM is the rate of the meter's clock against the host's, less one, in parts
	// per million; DriftUPPM its expanded uncertainty (k = 2).
	DriftPPM, DriftUPPM float64
	// Late is the extra delay of the host's time stamps at the ends of the work against
	// those at the starts: clock sampling, wake-up, and the power's own decay.
	Late  measure.Seconds
	Jumps []Jump
	// Single are lone outliers between edges that fit: a late launch, not a jump of a
	// clock.
	Single []Edge
	Edges  []Edge
	// Used and Rejected count the edges of the fit; Unseen those at which the power
	// did not step, or that lie too near to others.
	Used, Rejected, Unseen int
	// Scatter is the standard deviation of the used edges' residuals.
	Scatter measure.Seconds
	// Correlation of the power with the work at the offset, 0 to 1.
	Correlation float64

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
// from any origin, in ascending order; the samples' are the meter's, from any other.
// It reads the trace two to six times: once in bins, then once for each offset that
// correlates about as well as the best. Errors wrap ErrClocks, or come from the trace.
func Find(trace Trace, kernels []validate.Kernel) (*Fit, error) {
	c, err := coarsely(trace, busy(kernels, 0))
	if err != nil {
		return nil, err
	}
	// The meter cannot resolve a pause of two samples: join such stretches of work.
	spans := busy(kernels, 2*c.interval)
	lags, err := c.search(spans)
	if err != nil {
		return nil, err
	}
	var best *Fit
	for _, l := range lags {
		f, err := finely(trace, spans, l, c)
		if err != nil && (len(lags) == 1 || !errors.Is(err, ErrClocks)) {
			return nil, err
		}
		switch {
		case err != nil: // no edges at this offset
		case best == nil || f.beats(best):
			best = f
		case !best.beats(f):
			return nil, fmt.Errorf("%w: %.4f s and %.4f s both do, since the work repeats itself: "+
				"record the idle GPU before and after the work, or give the offset", ErrAmbiguous,
				float64(best.Offset), float64(f.Offset))
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: no edge of the power lies where the work starts or ends", ErrActivity)
	}
	best.Correlation = lags[0].r
	return best, nil
}

// beats reports whether f's edges fit clearly better than g's, so that g is rejected:
// a third of the scatter, or less scatter with at least four more edges. Scatters
// below 20 µs count as 20 µs.
func (f *Fit) beats(g *Fit) bool {
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
