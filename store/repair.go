package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// Repaired is the outcome of Repair.
type Repaired struct {
	Mended []Finding
	// Left are the findings that it could not mend; their Remedy holds the cause.
	Left []Finding
	// Cut are the tasks whose results are to be computed anew, from the samples that are
	// there now: those that lost samples, and those whose results are not of them.
	Cut []TaskID
}

// Repair mends findings of Check, as far as the sound rest of the file allows. A damaged chunk
// goes to the table damage as it is, the loss becomes an event, and the task incomplete. Each
// task is mended in one transaction. Running tasks are left alone, and so is a file with a torn
// page: to write could destroy rows that can still be salvaged.
func (d *DB) Repair(ctx context.Context, findings []Finding) (*Repaired, error) {
	var out Repaired
	// SQLite would rebalance pages around the torn one when rows are deleted or indexes made anew. A
	// file of that kind is copied row by row by salvage, never mended in place.
	if slices.ContainsFunc(findings, torn) {
		out.Left = findings
		return &out, nil // see above
	}
	byTask := map[TaskID][]Finding{}
	// Findings of one task are collected, since counts, state and pyramid are put right once for all of
	// them. The kinds excluded below concern rows beyond the task: its references, its file-wide
	// calibration, and the sweep of a task left Partial by a killed program.
	for _, f := range findings {
		switch {
		case !f.Mendable:
			out.Left = append(out.Left, f)
		case f.Task != 0 && f.Kind != Dangling && f.Kind != Unfinished && f.Kind != BadCalibration:
			byTask[f.Task] = append(byTask[f.Task], f)
		default:
			if err := d.repairFile(ctx, f); err != nil {
				return &out, wrap(fmt.Sprintf("repair (%s)", f.What), err)
			}
			out.Mended = append(out.Mended, f)
		}
	}
	// In ascending order of tasks, so that a repair that fails goes on at a later call where it
	// stopped: each task is a transaction of its own and stays mended.
	for _, id := range slices.Sorted(maps.Keys(byTask)) {
		if err := d.repairTask(ctx, id, byTask[id], &out); err != nil {
			return &out, wrap(fmt.Sprintf("repair task %d", id), err)
		}
	}
	return &out, nil
}

// repairFile mends a finding that belongs to no task.
func (d *DB) repairFile(ctx context.Context, f Finding) error {
	switch f.Kind {
	// sweep decides again under the lock whether the task's owner is dead.
	case Unfinished:
		_, err := d.sweep(ctx, func(l *leftover) bool { return l.id == f.Task })
		return err
	case Dangling:
		return d.write(ctx, "set rows aside", func(s *session) { mendReference(s, f) })
	case BadCalibration:
		return d.write(ctx, "compute what follows from a calibration",
			func(s *session) { calibrationAnew(s, f.calibration) })
	case BadSearch:
		return d.write(ctx, "make the full-text index anew", func(s *session) {
			// A damaged index may fail when it is changed in place: it is dropped.
			schemaAnew(s, "task_text")
			s.exec(`INSERT INTO task_text(rowid, name, notes, tags) SELECT task_id, name,
				coalesce((SELECT group_concat(text, ' ') FROM task_note n WHERE n.task_id=t.task_id), ''),
				coalesce((SELECT group_concat(key || ' ' || value, ' ') FROM task_tag g WHERE g.task_id=t.task_id), '')
				FROM task t`)
		})
	case BadTags:
		// Triggers carry the tags of task_tag into the column tags; here the column is computed from
		// the same expression for the tasks where it differs.
		return d.write(ctx, "carry the tags anew", func(s *session) {
			s.exec(`UPDATE task AS t SET tags=` + carriedTags + ` WHERE t.tags IS NOT ` + carriedTags)
		})
	case BadPage:
		// The index contradicts its table; REINDEX reads the tables alone.
		return d.write(ctx, "make the indexes anew", func(s *session) { s.exec("REINDEX") })
	case BadSchema:
		// Views, indexes and triggers hold no data of their own.
		return d.write(ctx, "make "+f.name+" anew", func(s *session) { schemaAnew(s, f.name) })
	}
	return fmt.Errorf("it cannot be mended here: %s", f.Remedy)
}

