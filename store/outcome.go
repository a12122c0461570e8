package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
)

// Finish ends a task; finishing again replaces the outcome as a whole, with all results. The result is one
// under the calibration of the stream's header, and becomes number 1. With a result, the view data is cut
// to the result's window: its scans are the Result.Samples stored scans from Result.FirstScan on.
//
// A step that the task's life does not have is ErrEnded: a task that has ended does not run again. When
// Finish returns, an ended task is in the file itself and no longer depends on the log (see emptyLog). All
// steps are one transaction, in this order: the step in the task's life, which refuses late or double ends;
// markers; clock; result; and the seal, which covers all that was stored before it.
func (d *DB) Finish(ctx context.Context, id TaskID, o Outcome) error {
	err := d.write(ctx, fmt.Sprintf("finish task %d", id), func(s *session) {
		move(s, id, &o)
		// Edges go with their markers, by ON DELETE CASCADE.
		s.exec("DELETE FROM marker WHERE task_id=?", id)
		for i, m := range o.Markers {
			s.insert("marker", id, i, m.Kind, m.T, m.U, m.Begin, m.End, m.Correlation, m.PSLR, m.Step, m.Tau, m.Tag, m.TagOK,
				m.Fallback)
			for k, e := range m.Edges {
				s.insert("marker_edge", id, i, k, e.Chip, e.T, e.U)
			}
		}
		// Nine NULLs without a fit: clock_used IS NULL is the sign of none.
		fit := make([]any, 9)
		if f := o.Clock; f != nil {
			fit = []any{f.Origin, f.A, f.B, f.VarA, f.VarB, f.CovAB, f.RMS, f.Used, f.Rejected}
		}
		s.exec(`UPDATE task SET clock_origin_s=?, clock_a_s=?, clock_b=?, clock_var_a=?, clock_var_b=?, clock_cov_ab=?,
			clock_rms_s=?, clock_used=?, clock_rejected=? WHERE task_id=?`, append(fit, id)...)
		putOriginal(s, id, o.Result)
		// A task that goes on running is not sealed: its rows still change.
		if o.State != Running {
			putSeal(s, id)
		}
	})
	switch {
	case err != nil:
	case o.State == Running:
		// Chunks are still to come, maybe to another process, which goes on behind the stored ones.
		d.folds.Delete(id)
	default:
		// A pyramid that cannot be made now is made from the chunks when it is wanted.
		_ = d.finishPyramid(ctx, id)
		d.emptyLog(ctx)
	}
	return err
}

// PutFailure records how the work of a task failed, for the process that ends the task. Errors
// wrap ErrNotFound.
func (d *DB) PutFailure(ctx context.Context, id TaskID, f Failure) error {
	return d.write(ctx, fmt.Sprintf("say why the work of task %d failed", id), func(s *session) {
		s.must(`UPDATE task SET failure=?, exit_code=? WHERE task_id=?`, measure.Printable(f.Reason), f.ExitCode, id)
	})
}

// move takes a task to the state of an outcome, if its life has such a step.
// The state is read and written in one transaction. A file's writer holds the write lock from its
// begin; on a server the UPDATE's condition on the state does the same.
func move(s *session, id TaskID, o *Outcome) {
	// A revision and an end lead to the same state: the task's life allows the one or the other.
	events, possible := map[State][2]Event{
		Running: {Postponed, Postponed}, Complete: {RevisedComplete, EndedComplete},
		Incomplete: {RevisedIncomplete, EndedIncomplete}, Untrimmed: {RevisedUntrimmed, EndedUntrimmed},
		Failed: {RevisedFailed, EndedFailed},
	}[o.State]
	if !possible {
		s.fail(fmt.Errorf("no task can be in state %d", o.State))
	}
	on := events[0]
	if o.Once {
		on = events[1]
	}
	var from State
	var owner string
	if !s.row(`SELECT state, coalesce(owner,'') FROM task WHERE task_id=?`, id).found(&from, &owner) {
		s.fail(ErrNotFound)
		return
	}
	// A host that comes back may end a task that another process ended in its place (Recovered kept the
	// owner's name in the row): for that owner alone the task counts as running still.
	life := from
	if o.Once && o.State != Running && owner != "" && o.Owner == owner {
		life = Running // an end in its owner's place holds until the owner's own end
	}
	to, err := transitions.Next(life, on)
	if from == Partial && o.State != Running { // whole: others see it from here on
		// A copy is stored as Partial and becomes any state at once.
		to, err = o.State, nil
		s.exec(`UPDATE task SET cold=0, stored_ns=? WHERE task_id=?`, nanos(time.Now()), id)
	}
	s.fail(err)
	// Otherwise the owner is cleared: nothing is left to wait for.
	var stays, nvml any
	if o.Recovered && owner != "" {
		stays = owner
	}
	if o.NVML != nil {
		nvml = *o.NVML
	}
	// On a server another may have moved it since it was read.
	if s.exec(`UPDATE task SET state=?, reason=?, owner=?, nvml_j=?, nvml_method=nullif(?,'') WHERE task_id=?
		AND state=?`, to, o.Reason, stays, nvml, o.NVMLMethod, id, from) == 0 {
		s.fail(fmt.Errorf("%w: by another program, just now", ErrEnded))
	}
}

