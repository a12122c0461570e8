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
			r, err := f.evaluate(t, set, o)
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
func (f *studyFlags) evaluate(t *counters.Table, set counters.Set, o model.Options) (*EvalReport, error) {
	d, err := trainingData(t, set, f.scale)
	if err != nil {
		return nil, err
	}
	folds, err := model.Folds(d, f.foldBy, f.folds, f.seed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	e, err := model.Evaluate(d, o, folds)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	r := newEvalReport(t, set, d, t.PerSecond(f.scale))
	// The fold models differ in their coefficients; the one printed is trained on all rows.
	if r.fit, err = model.Train(d, o); err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
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
		return cli.Usagef("--svg draws one model: name it with --set")
	}
	var list []*EvalReport
	for _, s := range counters.PaperSets() {
		r, err := f.evaluate(t, s, o)
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
			if svg != "" {
				if err := cli.WriteFile(svg, r.drawParts); err != nil {
					return err
				}
			}
			return a.Print(r, r.renderParts)
		})
	cf.add(c)
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
