package correct

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
)

// Mode is a power at which the GPU spent time.
type Mode struct {
	Power measure.Watt
	SD    measure.Watt // of the corrected readings around it
	Share float64      // of the time
}

// Level is the power of a GPU that waits for work, and the threshold of work. A K20
// stays at 52.5 W for some seconds after a kernel, its active idle, before it falls to
// its idle power; other cards fall at once, and both are equal.
type Level struct {
	Idle   measure.Watt `json:"idle_w"`
	Active measure.Watt `json:"active_idle_w"`
	// Threshold is the corrected power above which the GPU is at work.
	Threshold measure.Watt `json:"threshold_w"`
	Modes     []Mode       `json:"-"` // in order of power
	// Valley is the least density of time over power between the level and the work
	// above it, as a share of the lower of the two peaks: 0 where they are well apart.
	// Clear is Valley < 0.2.
	Valley    float64 `json:"-"`
	Clear     bool    `json:"clear"`
	Statement string  `json:"statement"`
}

// ErrLevel is wrapped where rest and work cannot be separated.
var ErrLevel = errors.New("the readings do not tell rest from work")

const (
	levelBins  = 400
	modeShare  = 0.02 // least share of the time in a mode
	modeValley = 0.6  // of the lower peak: shallower valleys are no valleys
	clear      = 0.2
)

// FindLevel finds the active idle in corrected power, from the smoothed histogram of
// time over power, whose peaks are the modes. Otsu's cut (1979), which minimises the
// variance within two classes, separates rest from work; the highest peak of rest is
// the active idle. The threshold lies just above it, at most in the valley to the work.
//
// sigma is the standard deviation of the corrected readings, by [Lag.Sigma]. Errors wrap
// ErrReadings or ErrLevel.
func FindLevel(corrected []Reading, sigma measure.Watt) (Level, error) {
	if err := Check(corrected); err != nil {
		return Level{}, err
	}
	h := newHistogram(corrected, float64(sigma))
	if span := h.top - h.bottom; span < 4 || span < 12*float64(sigma) {
		return Level{}, fmt.Errorf("correct: %w: the corrected power stays within %.3g W, with a noise of %.2g W: "+
			"give the level", ErrLevel, span, float64(sigma))
	}
	peaks := h.peaks()
	cut := h.otsu()
	below, _ := slices.BinarySearchFunc(peaks, cut, func(p peak, cut int) int { return cmp.Compare(p.bin, cut) })
	rest := max(0, below-1)
	if rest == len(peaks)-1 {
		return Level{}, fmt.Errorf("correct: %w: the time has %d peak(s) over the power, and none is work: give the "+
			"level", ErrLevel, len(peaks))
	}
	var l Level
	for i := range peaks {
		l.Modes = append(l.Modes, h.mode(peaks, i))
	}
	l.Active = l.Modes[rest].Power
	l.Idle = l.Active
	if rest > 0 { // idle: the mode below with the most time
		l.Idle = slices.MaxFunc(l.Modes[:rest], func(a, b Mode) int { return cmp.Compare(a.Share, b.Share) }).Power
	}
	a, b := peaks[rest], peaks[rest+1]
	valley := h.lowest(a.bin, b.bin)
	l.Valley = h.smooth[valley] / min(h.smooth[a.bin], h.smooth[b.bin])
	l.Clear = l.Valley < clear
	// Not the valley itself: a step of the power is a ramp of two readings, of which a low
	// threshold loses least.
	margin := max(5*float64(l.Modes[rest].SD), 0.04*(h.top-h.bottom))
	l.Threshold = measure.Watt(min(float64(l.Active)+margin, h.power(valley)))
	l.Statement = l.statement(rest)
	return l, nil
}

// statement puts the level into a sentence.
func (l *Level) statement(rest int) string {
	s := fmt.Sprintf("idle %.1f W", float64(l.Idle))
	if rest > 0 {
		s += fmt.Sprintf(", active idle %.1f W for %.0f %% of the time", float64(l.Active), 100*l.Modes[rest].Share)
	} else {
		s += ", no active idle apart from it"
	}
	s += fmt.Sprintf("; work counts above %.1f W", float64(l.Threshold))
	if !l.Clear {
		s += fmt.Sprintf("; work at %.1f W is not clearly apart (the valley is %.0f %% as dense as the lower peak): "+
			"check the plot, or give the level", float64(l.Modes[rest+1].Power), 100*l.Valley)
	}
	return s
}

// histogram is time over power.
type histogram struct {
	bottom, top, width float64   // 1st and 99th percentile of the power, width of a bin: W
	time, smooth       []float64 // seconds a bin
	powers, weights    []float64 // of the readings: W, s
}

// peak is a local maximum of the smoothed histogram, with the range of bins up to the
// valleys beside it.
type peak struct{ bin, from, to int }

