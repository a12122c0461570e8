package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"wattmark/analysis/predict"
	"wattmark/measure"
	"wattmark/store"
)

// predictFlags are the flags of calibrate.
type predictFlags struct {
	pointSources
	sms           uint64
	name          string
	use           []string
	idle, idleU   string
	idleTask      int64
	idleTrace     string
	weights       string
	level, flops  float64
	off           string
	resident, svg string
	dryRun        bool
}

func (a *app) predictCalibrateCmd() *cobra.Command {
	var f predictFlags
	c := &cobra.Command{
		Use: "calibrate [TASK...]", Short: "Make a model from three or more measured launches",
		Long: `Make a model of a kernel from three or more launches with different numbers of
blocks, and store it. Points come from tasks, from a CSV file (blocks, time_s,
energy_j, and maybe u_j, u_s, repeat, kernel) and from power traces (time_s,
power_w, pstate, or the log of nvidia-smi), which are kept where pstate is P0.

A task's number of blocks is that of its recorded launches (run --auto), stands in
its name (blocks=140, blocks=140x1000 for a thousand launches), or is given.

With --use the other points are not fitted: they are predicted, and the errors told.`,
		Example: `  wattmark predict calibrate 3 5 8 --sms 132 --resident 2 --idle-task 2 --name vadd
  wattmark predict calibrate 3 5 8 --blocks 3=132 --blocks 5=264 --blocks 8=2112 --sms 132 --idle 134W
  wattmark predict calibrate --csv points.csv --use 264,528,4224 --sms 132 --resident fit --idle 134W
  wattmark predict calibrate --trace 14=a.csv --trace 28=b.csv --trace 140=c.csv --idle-trace rest.csv --sms 14`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.predictCalibrate(cmd.Context(), f, args) },
	}
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "name of the model (default: the kernel's, or prediction)")
	fl.StringVar(&f.csv, "csv", "", "CSV file of points")
	fl.StringVar(&f.kernel, "kernel", "", "kernel of the CSV file, where it has several")
	fl.StringArrayVar(&f.blocks, "blocks", nil, "TASK=BLOCKS, or TASK=BLOCKSxLAUNCHES (repeatable)")
	fl.StringArrayVar(&f.traces, "trace", nil, "BLOCKS=FILE, a power trace of one launch (repeatable)")
	fl.BoolVar(&f.allStates, "all-states", false, "keep traces' readings of every performance state, not P0 alone")
	fl.StringSliceVar(&f.use, "use", nil, "numbers of blocks to calibrate on; the other points are predicted (default: all calibrate)")
	fl.Uint64Var(&f.sms, "sms", 0, "multiprocessors of the GPU, as 132 of an H200 (required)")
	fl.StringVar(&f.resident, "resident", "1", "blocks that a multiprocessor holds at a time, or fit: from the steps of the times")
	fl.StringVar(&f.idle, "idle", "", "power of the idle GPU, as 134W")
	fl.StringVar(&f.idleU, "idle-u", "", "its standard uncertainty, as 0.5W or 1%")
	fl.Int64Var(&f.idleTask, "idle-task", 0, "task in which the GPU rested, in place of --idle")
	fl.StringVar(&f.idleTrace, "idle-trace", "", "power trace of the resting GPU, in place of --idle")
	fl.StringVar(&f.weights, "weights", "", "equal (as in the paper), relative, or stated: by the points' uncertainties (default: equal)")
	fl.Float64Var(&f.level, "level", 0.95, "level of the bands")
	fl.Float64Var(&f.flops, "flops-per-block", 0, "work of a block, for a platform file's speed (default: a unit a block)")
	fl.StringVar(&f.off, "off", "0W", "power of the switched-off GPU, for a platform file")
	svgFlag(fl, &f.svg, "draw time and energy into this file")
	fl.BoolVar(&f.dryRun, "dry-run", false, "store nothing")
	return a.jsonFlag(c)
}

