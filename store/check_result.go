package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"wattmark/measure"
)

// kept is a result as it is stored, and the sum over the chunks that it is held against.
type kept struct {
	number   int // 0: the task's row
	cal      int64
	computed int64 // ns
	result   *measure.Result
	setup    measure.Setup
	sum      *measure.Integrator // nil where it is not held against the chunks
}

func (k *kept) String() string {
	if k.number == 0 {
		return "its row"
	}
	return fmt.Sprintf("result %d", k.number)
}

// resultSource says what a result is mended by.
type resultSource uint8

const (
	fromResult resultSource = iota // the row takes over what the result in use says
	fromRow                        // the result in use takes over what the row says
	fromChunks                     // all are computed anew
)

const trimRemedy = "set a window by hand: wattmark trim"

// figure is one number of a result. table counts rowTables and keptTables.
type figure struct {
	table int
	what  string
	value float64
}

// The tables of the result in use, and of all results.
var (
	rowTables  = [...]string{"task", "rail_result", "budget"}
	keptTables = [...]string{"result", "result_rail", "result_budget"}
)

// tables of a result.
func (k *kept) tables() [3]string {
	if k.number == 0 {
		return rowTables
	}
	return keptTables
}

// figures are the numbers of a result in the order in which they are stored.
func figures(r *measure.Result) []figure {
	out := []figure{
		{0, "from_s", float64(r.From)},
		{0, "to_s", float64(r.To)},
		{0, "samples", float64(r.Samples)},
		{0, "first_scan", float64(r.FirstScan)},
		{0, "gaps", float64(r.Gaps)},
		{0, "lost", float64(r.Lost)},
		{0, "energy_j", float64(r.Total.Energy)},
		{0, "energy_u_j", float64(r.Total.U)},
		{0, "mean_w", float64(r.Mean)},
		{0, "peak_w", float64(r.Peak)},
	}
	for _, x := range r.Rails {
		of := " of rail " + x.Name
		out = append(out, figure{1, "energy_j" + of, float64(x.Energy.Energy)}, figure{1, "energy_u_j" + of, float64(x.Energy.U)},
			figure{1, "mean_w" + of, float64(x.Mean)}, figure{1, "peak_w" + of, float64(x.Peak)})
	}
	eachBudget(r, func(rail, source string, l measure.Contribution) {
		out = append(out, figure{2, "u_j of " + source + rail, float64(l.U)})
	})
	return out
}

// eachBudget hands out the lines of the budgets of a result's rails, then of the total.
func eachBudget(r *measure.Result, f func(rail, source string, l measure.Contribution)) {
	for _, x := range r.Rails {
		for _, l := range x.Budget {
			f(" of rail "+x.Name, l.Source, l)
		}
	}
	for _, l := range r.Budget {
		f("", l.Source, l)
	}
}

// differences says where two stored forms of one result differ.
func differences(a, b *kept) (out []string) {
	x, y := figures(a.result), figures(b.result)
	for i := range min(len(x), len(y)) {
		switch f, g := x[i], y[i]; {
		case f.what != g.what:
			return append(out, fmt.Sprintf("%s has %s where %s has %s", a.tables()[f.table], f.what, b.tables()[g.table], g.what))
		case !nearly(f.value, g.value, 0):
			out = append(out, fmt.Sprintf("%s.%s is %v, %s says %v", a.tables()[f.table], f.what, f.value, b.tables()[g.table], g.value))
		}
	}
	if len(x) != len(y) {
		out = append(out, fmt.Sprintf("%s has %d numbers, %s %d", a, len(x), b, len(y)))
	}
	return out
}

// nearly compares numbers; what is none, or infinite, is only like itself.
func nearly(a, b, within float64) bool {
	return a == b || math.Abs(a-b) <= within || math.IsNaN(a) && math.IsNaN(b)
}

