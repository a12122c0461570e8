package predict

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// Round is one round of a GPU: all its multiprocessors work on as many blocks as they
// hold.
type Round struct {
	Blocks uint64          `json:"blocks"`   // nbSM times the resident blocks
	Time   measure.Seconds `json:"time_s"`   // T_r
	Energy measure.Joule   `json:"energy_j"` // E_r
	Power  measure.Watt    `json:"power_w"`  // P_r = E_r/T_r
	Idle   measure.Watt    `json:"idle_w"`   // P_s
}

// Rounds is ⌈blocks/(sms·resident)⌉.
func Rounds(blocks, sms, resident uint64) uint64 {
	wide := sms * resident
	return blocks/wide + min(blocks%wide, 1)
}

// Round returns T_r, E_r and P_r (Eqs. 5 and 7) on a GPU.
func (m *Model) Round(t Target) (Round, error) {
	t, err := m.target(t)
	if err != nil {
		return Round{}, err
	}
	r := Round{Blocks: t.SMs * t.Resident, Idle: m.o.Idle}
	r.Time = measure.Seconds(m.time.slope * float64(m.o.SMs*t.Resident))
	r.Energy = measure.Joule(float64(m.perBlock)*float64(r.Blocks) + float64(m.o.Idle)*float64(r.Time))
	r.Power = measure.Watt(float64(r.Energy) / float64(r.Time))
	return r, nil
}

// RoundOf returns the round of a GPU that does flops in it at a speed (flop/s) with a
// power of busy: the parameters of a calibrated platform file.
func RoundOf(flops, speed float64, busy, idle measure.Watt, blocks uint64) (Round, error) {
	t := flops / speed
	switch {
	case !(flops > 0) || !(speed > 0) || !(t > 0) || math.IsInf(t, 0):
		return Round{}, fmt.Errorf("%w: %v flop a round at %v flop/s: both must be positive and finite", ErrInput,
			flops, speed)
	case blocks == 0 || blocks > mostSMs*mostResident:
		return Round{}, fmt.Errorf("%w: %d blocks a round: want 1 to %d", ErrInput, blocks, mostSMs*mostResident)
	case !(busy >= 0) || math.IsInf(float64(busy), 0) || !(idle >= 0) || math.IsInf(float64(idle), 0):
		return Round{}, fmt.Errorf("%w: %v W busy and %v W idle: they must be finite and not negative", ErrInput,
			float64(busy), float64(idle))
	}
	return Round{
		Blocks: blocks, Time: measure.Seconds(t), Energy: measure.Joule(float64(busy) * t), Power: busy, Idle: idle,
	}, nil
}

// Rounds is how many rounds a number of blocks takes.
func (r Round) Rounds(blocks uint64) uint64 { return Rounds(blocks, r.Blocks, 1) }

// At is Eqs. 4 and 6: time and energy of a number of blocks, and of resting for
// some time after it.
func (r Round) At(blocks uint64, rest measure.Seconds) (measure.Seconds, measure.Joule) {
	n := float64(r.Rounds(blocks))
	return measure.Seconds(n)*r.Time + rest, measure.Joule(n*float64(r.Energy) + float64(r.Idle)*float64(rest))
}

// Speed returns a host's speed as platform files define it: the flops of a round over
// T_r, in flop/s.
func (r Round) Speed(flopsPerBlock float64) float64 {
	return flopsPerBlock * float64(r.Blocks) / float64(r.Time)
}

// Reference is one row of Tables IV and V of the paper: errors of predicted time
// and energy, in percent.
type Reference struct {
	Device string    `json:"device"`
	Kernel string    `json:"kernel"`
	Time   Published `json:"time"`
	Energy Published `json:"energy"`
	// Irregular names an inconsistency of the printed row; empty for none.
	Irregular string `json:"irregular,omitempty"`
}

// Published are the errors that the paper prints, in percent.
type Published struct {
	Worst   float64 `json:"wre_pct"` // WRE
	Best    float64 `json:"bre_pct"` // BRE
	Average float64 `json:"are_pct"` // ARE
}

// The paper's devices.
const (
	M2075  = "Tesla M2075"
	K20Xm  = "Tesla K20Xm"
	FigSMs = 14 // of both (Table I)
)

