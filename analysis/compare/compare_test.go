package compare

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

// bench makes runs of a known truth: relative standard deviations of a gain that
// all runs of a meter share, of an offset that does not depend on the power, of
// the meter's noise and of the work itself, all alike in energy; and the time's.
type bench struct {
	gain, offset, noise, work, clock float64
	sameMeter, budgets               bool
}

func (c bench) trial(rng *rand.Rand, energy [2]float64, n [2]int) (a, b []Run) {
	gains, offsets := [2]float64{}, [2]float64{}
	for i := range gains {
		gains[i], offsets[i] = c.gain*rng.NormFloat64(), c.offset*rng.NormFloat64()
	}
	if c.sameMeter {
		gains[1], offsets[1] = gains[0], offsets[0]
	}
	var out [2][]Run
	for i := range out {
		meter := "meter"
		if !c.sameMeter {
			meter = fmt.Sprint("meter ", i)
		}
		for r := range n[i] {
			// The offset is in joules of the first version, whatever the energy.
			own := math.Hypot(c.noise, c.work) * rng.NormFloat64()
			e := energy[i]*(1+gains[i])*math.Exp(own) + offsets[i]*energy[0]
			x := Run{Name: fmt.Sprint(r), Energy: measure.Joule(e), Time: measure.Seconds(2 * math.Exp(c.clock*rng.NormFloat64()))}
			x.Errors = []Error{{Behind: meter + " gain", Energy: c.gain}, {Behind: meter + " offset", Energy: c.offset * energy[0] / e}}
			if c.budgets {
				x.Errors = append(x.Errors, Error{Energy: c.noise}, Error{Time: c.clock})
			}
			out[i] = append(out[i], x)
		}
	}
	return out[0], out[1]
}

// Intervals hold the truth in 95 of 100 trials, whatever the errors are made of.
func TestIntervalsHoldTheTruth(t *testing.T) {
	t.Parallel()
	trials := coverage.Trials(4000)
	for _, c := range []struct {
		name string
		bench
		n      [2]int
		energy [2]float64
	}{
		{"one of each, one meter", bench{0.02, 0.001, 0.003, 0, 0.001, true, true}, [2]int{1, 1}, [2]float64{100, 80}},
		{"one of each, two meters", bench{0.02, 0.005, 0.003, 0, 0.001, false, true}, [2]int{1, 1}, [2]float64{100, 80}},
		{"five of each, one meter", bench{0.03, 0, 0.002, 0.01, 0.001, true, true}, [2]int{5, 5}, [2]float64{100, 97}},
		{"three and eight, two meters", bench{0.01, 0, 0.002, 0.01, 0.001, false, false}, [2]int{3, 8}, [2]float64{100, 110}},
		{"one and six", bench{0.02, 0, 0.001, 0.008, 0.001, true, true}, [2]int{1, 6}, [2]float64{100, 90}},
		{"an offset that matters", bench{0, 0.01, 0.002, 0, 0, true, true}, [2]int{1, 1}, [2]float64{100, 50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			ratio, mean, product := 0, 0, 0
			for range trials {
				a, b := c.trial(rng, c.energy, c.n)
				e, err := Between(a, b, Energy)
				if err != nil {
					t.Fatal(err)
				}
				truth := c.energy[1] / c.energy[0]
				if e.Low <= truth && truth <= e.High {
					ratio++
				}
				if e.A.Low <= c.energy[0] && c.energy[0] <= e.A.High {
					mean++
				}
				p, err := Between(a, b, ED2P)
				if err != nil {
					t.Fatal(err)
				}
				if p.Low <= truth && truth <= p.High {
					product++
				}
			}
			t.Logf("of 100 intervals hold the truth: ratio %.1f, ED²P %.1f", 100*float64(ratio)/float64(trials), 100*float64(product)/float64(trials))
			for what, n := range map[string]int{"ratio": ratio, "ED²P": product} {
				if share := float64(n) / float64(trials); !coverage.Within(share, 0.93, 0.97, trials) {
					t.Errorf("%s: %.1f %% of the intervals hold the truth", what, 100*share)
				}
			}
			// A lone run's own interval holds the meter, not the work.
			if share := float64(mean) / float64(trials); (c.n[0] > 1 || c.work == 0) && !coverage.Within(share, 0.93, 0.97, trials) {
				t.Errorf("mean of A: %.1f %% of the intervals hold the truth", 100*share)
			}
		})
	}
}