// figureColumns are the columns of a result's figures, in the order of figureValues, in the tables task
// and result.
const figureColumns = `from_s,to_s,samples,first_scan,gaps,lost,energy_j,energy_u_j,mean_w,peak_w`

// figureValues are the figures of a result as they are stored.
func figureValues(r *measure.Result) []any {
	return []any{r.From, r.To, r.Samples, r.FirstScan, r.Gaps, r.Lost, r.Total.Energy, r.Total.U, r.Mean, r.Peak}
}

// putResult makes a result the one in use. The row of task, rail_result and budget repeat the result in
// use; readers of lists, sums and the view data need no join by its number. r nil clears them.
func putResult(s *session, id TaskID, r *measure.Result) {
	s.clear(id, "rail_result", "budget")
	set := ` SET has_result=?, end_scan=?, ` + strings.ReplaceAll(figureColumns, ",", "=?, ") + `=? WHERE task_id=?`
	if r == nil {
		s.exec(`UPDATE task`+set, append(append([]any{0}, make([]any, 11)...), id)...)
		return
	}
	// The view data selects scans from first_scan to before end_scan, without a look at the gaps.
	end := endScan(s, id, r.FirstScan, r.Samples)
	s.exec(`UPDATE task`+set, append(append([]any{1, end}, figureValues(r)...), id)...)
	putRails(s, "rail_result", "budget", []any{id}, r)
}

// clear deletes a task's rows of some tables.
func (s *session) clear(id any, tables ...string) {
	for _, table := range tables {
		s.exec(`DELETE FROM `+quotedName(table)+` WHERE task_id=?`, id) // #nosec G202 -- the name is quoted
	}
}

// putRails stores the rails and budgets of a result in two tables, whose rows begin with key.
func putRails(s *session, rails, budget string, key []any, r *measure.Result) {
	// A copy: key is shared by all rows.
	put := func(table string, v ...any) { s.insert(table, append(slices.Clone(key), v...)...) }
	lines := func(rail int, lines []measure.Contribution) {
		for i, l := range lines {
			put(budget, rail, i, l.Source, l.U, l.Systematic)
		}
	}
	for i, x := range r.Rails {
		put(rails, i, x.Name, x.Role, x.Energy.Energy, x.Energy.U, x.Mean, x.Peak)
		lines(i, x.Budget)
	}
	// The total's budget has the rail -1.
	lines(-1, r.Budget)
}

// endScan returns one past the last of the given number of stored scans from
// first on. Counting stored scans, not sampled ones, keeps the window
// right where scans were lost in it and their number is an estimate.
func endScan(s *session, id TaskID, first, samples uint64) int64 {
	end, left := int64(first), int64(samples)
	// Walks the chunks by the primary key (task_id, chunk_no) and stops in the one that holds the end.
	for rows := range s.rows(`SELECT first_scan, n FROM chunk WHERE task_id=? ORDER BY chunk_no`, id) {
		var from, n int64
		s.fail(rows.Scan(&from, &n))
		// Scans before the window in its first chunk are left out; a chunk before the window gives take
		// < 0.
		from, stop := max(from, int64(first)), from+n
		if take := min(left, stop-from); take > 0 {
			end, left = from+take, left-take
		}
		if left <= 0 {
			break
		}
	}
	return end
}

