package predict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/predict"
	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// predictFlags are the flags of calibrate.
type predictFlags struct {
	pointSources
	sms  uint64
	name string
	use  []string
	// idle with idleU, idleTask and idleTrace are three sources of the idle power; exactly one must be given.
	idle, idleU, idleTrace string
	idleTask               int64
	weights, off           string
	level, flops           float64
	resident, svg          string // resident is a number, or "fit"
	dryRun                 bool
}

func predictCalibrateCmd(a *cli.App) *cobra.Command {
	var f predictFlags
	c := cli.Command("calibrate [TASK...]", "Make a model from three or more measured launches", nil,
		func(ctx context.Context, args []string) error { return predictCalibrate(a, ctx, f, args) })
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "name of the model (default: the kernel's, or prediction)")
	cli.Section(fl, "The points", func() { f.pointSources.add(fl) })
	fl.StringSliceVar(&f.use, "use", nil,
		"numbers of blocks to calibrate on; the other points are predicted (default: all calibrate)")
	fl.Uint64Var(&f.sms, "sms", 0, "multiprocessors of the GPU, as 132 of an H200 (required)")
	fl.StringVar(&f.resident, "resident", "1",
		"blocks that a multiprocessor holds at a time, or fit: from the steps of the times")
	fl.StringVar(&f.idle, "idle-power", "", "power of the idle GPU, as 134W")
	fl.StringVar(&f.idleU, "idle-u", "", "its standard uncertainty, as 0.5W or 1%")
	fl.Int64Var(&f.idleTask, "idle-task", 0, "task in which the GPU rested, in place of --idle-power")
	fl.StringVar(&f.idleTrace, "idle-trace", "", "power trace of the resting GPU, in place of --idle-power")
	fl.StringVar(&f.weights, "weights", "",
		"equal (as in the paper), relative, or stated: by the points' uncertainties (default: equal)")
	fl.Float64Var(&f.level, "level", 0.95, "level of the bands")
	fl.Float64Var(&f.flops, "flops-per-block", 0,
		"work of a block, for a platform file's speed (default: a unit a block)")
	fl.StringVar(&f.off, "off-power", "0W", "power of the switched-off GPU, for a platform file")
	cli.SVGFlag(fl, &f.svg, "draw time and energy into this file")
	fl.BoolVar(&f.dryRun, "dry-run", false, "store nothing")
	return a.JSONFlag(c)
}

// predictCalibrate gathers the points, fits a model to them, stores it unless --dry-run, and prints it. The
// database is opened for reading only if a task is named. Points held back by --use are predicted and compared.
func predictCalibrate(a *cli.App, ctx context.Context, f predictFlags, args []string) error {
	// All points are needed before the split: the resident blocks may be fitted to every time.
	all, tasks, err := f.gather(a, ctx, "calibrate from", args)
	if err != nil {
		return err
	}
	c := predictionContent{Kernel: f.kernel, FlopsPerBlock: f.flops}
	if err := f.options(a, ctx, all, &c); err != nil {
		return err
	}
	if c.Points, c.Others, err = f.split(all); err != nil {
		return err
	}
	var doubts []string
	if c.Fitted && len(c.Others) > 0 {
		doubts = append(doubts,
			"the resident blocks were fitted from the times of all points, those that are predicted among them")
	}
	if len(f.traces) > 0 {
		doubts = append(doubts, predict.TooShort(c.Points, predict.SamplePeriod)...)
	}
	return c.finish(a, ctx, cmp.Or(f.name, f.kernel, "prediction"), doubts, tasks, f.dryRun, f.svg)
}

