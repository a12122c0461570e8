// Package tiny plans and plays the measurement of kernels far shorter than a meter can
// bracket, and computes their energy from the samples. It has three methods: repeat and
// contrast (Cheng et al., section 4.4), and fold.
//
//	Probe ─ length of a launch ─┐
//	MeterOf ─ noise, scale ─────┴▶ PlanRepeat, PlanContrast, PlanFold ─▶ Plan
//	Plan.Train ─ gpu.TrainRunner ─▶ gpu.Ran ─┐
//	stored samples, clock fit ───────────────┴▶ Analyse ─▶ Outcome
package tiny

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure"
)

// ErrPlan: the wanted uncertainty cannot be had, or the method does not fit the meter.
var ErrPlan = errors.New("no such measurement")

// Method is a way to the energy of a tiny kernel.
type Method string

// The methods (docs/kernels.md).
const (
	Repeat   Method = "repeat"
	Contrast Method = "contrast"
	Fold     Method = "fold"
)

// Expect is the prior knowledge of the kernel and its surroundings.
type Expect struct {
	Length  measure.Seconds // of one launch
	Energy  measure.Joule   // of one launch; zero for that of the carrier in the same time
	Carrier measure.Watt    // power of the carrier; zero for 200 W
}

// withDefaults assumes a carrier of 200 W, and a kernel that draws as much.
func (e Expect) withDefaults() Expect {
	e.Carrier = cmp.Or(e.Carrier, 200)
	e.Energy = cmp.Or(e.Energy, measure.Joule(float64(e.Carrier)*float64(e.Length)))
	return e
}

// height is the distance of the kernel's power from the carrier's, at least a quarter of
// the carrier's: an unknown distance is not taken for zero.
func (e Expect) height() float64 {
	return max(math.Abs(float64(e.Energy)/float64(e.Length)-float64(e.Carrier)), float64(e.Carrier)/4)
}

// Meter holds the properties of the meter that a plan depends on.
type Meter struct {
	Noise   measure.Watt    // standard deviation of one reading of the total
	Reading measure.Seconds // distance of independent readings
	// Drift is the rate at which the power wanders, in a direction that may change from
	// phase to phase; the fit removes a constant trend.
	Drift    measure.Watt // a second
	Scale    float64      // relative standard uncertainty of the meter's scale
	Response measure.Response
}

// MeterOf reads a meter's noise and scale off its setup, for a card that draws
// so much.
func MeterOf(s *measure.Setup, carrier measure.Watt) Meter {
	m := Meter{Response: s.Response, Reading: s.Timebase.Seconds(s.Timebase.TicksPerScan)}
	m.Reading = max(m.Reading, s.Response.Update)
	share := float64(carrier) / float64(len(s.Rails))
	var noise, scale float64
	for _, r := range s.Rails {
		volt := 12.0
		if r.Role == measure.RolePCIe3V3 {
			volt = 3.3
		}
		sigma := func(c measure.Channel) float64 { return math.Hypot(c.Noise, c.Gain/math.Sqrt(12)) }
		x := s.Channels[r.X]
		rel := x.UGain * x.UGain
		switch r.Wiring {
		case measure.WiringShunt:
			n := volt / float64(r.Shunt)
			noise += 2 * n * n * sigma(x) * sigma(x)
			rel = r.UShunt * r.UShunt
		case measure.WiringPower:
			noise += sigma(x) * sigma(x)
		default:
			noise += volt * volt * sigma(x) * sigma(x)
			if r.Y >= 0 {
				y := s.Channels[r.Y]
				noise += share / volt * share / volt * sigma(y) * sigma(y)
				rel += y.UGain * y.UGain
			}
		}
		scale = max(scale, rel)
	}
	m.Noise, m.Scale = measure.Watt(math.Sqrt(noise)), math.Sqrt(scale)
	return m
}

// Plan is a measurement to play.
type Plan struct {
	Method Method
	// Slice of the carrier between two launches, plus up to Dither.
	Slice, Dither time.Duration
	Slices        int // a phase
	Blocks        int // of four phases each: plain, kernel, kernel, plain
	Launches      int // of repeat and fold
	Lead          time.Duration
	// U is the expanded relative uncertainty that the plan should reach, scale
	// included; 0 where it was not worked out.
	U float64
	// Profile of a fold.
	Before, After, Settle measure.Seconds
	Bins                  int
}

const (
	// leastSlice lets the half benchmark sweep an L2 cache of 50 MB at 1 TB/s twice.
	leastSlice  = 100 * time.Microsecond
	leastPhase  = 200 * time.Millisecond
	mostPhase   = 4 * time.Second
	leastBlocks = 3
	mostBlocks  = 64
)

// DefaultU is the expanded relative uncertainty that is planned for where a meter can
// reach it.
const DefaultU = 0.02

// reachable is how much more than its best a meter is asked for where that is above
// DefaultU: the best takes the most phases.
const reachable = 1.1