// Against values that R's t.test gives for these logarithms: worked by hand from
// the definitions of Welch.
func TestWelchByHand(t *testing.T) {
	runs := func(e ...float64) (out []Run) {
		for _, v := range e {
			out = append(out, Run{Energy: measure.Joule(math.Exp(v)), Time: 1})
		}
		return out
	}
	e, err := Between(runs(1, 2, 3), runs(3, 4, 5, 8), Energy)
	if err != nil {
		t.Fatal(err)
	}
	// Means 2 and 5, variances 1 and 14/3: u² = 1/3 + 14/12.
	u2 := 1.0/3 + 14.0/12
	dof := u2 * u2 / (1.0/9/2 + math.Pow(14.0/12, 2)/3)
	if math.Abs(math.Log(e.Ratio)-3) > 1e-12 || math.Abs(e.U*e.U-u2) > 1e-12 || math.Abs(float64(e.DoF)-dof) > 1e-9 {
		t.Errorf("got ratio %v, u² %v, dof %v; want e³, %v, %v", e.Ratio, e.U*e.U, e.DoF, u2, dof)
	}
}

// The exact test against signs counted by hand: of 16 ways to sign 1, 2, 3 and −1, a sum of
// 5 or more in absolute value have those of ±7, ±5 (twice each: the two ones).
func TestRandomiseByHand(t *testing.T) {
	t.Parallel()
	of := func(differences ...float64) *Randomisation {
		var a, b []Run
		for i, d := range differences {
			turn := Turn{Series: "s", Number: i + 1, Planned: len(differences)}
			a = append(a, Run{Energy: 1, Time: 1, Turn: turn})
			b = append(b, Run{Energy: measure.Joule(math.Exp(d)), Time: 1, Turn: turn})
		}
		e, err := Between(a, b, Energy)
		if err != nil {
			t.Fatal(err)
		}
		return e.Randomise()
	}
	if r := of(1, 2, 3, -1); *r != (Randomisation{6.0 / 16, 16, true}) {
		t.Errorf("got %+v", r)
	}
	// Where there are too many ways a random choice of them stands for all.
	rng := rand.New(rand.NewPCG(5, 6))
	d := make([]float64, 18)
	for i := range d {
		d[i] = 0.5 + rng.NormFloat64()
	}
	extreme := 0
	for way := range 1 << len(d) {
		sum, seen := 0.0, 0.0
		for i, v := range d {
			sum, seen = sum+v*float64(1-2*(way>>i&1)), seen+v
		}
		if math.Abs(sum) >= math.Abs(seen)-1e-12 {
			extreme++
		}
	}
	want := float64(extreme) / float64(int(1)<<len(d))
	if r := of(d...); r.Exact || r.Ways != mostWays || math.Abs(r.P-want) > 5*math.Sqrt(want*(1-want)/mostWays) {
		t.Errorf("p %+v by choice, %v by counting", r, want)
	}
}