// schemaAnew makes a view, index or trigger again, or the rows of the look-up table.
func schemaAnew(s *session, name string) {
	if name == "_u16" {
		// _u16 maps each two-byte little-endian blob to its number: the plain view decodes samples by it.
		s.exec("DELETE FROM _u16")
		s.exec(`WITH RECURSIVE s(v) AS (SELECT 0 UNION ALL SELECT v+1 FROM s WHERE v<65535)
			INSERT INTO _u16 SELECT unhex(printf('%02x%02x', v&255, v>>8)), v FROM s`)
		return
	}
	want, err := reference()
	s.fail(err)
	// The name comes from the schema of this program, not from the file.
	w := want[name]
	s.exec(fmt.Sprintf("DROP %s IF EXISTS main.%s; %s", strings.ToUpper(w.kind), quotedName(name), w.sql))
}

// mendReference mends rows that refer to a missing row. A missing user is made; other references
// become NULL where the schema allows it, or their rows go to the table damage.
func mendReference(s *session, f Finding) {
	if f.refers.parent == "user" {
		// Tasks of a missing user stay readable: the user gets its old number and a made-up login.
		s.exec(`INSERT INTO "user"(user_id, login) VALUES(?,?) ON CONFLICT DO NOTHING`, f.to, lostUser(f.to))
		return
	}
	// A reference of several columns begins with the column that holds the missing value.
	table, by := quotedName(f.refers.table), quotedName(f.refers.from[0])
	where := ` WHERE ` + by + `=? AND ` + f.refers.rows()
	kept := map[string]any{f.refers.from[0]: f.to, f.refers.table: rowsAsText(s, f.refers.table, where, f.to)}
	keepDamage(s, nil, nil, f, kept)
	// Rows whose foreign key says ON DELETE SET NULL keep their other values; the rest go.
	do := `DELETE FROM ` + table
	if f.refers.deletes == "SET NULL" {
		do = `UPDATE ` + table + ` SET ` + by + `=NULL`
	}
	s.exec(do+where, f.to) // #nosec G202 -- names are quoted
}

// rowsAsText reads rows with every value as an SQL literal: blobs in hexadecimal.
func rowsAsText(s *session, table, where string, args ...any) (out []map[string]string) {
	cols := s.columnsOf(table)
	// quote() returns a literal that INSERT takes back unchanged, with X'..' for blobs and all digits
	// of reals: a row in the table damage can be put back by hand.
	quotes := lists.Map(cols, func(c string) string { return "quote(" + quotedName(c) + ")" })
	for v := range s.rowValues(`SELECT `+strings.Join(quotes, ",")+` FROM `+quotedName(table)+where, args...) {
		row := map[string]string{}
		for i, c := range cols {
			row[c], _ = v[i].(string)
		}
		out = append(out, row)
	}
	return out
}

// keepDamage copies damaged rows into the table damage, as JSON.
func keepDamage(s *session, task, no any, f Finding, content any) {
	s.exec(`INSERT INTO damage(task_id, chunk_no, at_ns, kind, what, content) VALUES(?,?,?,?,?,?)`, task, no,
		time.Now().UnixNano(), string(f.Kind), measure.Printable(f.What), s.json(content))
}

// repairTask mends one task's findings. Order of steps: refuse a running task, mend each finding, count
// again, commit; only then the pyramid, which has transactions of its own and can be made anew at any time.
func (d *DB) repairTask(ctx context.Context, id TaskID, findings []Finding, out *Repaired) error {
	cut, fold := false, false
	err := d.write(ctx, "repair", func(s *session) {
		var state State
		var result sql.NullInt64
		s.row(`SELECT state, result FROM task WHERE task_id=?`, id).into(&state, &result)
		// Its capture still appends chunks; a gap recorded now could overlap them.
		if state == Running {
			s.fail(errRuns)
		}
		r := repairer{session: s, id: id, gone: map[ChunkNo]bool{}}
		for _, f := range findings {
			r.mend(f, int(result.Int64))
		}
		// Lost samples change both the results and the pyramid, whatever the finding was.
		cut, fold = r.sum || r.lost > 0, r.fold || r.lost > 0
		r.conclude()
	})
	if errors.Is(err, errRuns) || errors.Is(err, ErrCorrupt) {
		why := salvageRemedy // a damaged page: nothing of the task can be mended in place
		if errors.Is(err, errRuns) {
			why = "it still runs: let it end, or let wattmark host end it, and repair again"
		}
		for _, f := range findings { // all are left: the task's transaction was rolled back as a whole
			f.Remedy, f.Mendable = why, false
			out.Left = append(out.Left, f)
		}
		return nil
	}
	if err != nil {
		return err
	}
	// A pyramid kept in memory may hold chunks that were set aside.
	d.folds.Delete(id)
	if fold {
		// A task without a header has no chunks, and so no pyramid.
		if err := d.BuildPyramid(ctx, id); err != nil && !errors.Is(err, ErrNoHeader) {
			return err
		}
	}
	if cut {
		out.Cut = append(out.Cut, id)
	}
	out.Mended = append(out.Mended, findings...)
	return nil
}

