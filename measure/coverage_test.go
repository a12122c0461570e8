package measure

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
)

// simBench is a simulated bench: the nominal setup, and how large the errors are
// that its uncertainties describe.
type simBench struct {
	wirings []Wiring
	seconds float64
	rate    float64 // scans a second
	noise   float64 // standard deviation of a reading, in counts
	stated  bool    // the noise is stated with the channel, else it must be seen
	scale   struct{ calibration, count float64 }
	uTick   float64
	edges   Edges
	resting bool    // no ripple: the signal rests between its steps
	kernel  bool    // the load steps at the window's ends, else within it
	mux     float64 // delay from one channel to the next, in scans
	drift   float64 // how far errors turn into others over the window, in radians
	leave   string  // a source that the setup does not know of
}

// before is the true time before and after the window.
func (sb *simBench) before() float64 { return max(0.1*sb.seconds, 100/sb.rate) }

// simError is an error that wanders slowly: its standard deviation is the same
// at any time, its value is not.
type simError struct{ u, a, b, turn float64 }

func (sb *simBench) error(rng *rand.Rand, u float64) simError {
	return simError{u, rng.NormFloat64(), rng.NormFloat64(), sb.drift / sb.seconds}
}

func (e simError) at(t float64) float64 {
	return e.u * (e.a*math.Cos(e.turn*t) + e.b*math.Sin(e.turn*t))
}

// until is the integral from zero to t.
func (e simError) until(t float64) float64 {
	if e.turn == 0 {
		return e.u * e.a * t
	}
	return e.u * (e.a*math.Sin(e.turn*t) + e.b*(1-math.Cos(e.turn*t))) / e.turn
}

// simRail is what truly happens on a rail: a current that steps and ripples,
// a voltage that droops with it.
type simRail struct{ before, after, ripple, omega, volt, droop float64 }