// The test of pairs is Student's of their differences: by hand for 1, 2, 3 and −1, whose mean
// is 1.25 and whose variance 35/12. The first pairs alone have the scatter where it set
// the number of all.
func TestPairsByHand(t *testing.T) {
	t.Parallel()
	var a, b []Run
	for i, d := range []float64{1, 2, 3, -1} {
		turn := Turn{Series: "s", Number: i + 1, Planned: 4}
		a = append([]Run{{Energy: 1, Time: 1, Turn: turn}}, a...) // in whichever order
		b = append(b, Run{Energy: measure.Joule(math.Exp(d)), Time: 1, Turn: turn})
	}
	between := func() Effect {
		e, err := Between(a, b, Energy)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := between()
	if e.Design != RandomPairs || math.Abs(math.Log(e.Ratio)-1.25) > 1e-12 ||
		math.Abs(e.U*e.U-35.0/48) > 1e-12 || e.DoF != 3 {
		t.Errorf("got %+v", e)
	}
	// t = 1.25/0.8539 = 1.4639 with 3 degrees of freedom.
	if math.Abs(float64(e.P)-0.2394) > 2e-4 {
		t.Errorf("p %v", e.P)
	}
	b[2].Turn.Second, b[3].Turn.Second = true, true
	a[1].Turn.Second, a[0].Turn.Second = true, true
	if e = between(); math.Abs(e.U*e.U-0.5/4) > 1e-12 || e.DoF != 1 || e.Randomise() != nil {
		t.Errorf("with a second part %+v", e)
	}
	// Without the last planned pair the interval stays, and there is no p.
	for i := range a {
		a[i].Turn.Planned, b[i].Turn.Planned = 5, 5
	}
	if e = between(); e.Design != EndedEarly || measure.Known(e.P) || !(e.High > e.Low) || e.Holds != BothSides {
		t.Errorf("ended early: %+v", e)
	}
	b[0].Turn.Series = "another" // no partner
	if e = between(); e.Design.inPairs() {
		t.Errorf("without a partner: %+v", e)
	}
}

// A gain of one meter cancels; of two it does not, and an offset does in part.
func TestWhatCancels(t *testing.T) {
	run := func(meter string, joules, offset float64) []Run {
		return []Run{{Energy: measure.Joule(joules), Time: 1, Errors: []Error{{Behind: meter + " gain", Energy: 0.03}, {Behind: meter + " offset", Energy: offset / joules}, {Energy: 0.001}}}}
	}
	same, err := Between(run("m", 100, 1), run("m", 80, 1), Energy)
	if err != nil {
		t.Fatal(err)
	}
	if want := math.Sqrt(2*1e-6 + math.Pow(1.0/80-1.0/100, 2)); math.Abs(same.U-want) > 1e-12 {
		t.Errorf("one meter: u %v, want %v", same.U, want)
	}
	if c := same.Cancelled; len(c) != 2 || c[0].Behind != "m gain" || c[0].Left > 1e-15 || math.Abs(float64(c[1].Left)-0.0025) > 1e-12 {
		t.Errorf("got %+v", same.Cancelled)
	}
	two, err := Between(run("m", 100, 1), run("n", 80, 1), Energy)
	if err != nil {
		t.Fatal(err)
	}
	if want := math.Sqrt(2*1e-6 + 2*9e-4 + 1.0/6400 + 1e-4); math.Abs(two.U-want) > 1e-12 || len(two.Cancelled) != 0 {
		t.Errorf("two meters: u %v, want %v; cancelled %+v", two.U, want, two.Cancelled)
	}
}

// A window's end moves energy and time together: in the mean power it cancels.
func TestEnergyAndTimeTogether(t *testing.T) {
	r := []Run{{Energy: 100, Time: 2, Errors: []Error{{Energy: 0.01, Time: 0.01}}}}
	for q, want := range map[Quantity]float64{Energy: 0.01, Time: 0.01, Power: 0, EDP: 0.02, ED2P: 0.03} {
		e, err := Between(r, r, q)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(e.U-want*math.Sqrt2) > 1e-12 || e.Ratio != 1 {
			t.Errorf("%s: u %v, want %v", q.Name, e.U, want*math.Sqrt2)
		}
		if !math.IsNaN(float64(e.P)) {
			t.Errorf("%s: p %v of one run", q.Name, e.P)
		}
	}
}

func TestHolm(t *testing.T) {
	t.Parallel()
	f := make([]Effect, 5)
	for i, p := range []float64{0.01, 0.04, 0.03, 0.005, math.NaN()} {
		f[i].P = measure.Number(p)
		f[i].correct(f[i].P)
	}
	Holm(f)
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		if math.Abs(float64(f[i].Corrected)-want) > 1e-12 {
			t.Errorf("%d: %v, want %v", i, f[i].Corrected, want)
		}
	}
	// Of twelve kernels without a difference, one is shown in one of twenty families.
	rng := rand.New(rand.NewPCG(7, 8))
	c := bench{gain: 0.03, work: 0.01, sameMeter: true}
	trials := coverage.Trials(1500)
	wrong, plain := 0, 0
	for range trials {
		family := make([]Effect, 12)
		for i := range family {
			a, b := c.trial(rng, [2]float64{10, 10}, [2]int{4, 4})
			inOrder("ABABABAB", a, b)
			var err error
			if family[i], err = Between(a, b, Energy); err != nil {
				t.Fatal(err)
			}
		}
		Holm(family)
		anyShown, anyPlain := false, false
		for i := range family {
			anyShown, anyPlain = anyShown || family[i].Shown, anyPlain || family[i].P < 0.05
		}
		if anyShown {
			wrong++
		}
		if anyPlain {
			plain++
		}
	}
	t.Logf("families with a difference shown by chance: %.1f %% after Holm, %.1f %% without", 100*float64(wrong)/float64(trials), 100*float64(plain)/float64(trials))
	if share := float64(wrong) / float64(trials); !coverage.Within(share, 0.02, 0.065, trials) {
		t.Errorf("%.1f %% of families show a difference", 100*share)
	}
	if share := float64(plain) / float64(trials); !coverage.Within(share, 0.3, 1, trials) {
		t.Errorf("without the correction %.1f %%: the trial tests nothing", 100*share)
	}
}

