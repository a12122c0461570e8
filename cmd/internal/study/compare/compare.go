// Package compare implements wattmark compare, which compares repeated runs of two
// versions of some work: energy, time, mean power, energy-delay products, and kernels.
//
//	A, B (task numbers, names) → comparedSide → compare.Run per task
//	→ analysis/compare (ratios, intervals, tests) → CompareReport → text, JSON
//
// A run carries the errors of its task's budget. Errors with the same origin (Behind) on
// both sides are one error: the gain of one meter under one calibration scales both
// energies alike and cancels in their ratio. behind derives the origin of an error.
//
// Errors are relative standard uncertainties (k = 1), intervals cover 95 %.
package compare

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/compare"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/group"
	"github.com/wattmark/wattmark/store"
)

// compareFlags select the two sides and the parts of the comparison.
type compareFlags struct {
	a, b, aDB, bDB string
	meter          string // meterAuto, meterSame or meterDifferent
	work           []string
	kernels        bool
}

//go:embed help.md
var help string

// Commands returns the command of this package.
func Commands(a *cli.App) []*cobra.Command {
	var f compareFlags
	c := cli.Command("compare A B | --a TASKS --b TASKS", "Compare two versions of some work, with a test",
		cobra.MaximumNArgs(2), func(ctx context.Context, args []string) error {
			if err := f.sides(args); err != nil {
				return err
			}
			r, err := compareSides(a, ctx, f)
			if err != nil {
				return err
			}
			return a.Print(r, r.Render)
		})
	fl := c.Flags()
	fl.StringVar(&f.a, "a", "", "tasks of A: numbers and names, with commas between them")
	fl.StringVar(&f.b, "b", "", "tasks of B")
	fl.StringVar(&f.aDB, "a-db", "", "database of A's tasks (default: --db)")
	fl.StringVar(&f.bDB, "b-db", "", "database of B's tasks (default: --db)")
	fl.StringVar(&f.meter, "meters", meterAuto, "auto, same or different: whether A and B were measured with one meter")
	fl.StringArrayVar(&f.work, "work", nil, "work of one run, UNIT=AMOUNT or UNIT=A's,B's (repeatable)")
	fl.BoolVar(&f.kernels, "kernels", true, "compare the kernels too, where they were recorded")
	return cli.In(cli.Learn, help, a.HostFlag(a.JSONFlag(c)))
}

// sides takes A and B from the arguments or from the flags, and checks --meters.
func (f *compareFlags) sides(args []string) error {
	switch {
	case len(args) == 2 && f.a == "" && f.b == "":
		f.a, f.b = args[0], args[1]
	case len(args) != 0 || f.a == "" || f.b == "":
		return cli.Usagef("name two sides: wattmark compare 3 4, or --a 3,4,5 --b 6,7,8")
	}
	if slices.Contains([]string{meterAuto, meterSame, meterDifferent}, f.meter) {
		return nil
	}
	return cli.Usagef("--meters %q: want auto, same or different", f.meter)
}

// comparedSide holds the tasks of one side with their database, which the caller closes.
type comparedSide struct {
	sideReport
	db    *store.DB
	tasks []*store.Task
	runs  []compare.Run
	// commands are the command lines, once each, of the tasks that have theirs.
	commands []string
}

// compareSides reads both sides and compares them. Both databases stay open until the
// kernels are compared.
func compareSides(a *cli.App, ctx context.Context, f compareFlags) (*CompareReport, error) {
	work, err := amountsOf(f.work)
	if err != nil {
		return nil, err
	}
	var sides [2]comparedSide
	for i, s := range [][3]string{{f.a, f.aDB, "A"}, {f.b, f.bDB, "B"}} {
		if sides[i], err = readSide(a, ctx, s[0], store.Conceal(cmp.Or(s[1], a.DB))); err != nil {
			return nil, fmt.Errorf("%s: %w", s[2], err)
		}
		defer sides[i].db.Close()
	}
	return compareRead(ctx, &sides, f.meter, work, f.kernels)
}

// Stored compares tasks of an open database, as compare does with their numbers. A task without
// a result, or on both sides, is wrong usage; so is work that is not UNIT=AMOUNT.
func Stored(ctx context.Context, db *store.DB, a, b []store.TaskID, work []string) (*CompareReport, error) {
	amounts, err := amountsOf(work)
	if err != nil {
		return nil, err
	}
	var sides [2]comparedSide
	for i, ids := range [][]store.TaskID{a, b} {
		s := &sides[i]
		s.Spec, s.db = spec(ids), db
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			t, err := db.Task(ctx, id)
			if err == nil {
				err = HasResult(&t)
			}
			if err != nil {
				return nil, err
			}
			s.add(&t)
		}
	}
	return compareRead(ctx, &sides, meterAuto, amounts, true)
}