// inconsistent says what of a result cannot be, whatever the chunks say: the rails give
// the total, and the budget the expanded uncertainty by a coverage factor of 2 to that of one
// degree of freedom.
func (k *kept) inconsistent() (out []string) {
	r, t := k.result, k.tables()
	sum, size := 0.0, 0.0
	for _, x := range r.Rails {
		sum, size = sum+float64(x.Energy.Energy), size+math.Abs(float64(x.Energy.Energy))
	}
	if len(r.Rails) > 0 && !nearly(sum, float64(r.Total.Energy), 1e-9*size) && !math.IsNaN(sum) {
		out = append(out, fmt.Sprintf("%s.energy_j is %v, its rails come to %v", t[0], float64(r.Total.Energy), sum))
	}
	covered := func(table, of string, u measure.Joule, lines []measure.Contribution) {
		squares := 0.0
		for _, l := range lines {
			squares += float64(l.U) * float64(l.U)
		}
		if least, most := 1.999*math.Sqrt(squares), 1.001*measure.CoverageFactor(1)*math.Sqrt(squares); len(lines) > 0 && (float64(u) < least || float64(u) > most) {
			out = append(out, fmt.Sprintf("%s.energy_u_j%s is %v, its budget gives %v to %v", table, of, float64(u), least, most))
		}
	}
	covered(t[0], "", r.Total.U, r.Budget)
	for _, x := range r.Rails {
		covered(t[1], " of rail "+x.Name, x.Energy.U, x.Budget)
	}
	return out
}

// beside says where a result is not what the chunks give. Energies agree within a small part
// of their uncertainty: another version of the program may add up a little differently. So
// do lines of the budget, but for those of the window's ends, which only their maker knows.
func (k *kept) beside(got *measure.Result) (out []string) {
	r, t := k.result, k.tables()
	far := func(table, what string, is, gives, within float64) {
		if !nearly(is, gives, within) {
			out = append(out, fmt.Sprintf("%s.%s is %v, the chunks give %v", table, what, is, gives))
		}
	}
	far(t[0], "samples", float64(r.Samples), float64(got.Samples), 0)
	far(t[0], "first_scan", float64(r.FirstScan), float64(got.FirstScan), 0)
	far(t[0], "gaps", float64(r.Gaps), float64(got.Gaps), 0)
	far(t[0], "lost", float64(r.Lost), float64(got.Lost), 0)
	energy := func(table, of string, is, gives measure.Estimate, mean, givenMean, peak, givenPeak measure.Watt) {
		within := 1e-6*math.Abs(float64(gives.Energy)) + float64(gives.U)/20
		far(table, "energy_j"+of, float64(is.Energy), float64(gives.Energy), within)
		far(table, "mean_w"+of, float64(mean), float64(givenMean), within/float64(r.To-r.From))
		far(table, "peak_w"+of, float64(peak), float64(givenPeak), 1e-3*math.Abs(float64(givenPeak)))
	}
	energy(t[0], "", r.Total, got.Total, r.Mean, got.Mean, r.Peak, got.Peak)
	for i, x := range r.Rails {
		if i < len(got.Rails) {
			g := got.Rails[i]
			energy(t[1], " of rail "+x.Name, x.Energy, g.Energy, x.Mean, g.Mean, x.Peak, g.Peak)
		}
	}
	given := map[[2]string]float64{}
	eachBudget(got, func(rail, source string, l measure.Contribution) { given[[2]string{rail, source}] = float64(l.U) })
	ends := []string{"window edges", "window sampling", "sampling", "gaps"}
	eachBudget(r, func(rail, source string, l measure.Contribution) {
		if u, known := given[[2]string{rail, source}]; known && !slices.Contains(ends, source) {
			far(t[2], "u_j of "+source+rail, float64(l.U), u, u/10)
		}
	})
	return out
}