// PlanContrast chooses the phases' length and number so that the kernel's energy
// is known to want, an expanded relative uncertainty, in the least time; 0 asks for
// DefaultU, or for 1.1 times the meter's best where that is more. A phase
// of length T with m launches scatters by
//
//	u² = σ²·Δ·T + (drift·T/√12)²·T² + m·a²,  a² = h²·min(L·Δ, Δ²/6)
//
// with the noise σ of readings Δ apart, and a for the part of a pulse of height h and length L
// that falls between them. Between 2·blocks phases of each kind the difference scatters by
// u/√blocks, a launch by that over m. ErrPlan names the best that the meter can reach.
func PlanContrast(e Expect, m Meter, want float64) (Plan, error) {
	e = e.withDefaults()
	if !(e.Length > 0) || !(want >= 0) {
		return Plan{}, fmt.Errorf("%w: a kernel of %v to %.2g: both must be positive", ErrPlan, e.Length, want)
	}
	p, best := planContrast(e, m, cmp.Or(want, DefaultU))
	switch {
	case p.Blocks > 0:
		return p, nil
	case want == 0:
		p, _ = planContrast(e, m, reachable*best)
		return p, nil
	}
	hint := "take a meter with less noise or more readings, or a longer kernel"
	if 2*m.Scale > want {
		hint = fmt.Sprintf("its own scale is known to %.2g only (k = 2): calibrate it", 2*m.Scale)
	}
	return p, fmt.Errorf("%w: %.2g is wanted, %.2g is the best that this meter can reach: %s, or want less (--until-u %.2g)",
		ErrPlan, want, best, hint, reachable*best)
}

// planContrast returns the plan, without blocks where none reaches want, and the best
// uncertainty of all.
func planContrast(e Expect, m Meter, want float64) (Plan, float64) {
	p := Plan{Method: Contrast, Lead: max(time.Second, (10 * max(m.Response.Update, m.Response.Window)).Duration())}
	// Slices are far enough apart to push the kernel's data out of the caches; a dither of at
	// least one reading keeps launches from keeping step with the readings.
	p.Slice = max(leastSlice, e.Length.Duration())
	p.Dither = max(p.Slice/4, min(m.Reading.Duration(), p.Slice))
	slice := measure.SecondsOf(p.Slice + p.Dither/2)
	// A meter that averages needs phases that are long beside its average.
	shortest := max(measure.SecondsOf(leastPhase), 20*m.Response.Update, 20*m.Response.Window, 40*m.Response.Tau,
		20*slice)
	dt, h := float64(m.Reading), e.height()
	best, bestTime := math.Inf(1), math.Inf(1)
	for phase := shortest; phase <= max(shortest, measure.SecondsOf(mostPhase)); phase *= 2 {
		launches := math.Ceil(float64(phase / slice))
		with := float64(phase) + launches*float64(e.Length)
		for blocks := leastBlocks; blocks <= mostBlocks; blocks++ {
			// The standard uncertainty of one launch's energy by scatter.
			drift := float64(m.Drift) * with / math.Sqrt(12) * with
			missed := launches * h * h * min(float64(e.Length)*dt, dt*dt/6)
			v := float64(m.Noise)*float64(m.Noise)*dt*with + drift*drift + missed
			u := math.Sqrt(v/float64(blocks)) / launches / float64(e.Energy)
			k := measure.CoverageFactor(float64(4*blocks - 2 - 3))
			total := math.Hypot(k*u, 2*m.Scale)
			took := (float64(phase) + with) * 2 * float64(blocks)
			best = min(best, total)
			if total <= want && took < bestTime {
				bestTime, p.Slices, p.Blocks, p.U = took, int(launches), blocks, total
			}
		}
	}
	return p, best
}

// PlanFold chooses how many launches make a profile whose energy above the
// carrier scatters by want, an expanded relative uncertainty (0: DefaultU), and whose
// bins have thirty readings each.
func PlanFold(e Expect, m Meter, want float64, settle measure.Seconds, bins int) (Plan, error) {
	e, want = e.withDefaults(), cmp.Or(want, DefaultU)
	if !(e.Length > 0) || !(want > 0) || !(settle >= 0) || bins < 8 {
		return Plan{}, fmt.Errorf("%w: a kernel of %v to %.2g in %d bins", ErrPlan, e.Length, want, bins)
	}
	if m.Response.Update > m.Reading/2 && m.Response.Update > 0 || m.Response.Window > e.Length {
		return Plan{}, fmt.Errorf("%w: this meter shows the mean of %v every %v: nothing of a launch is left to fold; "+
			"use contrast", ErrPlan, m.Response.Window, m.Response.Update)
	}
	p := Plan{Method: Fold, Settle: settle, Bins: bins, Lead: 500 * time.Millisecond}
	p.Before = max(e.Length, 4*m.Reading, settle/2)
	p.After = settle + p.Before
	p.Slice = (p.Before + p.After).Duration()
	p.Dither = (2 * m.Reading).Duration()
	loud, quiet := float64(e.Length+settle), float64(2*p.Before)
	sigma := math.Hypot(float64(m.Noise), e.height()*float64((e.Length+settle)/(p.Before+p.After+e.Length)))
	u := want / 2 * e.height() * float64(e.Length)
	n := sigma * sigma * float64(m.Reading) * loud * (1 + loud/quiet) / (u * u)
	perBin := float64((p.Before+p.After+e.Length)/m.Reading) / float64(bins)
	p.Launches = int(math.Ceil(max(n, 30/perBin, 200)))
	if p.Launches > gpu.MaxSlices/4 {
		return p, fmt.Errorf("%w: a profile to %.2g takes %d launches", ErrPlan, want, p.Launches)
	}
	return p, nil
}