// A difference that Visible names is shown in four of five trials.
func TestVisible(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	c := bench{gain: 0.03, work: 0.02, clock: 0.02, sameMeter: true}
	for _, n := range []int{4, 5, 8, 10, 20} {
		pilot, _ := c.trial(rng, [2]float64{100, 100}, [2]int{2, 2})
		e, err := Between(pilot, pilot, Energy)
		if err != nil {
			t.Fatal(err)
		}
		change := e.Visible(n, n, c.work)
		trials := coverage.Trials(2500)
		shown := 0
		for range trials {
			a, b := c.trial(rng, [2]float64{100, 100 * (1 + change)}, [2]int{n, n})
			for i := range n {
				a[i].Turn = Turn{Series: "s", Number: i + 1, Planned: n}
				b[i].Turn = a[i].Turn
			}
			effects, err := All(a, b)
			if err != nil {
				t.Fatal(err)
			}
			if effects[0].Shown {
				shown++
			}
		}
		share := float64(shown) / float64(trials)
		t.Logf("%d pairs: %.2f %% shown in %.1f %% of trials", n, 100*change, 100*share)
		if !coverage.Within(share, 0.72, 0.85, trials) {
			t.Errorf("%d pairs: %.2f %% was shown in %.1f %% of trials", n, 100*change, 100*share)
		}
	}
}

