package measure

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"gonum.org/v1/gonum/stat"
)

// A multiplexed converter reads its channels one after another: a channel's
// reading is Skew later than its scan's tick. Two things follow for a rail.
//
//   - Its two readings are of two instants. The second channel (voltage, or the
//     load side of a shunt) is brought to the instant of the first by a
//     fractional delay (aligner). The first stays as it was read: a current
//     steps, and an interpolated step rings.
//   - The pair is of the first channel's instant, its Skew behind the tick. The
//     rail is integrated over the window moved by that (edge.span), and by half of
//     an average ahead: a reading that is a mean is of the middle of its time.
//
// Where readings cannot be interpolated they are taken as they stand, and the error by
// the skew is bounded in the budget: on stamped timebases, whose scans
// need not lie evenly, and for instruments that show each value several times.

// uSkew is the relative standard uncertainty that a stated skew is taken to
// have. Data sheets and bench files state it in one or two figures.
const uSkew = 0.1

// maxSkewScans is the longest delay in scans, of a channel behind its tick and
// of a rail's two channels, that is corrected.
const maxSkewScans = 1 << 16

// lag is how long a rail's second reading comes after its first.
func (s *Setup) lag(r Rail) Seconds {
	if r.Y < 0 {
		return 0
	}
	return s.Channels[r.Y].Skew - s.Channels[r.X].Skew
}

// Instant returns the time from a scan's tick to what a channel's reading shows: its skew, less half of the time that
// the instrument averages over, which ends there.
func (s *Setup) Instant(channel int) Seconds { return s.Channels[channel].Skew - s.Response.Window/2 }

// MeanSkew returns the mean delay of the rails' first channels, those that carry the current, and its standard
// uncertainty as the delay of their sum. A step of the card counts by each rail's share of it, which is not known: of
// n delays with the variance v, shares that are uniform over all divisions of one (Dirichlet) give a weighted mean
// with the variance v/(n + 1).
func (s *Setup) MeanSkew() (mean, u Seconds) {
	delays := lists.Map(s.Rails, func(r Rail) float64 { return float64(s.Channels[r.X].Skew) })
	m, v := stat.PopMeanVariance(delays, nil)
	return Seconds(m), Seconds(math.Sqrt(v / float64(len(delays)+1)))
}

// aligns reports whether the second reading of the rail is brought to the
// instant of the first.
func (s *Setup) aligns(r Rail) bool {
	return s.lag(r) != 0 && !s.Timebase.Stamped && holdScans(s) == 1
}

// checkSkew refuses delays that no memory of flat size can hold.
func (s *Setup) checkSkew() error {
	limit := float64(s.Timebase.Seconds(maxSkewScans * s.Timebase.TicksPerScan))
	for _, r := range s.Rails {
		x := s.Channels[r.X]
		if math.Abs(float64(x.Skew)) > limit {
			return fmt.Errorf("channel %s: a skew of %v is more than %d scans: state the delay behind its own scan",
				x.Name, x.Skew, maxSkewScans)
		}
		if s.aligns(r) && math.Abs(float64(s.lag(r))) > limit {
			return fmt.Errorf(
				"rail %s: its readings lie %v apart, more than %d scans: state the delays behind their own "+
					"scan", r.Name, s.lag(r), maxSkewScans)
		}
	}
	return nil
}

// noiseGain is the variance of one aligned second reading of the rail by that
// of a reading of its channel: 1 where it is not interpolated.
func (s *Setup) noiseGain(r Rail) float64 {
	if !s.aligns(r) {
		return 1
	}
	_, share := splitLag(s.Timebase, s.lag(r))
	f := newFractional(share)
	return f.noiseGain()
}

// splitLag splits the way from the second reading to the first, which lies lag
// before it, into whole scans and a share of one in [0, 1).
func splitLag(tb Timebase, lag Seconds) (scans int, share float64) {
	way := -tb.Ticks(lag) / tb.TicksPerScan
	whole := math.Floor(way)
	return int(whole), way - whole
}

// alignScans is how many scans are interpolated at a time.
const alignScans = 2048

