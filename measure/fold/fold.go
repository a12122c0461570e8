// Package fold finds the energy of kernels far shorter than a meter can
// bracket, from many launches of them at known times:
//
//   - Contrast: the power of a steady carrier with the kernel between its slices,
//     less its power without (Cheng et al., Eq. 2);
//   - Folder: the scans of thousands of launches laid over each other by their
//     time since the launch, a power profile finer than the meter's scans.
package fold

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// ErrFold: the launches cannot be folded as asked.
var ErrFold = errors.New("launches that cannot be folded")

// Config is the work and the trace to fold.
type Config struct {
	// Starts are the launches in device time, ascending.
	Starts []measure.Seconds
	// Length is how long one launch runs; Before and After how much of the power that
	// surrounds it belongs to the profile.
	Length, Before, After measure.Seconds
	// Settle is the part of After in which the power may still be the kernel's: the
	// supply's and the meter's response.
	Settle measure.Seconds
	// Bins over Before + Length + After; 100 when zero.
	Bins int
	// UStart is the standard uncertainty of a launch's own instant (new with each),
	// UClock that of all instants together.
	UStart, UClock measure.Seconds
}

// span is the length of the profile.
func (c Config) span() measure.Seconds { return c.Before + c.Length + c.After }

const (
	defaultBins = 100
	maxBins     = 4096
)

func (c *Config) validate() error {
	c.Bins = cmp.Or(c.Bins, defaultBins)
	switch {
	case len(c.Starts) < 2:
		return fmt.Errorf("%w: %d launches: thousands make a profile", ErrFold, len(c.Starts))
	case !slices.IsSorted(c.Starts):
		return fmt.Errorf("%w: the launches are not in order of time", ErrFold)
	case !(c.Length > 0) || !(c.Before > 0) || !(c.Settle >= 0) || !(c.After > c.Settle) ||
		math.IsInf(float64(c.span()), 0):
		return fmt.Errorf(
			"%w: %v of kernel, %v before it, %v behind it of which %v to settle: a level is needed on both sides",
			ErrFold, c.Length, c.Before, c.After, c.Settle)
	case c.Bins < 8 || c.Bins > maxBins:
		return fmt.Errorf("%w: %d bins: want 8 to %d", ErrFold, c.Bins, maxBins)
	case !(c.UStart >= 0) || !(c.UClock >= 0):
		return fmt.Errorf("%w: an uncertainty of the starts is negative", ErrFold)
	}
	return nil
}

// cell holds the sums of one bin: readings, sums of power and its square, and
// by rail the sums that the budget needs.
type cell struct {
	n, p, pp float64
	rails    []quantities
}

// quantities are a rail's power and the terms of its derivatives, each
// summed over readings or integrated over time; One counts or is the time.
type quantities struct{ one, i, v, vv, p float64 }

func (q quantities) plus(o quantities, k float64) quantities {
	return quantities{q.one + k*o.one, q.i + k*o.i, q.v + k*o.v, q.vv + k*o.vv, q.p + k*o.p}
}

// Folder lays scans over each other by their time since the last launch
// (equivalent-time sampling). Its memory is the bins'; it does not grow with the
// data, and a scan allocates nothing. It is not safe for concurrent use.
type Folder struct {
	cfg    Config
	setup  measure.Setup
	stream *measure.PowerStream
	cells  []cell
	at     int // the launch that the next scan most likely follows
	used   int // launches that some scan fell near
	last   int
}

// New prepares folding. Errors wrap ErrFold, or name the fault of the setup.
func New(s *measure.Setup, cfg Config) (*Folder, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	f := &Folder{cfg: cfg, setup: *s, cells: make([]cell, cfg.Bins), last: -1}
	for i := range f.cells {
		f.cells[i].rails = make([]quantities, len(s.Rails))
	}
	var err error
	if f.stream, err = measure.NewPowerStream(s, f.take); err != nil {
		return nil, fmt.Errorf("fold: %w", err)
	}
	return f, nil
}

// Add takes the next block, in order of time. The block is not kept.
func (f *Folder) Add(b *measure.Block) error { return f.stream.Add(b) }