func TestPerWork(t *testing.T) {
	a := []Run{{Energy: 100, Time: 2, Errors: []Error{{Energy: 0.01}}}}
	b := []Run{{Energy: 150, Time: 4, Errors: []Error{{Energy: 0.01}}}}
	effects, err := All(a, b)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Per(&effects[0], &effects[1], Work{"token", 512, 1024})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(p.A.Value-100.0/512) > 1e-12 || math.Abs(p.B.Value-150.0/1024) > 1e-12 || math.Abs(float64(p.Relative)+0.25) > 1e-12 || p.RateB != 256 || measure.Known(p.P) {
		t.Errorf("got %+v", p)
	}
	if u := p.A.U() / p.A.Value; math.Abs(u-0.0196) > 1e-4 {
		t.Errorf("U %v of the energy by work, want 1.96 %%", u)
	}
	a, b = slices.Repeat(a, 3), append(slices.Repeat(b, 2), Run{Energy: 151, Time: 4})
	inOrder("ABABAB", a, b)
	if effects, err = All(a, b); err != nil {
		t.Fatal(err)
	}
	if p, err = Per(&effects[0], &effects[1], Work{"token", 512, 1024}); err != nil || !(p.P < 1e-2) || p.Corrected != p.P {
		t.Errorf("repeats: %+v, %v", p, err)
	}
	for _, w := range []Work{{"flop", 0, 1}, {"", 1, 1}, {"flop", math.Inf(1), 1}, {"flop", 1, math.NaN()}} {
		if _, err := Per(&effects[0], &effects[1], w); !errors.Is(err, ErrRuns) {
			t.Errorf("%v: %v", w, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	side := func(n int, e, spread float64) (out []Run) {
		rng := rand.New(rand.NewPCG(uint64(n), 11))
		for range n {
			out = append(out, Run{Energy: measure.Joule(e * (1 + spread*rng.NormFloat64())), Time: measure.Seconds(e / 50 * (1 + spread*rng.NormFloat64())), Errors: []Error{{Energy: 0.002, Time: 0.001}}})
		}
		return out
	}
	apart := func(energies ...measure.Joule) (out []Run) {
		for _, e := range energies {
			out = append(out, Run{Energy: e, Time: 1, Errors: []Error{{Energy: 0.002, Time: 0.001}}})
		}
		return out
	}
	for _, c := range []struct {
		a, b []Run
		want []string
	}{
		{side(5, 100, 0.005), side(6, 88, 0.005), []string{"B uses 1", "% less energy (p <", "it takes"}},
		{side(5, 100, 0.02), side(5, 100.1, 0.02), []string{"No difference in energy could be shown (B uses", "with 5 more repeats of each one would see"}},
		{side(1, 100, 0), side(1, 100.1, 0), []string{"which is an assumption", "in pairs of random order"}},
		{[]Run{{Energy: 1, Time: 1}}, []Run{{Energy: 2, Time: 1}}, []string{"energy 2, time 1 (nothing is known of the meters' uncertainty)"}},
		{side(4, 100, 0), side(4, 100.1, 0), []string{"Nothing is known", "equal to the last digit"}},
		{side(1, 100, 0), []Run{{Energy: 30, Time: 1}, {Energy: 300, Time: 1}}, []string{"energy 0.949 to a factor above 1000, time 0.5"}},
		{apart(1, 30, 400, 3), apart(20, 2, 5, 90), []string{"No difference in energy could be shown (B uses", "(to a factor"}},
		{side(2, 100, 0.01), side(2, 100.1, 0.01), []string{"A test needs 4 pairs of random order, or 6 runs in turns"}},
	} {
		inOrder(strings.Repeat("AB", len(c.a))+strings.Repeat("B", len(c.b)-len(c.a)), c.a, c.b)
		effects, err := All(c.a, c.b)
		if err != nil {
			t.Fatal(err)
		}
		got := Verdict(&effects[0], &effects[1])
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%q does not say %q", got, w)
			}
		}
	}
	for u, want := range map[float64]int{0.8: 1, 0.25: 2, 0.31: 1, 12: 0, 3: 0, 2.5: 1, 0.0031: 3, 0: 2} {
		if got := decimals(u); got != want {
			t.Errorf("decimals of ± %v: %d, want %d", u, got, want)
		}
	}
}

// One run on either side: whatever the scatter, no quantity has a p or is shown, and
// no sentence says that B uses, takes or differs by anything.
func TestOneRunShowsNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(13, 14))
	c := bench{gain: 0.02, noise: 1e-4, work: 0.01, clock: 1e-6, sameMeter: true, budgets: true}
	for i := range coverage.Trials(400) {
		n := [][2]int{{1, 1}, {1, 5}, {7, 1}, {1, 2}}[i%4]
		a, b := c.trial(rng, [2]float64{100, 100 + 100*float64(i%2)}, n)
		effects, err := All(a, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range effects {
			if !math.IsNaN(float64(e.P)) || !math.IsNaN(float64(e.Corrected)) || e.Shown || e.Randomise() != nil ||
				e.Holds == BothSides {
				t.Fatalf("%v: %s: %+v", n, e.Quantity.Name, e)
			}
		}
		w, err := Per(&effects[0], &effects[1], Work{"token", 512, 500})
		if err != nil || !math.IsNaN(float64(w.P)) {
			t.Fatalf("%v: %+v, %v", n, w, err)
		}
		said := Verdict(&effects[0], &effects[1])
		for _, not := range []string{"uses", "takes ", "(p", "p =", "p <", "less", "more", "differ "} {
			if strings.Contains(strings.Replace(said, "± takes the run", "", 1), not) {
				t.Fatalf("%v: %q says %q", n, said, not)
			}
		}
		if !strings.Contains(said, "One run cannot tell a difference of the work from its scatter") {
			t.Fatalf("%v: %q", n, said)
		}
	}
}

// inOrder gives the runs times, a minute apart, in the order of the letters of A and B.
func inOrder(letters string, a, b []Run) {
	next := [2]int{}
	for i, c := range letters {
		side := [][]Run{a, b}[c-'A']
		side[next[c-'A']].At = time.Unix(int64(60*i), 0)
		next[c-'A']++
	}
}