// aligner brings the second readings of rails to the instants of their first
// ones, on a uniform timebase. It keeps as many scans as the taps reach and
// hands a scan on when the readings behind it have come: a scan comes out
// some scans later.
//
// At the begin and the end of a run (a gap, a jump of the device's time, the
// end of the data) there are no readings beyond: the first and the last one
// stand for them, so that nothing leaks across. Its memory does not grow.
type aligner struct {
	step         float64
	delays       []delay // by channel
	back, ahead  int     // scans needed before and behind the one handed on
	buf          [][]float64
	ticks        []float64 // of the scans in buf
	n            int       // scans in buf, those that stand for missing ones included
	running      bool
	next         uint64 // scan expected next; it would be buf[n]
	interpolated [][]float64
	cols, cut    [][]float64
	piece        stretch[float64]
}

// delay is where a channel's output is read: whole scans behind, and the
// share of a scan where there are taps.
type delay struct {
	whole int
	taps  *fractional
}

// newAligner prepares the setup's rails; nil where nothing is to be aligned.
func newAligner(s *Setup) *aligner {
	if !slices.ContainsFunc(s.Rails, s.aligns) {
		return nil
	}
	a := &aligner{
		step: s.Timebase.TicksPerScan, delays: make([]delay, len(s.Channels)),
		buf: make([][]float64, len(s.Channels)), cols: make([][]float64, len(s.Channels)),
		interpolated: make([][]float64, len(s.Channels)), cut: make([][]float64, len(s.Channels)),
	}
	for _, r := range s.Rails {
		if !s.aligns(r) {
			continue
		}
		whole, share := splitLag(s.Timebase, s.lag(r))
		d := &a.delays[r.Y]
		d.whole = whole
		before, behind := -whole, whole
		if share > 0 {
			d.taps = new(newFractional(share))
			before, behind = before+fdHalf-1, behind+fdHalf
		}
		a.back, a.ahead = max(a.back, before), max(a.ahead, behind)
	}
	size := a.back + 2*a.ahead + alignScans
	for c := range a.buf {
		a.buf[c] = make([]float64, size)
		if a.delays[c].taps != nil {
			a.interpolated[c] = make([]float64, max(alignScans, a.ahead))
		}
	}
	a.ticks = make([]float64, size)
	return a
}

// add takes a stretch of counts and hands on the complete scans.
func (a *aligner) add(s *stretch[Count], out func(*stretch[float64]) error) error {
	if a.running && (s.first != a.next || math.Abs(s.start-a.ticks[a.n-1]-a.step) > a.step/2) {
		if err := a.flush(out); err != nil {
			return err
		}
	}
	if !a.running { // a run starts: its first reading stands for those before
		a.running, a.n, a.next = true, a.back, s.first
		for c, col := range s.cols {
			for i := range a.back {
				a.buf[c][i] = float64(col[0])
			}
		}
	}
	for from := 0; from < s.n; {
		m := min(s.n-from, alignScans)
		for c, col := range s.cols {
			dst := a.buf[c][a.n : a.n+m]
			for i, v := range col[from : from+m] {
				dst[i] = float64(v)
			}
		}
		for i := range m {
			a.ticks[a.n+i] = s.at(from + i)
		}
		a.n, a.next, from = a.n+m, a.next+uint64(m), from+m
		if err := a.emit(out); err != nil {
			return err
		}
	}
	return nil
}

// flush hands on the rest of a run; its last reading stands for those behind.
func (a *aligner) flush(out func(*stretch[float64]) error) error {
	if !a.running {
		return nil
	}
	a.running = false
	for c := range a.buf {
		for i := range a.ahead {
			a.buf[c][a.n+i] = a.buf[c][a.n-1]
		}
	}
	a.n, a.next = a.n+a.ahead, a.next+uint64(a.ahead)
	return a.emit(out)
}

// emit hands on the scans in buf that have all neighbours they need, and keeps
// those that the next ones will need.
func (a *aligner) emit(out func(*stretch[float64]) error) error {
	n := a.n - a.back - a.ahead
	if n <= 0 {
		return nil
	}
	for c := range a.cols {
		d, x := a.delays[c], a.buf[c]
		at := a.back + d.whole
		if d.taps == nil {
			a.cols[c] = x[at : at+n]
			continue
		}
		a.cols[c] = a.interpolated[c][:n]
		d.taps.run(a.cols[c], x[at-fdHalf+1:at+n+fdHalf])
	}
	first := a.next - uint64(a.n-a.back)
	if err := a.pieces(first, n, out); err != nil {
		return err
	}
	for c := range a.buf {
		copy(a.buf[c], a.buf[c][n:a.n])
	}
	copy(a.ticks, a.ticks[n:a.n])
	a.n -= n
	return nil
}

