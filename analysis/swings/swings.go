// Package swings describes how a power varies in time: by how much its mean over 1, 10 and
// 100 ms leaves the mean of the whole, how steep it rises and falls, how its variance spreads
// over frequencies, and its mean course over a step that repeats (a training step, a token).
//
//	Meter.Add, a scan at a time ─┬ scale     moving means of one width
//	                             ├ spectrum  Welch's periodogram
//	                             └ course    power by phase of the step
package swings

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/stat"
)

// ErrShort: the span has too few scans, or too many holes, for any figure.
var ErrShort = errors.New("too few scans in a row")

// Config is the span and the meter.
type Config struct {
	Window measure.Window
	Step   measure.Seconds // distance of two scans; a hole is more than 1.5 of it
	Limit  measure.Hertz   // up to which the meter follows; 0 for half the scan rate
	// Gain is the relative standard uncertainty that all scans share; Noise the standard
	// uncertainty of a mean over one second by noise that is new with each scan.
	Gain  float64
	Noise measure.Watt
	// Starts are the begins of a repeated step, ascending device times; nil for none.
	Starts []measure.Seconds
}

// Swings are the figures of a span. Uncertainties are expanded (k = 2).
type Swings struct {
	Duration measure.Seconds `json:"duration_s"`
	Scans    uint64          `json:"scans"`
	Holes    uint64          `json:"holes"`
	Mean     measure.Watt    `json:"mean_w"`
	RMS      measure.Watt    `json:"rms_w"` // of the power, its mean included
	Peak     measure.Watt    `json:"peak_w"`
	Crest    float64         `json:"crest"` // Peak over RMS
	Scales   []Scale         `json:"scales"`
	Bands    []Band          `json:"bands"`
	Course   *Course         `json:"step,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
}

// Scale are the means over windows of one width, each a quarter of the width after the last.
type Scale struct {
	Width measure.Seconds `json:"width_s"`
	// Quantiles are of the means, less the mean of the span; the first and the last are the extremes.
	Quantiles []Quantile   `json:"excursions"`
	U         measure.Watt `json:"u_w"`   // of one mean, by noise; the extremes of many lie further out
	Crest     float64      `json:"crest"` // the highest mean over the mean of the span
	Rise      Slope        `json:"steepest_rise"`
	Fall      Slope        `json:"steepest_fall"`
}

// Quantile is the excursion that a part P of the means does not exceed.
type Quantile struct {
	P     float64      `json:"p"`
	Power measure.Watt `json:"w"`
}

// Slope is the change between two neighbouring means, over their width.
type Slope struct {
	PerSecond float64         `json:"w_per_s"`
	U         float64         `json:"u_w_per_s"`
	At        measure.Seconds `json:"t_s"` // where the two meet, device time
}

// Band is the part of the variance between two frequencies.
type Band struct {
	From  measure.Hertz `json:"from_hz"`
	To    measure.Hertz `json:"to_hz"`
	RMS   measure.Watt  `json:"rms_w"`
	U     measure.Watt  `json:"u_w"`     // by the finite number of segments, and the gain
	Floor measure.Watt  `json:"noise_w"` // of RMS, what the meter's white noise alone would show
}

// Course is the mean course of the power over a repeated step.
type Course struct {
	Steps  int             `json:"steps"` // whole ones, without holes and of common length
	Out    int             `json:"left_out"`
	Length measure.Seconds `json:"length_s"`
	SD     measure.Seconds `json:"length_sd_s"`
	Energy measure.Joule   `json:"energy_j"` // of one step, mean
	U      measure.Joule   `json:"energy_u_j"`
	Phases []Phase         `json:"phases"`
}

// Phase is the mean power in one part of the step.
type Phase struct {
	At    float64      `json:"phase"` // its middle, from 0 to 1
	Power measure.Watt `json:"w"`
	U     measure.Watt `json:"u_w"` // by the scatter between steps, and the gain
}

var (
	widths    = []measure.Seconds{0.001, 0.01, 0.1}
	quantiles = []float64{0, 0.001, 0.01, 0.05, 0.5, 0.95, 0.99, 0.999, 1}
	edges     = []measure.Hertz{0.1, 1, 10, 100, 1000, 10000}
)

// Meter takes the scans of a span. Its memory does not grow with their number. It is not safe for
// concurrent use.
type Meter struct {
	cfg      Config
	last     measure.Seconds
	n, holes uint64
	sum, sq  float64
	peak     measure.Watt
	scales   []*scale
	spectrum *spectrum
	course   *course
	notes    []string
}

// New prepares a meter. Errors wrap measure.ErrWindow.
func New(cfg Config) (*Meter, error) {
	length := cfg.Window.To - cfg.Window.From
	if !(length > 0) || !(cfg.Step > 0) || math.IsInf(float64(length), 0) {
		return nil, fmt.Errorf("swings: %w: from %v to %v, scans %v apart", measure.ErrWindow, cfg.Window.From,
			cfg.Window.To, cfg.Step)
	}
	if !slices.IsSorted(cfg.Starts) {
		return nil, fmt.Errorf("swings: %w: the steps are not in order of time", measure.ErrWindow)
	}
	m := &Meter{cfg: cfg, last: measure.Seconds(math.Inf(-1)), peak: measure.Watt(math.Inf(-1))}
	for _, w := range widths {
		switch {
		case cfg.Step > w/hops || cfg.Limit > 0 && float64(cfg.Limit)*float64(w) < 0.5:
			m.notes = append(m.notes, fmt.Sprintf("means over %v are beyond the meter", w))
		case 2*w > length:
			m.notes = append(m.notes, fmt.Sprintf("means over %v: the span is too short", w))
		default:
			m.scales = append(m.scales, &scale{width: w, hop: w / hops, from: cfg.Window.From, bin: -1})
		}
	}
	m.spectrum = newSpectrum(cfg.Step, length)
	if len(cfg.Starts) > 1 {
		m.course = newCourse(cfg)
	}
	return m, nil
}

// Add takes the next scan, in order of time; one outside of the span is passed over.
func (m *Meter) Add(t measure.Seconds, p measure.Watt) {
	if t < m.cfg.Window.From || t > m.cfg.Window.To {
		return
	}
	hole := m.n > 0 && t-m.last > 1.5*m.cfg.Step
	if hole {
		m.holes++
	}
	m.last = t
	m.n++
	m.sum += float64(p)
	m.sq += float64(p) * float64(p)
	m.peak = max(m.peak, p)
	for _, s := range m.scales {
		s.add(t, p, hole)
	}
	m.spectrum.add(p, hole)
	if m.course != nil {
		m.course.add(t, p, hole)
	}
}

// Result returns the figures. Errors wrap ErrShort.
func (m *Meter) Result() (*Swings, error) {
	if m.n < 2 {
		return nil, fmt.Errorf("swings: %w: %d of them", ErrShort, m.n)
	}
	mean := measure.Watt(m.sum / float64(m.n))
	out := &Swings{
		Duration: m.cfg.Window.To - m.cfg.Window.From, Scans: m.n, Holes: m.holes, Mean: mean,
		RMS: measure.Watt(math.Sqrt(m.sq / float64(m.n))), Peak: m.peak, Notes: m.notes,
	}
	out.Crest = float64(out.Peak / out.RMS)
	for _, s := range m.scales {
		x, ok := s.result(mean, m.cfg)
		if !ok {
			out.Notes = append(out.Notes, fmt.Sprintf("means over %v: no two of them without a hole", s.width))
			continue
		}
		out.Scales = append(out.Scales, x)
	}
	if out.Bands = m.spectrum.bands(m.cfg); out.Bands == nil {
		out.Notes = append(out.Notes, "no spectrum: too few scans in a row")
	}
	if m.course != nil {
		if out.Course = m.course.result(m.cfg); out.Course == nil {
			out.Notes = append(out.Notes, "no course of the step: fewer than two steps are whole and of common length")
		}
	}
	return out, nil
}

// hops is how many steps of a moving mean make its width.
const hops = 4

// scale makes the moving means of one width.
type scale struct {
	width, hop, from measure.Seconds
	bin              int64 // the part that is being summed, -1 before the first
	sum              float64
	n                int
	parts            [2 * hops]float64 // means of the last parts
	have             int               // of them in a row
	kept             kept
	rise, fall       Slope
}

func (s *scale) add(t measure.Seconds, p measure.Watt, hole bool) {
	bin := int64((t - s.from) / s.hop)
	if hole {
		s.have, s.n, s.sum = 0, 0, 0
		s.bin = bin + 1 // the part in which the hole ends is not whole
		return
	}
	if bin > s.bin {
		if s.n > 0 && s.bin >= 0 {
			s.close()
		}
		s.bin, s.sum, s.n = bin, 0, 0
	}
	if bin == s.bin {
		s.sum += float64(p)
		s.n++
	}
}

// close takes a part that is whole.
func (s *scale) close() {
	copy(s.parts[:], s.parts[1:])
	s.parts[len(s.parts)-1] = s.sum / float64(s.n)
	s.have++
	if s.have < hops {
		return
	}
	now := stat.Mean(s.parts[hops:], nil)
	s.kept.add(now)
	if s.have < 2*hops {
		return
	}
	slope := (now - stat.Mean(s.parts[:hops], nil)) / float64(s.width)
	at := s.from + measure.Seconds(s.bin+1-hops)*s.hop
	if slope > s.rise.PerSecond {
		s.rise = Slope{PerSecond: slope, At: at}
	}
	if slope < s.fall.PerSecond {
		s.fall = Slope{PerSecond: slope, At: at}
	}
}

// result returns the figures against the mean of the span; ok is false where no mean was whole.
func (s *scale) result(whole measure.Watt, cfg Config) (out Scale, ok bool) {
	if s.kept.n == 0 {
		return out, false
	}
	values := slices.Sorted(slices.Values(s.kept.values))
	u := float64(cfg.Noise) / math.Sqrt(float64(s.width))
	out = Scale{
		Width: s.width, U: measure.Watt(2 * u), Crest: s.kept.high / float64(whole), Rise: s.rise, Fall: s.fall,
	}
	for _, p := range quantiles {
		v := values[int(p*float64(len(values)-1)+0.5)]
		switch p {
		case 0:
			v = s.kept.low
		case 1:
			v = s.kept.high
		}
		out.Quantiles = append(out.Quantiles, Quantile{p, measure.Watt(v) - whole})
	}
	for _, x := range []*Slope{&out.Rise, &out.Fall} {
		x.U = 2 * math.Hypot(cfg.Gain*x.PerSecond, math.Sqrt2*u/float64(s.width))
	}
	return out, true
}

// kept are values for their quantiles: all of them up to mostKept, then every second, fourth … of them.
type kept struct {
	values    []float64
	n, stride uint64
	low, high float64
}

const mostKept = 1 << 20

func (k *kept) add(v float64) {
	if k.n == 0 {
		k.stride, k.low, k.high = 1, v, v
	}
	k.low, k.high = min(k.low, v), max(k.high, v)
	if k.n%k.stride == 0 {
		if len(k.values) == mostKept {
			for i := range mostKept / 2 {
				k.values[i] = k.values[2*i]
			}
			k.values, k.stride = k.values[:mostKept/2], 2*k.stride
		}
		if k.n%k.stride == 0 {
			k.values = append(k.values, v)
		}
	}
	k.n++
}
