package measure

import (
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"
	"testing"
)

// The taps against the ideal response exp(jωd), up to 0.35 of the scan rate.
func TestFractionalDelay(t *testing.T) {
	for _, share := range []float64{0, 0.01, 0.1, 0.25, 0.5, 0.77, 0.99} {
		f := newFractional(share)
		response := func(nu float64) (h complex128) {
			for k, v := range f {
				h += complex(v, 0) * cmplx.Exp(complex(0, 2*math.Pi*nu*float64(k-fdHalf+1)))
			}
			return h
		}
		closeTo(t, "sum of the taps", real(response(0)), 1, 1e-14)
		for nu := 0.0; nu <= 0.35; nu += 0.01 {
			if e := cmplx.Abs(response(nu) - cmplx.Exp(complex(0, 2*math.Pi*nu*share))); e > 7e-4 {
				t.Errorf("share %v at %v of the scan rate: off by %.2g", share, nu, e)
			}
		}
		if g := f.noiseGain(); share == 0 && g != 1 || g > 1 || g < 0.8 {
			t.Errorf("share %v: noise gain %v", share, g)
		}
	}
}

// muxed is one clamp rail on a multiplexed converter: current, then voltage.
func muxed(rate float64, lag Seconds) *Setup {
	return &Setup{
		Timebase: Timebase{TickHz: 1e9, TicksPerScan: 1e9 / rate},
		Channels: []Channel{
			{Name: "i", Unit: UnitAmpere, Gain: 1e-7, Noise: 1e-7, Skew: 3e-6},
			{Name: "v", Unit: UnitVolt, Gain: 1e-7, Noise: 1e-7, Skew: 3e-6 + lag},
		},
		Rails: []Rail{{Name: "r", Role: RolePSU, Wiring: WiringClamp, X: 0, Y: 1}},
	}
}

// scanned reads signals with every channel's own delay.
func scanned(s *Setup, n int, signals ...func(at float64) float64) Block {
	b := Block{Counts: make([][]Count, len(s.Channels))}
	for c, ch := range s.Channels {
		for i := range n {
			at := s.Timebase.Seconds(float64(i)*s.Timebase.TicksPerScan) + ch.Skew
			b.Counts[c] = append(b.Counts[c], Count(math.Round((signals[c](float64(at))-ch.Offset)/ch.Gain)))
		}
	}
	return b
}

// unskewed is the setup of somebody who does not know of the skew.
func unskewed(s *Setup) *Setup {
	plain := *s
	plain.Channels = append([]Channel(nil), s.Channels...)
	for c := range plain.Channels {
		plain.Channels[c].Skew = 0
	}
	return &plain
}

// rippleErrors are the errors of the mean power, in shares of the ripple's own
// product, without and with the correction.
func rippleErrors(t *testing.T, hertz, phase float64, lag Seconds) (before, after float64) {
	const n, amps, volts = 30000, 8.0, 0.3
	s := muxed(1e5, lag)
	w := 2 * math.Pi * hertz
	b := scanned(s, n,
		func(at float64) float64 { return 20 + amps*math.Sin(w*at) },
		func(at float64) float64 { return 12 - volts*math.Sin(w*at+phase) })
	truth := 20.0*12 - amps*volts/2*math.Cos(phase)
	// A whole number of periods, and the trapezoid rule sees no more than that.
	window := Window{0.02, 0.02 + Seconds(math.Round(0.2*hertz)/hertz)}
	mean := func(s *Setup) float64 {
		return float64(integrate(t, s, window.From, window.To, Edges{}, b).Mean)
	}
	share := amps * volts / 2
	return math.Abs(mean(unskewed(s))-truth) / share, math.Abs(mean(s)-truth) / share
}

