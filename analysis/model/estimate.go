package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// Estimate is a model's power of a row with its interval and warnings.
type Estimate struct {
	Power measure.Watt
	// Contributions are the summands of the counters; with the intercept they add up
	// to Power.
	Contributions []measure.Watt
	// Leverage is 1/n + the squared distance from the training rows' middle, in units
	// of their spread (Mahalanobis' over n). Its mean over the training rows is
	// (rank + 1)/n. +Inf where the row lies off the plane in which those rows lie.
	Leverage float64
	Warnings []Warning
}

// spread is the training rows' covariance, inverted.
type spread struct {
	values  []float64
	vectors mat.Dense
	rank    int
	active  []int // the counters that vary
}

// Estimate applies the model to a row, whose values must be finite.
func (f *Fit) Estimate(x []float64) (Estimate, error) {
	if len(x) != len(f.Counters) {
		return Estimate{}, fmt.Errorf("%w: %d values for %d counters", ErrData, len(x), len(f.Counters))
	}
	e := Estimate{Power: f.Power(x), Contributions: make([]measure.Watt, len(x))}
	for j, c := range f.Coefficients {
		if math.IsNaN(x[j]) || math.IsInf(x[j], 0) {
			return Estimate{}, fmt.Errorf("%w: counter %q is %v", ErrData, f.Counters[j], x[j])
		}
		e.Contributions[j] = measure.Watt(c * x[j])
	}
	if p := float64(e.Power); math.IsNaN(p) || math.IsInf(p, 0) {
		return Estimate{}, fmt.Errorf("%w: the estimate overflows: look for absurd values", ErrData)
	}
	e.Leverage = f.leverage(x)
	e.Warnings = f.beyond(x, e.Leverage)
	return e, nil
}

// spreadOf decomposes the Gram matrix of the training rows, for leverages.
func (f *Fit) spreadOf() *spread {
	if f.spread != nil {
		return f.spread
	}
	s := &spread{active: nonzero(f.Scale)}
	f.spread = s
	p := len(s.active)
	if p == 0 {
		return s
	}
	var sub mat.SymDense
	sub.SubsetSym(mat.NewSymDense(len(f.Counters), f.Gram), s.active)
	var eig mat.EigenSym
	if !eig.Factorize(&sub, true) {
		return s
	}
	s.values = eig.Values(nil)
	eig.VectorsTo(&s.vectors)
	for k, v := range s.values {
		// Eigenvalues are squares: rounding makes 10⁻¹⁶ of the largest out of nothing.
		if v > s.values[p-1]*1e-12 {
			s.rank++
		} else {
			s.values[k] = 0
		}
	}
	return s
}

// along returns a row's parts along the directions of the training rows' spread, in units of
// their standard deviations, and that spread.
func (f *Fit) along(x []float64) ([]float64, *spread) {
	s := f.spreadOf()
	out := make([]float64, len(s.values))
	for a, j := range s.active {
		z := (x[j] - f.Mean[j]) / f.Scale[j]
		for k := range out {
			out[k] += s.vectors.At(a, k) * z
		}
	}
	return out, s
}

// leverage is 1/n + zᵀ(ZᵀZ)⁻¹z.
func (f *Fit) leverage(x []float64) float64 {
	along, s := f.along(x)
	h := 1 / float64(f.Rows)
	size := floats.Dot(along, along)
	// A direction that no training row has is infinitely far, unless the row hardly points
	// into it.
	for k, v := range s.values {
		switch t := along[k]; {
		case v > 0:
			h += t * t / v
		case t*t > 1e-6*(size+1):
			return math.Inf(1)
		}
	}
	return h
}

// Interval holds a power with a stated probability.
type Interval struct {
	Low  measure.Watt `json:"low_w"`
	High measure.Watt `json:"high_w"`
}

// heldModels is how many models Calibrate makes at most.
const heldModels = 200

// Calibrate prepares the intervals by jackknife+ (Barber, Candès, Ramdas, Tibshirani: "Predictive inference with the
// jackknife+", 2021): a model without each row, or, of more than 200 rows, without each of 200 parts (CV+). byGroup
// leaves whole applications out, so that the interval is that of a kernel of a new application. α is that of the fit.
func (f *Fit) Calibrate(d *Data, byGroup bool) error {
	by, k := ByOne, 0
	switch {
	case byGroup:
		by = ByGroup
	case len(d.Rows) > heldModels:
		by, k = ByRowMod, heldModels
	}
	folds, err := Folds(d, by, k, 0)
	if err != nil {
		return err
	}
	f.Held, f.HeldRows = nil, make([]HeldRow, len(d.Rows))
	for m := range count(folds) {
		g, err := Train(d.without(m, folds), Options{Method: f.Method, Alpha: f.Alpha})
		if err != nil {
			return fmt.Errorf("prediction intervals: %w", err)
		}
		f.Held = append(f.Held, g.Linear)
		for i, fold := range folds {
			if fold == m {
				f.HeldRows[i] = HeldRow{Model: m, Residual: d.Rows[i].Power - g.Power(d.Rows[i].X)}
			}
		}
	}
	return nil
}

