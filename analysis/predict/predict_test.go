package predict

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

func near(t *testing.T, what string, got, want, rel float64) {
	t.Helper()
	if math.Abs(got-want) > rel*math.Abs(want) {
		t.Errorf("%s: got %.12g, want %.12g", what, got, want)
	}
}

// fig3 is the GPU of Fig. 3: vectorAdd with 1024 threads a block on the M2075, one
// flop a thread.
func fig3(t *testing.T) Round {
	t.Helper()
	r, err := RoundOf(14*1024, 3413, 153.65, 29.4, FigSMs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFig3(t *testing.T) {
	r := fig3(t)
	near(t, "T_r", float64(r.Time), 14336./3413, 1e-15)
	near(t, "E_r", float64(r.Energy), 153.65*14336/3413, 1e-15)
	near(t, "T_r as printed", float64(r.Time), 4.20041, 1e-6)
	near(t, "E_r as printed", float64(r.Energy), 645.393, 1e-6)
	for _, c := range []struct {
		blocks, rounds uint64
		t, e           float64
	}{{1, 1, 4.200410, 645.3930}, {14, 1, 4.200410, 645.3930}, {15, 2, 8.400820, 1290.786}, {140, 10, 42.004102, 6453.930}, {9765, 698, 2931.886, 450484.33}} {
		at, e := r.At(c.blocks, 0)
		near(t, "time", float64(at), c.t, 2e-7)
		near(t, "energy", float64(e), c.e, 2e-7)
		near(t, "time in closed form", float64(at), float64(c.rounds)*14336/3413, 1e-15)
		near(t, "energy in closed form", float64(e), 153.65*float64(c.rounds)*14336/3413, 1e-15)
	}
	_, idle := r.At(14, 10)
	near(t, "10 s idle", float64(idle-r.Energy), 294, 1e-12)
}

// Points that Eqs. 1 and 3 give must give their coefficients back, and the round
// of Fig. 3.
func TestFitFindsWhatMadeThePoints(t *testing.T) {
	const a, b, eb, idle = 14336. / 3413 / 14, 0.25, (153.65 - 29.4) * 14336. / 3413 / 14, 29.4
	var points []Point
	for _, n := range []uint64{140, 14, 28, 1400} {
		x := float64(n)
		points = append(points, Point{
			Blocks: n, Time: measure.Seconds(a*x + b), Energy: measure.Joule(eb*x + idle*(a*x+b)),
			UTime: 1e-3, UEnergy: measure.Joule(0.01 * x),
		})
	}
	for _, w := range []Weighting{Equal, Relative, Stated} {
		m, err := Fit(points, Options{Idle: idle, SMs: 14, Weights: w})
		if err != nil {
			t.Fatal(err)
		}
		p := m.Parameters()
		near(t, "a", float64(p.PerBlock), a, 1e-9)
		near(t, "b", float64(p.Start), b, 1e-6)
		near(t, "E_b", float64(p.Block), eb, 1e-9)
		if math.Abs(float64(p.Left)) > 1e-6 {
			t.Errorf("an intercept of %v J is left", float64(p.Left))
		}
		r, err := m.Round(Target{})
		if err != nil {
			t.Fatal(err)
		}
		near(t, "P_r", float64(r.Power), 153.65, 1e-9)
		near(t, "speed", r.Speed(1024), 3413, 1e-9)
		for _, n := range []uint64{15, 140, 9765} {
			q, err := m.At(n, Target{})
			if err != nil {
				t.Fatal(err)
			}
			wantT, wantE := fig3(t).At(n, 0)
			near(t, "time by rounds", float64(q.ByRounds.Time), float64(wantT), 1e-9)
			near(t, "energy by rounds", float64(q.ByRounds.Energy), float64(wantE), 1e-9)
			x := float64(n)
			near(t, "time by the line", float64(q.Linear.Time), a*x+b, 1e-9)
			near(t, "energy by the line", float64(q.Linear.Energy), eb*x+idle*(a*x+b), 1e-9)
		}
	}
}

func TestWhatIf(t *testing.T) {
	points := []Point{{Blocks: 14, Time: 1, Energy: 100}, {Blocks: 28, Time: 2, Energy: 200}, {Blocks: 140, Time: 10, Energy: 1000}}
	m, err := Fit(points, Options{Idle: 30, SMs: 14})
	if err != nil {
		t.Fatal(err)
	}
	// Twice the multiprocessors: half the rounds of the same time, the same dynamic
	// energy, half the energy at rest.
	q, err := m.At(140, Target{SMs: 28})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "time", float64(q.ByRounds.Time), 5, 1e-9)
	near(t, "energy", float64(q.ByRounds.Energy), 700+150, 1e-9)
	near(t, "time by the line", float64(q.Linear.Time), 5, 1e-9)
	near(t, "energy by the line", float64(q.Linear.Energy), 700+150, 1e-9)
	if q.Rounds != 5 || !strings.Contains(strings.Join(q.Warnings, ";"), "28 multiprocessors") {
		t.Errorf("got %+v", q)
	}
	// Two blocks a multiprocessor take a round of twice the blocks.
	q, err = m.At(15, Target{Resident: 2})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "time of 15 with two resident", float64(q.ByRounds.Time), 2, 1e-9)
	near(t, "energy of 15 with two resident", float64(q.ByRounds.Energy), 200, 1e-9)
	near(t, "mixed energy of 15 with two resident", float64(q.Mixed.Energy), 15*5+2*30, 1e-9)
	for _, c := range []struct {
		n  uint64
		to Target
	}{{0, Target{}}, {MostBlocks + 1, Target{}}, {1, Target{SMs: mostSMs + 1}}, {1, Target{Resident: mostResident + 1}}} {
		if _, err := m.At(c.n, c.to); !errors.Is(err, ErrInput) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if q, err = m.At(3000, Target{}); err != nil || len(q.Warnings) != 1 || !strings.Contains(q.Warnings[0], "ten times") {
		t.Errorf("got %v, %v", q.Warnings, err)
	}
}

func TestRounds(t *testing.T) {
	for _, c := range [][4]uint64{{1, 14, 1, 1}, {14, 14, 1, 1}, {15, 14, 1, 2}, {28, 14, 2, 1}, {29, 14, 2, 2}, {9765, 14, 1, 698}, {MostBlocks, 1, 1, MostBlocks}} {
		if got := Rounds(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("%v: got %d", c, got)
		}
	}
}

func TestBadPoints(t *testing.T) {
	good := func() []Point {
		return []Point{{Blocks: 1, Time: 1, Energy: 10}, {Blocks: 2, Time: 2, Energy: 20}, {Blocks: 3, Time: 3, Energy: 30}}
	}
	inf, nan := math.Inf(1), math.NaN()
	for name, c := range map[string]struct {
		spoil func(p []Point, o *Options) []Point
		want  string
		is    error
	}{
		"two points":       {func(p []Point, _ *Options) []Point { return p[:2] }, "three are needed", ErrPoints},
		"equal blocks":     {func(p []Point, _ *Options) []Point { p[0].Blocks, p[2].Blocks = 2, 2; return p }, "all have 2 blocks", ErrPoints},
		"zero blocks":      {func(p []Point, _ *Options) []Point { p[1].Blocks = 0; return p }, "one block at least", ErrPoints},
		"negative energy":  {func(p []Point, _ *Options) []Point { p[1].Energy = -1; return p }, "energy of -1 J", ErrPoints},
		"infinite energy":  {func(p []Point, _ *Options) []Point { p[1].Energy = measure.Joule(inf); return p }, "finite", ErrPoints},
		"no time":          {func(p []Point, _ *Options) []Point { p[1].Time = measure.Seconds(nan); return p }, "time of NaN", ErrPoints},
		"negative u":       {func(p []Point, _ *Options) []Point { p[1].UEnergy = -1; return p }, "uncertainty", ErrPoints},
		"unknown u":        {func(p []Point, o *Options) []Point { o.Weights = Stated; return p }, "not known", ErrPoints},
		"falling time":     {func(p []Point, _ *Options) []Point { p[0].Time, p[2].Time = 3, 1; return p }, "time falls", ErrPoints},
		"too much at rest": {func(p []Point, o *Options) []Point { o.Idle = 11; return p }, "above idle falls", ErrPoints},
		"negative idle":    {func(p []Point, o *Options) []Point { o.Idle = -1; return p }, "idle power", ErrInput},
		"no SMs":           {func(p []Point, o *Options) []Point { o.SMs = 0; return p }, "multiprocessors", ErrInput},
		"odd weights":      {func(p []Point, o *Options) []Point { o.Weights = "x"; return p }, "weights", ErrInput},
		"level":            {func(p []Point, o *Options) []Point { o.Level = 1; return p }, "level", ErrInput},
	} {
		o := Options{Idle: 1, SMs: 1}
		_, err := Fit(c.spoil(good(), &o), o)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := RoundOf(0, 1, 1, 1, 1); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
	if _, err := RoundOf(1, 1, measure.Watt(nan), 1, 1); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
	if _, err := RoundOf(1, 1, 1, 1, 0); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
}

func TestRelativeErrors(t *testing.T) {
	e, err := RelativeErrors([]measure.Joule{100, 100, 200}, []measure.Joule{110, 90, 202})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "WRE", e.Worst, 10, 1e-12)
	near(t, "BRE", e.Best, 1, 1e-12)
	near(t, "ARE", e.Average, 7, 1e-12)
	near(t, "with signs", e.Mean, 1./3, 1e-12)
	for _, c := range [][2][]measure.Joule{{{}, {}}, {{1}, {1, 2}}, {{0}, {1}}, {{1}, {measure.Joule(math.NaN())}}} {
		if _, err := RelativeErrors(c[0], c[1]); !errors.Is(err, ErrInput) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestEvaluate(t *testing.T) {
	points := []Point{{Blocks: 14, Time: 1, Energy: 100}, {Blocks: 28, Time: 2.01, Energy: 200}, {Blocks: 140, Time: 10, Energy: 1001}}
	m, err := Fit(points, Options{Idle: 30, SMs: 14})
	if err != nil {
		t.Fatal(err)
	}
	v, err := m.Evaluate([]Point{{Blocks: 70, Time: 5, Energy: 500}, {Blocks: 71, Time: 6, Energy: 600}})
	if err != nil {
		t.Fatal(err)
	}
	if v.ByRounds.Energy.Worst > 1 || v.Linear.Energy.Worst < 10 || v.Linear.EnergyHit != 1 || v.ByRounds.EnergyHit != 2 {
		t.Errorf("got %+v", v)
	}
	if _, err := m.Evaluate([]Point{{Blocks: 0, Time: 5, Energy: 500}}); !errors.Is(err, ErrPoints) {
		t.Error(err)
	}
}

// The steps of the times tell how many blocks a multiprocessor holds.
func TestStaircase(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, resident := range []uint64{1, 2, 8} {
		var points []Point
		for n := uint64(7); n <= 14*8*4; n += 9 {
			at := 0.1 + 2*float64(Rounds(n, 14, resident)) + 0.02*rng.NormFloat64()
			points = append(points, Point{Blocks: n, Time: measure.Seconds(at), Energy: 1})
		}
		s, err := FitStaircase(points, 14, 32)
		if err != nil || s[0].Resident != resident {
			t.Fatalf("%d resident: %+v, %v", resident, s, err)
		}
		near(t, "T_r", float64(s[0].Round), 2, 0.01)
	}
	var line, whole, one []Point
	for n := uint64(1); n < 100; n++ {
		line = append(line, Point{Blocks: n, Time: measure.Seconds(0.1 + 0.01*float64(n)), Energy: 1})
		whole = append(whole, Point{Blocks: 28 * n, Time: measure.Seconds(float64(n)), Energy: 1})
	}
	one = append(one, line[:14]...)
	for name, c := range map[string]struct {
		p    []Point
		want string
	}{"line": {line, "straight line"}, "whole rounds": {whole, "straight line"}, "one round": {one[:4], "within one round"}, "few": {one[:3], "four at least"}} {
		if s, err := FitStaircase(c.p, 14, 1); !errors.Is(err, ErrPoints) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if _, err := FitStaircase(line, 0, 1); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
	// 14 and 28 blocks a round differ at none of these.
	same := []Point{{Blocks: 28, Time: 1, Energy: 1}, {Blocks: 56, Time: 2.2, Energy: 1}, {Blocks: 84, Time: 3, Energy: 1}, {Blocks: 85, Time: 4, Energy: 1}, {Blocks: 112, Time: 4.1, Energy: 1}}
	if s, err := FitStaircase(same, 14, 2); err != nil || s[0].Resident != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAdvice(t *testing.T) {
	a, err := Advise(132, 2, 100_000)
	if err != nil || len(a.Blocks) != 4 || a.Blocks[0] != 264 || a.Blocks[3]%264 != 0 || len(a.Why) < 5 {
		t.Errorf("got %+v, %v", a, err)
	}
	if _, err := Advise(0, 1, 0); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
	points := []Point{{Blocks: 13, Time: 0.2, Energy: 1}, {Blocks: 14, Time: 1, Energy: 1}, {Blocks: 14, Time: 2, Energy: 3}}
	text := strings.Join(append(Review(points, Options{SMs: 14}), TooShort(points, SamplePeriod)...), "\n")
	for _, want := range []string{"no whole rounds", "wider span", "beyond one round", "one degree of freedom", "fewer than 20 readings"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not told:\n%s", want, text)
		}
	}
	good := []Point{{Blocks: 14, Time: 2, Energy: 1}, {Blocks: 28, Time: 3, Energy: 1}, {Blocks: 140, Time: 9, Energy: 1}, {Blocks: 280, Time: 20, Energy: 2}}
	if doubts := append(Review(good, Options{SMs: 14}), TooShort(good, SamplePeriod)...); len(doubts) > 0 {
		t.Errorf("doubts without reason: %q", doubts)
	}
}

// The tables as they were typed in, held against what the paper's text says.
func TestReferences(t *testing.T) {
	refs := References()
	if len(refs) != 18 {
		t.Fatalf("%d rows", len(refs))
	}
	most := map[string][2]float64{}
	var sum float64
	irregular := 0
	for _, r := range refs {
		m := most[r.Device]
		most[r.Device] = [2]float64{max(m[0], r.Time.Average), max(m[1], r.Energy.Average)}
		for _, p := range []Published{r.Time, r.Energy} {
			sum += p.Worst + p.Best + p.Average
			if !(0 < p.Best && p.Best <= p.Average && p.Average <= p.Worst && p.Worst < 25) {
				t.Errorf("%+v", r)
			}
		}
		if r.Irregular != "" {
			irregular++
		}
	}
	// Section VIII: the highest averages.
	if most[M2075] != [2]float64{6.69, 6.86} || most[K20Xm] != [2]float64{6.54, 8.33} {
		t.Errorf("got %v", most)
	}
	// Added up from the text of the paper itself.
	near(t, "sum of all cells", sum, 522.48433, 1e-9)
	if irregular != 2 {
		t.Errorf("%d irregular rows", irregular)
	}
}

// Points exactly on a line give no time that is known better than the step of a stored time.
func TestTimeOfAnExactLine(t *testing.T) {
	var points []Point
	for n := 10; n <= 60; n += 10 {
		points = append(points, Point{Blocks: uint64(n), Time: measure.Seconds(0.001 + 0.002*float64(n)), Energy: measure.Joule(10 * n)})
	}
	for _, w := range []Weighting{Equal, Relative} {
		m, err := Fit(points, Options{Idle: 30, SMs: 14, Weights: w})
		if err != nil {
			t.Fatal(err)
		}
		if u := m.Parameters().UStart; !(float64(u) >= 0.25e-9) || u > 100e-9 {
			t.Errorf("%v: the start is known to %v", w, u)
		}
	}
}