// putOriginal replaces all results of a task by one under the calibration of the stream's header; nil for
// none. Where the numbers of that calibration were changed since there is a result it is ErrCorrupt.
func putOriginal(s *session, id TaskID, r *measure.Result) {
	// What is computed anew is not computed by numbers that were changed.
	before := one[sql.NullInt64](s, `SELECT max(calibration_id) FROM result WHERE task_id=? AND number=1`, id)
	if r != nil && before.Valid {
		var setup measure.Setup
		readSetup(s, before.Int64, &setup)
		isAsDigested(s, before.Int64, &setup)
	}
	// A task that was recalculated goes back to the calibration that it was measured with.
	s.exec(`UPDATE task SET result=NULL, calibration_id=coalesce(
		(SELECT calibration_id FROM result WHERE task_id=task.task_id AND number=1), calibration_id) WHERE task_id=?`,
		id)
	// Rails and budgets go with their results, by ON DELETE CASCADE.
	s.clear(id, "result")
	putResult(s, id, r)
	if r == nil {
		return
	}
	// Without a header there is nothing to bind a result to.
	if cal := one[sql.NullInt64](s, `SELECT calibration_id FROM task WHERE task_id=?`, id); cal.Valid {
		keepResult(s, id, 1, cal.Int64, r)
	}
}

// keepResult adds a result to those of a task, and marks it as the one in use.
func keepResult(s *session, id TaskID, no int, cal int64, r *measure.Result) {
	s.exec(`INSERT INTO result(task_id,number,calibration_id,computed_ns,`+figureColumns+`)
		VALUES(?,?,?,?, ?,?, ?,?,?,?, ?,?,?,?)`,
		append([]any{id, no, cal, time.Now().UnixNano()}, figureValues(r)...)...)
	putRails(s, "result_rail", "result_budget", []any{id, no}, r)
	useResult(s, id, no, cal)
}

// useResult marks a stored result as the one in use.
func useResult(s *session, id TaskID, no int, cal int64) {
	s.must(`UPDATE task SET result=?, calibration_id=? WHERE task_id=?`, no, cal, id)
}

// AddResult adds a result of a task's counts under another calibration, over the same window, and puts it
// in use: lists, the view data and exports follow it. Earlier results stay. For a calibration that the task
// already has a result of, that result is put in use; added then is false. Errors wrap ErrNotFound, and
// ErrConflict where the task has no result yet, still runs, or has another window.
func (d *DB) AddResult(ctx context.Context, id TaskID, s measure.Setup,
	r *measure.Result,
) (no int, added bool, err error) {
	// One transaction up to the seal; the pyramid follows in its own, since folding a long capture
	// takes seconds in which no other writer should wait.
	err = d.write(ctx, fmt.Sprintf("add a result of task %d", id), func(tx *session) {
		if tx.fail(s.Validate()); tx.err != nil {
			return
		}
		h := Header{Setup: s, CalibrationID: s.CalibrationID()}
		mayAdd(tx, id, &h, r)
		cal := putCalibration(tx, id, h)
		added = !tx.row(`SELECT number FROM result WHERE task_id=? AND calibration_id=?`, id, cal).found(&no)
		if !added {
			// The figures that are stored already win: the same counts under the same calibration give
			// the same result, but for differences between versions of the program.
			reuse(tx, id, no)
		} else {
			// Numbers are not used twice: results are added and never deleted one by one.
			no = one[int](tx, `SELECT max(number)+1 FROM result WHERE task_id=?`, id)
			putResult(tx, id, r)
			keepResult(tx, id, no, cal, r)
		}
		putSeal(tx, id)
	})
	if err == nil {
		err = d.BuildPyramid(ctx, id) // its watts are of a calibration
	}
	return no, added && err == nil, err
}

// reuse puts a stored result in use, as it is stored.
// The row follows the kept result, which is read whole, with rails and budgets, and stored again.
func reuse(s *session, id TaskID, no int) {
	t := Task{ID: id}
	cal, found := readResult(s, &t, no)
	if !found {
		s.fail(sql.ErrNoRows)
		return
	}
	putResult(s, id, t.Result)
	useResult(s, id, no, cal)
}

