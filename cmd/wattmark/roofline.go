package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"wattmark/analysis/roofline"
	"wattmark/hostagent/sampler"
	"wattmark/measure"
	"wattmark/measure/group"
	"wattmark/store"
)

// rooflineFlags say what is fitted and what is drawn.
type rooflineFlags struct {
	work, points         []string
	peakFlops, peakBytes float64
	svg                  string
	noPlot               bool
	tasks                string // that are fitted
}

func (f *rooflineFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.Float64Var(&f.peakFlops, "peak-flops", 0, "best rate in flop/s (default: the best that was measured)")
	fl.Float64Var(&f.peakBytes, "peak-bytes", 0, "best rate in byte/s (default: the best that was measured)")
	svgFlag(fl, &f.svg, "draw flop/s, flop/J and power against intensity into this file")
	fl.BoolVar(&f.noPlot, "no-plot", false, "leave the plot in the terminal out")
	fl.StringArrayVar(&f.points, "point", nil, "also show this task, without fitting it: TASK or TASK:flop=W,byte=Q (repeatable)")
}

func (a *app) rooflineCmd() *cobra.Command {
	var f rooflineFlags
	c := &cobra.Command{
		Use: "roofline TASK...", Short: "Fit an energy roofline: joules by flop, by byte and by time, and where they balance",
		Long: `Fit the roofline model of energy (Choi, Bedard, Fowler, Vuduc, IPDPS 2013) to tasks
whose work is known: E = flop·ε_flop + byte·ε_mem + π0·T. Three tasks or more, of
intensities below and above the device's balance, by number or name.

wattmark roofline sweep measures such tasks with a kernel of ours and keeps their
work; of other tasks --work says it. --point shows tasks of yours on the roofline.`,
		Example: "  wattmark roofline sweep --duration 3s --svg roofline.svg\n  wattmark roofline 'roofline*' --point 42:flop=4.4e12,byte=1.1e11\n" +
			"  wattmark roofline --work 3:flop=4e12,byte=8e12 --work 4:flop=4e13,byte=8e11 --work 5:flop=6e13,byte=1e11 3 4 5 --json",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			f.tasks = strings.Join(args, ",")
			return a.roofline(cmd.Context(), db, f)
		},
	}
	f.add(c)
	c.Flags().StringArrayVar(&f.work, "work", nil, "what a task did: TASK:flop=W,byte=Q (repeatable)")
	c.AddCommand(a.rooflineSweepCmd())
	return a.jsonFlag(c)
}

// workKind is the kind of analysis that keeps a task's work.
const workKind = "work"

func workName(id store.TaskID) string { return fmt.Sprintf("task %d", id) }

// roofline fits and shows.
func (a *app) roofline(ctx context.Context, db *store.DB, f rooflineFlags) error {
	given := map[store.TaskID]roofline.Work{}
	for _, s := range f.work {
		id, w, err := roofline.ParseTaskWork(s)
		if err != nil {
			return withCode(exitUsage, err)
		}
		given[store.TaskID(id)] = w
	}
	tasks, passed, err := a.tasksNamed(ctx, db, f.tasks)
	if err != nil {
		return err
	}
	if a, b := tasks[0], tasks[len(tasks)-1]; slices.ContainsFunc(tasks, func(t *store.Task) bool { return t.GPUUUID != a.GPUUUID }) {
		return withCode(exitUsage, fmt.Errorf("tasks %d to %d are of several GPUs: a roofline is one device's", a.ID, b.ID))
	}
	points, err := a.roofPoints(ctx, db, tasks, given)
	if err != nil {
		return err
	}
	m, err := roofline.Fit(points, commonOf(tasks), roofline.Peaks{Flops: f.peakFlops, Bytes: f.peakBytes})
	if errors.Is(err, roofline.ErrFit) {
		return withCode(exitUsage, err)
	}
	if err != nil {
		return err
	}
	r := newRooflineReport(m, tasks, points)
	r.Passed = passed
	for _, s := range f.points {
		if err := a.addRoofPoint(ctx, db, r, m, s); err != nil {
			return err
		}
	}
	if f.svg != "" {
		if err := writeFile(f.svg, r.writeSVG); err != nil {
			return err
		}
		r.Picture = f.svg
	}
	if a.json {
		return a.printJSON(r)
	}
	a.renderRoofline(r, !f.noPlot)
	return nil
}

