// Package model fits the power of kernels to their performance counters: ridge regression and its relatives,
// cross-validation, the contribution of each counter to an estimate, prediction intervals, and warnings about
// estimates beyond the training data. Nagasaka et al., "Statistical Power Modeling of GPU Kernels Using Performance
// Counters", Eq. 1: p = Σ α_i·c_i + β.
//
// Its nouns: Data holds rows of counters and powers, Options a Method with its penalty, Train makes a Fit of them,
// Evaluate scores it by Folds, Estimate applies it to a row, a Diagnosis describes collinearity. The package is pure
// and knows no counter: a counter is a column with a name. A Fit decomposes its Gram matrix on the first estimate: it
// is not safe for concurrent use.
package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/mat"
)

// Method is how weights are found. Columns are standardised over the training
// rows, by the population's standard deviation; the intercept is not penalised; w
// are the weights of the standardised columns.
type Method string

const (
	Ridge         Method = "ridge"          // SSE + α‖w‖²
	NonNegative   Method = "ridge-positive" // the same, no weight below zero
	Lasso         Method = "lasso"          // SSE + α‖w‖₁
	LeastSquares  Method = "ols"            // SSE
	defaultFolds         = 10
	minimumOfRows        = 3
)

// Methods lists the methods.
func Methods() []Method { return []Method{Ridge, NonNegative, Lasso, LeastSquares} }

// Options of the training.
type Options struct {
	Method Method
	// Alpha is the weight of the penalty; of NaN it is chosen by cross-validation over
	// the training rows.
	Alpha float64
	// AlphaFolds is the number of folds of that choice; 10 where it is 0.
	AlphaFolds int
}

// Auto is the α that is chosen by cross-validation.
var Auto = math.NaN()

// Check refuses options that no model can be trained by. Errors wrap ErrOptions.
func (o Options) Check() error {
	switch {
	case !slices.Contains(Methods(), o.Method):
		return fmt.Errorf("%w: method %q: want one of %v", ErrOptions, o.Method, Methods())
	case o.Alpha < 0 || math.IsInf(o.Alpha, 0):
		return fmt.Errorf("%w: α = %v: want 0 or more, or auto", ErrOptions, o.Alpha)
	case o.AlphaFolds < 0 || o.AlphaFolds == 1:
		return fmt.Errorf("%w: %d folds to choose α by: want 2 or more", ErrOptions, o.AlphaFolds)
	}
	return nil
}

// Linear is a plane: power = Intercept + Σ Coefficients·counters.
type Linear struct {
	Intercept    measure.Watt `json:"intercept_w"`
	Coefficients []float64    `json:"coefficients"` // watts a unit of the counter
}

// Power returns the estimate at a row.
func (l Linear) Power(x []float64) measure.Watt {
	p := float64(l.Intercept)
	for j, c := range l.Coefficients {
		p += c * x[j]
	}
	return measure.Watt(p)
}

// Fit is a trained model. It can be kept as JSON.
type Fit struct {
	Linear
	Method   Method   `json:"method"`
	Alpha    float64  `json:"alpha"`
	Counters []string `json:"counters"`
	Rows     int      `json:"rows"`

	// Weights are those of the standardised columns: watts a standard deviation.
	Weights []measure.Watt `json:"weights_w"`
	// Mean, Scale, Min and Max are of the training rows; Scale is 0 where a counter did
	// not vary, which then has no coefficient.
	Mean  []float64 `json:"mean"`
	Scale []float64 `json:"scale"`
	Min   []float64 `json:"min"`
	Max   []float64 `json:"max"`
	// Gram is ZᵀZ of the standardised columns, row by row; it gives the distance of a
	// new row from the training rows.
	Gram []float64 `json:"gram"`
	// Sigma is the standard deviation of the residuals over the degrees of freedom.
	Sigma measure.Watt `json:"sigma_w"`
	DOF   float64      `json:"dof"`

	// Held are models without a part of the rows each, with the estimates of the rows
	// left out: the basis of prediction intervals. Empty until Calibrate.
	Held     []Linear  `json:"held,omitempty"`
	HeldRows []HeldRow `json:"held_rows,omitempty"`

	spread *spread // of Gram, worked out when first wanted
}

// HeldRow is a training row and the model that was made without it.
type HeldRow struct {
	Model    int          `json:"model"`
	Residual measure.Watt `json:"residual_w"` // measured − estimated
}

// Train fits a model. Errors wrap ErrData or ErrOptions.
func Train(d *Data, o Options) (*Fit, error) {
	if err := cmp.Or(o.Check(), d.check()); err != nil {
		return nil, err
	}
	if len(d.Rows) < minimumOfRows {
		return nil, fmt.Errorf("%w: %s: want at least %d", ErrData, measure.Plural(len(d.Rows), "row"), minimumOfRows)
	}
	if o.Method != LeastSquares && math.IsNaN(o.Alpha) {
		var err error
		if o.Alpha, err = ChooseAlpha(d, o); err != nil {
			return nil, err
		}
	}
	if o.Method == LeastSquares {
		o.Alpha = 0
	}
	// Standardised columns make one α fit counters of any unit.
	pr := standardise(d)
	w, df, err := pr.solve(o)
	if err != nil {
		return nil, err
	}
	return pr.fit(d, o, w, df), nil
}

