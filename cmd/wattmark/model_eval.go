package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/analysis/counters"
	"wattmark/analysis/model"
)

func (a *app) modelEvalCmd() *cobra.Command {
	var cf counterFlags
	var ff featureFlags
	var tf trainFlags
	var svg, stored string
	c := &cobra.Command{
		Use: "eval FILE...", Short: "Tell how well power follows from counters", Args: cobra.MinimumNArgs(1),
		Long: `Train without a part of the rows in turn and estimate that part: squared error
(mse_w2, W²), error ratio (mape_pct: mean of |error|/measured), R² and bias over all
left-out rows, beside an estimate by the mean alone.

Rows are standardised anew in every fold, by the population's standard deviation of
its training rows; the intercept is not penalised; ridge minimises SSE + α‖w‖².
With --alpha auto every fold chooses its α from its own training rows.

--fold-by group leaves whole applications out: kernels of one program resemble each
other, and a new program's kernels will not be in the training.
--set paper compares the paper's seven models. --model holds a stored model against
the file instead of training.`,
		Example: `  wattmark model eval kernels.csv --fold-by group
  wattmark model eval --alpha 1 --folds 10 --fold-by row-mod --json titanx-micros.csv
  wattmark model eval kernels.csv --set paper
  wattmark model eval --preset accelwattch --power power.csv counters.csv --svg errors.svg
  wattmark model eval texture-kernels.csv --model gtx285`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := tf.options(cmd)
			if err != nil {
				return err
			}
			t, err := a.counterTable(cmd.Context(), &cf, args)
			if err != nil {
				return modelUsage(err)
			}
			if stored != "" {
				return a.modelEvalStored(cmd.Context(), stored, t, svg)
			}
			if strings.EqualFold(ff.set, "paper") {
				return a.modelEvalPaper(t, &cf, &tf, o, ff.scale, svg)
			}
			set, err := ff.of(t)
			if err != nil {
				return err
			}
			r, err := evaluate(t, set, &cf, &tf, o, ff.scale)
			if err != nil {
				return modelUsage(err)
			}
			return a.printEval(r, svg)
		},
	}
	cf.add(c)
	ff.add(c)
	tf.add(c)
	svgFlag(c.Flags(), &svg, "file to draw estimated against measured power into")
	c.Flags().StringVar(&stored, "model", "", "stored model, NAME or NAME@VERSION, to hold against the file")
	return a.jsonFlag(c)
}

// evaluate cross-validates a set.
func evaluate(t *counters.Table, set counters.Set, cf *counterFlags, tf *trainFlags, o model.Options, scale string) (*evalReport, error) {
	d, err := modelData(t, set, scale)
	if err != nil {
		return nil, err
	}
	folds, err := model.Folds(d, model.FoldBy(tf.foldBy), tf.folds, tf.seed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	e, err := model.Evaluate(d, o, folds)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	whole, err := model.Train(d, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	g, err := model.Diagnose(d)
	if err != nil {
		return nil, err
	}
	r := newEvalReport(t, set, d, t.PerSecond(counters.Scale(scale)))
	r.Method, r.FoldBy, r.Folds = string(o.Method), tf.foldBy, e.Folds
	r.setScore(e.Score)
	r.Constant = &baseline{MSEW2: float64(e.Constant.MSE), MAPEPct: e.Constant.MAPE, MAPEInSamplePct: constantMAPE(d)}
	r.alphas(o, e.Alphas, whole.Alpha)
	r.diagnosis(g)
	for _, h := range e.Held {
		r.add(d.Rows[h.Row], h.Fold+1, h.Estimate)
	}
	r.groups()
	r.share(d, whole)
	r.Warnings = append(append(r.Warnings, e.Warnings...), t.Doubts(cf.minBlocks, measureSeconds(cf.minTime))...)
	return r, nil
}

// modelEvalStored holds a stored model against a file.
func (a *app) modelEvalStored(ctx context.Context, arg string, t *counters.Table, svg string) error {
	m, err := a.loadModel(ctx, arg)
	if err != nil {
		return err
	}
	d, err := modelData(t, counters.Set{Name: m.Name, Features: m.Content.Features}, m.scale())
	if err != nil {
		return err
	}
	list, err := m.Content.Fit.Apply(d)
	if err != nil {
		return fmt.Errorf("%s: %w", t.File, err)
	}
	r := newEvalReport(t, counters.Set{Name: m.Content.Set, Features: m.Content.Features}, d, m.Content.PerSecond)
	r.Model, r.Method, r.FoldBy = m.id(), string(m.Content.Fit.Method), "none: the model was stored before"
	r.Alpha = &m.Content.Fit.Alpha
	var measured, estimated []watt
	for i, e := range list {
		r.add(d.Rows[i], 0, e)
		measured, estimated = append(measured, d.Rows[i].Power), append(estimated, e.Power)
		for _, w := range e.Warnings {
			if w.Code == model.ZeroInTraining {
				w.Row = d.Rows[i].Name
				r.Warnings = append(r.Warnings, w)
			}
		}
	}
	r.setScore(model.NewScore(measured, estimated))
	r.groups()
	r.share(d, m.Content.Fit)
	return a.printEval(r, svg)
}

// modelEvalPaper compares the seven models of the paper's Fig. 2.
func (a *app) modelEvalPaper(t *counters.Table, cf *counterFlags, tf *trainFlags, o model.Options, scale, svg string) error {
	if svg != "" {
		return withCode(exitUsage, fmt.Errorf("--svg draws one model: name it with --set"))
	}
	var list []*evalReport
	for _, s := range counters.PaperSets() {
		r, err := evaluate(t, s, cf, tf, o, scale)
		if err != nil {
			return modelUsage(err)
		}
		list = append(list, r)
	}
	if a.json {
		return a.printJSON(map[string]any{"models": list})
	}
	w := newTable(a.out)
	w.AppendHeader(table.Row{"model", "columns", "squared error", "error ratio", "R²", "bias"})
	for _, r := range list {
		w.AppendRow(table.Row{r.Set, len(r.Features), fmt.Sprintf("%.4g W²", r.MSEW2), fmt.Sprintf("%.3g %%", r.MAPEPct), optional(r.R2, "%.3f"), fmt.Sprintf("%+.3g W", r.BiasW)})
	}
	w.Render()
	return nil
}