var errRuns = errors.New("the task still runs")

// repairer mends one task in one transaction.
type repairer struct {
	*session
	id   TaskID
	gone map[ChunkNo]bool // chunks that were set aside
	lost int              // chunks set aside and holes found
	fold bool             // the pyramid is to be made anew
	sum  bool             // the results are to be computed anew
	scan int64            // scans that are missing now
}

// mend handles one finding. Counts are set at the end in any case.
func (r *repairer) mend(f Finding, result int) {
	switch f.Kind {
	case BadChunk, Overlap:
		r.aside(f)
	case Hole:
		r.hole(f)
	case BadPyramid:
		r.fold = true
	case BadResult:
		r.result(f, result)
	case FalseGap:
		// Events of a loss that did not happen go to the table damage.
		for _, e := range f.events {
			// The primary key without the detail: the event came from the same rows.
			where := ` WHERE task_id=? AND first_scan=? AND kind=? AND channel=? AND scans=? AND exact=1`
			args := []any{r.id, int64(e.FirstScan), e.Kind, e.Channel, int64(e.Scans)}
			r.keep(f, f.Chunk, []string{"event"}, where, args...)
			r.exec(`DELETE FROM event`+where, args...)
		}
	// Counts are put right by conclude.
	case BadCount:
	default:
		r.fail(fmt.Errorf("%s: it cannot be mended here", f.What))
	}
}

// keep copies the rows of a condition, from each of the tables, into the table damage.
func (r *repairer) keep(f Finding, chunk any, tables []string, where string, args ...any) {
	content := map[string]any{}
	for _, table := range tables {
		content[table] = rowsAsText(r.session, table, where, args...)
	}
	keepDamage(r.session, r.id, chunk, f, content)
}

// aside moves a chunk to the table damage, and records the loss.
func (r *repairer) aside(f Finding) {
	if r.gone[f.Chunk] {
		return // it had two faults
	}
	var first, n int64
	if !r.row(`SELECT first_scan, n FROM chunk WHERE task_id=? AND chunk_no=?`, r.id, f.Chunk).found(&first, &n) {
		return
	}
	// The rows go to damage before they are deleted; columns follow the chunk by ON DELETE CASCADE.
	tables := []string{"chunk", "chunk_column", "chunk_cold"}
	r.keep(f, f.Chunk, tables, ` WHERE task_id=? AND chunk_no=?`, r.id, f.Chunk)
	r.exec(`DELETE FROM chunk WHERE task_id=? AND chunk_no=?`, r.id, f.Chunk)
	r.gone[f.Chunk] = true
	// Scans that a chunk before it holds as well are not lost.
	end := one[int64](r.session, `SELECT coalesce(max(first_scan+n),0) FROM chunk WHERE task_id=? AND chunk_no<?`, r.id,
		f.Chunk)
	if end > first {
		first, n = end, max(first+n-end, 0)
	}
	r.gap(first, n, fmt.Sprintf("chunk %d was damaged and set aside: %s", f.Chunk, f.What))
}

// result puts the figures of the result in use right. Those that are computed anew from
// the chunks are kept as they were in the table damage.
func (r *repairer) result(f Finding, number int) {
	// The row contradicts the result in use, which is right: it is copied over the row.
	if f.source == fromResult {
		reuse(r.session, r.id, number)
		return
	}
	// Both the row's tables and the kept ones are saved: which of them was wrong is a judgement.
	r.keep(f, nil, slices.Concat(rowTables[:], keptTables[:]), ` WHERE task_id=?`, r.id)
	// The caller computes the results anew from the chunks (Cut), after the commit.
	if f.source == fromChunks {
		r.sum = true
		return
	}
	// fromRow: the row is right. The kept result is replaced by one made of the row's figures, under
	// the same number and calibration.
	t := r.oneTask("LEFT JOIN", r.id, "")
	if r.err != nil {
		return
	}
	readRails(r.session, &t.Task)
	r.exec(`DELETE FROM result WHERE task_id=? AND number=?`, r.id, number)
	keepResult(r.session, r.id, number, t.calibration, t.Result)
}