// amountsOf reads work as the flag --work has it.
func amountsOf(list []string) (work []compare.Work, err error) {
	for _, s := range list {
		w, err := compare.ParseWork(s)
		if err != nil {
			return nil, cli.Usagef("--work %w", err)
		}
		work = append(work, w)
	}
	return work, nil
}

// compareRead compares two sides whose databases are open.
func compareRead(ctx context.Context, sides *[2]comparedSide, meter string, work []compare.Work, kernels bool) (*CompareReport, error) {
	for i := range sides {
		for _, t := range sides[i].tasks {
			sides[i].runs = append(sides[i].runs, comparedRun(t, meter, string("AB"[i]), sides[i].Database))
		}
	}
	for _, a := range sides[0].Tasks { // a task on both sides
		if sides[0].Database == sides[1].Database && slices.Contains(sides[1].Tasks, a) {
			return nil, cli.Usagef("task %d is in A (%s) and in B (%s): it says nothing about a difference", a,
				sides[0].Spec, sides[1].Spec)
		}
	}
	leaveUnpaired(sides)
	effects, err := compare.All(sides[0].runs, sides[1].runs)
	if err != nil {
		return nil, err
	}
	r := newCompareReport(sides, effects)
	for _, w := range work {
		p, err := compare.Per(&effects[0], &effects[1], w)
		if err != nil {
			return nil, cli.WithCode(cli.ExitUsage, err)
		}
		r.Work = append(r.Work, p)
	}
	if kernels {
		if err := r.addKernels(ctx, sides); err != nil {
			return nil, err
		}
	}
	return r, r.addStart(ctx, sides)
}

// MostNamed bounds the number of tasks that a name matches.
const MostNamed = 10_000

// readSide opens the database at path and reads the tasks of spec, with their GPUs and
// meters once each. On an error the database is closed.
func readSide(a *cli.App, ctx context.Context, spec, path string) (s comparedSide, err error) {
	side := *a
	side.DB = path
	s.Spec, s.Database = spec, path
	var numbers []string
	if numbers, s.Passed, err = numbered(&side, ctx, spec); err != nil {
		return s, err
	}
	if s.db, err = side.OpenDB(ctx, numbers...); err != nil {
		return s, err
	}
	tasks, err := measured(&side, ctx, s.db, numbers)
	if err != nil {
		return s, errors.Join(err, s.db.Close())
	}
	for _, t := range tasks {
		s.add(t)
	}
	return s, nil
}

// add adds a task, with its GPU, meter and command line.
func (s *comparedSide) add(t *store.Task) {
	s.tasks = append(s.tasks, t)
	s.Tasks = append(s.Tasks, t.ID)
	s.GPUs = lists.AddNew(s.GPUs, out.JoinNonEmpty(", ", t.GPU, t.GPUUUID))
	s.Meters = lists.AddNew(s.Meters, out.JoinNonEmpty(" ", t.Instrument.Kind, t.Instrument.Serial))
	if p := t.Provenance; p != nil && len(p.Command) > 0 {
		s.commands = lists.AddNew(s.commands, cli.ShellWords(p.Command))
	}
}

// TasksNamed reads the tasks of spec, numbers and names separated by commas, sorted by
// number and without duplicates. A task named by number must have a result. Of the tasks
// that a name matches the complete ones are taken; passed describes the others.
func TasksNamed(a *cli.App, ctx context.Context, db *store.DB,
	spec string,
) (out []*store.Task, passed []string, err error) {
	numbers, passed, err := numbered(a, ctx, spec)
	if err == nil {
		out, err = measured(a, ctx, db, numbers)
	}
	return out, passed, err
}

// numbered returns the numbers of the tasks of spec, sorted, and describes the tasks of a name
// that are not complete.
func numbered(a *cli.App, ctx context.Context, spec string) (numbers, passed []string, err error) {
	var ids []store.TaskID
	for part := range strings.SplitSeq(spec, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			return nil, nil, cli.Usagef("%q has an empty entry: want task numbers or names with commas between them", spec)
		}
		if n, err := strconv.ParseInt(part, 10, 64); err == nil && n > 0 {
			ids = append(ids, store.TaskID(n))
			continue
		}
		list, err := a.List(ctx, store.Query{Name: part, Limit: MostNamed})
		if err != nil {
			return nil, nil, err
		}
		found := len(ids)
		for i := range list {
			if t := &list[i]; t.State == store.Complete {
				ids = append(ids, t.ID)
			} else {
				passed = append(passed, fmt.Sprintf("task %d is %s", t.ID, t.State.String()))
			}
		}
		if len(ids) == found {
			return nil, nil, cli.NotFoundf("no complete task is named %q in %s: list them with wattmark tasks", part, a.DB)
		}
	}
	slices.Sort(ids)
	return lists.Map(slices.Compact(ids), func(id store.TaskID) string { return fmt.Sprint(id) }), passed, nil
}

