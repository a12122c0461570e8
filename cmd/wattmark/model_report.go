package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"wattmark/analysis/counters"
	"wattmark/analysis/model"
	"wattmark/measure"
)

type watt = measure.Watt

func measureSeconds(s float64) measure.Seconds { return measure.Seconds(s) }

// evalReport is what model eval prints.
type evalReport struct {
	File      string             `json:"file"`
	Form      string             `json:"form"`
	Model     string             `json:"model,omitempty"`
	Set       string             `json:"set"`
	Features  []counters.Feature `json:"features"`
	PerSecond bool               `json:"per_second"`
	Rows      int                `json:"rows"`
	Method    string             `json:"method"`
	Alpha     *float64           `json:"alpha,omitempty"` // of the whole, where it was chosen
	Alphas    []float64          `json:"alphas,omitempty"`
	Folds     int                `json:"folds,omitempty"`
	FoldBy    string             `json:"fold_by"`

	MSEW2    float64   `json:"mse_w2"`
	MAPEPct  float64   `json:"mape_pct"`
	R2       *float64  `json:"r2"`
	RMSEW    float64   `json:"rmse_w"`
	MAEW     float64   `json:"mae_w"`
	BiasW    float64   `json:"bias_w"`
	Constant *baseline `json:"constant,omitempty"`

	ConditionNumber *float64        `json:"condition_number,omitempty"`
	Shares          []shareReport   `json:"contributions"`
	Kernels         []rowReport     `json:"kernels"`
	Groups          []groupScore    `json:"groups,omitempty"`
	Warnings        []model.Warning `json:"warnings"`
	Notes           []string        `json:"notes,omitempty"`
}

// baseline is an estimate by the mean power alone.
type baseline struct {
	MSEW2   float64 `json:"mse_w2"`
	MAPEPct float64 `json:"mape_pct"`
	// MAPEInSamplePct is that of the mean of all rows, which are not left out.
	MAPEInSamplePct float64 `json:"mape_in_sample_pct"`
}

// shareReport is what a counter, or the intercept, adds to the estimates.
type shareReport struct {
	Counter     string   `json:"counter"`
	Coefficient *float64 `json:"coefficient,omitempty"` // watts a unit
	WeightW     *float64 `json:"weight_w,omitempty"`    // watts a standard deviation
	MeanW       float64  `json:"mean_w"`
	// SharePct is the mean over the kernels of the part of the estimate.
	SharePct float64  `json:"share_pct"`
	VIF      *float64 `json:"vif,omitempty"`
}

// rowReport is one kernel.
type rowReport struct {
	Name       string          `json:"name"`
	App        string          `json:"app,omitempty"`
	Fold       int             `json:"fold,omitempty"`
	MeasuredW  *float64        `json:"measured_w,omitempty"`
	EstimatedW float64         `json:"estimated_w"`
	ErrorW     *float64        `json:"error_w,omitempty"` // estimated − measured
	ErrorPct   *float64        `json:"error_pct,omitempty"`
	LowW       *float64        `json:"low_w,omitempty"`
	HighW      *float64        `json:"high_w,omitempty"`
	Leverage   *float64        `json:"leverage"`
	InterceptW *float64        `json:"intercept_w,omitempty"`
	Added      []addedReport   `json:"contributions,omitempty"`
	Warnings   []model.Warning `json:"warnings,omitempty"`
}

type addedReport struct {
	Counter string  `json:"counter"`
	W       float64 `json:"w"`
}

// groupScore is one application.
type groupScore struct {
	App     string  `json:"app"`
	Rows    int     `json:"rows"`
	BiasW   float64 `json:"bias_w"`
	MAPEPct float64 `json:"mape_pct"`
}

func newEvalReport(t *counters.Table, s counters.Set, d *model.Data, perSecond bool) *evalReport {
	return &evalReport{
		File: t.File, Form: string(t.Form), Set: s.Name, Features: s.Features, PerSecond: perSecond,
		Rows: len(d.Rows), Kernels: []rowReport{}, Warnings: []model.Warning{}, Notes: t.Notes,
	}
}

