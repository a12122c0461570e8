package measurement

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
)

// loop launches a kernel again and again, at a period within 1 % of that given; each launch begins up to jitter
// periods late. The last one ends with the work.
func loop(period, duty, jitter float64) Workload {
	return func(rng *rand.Rand, task Task) Done {
		var out []Level
		power, low := task.Power, task.Low
		period := period * (1 + 0.01*(2*rng.Float64()-1))
		last := task.To - duty*period
		for at := task.From; at+(duty+jitter)*period < last; at += period {
			begin := at
			if at > task.From {
				begin += jitter * period * rng.Float64()
			}
			out = append(out, Level{At: begin, W: power}, Level{At: begin + duty*period, W: low})
		}
		return Done{Levels: append(out, Level{At: last, W: power}), To: task.To}
	}
}

// steadyLoop launches a kernel at a period that is kept.
func steadyLoop(period, duty float64) Workload {
	return func(_ *rand.Rand, task Task) Done {
		var out []Level
		for at := task.From; at+duty*period < task.To; at += period {
			out = append(out, Level{At: at, W: task.Power}, Level{At: at + duty*period, W: task.Low})
		}
		return Done{Levels: out, To: task.To}
	}
}

// looped is what the product makes of one loop.
type looped struct {
	within, blind bool // in E ± U with and without launch times
	heard, beats  bool // without them, by the readings' beat: in E ± U, named
	named         bool
	level         quality.Level
	u             float64 // over the energy
}

// measureLoop integrates a recording of a loop over its work, by clocks that are related exactly and with a
// marker's step that is that of the card.
func measureLoop(t *testing.T, b Bench, seed uint64) (out looped) {
	t.Helper()
	const chip = 5e-3
	var task Task
	var done Done
	work := b.Work
	b.Work = func(rng *rand.Rand, x Task) Done {
		task, done = x, work(rng, x)
		return done
	}
	rec := b.Record(seed, Marker{Chips: []bool{true, false, true}, Chip: chip}, Marker{Chips: []bool{true, false}, Chip: chip})
	setup := &measure.Setup{Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 1e6 / b.Meter.Rate}}
	for _, c := range rec.Channels {
		unit := measure.UnitVolt
		if c.Current {
			unit = measure.UnitAmpere
		}
		setup.Channels = append(setup.Channels, measure.Channel{Name: c.Name, Unit: unit, Gain: c.Gain, UGain: c.UGain, UOffset: c.UOffset})
	}
	for i, name := range []string{"slot", "plug"} {
		setup.Rails = append(setup.Rails, measure.Rail{Name: name, Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 2*i + 1, Y: 2 * i})
	}
	first, last := rec.Marks[0].At, rec.Marks[len(rec.Marks)-1].At+chip // of the first chip of the start, and the last of the stop marker
	a, z := rec.Edges[0].Host, rec.Edges[len(rec.Edges)-1].Host
	rate := (z - a) / (last - first)
	host := func(at float64) time.Time {
		return time.Unix(0, 0).Add(measure.Seconds(a + (at-first)*rate).Duration())
	}
	fit := clock.Fit{Origin: measure.Seconds(a), A: measure.Seconds(first), B: 1 / rate}
	var kernels []store.Kernel
	l := append(done.Levels, Level{At: done.To})
	for i, x := range l {
		if x.W == task.Power {
			kernels = append(kernels, store.Kernel{Name: "k", Start: host(x.At), End: host(l[i+1].At)})
		}
	}
	step := bounds{start: &marker.Found{Step: measure.Watt(task.High - task.Low)}}
	from, _ := fit.Meter(measure.Seconds(rec.From - a))
	to, _ := fit.Meter(measure.Seconds(rec.To - a))
	g, err := measure.NewIntegrator(setup, from, to)
	for _, r := range rec.Runs {
		blk := &measure.Block{FirstScan: r.First}
		for _, c := range r.Counts {
			v := make([]measure.Count, len(c))
			for i, x := range c {
				v[i] = measure.Count(x)
			}
			blk.Counts = append(blk.Counts, v)
		}
		if err == nil {
			err = g.Add(blk)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	result := func(e measure.Edges) (measure.Result, bool) {
		r, err := g.Result(e)
		if err != nil {
			t.Fatal(err)
		}
		return r, math.Abs(float64(r.Total.Energy)-rec.Energy) <= float64(r.Total.U)
	}
	named := func(r *measure.Result) (quality.Level, bool) {
		v := quality.Judge(quality.Input{Setup: setup, Result: r, Clock: &clock.Fit{Used: 40, B: 1}})
		return v.Level, slices.ContainsFunc(v.Reasons, func(r quality.Reason) bool { return r.Cause == quality.Aliased })
	}
	_, out.blind = result(measure.Edges{})
	var r measure.Result
	r, out.heard = result(measure.Edges{Beats: true})
	_, out.beats = named(&r)
	u, _ := aliased(setup.Timebase, &fit, kernels, step)
	r, out.within = result(measure.Edges{Aliasing: u})
	out.u = float64(r.Total.U / r.Total.Energy)
	out.level, out.named = named(&r)
	return out
}

// The energy of a loop of kernels whose launches are known is covered, and the verdict names the aliasing where
// the loop is near the scan rate or twice that; far from it the verdict is silent. Without the launch times no
// reading tells such a loop from a steady load.
func TestLoopsNearTheScanRate(t *testing.T) {
	seeds := 40
	if coverage.Slow {
		seeds = 500
	}
	edges := func(*rand.Rand) (rise, fall Response) {
		edge := Response{Line: [][2]float64{{10e-6, 1}}}
		return edge, edge
	}
	meter := Meter{Rate: 4800, Noise: White, NoiseW: 2, UGain: 6e-3, UOffset: 1, UTick: 50e-6}
	const always, never, either = 0.95, 0.05, -1
	for _, c := range []struct {
		name         string
		scans        float64 // of the period
		duty, jitter float64
		length       float64
		blind        float64 // largest share that is covered without launch times
		named        float64 // share
	}{
		{"the scan rate", 1, 0.5, 0, 20e-3, 0.2, always},
		{"the scan rate, longer", 1, 0.5, 0, 100e-3, 0.6, always},
		{"short pauses", 1, 0.9, 0, 50e-3, 0.7, always},
		{"twice the scan rate", 0.5, 0.5, 0, 50e-3, 0.6, always},
		{"half the scan rate", 2, 0.5, 0, 100e-3, 1, either}, // U is 1.5 %: of some the aliasing is half
		{"0.37 of the scan rate", 2.7, 0.5, 0, 100e-3, 1, never},
		{"a seventh of the scan rate", 7, 0.5, 0, 100e-3, 1, either},
		{"random launches", 1.3, 0.5, 0.5, 100e-3, 1, either},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := Bench{Edges: edges, Work: loop(c.scans/meter.Rate, c.duty, c.jitter), Meter: meter, Length: c.length}
			n := float64(seeds)
			var within, blind, named, doubtful, u float64
			count := func(yes bool) float64 {
				if yes {
					return 1 / n
				}
				return 0
			}
			for seed := range seeds {
				x := measureLoop(t, b, uint64(seed))
				within, blind, named = within+count(x.within), blind+count(x.blind), named+count(x.named)
				doubtful, u = doubtful+count(x.level >= quality.Doubtful), u+x.u/n
			}
			t.Logf("%.1f %% within U (%.1f %% without launch times), U %.2g %%, named %.1f %%, doubtful %.1f %%", 100*within, 100*blind, 100*u, 100*named, 100*doubtful)
			scatter := func(p float64) float64 { return 2 * math.Sqrt(p*(1-p)/n) }
			if within < 0.9545-scatter(0.9545) {
				t.Errorf("%.1f %% within U", 100*within)
			}
			if c.blind < 1 && blind > c.blind+scatter(c.blind) {
				t.Errorf("%.1f %% within U without launch times: this case proves nothing", 100*blind)
			}
			if c.named != either && math.Abs(named-c.named) > 0.05+scatter(0.05) {
				t.Errorf("named in %.1f %%", 100*named)
			}
		})
	}
}

