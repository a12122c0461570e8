package calib

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// bins is how many means of a run are kept: enough to see how it wanders, and
// always the same however long it lasts.
const bins = 256

// Meter takes in a run of readings at a constant input, channel by channel. Its
// memory does not grow. It is not safe for concurrent use.
type Meter struct {
	setup    *measure.Setup
	channels []gauge
}

// gauge is one channel's run.
type gauge struct {
	n           uint64
	over        uint64
	first       measure.Count // counts are taken from the first: small numbers stay exact
	sum, square float64
	sums        [2 * bins]float64 // of the bins that are full, and the one that fills
	levels      [32]uint64        // how often each count came, around the first
	size        uint64            // readings a bin
	full        int               // bins that are full
	filled      uint64            // readings in the bin that fills
}

// NewMeter makes a meter for the channels of a setup.
func NewMeter(s *measure.Setup) *Meter {
	m := &Meter{setup: s, channels: make([]gauge, len(s.Channels))}
	for i := range m.channels {
		m.channels[i].size = 1
	}
	return m
}

// Add takes a block that fits the setup.
func (m *Meter) Add(b *measure.Block) {
	for i := range m.channels {
		m.channels[i].add(m.setup.Channels[i], b.Counts[i])
	}
}

func (g *gauge) add(c measure.Channel, counts []measure.Count) {
	for _, n := range counts {
		if g.n == 0 {
			g.first = n
		}
		g.n++
		if c.OverRange(n) {
			g.over++
		}
		d := float64(n) - float64(g.first)
		g.sum += d
		g.square += d * d
		g.sums[g.full] += d
		g.levels[min(max(int64(n)-int64(g.first)+16, 0), 31)]++
		if g.filled++; g.filled == g.size {
			g.next()
		}
	}
}

// next begins a bin; where all are full, pairs of them become one.
func (g *gauge) next() {
	g.full, g.filled = g.full+1, 0
	if g.full < 2*bins {
		return
	}
	for i := range bins {
		g.sums[i] = g.sums[2*i] + g.sums[2*i+1]
	}
	clear(g.sums[bins:])
	g.full, g.size = bins, 2*g.size
}

// Stat holds the statistics of a channel's run, in counts.
type Stat struct {
	Samples   uint64
	OverRange uint64 // readings at an end of the converter's range
	Mean, Std float64
	// U is the mean's standard uncertainty: the scatter of the readings, by the Allan
	// deviation where they scatter more slowly than white noise, how far they
	// drifted, and the rounding to counts.
	U float64
	// Drift is by how much the second half lies above the first.
	Drift float64
	// Restless is by how many times the Allan deviation, or the drift, is larger
	// than that of white noise of the same Std may be.
	Restless float64
}

// tolerance is how far a resting input may wander unremarked, in counts.
const tolerance = 0.5

// Stat returns the run of channel i so far.
func (m *Meter) Stat(i int) Stat {
	g := &m.channels[i]
	s := Stat{Samples: g.n, OverRange: g.over}
	if g.n < 2 {
		return s
	}
	n := float64(g.n)
	mean := g.sum / n
	s.Mean = float64(g.first) + mean
	s.Std = math.Sqrt(max(g.square-n*mean*mean, 0) / (n - 1))
	white := s.Std / math.Sqrt(n)
	means := make([]float64, g.full)
	for k := range means {
		means[k] = g.sums[k] / float64(g.size)
	}
	u := g.wander(means, s.Std, &s)
	s.Drift = drift(means)
	s.Restless = max(s.Restless, math.Abs(s.Drift)/max(8*white, tolerance))
	fixed, _ := measure.Quantisation(g.dither(s.Std))
	s.U = math.Sqrt(u*u + s.Drift*s.Drift/4 + fixed*fixed)
	return s
}

// dither is how much the readings scatter at least before they are rounded. Their
// own scatter does not show where it is small: an input that rests between two
// counts toggles by half a count without any noise. But noise that reaches over
// several counts is there: all but a thousandth of normal readings take 6.6 σ,
// and rounding adds at most one count.
func (g *gauge) dither(std float64) float64 {
	if std > 2 {
		return std
	}
	tail := g.n / 2000
	end := func(step, i int) int {
		for left := g.levels[i]; left <= tail; left += g.levels[i] {
			i += step
		}
		return i
	}
	width := end(-1, len(g.levels)-1) - end(1, 0)
	return min(std, max(0, float64(width-1))/6.6)
}

