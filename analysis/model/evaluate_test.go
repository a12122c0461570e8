package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

func TestFolds(t *testing.T) {
	d := plane(rng(1), 23, 70, []float64{1}, 1) // eight applications, the last of two kernels
	for _, c := range []struct {
		by   FoldBy
		k    int
		want int
	}{{ByRowMod, 10, 10}, {ByBlock, 10, 10}, {ByRandom, 10, 10}, {ByOne, 0, 23}, {ByGroup, 0, 8}, {ByGroupK, 4, 4}} {
		f, err := Folds(d, c.by, c.k, 3)
		ok(t, err)
		sizes := make([]int, count(f))
		whole := map[string]int{}
		for i, k := range f {
			sizes[k]++
			g := d.Rows[i].Group
			if last, seen := whole[g]; seen && last != k && (c.by == ByGroup || c.by == ByGroupK) {
				t.Errorf("%s tears %s apart", c.by, g)
			}
			whole[g] = k
		}
		if len(sizes) != c.want || slices.Min(sizes) < 1 {
			t.Errorf("%s: folds of %v", c.by, sizes)
		}
		if c.by != ByGroup && c.by != ByGroupK && slices.Max(sizes)-slices.Min(sizes) > 1 {
			t.Errorf("%s: folds of %v are not equal", c.by, sizes)
		}
		if c.by == ByRowMod && f[13] != 3 {
			t.Errorf("row 13 is in fold %d", f[13])
		}
		again, err := Folds(d, c.by, c.k, 3)
		ok(t, err)
		if !slices.Equal(f, again) {
			t.Errorf("%s is not the same again", c.by)
		}
	}
	bare := &Data{Counters: d.Counters, Rows: slices.Clone(d.Rows)}
	bare.Rows[5].Group = ""
	for _, c := range []struct {
		d    *Data
		by   FoldBy
		k    int
		want error
	}{
		{d, ByRowMod, 24, ErrData},
		{d, ByRowMod, 1, ErrOptions},
		{d, ByGroupK, 9, ErrData},
		{bare, ByGroup, 0, ErrData},
		{d, "magic", 3, ErrOptions},
		{d.part([]int{0, 1}), ByGroup, 0, ErrData},
	} {
		if _, err := Folds(c.d, c.by, c.k, 0); !errors.Is(err, c.want) {
			t.Errorf("%s %d: %v", c.by, c.k, err)
		}
	}
}

// The scores are those of the definition, on numbers done by hand.
func TestScore(t *testing.T) {
	s := NewScore([]measure.Watt{100, 200}, []measure.Watt{110, 180})
	near(t, "mse", float64(s.MSE), 250, 1e-12)
	near(t, "mape", s.MAPE, 10, 1e-12)
	near(t, "r2", float64(s.R2), 1-500./5000, 1e-12)
	near(t, "bias", float64(s.Bias), -5, 1e-12)
	near(t, "mae", float64(s.MAE), 15, 1e-12)
	if !math.IsNaN(float64(NewScore([]measure.Watt{1, 1}, []measure.Watt{1, 2}).R2)) {
		t.Error("R² of equal powers is a number")
	}
}

// α by cross-validation is large where counters are noise, and small where they are
// not; every fold chooses its own without its own rows.
func TestAlphaIsChosen(t *testing.T) {
	noise := plane(rng(11), 40, 100, make([]float64, 8), 10)
	for i := range noise.Rows {
		noise.Rows[i].Group = ""
	}
	signal := plane(rng(12), 60, 100, []float64{50, 0.05, 5e-5}, 0.5)
	for _, m := range []Method{Ridge, NonNegative} {
		big, err := ChooseAlpha(noise, Options{Method: m})
		ok(t, err)
		small, err := ChooseAlpha(signal, Options{Method: m})
		ok(t, err)
		if big < 30 || small > 1 {
			t.Errorf("%s: α = %g of noise, %g of signal", m, big, small)
		}
	}
	c, err := ChooseAlpha(noise, Options{Method: Lasso})
	ok(t, err)
	f, err := Train(noise, Options{Method: Lasso, Alpha: c})
	ok(t, err)
	used := 0
	for _, w := range f.Weights {
		if w != 0 {
			used++
		}
	}
	if used > 4 {
		t.Errorf("lasso keeps %d of 8 counters that mean nothing", used)
	}
	folds, err := Folds(signal, ByRowMod, 5, 0)
	ok(t, err)
	e, err := Evaluate(signal, Options{Method: Ridge, Alpha: Auto}, folds, nil)
	ok(t, err)
	if len(e.Alphas) != 5 || e.R2 < 0.99 || e.Constant.MSE < 50*e.MSE {
		t.Errorf("%+v, α %v", e.Score, e.Alphas)
	}
}

