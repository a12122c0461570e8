package model

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/counters"
	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// modelEvalCmd returns model eval: cross-validation of one set of counters, of the paper's
// seven sets, or a stored model applied to a file. It reads files and, with --tasks, the
// database; it stores nothing.
func modelEvalCmd(a *cli.App) *cobra.Command {
	var f studyFlags
	var svg, stored string
	c := command(a, "eval FILE...", "Tell how well power follows from counters", cobra.MinimumNArgs(1),
		func(ctx context.Context, files []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			t, err := f.table(a, ctx, files)
			switch {
			case err != nil:
				return err
			case stored != "":
				return modelEvalStored(a, ctx, stored, t, svg)
			case strings.EqualFold(f.set, "paper"):
				return f.evalPaper(a, t, o, svg)
			}
			set, err := f.of(t)
			if err != nil {
				return err
			}
			r, err := f.evaluate(a, t, set, o)
			if err != nil {
				return err
			}
			return printEval(a, r, svg)
		})
	f.add(c)
	cli.SVGFlag(c.Flags(), &svg, "file to draw estimated against measured power into")
	c.Flags().StringVar(&stored, "model", "", "stored model, NAME or NAME@VERSION, to hold against the file")
	return c
}

// evaluate trains on all folds but one and estimates the one left out, for each
// fold in turn. The report holds the errors of the left-out rows, the same for the
// mean power alone, and the coefficients of a fit on all rows. Errors name the
// file.
func (f *studyFlags) evaluate(a *cli.App, t *counters.Table, set counters.Set, o model.Options) (*EvalReport, error) {
	d, err := trainingData(t, set, f.scale)
	if err != nil {
		return nil, err
	}
	folds, err := model.Folds(d, f.foldBy, f.folds, f.seed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	bar := a.Progress("folds")
	e, err := model.Evaluate(d, o, folds, bar.Set)
	bar.End()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	r := newEvalReport(t, set, d, t.PerSecond(f.scale))
	// The fold models differ in their coefficients; the one printed is trained on all rows.
	if r.fit, err = model.Train(d, o); err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	// The variance inflation belongs to the data, not to a fit.
	g, err := model.Diagnose(d)
	if err != nil {
		return nil, err
	}
	r.Method, r.FoldBy, r.Folds = string(o.Method), string(f.foldBy), e.Folds
	r.Score, r.Alpha, r.ConditionNumber = e.Score, measure.Number(r.fit.Alpha), measure.Number(g.Condition)
	r.Constant = &baseline{e.Constant.MSE, e.Constant.MAPE, constantMAPE(d)}
	// Least squares has no penalty, so no list.
	if math.IsNaN(o.Alpha) && o.Method != model.LeastSquares {
		r.Alphas = e.Alphas
	}
	for _, h := range e.Held {
		r.Kernels = append(r.Kernels, newRowReport(d.Rows[h.Row], h.Fold+1, h.Estimate))
	}
	r.groups()
	r.Shares = sharesOf(d, r.fit, g.VIF)
	r.Warnings = slices.Concat(r.Warnings, g.Warnings, e.Warnings, t.Doubts(f.minBlocks, f.minTime))
	return r, nil
}

// modelEvalStored applies a stored model to the rows of t, without training. The file
// needs every column of the model and a power per row. Of the warnings per row only a
// counter that was zero in all training rows is raised to the report, since its
// coefficient is unknown.
func modelEvalStored(a *cli.App, ctx context.Context, arg string, t *counters.Table, svg string) error {
	m, err := loadModel(a, ctx, arg)
	if err != nil {
		return err
	}
	// The counts are scaled as in the training, whatever --scale is.
	d, err := trainingData(t, counters.Set{Name: m.Name, Features: m.Content.Features}, m.scale())
	if err != nil {
		return err
	}
	list, err := m.Content.Fit.Apply(d)
	if err != nil {
		return fmt.Errorf("%s: %w", t.File, err)
	}
	r := newEvalReport(t, counters.Set{Name: m.Content.Set, Features: m.Content.Features}, d, m.Content.PerSecond)
	r.Model, r.Method, r.FoldBy = m.id(), string(m.Content.Fit.Method), "none: the model was stored before"
	r.Alpha = measure.Number(m.Content.Fit.Alpha)
	var measured, estimated []watt
	for i, e := range list {
		r.Kernels = append(r.Kernels, newRowReport(d.Rows[i], 0, e))
		measured, estimated = append(measured, d.Rows[i].Power), append(estimated, e.Power)
		for _, w := range e.Warnings {
			if w.Code == model.ZeroInTraining {
				w.Row = d.Rows[i].Name
				r.Warnings = append(r.Warnings, w)
			}
		}
	}
	r.Score = model.NewScore(measured, estimated)
	r.groups()
	r.Shares = sharesOf(d, m.Content.Fit, nil)
	return printEval(a, r, svg)
}

// evalPaper compares the seven models of Fig. 2 of Nagasaka et al. (2010) on the rows
// of t: one line per set, in the order of the paper. The folds are the same for every set,
// so that the errors compare.
func (f *studyFlags) evalPaper(a *cli.App, t *counters.Table, o model.Options, svg string) error {
	if svg != "" {
		return cli.Usagef("--svg draws one model: name it with --counters")
	}
	var list []*EvalReport
	for _, s := range counters.PaperSets() {
		r, err := f.evaluate(a, t, s, o)
		if err != nil {
			return err
		}
		list = append(list, r)
	}
	return a.Print(map[string]any{"models": list}, func(w io.Writer) {
		head := out.Row{"model", "columns", "squared error", "error ratio", "R²", "bias"}
		out.Table(w, head, list, func(r *EvalReport) out.Row {
			return out.Row{
				r.Set, len(r.Features), optional(r.MSE, "%.4g W²"), optional(r.MAPE, "%.3g %%"), optional(r.R2, "%.3f"),
				optional(r.Bias, "%+.3g W"),
			}
		})
	})
}

// modelExplainCmd returns model explain: the estimates of a stored model split by counter.
// Without files it explains the rows of the training.
func modelExplainCmd(a *cli.App) *cobra.Command {
	var cf counterFlags
	var svg string
	c := command(a, "explain MODEL [FILE...]", "Tell what each counter and the intercept add to an estimate",
		cobra.MinimumNArgs(1), func(ctx context.Context, args []string) error {
			f := intervalFlags{interval: "none", level: 0.95}
			r, err := f.predict(a, ctx, &cf, args[0], args[1:])
			if err != nil {
				return err
			}
			// The mean shares are those of the rows explained, not of the training.
			r.Shares = sharesOf(r.data, r.fit, nil)
			if err := out.ToFile(svg, r.drawParts); err != nil {
				return err
			}
			return a.Print(r, r.renderParts)
		})
	cli.Section(c.Flags(), "The files", func() { cf.add(c.Flags()) })
	cli.SVGFlag(c.Flags(), &svg, "file to draw stacked bars into")
	return c
}

// renderParts writes a table of mean contributions, then one row per kernel: estimate,
// intercept and each counter in watts. The columns follow r.Shares, whose first entry is
// the intercept.
func (r *PredictReport) renderParts(w io.Writer) {
	fmt.Fprintf(w, "model %s\n\n", measure.Printable(r.Model))
	renderShares(w, r.Shares)
	head := out.Row{"kernel", "estimated", "intercept"}
	for _, s := range r.Shares[1:] {
		head = append(head, short(s.Counter))
	}
	out.Table(w, head, r.Kernels, func(k rowReport) out.Row {
		row := out.Row{short(k.Name), optional(k.Estimated, "%.1f W"), optional(k.Intercept, "%+.1f")}
		for _, x := range k.Added {
			row = append(row, optional(x.W, "%+.1f"))
		}
		return row
	})
	fmt.Fprintln(w)
	renderWarnings(w, r.Warnings, r.Notes)
}

// PredictReport is the JSON of model predict and model explain. Powers are in W; Level is
// the nominal coverage, 0 to 1.
type PredictReport struct {
	Model    string      `json:"model"`
	File     string      `json:"file,omitempty"`
	Interval string      `json:"interval"`
	Level    float64     `json:"level"`
	Kernels  []rowReport `json:"kernels"`
	// Score and Covered are set only if every row has a measured power; Covered counts the
	// measured powers inside their intervals.
	Score    *model.Score    `json:"score,omitempty"`
	Covered  *int            `json:"within_interval,omitempty"`
	Shares   []shareReport   `json:"contributions,omitempty"`
	Warnings []model.Warning `json:"warnings"`
	Notes    []string        `json:"notes,omitempty"`

	fit  *model.Fit
	data *model.Data // of Kernels, in the same order
}

// intervalFlags choose the prediction interval and its level.
type intervalFlags struct {
	interval string
	level    float64
}

// of returns the interval of one row x, and false where the model does not allow one:
// jackknife+ needs enough training rows for the level, analytic needs ridge or least
// squares with degrees of freedom left.
func (f *intervalFlags) of(fit *model.Fit, x []float64) (model.Interval, bool) {
	switch f.interval {
	case "jackknife":
		return fit.Jackknife(x, f.level)
	case "analytic":
		return fit.Analytic(x, f.level)
	}
	return model.Interval{}, false
}

// modelPredictCmd returns model predict: estimates with prediction intervals for the rows
// of files, by a stored model.
func modelPredictCmd(a *cli.App) *cobra.Command {
	var cf counterFlags
	var f intervalFlags
	c := command(a, "predict MODEL FILE...", "Estimate the power of kernels from their counters", cobra.MinimumNArgs(2),
		func(ctx context.Context, args []string) error {
			r, err := f.predict(a, ctx, &cf, args[0], args[1:])
			if err != nil {
				return err
			}
			return a.Print(r, r.render)
		})
	cli.Section(c.Flags(), "The files", func() { cf.add(c.Flags()) })
	c.Flags().StringVar(&f.interval, "interval", "jackknife",
		"prediction interval: jackknife (jackknife+), analytic (ridge and ols) or none")
	c.Flags().Float64Var(&f.level, "level", 0.95, "probability that the interval holds the power")
	return c
}

// predict loads a model, reads the files and estimates their rows; without files it
// estimates the training rows. It refuses unknown kinds of interval, and levels outside
// (0, 1), as wrong usage.
func (f *intervalFlags) predict(a *cli.App, ctx context.Context, cf *counterFlags, name string, files []string) (
	*PredictReport, error,
) {
	switch {
	case !slices.Contains([]string{"jackknife", "analytic", "none"}, f.interval):
		return nil, cli.Usagef("--interval %q: want jackknife, analytic or none", f.interval)
	case !(f.level > 0 && f.level < 1):
		return nil, cli.Usagef("--level %v: want more than 0 and less than 1", f.level)
	}
	m, err := loadModel(a, ctx, name)
	if err != nil {
		return nil, err
	}
	r := &PredictReport{
		Model: m.id(), Interval: f.interval, Level: f.level, Kernels: []rowReport{}, Warnings: []model.Warning{},
		fit: m.Content.Fit, data: m.Content.data(),
	}
	if len(files) > 0 {
		t, err := cf.table(a, ctx, files)
		if err != nil {
			return nil, err
		}
		if r.data, err = t.Data(m.Content.Features, m.scale()); err != nil {
			return nil, fmt.Errorf("model %s: %w", m.id(), err)
		}
		r.File, r.Notes, r.Warnings = t.File, t.Notes, append(r.Warnings, t.Doubts(cf.minBlocks, cf.minTime)...)
	}
	return r, r.estimate(f)
}

// estimate appends one report row per row of the data: estimate, interval, contributions
// and, where measured, the error. It sets Score if every row has a power and Covered if
// every row also has an interval.
func (r *PredictReport) estimate(f *intervalFlags) error {
	list, err := r.fit.Apply(r.data)
	if err != nil {
		return err
	}
	var measured, estimated []watt
	// given counts rows with an interval, inside those whose measured power lies in it.
	inside, given := 0, 0
	for i, e := range list {
		x := newRowReport(r.data.Rows[i], 0, e)
		x.Intercept = r.fit.Intercept
		if iv, ok := f.of(r.fit, r.data.Rows[i].X); ok {
			x.Low, x.High = iv.Low, iv.High
			if given++; x.Measured >= iv.Low && x.Measured <= iv.High {
				inside++
			}
		}
		for j, c := range e.Contributions {
			x.Added = append(x.Added, addedReport{r.data.Counters[j], c})
		}
		if measure.Known(x.Measured) {
			measured, estimated = append(measured, x.Measured), append(estimated, e.Power)
		}
		r.Kernels = append(r.Kernels, x)
	}
	if len(measured) == len(list) && len(list) > 0 {
		if r.Score = new(model.NewScore(measured, estimated)); given == len(list) {
			r.Covered = &inside
		}
	}
	// No interval at all is a property of the model, noted once with its cause; a single row
	// without one shows as a blank.
	switch {
	case given > 0 || f.interval == "none":
	case f.interval == "analytic":
		r.Notes = append(r.Notes, fmt.Sprintf("no analytic interval: it wants ridge or ols and degrees of freedom, "+
			"the model is %s with %.3g", r.fit.Method, r.fit.DOF))
	default:
		r.Notes = append(r.Notes, fmt.Sprintf("no interval: %d training rows are too few for %g %%: lower --level or "+
			"train with more", r.fit.Rows, 100*f.level))
	}
	return nil
}

// render writes one line per kernel, the errors where measured, and the warnings.
func (r *PredictReport) render(w io.Writer) {
	head := out.Row{"kernel", "estimated", fmt.Sprintf("%g %% interval", 100*r.Level)}
	if r.Score != nil {
		head = append(head, "measured", "error")
	}
	out.Table(w, append(head, ""), r.Kernels, func(k rowReport) out.Row {
		row := out.Row{short(k.Name), optional(k.Estimated, "%.1f W"), ""}
		if measure.Known(k.Low) && measure.Known(k.High) {
			row[2] = fmt.Sprintf("%.1f to %.1f W", float64(k.Low), float64(k.High))
		}
		if r.Score != nil {
			row = append(row, optional(k.Measured, "%.1f W"), measure.FormatPercent(float64(k.ErrorPct)))
		}
		var codes []string
		for _, x := range k.Warnings {
			codes = lists.AddNew(codes, string(x.Code))
		}
		return append(row, strings.Join(codes, ", "))
	})
	if s := r.Score; s != nil {
		fmt.Fprintf(w, "\n%.4g W², %.3g %%, bias %+.2g W", float64(s.MSE), s.MAPE, float64(s.Bias))
		if r.Covered != nil {
			fmt.Fprintf(w, "; %d of %d powers lie within their intervals", *r.Covered, len(r.Kernels))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	var all []model.Warning
	for _, k := range r.Kernels {
		for _, x := range k.Warnings {
			x.Row = k.Name
			all = append(all, x)
		}
	}
	renderWarnings(w, append(all, r.Warnings...), r.Notes)
}