// readKept reads all results of a task, and the one in use as the row has it.
func (c *checker) readKept(ctx context.Context, tx *sql.Tx, t *taskState) (err error) {
	if err := readRails(ctx, tx, &t.Task); err != nil {
		return err
	}
	var use sql.NullInt64
	if err := tx.QueryRowContext(ctx, `SELECT result, seal FROM task WHERE task_id=?`, int64(t.ID)).Scan(&use, &t.seal); err != nil {
		return err
	}
	t.use = int(use.Int64)
	if t.kept, err = collect(ctx, tx, func(rows *sql.Rows, k *kept) error { return rows.Scan(&k.number, &k.cal, &k.computed) },
		`SELECT number, calibration_id, coalesce(computed_ns,0) FROM result WHERE task_id=? ORDER BY number`, int64(t.ID)); err != nil {
		return err
	}
	for i := range t.kept {
		k := &t.kept[i]
		x := Task{ID: t.ID}
		_, err := readResult(ctx, tx, &x, k.number)
		if err == nil {
			k.result, err = x.Result, readSetup(ctx, tx, k.cal, &k.setup)
		}
		if errors.Is(err, sql.ErrNoRows) { // of the calibration; it was found dangling
			c.strange[k.cal] = true
		} else if err != nil {
			return err
		}
	}
	t.kept = slices.DeleteFunc(t.kept, func(k kept) bool { return k.result == nil })
	if t.Result != nil {
		t.row = kept{cal: t.cal, result: t.Result, setup: t.setup}
	}
	return tx.QueryRowContext(ctx, `SELECT coalesce(max(at_ns),0) FROM damage WHERE task_id=? AND kind IN (?,?,?,?)`,
		int64(t.ID), string(BadChunk), string(Overlap), string(Hole), string(BadResult)).Scan(&t.damaged)
}

// inUse is the stored result that the row is of; nil where there is none.
func (t *taskState) inUse() *kept {
	for i := range t.kept {
		if t.kept[i].number == t.use {
			return &t.kept[i]
		}
	}
	return nil
}

// summed are the results that are held against the chunks: those whose calibration is what
// it was, and that were not computed before chunks were lost. The row's own is one of them where
// it differs from the result in use.
func (c *checker) summed(t *taskState) (out []*kept) {
	if t.State == Running || t.State == Partial || resumable(t.Reason) {
		return nil
	}
	all := []*kept{}
	for i := range t.kept {
		all = append(all, &t.kept[i])
	}
	if use := t.inUse(); t.row.result != nil && (use == nil || len(differences(&t.row, use)) > 0) {
		all = append(all, &t.row)
	}
	for _, k := range all {
		if c.strange[k.cal] || k.computed < t.damaged && t.damaged > 0 {
			continue
		}
		var err error
		if k.sum, err = measure.NewIntegrator(&k.setup, k.result.From, k.result.To); err == nil {
			out = append(out, k)
			continue
		}
		c.add(Finding{Kind: BadResult, Task: t.ID, Chunk: NoChunk, What: fmt.Sprintf("%s: %v", k, err), Remedy: trimRemedy})
	}
	return out
}

// results compares what is stored of a task's results with each other, and with the sums
// over the chunks where these were all read.
func (c *checker) results(ctx context.Context, t *taskState, read bool) error {
	changed, err := c.unsealed(ctx, t)
	if err != nil {
		return err
	}
	before := len(c.out.Findings)
	right := c.useOfResult(t, changed, read)
	for i := range t.kept {
		k := &t.kept[i]
		if w := k.wrong(t, read); len(w) > 0 && k.number != right {
			c.add(Finding{
				Kind: BadResult, Task: t.ID, Chunk: NoChunk, Mendable: true, source: fromChunks,
				What: fmt.Sprintf("result %d: %s", k.number, words(w)), Remedy: "db repair computes the results anew from the chunks",
			})
		}
	}
	explained := len(c.out.Findings) > before
	ends := t.heads
	if n := len(ends); t.Result != nil && t.Result.Samples > 0 && n > 0 && int64(t.Result.FirstScan) >= ends[n-1].first+ends[n-1].n {
		c.add(Finding{Kind: BadResult, Task: t.ID, Chunk: NoChunk, What: "its window lies behind all samples that are stored", Remedy: trimRemedy})
	}
	c.sealFinding(t, changed, explained)
	return nil
}

