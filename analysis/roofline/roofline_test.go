package roofline

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

// card is a known device.
type card struct {
	flop, byte, constant float64
	peaks                Peaks
}

var known = card{6e-12, 90e-12, 60, Peaks{20e12, 1e12}}

// point runs one intensity for two seconds.
func (c card) point(intensity float64) Point {
	flops := math.Min(c.peaks.Flops, c.peaks.Bytes*intensity)
	w, q := 2*flops, 2*flops/intensity
	return Point{Name: fmt.Sprint(intensity), Flop: w, Bytes: q, Time: 2, Energy: measure.Joule(w*c.flop + q*c.byte + 2*c.constant)}
}

func (c card) sweep() (out []Point) {
	for _, i := range []float64{0.5, 1, 2, 4, 8, 16, 24, 32, 64, 128, 512} {
		out = append(out, c.point(i))
	}
	return out
}

func near(got, want, rel float64) bool { return math.Abs(got-want) <= rel*math.Abs(want) }

// Points without errors give the device back, and the balances as they follow by
// hand.
func TestFitFindsTheDevice(t *testing.T) {
	m, err := Fit(known.sweep(), Common{}, Peaks{})
	if err != nil {
		t.Fatal(err)
	}
	if !near(m.Flop.Value, 6e-12, 1e-9) || !near(m.Byte.Value, 90e-12, 1e-9) || !near(m.Constant.Value, 60, 1e-9) || m.Peaks != known.peaks {
		t.Errorf("got %+v", m)
	}
	// ε̂ = 6 pJ + 60 W / 20 Tflop/s = 9 pJ, η = 2/3, η B_ε = 10 < B_τ = 20:
	// I = (10 + 20/3)/(4/3) = 12.5.
	if m.TimeBalance != 20 || !near(m.Gap.Value, 15, 1e-9) || !near(m.BestFlop.Value, 9e-12, 1e-9) || !near(m.EnergyBalance.Value, 12.5, 1e-9) {
		t.Errorf("got %+v", m)
	}
	if m.DoF != 8 || m.Scatter > 1e-9 || len(m.Cautions) != 0 {
		t.Errorf("got %+v", m)
	}
	// At the energy balance half of the best flops a joule is reached.
	_, perJoule, _ := m.At(m.EnergyBalance.Value)
	if !near(perJoule, 0.5/9e-12, 1e-9) {
		t.Errorf("%v flop/J at the energy balance, want %v", perJoule, 0.5/9e-12)
	}
	// And the power is largest at the balance of time: 60 + 120 + 90 W.
	_, _, power := m.At(20)
	perSecond, _, _ := m.At(5)
	if !near(float64(power), 270, 1e-9) || !near(perSecond, 5e12, 1e-9) {
		t.Errorf("%v at 20 flop/byte, %v flop/s at 5", power, perSecond)
	}
	if r := m.Residual(known.point(3)); math.Abs(r) > 1e-9 {
		t.Errorf("residual %v", r)
	}
}

// A device whose bytes are dear: the energy balance lies above that of time.
func TestBalanceAbove(t *testing.T) {
	c := known
	c.byte, c.constant = 300e-12, 20
	m, err := Fit(c.sweep(), Common{}, Peaks{})
	if err != nil {
		t.Fatal(err)
	}
	eta := 6.0 / 7
	if !near(m.EnergyBalance.Value, eta*50, 1e-9) {
		t.Errorf("got %v, want %v", m.EnergyBalance.Value, eta*50)
	}
	if _, perJoule, _ := m.At(m.EnergyBalance.Value); !near(perJoule, 0.5/7e-12, 1e-9) {
		t.Errorf("%v flop/J", perJoule)
	}
}