// A load that ripples at 20 kHz, read at 100 kS/s one channel after another:
// the error that is left is at most a tenth of what it was, whatever the phase
// between current and voltage. It stops to hold between 38 and 40 kHz.
func TestSkewedRipple(t *testing.T) {
	for _, lag := range []Seconds{1e-6, 2.5e-6, 5e-6, 8e-6, -5e-6, 25e-6} {
		for _, hertz := range []float64{1e3, 5e3, 12.34e3, 20e3, 31e3, 35e3} {
			for _, degrees := range []float64{0, 35, 70, 100, 140, 205, 330} {
				before, after := rippleErrors(t, hertz, degrees*math.Pi/180, lag)
				// Where the lag undoes itself by its own phase there is nothing to gain,
				// and the window's ends leave a trace of it.
				if after > before/10 && after > 5e-4 {
					t.Errorf("%v behind, %v at %v°: error %.2g of the ripple's power, %.2g before", lag, Hertz(hertz), degrees, after, before)
				}
			}
		}
	}
	for _, hertz := range []float64{20e3, 30e3, 35e3, 38e3, 40e3, 42e3, 45e3} {
		var worst float64
		for _, degrees := range []float64{0, 45, 90, 135} {
			before, after := rippleErrors(t, hertz, degrees*math.Pi/180, 5e-6)
			worst = max(worst, after/before)
		}
		t.Logf("%v at 100 kS/s, half a scan of lag: at worst %.4f of the error is left", Hertz(hertz), worst)
		if near := hertz > 39e3; near != (worst > 0.1) {
			t.Errorf("%v: %.3f of the error is left; documented to hold up to 38 kHz, and not above", Hertz(hertz), worst)
		}
	}
}