// take places a run of scans. A rail's values are of its first channel's
// instant; the total is placed by the mean of them, which a skew of some
// microseconds makes a matter of the bin's width at most.
func (f *Folder) take(p *measure.Powers) error {
	tb := f.setup.Timebase
	width := f.cfg.span() / measure.Seconds(len(f.cells))
	delay, _ := f.setup.MeanSkew()
	for i := range p.Scans() {
		t := tb.Seconds(p.Tick(i)) + delay - f.setup.Response.Window/2
		for f.at+1 < len(f.cfg.Starts) && t >= f.cfg.Starts[f.at+1]-f.cfg.Before {
			f.at++
		}
		bin := math.Floor(float64((t - f.cfg.Starts[f.at] + f.cfg.Before) / width))
		if bin < 0 || bin >= float64(len(f.cells)) {
			continue
		}
		if f.at != f.last {
			f.used, f.last = f.used+1, f.at
		}
		f.cells[int(bin)].add(p, i)
	}
	return nil
}

func (c *cell) add(p *measure.Powers, i int) {
	var total float64
	for r := range p.Rails {
		col, q := &p.Rails[r], &c.rails[r]
		w := float64(col.P[i])
		total += w
		q.one++
		q.p += w
		if len(col.V) > 0 {
			a, v := float64(col.I[i]), float64(col.V[i])
			q.i += a
			q.v += v
			q.vv += v * v
		}
	}
	c.n++
	c.p += total
	c.pp += total * total
}

// Bin is one point of a profile.
type Bin struct {
	At    measure.Seconds `json:"at_s"`    // its middle, since the launch
	Power measure.Watt    `json:"power_w"` // mean of the readings that fell into it
	// U is the standard uncertainty of Power against the other bins: scatter, and
	// the instants' uncertainty times the slope. Errors that all bins share (gains,
	// offsets) are in the energy's budget alone.
	U        measure.Watt `json:"u_w"`
	Readings int          `json:"readings"`
}

// Profile is the power around one launch.
type Profile struct {
	Bins     []Bin
	Launches int // that scans fell near
	// Level is the power that surrounds a launch.
	Level measure.Watt
	// Above is the energy above the level, Whole that plus the level times Length:
	// the card's energy while the kernel ran, and the part due to it.
	Above, Whole measure.Estimate
	AboveBudget  []measure.Contribution
	WholeBudget  []measure.Contribution
}

// Profile closes the folder and returns the folded trace. A bin without a
// reading is ErrFold: the launches keep step with the meter's scans, or are too few.
func (f *Folder) Profile() (Profile, error) {
	if err := f.stream.Close(); err != nil {
		return Profile{}, err
	}
	out := Profile{Launches: f.used}
	width := f.cfg.span() / measure.Seconds(len(f.cells))
	for i := range f.cells {
		c := &f.cells[i]
		at := width*measure.Seconds(float64(i)+0.5) - f.cfg.Before
		if c.n < 2 {
			return out, fmt.Errorf(
				"%w: %.0f readings fell at %v after a launch: take more launches, fewer bins, or vary their "+
					"distance (they must not keep step with the meter's scans)", ErrFold, c.n, at)
		}
		mean := c.p / c.n
		v := max(c.pp/c.n-mean*mean, 0) / (c.n - 1)
		out.Bins = append(out.Bins, Bin{At: at, Power: measure.Watt(mean), U: measure.Watt(math.Sqrt(v)), Readings: int(c.n)})
	}
	// The bins that show the level around the kernel: the instants' uncertainty must not carry it into them.
	guard := 3*measure.Seconds(math.Hypot(float64(f.cfg.UStart), float64(f.cfg.UClock))) +
		f.cfg.span()/measure.Seconds(2*len(out.Bins))
	quiet := lists.Map(out.Bins, func(b Bin) bool { return b.At < -guard || b.At > f.cfg.Length+f.cfg.Settle+guard })
	if !slices.Contains(quiet, true) {
		return out, fmt.Errorf("%w: no bin lies outside of the kernel: add to what is before and behind it", ErrFold)
	}
	f.energies(&out, quiet, float64(width))
	// The instants' uncertainty, common and own, moves a bin along the slope of its neighbours.
	for i := range out.Bins {
		lo, hi := &out.Bins[max(i-1, 0)], &out.Bins[min(i+1, len(out.Bins)-1)]
		slope := float64(hi.Power-lo.Power) / float64(hi.At-lo.At)
		b := &out.Bins[i]
		u := math.Hypot(float64(f.cfg.UClock), float64(f.cfg.UStart)/math.Sqrt(float64(b.Readings)))
		b.U = measure.Watt(math.Hypot(float64(b.U), slope*u))
	}
	return out, nil
}

