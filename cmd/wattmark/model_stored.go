package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/analysis/counters"
	"wattmark/analysis/model"
	"wattmark/measure"
	"wattmark/store"
)

// storedModel is a model with its place in the database.
type storedModel struct {
	store.Analysis
	Content *modelDocument
}

func (m *storedModel) id() string {
	if m.Version == 0 {
		return m.Name // of a file
	}
	return fmt.Sprintf("%s@%d", m.Name, m.Version)
}

func (m *storedModel) scale() string {
	if m.Content.PerSecond {
		return string(counters.PerSecond)
	}
	return string(counters.AsIs)
}

// loadModel reads a model of the database, or a file that ends in .json.
func (a *app) loadModel(ctx context.Context, arg string) (*storedModel, error) {
	if strings.HasSuffix(arg, ".json") {
		data, err := os.ReadFile(arg)
		if err != nil {
			return nil, err
		}
		return readModel(store.Analysis{Kind: modelKind, Name: arg, Content: data})
	}
	name, version, err := splitModel(arg)
	if err != nil {
		return nil, err
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	s, err := db.Analysis(ctx, modelKind, name, version)
	if err != nil {
		return nil, a.noModel(err, arg)
	}
	return readModel(*s)
}

func (a *app) noModel(err error, arg string) error {
	if errors.Is(err, store.ErrNotFound) {
		return withCode(exitNotFound, fmt.Errorf("no model %q in %s: list them with wattmark model list", arg, a.db))
	}
	return err
}

// readModel reads and checks a model's content, which may be a file's.
func readModel(s store.Analysis) (*storedModel, error) {
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
		for _, h := range f.HeldRows {
			bad = bad || h.Model < 0 || h.Model >= len(f.Held)
		}
		for _, r := range doc.Training {
			bad = bad || len(r.X) != p
		}
		bad = bad || len(f.Weights) != p || len(f.Mean) != p || len(f.Scale) != p || len(f.Min) != p || len(f.Max) != p || len(f.Gram) != p*p || f.Rows < 1
	}
	if bad {
		return nil, fmt.Errorf("model %q: this is no model of this version of wattmark: fit it again", s.Name)
	}
	return &storedModel{Analysis: s, Content: &doc}, nil
}

// modelReport is what model show and fit print.
type modelReport struct {
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
	SigmaW    float64            `json:"sigma_w"`
	DOF       float64            `json:"dof"`
	Held      *heldDocument      `json:"cross_validation,omitempty"`
	// InterceptW and Shares are the model.
	InterceptW float64         `json:"intercept_w"`
	Shares     []shareReport   `json:"contributions,omitempty"`
	IntervalBy string          `json:"interval_by"`
	Warnings   []model.Warning `json:"warnings,omitempty"`
	Notes      []string        `json:"notes,omitempty"`
}

func newModelReport(m *storedModel) *modelReport {
	c := m.Content
	r := &modelReport{
		Name: m.Name, Version: m.Version, Maker: m.Maker, Tasks: m.Tasks, Set: c.Set, Features: c.Features, PerSecond: c.PerSecond,
		Method: string(c.Fit.Method), Alpha: c.Fit.Alpha, Rows: c.Fit.Rows, Files: c.Files, SigmaW: float64(c.Fit.Sigma), DOF: c.Fit.DOF,
		Held: c.Held, InterceptW: float64(c.Fit.Intercept), IntervalBy: c.IntervalBy, Warnings: c.Warnings, Notes: c.Notes,
	}
	if !m.Made.IsZero() {
		r.Made = m.Made.UTC().Format(time.RFC3339)
	}
	if len(c.Training) > 0 {
		var e evalReport
		e.share(c.data(), c.Fit)
		r.Shares = e.Shares
	}
	return r
}

func (a *app) printModel(m *storedModel) error {
	r := newModelReport(m)
	if a.json {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.out, "model %s: %s, α = %.4g, %d kernels, %d columns (%s)\n", measure.Printable(m.id()), r.Method, r.Alpha, r.Rows, len(r.Features), measure.Printable(r.Set))
	if h := r.Held; h != nil {
		fmt.Fprintf(a.out, "left out by %s: %.4g W², %.3g %%, bias %+.2g W; prediction intervals by leaving %s out\n", h.FoldBy, h.MSEW2, h.MAPEPct, h.BiasW, r.IntervalBy)
	}
	for _, f := range r.Features {
		if f.Formula != "" {
			fmt.Fprintf(a.out, "  %s = %s\n", measure.Printable(f.Name), measure.Printable(f.Formula))
		}
	}
	fmt.Fprintln(a.out)
	renderShares(a.out, r.Shares)
	renderWarnings(a.out, r.Warnings, r.Notes)
	return nil
}

func (a *app) modelShowCmd() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "show NAME[@VERSION]", Short: "Show a model", Args: cobra.ExactArgs(1), Example: "  wattmark model show gtx285\n  wattmark model show gtx285@1 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := a.loadModel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printModel(m)
		},
	})
}

func (a *app) modelListCmd() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "list", Short: "List the models", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			list, err := db.Analyses(cmd.Context(), modelKind)
			if err != nil {
				return err
			}
			return a.printModels(list)
		},
	})
}

func (a *app) printModels(list []store.Analysis) error {
	reports := []*modelReport{}
	for _, s := range list {
		m, err := readModel(s)
		if err != nil {
			return err
		}
		r := newModelReport(m)
		r.Shares, r.Warnings, r.Notes = nil, nil, nil
		reports = append(reports, r)
	}
	if a.json {
		return a.printJSON(map[string]any{"models": reports})
	}
	if len(reports) == 0 {
		fmt.Fprintf(a.out, "no model in %s: make one with wattmark model fit\n", a.db)
		return nil
	}
	t := newTable(a.out)
	t.AppendHeader(table.Row{"model", "version", "made", "method", "α", "kernels", "columns", "squared error", "error ratio", "left out by"})
	for _, r := range reports {
		row := table.Row{measure.Printable(r.Name), r.Version, r.Made, r.Method, fmt.Sprintf("%.4g", r.Alpha), r.Rows, len(r.Features)}
		if h := r.Held; h != nil {
			row = append(row, fmt.Sprintf("%.4g W²", h.MSEW2), fmt.Sprintf("%.3g %%", h.MAPEPct), h.FoldBy)
		}
		t.AppendRow(row)
	}
	t.Render()
	return nil
}

func (a *app) modelDeleteCmd() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete NAME[@VERSION]", Short: "Delete a model, or one version of it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, version, err := splitModel(args[0])
			if err != nil {
				return err
			}
			db, err := a.openToChange(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			n, err := a.deleteAnalysis(cmd.Context(), db, modelKind, "model", name, version, yes)
			if err != nil {
				return a.noModel(err, args[0])
			}
			if n == 0 {
				return nil
			}
			if a.json {
				return a.printJSON(map[string]any{"name": name, "deleted": n})
			}
			fmt.Fprintf(a.out, "deleted %d version(s) of %s\n", n, measure.Printable(name))
			return nil
		},
	}
	yesFlag(c.Flags(), &yes)
	return a.jsonFlag(c)
}
