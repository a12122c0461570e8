package measure

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
)

// responses are shapes of a step by its integral, from its begin on, of times in scans. An exponential's sudden part is
// that of a card whose power jumps and creeps.
var responses = map[string]func(t float64) float64{
	"sudden":      func(t float64) float64 { return max(t, 0) },
	"ramp":        func(t float64) float64 { return rampUntil(t, 0.7) },
	"long ramp":   func(t float64) float64 { return rampUntil(t, 2.3) },
	"exponential": func(t float64) float64 { return decayUntil(t, 0.3) },
	"creeping":    func(t float64) float64 { return 0.5*max(t, 0) + 0.5*decayUntil(t, 1.5) },
	"two steps":   func(t float64) float64 { return 0.5*max(t, 0) + 0.5*max(t-1.2, 0) },
}

func rampUntil(t, length float64) float64 {
	if t = max(t, 0); t < length {
		return t * t / 2 / length
	}
	return t - length/2
}

func decayUntil(t, tau float64) float64 { return max(t, 0) + tau*math.Expm1(-max(t, 0)/tau) }

// stepping is a trace of 40 W that steps by 300 W up and down, of readings at whole scans; energy is its integral from an
// instant to another, in W·scans.
type stepping struct {
	at    []float64
	until func(t float64) float64
}

func (s *stepping) energy(from, to float64) float64 {
	e, sign := 40*(to-from), 300.0
	for _, at := range s.at {
		e, sign = e+sign*(s.until(to-at)-s.until(from-at)), -sign
	}
	return e
}

func (s *stepping) counts(rng *rand.Rand, n int, sigma float64) []Count {
	const short = 1e-6
	out := make([]Count, n)
	for i := range out {
		p, sign := 40+sigma*rng.NormFloat64(), 300.0
		for _, at := range s.at {
			if t := float64(i) - at; t > 0 {
				p, sign = p+sign*(s.until(t)-s.until(t-short))/short, -sign
			}
		}
		out[i] = Count(math.Round(100 * p))
	}
	return out
}

// The budget's line agrees with the rule's error at steps of any shape, once a marker has shown the shape. Behind noise
// that hides it, steps count as sudden.
func TestSmoothness(t *testing.T) {
	coverage.Long(t)
	if testing.Short() {
		t.Skip("arithmetic of many draws")
	}
	const draws, chips, chip = 400, 40, 12.3
	for name, until := range responses {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 3))
			var squares, said, hidden, sudden float64
			for range draws {
				s := stepsBench()
				tick := s.Timebase.Seconds(s.Timebase.TicksPerScan)
				x, at := stepping{until: until}, 20+rng.Float64()
				var marks []Seconds
				for range chips {
					x.at, marks = append(x.at, at), append(marks, tick*Seconds(at+0.3))
					at += chip * float64(1+rng.IntN(2))
				}
				from := math.Floor(at)
				for range 20 {
					at += 10 + 5*rng.Float64()
					x.at = append(x.at, at)
				}
				to := math.Ceil(at) + 10
				result := func(sigma float64, marks []Seconds) Result {
					g, err := NewIntegrator(s, tick*Seconds(from), tick*Seconds(to))
					if err != nil {
						t.Fatal(err)
					}
					g.Steps(marks, tick*chip/3, tick*chip*0.9)
					if err := g.Add(&Block{Counts: [][]Count{x.counts(rng, int(to)+2, sigma)}}); err != nil {
						t.Fatal(err)
					}
					r, err := g.Result(Edges{})
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				r := result(0.5, marks)
				off := float64(r.Total.Energy)/float64(tick) - x.energy(from, to)
				u := lineIn(r, "sampling") / float64(tick)
				squares, said = squares+off*off/draws, said+u*u/draws
				u = lineIn(result(300, marks), "sampling")
				hidden += u / draws
				sudden += lineIn(result(300, nil), "sampling") / draws
			}
			ratio := math.Sqrt(squares / said)
			t.Logf("off by %.3g W·scans rms, %.2f of what is said", math.Sqrt(squares), ratio)
			if ratio < 0.8 || ratio > 1.3 {
				t.Errorf("off by %.2f of what is said", ratio)
			}
			if hidden < 0.9*sudden {
				t.Errorf("behind noise: %.3g J, want those of sudden steps, %.3g", hidden, sudden)
			}
		})
	}
}