// PlanRepeat chooses how many launches fill a second, or the time that the meter needs.
func PlanRepeat(e Expect, m Meter) (Plan, error) {
	if !(e.Length > 0) {
		return Plan{}, fmt.Errorf("%w: a kernel of %v", ErrPlan, e.Length)
	}
	length := max(1, 20*m.Response.Update)
	return Plan{Method: Repeat, Launches: int(min(math.Ceil(float64(length/e.Length)), gpu.MaxSlices))}, nil
}

// kinds of the phases of a plan's train, in their order.
type kind uint8

const (
	lead   kind = iota // carrier that brings the card to its temperature, not counted
	plain              // carrier alone
	mixed              // carrier with the kernel between its slices
	repeat             // the kernel alone, back to back
)

// kinds returns the phases that the plan's train has.
func (p Plan) kinds() []kind {
	switch p.Method {
	case Repeat:
		return []kind{repeat}
	case Fold:
		return []kind{lead, plain, mixed, lead}
	}
	out := []kind{lead}
	for range p.Blocks {
		out = append(out, plain, mixed, mixed, plain)
	}
	return append(out, lead)
}

// Train returns the train to be played.
func (p Plan) Train(carrier gpu.Benchmark, insert gpu.Insert, seed uint64) gpu.Train {
	t := gpu.Train{
		Carrier: carrier, Slice: p.Slice, Dither: p.Dither, Seed: seed, Insert: insert, Starts: p.Method == Fold,
	}
	for _, k := range p.kinds() {
		var ph gpu.TrainPhase
		switch k {
		case repeat:
			ph.Bare = p.Launches
		case lead:
			ph.Slices = max(1, int(p.Lead/(p.Slice+p.Dither/2)))
		default:
			ph.Slices, ph.Kernel = p.Slices, k == mixed
			if p.Method == Fold {
				ph.Slices = p.Launches
				if k == plain {
					ph.Slices = max(2, p.Launches/20)
				}
			}
		}
		t.Phases = append(t.Phases, ph)
	}
	return t
}

// Takes is how long the plan's train runs, for a kernel of a length.
func (p Plan) Takes(length measure.Seconds) time.Duration {
	t := p.Train("", gpu.Insert{}, 0)
	var d time.Duration
	for _, ph := range t.Phases {
		n := ph.Bare
		if ph.Kernel {
			n = ph.Slices
		}
		d += time.Duration(ph.Slices)*(p.Slice+p.Dither/2) + time.Duration(n)*length.Duration()
	}
	return d
}

// Timing is the timing of one launch on the GPU's clock.
type Timing struct {
	// Length is the time that a launch adds between two slices.
	Length measure.Seconds
	// Gap is the time between two slices with nothing between them.
	Gap measure.Seconds
}

// timing compares the phases with and without the kernel.
func timing(phases []gpu.RanPhase, kinds []kind, slices func(i int) int) Timing {
	var gap, with measure.Seconds
	var n, m float64
	for i, p := range phases {
		between := measure.SecondsOf(p.Span.End.Sub(p.Span.Start) - p.Carrier)
		switch kinds[i] {
		case plain:
			gap, n = gap+between, n+float64(slices(i))
		case mixed:
			with, m = with+between, m+float64(p.Inserted)
		case repeat:
			return Timing{Length: between / measure.Seconds(p.Inserted)}
		}
	}
	t := Timing{Gap: gap / measure.Seconds(n)}
	t.Length = with/measure.Seconds(m) - t.Gap
	return t
}

// probeSlices is how many slices a probe has with the kernel, and without.
const probeSlices = 200

// Probe launches the kernel some hundred times between short slices and returns
// how long one launch takes.
func Probe(ctx context.Context, r gpu.TrainRunner, carrier gpu.Benchmark, insert gpu.Insert) (Timing, error) {
	t := gpu.Train{Carrier: carrier, Slice: leastSlice, Insert: insert, Phases: []gpu.TrainPhase{
		{Slices: probeSlices}, {Slices: probeSlices, Kernel: true}, {Slices: 1},
	}}
	ran, err := r.RunTrain(ctx, t)
	if err != nil {
		return Timing{}, fmt.Errorf("probe the kernel: %w", err)
	}
	out := timing(ran.Phases[:2], []kind{plain, mixed}, func(int) int { return probeSlices })
	if !(out.Length > 0) || math.IsInf(float64(out.Length), 0) {
		return out, fmt.Errorf("probe the kernel: it adds %v to the %v between two slices: too short for this GPU's "+
			"clock; state its length", out.Length, out.Gap)
	}
	return out, nil
}
