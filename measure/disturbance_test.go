package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// disturbed integrates scans 4000 to 5000 of 10 000, resting before 3500 and behind 5500, and returns
// the result and the budget's lines by the begin of their names.
func disturbed(t *testing.T, counts []Count, line string) (*Result, float64) {
	t.Helper()
	s := &Setup{
		Timebase: Timebase{TickHz: 1e6, TicksPerScan: 100},
		Channels: []Channel{{Name: "gpu.p", Unit: UnitWatt, Gain: 0.01}},
		Rails:    []Rail{{Name: "gpu", Role: RolePSU, Wiring: WiringPower, X: 0, Y: -1}},
	}
	g, err := NewIntegrator(s, 0.4, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	g.Rest(0.35, 0.55)
	if err := g.Add(&Block{Counts: [][]Count{counts}}); err != nil {
		t.Fatal(err)
	}
	r, err := g.Result(Edges{})
	if err != nil {
		t.Fatal(err)
	}
	var u float64
	for _, c := range r.Budget {
		if strings.HasPrefix(c.Source, line) {
			u = math.Hypot(u, float64(c.U))
		}
	}
	return &r, u
}

// TestSlowNoise: U holds the truth where the noise is a Markov process of 20 readings, flicker, or bursts of several
// readings, of either sign or of one, and white noise has no line for it.
func TestSlowNoise(t *testing.T) {
	const n, sigma, runs = 10000, 50.0, 60
	for name, c := range map[string]struct {
		octaves     []float64 // correlation times in readings
		least, most float64   // share of lines
	}{
		"white":   {nil, 0, 0.01},
		"spikes":  {nil, 0, 0.02},
		"bursts":  {nil, 0.99, 1},
		"surges":  {nil, 0.99, 1},
		"markov":  {[]float64{20}, 0.99, 1},
		"flicker": {[]float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}, 0.99, 1},
	} {
		within, lines := 0, 0
		for seed := range runs {
			rng := rand.New(rand.NewPCG(uint64(seed), 5))
			v := make([]float64, n)
			for i := range v {
				v[i] = 10000
				if c.octaves == nil {
					v[i] += sigma * rng.NormFloat64()
				}
				if name == "spikes" && rng.IntN(100) == 0 {
					v[i] += 20 * sigma * rng.NormFloat64()
				}
			}
			for i := 0; (name == "bursts" || name == "surges") && i < n; i++ {
				if rng.IntN(500) == 0 {
					height := 20 * sigma * rng.NormFloat64()
					if name == "surges" {
						height = 10 * sigma
					}
					for k := i; k < min(n, i+11); k++ {
						v[k] += height
					}
				}
			}
			for _, tau := range c.octaves {
				rho, x := math.Exp(-1/tau), rng.NormFloat64()
				for i := range v {
					v[i] += sigma / math.Sqrt(float64(len(c.octaves))) * x
					x = rho*x + math.Sqrt(1-rho*rho)*rng.NormFloat64()
				}
			}
			counts := make([]Count, n)
			for i, x := range v {
				counts[i] = Count(math.Round(x))
			}
			r, u := disturbed(t, counts, "slow noise ")
			if u > 0 {
				lines++
			}
			if math.Abs(float64(r.Total.Energy-10)) <= float64(r.Total.U) {
				within++
			}
		}
		share := float64(lines) / runs
		t.Logf("%s: %d of %d within U, %.3f with a line", name, within, runs, share)
		if share < c.least || share > c.most || float64(within) < 0.88*runs {
			t.Errorf("%s: %d of %d within U, %.3f with a line", name, within, runs, share)
		}
	}
}

// TestHum: U holds the truth under mains hum with a harmonic, and is little larger than without it: over five periods
// and more the hum's mean is small, and noise that averages as slowly as its half periods it is not.
func TestHum(t *testing.T) {
	const n, sigma, runs = 10000, 20.0, 60
	within := 0
	var bare, humming []float64
	for seed := range uint64(runs) {
		for _, amplitude := range []float64{0, 100} {
			rng := rand.New(rand.NewPCG(seed, 6))
			f := 50 + 10*rng.Float64()
			phase, third := 2*math.Pi*rng.Float64(), 2*math.Pi*rng.Float64()
			counts := make([]Count, n)
			for i := range counts {
				wt := 2 * math.Pi * f * float64(i) * 1e-4
				hum := amplitude * (math.Sin(wt+phase) + 0.25*math.Sin(3*wt+third))
				counts[i] = Count(math.Round(10000 + hum + sigma*rng.NormFloat64()))
			}
			r, _ := disturbed(t, counts, "slow noise ")
			if amplitude == 0 {
				bare = append(bare, float64(r.Total.U))
				continue
			}
			humming = append(humming, float64(r.Total.U))
			if math.Abs(float64(r.Total.Energy-10)) <= float64(r.Total.U) {
				within++
			}
		}
	}
	slices.Sort(bare)
	slices.Sort(humming)
	// The mean of 1 W over 100 ms scatters by 1 W / (√2·π·5.5) = 41 mW, 4 mJ, beside 0.2 mJ of white noise.
	t.Logf("%d of %d within U; U %.2g J, %.2g J under hum", within, runs, bare[runs/2], humming[runs/2])
	if within < 55 || humming[runs/2] > 0.012 {
		t.Errorf("%d of %d within U; U %.2g J, %.2g J under hum", within, runs, bare[runs/2], humming[runs/2])
	}
}

// TestLoneReadings: spikes are in the budget, steps of the load, sharp or within a scan, are not.
func TestLoneReadings(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func() []Count {
		x := make([]Count, 10000)
		for i := range x {
			x[i] = Count(10000 + math.Round(20*rng.NormFloat64()))
		}
		return x
	}
	steps := noise()
	for i := 4000; i < 5000; i++ {
		switch i % 40 {
		case 0:
			steps[i] += 700 // the load switches within this scan
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
			steps[i] += 2000
		}
	}
	if _, u := disturbed(t, steps, LoneReadings); u != 0 {
		t.Errorf("steps: lone readings of %v J", u)
	}
	spikes, sum := noise(), 0.0
	for i := 4050; i < 5000; i += 100 {
		spikes[i] += 1000
		sum += 1000 * 0.01 * 1e-4
	}
	r, u := disturbed(t, spikes, LoneReadings)
	if math.Abs(u-sum/math.Sqrt(3)) > 0.05*u {
		t.Errorf("spikes: %v J, want %v", u, sum/math.Sqrt(3))
	}
	if math.Abs(float64(r.Total.Energy-10)) > float64(r.Total.U) {
		t.Errorf("spikes: %v, want 10 J within U", r.Total)
	}
}
