package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

// stepsBench is one rail that is told in watts, a hundredth of one a count.
func stepsBench() *Setup {
	return &Setup{
		Timebase: Timebase{TickHz: 1e6, TicksPerScan: 50},
		Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 0.01}},
		Rails:    []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, X: 0, Y: -1}},
	}
}

// lineIn returns the line of a budget, zero where there is none.
func lineIn(r Result, source string) float64 {
	for _, c := range r.Budget {
		if c.Source == source {
			return float64(c.U)
		}
	}
	return 0
}

// Work that turns on and off within the window at any time: what the trapezoid
// rule is off by is what the line says.
func TestStepsWithinTheWindow(t *testing.T) {
	s, rng := stepsBench(), rand.New(rand.NewPCG(7, 7))
	const dt, low, high, turns, draws = 50e-6, 60.0, 460.0, 20, 400
	var squares, said float64
	for range draws {
		at, truth := 1e-3, 0.0
		var edges []float64
		for range turns {
			at += 0.4e-3 + 0.4e-3*rng.Float64()
			edges = append(edges, at)
		}
		end := at + 1e-3
		counts := make([]Count, int(end/dt)+2)
		for i := range counts {
			level := low
			for _, e := range edges {
				if e <= float64(i)*dt {
					level = low + high - level
				}
			}
			counts[i] = Count(100 * level)
		}
		truth = low * (end - 0.5e-3)
		for i := 0; i < turns; i += 2 {
			truth += (high - low) * (edges[i+1] - edges[i])
		}
		r := integrate(t, s, 0.5e-3, Seconds(end), Edges{}, Block{Counts: [][]Count{counts}})
		off := float64(r.Total.Energy) - truth
		squares += off * off / draws
		u := lineIn(r, "sampling")
		said += u * u / draws
	}
	want := (high - low) * dt * math.Sqrt(turns/12.0)
	t.Logf("off by %.3g mJ rms, %.3g said, %.3g by the formula", 1e3*math.Sqrt(squares), 1e3*math.Sqrt(said), 1e3*want)
	closeTo(t, "what is said", math.Sqrt(said), want, 1e-3)
	closeTo(t, "off by", math.Sqrt(squares), want, 0.1)
}

// What the scans follow is no step, nor is what a gap hides, which has a line of its
// own; and a step at the window's end is counted once.
func TestWhatIsNoStepBetweenScans(t *testing.T) {
	s := stepsBench()
	trace := func(level func(i int) float64) Block {
		counts := make([]Count, 400)
		for i := range counts {
			counts[i] = Count(math.Round(100 * level(i)))
		}
		return Block{Counts: [][]Count{counts}}
	}
	stepAt := func(at int) func(i int) float64 {
		return func(i int) float64 {
			if i < at {
				return 60
			}
			return 460
		}
	}
	const one = 400 * 50e-6 / 3.4641016151377544
	ramp := trace(func(i int) float64 { return 60 + 20*float64(min(max(i-100, 0), 20)) })
	closeTo(t, "a ramp", lineIn(integrate(t, s, 1e-3, 0.015, Edges{}, ramp), "sampling"), 0, 1e-12)
	step := trace(stepAt(150))
	r := integrate(t, s, 1e-3, 0.015, Edges{}, split(s.Timebase, step, 150)...)
	closeTo(t, "a step between blocks", lineIn(r, "sampling"), one, 1e-3)
	tb := s.Timebase
	r = integrate(t, s, 1e-3, 0.015, Edges{}, step.Slice(tb, 0, 150), step.Slice(tb, 151, 400))
	closeTo(t, "a step in a gap", lineIn(r, "sampling"), 0, 1e-12)
	if lineIn(r, "gaps") == 0 {
		t.Error("the gap has no line")
	}
	r = integrate(t, s, 0.00752, 0.015, Edges{UFrom: 1e-6}, trace(stepAt(152)))
	closeTo(t, "beside the end", math.Hypot(lineIn(r, "sampling"), lineIn(r, "window sampling")), one, 1e-3)
}