// Kernels of one application resemble each other. Folds by rows then promise too
// much, folds by applications do not.
func TestApplicationsHeldOut(t *testing.T) {
	r := rng(13)
	d := plane(r, 60, 100, []float64{50, 0.05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0)
	for g := range 20 {
		own := 15 * r.NormFloat64()
		for i := 3 * g; i < 3*g+3; i++ {
			d.Rows[i].Power += measure.Watt(own)
			for j := 2; j < 12; j++ {
				d.Rows[i].X[j] = d.Rows[3*g].X[j] * (1 + 0.01*r.NormFloat64())
			}
		}
	}
	mse := func(by FoldBy) SquareWatt {
		f, err := Folds(d, by, 10, 1)
		ok(t, err)
		e, err := Evaluate(d, Options{Method: Ridge, Alpha: 1}, f, nil)
		ok(t, err)
		return e.MSE
	}
	if rows, apps := mse(ByRowMod), mse(ByGroup); apps < 1.2*rows {
		t.Errorf("by rows %g W², by applications %g W²", rows, apps)
	}
}

// The intervals hold as many powers of new kernels as they promise: several
// hundred trained models, a new kernel each.
func TestIntervalsCover(t *testing.T) {
	trials := coverage.Trials(700)
	r := rng(14)
	for _, c := range []struct {
		name  string
		n     int
		noise func() float64
		o     Options
		exact bool
	}{
		{"normal errors, least squares", 40, r.NormFloat64, Options{Method: LeastSquares}, true},
		{"normal errors, ridge", 40, r.NormFloat64, Options{Method: Ridge, Alpha: 1}, true},
		{"exponential errors, ridge", 40, func() float64 { return r.ExpFloat64() - 1 }, Options{Method: Ridge, Alpha: 1}, false},
		{"normal errors, lasso", 40, r.NormFloat64, Options{Method: Lasso, Alpha: 50}, false},
	} {
		inJack, inExact := 0, 0
		for range trials {
			d := plane(r, c.n+1, 100, []float64{50, -0.02, 3e-5, 0}, 0)
			for i := range d.Rows {
				d.Rows[i].Power += measure.Watt(6 * c.noise())
			}
			fresh := d.Rows[c.n]
			d.Rows = d.Rows[:c.n]
			f, err := Train(d, c.o)
			ok(t, err)
			ok(t, f.Calibrate(d, false))
			if i, given := f.Jackknife(fresh.X, 0.95); given && i.Low <= fresh.Power && fresh.Power <= i.High {
				inJack++
			}
			if i, given := f.Analytic(fresh.X, 0.95); given && i.Low <= fresh.Power && fresh.Power <= i.High {
				inExact++
			}
		}
		n := float64(trials)
		jack, exact := 100*float64(inJack)/n, 100*float64(inExact)/n
		t.Logf("%s: jackknife+ %.1f %%, analytic %.1f %% of %g", c.name, jack, exact, n)
		if !coverage.Within(jack/100, 0.93, 0.97, trials) {
			t.Errorf("%s: jackknife+ holds %.1f %%", c.name, jack)
		}
		if c.exact && !coverage.Within(exact/100, 0.93, 0.97, trials) {
			t.Errorf("%s: the analytic interval holds %.1f %%", c.name, exact)
		}
	}
}

// Too few rows for the level make no interval; groups are left out whole.
func TestIntervalLimits(t *testing.T) {
	d := plane(rng(15), 18, 100, []float64{50}, 3)
	f, err := Train(d, Options{Method: Ridge, Alpha: 1})
	ok(t, err)
	if _, given := f.Jackknife(d.Rows[0].X, 0.95); given {
		t.Error("an interval without Calibrate")
	}
	ok(t, f.Calibrate(d, false))
	if _, given := f.Jackknife(d.Rows[0].X, 0.95); given {
		t.Error("95 % out of 18 rows")
	}
	if i, given := f.Jackknife(d.Rows[0].X, 0.9); !given || !(i.Low < i.High) {
		t.Errorf("90 %% out of 18 rows: %v %v", i, given)
	}
	ok(t, f.Calibrate(d, true))
	if len(f.Held) != 6 {
		t.Errorf("%d models for 6 applications", len(f.Held))
	}
	big := plane(rng(16), 450, 100, []float64{50}, 3)
	g, err := Train(big, Options{Method: Ridge, Alpha: 1})
	ok(t, err)
	ok(t, g.Calibrate(big, false))
	if len(g.Held) != heldModels {
		t.Errorf("%d models of 450 rows", len(g.Held))
	}
	lasso, err := Train(big, Options{Method: Lasso, Alpha: 1})
	ok(t, err)
	if _, given := lasso.Analytic(big.Rows[0].X, 0.95); given {
		t.Error("an analytic interval of lasso")
	}
}

// Nagasaka et al., section IV-B: RandomGPU alone uses local memory. Left out, it
// leaves no coefficient for it, its estimate is low, and that is told.
func TestCounterThatOnlyOneKernelUses(t *testing.T) {
	d := plane(rng(17), 43, 70, []float64{20, 0.03, 2e-5}, 2)
	d.Counters[2] = "local_load"
	for i := range d.Rows {
		if i != 20 {
			d.Rows[i].Power -= measure.Watt(2e-5 * d.Rows[i].X[2])
			d.Rows[i].X[2] = 0
		}
	}
	d.Rows[20].Power += measure.Watt(2e-5 * (1.15e6 - d.Rows[20].X[2]))
	d.Rows[20].X[2] = 1.15e6 // 23 W of local memory
	folds, err := Folds(d, ByRowMod, 10, 0)
	ok(t, err)
	e, err := Evaluate(d, Options{Method: Ridge, Alpha: 1}, folds, nil)
	ok(t, err)
	h := e.Held[20]
	if miss := float64(h.Power - d.Rows[20].Power); miss > -17 || miss < -29 {
		t.Errorf("missed by %g W, local memory is 23 W", miss)
	}
	if h.Contributions[2] != 0 || !has(h.Warnings, ZeroInTraining, "local_load") || !has(e.Warnings, ZeroInTraining, "k20") {
		t.Errorf("%v, %v", h.Contributions, h.Warnings)
	}
	for i, o := range e.Held {
		if i != 20 && has(o.Warnings, ZeroInTraining, "") {
			t.Errorf("%s: warned of nothing", d.Rows[i].Name)
		}
	}
	g, err := Diagnose(d.without(folds[20], folds))
	ok(t, err)
	if !has(g.Warnings, ZeroInTraining, "local_load") {
		t.Errorf("%v", g.Warnings)
	}
}

// paper is data in the manner of the paper: 49 kernels of 25 programs, six of them
// with texture reads that no counter counts.
func paper(seed uint64, textures bool) *Data {
	r := rng(seed)
	names := []string{"gld", "gst", "local_load", "local_store", "branch", "divergent_branch", "instructions", "warp_serialize", "tlb_miss"}
	cost := []float64{45, 35, 8, 8, -14, -6, 60, -5, -12} // watts at full use
	d := &Data{Counters: names}
	for k := range 49 {
		tex := k >= 43
		if tex && !textures {
			break
		}
		row := Row{Name: fmt.Sprintf("kernel%d", k), Group: fmt.Sprintf("program%d", k%25)}
		if tex {
			row.Group = fmt.Sprintf("texture%d", k%3)
		}
		p := 90 + 3*r.NormFloat64()
		busy := r.Float64()
		for j, c := range cost {
			u := r.Float64() * r.Float64()
			switch names[j] {
			case "instructions":
				u = busy
			case "gld":
				u = (1 - busy) * r.Float64()
			case "branch":
				u = busy * r.Float64()
			case "local_load", "local_store":
				if u = 0; k == 7 || k == 19 || k == 31 {
					u = r.Float64()
				}
			}
			if tex && names[j] == "gld" {
				u /= 20 // read through the texture units instead
			}
			row.X = append(row.X, u*1e9)
			p += c * u
		}
		if tex {
			p += 35 + 10*r.Float64()
		}
		row.Power = measure.Watt(p)
		d.Rows = append(d.Rows, row)
	}
	return d
}

// set makes one of the paper's models of the nine counters: columns added up.
func set(d *Data, columns ...[]int) *Data {
	out := &Data{}
	for _, c := range columns {
		out.Counters = append(out.Counters, fmt.Sprint(c))
	}
	for _, r := range d.Rows {
		x := make([]float64, len(columns))
		for j, c := range columns {
			for _, i := range c {
				x[j] += r.X[i]
			}
		}
		r.X = x
		out.Rows = append(out.Rows, r)
	}
	return out
}

// Nagasaka et al., Fig. 2 and 5, as mechanisms and not as numbers: memory and
// instructions together say much more than either, Full says most, an event that
// is not counted makes its kernels come out low and the whole much worse.
func TestOrderOfTheModels(t *testing.T) {
	mse := func(d *Data) float64 {
		f, err := Folds(d, ByRandom, 10, 1)
		ok(t, err)
		e, err := Evaluate(d, Options{Method: Ridge, Alpha: Auto}, f, nil)
		ok(t, err)
		return float64(e.MSE)
	}
	mem := []int{0, 1, 2, 3}
	sum := map[string]float64{}
	const runs = 6
	for seed := range uint64(runs) {
		d := paper(100+seed, false)
		for name, x := range map[string]*Data{
			"mem": set(d, mem), "inst": set(d, []int{6}), "mem/inst": set(d, mem, []int{6}), "mem/inst/branch": set(d, mem, []int{6}, []int{4}), "full": d,
			"with textures": paper(100+seed, true),
		} {
			sum[name] += mse(x) / runs
		}
	}
	t.Logf("W²: %v", sum)
	if !(sum["full"] < sum["mem/inst/branch"] && sum["mem/inst/branch"] < sum["mem/inst"] && sum["mem/inst"] < sum["inst"] && sum["inst"] < sum["mem"]) {
		t.Errorf("order: %v", sum)
	}
	if sum["with textures"] < 2*sum["full"] {
		t.Errorf("textures: %v", sum)
	}

	// Trained without them, the texture kernels all come out low, and it is said whose.
	all := paper(100, true)
	f, err := Train(all.part(upTo(43)), Options{Method: Ridge, Alpha: 1})
	ok(t, err)
	for _, r := range all.Rows[43:] {
		if miss := f.Power(r.X) - r.Power; miss > -15 {
			t.Errorf("%s is estimated %v off", r.Name, miss)
		}
	}
	folds, err := Folds(all, ByGroup, 0, 0)
	ok(t, err)
	e, err := Evaluate(all, Options{Method: Ridge, Alpha: 1}, folds, nil)
	ok(t, err)
	if !has(e.Warnings, Underestimated, "texture0") && !has(e.Warnings, Underestimated, "texture1") && !has(e.Warnings, Underestimated, "texture2") {
		t.Errorf("%v", e.Warnings)
	}
	for _, w := range e.Warnings {
		if w.Code == Underestimated && w.Row[:7] != "texture" {
			t.Errorf("%v", w)
		}
	}
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// part returns the rows of the given numbers; they are shared, not copied.
func (d *Data) part(rows []int) *Data {
	out := &Data{Counters: d.Counters, Rows: make([]Row, len(rows))}
	for i, r := range rows {
		out.Rows[i] = d.Rows[r]
	}
	return out
}
