package fold

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"wattmark/measure"
)

// Bin is one point of a profile.
type Bin struct {
	At    measure.Seconds // its middle, since the launch
	Power measure.Watt    // mean of the readings that fell into it
	// U is the standard uncertainty of Power against the other bins: scatter, and
	// what the instants' uncertainty makes of the slope. What all bins share (gains,
	// offsets) is in the energy's budget alone.
	U measure.Watt
	N int
}

// Profile is the power around one launch.
type Profile struct {
	Bins     []Bin
	Launches int // that scans fell near
	// Level is the power that surrounds a launch.
	Level, ULevel measure.Watt
	// Above is the energy above the level, Whole that plus the level times Length:
	// what the card drew while the kernel ran, and because of it.
	Above, Whole measure.Estimate
	AboveBudget  []measure.Contribution
	WholeBudget  []measure.Contribution
	// Response is the meter's: it is in the profile, which is not sharper than that.
	Response measure.Response
	// Smear is how far the instants' own scatter smears the profile (k = 1).
	Smear measure.Seconds
}

// Profile closes the folder and returns what it has gathered. A bin without a
// reading is ErrFold: the launches keep step with the meter's scans, or are too few.
func (f *Folder) Profile() (Profile, error) {
	if err := f.stream.Close(); err != nil {
		return Profile{}, err
	}
	out := Profile{Launches: f.used, Response: f.setup.Response, Smear: f.cfg.UStart}
	width := f.cfg.span() / measure.Seconds(len(f.cells))
	for i := range f.cells {
		c := &f.cells[i]
		at := width*measure.Seconds(float64(i)+0.5) - f.cfg.Before
		if c.n < 2 {
			return out, fmt.Errorf("%w: %.0f readings fell at %v after a launch: take more launches, fewer bins, or vary their distance (they must not keep step with the meter's scans)",
				ErrFold, c.n, at)
		}
		mean := c.p / c.n
		v := max(c.pp/c.n-mean*mean, 0) / (c.n - 1)
		out.Bins = append(out.Bins, Bin{At: at, Power: measure.Watt(mean), U: measure.Watt(math.Sqrt(v)), N: int(c.n)})
	}
	quiet := f.quiet(out.Bins)
	if !slices.Contains(quiet, true) {
		return out, fmt.Errorf("%w: no bin lies outside of the kernel: add to what is before and behind it", ErrFold)
	}
	f.energies(&out, quiet, float64(width))
	f.addSlopes(out.Bins)
	return out, nil
}

// quiet marks the bins that show the level around the kernel.
func (f *Folder) quiet(bins []Bin) []bool {
	half := f.cfg.span() / measure.Seconds(2*len(bins))
	// The instants' uncertainty must not carry the kernel into the level.
	guard := 3*measure.Seconds(math.Hypot(float64(f.cfg.UStart), float64(f.cfg.UClock))) + half
	out := make([]bool, len(bins))
	for i, b := range bins {
		out[i] = b.At < -guard || b.At > f.cfg.Length+f.cfg.Settle+guard
	}
	return out
}

// addSlopes adds what the instants' common uncertainty makes of the slope.
func (f *Folder) addSlopes(bins []Bin) {
	raw := make([]float64, len(bins))
	for i, b := range bins {
		raw[i] = float64(b.Power)
	}
	for i := range bins {
		lo, hi := max(i-1, 0), min(i+1, len(bins)-1)
		slope := (raw[hi] - raw[lo]) / float64(bins[hi].At-bins[lo].At)
		u := math.Hypot(float64(f.cfg.UClock), float64(f.cfg.UStart)/math.Sqrt(float64(bins[i].N)))
		bins[i].U = measure.Watt(math.Hypot(float64(bins[i].U), slope*u))
	}
}

// energies integrates what the bins show above the level.
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
	var vAbove, vWhole, vLevel float64
	for i, b := range out.Bins {
		above[i] = width
		if quiet[i] {
			above[i] = -width * loud / count
			vLevel += float64(b.U) * float64(b.U) / (count * count)
		}
		whole[i] = above[i]
		if quiet[i] {
			whole[i] += float64(f.cfg.Length) / count
		}
		u2 := float64(b.U) * float64(b.U)
		vAbove, vWhole = vAbove+above[i]*above[i]*u2, vWhole+whole[i]*whole[i]*u2
	}
	out.Level, out.ULevel = measure.Watt(level), measure.Watt(math.Sqrt(vLevel))
	out.Above, out.AboveBudget = f.estimate(out.Bins, above, math.Sqrt(vAbove), quiet, width)
	out.Whole, out.WholeBudget = f.estimate(out.Bins, whole, math.Sqrt(vWhole), quiet, width)
}

// estimate is the energy that the weights (seconds by bin) make of the bins,
// with its budget: the scatter of the bins' means, what a shift of all launches
// passes over at the two ends of the kernel's part, and by rail what is one
// unknown for all bins.
func (f *Folder) estimate(bins []Bin, weights []float64, scatter float64, quiet []bool, width float64) (measure.Estimate, []measure.Contribution) {
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
	add("instants of the launches", float64(after-before)*math.Hypot(float64(f.cfg.UClock), float64(f.cfg.UStart)/math.Sqrt(float64(f.used))))
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

// shared lists what a rail's calibration does to an energy; q are the weighted
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