// A quiet meter at 4.8 kS/s sees a kernel as steps between two readings. What
// the straight lines between them lose at the window's ends must lie within U,
// and U must not be many times too large.
func TestQuietMeterAtTheWindowsEnds(t *testing.T) {
	const rate, idle, load, length = 4800.0, 60.0, 300.0, 0.02
	for name, c := range map[string]struct {
		late float64 // the power follows the window's ends by up to so many seconds
	}{
		"steps at the ends":     {0},
		"steps behind the ends": {0.3 / rate},
	} {
		t.Run(name, func(t *testing.T) {
			const seeds = 500
			inside, squares := 0, 0.0
			for seed := range uint64(seeds) {
				rng := rand.New(rand.NewPCG(seed, 5))
				from := 0.01 + rng.Float64()/rate
				to := from + length + rng.Float64()/rate
				on, off := from+c.late*rng.Float64(), to+c.late*rng.Float64()
				s := &Setup{
					Timebase: Timebase{TickHz: 48e6, TicksPerScan: 10_000},
					Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 1e-6}},
					Rails:    []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, Y: -1}},
				}
				b := Block{Counts: make([][]Count, 1)}
				for i := range int(0.05 * rate) {
					p, at := idle, float64(i)/rate
					if at >= on && at < off {
						p = load
					}
					b.Counts[0] = append(b.Counts[0], Count(math.Round(p/1e-6)))
				}
				// Up to the window's end: before the power came and while it lasts.
				truth := idle*(on-from) + load*(min(off, to)-on)
				r := integrate(t, s, Seconds(from), Seconds(to), Edges{}, b)
				z := 2 * (float64(r.Total.Energy) - truth) / float64(r.Total.U)
				squares += z * z
				if math.Abs(z) <= 2 {
					inside++
				}
			}
			share, rms := float64(inside)/seeds, math.Sqrt(squares/seeds)
			t.Logf("%.1f %% within U, errors %.2f standard uncertainties rms", 100*share, rms)
			if share < 0.93 || rms < 0.5 || rms > 1.1 {
				t.Errorf("%.1f %% within U, errors %.2f standard uncertainties rms", 100*share, rms)
			}
		})
	}
}

// Only a step between two readings hides energy: a ramp over several does not,
// and a step far from the ends is not the ends'.
func TestStepAtAnEnd(t *testing.T) {
	for name, c := range map[string]struct {
		watts []float64 // one every tick, the end at tick 5.5
		want  float64
	}{
		"a step across the end": {[]float64{1, 1, 1, 1, 1, 1, 9, 9, 9, 9, 9, 9}, 8},
		"a step down behind it": {[]float64{9, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1, 1}, 8},
		"a ramp":                {[]float64{1, 1, 1, 1, 3, 5, 7, 9, 9, 9, 9, 9}, 0},
		"a slow rise":           {[]float64{1, 1, 1, 1, 1, 5, 7, 8, 8.5, 8.75, 9, 9}, 2},
		"a step elsewhere":      {[]float64{1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}, 0},
		"rest":                  {[]float64{5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := Setup{
				Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 0.25}},
				Rails:    []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, Y: -1}},
				Timebase: Timebase{TickHz: 1, TicksPerScan: 1},
			}
			m, err := NewPowerMeter(&s)
			if err != nil {
				t.Fatal(err)
			}
			col := make([]Count, len(c.watts))
			for i, w := range c.watts {
				col[i] = Count(w / 0.25)
			}
			e := edge{at: 5.5, rails: m.rails, shift: []float64{0}, scans: edgeScans}
			observe(&e, &stretch[Count]{cols: [][]Count{col}, step: 1, n: len(col)})
			for _, r := range []int{0, -1} {
				if got, _ := e.jump(r, 1); got != c.want {
					t.Errorf("rail %d: a step of %v W, want %v", r, got, c.want)
				}
			}
		})
	}
}
