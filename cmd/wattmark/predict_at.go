package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"wattmark/analysis/predict"
	"wattmark/analysis/predict/simgrid"
	"wattmark/measure"
	"wattmark/store"
)

// platformFlags name a platform file in place of a stored model.
type platformFlags struct {
	platform string
	flops    float64
	blocks   []string
	sms      uint64
	resident uint64
}

// fig3 names the platform of the paper's Fig. 3.
const fig3 = "fig3"

func (f *platformFlags) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.blocks, "blocks", nil, "numbers of blocks, with commas between them (required)")
	c.Flags().StringVar(&f.platform, "platform", "", "SimGrid platform file of a GPU in place of a model; fig3 for that of the paper")
	c.Flags().Float64Var(&f.flops, "flops", 0, "with --platform: work of a round (default of fig3: 14336)")
	c.Flags().Uint64Var(&f.sms, "sms", 0, "multiprocessors: what if there were more or fewer; with --platform those of the GPU")
	c.Flags().Uint64Var(&f.resident, "resident", 0, "blocks that a multiprocessor holds at a time, where not those of the calibration")
}

// read reads the platform and its round.
func (f *platformFlags) read() (*simgrid.Platform, predict.Round, error) {
	p, flops, sms := simgrid.Fig3(), f.flops, f.sms
	if f.platform == fig3 {
		if flops == 0 {
			flops = simgrid.Fig3Flops
		}
		if sms == 0 {
			sms = predict.FigSMs
		}
	} else {
		file, err := os.Open(f.platform)
		if err != nil {
			return nil, predict.Round{}, err
		}
		defer file.Close()
		if p, err = simgrid.Parse(file); err != nil {
			return nil, predict.Round{}, fmt.Errorf("%s: %w", f.platform, err)
		}
		if flops == 0 || sms == 0 {
			return nil, predict.Round{}, withCode(exitUsage, errors.New("--platform does not say what a round is: give --flops of a round and --sms"))
		}
	}
	r, err := predict.RoundOf(flops, p.Speed, p.Busy, p.Idle, sms*max(1, f.resident))
	return p, r, err
}

func (a *app) predictAtCmd() *cobra.Command {
	var f platformFlags
	c := &cobra.Command{
		Use: "at [NAME[@VERSION]]", Short: "Predict time and energy of numbers of blocks", Args: cobra.MaximumNArgs(1),
		Long: `Predict time and energy of numbers of blocks by a stored model: by the line
(Eqs. 1 and 3), by rounds (Eqs. 4 and 6), and mixed: the blocks' dynamic energy
with the idle power for the rounds' time. ± is the band of one new measurement. --sms asks what another number of multiprocessors would make
of it. With --platform the prediction is that of a SimGrid platform file.`,
		Example: `  wattmark predict at vadd --blocks 15,140,9765
  wattmark predict at vadd --blocks 9765 --sms 144
  wattmark predict at --platform fig3 --blocks 15,140,9765`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.predictAt(cmd.Context(), f, args) },
	}
	f.add(c)
	return a.jsonFlag(c)
}

func (a *app) predictAt(ctx context.Context, f platformFlags, args []string) error {
	blocks, err := f.wanted()
	if err != nil {
		return err
	}
	if f.platform != "" {
		if len(args) > 0 {
			return withCode(exitUsage, errors.New("name a model or a platform, not both"))
		}
		return a.predictByPlatform(f, blocks)
	}
	p, err := a.loadPrediction(ctx, args)
	if err != nil {
		return err
	}
	to := predict.Target{SMs: f.sms, Resident: f.resident}
	var list []predict.Prediction
	for _, n := range blocks {
		q, err := p.model.At(n, to)
		if err != nil {
			return withCode(exitUsage, err)
		}
		list = append(list, q)
	}
	if a.json {
		out := []forecastReport{}
		for _, q := range list {
			out = append(out, newForecastReport(q))
		}
		return a.printJSON(map[string]any{"name": p.Name, "version": p.Version, "level": p.Options.Level, "predictions": out})
	}
	t := newTable(a.out)
	t.AppendHeader([]any{"blocks", "rounds", "time by the line", "by rounds", "energy by the line", "by rounds", "mixed"})
	for _, q := range list {
		t.AppendRow([]any{q.Blocks, q.Rounds, bandText(q.Linear.Time), bandText(q.ByRounds.Time), bandText(q.Linear.Energy), bandText(q.ByRounds.Energy), bandText(q.Mixed.Energy)})
	}
	t.Render()
	fmt.Fprintf(a.out, "\n± holds one new measurement in %.3g %% of cases, if the kernel keeps to the model.\n", 100*p.Options.Level)
	for _, q := range list {
		for _, w := range q.Warnings {
			fmt.Fprintf(a.out, "%d blocks: %s\n", q.Blocks, w)
		}
	}
	return nil
}