// wander returns the mean's uncertainty by the Allan deviation at all lengths up
// to half the run: of white noise they all agree. Lengths that the run
// has eight of show whether it rests.
func (g *gauge) wander(means []float64, std float64, s *Stat) (u float64) {
	u = std / math.Sqrt(float64(g.n))
	for m := 1; m <= len(means)/2; m *= 2 {
		dev := allan(means, m)
		u = max(u, dev*math.Sqrt(float64(m)/float64(len(means))))
		if m > len(means)/8 {
			continue // too few to judge by
		}
		white := std / math.Sqrt(float64(m)*float64(g.size))
		s.Restless = max(s.Restless, dev/max(4*white, tolerance))
	}
	return u
}

// allan returns the Allan deviation of means of m: the root of half the mean
// square of the differences of neighbours (D. W. Allan, Proc. IEEE 54 (1966) 221).
func allan(means []float64, m int) float64 {
	groups := len(means) / m
	if groups < 2 {
		return 0
	}
	var last, sum float64
	for k := range groups {
		mean := 0.0
		for _, v := range means[k*m : (k+1)*m] {
			mean += v / float64(m)
		}
		if k > 0 {
			sum += (mean - last) * (mean - last)
		}
		last = mean
	}
	return math.Sqrt(sum / float64(2*(groups-1)))
}

// drift is the mean of the second half less that of the first.
func drift(means []float64) float64 {
	half := len(means) / 2
	if half == 0 {
		return 0
	}
	var a, b float64
	for k := range half {
		a += means[k] / float64(half)
		b += means[len(means)-half+k] / float64(half)
	}
	return b - a
}

// Sentinel errors of a run that cannot serve, wrapped with the figures and the
// remedy.
var (
	// ErrRestless: the input did not rest.
	ErrRestless = errors.New("the input does not rest")
	// ErrNotZero: the input is not zero.
	ErrNotZero = errors.New("the input is not zero")
	// ErrOverRange: the converter is at an end of its range.
	ErrOverRange = errors.New("the converter is at an end of its range")
	// ErrFar: the reading lies too far from the value stated as applied.
	ErrFar = errors.New("the reading is far from the value")
	// ErrFew: too few readings came.
	ErrFew = errors.New("too few readings")
)

// least is the number of readings that a mean and its scatter need.
const least = 64

// rests refuses a run whose mean means nothing.
func (s Stat) rests(c measure.Channel) error {
	switch {
	case s.Samples < least:
		return fmt.Errorf("%s: %w: %d, at least %d are needed: measure for longer (--for)", c.Name, ErrFew, s.Samples,
			least)
	case s.OverRange > 0:
		return fmt.Errorf(
			"%s: %w in %d of %d readings, which cuts off what the mean needs: leave it out, or calibrate it by gain "+
				"at two values within its range", c.Name, ErrOverRange, s.OverRange, s.Samples)
	case s.Restless > 1:
		g := math.Abs(c.Gain)
		return fmt.Errorf(
			"%s: %w: it drifts by %.3g %s over the run, where its noise is %.3g %s a reading: switch off what draws "+
				"power, wait until it is warm, then try again", c.Name, ErrRestless, s.Drift*g, c.Unit, s.Std*g, c.Unit)
	}
	return nil
}

// zeroLimit is how far from zero a reading may be taken for zero, in standard
// uncertainties of the nominal zero.
const zeroLimit = 6

// ZeroOf makes a channel's entry of a zero record: c is the channel as it is in
// force, nominal as the instrument and the bench file have it.
func ZeroOf(c, nominal measure.Channel, basis string, s Stat) (Channel, error) {
	if err := s.rests(c); err != nil {
		return Channel{}, err
	}
	reading, limit := nominal.Offset+nominal.Gain*s.Mean, zeroLimit*nominal.UOffset
	if limit == 0 {
		limit = 0.01 * math.Abs(nominal.Gain) * float64(int64(nominal.MaxCount)-int64(nominal.MinCount))
	}
	if math.Abs(reading) > limit && limit > 0 {
		return Channel{}, fmt.Errorf(
			"%s: %w: it reads %.4g %s, and its zero is off by at most %.2g %s: unplug it, take the wire out of "+
				"the clamp or short the input; or leave the channel out (--channel names those wanted)",
			c.Name, ErrNotZero, reading, c.Unit, limit, c.Unit)
	}
	g := math.Abs(c.Gain)
	scale := ScaleOf(c)
	scale.Offset, scale.UOffset, scale.Noise = -c.Gain*s.Mean, g*s.U, g*s.Std
	return entry(c, nominal, basis, scale, Point{
		Reading: c.Offset + c.Gain*s.Mean, UReading: g * s.U, MeanCount: s.Mean, StdCount: s.Std, Samples: s.Samples,
	}), nil
}

