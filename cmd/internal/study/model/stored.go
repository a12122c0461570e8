package model

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/counters"
	"github.com/wattmark/wattmark/analysis/model"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

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
	if m.Content.PerSecond {
		return counters.PerSecond
	}
	return counters.AsIs
}

// loadModel reads a model from a file, if arg ends in .json, else from the
// database by NAME or NAME@VERSION. An unknown name has exit code ExitNotFound.
func loadModel(a *cli.App, ctx context.Context, arg string) (*storedModel, error) {
	if strings.HasSuffix(arg, ".json") {
		data, err := os.ReadFile(arg)
		if err != nil {
			return nil, err
		}
		return readModel(&store.Analysis{Name: arg, Content: data})
	}
	x, err := kind.Get(a, ctx, arg)
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
	bad := doc.Format != 1 || f == nil || len(doc.Features) != len(f.Counters)
	if !bad {
		p := len(f.Counters)
		for _, l := range append([]model.Linear{f.Linear}, f.Held...) {
			bad = bad || len(l.Coefficients) != p
		}
		// An index out of range would otherwise panic in the intervals.
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
	Name      string             `json:"name"`
	Version   int                `json:"version"`
	Made      string             `json:"made,omitempty"`
	Maker     string             `json:"maker,omitempty"`
	Tasks     []store.TaskID     `json:"tasks,omitempty"`
	Set       string             `json:"set"`
	Features  []counters.Feature `json:"features"`
	PerSecond bool               `json:"per_second"`
	Method    string             `json:"method"`
	Alpha     float64            `json:"alpha"`
	Rows      int                `json:"rows"`
	Files     []string           `json:"files,omitempty"`
	Sigma     watt               `json:"sigma_w"`
	DOF       float64            `json:"dof"`
	Held      *heldDocument      `json:"cross_validation,omitempty"`
	// Intercept, and Shares computed on the training rows, are the model itself.
	Intercept  watt            `json:"intercept_w"`
	Shares     []shareReport   `json:"contributions,omitempty"`
	IntervalBy string          `json:"interval_by"`
	Warnings   []model.Warning `json:"warnings,omitempty"`
	Notes      []string        `json:"notes,omitempty"`
}

// newModelReport returns the report of m. Contributions need the training rows and
// are left out without them.
func newModelReport(m *storedModel) *ModelReport {
	c := m.Content
	r := &ModelReport{
		Name: m.Name, Version: m.Version, Maker: m.Maker, Tasks: m.Tasks, Set: c.Set, Features: c.Features,
		PerSecond: c.PerSecond, Method: string(c.Fit.Method), Alpha: c.Fit.Alpha, Rows: c.Fit.Rows, Files: c.Files,
		Sigma: c.Fit.Sigma, DOF: c.Fit.DOF, Held: c.Held, Intercept: c.Fit.Intercept,
		IntervalBy: c.IntervalBy, Warnings: c.Warnings, Notes: c.Notes,
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
		fmt.Fprintf(w, "model %s: %s, α = %.4g, %d kernels, %d columns (%s)\n", measure.Printable(m.id()), r.Method, r.Alpha,
			r.Rows, len(r.Features), measure.Printable(r.Set))
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

// printModels writes one line per model, without contributions and warnings.
func printModels(a *cli.App, list []*storedModel) error {
	reports := []*ModelReport{}
	for _, m := range list {
		r := newModelReport(m)
		r.Shares, r.Warnings, r.Notes = nil, nil, nil
		reports = append(reports, r)
	}
	return a.Print(map[string]any{"models": reports}, func(w io.Writer) {
		if len(reports) == 0 {
			fmt.Fprintf(w, "no model in %s: make one with wattmark model fit\n", a.DB)
			return
		}
		head := out.Row{
			"model", "version", "made", "method", "α", "kernels", "columns", "squared error", "error ratio", "left out by",
		}
		out.Table(w, head, reports, func(r *ModelReport) out.Row {
			row := out.Row{
				measure.Printable(r.Name), r.Version, r.Made, r.Method, fmt.Sprintf("%.4g", r.Alpha), r.Rows, len(r.Features),
			}
			if h := r.Held; h != nil {
				row = append(row, optional(h.MSE, "%.4g W²"), fmt.Sprintf("%.3g %%", h.MAPE), h.FoldBy)
			}
			return row
		})
	})
}
