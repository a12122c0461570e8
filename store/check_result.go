package store

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/measure"
)

// kept is a stored result, with the sum over the chunks that it is compared with.
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

// resultSource is the source by which a result is mended.
type resultSource uint8

// Which of the three holds is decided by the seal and by the chunks, see useOfResult.
const (
	fromResult resultSource = iota // the row takes over the result in use
	fromRow                        // the result in use takes over the row
	fromChunks                     // all are computed anew
)

const trimRemedy = "set a window by hand: wattmark trim"

// figure is one number of a result. table counts rowTables and keptTables.
// Figures of two results are compared place by place: the order is the identity.
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

// tables returns the tables of the result, its rails and its budget.
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
	// Rails, then budgets of the rails, then the total's: the order of the tables.
	for _, x := range r.Rails {
		of := " of rail " + x.Name
		out = append(out, figure{1, "energy_j" + of, float64(x.Energy.Energy)},
			figure{1, "energy_u_j" + of, float64(x.Energy.U)}, figure{1, "mean_w" + of, float64(x.Mean)},
			figure{1, "peak_w" + of, float64(x.Peak)})
	}
	for _, x := range r.Rails {
		for _, l := range x.Budget {
			out = append(out, figure{2, "u_j of " + l.Source + " of rail " + x.Name, float64(l.U)})
		}
	}
	for _, l := range r.Budget {
		out = append(out, figure{2, "u_j of " + l.Source, float64(l.U)})
	}
	return out
}

// differences lists the places where two stored forms of one result differ.
func differences(a, b *kept) (out []string) {
	x, y := figures(a.result), figures(b.result)
	for i := range min(len(x), len(y)) {
		switch f, g := x[i], y[i]; {
		// Another rail or another line of the budget: from here on the places no longer correspond.
		case f.what != g.what:
			return append(out,
				fmt.Sprintf("%s has %s where %s has %s", a.tables()[f.table], f.what, b.tables()[g.table], g.what))
		// Bit for bit: both were stored from one value.
		case !nearly(f.value, g.value, 0):
			out = append(out, fmt.Sprintf("%s.%s is %v, %s says %v",
				a.tables()[f.table], f.what, f.value, b.tables()[g.table], g.value))
		}
	}
	if len(x) != len(y) {
		out = append(out, fmt.Sprintf("%s has %d numbers, %s %d", a, len(x), b, len(y)))
	}
	return out
}

// nearly reports whether a and b differ by at most within. NaN equals NaN alone, an infinity itself alone.
func nearly(a, b, within float64) bool {
	return a == b || math.Abs(a-b) <= within || math.IsNaN(a) && math.IsNaN(b)
}

// inconsistent lists contradictions within a result, whatever the chunks hold: the rails'
// energies must add up to the total, E = ΣE_r, and each expanded uncertainty must follow from
// its budget, U = k·√Σu², with k between 2 and the factor of one degree of freedom.
func (k *kept) inconsistent() (out []string) {
	r, t := k.result, k.tables()
	sum, size := 0.0, 0.0
	for _, x := range r.Rails {
		sum, size = sum+float64(x.Energy.Energy), size+math.Abs(float64(x.Energy.Energy))
	}
	// size is Σ|E_r|: rails of opposite sign must not make the tolerance vanish.
	if len(r.Rails) > 0 && !nearly(sum, float64(r.Total.Energy), 1e-9*size) && !math.IsNaN(sum) {
		out = append(out, fmt.Sprintf("%s.energy_j is %v, its rails come to %v", t[0], float64(r.Total.Energy), sum))
	}
	// The bounds are k of ∞ and of 1 degree of freedom, with a margin of 0.1 % for sums in another order.
	covered := func(table, of string, u measure.Joule, lines []measure.Contribution) {
		squares := 0.0
		for _, l := range lines {
			squares += float64(l.U) * float64(l.U)
		}
		least := 1.999 * math.Sqrt(squares)
		most := 1.001 * measure.CoverageFactor(1) * math.Sqrt(squares)
		if len(lines) > 0 && (float64(u) < least || float64(u) > most) {
			out = append(out,
				fmt.Sprintf("%s.energy_u_j%s is %v, its budget gives %v to %v", table, of, float64(u), least, most))
		}
	}
	covered(t[0], "", r.Total.U, r.Budget)
	for _, x := range r.Rails {
		covered(t[1], " of rail "+x.Name, x.Energy.U, x.Budget)
	}
	return out
}

