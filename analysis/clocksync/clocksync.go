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
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
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

const (
	// maxBins bounds the coarse trace: 16 MB, and transforms of a second.
	maxBins = 1 << 20
	// minBin and maxBin bound the width of a bin at first.
	minBin = 0.5e-3
	maxBin = 20e-3
	// perSpan is how many bins the shortest stretch of work or rest should have.
	perSpan = 8
	// minCorrelation is the least correlation of power and work that is accepted.
	minCorrelation = 0.3
	// minSamples is the fewest samples of a trace.
	minSamples = 16
	// maxRivals is how many other offsets are tried edge by edge.
	maxRivals = 4
	// maxRates is how many rates of the meter's clock are tried on a long trace, on
	// which the drift would blur the correlation; they reach reachRates standard
	// uncertainties to either side.
	maxRates   = 65
	reachRates = 4
)

// coarse is the trace in bins of equal width.
type coarse struct {
	first    measure.Seconds
	width    measure.Seconds
	interval measure.Seconds // between samples, on average
	sum      []float64       // W, summed over the bin's samples
	count    []float64
	samples  int64
	last     measure.Seconds
}

// lag is a coarse relation of the clocks.
type lag struct {
	by   measure.Seconds // host − meter at the first start of work
	rate float64         // of the meter's clock against the host's, less one
	r    float64         // correlation of power and work
}

// coarsely reads the trace once into bins of equal width. Whenever the trace outgrows
// maxBins, bins are joined in pairs, so the width doubles and memory stays bounded.
func coarsely(trace Trace, spans []validate.Span) (*coarse, error) {
	if len(spans) == 0 {
		return nil, fmt.Errorf("%w: no start and end of any work is known", ErrActivity)
	}
	// A bin is an eighth of the 10th percentile of the lengths of work and rest, from
	// 0.5 ms to 20 ms.
	var lengths []float64
	for i, s := range spans {
		lengths = append(lengths, float64(s.Length()))
		if i > 0 {
			lengths = append(lengths, float64(s.From-spans[i-1].To))
		}
	}
	slices.Sort(lengths)
	c := &coarse{width: measure.Seconds(min(maxBin, max(minBin, lengths[len(lengths)/10]/perSpan)))}
	for s, err := range trace() {
		if err == nil {
			err = c.add(s)
		}
		if err != nil {
			return nil, err
		}
	}
	if c.samples < minSamples {
		return nil, fmt.Errorf("%w: the meter gave %s, at least %d are wanted", ErrActivity,
			measure.Plural(c.samples, "sample"),
			minSamples)
	}
	c.interval = (c.last - c.first) / measure.Seconds(c.samples-1)
	c.fill()
	return c, nil
}

// add puts a sample into its bin. It fails where a sample is not finite, does not come
// after the one before it, or lies 64 full traces behind.
func (c *coarse) add(s validate.Sample) error {
	switch {
	case !measure.Known(s.Power) || !measure.Known(s.At):
		return fmt.Errorf("%w: sample %d is not a finite number", ErrClocks, c.samples+1)
	case c.samples == 0:
		c.first = s.At
	case s.At <= c.last:
		return fmt.Errorf("%w: sample %d, at %.6f s, does not come after the one before it", ErrClocks, c.samples+1,
			float64(s.At))
	}
	c.last = s.At
	c.samples++
	i := float64(s.At-c.first) / float64(c.width)
	for i >= maxBins {
		if i > 64*maxBins {
			return fmt.Errorf("%w: sample %d lies %.0f s behind the one before it", ErrClocks, c.samples,
				float64(s.At-c.first))
		}
		c.join()
		i /= 2
	}
	for len(c.sum) <= int(i) {
		c.sum, c.count = append(c.sum, 0), append(c.count, 0)
	}
	c.sum[int(i)] += float64(s.Power)
	c.count[int(i)]++
	return nil
}

// join makes the bins twice as wide.
func (c *coarse) join() {
	half := (len(c.sum) + 1) / 2
	for i := range half {
		pair := min(2*i+2, len(c.sum))
		c.sum[i], c.count[i] = floats.Sum(c.sum[2*i:pair]), floats.Sum(c.count[2*i:pair])
	}
	c.sum, c.count = c.sum[:half], c.count[:half]
	c.width *= 2
}

// fill turns the sums into powers; a bin without a sample repeats the one before.
func (c *coarse) fill() {
	var last float64
	for i, n := range c.count {
		if n > 0 {
			last = c.sum[i] / n
		}
		c.sum[i] = last
	}
}