// References returns Tables IV and V.
func References() []Reference {
	out := []Reference{
		{M2075, "Backprop_K1", Published{1.33, 0.00938, 0.457}, Published{2.16, 0.0313, 0.836}, ""},
		{M2075, "Backprop_K2", Published{3.02, 0.27, 2.42}, Published{4.29, 0.00085, 1.23}, ""},
		{M2075, "BlackScholes", Published{6.64, 0.215, 2.2}, Published{5.80, 0.18, 1.74}, ""},
		{M2075, "Hotspot", Published{4.79, 0.0785, 1.3}, Published{5.39, 0.0220, 1.52}, ""},
		{M2075, "vectorAdd_1024", Published{3.60, 0.877, 3.41}, Published{7.62, 0.083, 1.47}, ""},
		{M2075, "vectorAdd_512", Published{11.84, 0.3, 4.83}, Published{16.82, 0.193, 5.19}, ""},
		{M2075, "vectorAdd_256", Published{20.76, 0.0693, 6.69}, Published{17.47, 0.0164, 6.86}, ""},
		{M2075, "matrixMul_1024", Published{4.12, 0.0145, 0.94}, Published{10.83, 0.0251, 1.65}, ""},
		{M2075, "matrixMul_256", Published{9.62, 0.240, 2.40}, Published{7.79, 0.007, 2.06}, ""},
		{K20Xm, "Backprop_K1", Published{8.88, 3.35, 4.10}, Published{5.85, 3.77, 4.16}, ""},
		{K20Xm, "Backprop_K2", Published{2.21, 0.249, 0.518}, Published{3.79, 1.39, 3.10}, ""},
		{K20Xm, "BlackScholes", Published{18.04, 0.292, 2.51}, Published{9.56, 0.14, 1.16}, ""},
		{K20Xm, "Hotspot", Published{16.46, 0.015, 3.52}, Published{7.81, 0.202, 2.83}, ""},
		{K20Xm, "vectorAdd_1024", Published{24.52, 0.009, 2.26}, Published{24.40, 0.05, 3.06}, ""},
		{K20Xm, "vectorAdd_512", Published{15.20, 1.0, 3.67}, Published{17.98, 0.169, 2.97}, ""},
		{K20Xm, "vectorAdd_256", Published{13.73, 0.02, 2.36}, Published{14.02, 0.04, 3.77}, ""},
		{K20Xm, "matrixMul_1024", Published{19.72, 0.917, 6.54}, Published{17.73, 0.864, 8.33}, ""},
		{K20Xm, "matrixMul_256", Published{13.69, 0.858, 5.42}, Published{15.52, 0.086, 5.95}, ""},
	}
	for i := range out {
		out[i].Irregular = out[i].check()
	}
	return out
}

// check names an inconsistency of a row: an average outside of best and worst, or so
// close to the worst that nearly all predictions were that bad.
func (r Reference) check() string {
	for _, c := range []struct {
		what string
		p    Published
	}{{"time", r.Time}, {"energy", r.Energy}} {
		switch {
		case !(c.p.Best <= c.p.Average && c.p.Average <= c.p.Worst):
			return c.what + ": the average does not lie between best and worst"
		case c.p.Average > 0.75*c.p.Worst && c.p.Best < 0.3*c.p.Worst:
			return c.what + ": the average is next to the worst, though the best is small"
		}
	}
	return ""
}

// Advice is where to measure for a calibration.
type Advice struct {
	// Blocks to measure: two small sizes and a medium one, and a large one where
	// the device works better at scale.
	Blocks []uint64 `json:"blocks"`
	Why    []string `json:"why"`
}

// SamplePeriod is the paper's sampling period of the power (20 Hz).
const SamplePeriod = measure.Seconds(0.05)

// leastReadings keeps the error of a sampled energy by the ends of a launch below about
// five percent: each end is off by up to half a period.
const leastReadings = 20

// Advise proposes calibration points for a GPU, as whole rounds: points within a
// round would put the staircase into the slope. largest is the largest number of
// blocks that is to be predicted; 0 for none in mind.
func Advise(sms, resident, largest uint64) (Advice, error) {
	o, err := Options{SMs: sms, Resident: resident}.defaults()
	if err != nil {
		return Advice{}, err
	}
	r := o.SMs * o.Resident
	a := Advice{Blocks: []uint64{r, 2 * r, 16 * r}, Why: []string{
		fmt.Sprintf("whole rounds of %d blocks: the slope then is that of Eq. 5", r),
		"two small sizes and a medium one are what the line needs (section V-B); the reverse serves as well",
		fmt.Sprintf("by the GPU's own sensor, sample every %v and let the shortest launch last %v or more: put a "+
			"loop into the kernel (Table III)", SamplePeriod, leastReadings*SamplePeriod),
		"by nvidia-smi, switch persistence mode on, log pstate as well, and keep P0 alone",
		"on a device that works better at scale (the paper's K20Xm) one point must be large",
	}}
	if largest > 16*r {
		a.Blocks = append(a.Blocks, largest/r*r)
	}
	return a, nil
}

// Review returns the doubts about calibration points; none at best.
func Review(points []Point, o Options) (out []string) {
	o, err := o.defaults()
	if err != nil || checkPoints(points) != nil {
		return nil
	}
	r := o.SMs * o.Resident
	first, last := slices.MinFunc(points, byBlocks), slices.MaxFunc(points, byBlocks)
	ragged := len(lists.Filter(points, func(p *Point) bool { return p.Blocks%r != 0 }))
	if ragged > 0 && last.Blocks < 20*r {
		out = append(out, fmt.Sprintf("%d of %d points are no whole rounds of %d blocks: where time goes by steps, "+
			"the slope depends on where they stand", ragged, len(points), r))
	}
	if last.Blocks < 3*first.Blocks {
		out = append(out, fmt.Sprintf("the points reach from %d to %d blocks only: a wider span makes a surer slope",
			first.Blocks, last.Blocks))
	}
	if last.Blocks <= r {
		out = append(out, fmt.Sprintf("no point goes beyond one round of %d blocks: nothing is known of how rounds "+
			"follow each other", r))
	}
	if len(points) == leastPoints && o.Weights != Stated {
		out = append(out, "three points leave one degree of freedom: the bands are 12.7 standard deviations wide; "+
			"more points, or stated uncertainties, narrow them")
	}
	return out
}

// TooShort names points that are too short for a meter of a period.
func TooShort(points []Point, period measure.Seconds) (out []string) {
	for _, p := range points {
		if p.Time < leastReadings*period {
			out = append(out, fmt.Sprintf("%v lasts %v: fewer than %d readings of a meter that reads every %v", p,
				p.Time, leastReadings, period))
		}
	}
	return out
}
