package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

// bench is a simulated bench: the nominal setup, and how large the errors are
// that its uncertainties describe.
type simBench struct {
	wirings []Wiring
	seconds float64
	noise   float64 // standard deviation of a reading, in counts
	stated  bool    // the noise is stated with the channel, else it must be seen
	scale   struct{ calibration, count float64 }
	uTick   float64
	edges   Edges
	resting bool // no ripple: the signal rests between its steps
}

const (
	simRate   = 2000.0 // scans a second
	simBefore = 0.05   // seconds of true time before and after the window
)

// simRail is what truly happens on a rail: a current that steps and ripples,
// a voltage that droops with it.
type simRail struct{ before, after, ripple, omega, volt, droop float64 }

func (r simRail) current(t, step float64) float64 {
	i := r.before
	if t >= step {
		i = r.after
	}
	return i + r.ripple*math.Sin(r.omega*t)
}

// energy is the closed form of the integral of I·(V − droop·I).
func (r simRail) energy(from, step, to float64) float64 {
	part := func(level, a, b float64) float64 {
		c := (math.Cos(r.omega*a) - math.Cos(r.omega*b)) / r.omega
		s2 := (b-a)/2 - (math.Sin(2*r.omega*b)-math.Sin(2*r.omega*a))/(4*r.omega)
		i1 := level*(b-a) + r.ripple*c
		i2 := level*level*(b-a) + 2*level*r.ripple*c + r.ripple*r.ripple*s2
		return r.volt*i1 - r.droop*i2
	}
	return part(r.before, from, step) + part(r.after, step, to)
}

// channel draws a channel's true calibration around its nominal one.
type simChannel struct{ gain, offset, noise float64 }

func (sb *simBench) channel(rng *rand.Rand, s *Setup, c Channel) (int, simChannel) {
	c.Gain *= sb.scale.count
	c.UGain *= sb.scale.calibration
	c.UOffset *= sb.scale.calibration
	if sb.stated {
		c.Noise = sb.noise * c.Gain
	}
	s.Channels = append(s.Channels, c)
	scale := 1 + c.UGain*rng.NormFloat64()
	return len(s.Channels) - 1, simChannel{
		gain:   c.Gain * scale,
		offset: c.Offset*scale + c.UOffset*rng.NormFloat64(),
		noise:  sb.noise,
	}
}

func (c simChannel) count(rng *rand.Rand, value float64) Count {
	return Count(math.Round((value-c.offset)/c.gain + c.noise*rng.NormFloat64()))
}

// rail adds a rail with its channels to the setup and returns how its counts
// come about from true current and voltage.
func (sb *simBench) rail(rng *rand.Rand, s *Setup, w Wiring, name string, sr *simRail) func(b *Block, i, v float64) {
	r := Rail{Name: name, Role: RolePSU, Wiring: w, Y: -1}
	var x, y simChannel
	k := sb.scale.calibration
	volt := Channel{Name: name + ".v", Unit: UnitVolt, Gain: 3e-4, Offset: 0.01, UGain: 2e-3, UOffset: 5e-3}
	var put func(b *Block, i, v float64)
	switch w {
	case WiringShunt:
		r.Shunt, r.UShunt = 0.005, 5e-3*k
		volt.UGain, volt.UOffset = 2e-5, 1e-4
		source := volt
		source.Name = name + ".s"
		r.X, x = sb.channel(rng, s, source)
		r.Y, y = sb.channel(rng, s, volt)
		ohm := float64(r.Shunt) * (1 + r.UShunt*rng.NormFloat64())
		put = func(b *Block, i, v float64) {
			b.Counts[r.X] = append(b.Counts[r.X], x.count(rng, v+i*ohm))
			b.Counts[r.Y] = append(b.Counts[r.Y], y.count(rng, v))
		}
	case WiringClamp, WiringAssumed:
		r.X, x = sb.channel(rng, s, Channel{Name: name + ".i", Unit: UnitAmpere, Gain: 0.01, Offset: -0.2, UGain: 8e-3, UOffset: 0.05})
		if w == WiringAssumed {
			r.Assumed, r.UAssumed = 12, Volt(0.1*k)
			sr.volt, sr.droop = 12+float64(r.UAssumed)*rng.NormFloat64(), 0
		} else {
			r.Y, y = sb.channel(rng, s, volt)
		}
		put = func(b *Block, i, v float64) {
			b.Counts[r.X] = append(b.Counts[r.X], x.count(rng, i))
			if r.Y >= 0 {
				b.Counts[r.Y] = append(b.Counts[r.Y], y.count(rng, v))
			}
		}
	default:
		r.X, x = sb.channel(rng, s, Channel{Name: name + ".p", Unit: UnitWatt, Gain: 0.1, UGain: 1e-2, UOffset: 0.5})
		put = func(b *Block, i, v float64) { b.Counts[r.X] = append(b.Counts[r.X], x.count(rng, i*v)) }
	}
	s.Rails = append(s.Rails, r)
	return put
}