// mayAdd refuses a result that is not one of the same samples, and fills in the bench.
func mayAdd(s *session, id TaskID, h *Header, r *measure.Result) {
	var state State
	var from, to measure.Seconds
	found := s.row(`SELECT t.state, r.from_s, r.to_s, k.bench FROM task t LEFT JOIN result r
		ON r.task_id=t.task_id AND r.number=t.result
		LEFT JOIN calibration k ON k.calibration_id=t.calibration_id WHERE t.task_id=?`, id).
		found(&state, (*real)(&from), (*real)(&to), (*text)(&h.Bench))
	switch {
	// A Partial task is hidden from all but its maker, and has no other calibration yet.
	case !found || state == Partial:
		s.fail(ErrNotFound)
	case state == Running:
		s.fail(fmt.Errorf("%w: the task still runs", ErrConflict))
	case !measure.Known(from) || !measure.Known(to):
		s.fail(fmt.Errorf("%w: the task has no window yet", ErrConflict))
	// Windows compare as stored bits: both come from the same trimming.
	case from != r.From || to != r.To:
		s.fail(fmt.Errorf("%w: its window was changed meanwhile", ErrConflict))
	}
}

// TaskResult returns a task as Task does, with the result of a number and the setup that it follows in
// place of those in use; number 0 is Task. Errors wrap ErrNotFound.
func (d *DB) TaskResult(ctx context.Context, id TaskID, no int) (Task, error) {
	t, err := d.Task(ctx, id)
	if err != nil || no == 0 {
		return t, err
	}
	// Task has read the result in use; the one asked for replaces it, with its setup, and the clipped
	// readings are placed by its window.
	err = d.view(ctx, fmt.Sprintf("read result %d of task %d", no, id), func(s *session) {
		cal, found := readResult(s, &t, no)
		if !found {
			s.fail(fmt.Errorf("%w: it has %s", ErrNotFound, measure.Plural(len(t.Results), "result")))
		}
		// readSetup fills a zero value: slices of the setup in use must not stay.
		t.Setup = measure.Setup{}
		readSetup(s, cal, &t.Setup)
		t.Setup = calib.Aged(t.Setup, t.Launched)
		d.readClipped(s, &t)
	})
	if errors.Is(err, ErrNotFound) {
		t = Task{}
	}
	return t, err
}

// readResult reads the result of a number into t, and returns its calibration; found is false where
// there is none.
func readResult(s *session, t *Task, no int) (cal int64, found bool) {
	var r measure.Result
	if !s.row(`SELECT r.calibration_id, k.name, k.bench, `+figureColumns+` FROM result r
		JOIN calibration k USING(calibration_id) WHERE r.task_id=? AND r.number=?`, t.ID, no).found(
		&cal, (*text)(&t.CalibrationID), (*text)(&t.Bench), (*real)(&r.From), (*real)(&r.To), &r.Samples, &r.FirstScan,
		&r.Gaps, &r.Lost, (*real)(&r.Total.Energy), (*real)(&r.Total.U), (*real)(&r.Mean), (*real)(&r.Peak)) {
		return 0, false
	}
	t.Result, t.ResultNumber = &r, no
	collectRails(s, t, "result_rail", "result_budget", "task_id=? AND number=?", t.ID, no)
	return cal, s.err == nil
}

// Calibrations returns the calibrations that are stored, in the order in which they came.
func (d *DB) Calibrations(ctx context.Context) (out []Calibration, err error) {
	err = d.view(ctx, "list calibrations", func(s *session) {
		var ids []int64
		out = all(s, func(rows *sql.Rows, c *Calibration) error {
			var id int64
			err := rows.Scan(&id, (*text)(&c.CalibrationID), (*text)(&c.Bench), (*moment)(&c.Since))
			ids = append(ids, id)
			return err
		}, `SELECT calibration_id, name, bench, since_ns FROM calibration ORDER BY calibration_id`)
		for i := range out {
			// Calibrations are few (one for each change of a bench), so queries for each are cheap.
			readSetup(s, ids[i], &out[i].Setup)
			out[i].Instruments = all(s, func(rows *sql.Rows, i *Instrument) error {
				return rows.Scan((*text)(&i.Kind), (*text)(&i.Serial))
			}, `SELECT DISTINCT coalesce(instrument_kind,''), coalesce(instrument_serial,'') FROM task
				WHERE calibration_id=?1 OR task_id IN (SELECT task_id FROM result WHERE calibration_id=?1)`, ids[i])
		}
	})
	return out, err
}