func (f *platformFlags) wanted() ([]uint64, error) {
	if len(f.blocks) == 0 {
		return nil, withCode(exitUsage, errors.New("--blocks: say for which numbers of blocks, as 15,140,9765"))
	}
	return parseBlocks("blocks", f.blocks)
}

// roundReport is what a platform says of a number of blocks.
type roundReport struct {
	Blocks  uint64  `json:"blocks"`
	Rounds  uint64  `json:"rounds"`
	TimeS   float64 `json:"time_s"`
	EnergyJ float64 `json:"energy_j"`
}

func newRoundReport(r predict.Round, blocks uint64) roundReport {
	t, e := r.At(blocks, 0)
	return roundReport{blocks, r.Rounds(blocks), float64(t), float64(e)}
}

func (a *app) predictByPlatform(f platformFlags, blocks []uint64) error {
	_, r, err := f.read()
	if err != nil {
		return err
	}
	list := []roundReport{}
	for _, n := range blocks {
		list = append(list, newRoundReport(r, n))
	}
	if a.json {
		return a.printJSON(map[string]any{"platform": f.platform, "round": r, "predictions": list})
	}
	fmt.Fprintf(a.out, "Rounds of %d blocks: %.9g s and %.9g J each, at %v\n\n", r.Blocks, float64(r.Time), float64(r.Energy), r.Power)
	t := newTable(a.out)
	t.AppendHeader([]any{"blocks", "rounds", "time", "energy"})
	for _, x := range list {
		t.AppendRow([]any{x.Blocks, x.Rounds, fmt.Sprintf("%.10g s", x.TimeS), fmt.Sprintf("%.10g J", x.EnergyJ)})
	}
	t.Render()
	return nil
}

func (a *app) predictShowCmd() *cobra.Command {
	var svg string
	c := &cobra.Command{
		Use: "show [NAME[@VERSION]]", Short: "Show a model: coefficients, errors, a plot", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.loadPrediction(cmd.Context(), args)
			if err != nil {
				return err
			}
			return a.showPrediction(p, svg)
		},
	}
	svgFlag(c.Flags(), &svg, "draw time and energy into this file")
	return a.jsonFlag(c)
}

func (a *app) predictCheckCmd() *cobra.Command {
	var s pointSources
	var name string
	c := &cobra.Command{
		Use: "check [TASK...]", Short: "Hold a model against measured launches",
		Long: `Predict launches that were measured, and tell the errors: worst, best and average
(WRE, BRE, ARE). The points come from where calibrate takes them.`,
		Example: `  wattmark predict check 9 12 15 --model vadd
  wattmark predict check --csv points.csv --model vadd@2`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.predictCheck(cmd.Context(), s, name, args) },
	}
	fl := c.Flags()
	fl.StringVar(&name, "model", "", "NAME or NAME@VERSION of the model (default: the only one)")
	fl.StringVar(&s.csv, "csv", "", "CSV file of points")
	fl.StringVar(&s.kernel, "kernel", "", "kernel of the CSV file, where it has several")
	fl.StringArrayVar(&s.blocks, "blocks", nil, "TASK=BLOCKS, or TASK=BLOCKSxLAUNCHES (repeatable)")
	fl.StringArrayVar(&s.traces, "trace", nil, "BLOCKS=FILE, a power trace of one launch (repeatable)")
	fl.BoolVar(&s.allStates, "all-states", false, "keep traces' readings of every performance state, not P0 alone")
	return a.jsonFlag(c)
}

func (a *app) predictCheck(ctx context.Context, s pointSources, name string, args []string) error {
	if s.csv == "" && len(s.traces) == 0 && len(args) == 0 {
		return withCode(exitUsage, errors.New("name what to check against: tasks, --csv or --trace"))
	}
	var names []string
	if name != "" {
		names = []string{name}
	}
	p, err := a.loadPrediction(ctx, names)
	if err != nil {
		return err
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	points, _, err := s.gather(ctx, func() (*store.DB, error) { return db, nil }, args)
	if err != nil {
		return err
	}
	v, err := p.model.Evaluate(points)
	if err != nil {
		return err
	}
	known := 0
	for _, x := range points {
		if slices.ContainsFunc(p.Points, func(q predict.Point) bool {
			return q.Blocks == x.Blocks && measure.Joule(q.Energy) == x.Energy
		}) {
			known++
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"name": p.Name, "version": p.Version, "calibration_points_among_them": known, "evaluation": newEvaluationReport(&v)})
	}
	if known > 0 {
		fmt.Fprintf(a.out, "%d of these points the model was made from: they flatter it.\n\n", known)
	}
	renderEvaluation(a.out, &v)
	return nil
}
