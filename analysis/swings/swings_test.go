package swings

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// feed makes a meter, and gives it a power at rate scans a second.
func feed(t *testing.T, cfg Config, p func(measure.Seconds) measure.Watt) *Swings {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		at := cfg.Window.From + measure.Seconds(float64(i)+0.5)*cfg.Step
		if at > cfg.Window.To {
			break
		}
		if w := p(at); !math.IsNaN(float64(w)) {
			m.Add(at, w)
		}
	}
	s, err := m.Result()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// of returns a span of so many seconds at a rate.
func of(length measure.Seconds, rate measure.Hertz) Config {
	return Config{Window: measure.Window{From: 3, To: 3 + length}, Step: measure.Seconds(1 / rate)}
}

func TestBandsHoldTones(t *testing.T) {
	cfg := of(60, 20000)
	tones := []struct{ hz, rms float64 }{{0.7, 5}, {7.3, 10}, {50, 20}, {333, 8}, {2500, 4}}
	s := feed(t, cfg, func(at measure.Seconds) measure.Watt {
		w := 300.0
		for _, x := range tones {
			w += math.Sqrt2 * x.rms * math.Sin(2*math.Pi*x.hz*float64(at)+x.hz)
		}
		return measure.Watt(w)
	})
	if len(s.Bands) != len(tones) {
		t.Fatalf("%d bands: %+v", len(s.Bands), s.Bands)
	}
	var squares float64
	for i, x := range tones {
		squares += x.rms * x.rms
		if got := float64(s.Bands[i].RMS); math.Abs(got-x.rms) > 0.01*x.rms {
			t.Errorf("%g Hz: %g W rms, made with %g", x.hz, got, x.rms)
		}
	}
	if want := math.Sqrt(300*300 + squares); math.Abs(float64(s.RMS)-want) > 0.05 {
		t.Errorf("rms %v, want %g", s.RMS, want)
	}
}

// White noise has a known power in each band: RMS holds it within U, and Floor predicts it from the noise of the meter.
func TestBandsOfNoise(t *testing.T) {
	const sigma, rate, trials = 3.0, 2000.0, 200
	in, all := 0, 0
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 7))
		cfg := of(8, rate)
		cfg.Noise = measure.Watt(sigma / math.Sqrt(rate))
		s := feed(t, cfg, func(measure.Seconds) measure.Watt { return measure.Watt(100 + sigma*rng.NormFloat64()) })
		for _, b := range s.Bands {
			truth := sigma * math.Sqrt(float64(b.To-b.From)/(rate/2))
			if all++; math.Abs(float64(b.RMS)-truth) <= float64(b.U) {
				in++
			}
			if math.Abs(float64(b.Floor)-truth) > 0.2*truth {
				t.Fatalf("%v to %v: floor %v, the noise has %g", b.From, b.To, b.Floor, truth)
			}
		}
	}
	share := float64(in) / float64(all)
	t.Logf("truth in U in %.1f %% of %d bands", 100*share, all)
	if share < 0.93 || share > 0.97 {
		t.Errorf("truth in U in %.1f %% of %d bands, want 93 to 97", 100*share, all)
	}
}

func TestSlopesAndExcursions(t *testing.T) {
	cfg := of(4, 20000)
	// 100 W, from 4 s on in 20 ms to 300 W; at 5.5 s at once to 200 W.
	s := feed(t, cfg, func(at measure.Seconds) measure.Watt {
		switch {
		case at < 4:
			return 100
		case at < 4.02:
			return measure.Watt(100 + 200*(at-4)/0.02)
		case at < 5.5:
			return 300
		}
		return 200
	})
	want := []struct{ rise, fall float64 }{{10000, -100000}, {10000, -10000}, {1800, -1000}}
	for i, x := range s.Scales {
		if math.Abs(x.Rise.PerSecond-want[i].rise) > 0.03*want[i].rise || math.Abs(float64(x.Rise.At-4.01)) > float64(x.Width)+0.01 {
			t.Errorf("%v: rise of %g W/s at %v, want %g at 4.01 s", x.Width, x.Rise.PerSecond, x.Rise.At, want[i].rise)
		}
		if math.Abs(x.Fall.PerSecond-want[i].fall) > 0.03*-want[i].fall || math.Abs(float64(x.Fall.At-5.5)) > float64(x.Width) {
			t.Errorf("%v: fall of %g W/s at %v, want %g at 5.5 s", x.Width, x.Fall.PerSecond, x.Fall.At, want[i].fall)
		}
		q := x.Quantiles
		if low, high := q[0].Power+s.Mean, q[len(q)-1].Power+s.Mean; math.Abs(float64(low)-100) > 1e-6 ||
			math.Abs(float64(high)-300) > 1e-6 {
			t.Errorf("%v: means from %v to %v, want 100 to 300 W", x.Width, low, high)
		}
		if m := q[4].Power + s.Mean; math.Abs(float64(m)-200) > 1e-6 {
			t.Errorf("%v: median %v, want 200 W", x.Width, m)
		}
	}
}

