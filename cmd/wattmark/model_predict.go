package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/analysis/counters"
	"wattmark/analysis/model"
)

// predictReport is what model predict and explain print.
type predictReport struct {
	Model    string          `json:"model"`
	File     string          `json:"file,omitempty"`
	Interval string          `json:"interval"`
	Level    float64         `json:"level"`
	Kernels  []rowReport     `json:"kernels"`
	Score    *model.Score    `json:"score,omitempty"` // where the file has powers
	Covered  *int            `json:"within_interval,omitempty"`
	Shares   []shareReport   `json:"contributions,omitempty"`
	Warnings []model.Warning `json:"warnings"`
	Notes    []string        `json:"notes,omitempty"`
}

// intervalFlags choose the prediction interval.
type intervalFlags struct {
	interval string
	level    float64
}

func (f *intervalFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.interval, "interval", "jackknife", "prediction interval: jackknife (jackknife+), analytic (ridge and ols) or none")
	c.Flags().Float64Var(&f.level, "level", 0.95, "probability that the interval holds the power")
}

func (f *intervalFlags) check() error {
	switch {
	case !slices.Contains([]string{"jackknife", "analytic", "none"}, f.interval):
		return withCode(exitUsage, fmt.Errorf("--interval %q: want jackknife, analytic or none", f.interval))
	case !(f.level > 0 && f.level < 1):
		return withCode(exitUsage, fmt.Errorf("--level %v: want more than 0 and less than 1", f.level))
	}
	return nil
}

func (f *intervalFlags) of(fit *model.Fit, x []float64) (model.Interval, bool) {
	switch f.interval {
	case "jackknife":
		return fit.Jackknife(x, f.level)
	case "analytic":
		return fit.Analytic(x, f.level)
	}
	return model.Interval{}, false
}

func (a *app) modelPredictCmd() *cobra.Command {
	var cf counterFlags
	var f intervalFlags
	c := &cobra.Command{
		Use: "predict MODEL FILE...", Short: "Estimate the power of kernels from their counters", Args: cobra.MinimumNArgs(2),
		Long: `Estimate the power of the kernels in the files by a stored model (NAME, NAME@VERSION,
or a file that ends in .json), with a prediction interval, and a warning where a
kernel is not like those that the model was trained on. The files need no power;
where they have one, errors are shown too.`,
		Example: "  wattmark model predict gtx285 new.csv\n  wattmark model predict gtx285@2 new.csv --level 0.9 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, _, err := a.predict(cmd.Context(), &cf, &f, args[0], args[1:])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r)
			}
			r.render(a.out)
			return nil
		},
	}
	cf.add(c)
	f.add(c)
	return a.jsonFlag(c)
}

func (a *app) predict(ctx context.Context, cf *counterFlags, f *intervalFlags, name string, files []string) (*predictReport, *model.Data, error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	m, err := a.loadModel(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	r := &predictReport{Model: m.id(), Interval: f.interval, Level: f.level, Kernels: []rowReport{}, Warnings: []model.Warning{}}
	d := m.Content.data()
	if len(files) > 0 {
		t, err := a.counterTable(ctx, cf, files)
		if err != nil {
			return nil, nil, modelUsage(err)
		}
		if d, err = t.Data(m.Content.Features, counters.Scale(m.scale())); err != nil {
			return nil, nil, modelUsage(fmt.Errorf("model %s: %w", m.id(), err))
		}
		r.File, r.Notes, r.Warnings = t.File, t.Notes, append(r.Warnings, t.Doubts(cf.minBlocks, measureSeconds(cf.minTime))...)
	}
	if err := r.estimate(m.Content.Fit, d, f); err != nil {
		return nil, nil, err
	}
	return r, d, nil
}

// estimate fills the rows.
func (r *predictReport) estimate(fit *model.Fit, d *model.Data, f *intervalFlags) error {
	list, err := fit.Apply(d)
	if err != nil {
		return err
	}
	var measured, estimated []watt
	inside, given := 0, 0
	for i, e := range list {
		x := newRowReport(d.Rows[i], e)
		if iv, ok := f.of(fit, d.Rows[i].X); ok {
			x.LowW, x.HighW = finite(float64(iv.Low)), finite(float64(iv.High))
			if given++; x.MeasuredW != nil && *x.MeasuredW >= float64(iv.Low) && *x.MeasuredW <= float64(iv.High) {
				inside++
			}
		}
		at := float64(fit.Intercept)
		x.InterceptW = &at
		for j, c := range e.Contributions {
			x.Added = append(x.Added, addedReport{d.Counters[j], float64(c)})
		}
		if x.MeasuredW != nil {
			measured, estimated = append(measured, d.Rows[i].Power), append(estimated, e.Power)
		}
		r.Kernels = append(r.Kernels, x)
	}
	if len(measured) == len(list) && len(list) > 0 {
		s := model.NewScore(measured, estimated)
		r.Score = &s
		if given == len(list) {
			r.Covered = &inside
		}
	}
	if given == 0 && f.interval != "none" {
		r.Notes = append(r.Notes, noInterval(fit, f))
	}
	return nil
}

func noInterval(fit *model.Fit, f *intervalFlags) string {
	if f.interval == "analytic" {
		return fmt.Sprintf("no analytic interval: it wants ridge or ols and degrees of freedom, the model is %s with %.3g", fit.Method, fit.DOF)
	}
	return fmt.Sprintf("no interval: %d training rows are too few for %g %%: lower --level or train with more", fit.Rows, 100*f.level)
}

func (r *predictReport) render(w io.Writer) {
	t := newTable(w)
	head := table.Row{"kernel", "estimated", fmt.Sprintf("%g %% interval", 100*r.Level)}
	if r.Score != nil {
		head = append(head, "measured", "error")
	}
	t.AppendHeader(append(head, ""))
	for _, k := range r.Kernels {
		row := table.Row{short(k.Name), fmt.Sprintf("%.1f W", k.EstimatedW), ""}
		if k.LowW != nil && k.HighW != nil {
			row[2] = fmt.Sprintf("%.1f to %.1f W", *k.LowW, *k.HighW)
		}
		if r.Score != nil {
			row = append(row, fmt.Sprintf("%.1f W", *k.MeasuredW), percent(*k.ErrorPct))
		}
		t.AppendRow(append(row, codes(k.Warnings)))
	}
	t.Render()
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

func codes(list []model.Warning) (out string) {
	var seen []model.Code
	for _, x := range list {
		if !slices.Contains(seen, x.Code) {
			seen = append(seen, x.Code)
			out = joinNonEmpty(", ", out, string(x.Code))
		}
	}
	return out
}
