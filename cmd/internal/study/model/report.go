package model

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/charmbracelet/x/ansi"
	"github.com/wattmark/wattmark/analysis/counters"
	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

type watt = measure.Watt

// EvalReport is the JSON of model eval. Powers are in W, ratios in percent; a figure that
// does not exist, such as R² of equal powers, is NaN: null or left out.
type EvalReport struct {
	File      string             `json:"file"`
	Form      string             `json:"form"`
	Model     string             `json:"model,omitempty"`
	Set       string             `json:"set"`
	Features  []counters.Feature `json:"features"`
	PerSecond bool               `json:"per_second"`
	Rows      int                `json:"rows"`
	Method    string             `json:"method"`
	// Alpha is the weight of the penalty for all rows, chosen or given; Alphas are
	// those that the folds chose, with --alpha auto.
	Alpha  measure.Number `json:"alpha,omitzero"`
	Alphas []float64      `json:"alphas,omitempty"`
	Folds  int            `json:"folds,omitempty"`
	FoldBy string         `json:"fold_by"`

	model.Score // of the left-out rows
	// Constant is the error of the mean power as the only estimate: a model worth having is better.
	Constant *baseline `json:"constant,omitempty"`

	// ConditionNumber is that of the standardised columns; large values mean that
	// coefficients are not determined separately.
	ConditionNumber measure.Number  `json:"condition_number,omitzero"`
	Shares          []shareReport   `json:"contributions"`
	Kernels         []rowReport     `json:"kernels"`
	Groups          []groupScore    `json:"groups,omitempty"`
	Warnings        []model.Warning `json:"warnings"`
	Notes           []string        `json:"notes,omitempty"`

	data *model.Data // of Kernels, in the same order
	fit  *model.Fit  // to all rows; nil where a stored model was applied
}

// baseline holds the errors of an estimate by the mean power alone.
type baseline struct {
	MSE  model.SquareWatt `json:"mse_w2"`
	MAPE float64          `json:"mape_pct"`
	// MAPEInSample uses the mean of all rows, with none left out.
	MAPEInSample float64 `json:"mape_in_sample_pct"`
}

// shareReport is the contribution of one counter, or of the intercept, to the estimates.
type shareReport struct {
	Counter     string         `json:"counter"`
	Coefficient measure.Number `json:"coefficient,omitzero"` // watts a unit
	Weight      watt           `json:"weight_w,omitzero"`    // watts a standard deviation
	Mean        watt           `json:"mean_w"`
	// Share is the mean over the kernels of the part of the estimate, in percent.
	Share float64 `json:"share_pct"`
	// VIF is the variance inflation factor 1/(1−R²) of the column regressed on the others.
	VIF measure.Number `json:"vif,omitzero"`
}

// rowReport is one kernel: estimate, and error where it was measured. Low and High bound the prediction interval;
// Fold counts from 1, 0 without cross-validation. An unknown figure is NaN, and left out.
type rowReport struct {
	Name      string          `json:"name"`
	App       string          `json:"app,omitempty"`
	Fold      int             `json:"fold,omitempty"`
	Measured  watt            `json:"measured_w,omitzero"`
	Estimated watt            `json:"estimated_w"`
	Error     watt            `json:"error_w,omitzero"` // estimated − measured
	ErrorPct  measure.Number  `json:"error_pct,omitzero"`
	Low       watt            `json:"low_w,omitzero"`
	High      watt            `json:"high_w,omitzero"`
	Leverage  measure.Number  `json:"leverage"`
	Intercept watt            `json:"intercept_w,omitzero"`
	Added     []addedReport   `json:"contributions,omitempty"`
	Warnings  []model.Warning `json:"warnings,omitempty"`
}

type addedReport struct {
	Counter string `json:"counter"`
	W       watt   `json:"w"`
}

// groupScore is one application.
type groupScore struct {
	App  string  `json:"app"`
	Rows int     `json:"rows"`
	Bias watt    `json:"bias_w"`
	MAPE float64 `json:"mape_pct"`
}

// unknown is a figure that does not exist.
var unknown = math.NaN()

