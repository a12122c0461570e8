package model

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/counters"
	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/study/stored"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// kind selects counter models among the stored analyses.
var kind = stored.Kind{Kind: "counter-model", Noun: "model", Family: "model"}

// modelDocument is the stored form of a model, in JSON. It keeps the training rows, so
// that the model can be explained, and refitted by a later version, without the files.
type modelDocument struct {
	Format int `json:"format"` // 1
	modelHead
	Fit      *model.Fit  `json:"fit"`
	Training []model.Row `json:"training"` // X before standardisation, in the order of Features
}

// modelHead is the part of a model that its report shows as it is stored.
type modelHead struct {
	Set string `json:"set"`
	// Features are the columns in the order of the coefficients. PerSecond: counts of events
	// were divided by the run's time before training.
	Features  []counters.Feature `json:"features"`
	PerSecond bool               `json:"per_second"`
	Files     []string           `json:"files,omitempty"`
	// Held holds the cross-validated errors: mean squared error in W², mean of
	// |error|/measured in percent, and mean of estimated − measured in W.
	Held *heldDocument `json:"cross_validation,omitempty"`
	// IntervalBy is "rows" or "applications": the unit left out at a time for the jackknife+
	// intervals.
	IntervalBy string          `json:"interval_by"`
	Warnings   []model.Warning `json:"warnings,omitempty"`
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

// data returns the training rows as model.Data, as Train took them.
func (m *modelDocument) data() *model.Data {
	return &model.Data{Counters: m.Fit.Counters, Rows: m.Training}
}

// modelFitCmd returns model fit: train on all rows, cross-validate, prepare the prediction
// intervals, store as the next version of --name, and print. --output also writes the stored
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
			// Evaluated before it is stored: a set that cannot be cross-validated is not kept.
			doc, err := f.fit(a, ctx, files, o, by)
			if err != nil {
				return err
			}
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
	cli.OutFlag(fl, &out, "output", "file to write the model into as well", "JSON", ".json")
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
	r, err := f.evaluate(a, t, set, o)
	if err != nil {
		return nil, err
	}
	doc := &modelDocument{
		Format: 1, Fit: r.fit, Training: r.data.Rows, modelHead: modelHead{
			Set: set.Name, Features: set.Features, PerSecond: r.PerSecond, Files: files,
			Held: &heldDocument{r.FoldBy, r.Folds, r.MSE, r.MAPE, r.Bias}, Warnings: r.Warnings, Notes: t.Notes,
		},
	}
	apps, all := map[string]bool{}, true // all rows name an application
	for _, row := range r.data.Rows {
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

// storedModel is a model with its place in the database; of a file, Version is 0.
type storedModel struct {
	store.Analysis
	Content *modelDocument
}

// id returns NAME@VERSION, or the file's name.
func (m *storedModel) id() string {
	if m.Version == 0 {
		return m.Name // of a file
	}
	return fmt.Sprintf("%s@%d", m.Name, m.Version)
}

// scale returns the scaling of counts that the training used; predictions must use
// the same.
func (m *storedModel) scale() counters.Scale {
	return map[bool]counters.Scale{true: counters.PerSecond, false: counters.AsIs}[m.Content.PerSecond]
}

// loadModel reads a model from a file, if arg ends in .json, else from the
// database by NAME or NAME@VERSION. An unknown name has exit code ExitNotFound.
func loadModel(a *cli.App, ctx context.Context, arg string) (*storedModel, error) {
	x, err := &store.Analysis{Name: arg}, error(nil)
	if strings.HasSuffix(arg, ".json") {
		x.Content, err = os.ReadFile(arg)
	} else {
		x, err = kind.Get(a, ctx, arg)
	}
	if err != nil {
		return nil, err
	}
	return readModel(x)
}

// readModel decodes and validates a model. The content may come from a foreign
// file, so every length and index that the estimates rely on is checked here;
// estimates then cannot run out of range.
func readModel(s *store.Analysis) (*storedModel, error) {
	var doc modelDocument
	if err := json.Unmarshal(s.Content, &doc); err != nil {
		return nil, fmt.Errorf("model %q: %w", s.Name, err)
	}
	f := doc.Fit
	// Every column needs a coefficient, and every left-out row a model.
	bad := doc.Format != 1 || f == nil || len(doc.Features) != len(f.Counters)
	if !bad {
		p := len(f.Counters)
		for _, l := range append([]model.Linear{f.Linear}, f.Held...) {
			bad = bad || len(l.Coefficients) != p
		}
		for _, h := range f.HeldRows {
			bad = bad || h.Model < 0 || h.Model >= len(f.Held)
		}
		for _, r := range doc.Training {
			bad = bad || len(r.X) != p
		}
		bad = bad || len(f.Weights) != p || len(f.Mean) != p || len(f.Scale) != p || len(f.Min) != p ||
			len(f.Max) != p || len(f.Gram) != p*p || f.Rows < 1
	}
	if bad {
		return nil, fmt.Errorf("model %q: this is no model of this version of wattmark: fit it again", s.Name)
	}
	return &storedModel{Analysis: *s, Content: &doc}, nil
}

// ModelReport is the JSON of model show, list and fit. Sigma is the residual
// standard deviation in W with DOF effective degrees of freedom.
type ModelReport struct {
	Name    string         `json:"name"`
	Version int            `json:"version"`
	Made    string         `json:"made,omitempty"`
	Maker   string         `json:"maker,omitempty"`
	Tasks   []store.TaskID `json:"tasks,omitempty"`
	modelHead
	Method string  `json:"method"`
	Alpha  float64 `json:"alpha"`
	Rows   int     `json:"rows"`
	Sigma  watt    `json:"sigma_w"`
	DOF    float64 `json:"dof"`
	// Intercept, and Shares computed on the training rows, are the model itself.
	Intercept watt          `json:"intercept_w"`
	Shares    []shareReport `json:"contributions,omitempty"`
}

// newModelReport returns the report of m. Contributions need the training rows and
// are left out without them.
func newModelReport(m *storedModel) *ModelReport {
	c := m.Content
	r := &ModelReport{
		Name: m.Name, Version: m.Version, Maker: m.Maker, Tasks: m.Tasks, modelHead: c.modelHead,
		Method: string(c.Fit.Method), Alpha: c.Fit.Alpha, Rows: c.Fit.Rows, Sigma: c.Fit.Sigma, DOF: c.Fit.DOF,
		Intercept: c.Fit.Intercept,
	}
	if !m.Made.IsZero() {
		r.Made = m.Made.UTC().Format(time.RFC3339)
	}
	if len(c.Training) > 0 {
		r.Shares = sharesOf(c.data(), c.Fit, nil)
	}
	return r
}

// printModel writes one model as JSON or text.
func printModel(a *cli.App, m *storedModel) error {
	r := newModelReport(m)
	return a.Print(r, func(w io.Writer) {
		fmt.Fprintf(w, "model %s: %s, α = %.4g, %s, %d columns (%s)\n", measure.Printable(m.id()), r.Method, r.Alpha,
			measure.Plural(r.Rows, "kernel"), len(r.Features), measure.Printable(r.Set))
		if h := r.Held; h != nil {
			fmt.Fprintf(w, "left out by %s: %.4g W², %.3g %%, bias %+.2g W; prediction intervals by leaving %s out\n",
				h.FoldBy, float64(h.MSE), h.MAPE, float64(h.Bias), r.IntervalBy)
		}
		for _, f := range r.Features {
			if f.Formula != "" {
				fmt.Fprintf(w, "  %s = %s\n", measure.Printable(f.Name), measure.Printable(f.Formula))
			}
		}
		fmt.Fprintln(w)
		renderShares(w, r.Shares)
		renderWarnings(w, r.Warnings, r.Notes)
	})
}

// listModelsCmd returns model list: a line per model, without contributions and warnings.
func listModelsCmd(a *cli.App) *cobra.Command {
	read := func(x *store.Analysis) (*ModelReport, error) {
		m, err := readModel(x)
		if err != nil {
			return nil, err
		}
		r := newModelReport(m)
		r.Shares, r.Warnings, r.Notes = nil, nil, nil
		return r, nil
	}
	return stored.ListCmd(a, kind, "models", "List the models", read, "no model in %s: make one with wattmark model fit",
		out.Row{
			"model", "version", "--made", "method", "-α", "kernels", "columns", "squared error", "error ratio", "left out by",
		}, func(r *ModelReport) out.Row {
			row := out.Row{
				measure.Printable(r.Name), r.Version, r.Made, r.Method, fmt.Sprintf("%.4g", r.Alpha), r.Rows, len(r.Features),
			}
			if h := r.Held; h != nil {
				row = append(row, optional(h.MSE, "%.4g W²"), fmt.Sprintf("%.3g %%", h.MAPE), h.FoldBy)
			}
			return row
		})
}