// search finds the lags at which the power follows the work best. For each lag the
// model power = rest + step · (busy share of the bin) is fitted over the whole trace;
// r² is the share of the trace's variance that it explains. It returns the best lag and
// those too close to it to decide without the edges.
func (c *coarse) search(spans []validate.Span) ([]lag, error) {
	lengths := lists.Map(spans, func(s validate.Span) float64 { return float64(s.Length()) })
	short := slices.Min(lengths)
	apart := max(1, int(short/2/float64(c.width)))
	var best struct {
		r, rate float64
		all     []float64
		order   []int
		busy    int
	}
	for _, rate := range rates(spans, short) {
		busy := c.activity(spans, rate)
		r := correlate(c.sum, busy)
		if order := peaks(r, apart); len(order) > 0 && r[order[0]] > best.r {
			best.r, best.rate, best.all, best.order, best.busy = r[order[0]], rate, r, order, len(busy)
		}
	}
	if best.r < minCorrelation {
		return nil, fmt.Errorf("%w: at no offset do they correlate by more than %.2f: are meter and events of the "+
			"same run and the same GPU?", ErrActivity, best.r)
	}
	// A deficit in explained variance rules an offset out from half of the shortest span's
	// share of the work on, at most a tenth.
	margin := min(0.1, short/floats.Sum(lengths)/2)
	var out []lag
	for i, k := range best.order {
		r := best.all[k]
		if i > maxRivals || r*r < best.r*best.r*(1-margin) {
			break
		}
		// Bin b of the work meets bin i of the trace where i − b = k − (busy − 1).
		meter := c.first + measure.Seconds(k-(best.busy-1))*c.width
		out = append(out, lag{by: spans[0].From - meter, rate: best.rate, r: r})
	}
	return out, nil
}

// rates returns the rates of the meter's clock to try, less one: the nominal rate
// alone, unless a drift of 4·uRate would move the last edge by half of the shortest
// span or more. Neighbouring rates then differ by one shortest span at the end.
func rates(spans []validate.Span, short float64) []float64 {
	length, reach := float64(spans[len(spans)-1].To-spans[0].From), reachRates*uRate
	n := min(maxRates/2, int(math.Ceil(reach*length/short-0.5)))
	out := []float64{0}
	for i := 1; i <= n; i++ {
		d := reach * float64(i) / float64(n)
		out = append(out, d, -d)
	}
	return out
}

// activity returns the busy share, 0 to 1, of each bin from the first start on. Work
// longer than twice the longest trace is cut.
func (c *coarse) activity(spans []validate.Span, rate float64) []float64 {
	origin, h := spans[0].From, float64(c.width)/(1+rate)
	n := int(min(float64(spans[len(spans)-1].To-origin)/h+2, 2*maxBins))
	out := make([]float64, n)
	for _, s := range spans {
		a, b := float64(s.From-origin)/h, float64(s.To-origin)/h
		for i := int(a); i < n && float64(i) < b; i++ {
			out[i] += min(b, float64(i+1)) - max(a, float64(i))
		}
	}
	return out
}

// correlate returns Pearson's correlation of power and work for every shift at which
// they overlap; index k is a shift of k − (len(busy) − 1) bins. Outside of its bins the
// work counts as zero. The work's variance over the trace comes from running sums.
func correlate(power, busy []float64) []float64 {
	n, m := len(power), len(busy)
	power = stats.Centred(power)
	cov := stats.CrossProducts(power, busy, 1-m, n-1)
	_, variance := stats.Cumulate(power)
	sums, squares := stats.Cumulate(busy)
	out := make([]float64, len(cov))
	for k := range out {
		shift := k - (m - 1)
		lo, hi := max(0, -shift), min(m, n-shift)
		sum := sums[hi] - sums[lo]
		v := squares[hi] - squares[lo] - sum*sum/float64(n)
		if v > 1e-9 && variance[n] > 0 {
			out[k] = cov[k] / math.Sqrt(v*variance[n])
		}
	}
	return out
}

// peaks returns the indices of the highest local maxima, largest first, at least apart
// from each other; at most 16.
func peaks(v []float64, apart int) []int {
	var tops []int
	for i := 1; i < len(v)-1; i++ {
		if v[i] > 0 && v[i] >= v[i-1] && v[i] > v[i+1] {
			tops = append(tops, i)
		}
	}
	slices.SortStableFunc(tops, func(a, b int) int { return cmp.Compare(v[b], v[a]) })
	var out []int
	for _, t := range tops {
		if !slices.ContainsFunc(out, func(o int) bool { return o-t <= apart && t-o <= apart }) {
			out = append(out, t)
		}
		if len(out) == 16 {
			break
		}
	}
	return out
}