// newEvalReport returns a report with the input's description and empty, non-nil lists, which JSON shows as [].
func newEvalReport(t *counters.Table, s counters.Set, d *model.Data, perSecond bool) *EvalReport {
	return &EvalReport{
		File: t.File, Form: string(t.Form), Set: s.Name, Features: s.Features, PerSecond: perSecond, Rows: len(d.Rows),
		Kernels: []rowReport{}, Warnings: []model.Warning{}, Notes: t.Notes, ConditionNumber: measure.Number(unknown),
		data: d,
	}
}

// newRowReport returns a row with its estimate, and its error where power was measured.
func newRowReport(row model.Row, fold int, e model.Estimate) rowReport {
	return rowReport{
		Name: row.Name, App: row.Group, Fold: fold, Measured: row.Power, Estimated: e.Power, Error: e.Power - row.Power,
		ErrorPct: measure.Number(100 * (e.Power - row.Power) / row.Power), Low: watt(unknown), High: watt(unknown),
		Leverage: measure.Number(e.Leverage), Intercept: watt(unknown), Warnings: e.Warnings,
	}
}

// groups averages the errors of each application, largest MAPE first. If any row
// names no application there are no groups: a partial list would look complete.
func (r *EvalReport) groups() {
	if slices.ContainsFunc(r.Kernels, func(k rowReport) bool { return k.App == "" }) {
		return
	}
	at := map[string]int{}
	for _, k := range r.Kernels {
		i, seen := at[k.App]
		if !seen {
			i = len(r.Groups)
			at[k.App] = i
			r.Groups = append(r.Groups, groupScore{App: k.App})
		}
		g := &r.Groups[i]
		g.Rows, g.Bias, g.MAPE = g.Rows+1, g.Bias+k.Error, g.MAPE+math.Abs(float64(k.ErrorPct))
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		g.Bias, g.MAPE = g.Bias/watt(g.Rows), g.MAPE/float64(g.Rows)
	}
	slices.SortStableFunc(r.Groups, func(a, b groupScore) int { return cmp.Compare(b.MAPE, a.MAPE) })
}

// sharesOf returns the mean contribution of each counter under f, in W and as the
// mean over the kernels of its part of the estimate (Nagasaka et al., Fig. 4). The
// intercept comes first. vif holds the variance inflation of each counter; nil for none.
func sharesOf(d *model.Data, f *model.Fit, vif []float64) []shareReport {
	nan := measure.Number(unknown)
	shares := []shareReport{{Counter: "intercept", Mean: f.Intercept, Coefficient: nan, Weight: watt(unknown), VIF: nan}}
	for j, name := range d.Counters {
		shares = append(shares, shareReport{
			Counter: name, Coefficient: measure.Number(f.Coefficients[j]), Weight: f.Weights[j], VIF: nan,
		})
		if vif != nil {
			shares[j+1].VIF = measure.Number(vif[j])
		}
	}
	n := float64(len(d.Rows))
	for _, row := range d.Rows {
		p := float64(f.Power(row.X))
		shares[0].Share += 100 * float64(f.Intercept) / p / n
		for j, c := range f.Coefficients {
			shares[j+1].Mean += watt(c * row.X[j] / n)
			shares[j+1].Share += 100 * c * row.X[j] / p / n
		}
	}
	return shares
}

// constantMAPE returns the mean absolute percentage error of the mean of all rows.
// Unlike baseline.MAPE no row is left out.
func constantMAPE(d *model.Data) float64 {
	var mean watt
	measured := lists.Map(d.Rows, func(r model.Row) watt {
		mean += r.Power / watt(len(d.Rows))
		return r.Power
	})
	return model.NewScore(measured, slices.Repeat([]watt{mean}, len(measured))).MAPE
}

// printEval draws the SVG if named, then prints JSON or text.
func printEval(a *cli.App, r *EvalReport, svg string) error {
	if err := out.ToFile(svg, func(w io.Writer) error { return r.against().WriteSVG(w) }); err != nil {
		return err
	}
	return a.Print(r, func(w io.Writer) {
		r.render(w)
		if svg != "" {
			fmt.Fprintf(w, "drawn into %s\n", svg)
		}
	})
}

// optional formats v, or returns "" where it is unknown.
func optional[T ~float64](v T, format string) string { return out.Known(v, format, "") }