func (r *evalReport) setScore(s model.Score) {
	r.MSEW2, r.MAPEPct, r.R2 = float64(s.MSE), s.MAPE, finite(s.R2)
	r.RMSEW, r.MAEW, r.BiasW = float64(s.RMSE), float64(s.MAE), float64(s.Bias)
}

// alphas tells α: the given one, or what the folds and the whole chose.
func (r *evalReport) alphas(o model.Options, folds []float64, whole float64) {
	r.Alpha = &whole
	if math.IsNaN(o.Alpha) && o.Method != model.LeastSquares {
		r.Alphas = folds
	}
}

func (r *evalReport) diagnosis(g *model.Diagnosis) {
	r.ConditionNumber = finite(g.Condition)
	r.Warnings = append(r.Warnings, g.Warnings...)
	for i, f := range r.Features {
		r.Shares = append(r.Shares, shareReport{Counter: f.Name, VIF: finite(g.VIF[i])})
	}
}

func newRowReport(row model.Row, e model.Estimate) rowReport {
	x := rowReport{Name: row.Name, App: row.Group, EstimatedW: float64(e.Power), Leverage: finite(e.Leverage), Warnings: e.Warnings}
	if m := float64(row.Power); !math.IsNaN(m) {
		d := float64(e.Power) - m
		x.MeasuredW, x.ErrorW, x.ErrorPct = &m, &d, finite(100*d/m)
	}
	return x
}

func (r *evalReport) add(row model.Row, fold int, e model.Estimate) {
	x := newRowReport(row, e)
	x.Fold = fold
	r.Kernels = append(r.Kernels, x)
}

// groups sums up applications, the worst first.
func (r *evalReport) groups() {
	at := map[string]int{}
	for _, k := range r.Kernels {
		if k.App == "" {
			r.Groups = nil
			return
		}
		i, seen := at[k.App]
		if !seen {
			i = len(r.Groups)
			at[k.App] = i
			r.Groups = append(r.Groups, groupScore{App: k.App})
		}
		g := &r.Groups[i]
		g.Rows++
		g.BiasW += *k.ErrorW
		g.MAPEPct += math.Abs(*k.ErrorPct)
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		g.BiasW, g.MAPEPct = g.BiasW/float64(g.Rows), g.MAPEPct/float64(g.Rows)
	}
	slices.SortStableFunc(r.Groups, func(a, b groupScore) int { return cmp.Compare(b.MAPEPct, a.MAPEPct) })
}

// share works out what counters add on the mean, by the model of all rows
// (Nagasaka et al., Fig. 4).
func (r *evalReport) share(d *model.Data, f *model.Fit) {
	intercept := shareReport{Counter: "intercept", MeanW: float64(f.Intercept)}
	shares := make([]shareReport, len(d.Counters))
	n := float64(len(d.Rows))
	for _, row := range d.Rows {
		p := float64(f.Power(row.X))
		intercept.SharePct += 100 * float64(f.Intercept) / p / n
		for j, c := range f.Coefficients {
			shares[j].MeanW += c * row.X[j] / n
			shares[j].SharePct += 100 * c * row.X[j] / p / n
		}
	}
	for j, name := range d.Counters {
		shares[j].Counter = name
		shares[j].Coefficient, shares[j].WeightW = finite(f.Coefficients[j]), finite(float64(f.Weights[j]))
		if j < len(r.Shares) {
			shares[j].VIF = r.Shares[j].VIF
		}
	}
	r.Shares = append([]shareReport{intercept}, shares...)
}

// constantMAPE is the error ratio of the mean of all rows, none left out.
func constantMAPE(d *model.Data) float64 {
	measured, same := make([]watt, len(d.Rows)), make([]watt, len(d.Rows))
	var mean watt
	for i, r := range d.Rows {
		measured[i] = r.Power
		mean += r.Power / watt(len(d.Rows))
	}
	for i := range same {
		same[i] = mean
	}
	return model.NewScore(measured, same).MAPE
}

func (a *app) printEval(r *evalReport, svg string) error {
	if svg != "" {
		if err := writeFile(svg, func(w io.Writer) error { return drawAgainst(w, r) }); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(r)
	}
	r.render(a.out)
	if svg != "" {
		fmt.Fprintf(a.out, "drawn into %s\n", svg)
	}
	return nil
}

func optional(v *float64, format string) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf(format, *v)
}