// Jackknife is the interval of jackknife+ at a level such as 0.95. It takes no shape of the errors for granted, only
// that the new kernel is drawn as those of the training were. Proved is a coverage of 2·level − 1; in practice it is
// near the level. It is false where there are too few rows for the level, or none kept.
func (f *Fit) Jackknife(x []float64, level float64) (Interval, bool) {
	n := len(f.HeldRows)
	rank := int(math.Ceil(level * float64(n+1)))
	if n == 0 || rank > n {
		return Interval{}, false
	}
	at := lists.Map(f.Held, func(l Linear) float64 { return float64(l.Power(x)) })
	// Each training row gives an interval: the estimate by the model without it, plus and
	// minus its residual. The result takes the quantiles of their ends.
	low, high := make([]float64, n), make([]float64, n)
	for i, h := range f.HeldRows {
		r := math.Abs(float64(h.Residual))
		low[i], high[i] = at[h.Model]-r, at[h.Model]+r
	}
	slices.Sort(low)
	slices.Sort(high)
	return Interval{measure.Watt(low[n-rank]), measure.Watt(high[rank-1])}, true
}

// Analytic is the textbook interval: errors normal, alike and independent, the
// model true, no penalty's bias. It is for ridge and least squares:
//
//	ŷ ± t·s·√(1 + 1/n + zᵀ(ZᵀZ + α)⁻¹ZᵀZ(ZᵀZ + α)⁻¹z)
//
// It is false for other methods and without degrees of freedom.
func (f *Fit) Analytic(x []float64, level float64) (Interval, bool) {
	if f.DOF <= 0 || (f.Method != Ridge && f.Method != LeastSquares) {
		return Interval{}, false
	}
	along, s := f.along(x)
	q := 1 + 1/float64(f.Rows)
	for k, t := range along {
		if v := s.values[k]; v > 0 {
			q += t * t * v / ((v + f.Alpha) * (v + f.Alpha))
		}
	}
	k := stats.Student((1+level)/2, f.DOF)
	u := measure.Watt(k * math.Sqrt(q) * float64(f.Sigma))
	p := f.Power(x)
	return Interval{p - u, p + u}, true
}

// Code names a kind of warning.
type Code string

const (
	ZeroInTraining Code = "zero-in-training" // a counter was zero in all training rows and is not here
	Constant       Code = "constant"         // a counter did not vary in training
	Collinear      Code = "collinear"        // a counter follows from the others
	Condition      Code = "ill-conditioned"  // the counters as a whole follow from each other
	OutOfRange     Code = "out-of-range"     // a counter lies outside of what was trained on
	FarOff         Code = "far-off"          // a combination of counters far from what was trained on
	FewRows        Code = "few-rows"
	FewBlocks      Code = "few-blocks"
	ShortRun       Code = "short-run"
	Underestimated Code = "underestimated" // an application draws more than its counters say
)

// Warning is a reason to doubt a model or an estimate.
type Warning struct {
	Code    Code   `json:"code"`
	Row     string `json:"row,omitempty"`
	Counter string `json:"counter,omitempty"`
	Text    string `json:"text"`
}

// Limits from which on a warning is given.
const (
	vifLimit       = 10.0 // variance inflation: R² of 0.9 against the other counters
	conditionLimit = 30.0 // Belsley, Kuh, Welsch (1980)
	leverageLimit  = 3.0  // times the mean leverage
	rowsPerColumn  = 3
)

// beyond warns about a row outside of the range of the training rows.
func (f *Fit) beyond(x []float64, leverage float64) (out []Warning) {
	named := false
	for j, c := range f.Counters {
		lo, hi := f.Min[j], f.Max[j]
		if x[j] >= lo && x[j] <= hi {
			continue
		}
		w := Warning{Code: OutOfRange, Counter: c}
		switch {
		case f.Scale[j] > 0:
			w.Text = fmt.Sprintf("%s is %.4g, trained on %.4g to %.4g", c, x[j], lo, hi)
		case lo == 0 && hi == 0:
			w.Code = ZeroInTraining
			w.Text = fmt.Sprintf("%s is %.4g, and was zero in all training rows: it has no coefficient, so what it "+
				"draws is missing from the estimate: train with kernels that use it", c, x[j])
		case math.Abs(x[j]-lo) > 1e-9*math.Abs(lo):
			w.Code = Constant
			w.Text = fmt.Sprintf("%s is %.4g, and was %.4g in all training rows: it has no coefficient", c, x[j], lo)
		default:
			continue
		}
		named = true
		out = append(out, w)
	}
	// The mean leverage of the training rows is (rank + 1)/n.
	mean := float64(f.spreadOf().rank+1) / float64(f.Rows)
	if leverage > leverageLimit*mean && (!named || math.IsInf(leverage, 1) || leverage > 1) {
		text := fmt.Sprintf("the counters together lie far from the training rows: leverage %.3g, their mean is %.3g",
			leverage, mean)
		out = append(out, Warning{Code: FarOff, Text: text})
	}
	return out
}