// current steps up at one time and down at another.
func (r simRail) current(t, up, down float64) float64 {
	i := r.before
	if t >= up && t < down {
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

// simChannel is a channel as it truly is.
type simChannel struct {
	index        int
	skew, noise  float64
	nominal      Channel
	gain, offset simError
}

// channel draws a channel's true calibration around its nominal one.
func (sb *simBench) channel(rng *rand.Rand, s *Setup, c Channel) simChannel {
	c.Gain *= sb.scale.count
	c.UGain *= sb.scale.calibration
	c.UOffset *= sb.scale.calibration
	if sb.stated {
		c.Noise = sb.noise * c.Gain
	}
	c.Skew = Seconds(float64(len(s.Channels)) * sb.mux / sb.rate)
	out := simChannel{
		index: len(s.Channels), nominal: c, noise: sb.noise, skew: float64(c.Skew) * (1 + uSkew*rng.NormFloat64()),
		gain: sb.error(rng, c.UGain), offset: sb.error(rng, c.UOffset),
	}
	if sb.leave == "gain" {
		c.UGain = 0
	}
	s.Channels = append(s.Channels, c)
	return out
}

// read appends the count that the channel gives for a value at a time.
func (c *simChannel) read(rng *rand.Rand, b *Block, t, value float64) {
	scale := 1 + c.gain.at(t)
	count := (value - c.nominal.Offset*scale - c.offset.at(t)) / (c.nominal.Gain * scale)
	b.Counts[c.index] = append(b.Counts[c.index], Count(math.Round(count+c.noise*rng.NormFloat64())))
}

// signal is what happens on a rail: current and voltage at a time.
type signal func(t float64) (i, v float64)

// rail adds a rail with its channels to the setup and returns how its counts
// come about from true current and voltage.
func (sb *simBench) rail(rng *rand.Rand, s *Setup, w Wiring, name string, sr *simRail) func(b *Block, t float64, on signal) {
	r := Rail{Name: name, Role: RolePSU, Wiring: w, Y: -1}
	k := sb.scale.calibration
	volt := Channel{Name: name + ".v", Unit: UnitVolt, Gain: 3e-4, Offset: 0.01, UGain: 2e-3, UOffset: 5e-3}
	var x, y simChannel
	add := func() { s.Rails = append(s.Rails, r) }
	switch w {
	case WiringShunt:
		r.Shunt, r.UShunt = 0.005, 5e-3*k
		volt.UGain, volt.UOffset = 2e-5, 1e-4
		source := volt
		source.Name = name + ".s"
		x = sb.channel(rng, s, source)
		y = sb.channel(rng, s, volt)
		r.X, r.Y = x.index, y.index
		ohm := float64(r.Shunt) * (1 + r.UShunt*rng.NormFloat64())
		add()
		return func(b *Block, t float64, on signal) {
			i, v := on(t + x.skew)
			x.read(rng, b, t, v+i*ohm)
			_, v = on(t + y.skew)
			y.read(rng, b, t, v)
		}
	case WiringClamp, WiringAssumed:
		x = sb.channel(rng, s, Channel{Name: name + ".i", Unit: UnitAmpere, Gain: 0.01, Offset: -0.2, UGain: 8e-3, UOffset: 0.05})
		r.X = x.index
		if w == WiringAssumed {
			r.Assumed, r.UAssumed = 12, Volt(0.1*k)
			sr.volt, sr.droop = 12+float64(r.UAssumed)*rng.NormFloat64(), 0
		} else {
			y = sb.channel(rng, s, volt)
			r.Y = y.index
		}
		add()
		return func(b *Block, t float64, on signal) {
			i, _ := on(t + x.skew)
			x.read(rng, b, t, i)
			if w == WiringClamp {
				_, v := on(t + y.skew)
				y.read(rng, b, t, v)
			}
		}
	default:
		x = sb.channel(rng, s, Channel{Name: name + ".p", Unit: UnitWatt, Gain: 0.1, UGain: 1e-2, UOffset: 0.5})
		r.X = x.index
		add()
		return func(b *Block, t float64, on signal) {
			i, v := on(t + x.skew)
			x.read(rng, b, t, i*v)
		}
	}
}

// run simulates one measurement and returns its result, and the true energy of
// every rail.
func (sb *simBench) run(t *testing.T, seed uint64) (Result, []float64) {
	rng := rand.New(rand.NewPCG(seed, 99))
	s := &Setup{Timebase: Timebase{TickHz: 1e6, UTickHz: sb.uTick, TicksPerScan: 1e6 / sb.rate}}
	rails := make([]simRail, len(sb.wirings))
	put := make([]func(*Block, float64, signal), len(rails))
	hertz := 1 / sb.seconds // about the load's; far enough below half the scans
	for r, w := range sb.wirings {
		rails[r] = simRail{
			before: 2 + 2*rng.Float64(), after: 5 + 10*rng.Float64(), ripple: 0.5 * rng.Float64(),
			omega: 2 * math.Pi * hertz * (8 + 12*rng.Float64()), volt: 12 + 0.2*rng.Float64(), droop: 0.01,
		}
		if sb.resting {
			rails[r].ripple = 0
		}
		put[r] = sb.rail(rng, s, w, string(rune('a'+r)), &rails[r])
	}
	from, to := sb.before(), sb.before()+sb.seconds
	up, down := from+sb.seconds*(0.2+0.3*rng.Float64()), math.Inf(1)
	if sb.kernel {
		up, down = from, to
	}
	clock := sb.error(rng, sb.uTick) // device seconds in a true one, less one
	b := Block{Counts: make([][]Count, len(s.Channels))}
	for i := range int((sb.seconds + 2*sb.before()) * sb.rate) {
		device := float64(i) / sb.rate
		at := device - clock.until(device)
		for r := range rails {
			put[r](&b, at, func(t float64) (float64, float64) {
				c := rails[r].current(t, up, down)
				return c, rails[r].volt - rails[r].droop*c
			})
		}
	}
	z1, z2 := rng.NormFloat64(), rng.NormFloat64()
	rho := sb.edges.Correlation
	df := Seconds(z1) * sb.edges.UFrom
	dt := Seconds(rho*z1+math.Sqrt(1-rho*rho)*z2) * sb.edges.UTo
	truth := make([]float64, len(rails))
	for r := range rails {
		truth[r] = rails[r].energy(from, up, to)
	}
	edges := sb.edges
	if sb.leave == "edges" {
		edges = Edges{}
	}
	return integrate(t, s, Seconds(from+clock.until(from))+df, Seconds(to+clock.until(to))+dt, edges, b), truth
}

// Over 500 seeds the true energy lies within E ± U in 93 to 98 % of the cases,
// whatever source of error dominates.
func TestTrueEnergyLiesWithinU(t *testing.T) {
	coverage.Long(t)
	usual := Edges{UFrom: 2e-4, UTo: 2e-4, Correlation: 0.3}
	base := simBench{seconds: 0.4, rate: 2000, noise: 1, uTick: 1e-4, edges: usual}
	base.scale.calibration, base.scale.count = 1, 1
	with := func(change func(*simBench), w ...Wiring) simBench {
		sb := base
		sb.wirings = w
		change(&sb)
		return sb
	}
	same := func(*simBench) {}
	exact := func(sb *simBench) { sb.scale.calibration, sb.uTick, sb.edges = 0, 0, Edges{} }
	seeds := uint64(500)
	if !coverage.Slow {
		seeds = 60 // enough for all sources together, not for each
	}
	var mu sync.Mutex
	var all coverageSeen
	t.Cleanup(func() { // after the parallel parts
		if err := all.verdict(); err != nil {
			t.Errorf("all sources: %v", err)
		}
	})
	for name, sb := range map[string]simBench{
		"shunt":        with(same, WiringShunt, WiringShunt, WiringShunt),
		"one shunt":    with(same, WiringShunt),
		"clamp":        with(same, WiringClamp, WiringClamp, WiringClamp),
		"assumed":      with(same, WiringAssumed, WiringAssumed),
		"power":        with(same, WiringPower),
		"mixed":        with(same, WiringShunt, WiringClamp, WiringAssumed),
		"stated noise": with(func(sb *simBench) { sb.stated = true }, WiringShunt, WiringClamp, WiringAssumed),
		"ends alone":   with(func(sb *simBench) { exact(sb); sb.edges = Edges{UFrom: 3e-3, UTo: 3e-3, Correlation: 0.5} }, WiringClamp, WiringClamp, WiringShunt),
		"rate alone":   with(func(sb *simBench) { exact(sb); sb.uTick = 1e-2 }, WiringClamp, WiringClamp, WiringShunt),
		"noise alone":  with(func(sb *simBench) { exact(sb); sb.noise = 30 }, WiringClamp, WiringShunt, WiringAssumed),
		"noise stated": with(func(sb *simBench) { exact(sb); sb.noise, sb.stated = 30, true }, WiringClamp, WiringShunt, WiringAssumed),
		"rounding": with(func(sb *simBench) { exact(sb); sb.noise, sb.scale.count, sb.resting = 0, 100, true },
			WiringClamp, WiringClamp, WiringClamp),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside, railInside, rails, squares := 0, 0, 0, 0.0
			for seed := range seeds {
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
			share, rms := float64(inside)/float64(seeds), math.Sqrt(squares/float64(seeds))
			t.Logf("total %.1f %%, rails %.1f %%, errors %.2f standard uncertainties rms", 100*share, 100*float64(railInside)/float64(rails), rms)
			if sb.resting {
				// Rounding errors are rectangular, and two levels half average them out:
				// nearly all lie within k = 2, but u must not be more than twice too large.
				if share < 0.93 || rms < 0.5 {
					t.Errorf("%.1f %% within U, errors %.2f standard uncertainties rms", 100*share, rms)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all.inside, all.of = all.inside+inside, all.of+int(seeds)
			if coverage.Slow && (share < 0.93 || share > 0.98) {
				t.Errorf("the true energy lies within U in %.1f %% of %d cases, want 93 to 98 %%", 100*share, seeds)
			}
		})
	}
}