// beside lists the places where a result differs from the sum over the chunks. Energies may
// differ by a small part of their uncertainty: another version of the program may add up a
// little differently. So may lines of the budget; those of the window's ends are known only to
// the program that found the window, and are not compared.
func (k *kept) beside(got *measure.Result) (out []string) {
	type place struct {
		table int
		what  string
	}
	given := map[place]float64{}
	for _, f := range figures(got) {
		given[place{f.table, f.what}] = f.value
	}
	// Sources that follow from the markers, which also show how steady the meter's clock is, or from the
	// trimming, and not from the samples in the window.
	ends := []string{"window edges", "window sampling", "sampling", "gaps", "tick rate"}
	for _, f := range figures(k.result) {
		gives, known := given[place{f.table, f.what}]
		name, of, _ := strings.Cut(f.what, " ")
		if of != "" {
			of = " " + of
		}
		// A relative 10⁻⁶ for the arithmetic, and a twentieth of U for another treatment of the ends.
		within := 1e-6*math.Abs(given[place{f.table, "energy_j" + of}]) + given[place{f.table, "energy_u_j" + of}]/20
		switch source, _, _ := strings.Cut(strings.TrimPrefix(of, " of "), " of rail "); name {
		case "samples", "first_scan", "gaps", "lost":
			within = 0 // whole numbers are exact in every version
		case "energy_j":
		case "mean_w": // it is E/T, so its tolerance is the energy's divided by the window
			within /= float64(k.result.To - k.result.From)
		case "peak_w": // it depends on single samples, and on how they are smoothed
			within = 1e-3 * math.Abs(gives)
		case "u_j":
			// Whether lone readings are the meter's shows at rest and in the markers.
			within = gives / 10
			known = known && !slices.Contains(ends, source) && !strings.HasPrefix(source, "heavy tail ")
		default:
			continue
		}
		if known && !nearly(f.value, gives, within) {
			out = append(out,
				fmt.Sprintf("%s.%s is %v, the chunks give %v", k.tables()[f.table], f.what, f.value, gives))
		}
	}
	return out
}

// readKept reads all results of a task, and the one in use as the row has it.
func (c *checker) readKept(s *session, t *taskState) {
	readRails(s, &t.Task)
	s.row(`SELECT coalesce(result,0), seal FROM task WHERE task_id=?`, t.ID).into(&t.use, &t.seal)
	for _, k := range all(s, func(rows *sql.Rows, k *kept) error { return rows.Scan(&k.number, &k.cal, &k.computed) },
		`SELECT number, calibration_id, coalesce(computed_ns,0) FROM result WHERE task_id=? ORDER BY number`, t.ID) {
		x := Task{ID: t.ID}
		if _, found := readResult(s, &x, k.number); found {
			k.result = x.Result
			readSetup(s, k.cal, &k.setup)
			t.kept = append(t.kept, &k)
		} else { // its calibration is not there, which was found dangling: it cannot be judged
			c.strange[k.cal] = true
		}
	}
	if t.Result != nil {
		t.row = kept{cal: t.cal, result: t.Result, setup: t.setup}
	}
	// Findings of these kinds took samples away: results that were computed before are of more samples
	// than there are now, and comparing them would be a false alarm.
	t.damaged = one[int64](s, `SELECT coalesce(max(at_ns),0) FROM damage WHERE task_id=? AND kind IN (?,?,?,?)`, t.ID,
		string(BadChunk), string(Overlap), string(Hole), string(BadResult))
}

// inUse is the stored result that the row is of; nil where there is none.
func (t *taskState) inUse() *kept {
	for _, k := range t.kept {
		if k.number == t.use {
			return k
		}
	}
	return nil
}

// summed returns the results to compare with the chunks: those whose calibration is intact, and that were
// not computed before chunks were lost. The task's own row is one of them where it differs from the result
// in use. A task that runs or waits to be resumed has a result of part of its samples, if any.
func (c *checker) summed(t *taskState) (out []*kept) {
	if t.State == Running || t.State == Partial || resumable(t.Reason) {
		return nil
	}
	all := slices.Clone(t.kept)
	if use := t.inUse(); t.row.result != nil && (use == nil || len(differences(&t.row, use)) > 0) {
		all = append(all, &t.row)
	}
	for _, k := range all {
		if c.strange[k.cal] || k.computed < t.damaged && t.damaged > 0 {
			continue
		}
		var err error
		// An integrator for each result, with the setup that the result was computed by.
		if k.sum, err = measure.NewIntegrator(&k.setup, k.result.From, k.result.To); err == nil {
			out = append(out, k)
			continue
		}
		c.found(BadResult, t.ID, trimRemedy, "%s: %v", k, err).Mendable = false
	}
	return out
}