// render writes errors, contributions, the kernels with the largest errors, and warnings.
func (r *EvalReport) render(w io.Writer) {
	how := fmt.Sprintf("%d folds by %s", r.Folds, r.FoldBy)
	if r.Model != "" {
		how = "model " + r.Model + ", trained before"
	}
	// Least squares has no α, and a chosen one differs from fold to fold.
	alpha := ""
	if r.Method != string(model.LeastSquares) {
		alpha = optional(r.Alpha, ", α = %.4g")
		if r.Alphas != nil {
			alpha = fmt.Sprintf(", α chosen in every fold: %.3g to %.3g", slices.Min(r.Alphas), slices.Max(r.Alphas))
		}
	}
	scaled := map[bool]string{true: ", counts per second"}[r.PerSecond]
	fmt.Fprintf(w, "%s: %s, %d columns (%s)%s\n%s%s, %s\n\n", measure.Printable(r.File), measure.Plural(r.Rows, "kernel"),
		len(r.Features), measure.Printable(r.Set), scaled, r.Method, alpha, how)
	t := out.NewTable(w, "", "squared error", "error ratio", "R²", "bias")
	row := func(name string, mse model.SquareWatt, mape float64, more ...any) {
		t.AppendRow(append(out.Row{name, optional(mse, "%.4f W²"), optional(mape, "%.4f %%")}, more...))
	}
	row("this model", r.MSE, r.MAPE, optional(r.R2, "%.4f"), optional(r.Bias, "%+.3f W"))
	if c := r.Constant; c != nil {
		row("the mean alone", c.MSE, c.MAPE, "", "")
		row("the same, no row left out", model.SquareWatt(unknown), c.MAPEInSample, "", "")
	}
	t.Render()
	fmt.Fprintln(w)
	renderShares(w, r.Shares)
	r.renderWorst(w)
	renderWarnings(w, r.Warnings, r.Notes)
}

// renderShares writes one line per contribution, the intercept first.
func renderShares(w io.Writer, shares []shareReport) {
	head := out.Row{"adds", "mean", "part of the estimate", "W a standard deviation", "VIF"}
	out.Table(w, head, shares, func(s shareReport) out.Row {
		return out.Row{
			measure.Printable(s.Counter), fmt.Sprintf("%+.2f W", float64(s.Mean)), fmt.Sprintf("%+.1f %%", s.Share),
			optional(s.Weight, "%+.3g"), optional(s.VIF, "%.3g"),
		}
	})
	fmt.Fprintln(w)
}

// renderWorst writes the ten kernels with the largest relative error.
func (r *EvalReport) renderWorst(w io.Writer) {
	const most = 10
	size := func(k rowReport) float64 { return math.Abs(float64(k.ErrorPct)) }
	list := slices.Clone(r.Kernels)
	slices.SortStableFunc(list, func(a, b rowReport) int { return cmp.Compare(size(b), size(a)) })
	head := out.Row{"missed most", "measured", "estimated", "error", ""}
	out.Table(w, head, list[:min(most, len(list))], func(k rowReport) out.Row {
		return out.Row{
			short(k.Name), optional(k.Measured, "%.1f W"), optional(k.Estimated, "%.1f W"), optional(k.Error, "%+.1f W"),
			measure.FormatPercent(float64(k.ErrorPct)),
		}
	})
	fmt.Fprintln(w)
}

// short limits a kernel's name to 48 letters: template arguments make hundreds.
func short(name string) string { return ansi.Truncate(measure.Printable(name), 48, "…") }

// renderWarnings writes at most twelve warnings, then all notes. Row names come
// from files and are made printable first.
func renderWarnings(w io.Writer, list []model.Warning, notes []string) {
	const most = 12
	for i, x := range list {
		if i == most {
			fmt.Fprintf(w, "warning: and %d more (--json has them all)\n", len(list)-most)
			break
		}
		fmt.Fprintf(w, "warning: %s\n", out.JoinNonEmpty(": ", short(x.Row), measure.Printable(x.Text)))
	}
	out.Each(w, "note: %s\n", lists.Map(notes, measure.Printable))
}