// Loops whose launches are not known, at any rate around a multiple of the scan rate: their energy is covered, or the
// verdict names the beat, wherever the window holds two periods of it. Fewer, as at the scan rate itself, show nothing.
// Around half of the scan rate and its odd multiples the readings alternate, and show any.
func TestBeats(t *testing.T) {
	trials := 60
	if coverage.Slow {
		trials = 500
	}
	sharp := func(*rand.Rand) (rise, fall Response) {
		edge := Response{Line: [][2]float64{{10e-6, 1}}}
		return edge, edge
	}
	for _, c := range []struct {
		name   string
		edges  Edges
		length float64
		near   float64 // a multiple of the scan rate, by that part of the scan rate
		less   float64 // the multiples are that much less than whole
	}{
		{"sharp edges", sharp, 100e-3, 0.1, 0},
		{"edges of cards", AnyEdges, 100e-3, 0.1, 0},
		{"edges of cards, any rate", AnyEdges, 100e-3, 0.5, 0},
		{"sharp edges, 1 s", sharp, 1, 0.02, 0},
		{"half, sharp edges", sharp, 100e-3, 0.003, 0.5},
		{"half, edges of cards", AnyEdges, 100e-3, 0.003, 0.5},
		{"half, sharp edges, 1 s", sharp, 1, 0.0003, 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			meter := Meter{Rate: 4800, Noise: White, NoiseW: 2, UGain: 1e-5, UOffset: 0.02, UTick: 50e-6}
			b := Bench{Edges: c.edges, Meter: meter, Length: c.length}
			var n, good, heard, blind float64
			for seed := range uint64(trials) {
				rng := rand.New(rand.NewPCG(seed, 1))
				off := (2*rng.Float64() - 1) * c.near
				rate := meter.Rate * (float64(1+rng.IntN(3)) - c.less + off)
				b.Work = steadyLoop(1/rate, 0.1+0.8*rng.Float64())
				x := measureLoop(t, b, seed)
				periods := math.Abs(off) * meter.Rate * c.length
				if c.less == 0 && periods < 3 { // the length is within a fifth, the meter's clock and the line's place within less
					continue
				}
				n++
				if x.heard || x.beats {
					good++
				}
				if x.heard {
					heard++
				}
				if x.blind {
					blind++
				}
			}
			t.Logf("of %.0f: %.1f %% in U or named, %.1f %% in U, %.1f %% without", n, 100*good/n, 100*heard/n, 100*blind/n)
			if good/n < 0.93-2*math.Sqrt(0.93*0.07/n) {
				t.Errorf("%.1f %% of %.0f", 100*good/n, n)
			}
		})
	}
}
