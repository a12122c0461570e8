package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/predict"
	"wattmark/measure"
	"wattmark/store"
)

// predictionKind is the kind of analysis that models are stored as.
const predictionKind = "prediction"

// predictionContent is a model as it is stored: its points and options. The
// coefficients are written for others; here they are fitted again.
type predictionContent struct {
	Kernel  string          `json:"kernel,omitempty"`
	GPU     string          `json:"gpu,omitempty"`
	Options predict.Options `json:"options"`
	// Fitted: the resident blocks were fitted from the steps of the times.
	Fitted        bool               `json:"resident_fitted,omitempty"`
	FlopsPerBlock float64            `json:"flops_per_block,omitempty"`
	Off           measure.Watt       `json:"off_w"`
	Points        []predict.Point    `json:"points"`
	Others        []predict.Point    `json:"others,omitempty"` // held back, to be predicted
	Parameters    predict.Parameters `json:"parameters"`
	Round         predict.Round      `json:"round"`
}

// prediction is a model with what is known of it.
type prediction struct {
	predictionContent
	Name    string
	Version int
	Made    time.Time
	Tasks   []store.TaskID
	Doubts  []string
	model   *predict.Model
	// evaluation of Others, nil without.
	evaluation *predict.Evaluation
}

// model fits a model to its points.
func (c predictionContent) model(name string) (*prediction, error) {
	m, err := predict.Fit(c.Points, c.Options)
	if err != nil {
		return nil, err
	}
	p := &prediction{predictionContent: c, Name: name, model: m}
	p.Options, p.Points, p.Parameters = m.Options(), m.Points(), m.Parameters()
	if p.Round, err = m.Round(predict.Target{}); err != nil {
		return nil, err
	}
	if len(c.Others) > 0 {
		v, err := m.Evaluate(c.Others)
		if err != nil {
			return nil, err
		}
		p.evaluation = &v
	}
	return p, nil
}

// flopsPerBlock is the work of a block; a unit where nobody told.
func (c *predictionContent) flopsPerBlock() float64 {
	if c.FlopsPerBlock > 0 {
		return c.FlopsPerBlock
	}
	return 1
}

func (a *app) storePrediction(ctx context.Context, p *prediction, tasks []store.TaskID) error {
	content, err := json.Marshal(p.predictionContent)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer db.Close()
	p.Made, p.Tasks = time.Now(), tasks
	p.Version, err = db.PutAnalysis(ctx, store.Analysis{
		Kind: predictionKind, Name: p.Name, Made: p.Made, Maker: "wattmark " + version(), Content: content, Tasks: tasks,
	})
	return err
}

// loadPrediction reads a model by NAME or NAME@VERSION; without a name the only one.
func (a *app) loadPrediction(ctx context.Context, args []string) (*prediction, error) {
	name, number, err := "", 0, error(nil)
	if len(args) > 0 {
		if name, number, err = splitVersion(args[0]); err != nil {
			return nil, err
		}
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if name == "" {
		if name, err = onlyPrediction(ctx, db); err != nil {
			return nil, err
		}
	}
	x, err := db.Analysis(ctx, predictionKind, name, number)
	if errors.Is(err, store.ErrNotFound) {
		return nil, withCode(exitNotFound, fmt.Errorf("no prediction %s in %s: list them with wattmark predict list", strings.Join(args, " "), a.db))
	}
	if err != nil {
		return nil, err
	}
	return readPrediction(x)
}

func readPrediction(x *store.Analysis) (*prediction, error) {
	var c predictionContent
	err := json.Unmarshal(x.Content, &c)
	if err == nil {
		var p *prediction
		if p, err = c.model(x.Name); err == nil {
			p.Version, p.Made, p.Tasks = x.Version, x.Made, x.Tasks
			return p, nil
		}
	}
	return nil, fmt.Errorf("prediction %s@%d: its content is not a model of this program: %w", x.Name, x.Version, err)
}

// splitVersion parts NAME@VERSION.
func splitVersion(arg string) (name string, number int, err error) {
	name, text, ok := strings.Cut(arg, "@")
	if ok {
		number, err = strconv.Atoi(text)
	}
	if err != nil || ok && number < 1 || name == "" {
		return "", 0, withCode(exitUsage, fmt.Errorf("%q: write NAME, or NAME@2 for its second version", arg))
	}
	return name, number, nil
}

// onlyPrediction is the name of the only model there is.
func onlyPrediction(ctx context.Context, db *store.DB) (string, error) {
	list, err := db.Analyses(ctx, predictionKind)
	if err != nil {
		return "", err
	}
	names := map[string]bool{}
	for _, x := range list {
		names[x.Name] = true
	}
	switch len(names) {
	case 0:
		return "", withCode(exitNotFound, errors.New("no prediction is stored yet: make one with wattmark predict calibrate"))
	case 1:
		return list[0].Name, nil
	}
	return "", withCode(exitUsage, fmt.Errorf("there are %d predictions: name one (wattmark predict list)", len(names)))
}

func (a *app) predictListCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the stored models", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			list, err := db.Analyses(cmd.Context(), predictionKind)
			if err != nil {
				return err
			}
			var models []*prediction
			for i := range list {
				p, err := readPrediction(&list[i])
				if err != nil {
					fmt.Fprintln(a.err, "wattmark:", err)
					continue
				}
				models = append(models, p)
			}
			return a.printPredictions(models)
		},
	}
	return a.jsonFlag(c)
}

func (a *app) printPredictions(list []*prediction) error {
	if a.json {
		out := []predictionReport{}
		for _, p := range list {
			out = append(out, p.report(a.db))
		}
		return a.printJSON(map[string]any{"predictions": out})
	}
	if len(list) == 0 {
		fmt.Fprintln(a.out, "No predictions in", a.db)
		return nil
	}
	t := newTable(a.out)
	t.AppendHeader([]any{"prediction", "made", "GPU", "SMs", "resident", "calibrated on", "a round", "draws"})
	for _, p := range list {
		t.AppendRow([]any{
			fmt.Sprintf("%s@%d", p.Name, p.Version), p.Made.Local().Format("2006-01-02 15:04:05"), p.GPU, p.Options.SMs, p.Options.Resident,
			blocksText(p.Points), p.Round.Time, p.Round.Power,
		})
	}
	t.Render()
	return nil
}

func (a *app) predictDeleteCmd() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete NAME[@VERSION]", Short: "Delete a model, or one version of it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, number, err := splitVersion(args[0])
			if err != nil {
				return err
			}
			db, err := a.openToChange(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			n, err := a.deleteAnalysis(cmd.Context(), db, predictionKind, "prediction", name, number, yes)
			if errors.Is(err, store.ErrNotFound) {
				return withCode(exitNotFound, fmt.Errorf("no prediction %s in %s: list them with wattmark predict list", args[0], a.db))
			}
			if err != nil || n == 0 {
				return err
			}
			if a.json {
				return a.printJSON(map[string]int64{"deleted": n})
			}
			fmt.Fprintf(a.out, "Deleted %d version(s) of %s from %s\n", n, name, a.db)
			return nil
		},
	}
	yesFlag(c.Flags(), &yes)
	return a.jsonFlag(c)
}