// options sets the idle power, the GPU's shape, weights, and level of c. With --resident fit the resident blocks, 1
// to 32, are those whose staircase fits the times best. Bad flags are wrong usage.
func (f *predictFlags) options(a *cli.App, ctx context.Context, all []predict.Point, c *predictionContent) error {
	if f.sms == 0 {
		return cli.Usagef("--sms: say how many multiprocessors the GPU has (132 of an H200, 108 of an A100, 14 of the " +
			"paper's two)")
	}
	if f.flops < 0 {
		return cli.Usagef("--flops-per-block %v: want a positive number", f.flops)
	}
	off, err := bench.ParseQuantity(f.off, measure.UnitWatt)
	if err != nil || off < 0 {
		return cli.Usagef("--off-power %q: want a power, as 10W", f.off)
	}
	c.Off = measure.Watt(off)
	c.Options = predict.Options{SMs: f.sms, Weights: predict.Weighting(f.weights), Level: f.level}
	// The staircase needs the times of all points, including those held back.
	if f.resident == "fit" {
		s, err := predict.FitStaircase(all, f.sms, 32)
		if err != nil {
			return fmt.Errorf("--resident fit: %w", err)
		}
		c.Options.Resident, c.Fitted = s[0].Resident, true
	} else if c.Options.Resident, err = strconv.ParseUint(f.resident, 10, 32); err != nil || c.Options.Resident == 0 {
		return cli.Usagef("--resident %q: want a number from 1 on, or fit", f.resident)
	}
	c.Options.Idle, c.Options.UIdle, err = f.idlePower(a, ctx)
	return err
}

// idlePower returns the idle power P_s and its standard uncertainty in W, from the flag, a task of the resting GPU,
// or a trace. A task's expanded uncertainty (k = 2) is halved; a trace has none. --idle-u replaces either.
func (f *predictFlags) idlePower(a *cli.App, ctx context.Context) (w, u measure.Watt, err error) {
	if session.CountTrue(f.idle != "", f.idleTask != 0, f.idleTrace != "") != 1 {
		return 0, 0, cli.Usagef("say what the idle GPU draws, by one of --idle-power 134W, --idle-task and --idle-trace")
	}
	switch {
	case f.idleTrace != "":
		t, err := cli.ReadFile(f.idleTrace, predict.ReadTrace)
		if err != nil {
			return 0, 0, err
		}
		w = t.Mean()
	case f.idleTask != 0:
		db, err := a.OpenDB(ctx)
		if err != nil {
			return 0, 0, err
		}
		defer db.Close()
		t, err := a.TaskByID(ctx, db, store.TaskID(f.idleTask))
		if err == nil && t.Result == nil {
			err = fmt.Errorf("task %d has no window: see wattmark show %d", f.idleTask, f.idleTask)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("--idle-task: %w", err)
		}
		w, u = t.Result.Mean, measure.Watt(float64(t.Result.Total.U)/2/float64(t.Result.Duration()))
	default:
		v, err := bench.ParseQuantity(f.idle, measure.UnitWatt)
		if err != nil {
			return 0, 0, cli.Usagef("--idle-power: %w", err)
		}
		w = measure.Watt(v)
	}
	if f.idleU != "" {
		v, err := bench.ParseUncertainty(f.idleU, float64(w), measure.UnitWatt)
		if err != nil {
			return 0, 0, cli.Usagef("--idle-u: %w", err)
		}
		u = measure.Watt(v)
	}
	return w, u, nil
}

// split separates the points to fit, whose numbers of blocks --use lists, from the others, sorted by blocks.
// Without --use all are fitted. A listed number without a point is wrong usage.
func (f *predictFlags) split(all []predict.Point) (fit, others []predict.Point, err error) {
	if len(f.use) == 0 {
		return all, nil, nil
	}
	sizes, err := parseBlocks("use", f.use)
	if err != nil {
		return nil, nil, err
	}
	fit = lists.Filter(all, func(p *predict.Point) bool { return slices.Contains(sizes, p.Blocks) })
	others = lists.Filter(all, func(p *predict.Point) bool { return !slices.Contains(sizes, p.Blocks) })
	slices.SortStableFunc(others, func(a, b predict.Point) int { return cmp.Compare(a.Blocks, b.Blocks) })
	for _, n := range sizes {
		if !slices.ContainsFunc(fit, func(p predict.Point) bool { return p.Blocks == n }) {
			return nil, nil, cli.Usagef("--use %d: no point of %d blocks among %s", n, n, blocksText(all))
		}
	}
	return fit, others, nil
}

// pointSources names the sources of points: a CSV file, power traces, and the
// numbers of blocks of tasks that do not record them.
type pointSources struct {
	csv, kernel string
	blocks      []string // TASK=N or TASK=NxLAUNCHES
	traces      []string // N=FILE
	allStates   bool
}