// run simulates one measurement and returns its result, and the true energy of
// every rail.
func (sb *simBench) run(t *testing.T, seed uint64) (Result, []float64) {
	rng := rand.New(rand.NewPCG(seed, 99))
	s := &Setup{Timebase: Timebase{TickHz: 1e6, UTickHz: sb.uTick, TicksPerScan: 1e6 / simRate}}
	rails := make([]simRail, len(sb.wirings))
	put := make([]func(*Block, float64, float64), len(rails))
	for r, w := range sb.wirings {
		rails[r] = simRail{
			before: 2 + 2*rng.Float64(), after: 5 + 10*rng.Float64(), ripple: 0.5 * rng.Float64(),
			omega: 2 * math.Pi * (20 + 30*rng.Float64()), volt: 12 + 0.2*rng.Float64(), droop: 0.01,
		}
		if sb.resting {
			rails[r].ripple = 0
		}
		put[r] = sb.rail(rng, s, w, string(rune('a'+r)), &rails[r])
	}
	from, to := simBefore, simBefore+sb.seconds
	step := from + sb.seconds*(0.2+0.3*rng.Float64())
	tick := 1 + sb.uTick*rng.NormFloat64() // device seconds in a true one
	b := Block{Counts: make([][]Count, len(s.Channels))}
	for i := range int((sb.seconds + 2*simBefore) * simRate) {
		at := float64(i) / simRate / tick
		for r := range rails {
			c := rails[r].current(at, step)
			put[r](&b, c, rails[r].volt-rails[r].droop*c)
		}
	}
	z1, z2 := rng.NormFloat64(), rng.NormFloat64()
	rho := sb.edges.Correlation
	df := Seconds(z1) * sb.edges.UFrom
	dt := Seconds(rho*z1+math.Sqrt(1-rho*rho)*z2) * sb.edges.UTo
	truth := make([]float64, len(rails))
	for r := range rails {
		truth[r] = rails[r].energy(from, step, to)
	}
	return integrate(t, s, Seconds(from*tick)+df, Seconds(to*tick)+dt, sb.edges, b), truth
}

// Over 500 seeds the true energy lies within E ± U in 93 to 98 % of the cases,
// whatever source of error dominates.
func TestTrueEnergyLiesWithinU(t *testing.T) {
	usual := Edges{UFrom: 2e-4, UTo: 2e-4, Correlation: 0.3}
	base := simBench{seconds: 0.4, noise: 1, uTick: 1e-4, edges: usual}
	base.scale.calibration, base.scale.count = 1, 1
	with := func(change func(*simBench), w ...Wiring) simBench {
		sb := base
		sb.wirings = w
		change(&sb)
		return sb
	}
	same := func(*simBench) {}
	exact := func(sb *simBench) { sb.scale.calibration, sb.uTick, sb.edges = 0, 0, Edges{} }
	for name, sb := range map[string]simBench{
		"shunt":        with(same, WiringShunt, WiringShunt, WiringShunt),
		"one shunt":    with(same, WiringShunt),
		"clamp":        with(same, WiringClamp, WiringClamp, WiringClamp),
		"assumed":      with(same, WiringAssumed, WiringAssumed),
		"power":        with(same, WiringPower),
		"mixed":        with(same, WiringShunt, WiringClamp, WiringAssumed),
		"stated noise": with(func(sb *simBench) { sb.stated = true }, WiringShunt, WiringClamp, WiringAssumed),
		"ends alone":   with(func(sb *simBench) { exact(sb); sb.edges = Edges{3e-3, 3e-3, 0.5} }, WiringClamp, WiringClamp, WiringShunt),
		"rate alone":   with(func(sb *simBench) { exact(sb); sb.uTick = 1e-2 }, WiringClamp, WiringClamp, WiringShunt),
		"noise alone":  with(func(sb *simBench) { exact(sb); sb.noise = 30 }, WiringClamp, WiringShunt, WiringAssumed),
		"noise stated": with(func(sb *simBench) { exact(sb); sb.noise, sb.stated = 30, true }, WiringClamp, WiringShunt, WiringAssumed),
		"rounding": with(func(sb *simBench) { exact(sb); sb.noise, sb.scale.count, sb.resting = 0, 100, true },
			WiringClamp, WiringClamp, WiringClamp),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const seeds = 500
			inside, railInside, rails, squares := 0, 0, 0, 0.0
			for seed := range uint64(seeds) {
				r, truth := sb.run(t, seed)
				var total float64
				for i, e := range truth {
					total += e
					rails++
					if math.Abs(float64(r.Rails[i].Energy.Energy)-e) <= float64(r.Rails[i].Energy.U) {
						railInside++
					}
				}
				z := 2 * (float64(r.Total.Energy) - total) / float64(r.Total.U)
				squares += z * z
				if math.Abs(z) <= 2 {
					inside++
				}
			}
			share, rms := float64(inside)/seeds, math.Sqrt(squares/seeds)
			t.Logf("total %.1f %%, rails %.1f %%, errors %.2f standard uncertainties rms", 100*share, 100*float64(railInside)/float64(rails), rms)
			if sb.resting {
				// Rounding errors are rectangular, and two levels half average them out:
				// nearly all lie within k = 2, but u must not be more than twice too large.
				if share < 0.93 || rms < 0.5 {
					t.Errorf("%.1f %% within U, errors %.2f standard uncertainties rms", 100*share, rms)
				}
				return
			}
			if share < 0.93 || share > 0.98 {
				t.Errorf("the true energy lies within U in %.1f %% of %d cases, want 93 to 98 %%", 100*share, seeds)
			}
		})
	}
}