// newHistogram weighs each reading by half the time to both neighbours, and smooths by a
// normal distribution of 1.5 sigma, at least an 80th of the range.
func newHistogram(rs []Reading, sigma float64) *histogram {
	h := &histogram{}
	for i, r := range rs {
		w := float64(rs[min(i+1, len(rs)-1)].At-rs[max(i-1, 0)].At) / 2
		h.powers, h.weights = append(h.powers, float64(r.Power)), append(h.weights, w)
	}
	sorted := slices.Clone(h.powers)
	slices.Sort(sorted)
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }
	h.bottom, h.top = at(0.01), at(0.99)
	// Outliers beyond the percentiles stay in the histogram as far as noise explains them.
	pad := 0.1*(h.top-h.bottom) + 4*sigma
	low := h.bottom - pad
	h.width = (h.top - h.bottom + 2*pad) / levelBins
	h.time = make([]float64, levelBins)
	for i, p := range h.powers {
		if b := int((p - low) / h.width); p >= low && b < levelBins {
			h.time[b] += h.weights[i]
		}
	}
	h.smooth = smooth(h.time, max(1.5*sigma, (h.top-h.bottom)/80)/h.width)
	return h
}

// power returns the middle of a bin in watts.
func (h *histogram) power(bin int) float64 {
	pad := (h.width*levelBins - (h.top - h.bottom)) / 2
	return h.bottom - pad + (float64(bin)+0.5)*h.width
}

// smooth convolves with a bell of a standard deviation in bins.
func smooth(v []float64, width float64) []float64 {
	out := make([]float64, len(v))
	reach := int(4*width) + 1
	for i, x := range v {
		if x == 0 {
			continue
		}
		for j := max(0, i-reach); j <= min(len(v)-1, i+reach); j++ {
			d := float64(j-i) / width
			out[j] += x * math.Exp(-d*d/2)
		}
	}
	return out
}

// peaks returns the maxima that hold 2 % of the time or more and are no shoulders of a
// higher one.
func (h *histogram) peaks() (out []peak) {
	last := len(h.smooth) - 1
	for i, v := range h.smooth {
		if v > 0 && (i == 0 || v > h.smooth[i-1]) && (i == last || v >= h.smooth[i+1]) {
			out = append(out, peak{bin: i})
		}
	}
	for changed := true; changed; {
		changed = false
		// Each peak has the bins up to the valleys beside it.
		for i := range out {
			out[i].from, out[i].to = 0, len(h.time)
			if i > 0 {
				out[i].from = h.lowest(out[i-1].bin, out[i].bin)
				out[i-1].to = out[i].from
			}
		}
		for i, p := range out {
			share := floats.Sum(h.time[p.from:p.to])
			if len(out) > 1 && (share < modeShare*floats.Sum(h.time) || h.shallow(out, i)) {
				out, changed = slices.Delete(out, i, i+1), true
				break
			}
		}
	}
	return out
}

// shallow reports whether a peak is a shoulder of a higher neighbour: the valley between
// is above 60 % of it.
func (h *histogram) shallow(peaks []peak, i int) bool {
	mine := h.smooth[peaks[i].bin]
	for _, j := range []int{i - 1, i + 1} {
		if j < 0 || j >= len(peaks) || h.smooth[peaks[j].bin] < mine {
			continue
		}
		v := h.lowest(min(peaks[i].bin, peaks[j].bin), max(peaks[i].bin, peaks[j].bin))
		if h.smooth[v] > modeValley*mine {
			return true
		}
	}
	return false
}

// lowest returns the middle of the emptiest bins from a to b.
func (h *histogram) lowest(a, b int) int {
	part := h.smooth[a : b+1]
	limit := slices.Min(part)*1.0001 + 1e-300
	empty := func(v float64) bool { return v <= limit }
	first := a + slices.IndexFunc(part, empty)
	last := b
	for !empty(h.smooth[last]) {
		last--
	}
	return (first + last) / 2
}

// mode returns power, spread and share of a peak: median and robust standard deviation
// of the readings within a 20th of the range, and the share of the time in its bins.
func (h *histogram) mode(peaks []peak, i int) Mode {
	p := peaks[i]
	low, high := h.power(p.from)-h.width/2, h.power(p.to-1)+h.width/2
	var near []float64
	share, m, sd := 0.0, h.power(p.bin), 0.0
	for k, v := range h.powers {
		if v < low || v >= high {
			continue
		}
		share += h.weights[k]
		if math.Abs(v-m) < (h.top-h.bottom)/20 {
			near = append(near, v)
		}
	}
	if len(near) > 0 {
		m = stats.Median(near)
		floats.AddConst(-m, near)
		sd = stats.SD(near)
	}
	return Mode{Power: measure.Watt(m), SD: measure.Watt(sd), Share: share / floats.Sum(h.weights)}
}

// otsu returns the bin that separates the time in two classes of least variance within.
func (h *histogram) otsu() int {
	total, sum := 0.0, 0.0
	for b, w := range h.time {
		total += w
		sum += w * float64(b)
	}
	best, most, w0, s0 := 0, -1.0, 0.0, 0.0
	for b, w := range h.time {
		w0 += w
		s0 += w * float64(b)
		if w0 == 0 || w0 == total {
			continue
		}
		d := s0/w0 - (sum-s0)/(total-w0)
		if v := w0 * (total - w0) * d * d; v > most {
			best, most = b+1, v
		}
	}
	return best
}