// add defines the flags on fl.
func (s *pointSources) add(fl *pflag.FlagSet) {
	fl.StringVar(&s.csv, "points", "", "CSV file of points")
	fl.StringVar(&s.kernel, "kernel", "", "kernel of the CSV file, where it has several")
	fl.StringArrayVar(&s.blocks, "blocks", nil, "TASK=BLOCKS, or TASK=BLOCKSxLAUNCHES (repeatable)")
	fl.StringArrayVar(&s.traces, "power-trace", nil, "BLOCKS=FILE, a power trace of one launch (repeatable)")
	fl.BoolVar(&s.allStates, "all-states", false, "keep traces' readings of every performance state, not P0 alone")
}

// grid is the number of blocks of a launch, and the number of launches of that size.
type grid struct{ blocks, launches uint64 }

// gridRE matches BLOCKS or BLOCKSxLAUNCHES.
var gridRE = lazy.Regexp(`^(\d+)(?:x(\d+))?$`)

// parseGrid parses "140" or "140x1000". Both numbers are at least 1 and below
// 2^53, so that they are exact as float64.
func parseGrid(s string) (g grid, err error) {
	m := gridRE().FindStringSubmatch(s)
	if m == nil {
		return g, fmt.Errorf("%q is no number of blocks: write 140, or 140x1000 for a thousand launches", s)
	}
	g.launches = 1
	if g.blocks, err = strconv.ParseUint(m[1], 10, 53); err == nil && m[2] != "" {
		g.launches, err = strconv.ParseUint(m[2], 10, 53)
	}
	if err != nil || g.blocks == 0 || g.launches == 0 {
		return g, fmt.Errorf("%q: blocks and launches are whole numbers from 1 on", s)
	}
	return g, nil
}

// gather returns the points of the file, the traces and the tasks, in this order, and the numbers of the tasks. The
// database is opened for tasks alone. A task in --blocks that is not among the tasks is wrong usage, as is no source;
// use completes that error: name what to use.
func (s *pointSources) gather(a *cli.App, ctx context.Context, use string, tasks []string) (
	points []predict.Point, ids []store.TaskID, err error,
) {
	if s.csv == "" && len(s.traces) == 0 && len(tasks) == 0 {
		return nil, nil, cli.Usagef("name what to %s: tasks, --points or --power-trace", use)
	}
	if s.csv != "" {
		table, err := cli.ReadFile(s.csv, predict.ReadPoints)
		if err != nil {
			return nil, nil, err
		}
		if points, err = table.Kernel(s.kernel); err != nil {
			return nil, nil, cli.Usagef("--kernel: %s: %w", s.csv, err)
		}
	}
	for _, t := range s.traces {
		p, err := s.fromTrace(t)
		if err != nil {
			return nil, nil, err
		}
		points = append(points, p)
	}
	// Numbers of blocks on the command line take precedence over recorded launches and names.
	given, err := s.gridByTask()
	if err != nil {
		return nil, nil, err
	}
	var db *store.DB
	if len(tasks) > 0 {
		if db, err = a.OpenDB(ctx); err != nil {
			return nil, nil, err
		}
		defer db.Close()
	}
	for _, arg := range tasks {
		id, err := cli.TaskID(arg)
		if err != nil {
			return nil, nil, err
		}
		p, err := taskPoint(a, ctx, db, id, given)
		if err != nil {
			return nil, nil, err
		}
		points, ids = append(points, p), append(ids, id)
		// Those left at the end name tasks that were not given.
		delete(given, id)
	}
	for id := range given {
		return nil, nil, cli.Usagef("--blocks names task %d, which is not among the tasks to calibrate from", id)
	}
	return points, ids, nil
}

// fromTrace reads BLOCKS=FILE. Readings outside performance state P0 are dropped unless --all-states: the clocks of
// other states belong to an idle GPU. Time and energy are those of one launch.
func (s *pointSources) fromTrace(arg string) (p predict.Point, err error) {
	n, file, ok := strings.Cut(arg, "=")
	g, err := parseGrid(n)
	if err != nil || !ok {
		return p, cli.Usagef("--power-trace %q: write BLOCKS=FILE, as 140=run.csv", arg)
	}
	t, err := cli.ReadFile(file, predict.ReadTrace)
	if err != nil {
		return p, err
	}
	if !s.allStates {
		t = t.Busy()
	}
	p, err = t.Point(g.blocks)
	p.Time, p.Energy = p.Time/measure.Seconds(g.launches), p.Energy/measure.Joule(g.launches)
	return p, err
}