// PointOf makes a point of a run at a known value.
func PointOf(c measure.Channel, value, u float64, s Stat) (Point, error) {
	if err := s.rests(c); err != nil {
		return Point{}, err
	}
	g := math.Abs(c.Gain)
	p := Point{
		Value: value, U: u, Reading: c.Offset + c.Gain*s.Mean, UReading: g * s.U, MeanCount: s.Mean, StdCount: s.Std,
		Samples: s.Samples,
	}
	limit := 0.2*math.Abs(value) + zeroLimit*c.UOffset
	if d := p.Reading - value; math.Abs(d) > limit {
		return Point{}, fmt.Errorf(
			"%s: %w: it reads %.5g %s where %.5g %s is said to be applied: check the reference, the polarity and "+
				"the channel", c.Name, ErrFar, p.Reading, c.Unit, value, c.Unit)
	}
	return p, nil
}

// GainOf makes a channel's entry of a gain or import record.
func GainOf(c, nominal measure.Channel, basis string, points []Point) (Channel, error) {
	c.UOffset = math.Hypot(c.UOffset, math.Hypot(c.Drift.AgeOffset, c.Drift.TemperatureOffset)) // of the zero in force
	line, err := Fit(c, points)
	if err != nil {
		return Channel{}, fmt.Errorf("%s: %w", c.Name, err)
	}
	if line.B < 0.8 || line.B > 1.25 {
		return Channel{}, fmt.Errorf("%s: %w: the gain would change by %+.1f %%: check reference, unit and range",
			c.Name, ErrFit, 100*(line.B-1))
	}
	return entry(c, nominal, basis, line.Scale(c, points), points...), nil
}

func entry(c, nominal measure.Channel, basis string, s Scale, points ...Point) Channel {
	was := ScaleOf(nominal)
	return Channel{Name: c.Name, Unit: c.Unit, Scale: &s, Nominal: &was, Basis: basis, Points: points}
}

// ErrMismatch: a calibration is of other channels or rails.
var ErrMismatch = errors.New("the calibration does not fit the samples")

// Under returns the setup under which samples that were taken with was are seen
// with the calibration of now: its channels, rails and records, and the
// timebase, response and missing rails of was. Where the two are not of the same
// channels and rails it fails with an error that wraps ErrMismatch and lists all
// differences.
func Under(was, now measure.Setup) (measure.Setup, error) {
	var differ []string
	add := func(format string, a ...any) { differ = append(differ, fmt.Sprintf(format, a...)) }
	if was.Timebase != now.Timebase {
		add("the timebase (%v at %g ticks a scan, now %v at %g)", was.Timebase.TickHz, was.Timebase.TicksPerScan,
			now.Timebase.TickHz, now.Timebase.TicksPerScan)
	}
	channels := func(s measure.Setup) (names []string) {
		return lists.Map(s.Channels, func(c measure.Channel) string { return c.Name })
	}
	if a, b := channels(was), channels(now); !slices.Equal(a, b) {
		add("the channels (%s; now %s)", strings.Join(a, ", "), strings.Join(b, ", "))
	} else {
		for i, c := range was.Channels {
			d := now.Channels[i]
			if c.Unit != d.Unit || c.MinCount != d.MinCount || c.MaxCount != d.MaxCount || c.Skew != d.Skew {
				add("channel %s (%s, counts %d to %d, skew %v; now %s, %d to %d, %v)", c.Name, c.Unit, c.MinCount,
					c.MaxCount, c.Skew, d.Unit, d.MinCount, d.MaxCount, d.Skew)
			}
		}
	}
	rails := func(s measure.Setup) []string {
		return lists.Map(s.Rails, func(r measure.Rail) string {
			return fmt.Sprintf("%s %v %v %d %d", r.Name, r.Role, r.Wiring, r.X, r.Y)
		})
	}
	if a, b := rails(was), rails(now); !slices.Equal(a, b) {
		add("the rails (name, role, wiring, channels: %s; now %s)", strings.Join(a, ", "), strings.Join(b, ", "))
	}
	if len(differ) > 0 {
		return measure.Setup{}, fmt.Errorf("%w: what differs: %s", ErrMismatch, strings.Join(differ, "; "))
	}
	now.Response, now.Missing = was.Response, was.Missing
	return now, nil
}
