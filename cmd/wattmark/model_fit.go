package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/counters"
	"wattmark/analysis/model"
	"wattmark/measure"
	"wattmark/store"
)

// modelKind is the kind under which models are stored.
const modelKind = "counter-model"

// modelDocument is a stored model.
type modelDocument struct {
	Format    int                `json:"format"` // 1
	Set       string             `json:"set"`
	Features  []counters.Feature `json:"features"`
	PerSecond bool               `json:"per_second"`
	Files     []string           `json:"files"`
	Fit       *model.Fit         `json:"fit"`
	// Held is the cross-validation that the model was judged by.
	Held       *heldDocument   `json:"cross_validation"`
	IntervalBy string          `json:"interval_by"` // rows or applications: what was left out for the intervals
	Training   []trainingRow   `json:"training"`
	Warnings   []model.Warning `json:"warnings"`
	Notes      []string        `json:"notes,omitempty"`
}

type heldDocument struct {
	FoldBy  string  `json:"fold_by"`
	Folds   int     `json:"folds"`
	MSEW2   float64 `json:"mse_w2"`
	MAPEPct float64 `json:"mape_pct"`
	BiasW   float64 `json:"bias_w"`
}

type trainingRow struct {
	Name   string    `json:"name"`
	App    string    `json:"app,omitempty"`
	PowerW float64   `json:"power_w"`
	X      []float64 `json:"x"`
}

// data is the training data of a stored model.
func (m *modelDocument) data() *model.Data {
	d := &model.Data{Counters: m.Fit.Counters}
	for _, r := range m.Training {
		d.Rows = append(d.Rows, model.Row{Name: r.Name, Group: r.App, Power: watt(r.PowerW), X: r.X})
	}
	return d
}

func (a *app) modelFitCmd() *cobra.Command {
	var cf counterFlags
	var ff featureFlags
	var tf trainFlags
	var name, by, out string
	c := &cobra.Command{
		Use: "fit FILE...", Short: "Fit power to counters and keep the model", Args: cobra.MinimumNArgs(1),
		Long: `Train on all rows of the files, judge the model by cross-validation, and keep it in
the task database under --name, as the next version of that name.

Several files are rows below each other, or passes of the same kernels with other
counters. NAME=FILE says which application a file is of. Powers come from a column,
from a file (--power), or from stored tasks (a column task, or --tasks).`,
		Example: `  wattmark model fit kernels.csv --name gtx285 --set full
  wattmark model fit pass1.csv pass2.csv pass3.csv --power power.csv --name h200 --set nsight-units
  wattmark model fit mem=mem.csv fma=fma.csv --tasks --name h200 --feature 'dram = dram__bytes.sum'
  wattmark model fit kernels.csv --name small --method lasso`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := tf.options(cmd)
			if err != nil {
				return err
			}
			if name == "" {
				return withCode(exitUsage, fmt.Errorf("name the model with --name"))
			}
			if n, v, err := splitModel(name); err != nil || v != 0 || n != name || measure.CheckText("the name", name) != nil {
				return withCode(exitUsage, fmt.Errorf("--name %q: want a printable name without @", name))
			}
			if !slices.Contains([]string{"auto", "rows", "applications"}, by) {
				return withCode(exitUsage, fmt.Errorf("--interval-by %q: want auto, rows or applications", by))
			}
			doc, err := a.fitModel(cmd.Context(), args, &cf, &ff, &tf, o, by)
			if err != nil {
				return modelUsage(err)
			}
			m, err := a.keepModel(cmd.Context(), name, doc, cf.tasksUsed)
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeFile(out, func(w io.Writer) error { return json.NewEncoder(w).Encode(doc) }); err != nil {
					return err
				}
			}
			return a.printModel(m)
		},
	}
	cf.add(c)
	ff.add(c)
	tf.add(c)
	fl := c.Flags()
	fl.StringVar(&name, "name", "", "name of the model, as the GPU's")
	fl.StringVar(&by, "interval-by", "auto", "leave rows or applications out for the prediction intervals; auto: applications where there are 20 or more")
	outFlag(fl, &out, "out", "file to write the model into as well", "JSON", ".json")
	return a.jsonFlag(c)
}

// fitModel reads, trains and judges.
func (a *app) fitModel(ctx context.Context, files []string, cf *counterFlags, ff *featureFlags, tf *trainFlags, o model.Options, by string) (*modelDocument, error) {
	t, err := a.counterTable(ctx, cf, files)
	if err != nil {
		return nil, err
	}
	set, err := ff.of(t)
	if err != nil {
		return nil, err
	}
	r, err := evaluate(t, set, cf, tf, o, ff.scale)
	if err != nil {
		return nil, err
	}
	d, err := modelData(t, set, ff.scale)
	if err != nil {
		return nil, err
	}
	f, err := model.Train(d, o)
	if err != nil {
		return nil, err
	}
	doc := &modelDocument{
		Format: 1, Set: set.Name, Features: set.Features, PerSecond: r.PerSecond, Files: files, Fit: f,
		Held: &heldDocument{r.FoldBy, r.Folds, r.MSEW2, r.MAPEPct, r.BiasW}, Warnings: r.Warnings, Notes: t.Notes,
	}
	for _, row := range d.Rows {
		doc.Training = append(doc.Training, trainingRow{row.Name, row.Group, float64(row.Power), row.X})
	}
	return doc, doc.calibrate(d, by)
}

// calibrate prepares the intervals.
func (m *modelDocument) calibrate(d *model.Data, by string) error {
	apps := map[string]bool{}
	whole := true
	for _, r := range d.Rows {
		apps[r.Group] = true
		whole = whole && r.Group != ""
	}
	const enough = 20
	if by == "auto" {
		if by = "rows"; whole && len(apps) >= enough {
			by = "applications"
		}
	}
	m.IntervalBy = by
	return m.Fit.Calibrate(d, by == "applications")
}

// keepModel stores a model, in a new database where there is none yet.
func (a *app) keepModel(ctx context.Context, name string, doc *modelDocument, tasks []store.TaskID) (*storedModel, error) {
	content, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	m := &storedModel{Analysis: store.Analysis{Kind: modelKind, Name: name, Made: time.Now(), Maker: "wattmark " + version(), Content: content, Tasks: tasks}, Content: doc}
	m.Version, err = db.PutAnalysis(ctx, m.Analysis)
	return m, err
}