// useOfResult compares the task's row with the result in use. It returns the number of
// the result that is right once the finding has been mended; 0 for none.
func (c *checker) useOfResult(t *taskState, changed []string, read bool) (right int) {
	f := Finding{Kind: BadResult, Task: t.ID, Chunk: NoChunk, Mendable: true, Remedy: "db repair takes over the result's figures"}
	use := t.inUse()
	switch {
	case use == nil && (t.use == 0 || t.row.result == nil):
		return 0
	case use == nil:
		f.What, f.Remedy, f.Mendable = fmt.Sprintf("task.result is %d, and there is no such result", t.use), trimRemedy, false
	case t.row.result == nil:
		f.What = fmt.Sprintf("task.has_result is 0, though result %d is in use", t.use)
	default:
		d := differences(&t.row, use)
		if t.cal != use.cal {
			d = append(d, fmt.Sprintf("task.calibration_id is %d, result says %d", t.cal, use.cal))
		}
		if len(d) == 0 {
			return 0
		}
		f.What = fmt.Sprintf("its row does not say what result %d, which is in use, says: %s", t.use, words(d))
		byRow := len(changed) == 0 && len(t.row.wrong(t, read)) == 0 && len(use.wrong(t, read)) > 0
		switch {
		case within(changed, keptTables[:]), byRow:
			f.source, f.Remedy, right = fromRow, "the row is right; db repair puts its figures into the result", t.use
		case within(changed, rowTables[:]):
			right = t.use
		}
	}
	c.add(f)
	return right
}

// wrong says where a result cannot be, or is not what the chunks give where these were read.
func (k *kept) wrong(t *taskState, read bool) []string {
	out := k.inconsistent()
	if k.sum == nil || !read {
		return out
	}
	got, err := k.sum.Result(measure.Edges{})
	switch {
	case err == nil:
		return append(out, k.beside(&got)...)
	case t.State == Incomplete:
		return out
	}
	return append(out, err.Error())
}

// words are a few of several sentences.
func words(list []string) string {
	const most = 3
	if n := len(list); n > most {
		return fmt.Sprintf("%s; and %d more", strings.Join(list[:most], "; "), n-most)
	}
	return strings.Join(list, "; ")
}

// within reports whether what was changed is of these tables alone.
func within(changed, tables []string) bool {
	return len(changed) > 0 && !slices.ContainsFunc(changed, func(t string) bool { return !slices.Contains(tables, t) })
}

// unsealed names the tables whose rows of a task are not what its seal is of.
func (c *checker) unsealed(ctx context.Context, t *taskState) ([]string, error) {
	if t.State == Running || t.State == Partial || len(t.seal) == 0 {
		return nil, nil
	}
	now, err := sealOf(ctx, c.d.reader, t.ID)
	return unlike(t.seal, now), err
}

// sealFinding tells of what was changed, but for what other findings tell and mend. What
// would be computed anew from markers that were changed is left.
func (c *checker) sealFinding(t *taskState, changed []string, explained bool) {
	marks := slices.ContainsFunc(changed, func(t string) bool { return strings.HasPrefix(t, "marker") })
	if len(changed) == 0 || explained && !marks || c.strange[t.cal] {
		return
	}
	c.add(Finding{
		Kind: BadSeal, Task: t.ID, Chunk: NoChunk,
		What:   fmt.Sprintf("a number in its row(s) of table %s was changed after it had ended (column seal)", strings.Join(changed, ", ")),
		Remedy: "put it back from a backup; where the change was meant, wattmark trim seals the task as it is",
	})
	if marks {
		t.blocked = "first its markers (see seal)"
	}
}