func (a *app) predictCalibrate(ctx context.Context, f predictFlags, args []string) (err error) {
	if f.csv == "" && len(f.traces) == 0 && len(args) == 0 {
		return withCode(exitUsage, errors.New("name what to calibrate from: tasks, --csv or --trace"))
	}
	var db *store.DB
	open := func() (*store.DB, error) {
		if db == nil {
			db, err = a.openDB(ctx)
		}
		return db, err
	}
	defer func() {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	all, tasks, err := f.gather(ctx, open, args)
	if err != nil {
		return err
	}
	c := predictionContent{Kernel: f.kernel, FlopsPerBlock: f.flops}
	if err := f.options(ctx, open, all, &c); err != nil {
		return err
	}
	if c.Points, c.Others, err = f.split(all); err != nil {
		return err
	}
	name := firstOf(f.name, f.kernel, "prediction")
	p, err := c.model(name)
	if err != nil {
		return err
	}
	p.Doubts = append(predict.Review(c.Points, c.Options), p.Doubts...)
	if p.Fitted && len(p.Others) > 0 {
		p.Doubts = append(p.Doubts, "the resident blocks were fitted from the times of all points, those that are predicted among them")
	}
	if len(f.traces) > 0 {
		p.Doubts = append(p.Doubts, predict.TooShort(c.Points, predict.SamplePeriod)...)
	}
	if !f.dryRun {
		if err := a.storePrediction(ctx, p, tasks); err != nil {
			return err
		}
	}
	return a.showPrediction(p, f.svg)
}

// options reads what a model needs beside its points.
func (f *predictFlags) options(ctx context.Context, open func() (*store.DB, error), all []predict.Point, c *predictionContent) error {
	if f.sms == 0 {
		return withCode(exitUsage, errors.New("--sms: say how many multiprocessors the GPU has (132 of an H200, 108 of an A100, 14 of the paper's two)"))
	}
	if f.flops < 0 {
		return withCode(exitUsage, fmt.Errorf("--flops-per-block %v: want a positive number", f.flops))
	}
	off, err := parseQuantity(f.off, measure.UnitWatt)
	if err != nil || off < 0 {
		return withCode(exitUsage, fmt.Errorf("--off %q: want a power, as 10W", f.off))
	}
	c.Off = measure.Watt(off)
	c.Options = predict.Options{SMs: f.sms, Weights: predict.Weighting(f.weights), Level: f.level}
	if f.resident == "fit" {
		s, err := predict.FitStaircase(all, f.sms, 32)
		if err != nil {
			return fmt.Errorf("--resident fit: %w", err)
		}
		c.Options.Resident, c.Fitted = s[0].Resident, true
	} else if c.Options.Resident, err = strconv.ParseUint(f.resident, 10, 32); err != nil || c.Options.Resident == 0 {
		return withCode(exitUsage, fmt.Errorf("--resident %q: want a number from 1 on, or fit", f.resident))
	}
	c.Options.Idle, c.Options.UIdle, err = f.idlePower(ctx, open)
	return err
}

// idlePower is P_s and its standard uncertainty.
func (f *predictFlags) idlePower(ctx context.Context, open func() (*store.DB, error)) (w, u measure.Watt, err error) {
	if countTrue(f.idle != "", f.idleTask != 0, f.idleTrace != "") != 1 {
		return 0, 0, withCode(exitUsage, errors.New("say what the idle GPU draws, by one of --idle 134W, --idle-task and --idle-trace"))
	}
	switch {
	case f.idleTrace != "":
		t, err := readTrace(f.idleTrace)
		if err != nil {
			return 0, 0, err
		}
		w = t.Mean()
	case f.idleTask != 0:
		db, err := open()
		if err != nil {
			return 0, 0, err
		}
		t, err := idleTask(ctx, db, store.TaskID(f.idleTask))
		if err != nil {
			return 0, 0, err
		}
		w, u = t.Result.Mean, measure.Watt(float64(t.Result.Total.U)/2/float64(t.Result.Duration()))
	default:
		v, err := parseQuantity(f.idle, measure.UnitWatt)
		if err != nil {
			return 0, 0, withCode(exitUsage, fmt.Errorf("--idle: %w", err))
		}
		w = measure.Watt(v)
	}
	if f.idleU != "" {
		v, err := parseUncertainty(f.idleU, float64(w), measure.UnitWatt)
		if err != nil {
			return 0, 0, withCode(exitUsage, fmt.Errorf("--idle-u: %w", err))
		}
		u = measure.Watt(v)
	}
	return w, u, nil
}

func idleTask(ctx context.Context, db *store.DB, id store.TaskID) (*store.Task, error) {
	t, err := db.Task(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, withCode(exitNotFound, fmt.Errorf("--idle-task: no task %d: list them with wattmark tasks", id))
	case err != nil:
		return nil, err
	case t.Result == nil:
		return nil, fmt.Errorf("--idle-task: task %d has no window: see wattmark show %d", id, id)
	}
	return &t, nil
}

// split parts the points to calibrate on from the others.
func (f *predictFlags) split(all []predict.Point) (fit, others []predict.Point, err error) {
	if len(f.use) == 0 {
		return all, nil, nil
	}
	sizes, err := parseBlocks("use", f.use)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		if slices.Contains(sizes, p.Blocks) {
			fit = append(fit, p)
		} else {
			others = append(others, p)
		}
	}
	slices.SortStableFunc(others, func(a, b predict.Point) int { return cmp.Compare(a.Blocks, b.Blocks) })
	for _, n := range sizes {
		if !slices.ContainsFunc(fit, func(p predict.Point) bool { return p.Blocks == n }) {
			return nil, nil, withCode(exitUsage, fmt.Errorf("--use %d: no point of %d blocks among %s", n, n, blocksText(all)))
		}
	}
	return fit, others, nil
}

// parseBlocks reads numbers of blocks.
func parseBlocks(flag string, list []string) (out []uint64, err error) {
	for _, s := range list {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
		if err != nil || n == 0 || n > predict.MostBlocks {
			return nil, withCode(exitUsage, fmt.Errorf("--%s %q: want whole numbers of blocks from 1 on, with commas between them", flag, s))
		}
		out = append(out, n)
	}
	return out, nil
}

// blocksText lists the sizes of points.
func blocksText(points []predict.Point) string {
	sorted := slices.SortedFunc(slices.Values(points), func(a, b predict.Point) int { return cmp.Compare(a.Blocks, b.Blocks) })
	var out []string
	for _, p := range sorted {
		out = append(out, strconv.FormatUint(p.Blocks, 10))
	}
	return strings.Join(slices.Compact(out), ", ")
}