// roofPoints finds each task's work: as given, or as it was kept.
func (a *app) roofPoints(ctx context.Context, db *store.DB, tasks []*store.Task, given map[store.TaskID]roofline.Work) (out []roofline.Point, err error) {
	for _, t := range tasks {
		if err := notFailed(t); err != nil {
			return nil, err
		}
		w, ok := given[t.ID]
		if !ok {
			if w, err = keptWork(ctx, db, t.ID); err != nil {
				return nil, err
			}
		}
		p, err := roofPoint(ctx, db, t, w)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// endedThrottled reports whether the GPU held its clocks down when a task's work ended.
func endedThrottled(ctx context.Context, db *store.DB, id store.TaskID) (bool, error) {
	readings, err := db.Readings(ctx, id)
	if err != nil {
		return false, err
	}
	c := sampler.Conditions(readings)
	return len(c) > 1 && len(c[len(c)-1].Throttled()) > 0, nil
}

// roofPoint is a task with its work on the plane of the model.
func roofPoint(ctx context.Context, db *store.DB, t *store.Task, w roofline.Work) (roofline.Point, error) {
	r := t.Result
	var own float64
	for _, c := range r.Budget {
		if !group.Lasts(c) {
			u := float64(c.U / r.Total.Energy)
			own += u * u
		}
	}
	throttled, err := endedThrottled(ctx, db, t.ID)
	return roofline.Point{
		Name: fmt.Sprintf("task %d %s", t.ID, t.Name), Flop: w.Flop, Bytes: w.Bytes,
		Energy: r.Total.Energy, Time: r.Duration(), U: math.Sqrt(own), Throttled: throttled,
	}, err
}

// addRoofPoint adds a task that is shown only.
func (a *app) addRoofPoint(ctx context.Context, db *store.DB, r *rooflineReport, m *roofline.Model, s string) error {
	number, _, has := strings.Cut(s, ":")
	t, err := a.task(ctx, db, number)
	if err != nil {
		return err
	}
	if t.Result == nil {
		return withCode(exitIncomplete, fmt.Errorf("task %d is %s and has no energy: %s", t.ID, stateNames[t.State], t.Reason))
	}
	var w roofline.Work
	if has {
		if _, w, err = roofline.ParseTaskWork(s); err != nil {
			return withCode(exitUsage, err)
		}
	} else {
		w, err = keptWork(ctx, db, t.ID)
	}
	if err != nil {
		return err
	}
	if t.GPUUUID != r.UUID {
		r.Cautions = append(r.Cautions, fmt.Sprintf("task %d ran on another GPU (%s)", t.ID, joinNonEmpty(", ", t.GPU, t.GPUUUID)))
	}
	p, err := roofPoint(ctx, db, t, w)
	if err != nil {
		return err
	}
	r.Points = append(r.Points, newRoofPoint(m, t, p, false))
	return nil
}

// commonOf is what one meter does to all of the tasks alike: the mean over them, line
// by line.
func commonOf(tasks []*store.Task) roofline.Common {
	gains, offsets := map[string]float64{}, map[string]float64{}
	n := float64(len(tasks))
	for _, t := range tasks {
		r := t.Result
		for _, c := range r.Budget {
			if !group.Lasts(c) {
				continue
			}
			if strings.HasPrefix(c.Source, "offset ") {
				offsets[c.Source] += float64(c.U) / float64(r.Duration()) / n
			} else {
				gains[c.Source] += float64(c.U/r.Total.Energy) / n
			}
		}
	}
	return roofline.Common{Gain: rootOfSquares(gains), Offset: measure.Watt(rootOfSquares(offsets))}
}

func rootOfSquares(m map[string]float64) float64 {
	var s float64
	for _, v := range m {
		s += v * v
	}
	return math.Sqrt(s)
}
