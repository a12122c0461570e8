package correct

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

// covered counts how often a simulated truth lies within ± U, and fails outside of 93
// to 97 %.
func covered(t *testing.T, trials int, once func(r *rand.Rand) (truth float64, e Energy)) {
	t.Helper()
	in, trials := counted(t, trials, once)
	if share := float64(in) / float64(trials); !coverage.Within(share, 0.93, 0.97, trials) {
		t.Errorf("%.2f %% of the truths lie within ± U, want 93 to 97", 100*share)
	}
}

func counted(t *testing.T, most int, once func(r *rand.Rand) (truth float64, e Energy)) (in, trials int) {
	t.Helper()
	trials = coverage.Trials(most)
	r, sum := rand.New(rand.NewPCG(1, 2)), 0.0
	for range trials {
		truth, e := once(r)
		if math.Abs(float64(e.Energy)-truth) <= float64(e.U) {
			in++
		}
		sum += (float64(e.Energy) - truth) / truth
	}
	n := float64(trials)
	t.Logf("%.2f %% of %d within ± U; mean error %.3f %%", 100*float64(in)/n, trials, 100*sum/n)
	return in, trials
}

// A lag whose constant, gain and offset are known to some uncertainty, and whose
// readings are noisy.
func TestCoverageOfALag(t *testing.T) {
	for _, c := range []struct {
		name  string
		lag   Lag // U, UGain and UOffset are k = 2
		slope Slope
	}{
		{"noise", Lag{C: 0.3, Noise: 2}, Symmetric},
		{"noise, five-point", Lag{C: 0.3, Noise: 2}, Parabola(2)},
		{"constant", Lag{C: 0.3, U: 0.03, Noise: 0.2}, Symmetric},
		{"static line", Lag{C: 0.3, Noise: 0.2, Gain: 0.95, UGain: 0.02, Offset: 3, UOffset: 2}, Symmetric},
		{"all", Lag{C: 0.3, U: 0.02, Noise: 1.5, Gain: 1.03, UGain: 0.01, Offset: -2, UOffset: 1}, Parabola(3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			covered(t, 4000, func(r *rand.Rand) (float64, Energy) {
				l := c.lag
				l.Slope = c.slope
				tau := float64(l.C) + r.NormFloat64()*float64(l.U)/2
				gain := l.gain() * (1 + r.NormFloat64()*l.UGain/2)
				offset := float64(l.Offset) + r.NormFloat64()*float64(l.UOffset)/2
				var rs []Reading
				for i := range 161 { // 100 W until 0, 300 W from then on
					at := -0.4 + float64(i)*0.015
					y := 100.0
					if at > 0 {
						y = 300 - 200*math.Exp(-at/tau)
					}
					rs = append(rs, Reading{At: measure.Seconds(at), Power: measure.Watt(gain*y + offset + r.NormFloat64()*float64(l.Noise))})
				}
				s := Span{From: rs[40].At, To: rs[130].At}
				e, err := l.Energy(rs, s)
				if err != nil {
					t.Fatal(err)
				}
				return 300 * float64(s.Length()), e
			})
		})
	}
}

// A window of ten periods over a power that wanders, as the model of a smooth power has it.
func TestCoverageOfADeconvolution(t *testing.T) {
	p := &sensor.Profile{Model: sensor.Boxcar, Period: 0.1, Window: 0.4, Gain: 1}
	covered(t, 1000, func(r *rand.Rand) (float64, Energy) {
		const cell, n = 0.05, 120
		at := []measure.Seconds{0}
		watts := make([]measure.Watt, n)
		for i := range watts {
			w := 300.0
			if i > 0 {
				w = float64(watts[i-1]) + 15*r.NormFloat64()
			}
			watts[i] = measure.Watt(w)
			at = append(at, measure.Seconds(float64(i+1)*cell))
		}
		load, err := sensor.NewLoad(at, watts)
		if err != nil {
			t.Fatal(err)
		}
		var rs []Reading
		for i := 8; i <= n; i += 2 {
			when := measure.Seconds(float64(i) * cell)
			rs = append(rs, Reading{At: when, Power: p.PredictAt(load, []measure.Seconds{when})[0] + measure.Watt(2*r.NormFloat64())})
		}
		s, err := Deconvolve(rs, p, cell, -1e9)
		if err != nil {
			t.Fatal(err)
		}
		span := Span{From: 2, To: 2 + measure.Seconds(0.3+r.Float64())}
		e, err := s.Energy(span)
		if err != nil {
			t.Fatal(err)
		}
		return float64(load.Energy(span.From, span.To)), e
	})
}

// Kernels known: alternating faster than the window, with noise on the renewals.
func TestCoverageByKernels(t *testing.T) {
	for name, p := range map[string]*sensor.Profile{
		"window of ten periods":      {Model: sensor.Boxcar, Period: 0.1, Window: 1, Gain: 1},
		"window of a quarter period": {Model: sensor.Boxcar, Period: 0.1, Window: 0.025, Gain: 1},
		"lag":                        {Model: sensor.FirstOrder, Period: 0.02, Tau: 0.3, Gain: 1},
	} {
		t.Run(name, func(t *testing.T) {
			covered(t, 1000, func(r *rand.Rand) (float64, Energy) {
				var acts []Activity
				at := []measure.Seconds{0}
				var watts []measure.Watt
				for i := 0; at[len(at)-1] < 8; i++ {
					d := measure.Seconds(0.02 + 0.2*r.Float64())
					from := at[len(at)-1]
					at = append(at, from+d)
					watts = append(watts, []measure.Watt{450, 136}[i%2])
					acts = append(acts, Activity{Name: []string{"mem", "idle"}[i%2], Span: Span{From: from, To: from + d}})
				}
				load, err := sensor.NewLoad(at, watts)
				if err != nil {
					t.Fatal(err)
				}
				rs := predict(p, load, p.Window+2*p.Tau)
				var noisy []Reading
				for _, x := range rs {
					noisy = append(noisy, Reading{At: x.At, Power: x.Power + measure.Watt(5*r.NormFloat64())})
				}
				l, err := FindLevels(noisy, p, acts)
				if err != nil {
					t.Fatal(err)
				}
				span := Span{From: 3, To: 4.5}
				e, err := l.Energy(span)
				if err != nil {
					t.Fatal(err)
				}
				return float64(load.Energy(span.From, span.To)), e
			})
		})
	}
}