// A window that begins with the work and ends with it is cut at the feet of two steps, both of which lack energy.
func TestWindowOfASmoothCard(t *testing.T) {
	const draws, chips, chip = 300, 40, 12.3
	for name, until := range responses {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 5))
			var squares, said float64
			for range draws {
				s := stepsBench()
				tick := s.Timebase.Seconds(s.Timebase.TicksPerScan)
				x, at := stepping{until: until}, 20+rng.Float64()
				var marks []Seconds
				for range chips {
					x.at, marks = append(x.at, at), append(marks, tick*Seconds(at))
					at += chip * float64(1+rng.IntN(2))
				}
				from := at + 20 + rng.Float64()
				to := from + 50 + rng.Float64()
				x.at = append(x.at, from, to)
				g, err := NewIntegrator(s, tick*Seconds(from), tick*Seconds(to))
				if err != nil {
					t.Fatal(err)
				}
				g.Steps(marks, tick*chip/3, tick*chip*0.9)
				if err := g.Add(&Block{Counts: [][]Count{x.counts(rng, int(to)+40, 0.5)}}); err != nil {
					t.Fatal(err)
				}
				r, err := g.Result(Edges{})
				if err != nil {
					t.Fatal(err)
				}
				off := float64(r.Total.Energy)/float64(tick) - x.energy(from, to)
				u := lineIn(r, "window sampling") / float64(tick)
				squares, said = squares+off*off/draws, said+u*u/draws
			}
			if ratio := math.Sqrt(squares / said); !(ratio > 0.75 && ratio < 1.2) {
				t.Errorf("errors are %.2f of the line", ratio)
			}
		})
	}
}

// Pulses that keep step with the scans, on cards whose steps are smooth: the line holds the error, and shrinks with it.
func TestAliasingOfSmoothSteps(t *testing.T) {
	const draws, chips, chip, pulses, length = 300, 40, 12.3, 20, 4.35
	for name, until := range responses {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(4, 3))
			s := stepsBench()
			tick := s.Timebase.Seconds(s.Timebase.TicksPerScan)
			// Of sudden pulses 4 or 5 readings are high, 0.65 and 0.35 of all.
			sudden := pulses * 300 * math.Sqrt(0.35*0.65)
			var squares, said float64
			for range draws {
				x, at := stepping{until: until}, 20+rng.Float64()
				var marks []Seconds
				for range chips {
					x.at, marks = append(x.at, at), append(marks, tick*Seconds(at+0.3))
					at += chip * float64(1+rng.IntN(2))
				}
				from := math.Floor(at)
				for at = from + 10 + rng.Float64(); len(x.at) < chips+2*pulses; at += 13 {
					x.at = append(x.at, at, at+length)
				}
				to := math.Ceil(at) + 10
				g, err := NewIntegrator(s, tick*Seconds(from), tick*Seconds(to))
				if err != nil {
					t.Fatal(err)
				}
				g.Steps(marks, tick*chip/3, tick*chip*0.9)
				if err := g.Add(&Block{Counts: [][]Count{x.counts(rng, int(to)+2, 0.5)}}); err != nil {
					t.Fatal(err)
				}
				r, err := g.Result(Edges{Aliasing: Joule(sudden) * Joule(tick)})
				if err != nil {
					t.Fatal(err)
				}
				off := float64(r.Total.Energy)/float64(tick) - x.energy(from, to)
				u := math.Hypot(lineIn(r, Aliasing), lineIn(r, "sampling")) / float64(tick)
				squares, said = squares+off*off/draws, said+u*u/draws
			}
			ratio := math.Sqrt(squares / said)
			t.Logf("off by %.3g W·scans rms, %.2f of what is said, %.2f of sudden steps", math.Sqrt(squares), ratio, math.Sqrt(squares)/sudden)
			if ratio < 0.5 || ratio > 1.1 {
				t.Errorf("off by %.2f of what is said", ratio)
			}
		})
	}
}

// Readings that stand alone count as the meter's where it makes them at rest, and else as pulses of the load: of any
// length below a scan where longer ones are as frequent, of none to speak of where they all are short.
func TestLonePulses(t *testing.T) {
	const n, tall, draws = 10000, 20000.0, 200
	for name, c := range map[string]struct {
		rest        bool    // of the meter, at rest too
		longest     float64 // of pulses, in scans
		least, most float64 // error over U's line
	}{
		"of the meter":         {rest: true, least: 0.7, most: 1.2},
		"short pulses":         {longest: 0.1, least: 0.7, most: 1.2},
		"pulses of any length": {longest: 5, least: 0.7, most: 1.2},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(8, 8))
			var squares, said float64
			for range draws {
				counts := make([]Count, n)
				for i := range counts {
					counts[i] = Count(10000 + math.Round(20*rng.NormFloat64()))
				}
				off := 0.0 // count·scans, in the window
				for at := 10.0; at < n-10; at += 10 + 40*rng.Float64() {
					if !c.rest && (at < 3600 || at > 5400) {
						continue
					}
					inside := at > 4000 && at < 4990
					if c.rest {
						sign := float64(1 - 2*rng.IntN(2))
						counts[int(at)] += Count(sign * tall)
						if inside {
							off += sign * tall
						}
						continue
					}
					end := at + c.longest*rng.Float64()
					for i := math.Ceil(at); i < end; i++ {
						counts[int(i)] += tall
						if inside {
							off += tall
						}
					}
					if inside {
						off -= tall * (end - at)
					}
				}
				r, u := disturbed(t, counts, "heavy tail")
				u = math.Hypot(u, lineIn(*r, "sampling")) / (0.01 * 1e-4) // what longer pulses show
				squares, said = squares+off*off/draws, said+u*u/draws
			}
			ratio := math.Sqrt(squares / said)
			t.Logf("off by %.2f of what is said", ratio)
			if ratio < c.least || ratio > c.most {
				t.Errorf("off by %.2f of what is said", ratio)
			}
		})
	}
}