// Intervals hold the truth in 95 of 100 sweeps: of few and many points, with a
// meter's gain and offset on all of them.
func TestIntervalsHoldTheDevice(t *testing.T) {
	t.Parallel()
	trials := coverage.Trials(600)
	for _, c := range []struct {
		name   string
		at     []float64
		common Common
		own    float64
	}{
		{"eleven points", []float64{0.5, 1, 2, 4, 8, 16, 24, 32, 64, 128, 512}, Common{}, 0.01},
		{"five points", []float64{0.5, 4, 20, 64, 512}, Common{}, 0.01},
		{"three points", []float64{1, 20, 256}, Common{}, 0.005},
		{"gain and offset", []float64{0.5, 1, 2, 4, 8, 16, 24, 32, 64, 128, 512}, Common{Gain: 0.03, Offset: 2}, 0.01},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			held := map[string]int{}
			for range trials {
				gain, offset := 1+c.common.Gain*rng.NormFloat64(), float64(c.common.Offset)*rng.NormFloat64()
				var points []Point
				for _, i := range c.at {
					p := known.point(i)
					p.Energy = measure.Joule(float64(p.Energy)*gain*(1+c.own*rng.NormFloat64()) + offset*float64(p.Time))
					p.U = c.own
					points = append(points, p)
				}
				m, err := Fit(points, c.common, Peaks{})
				if err != nil {
					t.Fatal(err)
				}
				for name, x := range map[string]struct {
					f     Figure
					truth float64
				}{
					"flop": {m.Flop, 6e-12}, "byte": {m.Byte, 90e-12}, "constant": {m.Constant, 60},
					"energy balance": {m.EnergyBalance, 12.5}, "best flop": {m.BestFlop, 9e-12}, "gap": {m.Gap, 15},
				} {
					if math.Abs(x.f.Value-x.truth) <= x.f.U {
						held[name]++
					}
				}
			}
			t.Logf("of %d intervals hold the truth: %v", trials, held)
			for name, n := range held {
				if share := float64(n) / float64(trials); !coverage.Within(share, 0.93, 0.975, trials) {
					t.Errorf("%s: %.1f %% of the intervals hold the truth", name, 100*share)
				}
			}
		})
	}
}

// Kernels that reach no roof do not bend the energies: the times are as measured.
func TestSlowKernels(t *testing.T) {
	points := known.sweep()
	for i := range points {
		p := &points[i]
		p.Energy += measure.Joule(known.constant * float64(p.Time) * 0.3)
		p.Time *= 1.3
	}
	m, err := Fit(points, Common{}, Peaks{})
	if err != nil {
		t.Fatal(err)
	}
	if !near(m.Flop.Value, 6e-12, 1e-9) || !near(m.Byte.Value, 90e-12, 1e-9) || !near(m.Constant.Value, 60, 1e-9) || !near(m.Peaks.Flops, 20e12/1.3, 1e-9) {
		t.Errorf("got %+v", m)
	}
}

// A card at rest is a point too, and tells the constant power.
func TestAtRest(t *testing.T) {
	points := []Point{known.point(0.5), known.point(512), {Name: "rest", Time: 2, Energy: 120}}
	m, err := Fit(points, Common{}, Peaks{})
	if err != nil {
		t.Fatal(err)
	}
	if !near(m.Constant.Value, 60, 1e-9) || !near(m.Flop.Value, 6e-12, 1e-9) || !strings.Contains(strings.Join(m.Cautions, " "), "three points for three unknowns") {
		t.Errorf("got %+v", m)
	}
	given, err := Fit(points, Common{}, Peaks{Flops: 60e12, Bytes: 4e12})
	if err != nil || given.TimeBalance != 15 || given.Flop.Value != m.Flop.Value {
		t.Errorf("got %+v, %v", given, err)
	}
}