// against draws estimated over measured power, both in W and on the same scale, with the diagonal. Kernels unlike
// the training have their own symbol. Every row needs a measured power.
func (r *EvalReport) against() *figure.Chart {
	var fine, warned plotter.XYs
	low, high := math.Inf(1), math.Inf(-1)
	for _, k := range r.Kernels {
		p := plotter.XY{X: float64(k.Measured), Y: float64(k.Estimated)}
		low, high = min(low, p.X, p.Y), max(high, p.X, p.Y)
		if len(k.Warnings) > 0 {
			warned = append(warned, p)
		} else {
			fine = append(fine, p)
		}
	}
	// 5 % of margin, and 1 W where all powers are equal: the axes need an extent.
	room := max(0.05*(high-low), 1)
	low, high = low-room, high+room
	// Equal axes: the diagonal halves the plot, and a distance from it is an error in W.
	c := &figure.Chart{
		Title: fmt.Sprintf("%s: %.4g W², %.3g %%", r.Set, float64(r.MSE), r.MAPE),
		X:     "measured power / W", Y: "estimated power / W", XRange: [2]float64{low, high}, YRange: [2]float64{low, high},
		Width: 16 * vg.Centimeter, Height: 16 * vg.Centimeter,
	}
	c.Line("estimated = measured", figure.Style{Color: figure.Rule, Width: 1, Dashed: true},
		plotter.XYs{{X: low, Y: low}, {X: high, Y: high}})
	c.Line("kernel like the training", figure.Style{Color: figure.Blue, Radius: 2.5}, fine)
	c.Line("kernel unlike the training",
		figure.Style{Color: figure.Vermillion, Radius: 2.5, Shape: draw.PyramidGlyph{}}, warned)
	return c
}

// drawParts writes an SVG of stacked bars, one per kernel: positive contributions upward from 0, negative ones
// downward, the estimate as a dot and the measured power as a cross. The first share is the intercept.
func (r *PredictReport) drawParts(w io.Writer) error {
	pl := figure.New("model "+r.Model+": what adds to the estimated power", "kernel", "power / W")
	n := len(r.Kernels)
	var names []string
	var dots, measured plotter.XYs
	// The ends of the bars, as far as they are stacked.
	up, down := make([]float64, n), make([]float64, n)
	for i, k := range r.Kernels {
		names = append(names, ansi.Truncate(short(k.Name), 28, "…"))
		dots = append(dots, plotter.XY{X: float64(i), Y: float64(k.Estimated)})
		if measure.Known(k.Measured) {
			measured = append(measured, plotter.XY{X: float64(i), Y: float64(k.Measured)})
		}
	}
	for s := range r.Shares {
		if err := r.addLayer(pl, s, up, down); err != nil {
			return err
		}
	}
	if err := errors.Join(figure.Add(pl, "estimate", figure.Style{Color: figure.Ink, Radius: 2.5}, dots),
		figure.Add(pl, "measured", figure.Style{Color: figure.Ink, Radius: 2.5, Shape: draw.CrossGlyph{}}, measured),
	); err != nil {
		return err
	}
	pl.NominalX(names...)
	pl.X.Tick.Label.Rotation = math.Pi / 2
	pl.X.Tick.Label.XAlign, pl.X.Tick.Label.YAlign = text.XRight, text.YCenter
	pl.X.Min, pl.X.Max = -0.6, float64(n)-0.4
	// The legend lies inside at the top left: each of its lines takes about 5.5 % of the height.
	pl.Y.Max = max(slices.Max(up), 1) * (1.08 + 0.055*float64(len(r.Shares)+2))
	width := max(20, 0.45*float64(n)+6)
	return figure.Save(w, pl, vg.Length(width)*vg.Centimeter, 16*vg.Centimeter)
}

// addLayer stacks share s on those drawn before, in watts. up and down hold, per kernel,
// the ends of the bar above and below zero, and are moved by the share. Zero contributions
// draw nothing; the first box stands for all in the legend.
func (r *PredictReport) addLayer(pl *plot.Plot, s int, up, down []float64) error {
	const half = 0.4
	name, c := r.Shares[s].Counter, figure.Band
	if s > 0 {
		c = figure.Series(s - 1)
	}
	for i, k := range r.Kernels {
		v := float64(k.Intercept)
		if s > 0 {
			v = float64(k.Added[s-1].W)
		}
		if v == 0 {
			continue
		}
		from := up
		if v < 0 {
			from = down
		}
		x, y := float64(i), from[i]
		from[i] += v
		if err := figure.Box(pl, name, c, x-half, y, x+half, y+v); err != nil {
			return err
		}
		name = ""
	}
	return nil
}
