package model

import (
	"fmt"
	"math"
	"slices"
)

// Code names a kind of warning.
type Code string

// The warnings.
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

// Warning says why a model or an estimate is not to be trusted blindly.
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

// beyond warns where a row lies outside of what the model was trained on.
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
			w.Text = fmt.Sprintf("%s is %.4g, and was zero in all training rows: it has no coefficient, so what it draws is missing from the estimate: train with kernels that use it", c, x[j])
		case math.Abs(x[j]-lo) > 1e-9*math.Abs(lo):
			w.Code = Constant
			w.Text = fmt.Sprintf("%s is %.4g, and was %.4g in all training rows: it has no coefficient", c, x[j], lo)
		default:
			continue
		}
		named = true
		out = append(out, w)
	}
	mean := float64(f.spreadOf().rank+1) / float64(f.Rows)
	if leverage > leverageLimit*mean && (!named || math.IsInf(leverage, 1) || leverage > 1) {
		text := fmt.Sprintf("the counters together lie far from the training rows: leverage %.3g, their mean is %.3g", leverage, mean)
		out = append(out, Warning{Code: FarOff, Text: text})
	}
	return out
}

// Diagnosis is how far the counters of training data can be told apart.
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
	g := &Diagnosis{Condition: 1, VIF: make([]float64, len(d.Counters))}
	for j, c := range d.Counters {
		if g.VIF[j] = math.NaN(); pr.scale[j] == 0 {
			g.Warnings = append(g.Warnings, d.still(j, c))
		}
	}
	if n, p := len(d.Rows), len(pr.active); n < rowsPerColumn*(p+1) {
		g.warn(FewRows, "", fmt.Sprintf("%d rows for %d counters and the intercept: want %d or more", n, p, rowsPerColumn*(p+1)))
	}
	sp, ok := pr.decompose()
	if !ok || len(sp.s) == 0 {
		return g, nil
	}
	p := len(pr.active)
	if g.Condition = math.Inf(1); len(sp.s) == p && sp.significant(p-1, pr.n) {
		g.Condition = sp.s[0] / sp.s[p-1]
	}
	for k, j := range pr.active {
		g.VIF[j] = sp.inflation(k, pr.n)
		if g.VIF[j] > vifLimit {
			g.warn(Collinear, d.Counters[j], fmt.Sprintf("%s follows from the other counters (variance inflation %.3g): its coefficient by itself means little", d.Counters[j], g.VIF[j]))
		}
	}
	if g.Condition > conditionLimit {
		g.warn(Condition, "", fmt.Sprintf("the counters hardly tell kernels apart in some direction (condition number %.3g): keep α above 0", g.Condition))
	}
	return g, nil
}

func (g *Diagnosis) warn(c Code, counter, text string) {
	g.Warnings = append(g.Warnings, Warning{Code: c, Counter: counter, Text: text})
}

// still warns of a counter that does not vary.
func (d *Data) still(j int, name string) Warning {
	v := d.Rows[0].X[j]
	if v == 0 {
		return Warning{Code: ZeroInTraining, Counter: name, Text: name + " is zero in all rows: it gets no coefficient, and kernels that use it will be estimated too low"}
	}
	return Warning{Code: Constant, Counter: name, Text: fmt.Sprintf("%s is %.4g in all rows: it gets no coefficient", name, v)}
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

// underestimated finds applications that draw more than the model can explain: an
// event that no counter counts. All their rows lie below, and on the mean by more
// than three times what is usual.
func underestimated(d *Data, estimated []float64) (out []Warning) {
	var sizes []float64
	by := map[string][]float64{}
	var order []string
	for i, r := range d.Rows {
		e := estimated[i] - float64(r.Power)
		sizes = append(sizes, math.Abs(e))
		if r.Group == "" {
			continue
		}
		if by[r.Group] == nil {
			order = append(order, r.Group)
		}
		by[r.Group] = append(by[r.Group], e)
	}
	if len(order) < 4 {
		return nil
	}
	usual := 1.4826 * median(sizes)
	for _, g := range order {
		if top := slices.Max(by[g]); top < 0 && mean(by[g]) < -3*usual {
			out = append(out, Warning{Code: Underestimated, Row: g, Text: fmt.Sprintf("draws %.3g W more than estimated, %.2g times what is usual: it may do something that no counter of the model counts", -mean(by[g]), -mean(by[g])/usual)})
		}
	}
	return out
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