// measured reads tasks, which must have a result.
func measured(a *cli.App, ctx context.Context, db *store.DB, numbers []string) (out []*store.Task, err error) {
	for _, n := range numbers {
		t, err := a.Task(ctx, db, n)
		if err == nil {
			err = HasResult(t)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// HasResult returns an ExitIncomplete error for a task without an energy.
func HasResult(t *store.Task) error {
	if t.Result != nil {
		return nil
	}
	return cli.WithCode(cli.ExitIncomplete,
		fmt.Errorf("task %d is %s and has no energy: %s", t.ID, t.State.String(), t.Reason))
}

// NotFailed returns an ExitIncomplete error for a task whose work failed, for figures
// that depend on the work.
func NotFailed(t *store.Task) error {
	if t.Failure == nil {
		return nil
	}
	return cli.WithCode(cli.ExitIncomplete, fmt.Errorf("task %d is failed, and no result: %s", t.ID, t.Failure.Reason))
}

// Values of --meters.
const (
	meterAuto      = "auto"
	meterSame      = "same"
	meterDifferent = "different"
)

// comparedRun converts a task to a run with relative errors. side is "A" or "B", path the
// database; both identify errors that do not carry a serial number.
func comparedRun(t *store.Task, meter, side, path string) compare.Run {
	r := t.Result
	run := compare.Run{Name: fmt.Sprintf("task %d", t.ID), At: t.Launched, Energy: r.Total.Energy, Time: r.Duration(), Turn: turnOf(t)}
	e := math.Abs(float64(r.Total.Energy))
	if len(r.Budget) == 0 { // an older database stored U alone
		run.Errors = append(run.Errors, compare.Error{Energy: float64(r.Total.U) / 2 / e})
	}
	// A budget with noise from few readings has a coverage factor above 2. The excess is
	// applied to the noise, the only part that it concerns.
	k := measure.FactorOf(r.Total, r.Budget) / 2
	// Uncertainty of the ends of the window: once, with the energy where the budget has it.
	ends := float64(durationU(t)) / float64(r.Duration())
	h, _ := calib.HistoryOf(&t.Setup) // a history of a later version links no errors
	for _, c := range r.Budget {
		x := compare.Error{Behind: behind(c, h, t, meter, side, path), Energy: float64(c.U) / e}
		switch {
		case c.Source == "tick rate": // time and energy scale with the tick
			x.Time = x.Energy
		case c.Source == "window edges": // a longer window has more energy
			x.Time, ends = ends, 0
		case !c.Systematic && k > 1:
			x.Energy *= k
		}
		run.Errors = append(run.Errors, x)
	}
	if ends > 0 {
		run.Errors = append(run.Errors, compare.Error{Time: ends})
	}
	return run
}

// behind returns the origin of an error in a budget: errors of the same origin are one
// error with one value. It is empty for errors that are independent in each task.
func behind(c measure.Contribution, h calib.History, t *store.Task, meter, side, path string) string {
	if !group.Lasts(c) {
		return ""
	}
	switch meter {
	case meterSame:
		return c.Source
	case meterDifferent:
		return c.Source + " of " + side
	}
	if by := group.SharedBy(c, h, t.Instrument); by != "" {
		if strings.HasPrefix(by, "instrument") { // an adjustment changes the error
			by += ", calibration " + t.CalibrationID
		}
		if strings.HasPrefix(c.Source, "age ") { // within a day a calibration ages by little
			by += " on " + t.Launched.UTC().Format(time.DateOnly)
		}
		return c.Source + ", by " + by
	}
	// A meter without a serial number is identified by its address, bench and GPU.
	i := t.Instrument
	where := fmt.Sprintf("%s, by the %s at %s", c.Source, out.JoinNonEmpty(" ", i.Kind, i.Address), t.Monitor)
	return out.JoinNonEmpty(", ", where, t.Bench, t.GPUUUID, path, "calibration "+t.CalibrationID)
}

// durationU returns the standard uncertainty of a window's length in seconds: of the
// clock fit at its two ends, which are correlated, and of the jitter of the stamps at
// each end, which is the scatter about the fit; else of the markers that bound it. The
// scatter of the work from run to run is not in it: the runs themselves show that.
//
//	u² = u²(from) + u²(to) − 2 r u(from) u(to) + 2 RMS²
func durationU(t *store.Task) measure.Seconds {
	r := t.Result
	if t.Clock != nil {
		from, _ := t.Clock.Host(r.From)
		to, _ := t.Clock.Host(r.To)
		e := t.Clock.Edges(from, to)
		fit := max(float64(e.UFrom*e.UFrom+e.UTo*e.UTo)-2*e.Correlation*float64(e.UFrom*e.UTo), 0)
		return measure.Seconds(math.Sqrt(fit + 2*float64(t.Clock.RMS*t.Clock.RMS)))
	}
	var v float64
	for _, m := range t.Markers {
		v += float64(m.U) * float64(m.U)
	}
	return measure.Seconds(math.Sqrt(v))
}