// hole records an unreported loss before a chunk.
func (r *repairer) hole(f Finding) {
	var from, to sql.NullInt64
	// The hole lies between the end of the chunk before and the first scan of this one.
	r.row(`SELECT (SELECT first_scan+n FROM chunk WHERE task_id=?1 AND chunk_no<?2 ORDER BY chunk_no DESC LIMIT 1),
		(SELECT first_scan FROM chunk WHERE task_id=?1 AND chunk_no=?2)`, r.id, f.Chunk).into(&from, &to)
	if !from.Valid || !to.Valid || from.Int64 >= to.Int64 {
		return // its neighbour was set aside, which is recorded
	}
	t := Task{ID: r.id}
	readEvents(r.session, &t)
	keepDamage(r.session, r.id, f.Chunk, f, map[string]any{})
	// Parts that an event already reports keep that event; the others get one each.
	for _, x := range untold(t.Events, from.Int64, to.Int64) {
		r.gap(x[0], x[1]-x[0], "found missing by a check of the database")
	}
}

// gap records the loss of n scans from first on.
func (r *repairer) gap(first, n int64, detail string) {
	r.lost++
	r.scan += n
	r.exec(putEvent, r.id, first, measure.EventGap, n, 1, -1, measure.Printable(detail))
}

// conclude counts the samples again, and records the loss in the task's reason.
func (r *repairer) conclude() {
	recount(r.session, r.id)
	if r.lost == 0 {
		return
	}
	reason := fmt.Sprintf("%s in %s were damaged in the database and are missing", measure.Plural(r.scan, "scan"),
		measure.Plural(r.lost, "place"))
	// A failed task stays failed; any other becomes incomplete. The reason is put before the earlier
	// one, the newest first.
	r.exec(`UPDATE task SET state=CASE state WHEN ?4 THEN ?4 ELSE ?2 END,
		reason=CASE reason WHEN '' THEN ?3 ELSE ?3 || '; ' || reason END WHERE task_id=?1`,
		r.id, Incomplete, reason, Failed)
}

// SetReason puts a sentence before a task's reason. Errors wrap ErrNotFound.
func (d *DB) SetReason(ctx context.Context, id TaskID, why string) error {
	return d.write(ctx, fmt.Sprintf("say why in task %d", id), func(s *session) {
		s.must(`UPDATE task SET reason=CASE reason WHEN '' THEN ?2 ELSE ?2 || '; ' || reason END WHERE task_id=?1`, id,
			measure.Printable(why))
	})
}

// calibrationAnew computes the columns that follow from a calibration's numbers: its digest, and
// the linear forms that the view data reads.
func calibrationAnew(s *session, id int64) {
	k := calibrationRow{id: id}
	s.row(`SELECT name, bench, digest FROM calibration WHERE calibration_id=?`, id).into((*text)(&k.name),
		(*text)(&k.bench), &k.digest)
	readSetup(s, id, &k.setup)
	// A digest that is right stays byte for byte: it may be of an earlier form of the JSON text (see
	// asDigested), and other databases know the calibration by it.
	sum := k.digest
	same, err := k.asDigested()
	if err == nil && !same {
		sum, err = digest(Header{CalibrationID: k.name, Bench: k.bench, Setup: k.setup})
	}
	s.fail(err)
	// number of channels, roles and linear forms are functions of the other columns.
	s.exec(`UPDATE calibration SET digest=?, channels=?, one_a_role=? WHERE calibration_id=?`, sum,
		len(k.setup.Channels), oneARole(k.setup.Rails), id)
	for i, r := range k.setup.Rails {
		l := r.Linear(k.setup.Channels)
		s.exec(`UPDATE rail SET i0=?, ix=?, iy=?, v0=?, vy=? WHERE calibration_id=? AND ordinal=?`, l.I0, l.IX, l.IY,
			l.V0, l.VY, id, i)
	}
}