// Only runs in turns have a test; the verdict of others names the reason.
func TestDesigns(t *testing.T) {
	for letters, want := range map[string]Design{
		"AB": Single, "ABBB": Single, "AABB": Blocks, "BBBAAA": Blocks, "ABBA": Few, "AAABBBAAA": LongBlocks,
		"AABBAABB": LongBlocks, "ABABA": Few, "ABBAAB": LongBlocks, "ABABAB": Turns, "ABBAABBA": LongBlocks,
		"ABABBABA": Turns, "AAABAAAABAAA": Turns,
	} {
		rng := rand.New(rand.NewPCG(17, 18))
		n := [2]int{strings.Count(letters, "A"), strings.Count(letters, "B")}
		a, b := bench{work: 0.001, clock: 0.001, budgets: true}.trial(rng, [2]float64{100, 50}, n)
		inOrder(letters, a, b)
		effects, err := All(a, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range effects {
			if e.Design != want || measure.Known(e.P) != (want == Turns) ||
				measure.Known(e.Corrected) != (want == Turns) {
				t.Errorf("%s: %+v", letters, e)
			}
		}
		if said := Verdict(&effects[0], &effects[1]); strings.Contains(said, "uses") != (want == Turns) || strings.Contains(said, "(p") != (want == Turns) {
			t.Errorf("%s: %q", letters, said)
		}
		a[0].At = time.Time{}
		if e, err := Between(a, b, Energy); err != nil || measure.Known(e.P) || n[0] > 1 && n[1] > 1 && e.Design != Unordered {
			t.Errorf("%s without a time: %+v, %v", letters, e, err)
		}
	}
}

// Of independent runs the regression is that of ordinary least squares: the weight of the
// second correlation vanishes where the residuals alternate.
func TestRegressionByHand(t *testing.T) {
	// Residuals orthogonal to a level, τ, τ² and the step of ABBAABBA.
	logs := []float64{1, 1.5, 1.5, 1, 1, 1.5, 1.5, 1}
	for i, r := range []float64{0.01, 0.01, -0.01, -0.01, 0.01, 0.01, -0.01, -0.01} {
		logs[i] += r
	}
	var seq []ordered
	for i, c := range "ABBAABBA" {
		seq = append(seq, ordered{b: c == 'B', at: float64(i)})
	}
	s, _, ok := fitStep(seq, logs, 0)
	if !ok || s.dof != 4 || math.Abs(s.mean-0.5) > 0.02 || s.u < 0.005 || s.u > 0.012 {
		t.Errorf("got %+v", s)
	}
	// A drift of second order changes nothing.
	for i := range logs {
		logs[i] += 3 + 0.2*float64(i) - 0.05*float64(i*i)
	}
	if d, _, ok := fitStep(seq, logs, 0); !ok || math.Abs(d.mean-s.mean) > 1e-9 || math.Abs(d.u-s.u) > 1e-9 {
		t.Errorf("with a drift %+v, want %+v", d, s)
	}
	p := regress(seq, logs, 0)
	if w := p[0].weight + p[1].weight; math.Abs(w-1) > 1e-12 {
		t.Errorf("weights add up to %v", w)
	}
	for _, q := range []float64{0.001, 0.025, 0.5, 0.9} {
		if got := p.cdf(p.quantile(q)); math.Abs(got-q) > 1e-6 {
			t.Errorf("quantile %v: %v", q, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	good := []Run{{Energy: 1, Time: 1}}
	for name, bad := range map[string][]Run{
		"none": {}, "zero": {{Energy: 0, Time: 1}}, "negative": {{Energy: -1, Time: 1}}, "no time": {{Energy: 1}},
		"not a number": {{Energy: measure.Joule(math.NaN()), Time: 1}}, "an error": {{Energy: 1, Time: 1, Errors: []Error{{Energy: math.Inf(1)}}}},
	} {
		for _, sides := range [][2][]Run{{good, bad}, {bad, good}} {
			if _, err := Between(sides[0], sides[1], Energy); !errors.Is(err, ErrRuns) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestParseWork(t *testing.T) {
	for s, want := range map[string]Work{
		"flop=4e12":           {"flop", 4e12, 4e12},
		" token = 512 , 640 ": {"token", 512, 640},
	} {
		if p, err := ParseWork(s); p != want || err != nil {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "flop", "=1", "flop=", "flop=a", "flop=1,", "flop=1,2,3", "flop=-1", "flop=0", "flop=1,Inf", "flop=NaN"} {
		if p, err := ParseWork(s); err == nil {
			t.Errorf("%q: %+v", s, p)
		}
	}
}

func FuzzParseWork(f *testing.F) {
	for _, s := range []string{"flop=4e12", "token=512,640", "=1", "a=b", "x=1,2,3", "x=-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseWork(s)
		if err != nil {
			return
		}
		for _, amount := range []float64{p.A, p.B} {
			if !(amount > 0) || math.IsInf(amount, 0) || p.Unit == "" {
				t.Errorf("%q gives %+v", s, p)
			}
		}
	})
}