// How the trace is cut into blocks does not matter, nor does asking in between.
func TestAlignedTraceDoesNotDependOnTheTelling(t *testing.T) {
	s := muxed(1e4, 37e-6)
	s.Rails[0].Wiring, s.Rails[0].Shunt = WiringShunt, 0.01
	s.Channels[0].Unit = UnitVolt
	rng := rand.New(rand.NewPCG(1, 1))
	noisy := func(at float64) float64 { return 12 + 0.1*math.Sin(900*at) + 0.01*rng.NormFloat64() }
	b := scanned(s, 6000, noisy, noisy)
	tb := s.Timebase
	early, late := b.Slice(tb, 0, 2000), b.Slice(tb, 2013, 6000)
	tell := func(ask bool, lengths ...int) Result {
		g, err := NewIntegrator(s, 0.01, 0.59)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range append(split(tb, early, lengths...), split(tb, late, lengths...)...) {
			if err := g.Add(&part); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Result(Edges{}); ask && err == nil {
				ask = true
			}
		}
		r, err := g.Result(Edges{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := tell(false, 6000)
	for name, got := range map[string]Result{
		"single scans": tell(false, 1), "asked all the time": tell(true, 50), "parts": tell(false, 3, 700, 2049, 1),
	} {
		closeTo(t, name, float64(got.Total.Energy), float64(want.Total.Energy), 1e-9)
		closeTo(t, name+": U", float64(got.Total.U), float64(want.Total.U), 1e-9)
		if got.Gaps != 1 || got.Lost != want.Lost || got.Samples != want.Samples {
			t.Errorf("%s: %d gaps, %d lost of %d; want 1, %d, %d", name, got.Gaps, got.Lost, got.Samples, want.Lost, want.Samples)
		}
	}
}

// The readings before a gap do not leak into those behind it.
func TestGapRestartsTheHistory(t *testing.T) {
	s := muxed(1e4, 40e-6)
	step := func(low, high float64) func(float64) float64 {
		return func(at float64) float64 {
			if at < 0.05 {
				return low
			}
			return high
		}
	}
	b := scanned(s, 1000, step(1, 1), step(5, 12))
	early, late := b.Slice(s.Timebase, 0, 490), b.Slice(s.Timebase, 510, 1000)
	late.FirstScan, late.FirstTick = 510, 510*1e5
	var powers []float64
	p, err := NewPowerStream(s, func(p *Powers) error {
		for i, w := range p.Rails[0].P {
			powers = append(powers, float64(w))
			if scan := p.FirstScan + uint64(i); scan < 490 != (p.Tick(i) < 490e5) {
				t.Errorf("scan %d at tick %v", scan, p.Tick(i))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []Block{early, late} {
		if err := p.Add(&part); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if len(powers) != 980 {
		t.Fatalf("%d scans come out of 980", len(powers))
	}
	for i, w := range powers {
		want := 5.0
		if i >= 490 {
			want = 12
		}
		if math.Abs(w-want) > 1e-5 {
			t.Errorf("scan %d: %v W, want %v", i, w, want)
		}
	}
}

// A delay that a rail's channels share moves the window, and nothing else.
func TestCommonDelayMovesTheWindow(t *testing.T) {
	for name, stamped := range map[string]bool{"uniform": false, "stamped": true} {
		for _, delay := range []Seconds{30e-6, -170e-6, 25e-3} {
			s := &Setup{
				Timebase: Timebase{TickHz: 1e6, TicksPerScan: 100, Stamped: stamped},
				Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 1e-6, Skew: delay}},
				Rails:    []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, Y: -1}},
			}
			ramp := func(at float64) float64 { return 100 + 400*at }
			b := scanned(s, 2000, ramp)
			if stamped {
				for i := range b.Scans() {
					b.Ticks = append(b.Ticks, int64(100*i))
				}
			}
			for _, lengths := range [][]int{{2000}, {1}, {333}} {
				r := integrate(t, s, 0.05, 0.15, Edges{}, split(s.Timebase, b, lengths...)...)
				closeTo(t, fmt.Sprint(name, delay), float64(r.Total.Energy), 10+400*(0.15*0.15-0.05*0.05)/2, 1e-8)
			}
		}
	}
}

// A reading that is a mean shows the middle of its time: the window is taken half of that later.
func TestMeansAreOfTheMiddle(t *testing.T) {
	const length = 4e-3
	s := &Setup{
		Timebase: Timebase{TickHz: 1e6, TicksPerScan: 100},
		Channels: []Channel{{Name: "p", Unit: UnitWatt, Gain: 1e-6}},
		Rails:    []Rail{{Name: "gpu", Role: RoleWholeGPU, Wiring: WiringPower, Y: -1}},
		Response: Response{Window: length},
	}
	// 100 W, from 50 ms on 500 W; the window ends at rest again, 100 ms later.
	mean := func(at float64) float64 {
		above := func(t float64) float64 { return max(t-0.05, 0) - max(t-0.12, 0) }
		return 100 + 400*(above(at)-above(at-length))/length
	}
	r := integrate(t, s, 0.05, 0.15, Edges{}, scanned(s, 2000, mean))
	// A ramp of the average's length that the window's begin cuts in its middle lacks an eighth of it.
	closeTo(t, "energy", float64(r.Total.Energy), 10+400*0.07-400*length/8, 1e-3)
	for source, want := range map[string]Joule{"skew gpu": uSkew * length / 2 * 400 / 4, "window sampling": 400 * length / 8 / 2} {
		i := slices.IndexFunc(r.Budget, func(c Contribution) bool { return c.Source == source })
		if i < 0 || r.Budget[i].U < want {
			t.Errorf("%s: want %v in %+v", source, want, r.Budget)
		}
	}
}

// Who stops adding blocks when Covered says so gets the same energy.
func TestCoveredSaysWhenToStop(t *testing.T) {
	for name, c := range map[string]struct {
		skew, lag Seconds
	}{"old readings": {-25e-3, 0}, "late readings": {25e-3, 0}, "aligned": {0, 40e-6}} {
		s := muxed(1e4, c.lag)
		s.Channels[0].Skew += c.skew
		s.Channels[1].Skew += c.skew
		b := scanned(s, 4000, func(at float64) float64 { return 5 + 40*at }, func(at float64) float64 { return 12 - 3*at })
		want := integrate(t, s, 0.05, 0.15, Edges{}, b)
		g, err := NewIntegrator(s, 0.05, 0.15)
		if err != nil {
			t.Fatal(err)
		}
		added := 0
		for _, part := range split(s.Timebase, b, 20) {
			if err := g.Add(&part); err != nil {
				t.Fatal(err)
			}
			added += part.Scans()
			if _, last, ok := g.Covered(); ok && last > 0.15 {
				break
			}
		}
		got, err := g.Result(Edges{})
		if err != nil || added >= 2000 {
			t.Fatalf("%s: %v after %d scans", name, err, added)
		}
		closeTo(t, name, float64(got.Total.Energy), float64(want.Total.Energy), 1e-9)
	}
}

// Interpolated noise is coloured: one reading scatters less, an energy as much
// as it did. What the budget says must be what is seen.
func TestNoiseOfAlignedReadings(t *testing.T) {
	for name, wiring := range map[string]Wiring{"clamp": WiringClamp, "shunt": WiringShunt} {
		for _, lag := range []Seconds{0, 50e-6} {
			s := muxed(1e4, lag)
			s.Rails[0].Wiring = wiring
			if wiring == WiringShunt {
				s.Channels[0].Unit, s.Rails[0].Shunt = UnitVolt, 0.01
			}
			const sigma = 2000.0
			for c := range s.Channels {
				s.Channels[c].Gain, s.Channels[c].Noise = 1e-5, sigma*1e-5
			}
			const seeds = 600
			var sum, squares, u, squared float64
			for seed := range uint64(seeds) {
				rng := rand.New(rand.NewPCG(seed, 3))
				b := Block{Counts: make([][]Count, 2)}
				for i := range 300 {
					ripple := 2e5 * math.Sin(2*math.Pi*0.21*float64(i))
					b.Counts[0] = append(b.Counts[0], Count(math.Round(1.25e6+ripple+sigma*rng.NormFloat64())))
					b.Counts[1] = append(b.Counts[1], Count(math.Round(1.2e6+sigma*rng.NormFloat64())))
				}
				r := integrate(t, s, 0.005, 0.025, Edges{}, b)
				e := float64(r.Total.Energy)
				sum, squares = sum+e, squares+e*e
				for _, c := range r.Budget {
					switch c.Source {
					case "noise i", "noise v":
						u += float64(c.U*c.U) / seeds
					case "squared noise v":
						squared = float64(c.U)
					}
				}
			}
			mean := sum / seeds
			closeTo(t, fmt.Sprintf("%s, lag %v: scatter", name, lag), math.Sqrt(squares/seeds-mean*mean), math.Sqrt(u), 0.09)
			if wiring != WiringShunt {
				continue
			}
			// The mean of (x − y)·y falls by the variance of one aligned reading.
			truth := 0.02 * (12.5 - 12) * 12 / 0.01
			gain := s.noiseGain(s.Rails[0])
			want := gain * (sigma*sigma + 1.0/12) * 1e-10 / 0.01 * 0.02
			closeTo(t, "squared noise", squared, want, 1e-6)
			if shift := truth - mean; math.Abs(shift-want) > 4*math.Sqrt(u/seeds)+2e-4 {
				t.Errorf("lag %v: the mean lies %v J below the truth, want %v", lag, shift, want)
			}
		}
	}
}

// On a stamped timebase nothing is interpolated: what the lag does lies within
// the budget's bound, and near it where current and voltage are in quadrature.
func TestSkewIsBoundedWhereItIsNotCorrected(t *testing.T) {
	s := muxed(1e4, 20e-6)
	s.Timebase.Stamped = true
	for _, degrees := range []float64{0, 45, 90} {
		w := 2 * math.Pi * 777.0
		b := scanned(s, 4000,
			func(at float64) float64 { return 20 + 8*math.Sin(w*at) },
			func(at float64) float64 { return 12 - 0.3*math.Sin(w*at+degrees*math.Pi/180) })
		for i := range b.Scans() {
			b.Ticks = append(b.Ticks, int64(i)*1e5)
		}
		r := integrate(t, s, 0.02, 0.02+200/777.0, Edges{}, b)
		truth := float64(r.Duration()) * (240 - 1.2*math.Cos(degrees*math.Pi/180))
		var bound float64
		for _, c := range r.Budget {
			if c.Source == "skew r" {
				bound = float64(c.U) * math.Sqrt(3)
			}
		}
		off := math.Abs(float64(r.Total.Energy) - truth)
		if off > 1.02*bound || degrees == 90 && off < 0.9*bound {
			t.Errorf("%v°: off by %v J, bound %v J", degrees, off, bound)
		}
	}
}

func TestSkewBeyondReason(t *testing.T) {
	s := muxed(1e4, 0)
	s.Channels[0].Skew, s.Channels[1].Skew = 10, 10
	if _, err := NewIntegrator(s, 0, 1); err == nil {
		t.Error("a skew of 100 000 scans is taken")
	}
	s.Channels[0].Skew, s.Channels[1].Skew = 5, -5
	if _, err := NewPowerStream(s, nil); err == nil {
		t.Error("readings 100 000 scans apart are aligned")
	}
}

// The delay of a rail's sum is known as well as the rails' shares of a step are.
func TestMeanSkew(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	skews := []Seconds{0, 33e-6, 70e-6}
	s := Setup{}
	for i, skew := range skews {
		s.Channels = append(s.Channels, Channel{Skew: skew})
		s.Rails = append(s.Rails, Rail{X: i, Y: -1})
	}
	mean, u := s.MeanSkew()
	var squares, n float64
	for range 20000 {
		var all, sum float64
		for _, skew := range skews { // shares uniform over all divisions
			x := rng.ExpFloat64()
			all, sum = all+x, sum+x*float64(skew-mean)
		}
		squares, n = squares+sum/all*sum/all, n+1
	}
	if want := math.Sqrt(squares / n); math.Abs(float64(u)/want-1) > 0.02 {
		t.Errorf("%v with a standard uncertainty of %v, the shares scatter it by %v s", mean, u, want)
	}
	s.Rails, s.Channels = s.Rails[:1], s.Channels[:1]
	if mean, u := s.MeanSkew(); mean != skews[0] || u != 0 {
		t.Errorf("of one rail %v ± %v, want its own", mean, u)
	}
}