// energies integrates the bins' power above the level.
func (f *Folder) energies(out *Profile, quiet []bool, width float64) {
	var level, count, loud float64
	for i, b := range out.Bins {
		if quiet[i] {
			level, count = level+float64(b.Power), count+1
		} else {
			loud++
		}
	}
	level /= count
	// The energy is a sum over bins: width for a loud one, −width·loud/count for a quiet one.
	above := make([]float64, len(out.Bins))
	whole := make([]float64, len(out.Bins))
	var vAbove, vWhole float64
	for i, b := range out.Bins {
		above[i] = width
		if quiet[i] {
			above[i] = -width * loud / count
		}
		whole[i] = above[i]
		if quiet[i] {
			whole[i] += float64(f.cfg.Length) / count
		}
		u2 := float64(b.U) * float64(b.U)
		vAbove, vWhole = vAbove+above[i]*above[i]*u2, vWhole+whole[i]*whole[i]*u2
	}
	out.Level = measure.Watt(level)
	out.Above, out.AboveBudget = f.estimate(out.Bins, above, math.Sqrt(vAbove), quiet)
	out.Whole, out.WholeBudget = f.estimate(out.Bins, whole, math.Sqrt(vWhole), quiet)
}

// estimate is the energy that the weights (seconds by bin) make of the bins,
// with its budget: the scatter of the bins' means, the energy that a shift of all launches
// passes over at the two ends of the kernel's part, and by rail the terms that are one
// unknown for all bins.
func (f *Folder) estimate(
	bins []Bin, weights []float64, scatter float64, quiet []bool,
) (measure.Estimate, []measure.Contribution) {
	rails := make([]quantities, len(f.setup.Rails))
	var e float64
	for i, b := range bins {
		e += weights[i] * float64(b.Power)
		for r := range rails {
			rails[r] = rails[r].plus(f.cells[i].rails[r], weights[i]/f.cells[i].n)
		}
	}
	budget := []measure.Contribution{{Source: "scatter of the readings", U: measure.Joule(scatter)}}
	add := func(source string, u float64) {
		if u = math.Abs(u); u > 0 {
			budget = append(budget, measure.Contribution{Source: source, U: measure.Joule(u), Systematic: true})
		}
	}
	first, last := slices.Index(quiet, false), len(quiet)-1
	for last > 0 && quiet[last] {
		last--
	}
	before, after := bins[max(first-1, 0)].Power, bins[min(last+1, len(bins)-1)].Power
	add("instants of the launches",
		float64(after-before)*math.Hypot(float64(f.cfg.UClock), float64(f.cfg.UStart)/math.Sqrt(float64(f.used))))
	add("tick rate", f.setup.Timebase.UTickHz*e)
	for r, q := range rails {
		f.shared(r, q, add)
	}
	slices.SortStableFunc(budget, func(a, b measure.Contribution) int { return cmp.Compare(b.U, a.U) })
	var s float64
	for _, c := range budget {
		s += float64(c.U) * float64(c.U)
	}
	return measure.Estimate{Energy: measure.Joule(e), U: measure.Joule(2 * math.Sqrt(s))}, budget
}

// shared lists the contributions of a rail's calibration to an energy; q are the weighted
// integrals of the rail's quantities. The derivatives are those of package
// measure: P = I·V for a clamp, (X − Y)·Y/R for a shunt (X = V + I·R, Y = V).
func (f *Folder) shared(r int, q quantities, add func(string, float64)) {
	rail := f.setup.Rails[r]
	x := f.setup.Channels[rail.X]
	switch rail.Wiring {
	case measure.WiringShunt:
		y, g := f.setup.Channels[rail.Y], 1/float64(rail.Shunt)
		add("gain "+x.Name, x.UGain*(q.vv*g+q.p))
		add("gain "+y.Name, y.UGain*(q.p-q.vv*g))
		add("offset "+x.Name, x.UOffset*q.v*g)
		add("offset "+y.Name, y.UOffset*(q.i-q.v*g))
		add("shunt "+rail.Name, rail.UShunt*q.p)
	case measure.WiringClamp:
		y := f.setup.Channels[rail.Y]
		add("gain "+x.Name, x.UGain*q.p)
		add("gain "+y.Name, y.UGain*q.p)
		add("offset "+x.Name, x.UOffset*q.v)
		add("offset "+y.Name, y.UOffset*q.i)
	case measure.WiringAssumed:
		add("gain "+x.Name, x.UGain*q.p)
		add("offset "+x.Name, x.UOffset*q.v)
		add("assumed voltage "+rail.Name, float64(rail.UAssumed)*q.i)
	default:
		add("gain "+x.Name, x.UGain*q.p)
		add("offset "+x.Name, x.UOffset*q.one)
	}
}