func TestRefusals(t *testing.T) {
	good := known.point(1)
	change := func(f func(*Point)) []Point {
		p := known.sweep()
		f(&p[0])
		return p
	}
	for name, points := range map[string][]Point{
		"two points":       {good, known.point(64)},
		"one intensity":    {good, good, good, good},
		"bound by memory":  {known.point(1), known.point(2), known.point(4), known.point(8)},
		"no arithmetic":    {{Bytes: 1, Energy: 1, Time: 1}, {Bytes: 2, Energy: 2, Time: 1}, {Energy: 1, Time: 2}},
		"no energy":        change(func(p *Point) { p.Energy = 0 }),
		"no time":          change(func(p *Point) { p.Time = 0 }),
		"negative flop":    change(func(p *Point) { p.Flop = -1 }),
		"not a number":     change(func(p *Point) { p.Bytes = math.NaN() }),
		"infinite":         change(func(p *Point) { p.Flop = math.Inf(1) }),
		"an error below 0": change(func(p *Point) { p.U = -1 }),
	} {
		if _, err := Fit(points, Common{}, Peaks{}); !errors.Is(err, ErrFit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Fit(known.sweep(), Common{}, Peaks{Flops: -1}); !errors.Is(err, ErrFit) {
		t.Error("negative peaks were taken")
	}
}

// Points of a device at its power limit do not bend the figures of the others, where
// there are others.
func TestThrottledPoints(t *testing.T) {
	points := known.sweep()
	throttled := 0
	for i := range points {
		if x := points[i].Intensity(); x > 2 && x < 40 {
			points[i].Throttled, throttled = true, throttled+1
			points[i].Energy *= 0.85
		}
	}
	m, err := Fit(points, Common{}, Peaks{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Throttled || throttled == 0 || m.DoF != len(points)-throttled-3 || m.Scatter > 1e-9 || !near(m.Constant.Value, 60, 1e-6) {
		t.Errorf("%d throttled: %+v", throttled, m)
	}
	if m.Fitted(Point{Throttled: true}) || !strings.Contains(strings.Join(m.Cautions, ""), "not fitted") {
		t.Errorf("%q", m.Cautions)
	}
	for i := range points {
		points[i].Throttled = i > 2
	}
	if m, err = Fit(points, Common{}, Peaks{}); err != nil || !m.Throttled || m.DoF != len(points)-3 || !strings.Contains(strings.Join(m.Cautions, ""), "too few others") {
		t.Errorf("%v, %+v", err, m)
	}
}

// A sweep of an H200, five of whose twelve tasks ran into its power cap: without them the
// others scatter by 0.8 % (docs/models.md), with them by 4 %.
func TestSweepOfAnH200(t *testing.T) {
	var sweep struct {
		Points []struct {
			Flop, Byte float64
			EnergyJ    float64 `json:"energy_j"`
			TimeS      float64 `json:"time_s"`
			Throttled  bool
		}
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "h200", "roofline", "sweep.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &sweep); err != nil {
		t.Fatal(err)
	}
	var points []Point
	for _, p := range sweep.Points {
		points = append(points, Point{Flop: p.Flop, Bytes: p.Byte, Energy: measure.Joule(p.EnergyJ), Time: measure.Seconds(p.TimeS), Throttled: p.Throttled})
	}
	m, err := Fit(points, Common{}, Peaks{})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%.2f pJ, %.1f pJ, %.0f W, %.2f and %.1f flop/byte, %.2f %%, %d", 1e12*m.Flop.Value, 1e12*m.Byte.Value, m.Constant.Value, m.TimeBalance, m.EnergyBalance.Value, 100*float64(m.Scatter), m.DoF)
	if want := "7.67 pJ, 118.8 pJ, 51 W, 12.82 and 14.0 flop/byte, 0.76 %, 4"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i := range points {
		points[i].Throttled = false
	}
	if m, err = Fit(points, Common{}, Peaks{}); err != nil || math.Abs(float64(m.Scatter)-0.04) > 0.001 {
		t.Errorf("all as one: %v, scatter %v", err, m.Scatter)
	}
}

func TestCautions(t *testing.T) {
	narrow := []Point{known.point(14), known.point(16), known.point(18), known.point(21), known.point(23)}
	m, err := Fit(narrow, Common{}, Peaks{})
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(m.Cautions, "\n")
	for _, want := range []string{"nearly in a plane", "bound by arithmetic", "bound by memory"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %q", want, said)
		}
	}
}

func TestParseTaskWork(t *testing.T) {
	for s, want := range map[string]Work{
		"3:flop=4e12,byte=1e11":       {4e12, 1e11},
		" 3 : byte = 1 , flop = 0.5 ": {0.5, 1},
		"3:flop=1":                    {1, 0},
	} {
		if id, w, err := ParseTaskWork(s); id != 3 || w != want || err != nil {
			t.Errorf("%q: task %d, %+v, %v", s, id, w, err)
		}
	}
	for _, s := range []string{"", "3", "3:", "x:flop=1", "0:flop=1", "-1:flop=1", "1:flop=1,flop=2", "1:flop=-1", "1:byte=NaN", "1:byte=Inf", "1:joule=1"} {
		if id, w, err := ParseTaskWork(s); err == nil {
			t.Errorf("%q: task %d, %+v", s, id, w)
		}
	}
}

func FuzzParseTaskWork(f *testing.F) {
	for _, s := range []string{"3:flop=4e12,byte=1e11", "3:flop=1", "x", "1:flop=1,flop=2", "0:flop=1", "3:byte=NaN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, w, err := ParseTaskWork(s)
		if err == nil && (id < 1 || !(w.Flop >= 0) || !(w.Bytes >= 0) || math.IsInf(w.Flop, 0) || math.IsInf(w.Bytes, 0)) {
			t.Errorf("%q gives task %d with %+v", s, id, w)
		}
	})
}