func TestHolesAreLeftOut(t *testing.T) {
	cfg := of(4, 20000)
	s := feed(t, cfg, func(at measure.Seconds) measure.Watt {
		if at > 4 && at < 4.5 {
			return measure.Watt(math.NaN())
		}
		if at < 4.25 {
			return 100
		}
		return 300
	})
	if s.Holes != 1 {
		t.Errorf("%d holes, want 1", s.Holes)
	}
	for _, x := range s.Scales {
		if x.Rise.PerSecond != 0 {
			t.Errorf("%v: a rise of %g W/s over a hole", x.Width, x.Rise.PerSecond)
		}
	}
}

func TestCourseOfAStep(t *testing.T) {
	cfg := of(30, 20000)
	cfg.Gain = 0.01
	rng := rand.New(rand.NewPCG(1, 2))
	for at := measure.Seconds(3.01); at < 33; {
		cfg.Starts = append(cfg.Starts, at)
		at += measure.Seconds(0.1 * (1 + 0.02*rng.NormFloat64()))
	}
	// Two that are longer: another kind of step.
	cfg.Starts = append(cfg.Starts[:100], append(cfg.Starts[101:200], cfg.Starts[201:]...)...)
	i := -1
	s := feed(t, cfg, func(at measure.Seconds) measure.Watt {
		for i+1 < len(cfg.Starts) && at >= cfg.Starts[i+1] {
			i++
		}
		if i < 0 || i+1 >= len(cfg.Starts) {
			return 50
		}
		if phase := (at - cfg.Starts[i]) / (cfg.Starts[i+1] - cfg.Starts[i]); phase < 0.25 {
			return measure.Watt(400 + 5*rng.NormFloat64())
		}
		return measure.Watt(100 + 5*rng.NormFloat64())
	})
	c := s.Course
	if c == nil || c.Out != 2 || c.Steps != len(cfg.Starts)-3 {
		t.Fatalf("course %+v of %d starts", c, len(cfg.Starts))
	}
	if math.Abs(float64(c.Length)-0.1) > 0.001 || math.Abs(float64(c.Energy)-17.5) > 0.2 {
		t.Errorf("%v and %v a step, want 0.1 s and 17.5 J", c.Length, c.Energy)
	}
	for _, p := range c.Phases {
		want := measure.Watt(100)
		if p.At < 0.25 {
			want = 400
		}
		if math.Abs(float64(p.Power-want)) > 1 && math.Abs(p.At-0.25) > 0.02 {
			t.Errorf("phase %g: %v, want %v", p.At, p.Power, want)
		}
	}
}

func TestBeyondTheMeter(t *testing.T) {
	s := feed(t, of(8, 50), func(measure.Seconds) measure.Watt { return 100 })
	if len(s.Scales) != 1 || s.Scales[0].Width != 0.1 || len(s.Notes) != 2 {
		t.Errorf("at 50 scans a second: %+v, %q", s.Scales, s.Notes)
	}
	for _, b := range s.Bands {
		if b.To > 20 {
			t.Errorf("a band up to %v at 50 scans a second", b.To)
		}
	}
	m, err := New(of(1, 1000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Result(); !errors.Is(err, ErrShort) {
		t.Errorf("without scans: %v", err)
	}
	if _, err := New(Config{}); !errors.Is(err, measure.ErrWindow) {
		t.Errorf("without a span: %v", err)
	}
}

func TestKeptAreThinned(t *testing.T) {
	var k kept
	const n = 5 * mostKept
	for i := range n {
		k.add(float64(i))
	}
	if len(k.values) > mostKept || len(k.values) < mostKept/2 || k.low != 0 || k.high != n-1 {
		t.Fatalf("%d values from %g to %g", len(k.values), k.low, k.high)
	}
	for i, v := range k.values {
		if v != float64(i)*float64(k.stride) {
			t.Fatalf("value %d is %g, a stride of %d", i, v, k.stride)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	m, err := New(of(3600, 20000))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := range b.N {
		m.Add(3+measure.Seconds(i%72000000)/20000, measure.Watt(i%300))
	}
}