// Diagnosis describes the collinearity of the counters of training data.
type Diagnosis struct {
	// Condition is the largest singular value of the standardised columns over the
	// smallest; +Inf where one follows from the others.
	Condition float64
	// VIF is the variance inflation of each counter, 1/(1 − R²) against the others;
	// NaN for one that does not vary, +Inf for one that follows from the others.
	VIF      []float64
	Warnings []Warning
}

// Diagnose looks at training data before it is trusted. Errors wrap ErrData.
func Diagnose(d *Data) (*Diagnosis, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	pr := standardise(d)
	n, p := len(d.Rows), len(pr.active)
	g := &Diagnosis{Condition: 1, VIF: make([]float64, len(d.Counters))}
	for j, c := range d.Counters {
		if g.VIF[j] = math.NaN(); pr.scale[j] > 0 {
			continue
		}
		if v := d.Rows[0].X[j]; v == 0 {
			g.warn(ZeroInTraining, c, "%s is zero in all rows: it gets no coefficient, and kernels that use it will be "+
				"estimated too low", c)
		} else {
			g.warn(Constant, c, "%s is %.4g in all rows: it gets no coefficient", c, v)
		}
	}
	if n < rowsPerColumn*(p+1) {
		g.warn(FewRows, "", "%s for %d counters and the intercept: want %d or more", measure.Plural(n, "row"), p,
			rowsPerColumn*(p+1))
	}
	sp, err := pr.decompose()
	if err != nil || len(sp.s) == 0 {
		return g, nil
	}
	if g.Condition = math.Inf(1); len(sp.s) == p && sp.significant(p-1, n) {
		g.Condition = sp.s[0] / sp.s[p-1]
	}
	for k, j := range pr.active {
		if g.VIF[j] = sp.inflation(k, n); g.VIF[j] > vifLimit {
			g.warn(Collinear, d.Counters[j], "%s follows from the other counters (variance inflation %.3g): its "+
				"coefficient by itself means little", d.Counters[j], g.VIF[j])
		}
	}
	if g.Condition > conditionLimit {
		g.warn(Condition, "", "the counters hardly tell kernels apart in some direction (condition number %.3g): keep α "+
			"above 0", g.Condition)
	}
	return g, nil
}

func (g *Diagnosis) warn(c Code, counter, format string, args ...any) {
	g.Warnings = append(g.Warnings, Warning{Code: c, Counter: counter, Text: fmt.Sprintf(format, args...)})
}

// inflation is n·[(ZᵀZ)⁻¹]_kk.
func (sp *spectrum) inflation(k, n int) (v float64) {
	_, cols := sp.v.Dims()
	for c := range cols {
		e := sp.v.At(k, c)
		switch {
		case sp.significant(c, n):
			v += float64(n) * e * e / (sp.s[c] * sp.s[c])
		case e*e > 1e-12:
			return math.Inf(1)
		}
	}
	if p, _ := sp.v.Dims(); cols < p {
		return math.Inf(1) // fewer rows than counters
	}
	return v
}

// underestimated finds applications that draw more than the model can explain, by an
// event that no counter counts: all their rows lie below, and their mean by more than
// three robust standard deviations.
func underestimated(d *Data, estimated []measure.Watt) (out []Warning) {
	var sizes []float64
	var by lists.Groups[string, float64]
	for i, r := range d.Rows {
		e := float64(estimated[i]) - float64(r.Power)
		sizes = append(sizes, e)
		if r.Group != "" {
			by.Add(r.Group, e)
		}
	}
	if len(by.Keys) < 4 {
		return nil
	}
	// The scatter of all rows is the scale.
	usual := stats.SD(sizes)
	for _, g := range by.Keys {
		if less := -stat.Mean(by.Of[g], nil); slices.Max(by.Of[g]) < 0 && less > 3*usual {
			text := fmt.Sprintf("draws %.3g W more than estimated, %.2g times what is usual: "+
				"it may do something that no counter of the model counts", less, less/usual)
			out = append(out, Warning{Code: Underestimated, Row: g, Text: text})
		}
	}
	return out
}