// results compares the stored results of a task with each other, and with the sums over the
// chunks where all chunks were read.
func (c *checker) results(ctx context.Context, t *taskState, read bool) error {
	// Which tables a seal finds changed decides between two contradicting results.
	// A running task is sealed when it ends.
	var changed []string
	if t.State != Running && t.State != Partial && len(t.seal) > 0 {
		s := c.d.reading(ctx)
		if changed = unlike(t.seal, sealOf(s, t.ID)); s.err != nil {
			return s.err
		}
	}
	before := len(c.out.Findings)
	// right is spared: it will be equal to the row, or the row to it, once that is mended.
	right := c.useOfResult(t, changed, read)
	for _, k := range t.kept {
		if w := k.wrong(t, read); len(w) > 0 && k.number != right {
			c.found(BadResult, t.ID, "db repair computes the results anew from the chunks",
				"result %d: %s", k.number, words(w)).source = fromChunks
		}
	}
	explained := len(c.out.Findings) > before
	// A window behind the last sample holds none, so nothing could be computed from it.
	ends := t.heads
	if n := len(ends); t.Result != nil && t.Result.Samples > 0 && n > 0 &&
		int64(t.Result.FirstScan) >= ends[n-1].first+ends[n-1].n {
		c.found(BadResult, t.ID, trimRemedy, "its window lies behind all samples that are stored").Mendable = false
	}
	c.sealFinding(t, changed, explained)
	return nil
}

// useOfResult compares the task's row with the result in use. It returns the number of
// the result that is right once the finding has been mended; 0 for none.
// The row and the result in use hold the same figures twice. Where they differ, the seal decides: if
// only the kept tables were changed, the row is right, and the reverse. Without a seal, the side that
// agrees with the chunks is right; else the row is overwritten by the result.
func (c *checker) useOfResult(t *taskState, changed []string, read bool) (right int) {
	f := Finding{
		Kind: BadResult, Task: t.ID, Chunk: NoChunk, Mendable: true, Remedy: "db repair takes over the result's figures",
	}
	use := t.inUse()
	switch {
	case use == nil && (t.use == 0 || t.row.result == nil):
		return 0
	case use == nil:
		f.What, f.Remedy, f.Mendable = fmt.Sprintf("task.result is %d, and there is no such result",
			t.use), trimRemedy, false
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
		// byRow: no seal decides, and only the result contradicts itself or the chunks.
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

// wrong lists contradictions of a result, and its differences from the chunks where all were read.
func (k *kept) wrong(t *taskState, read bool) []string {
	out := k.inconsistent()
	if k.sum == nil || !read {
		return out
	}
	// The edges of the window are known only to the program that found it; zero ones leave their lines
	// out of the budget.
	got, err := k.sum.Result(measure.Edges{})
	switch {
	case err == nil:
		return append(out, k.beside(&got)...)
	// An incomplete task may have a window that reaches beyond its samples.
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

// within reports whether all changes are in the given tables.
func within(changed, tables []string) bool {
	return len(changed) > 0 && !slices.ContainsFunc(changed, func(t string) bool { return !slices.Contains(tables, t) })
}

// sealFinding reports changes of sealed rows, unless other findings explain and mend them.
// Nothing is computed anew from markers that were changed.
// explained: another finding names the cause, and its repair seals the task again. Markers are reported
// in any case: nothing else checks them, and a result follows from them.
func (c *checker) sealFinding(t *taskState, changed []string, explained bool) {
	marks := slices.ContainsFunc(changed, func(t string) bool { return strings.HasPrefix(t, "marker") })
	if len(changed) == 0 || explained && !marks || c.strange[t.cal] {
		return
	}
	c.found(BadSeal, t.ID,
		"put it back from a backup; where the change was meant, wattmark trim seals the task as it is",
		"a number in its row(s) of table %s was changed after it had ended (column seal)",
		strings.Join(changed, ", ")).Mendable = false
	if marks {
		t.blocked = "first its markers (see seal)"
	}
}