// pieces hands n scans on, cut where the device's time advances by more than the step.
func (a *aligner) pieces(first uint64, n int, out func(*stretch[float64]) error) error {
	ticks := a.ticks[a.back : a.back+n]
	for from := 0; from < n; {
		to := from + 1
		for to < n && math.Abs(ticks[to]-ticks[to-1]-a.step) < 1e-3*a.step {
			to++
		}
		for c := range a.cut {
			a.cut[c] = a.cols[c][from:to]
		}
		a.piece = stretch[float64]{
			cols: a.cut, start: ticks[from], step: a.step, n: to - from, first: first + uint64(from),
		}
		if err := out(&a.piece); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// clone returns a copy that shares nothing that changes.
func (a *aligner) clone() *aligner {
	c := *a
	c.ticks = slices.Clone(a.ticks)
	c.buf, c.interpolated = lists.Map(a.buf, slices.Clone), lists.Map(a.interpolated, slices.Clone)
	c.cols, c.cut = slices.Clone(a.cols), slices.Clone(a.cut)
	return &c
}

// A fractional delay is a sinc that is sampled between its zeros and cut off by
// a window (T. I. Laakso, V. Välimäki, M. Karjalainen, U. K. Laine, Splitting
// the Unit Delay, IEEE Signal Processing Magazine 13 (1996) 30–60, section
// "Windowing the ideal impulse response"). The window is Kaiser's (J. F. Kaiser,
// 1974), moved along with the sinc's centre as they recommend, and the taps are
// scaled to a sum of one: a resting signal, and so every integral, passes
// exactly. With 16 taps and β = 7 the output is within 0.07 % of the ideal one
// up to 0.35 of the scan rate, within 1 % up to 0.38 and 5 % at 0.4; from there to
// half of the rate it fails, as any filter of finite length must.
const (
	fdHalf = 8 // taps on either side
	fdTaps = 2 * fdHalf
	fdBeta = 7.0
)

// fractional interpolates between readings: tap k weighs the reading k − 7 scans
// behind the one from which the fraction counts.
type fractional [fdTaps]float64

// newFractional returns the taps that read a signal a share of a scan in [0, 1)
// behind a reading.
func newFractional(share float64) (f fractional) {
	var total float64
	for k := range f {
		u := float64(k-fdHalf+1) - share
		f[k] = sinc(u) * kaiser(u/fdHalf)
		total += f[k]
	}
	for k := range f {
		f[k] /= total
	}
	return f
}

// noiseGain is the variance of an output by the variance of independent
// readings: the sum of the squares of the taps. It holds for one output; the
// outputs around it share readings, and the variance of a sum of many outputs
// is that of the readings, for the taps' own sum is one.
func (f *fractional) noiseGain() (g float64) {
	for _, h := range f {
		g += h * h
	}
	return g
}

// run fills dst: dst[i] lies the fraction behind x[i+fdHalf−1]. x has
// fdTaps − 1 values more than dst.
func (f *fractional) run(dst, x []float64) {
	for i := range dst {
		w := (*[fdTaps]float64)(x[i : i+fdTaps])
		a := f[0]*w[0] + f[1]*w[1] + f[2]*w[2] + f[3]*w[3]
		b := f[4]*w[4] + f[5]*w[5] + f[6]*w[6] + f[7]*w[7]
		c := f[8]*w[8] + f[9]*w[9] + f[10]*w[10] + f[11]*w[11]
		d := f[12]*w[12] + f[13]*w[13] + f[14]*w[14] + f[15]*w[15]
		dst[i] = (a + b) + (c + d)
	}
}

func sinc(u float64) float64 {
	if math.Abs(u) < 1e-12 {
		return 1
	}
	return math.Sin(math.Pi*u) / (math.Pi * u)
}

// kaiser is Kaiser's window over [−1, 1].
func kaiser(r float64) float64 {
	return besselI0(fdBeta*math.Sqrt(max(1-r*r, 0))) / besselI0(fdBeta)
}

// besselI0 is the modified Bessel function of order zero, by its power series
// (Abramowitz and Stegun, 9.6.12).
func besselI0(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1.0; term > 1e-17*sum; k++ {
		term *= (x / (2 * k)) * (x / (2 * k))
		sum += term
	}
	return sum
}
