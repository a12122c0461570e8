package model

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/counters"
	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/study/stored"
	"github.com/wattmark/wattmark/measure"
)

// kind selects counter models among the stored analyses.
var kind = stored.Kind{Kind: "counter-model", Noun: "model", Family: "model"}

// modelDocument is the stored form of a model, in JSON. It keeps the training rows, so
// that the model can be explained, and refitted by a later version, without the files.
type modelDocument struct {
	Format int    `json:"format"` // 1
	Set    string `json:"set"`
	// Features are the columns in the order of the coefficients. PerSecond: counts of events
	// were divided by the run's time before training.
	Features  []counters.Feature `json:"features"`
	PerSecond bool               `json:"per_second"`
	Files     []string           `json:"files"`
	Fit       *model.Fit         `json:"fit"`
	// Held holds the cross-validated errors: mean squared error in W², mean of
	// |error|/measured in percent, and mean of estimated − measured in W.
	Held *heldDocument `json:"cross_validation"`
	// IntervalBy is "rows" or "applications": the unit left out at a time for the jackknife+
	// intervals.
	IntervalBy string          `json:"interval_by"`
	Training   []trainingRow   `json:"training"`
	Warnings   []model.Warning `json:"warnings"`
	Notes      []string        `json:"notes,omitempty"`
}

// heldDocument is the outcome of the cross-validation at the time of the fit.
type heldDocument struct {
	FoldBy string           `json:"fold_by"`
	Folds  int              `json:"folds"`
	MSE    model.SquareWatt `json:"mse_w2"`
	MAPE   float64          `json:"mape_pct"`
	Bias   watt             `json:"bias_w"`
}

// trainingRow is one kernel of the training: power in W and the columns X, before
// standardisation, in the order of modelDocument.Features.
type trainingRow struct {
	Name  string    `json:"name"`
	App   string    `json:"app,omitempty"`
	Power watt      `json:"power_w"`
	X     []float64 `json:"x"`
}

// data returns the training rows as model.Data, as Train took them.
func (m *modelDocument) data() *model.Data {
	d := &model.Data{Counters: m.Fit.Counters}
	for _, r := range m.Training {
		d.Rows = append(d.Rows, model.Row{Name: r.Name, Group: r.App, Power: r.Power, X: r.X})
	}
	return d
}

// modelFitCmd returns model fit: train on all rows, cross-validate, prepare the prediction
// intervals, store as the next version of --name, and print. --out also writes the stored
// form to a file, which the other commands accept in place of a name.
func modelFitCmd(a *cli.App) *cobra.Command {
	var f studyFlags
	var name, by, out string
	c := command(a, "fit FILE...", "Fit power to counters and keep the model", cobra.MinimumNArgs(1),
		func(ctx context.Context, files []string) error {
			o, err := f.options()
			switch {
			case err != nil:
				return err
			case name == "":
				return cli.Usagef("name the model with --name")
			case strings.Contains(name, "@") || measure.CheckText("the name", name) != nil:
				return cli.Usagef("--name %q: want a printable name without @", name)
			case !slices.Contains([]string{"auto", "rows", "applications"}, by):
				return cli.Usagef("--interval-by %q: want auto, rows or applications", by)
			}
			doc, err := f.fit(a, ctx, files, o, by)
			if err != nil {
				return err
			}
			// The tasks whose powers were used are kept as references.
			x, err := kind.Keep(a, ctx, name, doc, f.tasksUsed)
			if err == nil && out != "" {
				err = cli.WriteFile(out, func(w io.Writer) error { return json.NewEncoder(w).Encode(doc) })
			}
			if err != nil {
				return err
			}
			return printModel(a, &storedModel{Analysis: x, Content: doc})
		})
	f.add(c)
	fl := c.Flags()
	fl.StringVar(&name, "name", "", "name of the model, as the GPU's")
	fl.StringVar(&by, "interval-by", "auto",
		"leave rows or applications out for the prediction intervals; auto: applications where there are 20 or more")
	cli.OutFlag(fl, &out, "out", "file to write the model into as well", "JSON", ".json")
	return c
}

// fit reads the files, cross-validates, and trains on all rows. It stores nothing. by is the
// unit left out for the residuals that jackknife+ needs. With "auto" it is the application
// where every row names one and there are 20 or more: kernels of one program resemble each
// other, and leaving out single rows would make the intervals too narrow. Jackknife+ at
// 95 % needs 19 units at least.
func (f *studyFlags) fit(a *cli.App, ctx context.Context, files []string, o model.Options, by string) (*modelDocument,
	error,
) {
	t, err := f.table(a, ctx, files)
	if err != nil {
		return nil, err
	}
	set, err := f.of(t)
	if err != nil {
		return nil, err
	}
	r, err := f.evaluate(t, set, o)
	if err != nil {
		return nil, err
	}
	doc := &modelDocument{
		Format: 1, Set: set.Name, Features: set.Features, PerSecond: r.PerSecond, Files: files, Fit: r.fit,
		Held: &heldDocument{r.FoldBy, r.Folds, r.MSE, r.MAPE, r.Bias}, Warnings: r.Warnings, Notes: t.Notes,
	}
	apps, all := map[string]bool{}, true // all rows name an application
	for _, row := range r.data.Rows {
		doc.Training = append(doc.Training, trainingRow{row.Name, row.Group, row.Power, row.X})
		apps[row.Group] = true
		all = all && row.Group != ""
	}
	const enough = 20
	if by == "auto" {
		if by = "rows"; all && len(apps) >= enough {
			by = "applications"
		}
	}
	doc.IntervalBy = by
	return doc, doc.Fit.Calibrate(r.data, by == "applications")
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

// add defines the flags on c.
func (f *intervalFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.interval, "interval", "jackknife",
		"prediction interval: jackknife (jackknife+), analytic (ridge and ols) or none")
	c.Flags().Float64Var(&f.level, "level", 0.95, "probability that the interval holds the power")
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
	cf.add(c)
	f.add(c)
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
		s := model.NewScore(measured, estimated)
		if r.Score = &s; given == len(list) {
			r.Covered = &inside
		}
	}
	// No interval at all is a property of the model, noted once with its cause; a single row
	// without one shows as a blank.
	switch {
	case given > 0 || f.interval == "none":
	case f.interval == "analytic":
		r.Notes = append(r.Notes, fmt.Sprintf("no analytic interval: it wants ridge or ols and degrees of freedom, the "+
			"model is %s with %.3g", r.fit.Method, r.fit.DOF))
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
		return append(row, codes(k.Warnings))
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

// codes joins the codes of the warnings, each once, in order of appearance.
func codes(list []model.Warning) string {
	var seen []string
	for _, x := range list {
		if !slices.Contains(seen, string(x.Code)) {
			seen = append(seen, string(x.Code))
		}
	}
	return strings.Join(seen, ", ")
}