// gridByTask parses --blocks.
func (s *pointSources) gridByTask() (map[store.TaskID]grid, error) {
	out := map[store.TaskID]grid{}
	for _, b := range s.blocks {
		task, n, ok := strings.Cut(b, "=")
		id, err := cli.TaskID(task)
		if err == nil && ok {
			out[id], err = parseGrid(n)
		}
		if err != nil || !ok {
			return nil, cli.WithCode(cli.ExitUsage,
				errors.Join(fmt.Errorf("--blocks %q: write TASK=BLOCKS or TASK=BLOCKSxLAUNCHES, as 12=140 or "+
					"12=140x1000", b), err))
		}
	}
	return out, nil
}

// taskPoint returns the point of a task, per launch. The expanded uncertainty of the energy is divided by its
// coverage factor k (2 if unknown); that of the time combines the two markers: u² = u_start² + u_stop².
func taskPoint(a *cli.App, ctx context.Context, db *store.DB, id store.TaskID, given map[store.TaskID]grid,
) (p predict.Point, err error) {
	t, err := a.TaskByID(ctx, db, id)
	if err != nil {
		return p, err
	}
	if t.Result == nil || t.State != store.Complete {
		return p, fmt.Errorf("task %d has no whole measurement to calibrate from: see wattmark show %d", id, id)
	}
	g, ok := given[id]
	if !ok {
		if g, err = gridOf(ctx, db, t); err != nil {
			return p, err
		}
	}
	p = predict.Point{
		Blocks: g.blocks, Time: t.Result.Duration() / measure.Seconds(g.launches),
		Energy: t.Result.Total.Energy / measure.Joule(g.launches), From: fmt.Sprintf("task %d", id),
	}
	k := measure.FactorOf(t.Result.Total, t.Result.Budget)
	if math.IsNaN(k) || math.IsInf(k, 0) || k < 1 {
		k = 2
	}
	p.UEnergy = measure.Joule(float64(t.Result.Total.U) / k / float64(g.launches))
	ends := lists.Filter(t.Markers, func(m *marker.Found) bool {
		return m.Kind == marker.Start || m.Kind == marker.Stop
	})
	if len(ends) == 2 { // the window's ends are placed by the two
		p.UTime = measure.Seconds(math.Hypot(float64(ends[0].U), float64(ends[1].U)) / float64(g.launches))
	}
	return p, p.Validate()
}

// nameRE matches blocks=N or blocks=NxLAUNCHES in a task's name.
var nameRE = lazy.Regexp(`\bblocks=(\d+(?:x\d+)?)\b`)

// gridOf returns a task's number of blocks and launches from its recorded launches on the measured GPU, else from
// its name. Launches of different sizes, or neither source, are an error.
func gridOf(ctx context.Context, db *store.DB, t *store.Task) (g grid, err error) {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil {
		return g, err
	}
	for l, err := range db.Launches(ctx, t.ID) {
		if err != nil {
			return g, err
		}
		if l.Device < len(tables.Devices) && !tables.Devices[l.Device].Measured {
			continue
		}
		n := uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2])
		if g.blocks != 0 && n != g.blocks {
			return g,
				fmt.Errorf("task %d launched kernels of %d and of %d blocks: calibrate from tasks with one number "+
					"each, or say --blocks %d=N", t.ID, g.blocks, n, t.ID)
		}
		g.blocks, g.launches = n, g.launches+1
	}
	if g.blocks != 0 {
		return g, nil
	}
	if m := nameRE().FindStringSubmatch(t.Name); m != nil {
		return parseGrid(m[1])
	}
	return g, cli.Usagef("task %d, %s: its number of blocks is not recorded: say --blocks %d=N, name tasks like "+
		"vadd,blocks=140, or measure with run --auto", t.ID, t.Name, t.ID)
}