// solve returns the weights of the active columns, and how many parameters they
// are worth.
func (pr *problem) solve(o Options) (w []float64, df float64, err error) {
	if len(pr.active) == 0 {
		return nil, 0, nil
	}
	switch o.Method {
	case Ridge, LeastSquares:
		sp, err := pr.decompose()
		if err != nil {
			return nil, 0, err
		}
		return sp.ridge(o.Alpha, pr.n), sp.effective(o.Alpha, pr.n), nil
	}
	// Non-negative least squares and lasso have no closed form.
	g, b := pr.gram()
	r := rule{l2: o.Alpha, positive: true}
	if o.Method == Lasso {
		r = rule{l1: o.Alpha}
	}
	if w, err = descend(g, b, r); err != nil {
		return nil, 0, err
	}
	return w, pr.worth(g, w, r.l2), nil
}

// worth is the effective number of parameters of the columns with weights.
func (pr *problem) worth(g *mat.SymDense, w []float64, l2 float64) (df float64) {
	on := nonzero(w)
	if len(on) == 0 {
		return 0
	}
	var sub mat.SymDense
	sub.SubsetSym(g, on)
	var eig mat.EigenSym
	if !eig.Factorize(&sub, false) {
		return float64(len(on))
	}
	for _, v := range eig.Values(nil) {
		if v = max(0, v); v+l2 > 0 {
			df += v / (v + l2)
		}
	}
	return df
}

// fit turns weights into a model.
func (pr *problem) fit(d *Data, o Options, w []float64, df float64) *Fit {
	p := len(d.Counters)
	f := &Fit{
		Method: o.Method, Alpha: o.Alpha, Counters: slices.Clone(d.Counters), Rows: pr.n,
		Weights: make([]measure.Watt, p), Mean: pr.mean, Scale: pr.scale,
		Min: make([]float64, p), Max: make([]float64, p), Gram: make([]float64, p*p),
	}
	f.Linear = pr.linear(w)
	for k, j := range pr.active {
		f.Weights[j] = measure.Watt(w[k])
	}
	for j := range p {
		x := lists.Map(d.Rows, func(r Row) float64 { return r.X[j] })
		f.Min[j], f.Max[j] = slices.Min(x), slices.Max(x)
	}
	if len(pr.active) > 0 {
		g, _ := pr.gram()
		for a, i := range pr.active {
			for b, j := range pr.active {
				f.Gram[i*p+j] = g.At(a, b)
			}
		}
	}
	// The residual variance rests on the rows less the intercept and the effective number
	// of parameters.
	var sse float64
	for _, r := range d.Rows {
		e := float64(r.Power - f.Power(r.X))
		sse += e * e
	}
	if f.DOF = float64(pr.n) - 1 - df; f.DOF > 1e-9 {
		f.Sigma = measure.Watt(math.Sqrt(sse / f.DOF))
	} else {
		f.DOF = 0
	}
	return f
}

// linear takes the standardisation out of weights.
func (pr *problem) linear(w []float64) Linear {
	l := Linear{Coefficients: make([]float64, len(pr.mean))}
	at := pr.yMean
	for k, j := range pr.active {
		l.Coefficients[j] = w[k] / pr.scale[j]
		at -= l.Coefficients[j] * pr.mean[j]
	}
	l.Intercept = measure.Watt(at)
	return l
}

// Data are the rows that a model is trained on or evaluated with, one for each kernel.
type Data struct {
	Counters []string // names of the columns, each once
	Rows     []Row
}

// Row is one kernel.
type Row struct {
	Name  string       `json:"name"`
	Group string       `json:"app,omitempty"` // the application it belongs to; empty where none is known
	Power measure.Watt `json:"power_w"`       // above zero; NaN where it is to be estimated
	X     []float64    `json:"x"`             // in the order of the counters
}

// Errors about data that a model cannot be made of wrap these.
var (
	ErrData    = errors.New("no data for a model")
	ErrOptions = errors.New("no such model")
)

// check refuses unusable data. Errors wrap ErrData.
func (d *Data) check() error {
	if len(d.Counters) == 0 {
		return fmt.Errorf("%w: no counter: name at least one", ErrData)
	}
	seen := map[string]bool{}
	for _, c := range d.Counters {
		if seen[c] {
			return fmt.Errorf("%w: counter %q is there twice: leave one out", ErrData, c)
		}
		seen[c] = true
	}
	for i, r := range d.Rows {
		if len(r.X) != len(d.Counters) {
			return fmt.Errorf("%w: row %d (%s): %d values for %d counters", ErrData, i+1, r.Name, len(r.X),
				len(d.Counters))
		}
		for j, v := range r.X {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: row %d (%s): counter %q is %v: correct it or leave the row out", ErrData, i+1,
					r.Name, d.Counters[j], v)
			}
		}
		if p := float64(r.Power); !(p > 0) || math.IsInf(p, 0) {
			return fmt.Errorf("%w: row %d (%s): power %v W is not above zero: correct it or leave the row out", ErrData,
				i+1, r.Name, p)
		}
	}
	return nil
}

// without returns all rows but those of a fold.
func (d *Data) without(fold int, folds []int) *Data {
	out := &Data{Counters: d.Counters, Rows: make([]Row, 0, len(d.Rows))}
	for i, f := range folds {
		if f != fold {
			out.Rows = append(out.Rows, d.Rows[i])
		}
	}
	return out
}
