package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// head is a chunk's row.
type head struct {
	no             ChunkNo
	first, n, tick int64
	columns        int64 // that are stored
	cold           bool
}

// taskState is a task as a check sees it, at one moment.
type taskState struct {
	Task
	// shape is enough to read chunks; setup to compute watts. Both are zero without a calibration.
	heads []head
	shape shape
	setup measure.Setup
	// number of the calibration in use; 0 where there is no header
	cal int64

	kept []*kept // all results
	row  kept    // the one in use, as the task's row has it; without result where it has none
	use  int     // the number of the result in use; 0 for none
	// from column seal; nil for a task that never ended, or that an earlier version ended
	seal    []byte
	damaged int64 // ns: when something of it was last set aside

	blocked string // why nothing is to be made anew
}

// end is the scan behind the chunk.
func (h *head) end() int64 { return h.first + h.n }

// task checks one task. Repairs by a changed calibration or by changed markers would be wrong
// from then on: findings of such a task are not mendable.
func (c *checker) task(ctx context.Context, id TaskID) error {
	// A check of the whole file has compared all calibrations before; one of a single task does it here.
	if c.opt.Task != 0 {
		if err := c.calibrations(ctx, id); err != nil {
			return err
		}
	}
	before := len(c.out.Findings)
	t, err := c.state(ctx, id)
	if err != nil {
		return err
	}
	if err := c.parts(ctx, t); err != nil {
		return err
	}
	// strange holds the calibrations whose numbers were changed. They make the task's watts wrong, and
	// with them all that a repair would compute.
	if c.strange[t.cal] || slices.ContainsFunc(t.kept, func(k *kept) bool { return c.strange[k.cal] }) {
		t.blocked = "first its calibration (see calibration)"
	}
	for i := before; t.blocked != "" && i < len(c.out.Findings); i++ {
		// Counts are of chunks and scans alone, and can be put right in any case.
		if f := &c.out.Findings[i]; f.Kind != BadCount && f.Mendable {
			f.Mendable, f.Remedy = false, t.blocked
		}
	}
	return nil
}

// parts checks the chunks' places, counts, pyramid, samples and results of a task.
// From the cheap to the costly: rows of chunk, then pages of the pyramid, then each chunk's data. The
// results come last, since they need the sums over all chunks.
func (c *checker) parts(ctx context.Context, t *taskState) (err error) {
	var scans uint64
	for i, h := range t.heads {
		scans += uint64(h.n)
		c.chunkPlace(t, i)
	}
	c.falseGaps(t)
	c.out.Chunks += uint64(len(t.heads))
	c.out.Scans += scans
	if uint64(len(t.heads)) != t.Chunks || scans != t.Scans {
		c.found(BadCount, t.ID, "db repair counts anew", "its row says %s with %s; there are %d with %d",
			measure.Plural(t.Chunks, "chunk"), measure.Plural(t.Scans, "scan"), len(t.heads), scans)
	}
	pages, err := c.pyramid(ctx, t)
	if err != nil {
		return err
	}
	whole := false
	if !c.opt.Quick {
		if whole, err = c.chunks(ctx, t, pages); err != nil {
			return err
		}
	}
	return c.results(ctx, t, whole)
}

// state reads a task and its chunks' heads in one transaction: a capture may be coming in.
func (c *checker) state(ctx context.Context, id TaskID) (*taskState, error) {
	t := &taskState{}
	err := c.d.view(ctx, "", func(s *session) {
		// A LEFT JOIN, unlike Task: a task of a missing user is checked all the same.
		row := s.oneTask("LEFT JOIN", id, c.d.unlessMine(id))
		if s.err != nil {
			return
		}
		t.Task, t.cal = row.Task, row.calibration
		cal := one[sql.NullInt64](s, `SELECT calibration_id FROM task WHERE task_id=?`, id)
		// gone: the task names a calibration that is in no row, so taskColumns gave 0 for it.
		if gone := t.cal == 0 && cal.Valid; gone {
			t.cal, c.strange[cal.Int64] = cal.Int64, true
			if c.opt.Task != 0 { // else it was found dangling
				c.found(Dangling, id, calibrationRemedy,
					"task.calibration_id is %d, which is in no row of table calibration", t.cal).Mendable = false
			}
		} else {
			readSetup(s, t.cal, &t.setup)
		}
		readEvents(s, &t.Task)
		c.readKept(s, t)
		t.shape = shape{t.setup.Timebase, len(t.setup.Channels)}
		// The heads alone, without their data: some 60 bytes a chunk. The data are read later, chunk by
		// chunk, outside of this transaction, so that a long check holds back no checkpoint of the log.
		t.heads = all(s, func(rows *sql.Rows, h *head) error {
			return rows.Scan(&h.no, &h.first, &h.n, &h.tick, &h.columns, &h.cold)
		}, `SELECT chunk_no, first_scan, n, first_tick,
			(SELECT count(*) FROM chunk_column c WHERE c.task_id=h.task_id AND c.chunk_no=h.chunk_no),
			EXISTS (SELECT 1 FROM chunk_cold c WHERE c.task_id=h.task_id AND c.chunk_no=h.chunk_no)
			FROM chunk h WHERE task_id=? ORDER BY chunk_no`, id)
	})
	return t, err
}

// chunkPlace checks where a chunk stands among the others.
// Invariants: the numbers grow by one, or a loss explains the step; scans neither overlap nor skip
// without an event; each chunk has the setup's number of columns, or none and a packed row.
func (c *checker) chunkPlace(t *taskState, i int) {
	h := t.heads[i]
	switch {
	case t.cal == 0:
		c.found(BadChunk, t.ID, "db repair sets it aside",
			"it is there, but the task has no header to read it by").Chunk = h.no
	// A packed chunk (chunk_cold) has no rows in chunk_column.
	case !c.strange[t.cal] && h.columns != t.shape.columns() && !(h.cold && h.columns == 0):
		c.found(BadChunk, t.ID, asideRemedy, "it has %d columns of %d", h.columns, t.shape.columns()).Chunk = h.no
	}
	if i == 0 {
		return
	}
	before := t.heads[i-1]
	end := before.end()
	switch {
	case h.first < end:
		c.found(Overlap, t.ID, asideRemedy,
			"it begins at scan %d, before chunk %d ends at %d", h.first, before.no, end).Chunk = h.no
	// Scans are missing between the two; an event must report all of them.
	case h.first > end && len(untold(t.Events, end, h.first)) > 0:
		c.found(Hole, t.ID, "db repair records the loss, and marks the task incomplete",
			"of scans %d to %d, which are missing before it, not all are told to be lost", end, h.first-1).Chunk = h.no
	// The scans join up but numbers are skipped: harmless for the energy, and no program of ours does it.
	case h.first == end && h.no != before.no+1 && !t.thinned(&h):
		f := c.found(MissingPart, t.ID,
			"nothing is lost, but something numbered the chunks wrong: keep a backup of the file and report it",
			"chunks %d to %d are missing, though no scan is", before.no+1, h.no-1)
		f.Chunk, f.Mendable = h.no, false
	}
}

// thinned reports whether a chunk has the sums of deleted ones, whose last number it has.
func (t *taskState) thinned(h *head) bool {
	return slices.ContainsFunc(t.Events, func(e measure.Event) bool {
		return e.Kind == measure.EventThinned && int64(e.FirstScan) == h.first && int64(e.Scans) == h.n
	})
}

const asideRemedy = "db repair sets it aside, records the loss, and computes the result anew"

// untold returns the stretches of scans from one scan to before end that no event reports as lost. A loss
// whose number is an estimate may be recorded a little beside its place, and then covers the whole stretch.
func untold(events []measure.Event, from, end int64) (out [][2]int64) {
	for _, e := range events { // in their order
		first, n := int64(e.FirstScan), int64(e.Scans)
		// These kinds report no loss of scans.
		switch {
		case e.Kind == measure.EventOverRange || e.Kind == measure.EventNote || e.Kind == measure.EventClock ||
			e.Kind == measure.EventOthers || e.Kind == measure.EventThinned || e.Kind == measure.EventSupply:
			continue
		// An estimated loss that touches the stretch explains all of it.
		case !e.Exact && first <= end && first+max(n, 1) >= from:
			return nil
		// An exact loss that lies elsewhere.
		case !e.Exact || first >= end || first+n <= from:
			continue
		}
		if first > from {
			out = append(out, [2]int64{from, first})
		}
		// Scans from..first-1 are reported by nothing; the search goes on behind the event.
		from = first + n
	}
	if from < end {
		out = append(out, [2]int64{from, end})
	}
	return out
}

// falseGaps checks that scans which exact events report as lost are missing.
func (c *checker) falseGaps(t *taskState) {
	for _, e := range t.Events {
		first, end := int64(e.FirstScan), int64(e.FirstScan)+int64(e.Scans)
		if e.Kind != measure.EventGap || !e.Exact || e.Scans == 0 {
			continue
		}
		// Chunks do not overlap, so the first chunk that ends behind the event's first scan is the only
		// one that can hold it.
		i, _ := slices.BinarySearchFunc(t.heads, first,
			func(h head, scan int64) int { return cmp.Compare(h.end()-1, scan) })
		if i < len(t.heads) && t.heads[i].first < end {
			f := c.found(FalseGap, t.ID, "db repair sets the event aside",
				"table event tells scans %d to %d to be lost, and the chunk holds some of them", first, end-1)
			f.Chunk, f.events = t.heads[i].no, []measure.Event{e}
		}
	}
}

// chunks reads every chunk once: it checks its checksum, adds it up for the results, and folds it into the
// pyramid that the stored one is compared with; pages may be nil. whole: all could be read.
func (c *checker) chunks(ctx context.Context, t *taskState, pages *refolding) (whole bool, err error) {
	if t.cal == 0 || len(t.setup.Channels) == 0 {
		return len(t.heads) == 0, nil
	}
	whole = true
	// One pass over the data serves three checks: the checksum (readChunk), the integrals of all
	// results that are held against it, and the pyramid. Memory is one chunk and one page a level.
	sums := c.summed(t)
	var x chunk.Chunk
	var b measure.Block
	for _, h := range t.heads {
		err := readChunk(ctx, c.d.reader, t.ID, uint64(h.no), t.shape, &x)
		switch {
		// All chunks from here on are gone: the task was deleted during the check.
		case errors.Is(err, errNoMore):
			return false, nil
		case err != nil && !isCorrupt(err):
			return false, err
		// Damage of the columns that are missing was found by the chunk's place.
		case err != nil && (h.columns == t.shape.columns() || h.columns == 0 && h.cold):
			c.found(BadChunk, t.ID, asideRemedy, "scans %d to %d: %v", h.first, h.end()-1, err).Chunk = h.no
		}
		if err == nil && x.Sums != nil {
			pages = nil // behind the deleted samples there is nothing to make them of
		}
		if err == nil && (x.Sums != nil) != t.thinned(&h) {
			f := c.found(BadChunk, t.ID, "from a backup",
				"of scans %d to %d, table event and the chunk differ on whether they were deleted", h.first, h.end()-1)
			f.Chunk, f.Mendable = h.no, false
		}
		// readChunk takes the first chunk from a number on: here the one asked for was deleted meanwhile.
		whole = whole && err == nil && x.No == uint64(h.no)
		// After the first damage the sums and the pyramid would miss samples; only checksums are verified.
		if !whole {
			continue
		}
		if sums, err = t.addUp(sums, &x, &b); err != nil {
			whole = false // out of their order, as was found by their places
			continue
		}
		if err := pages.take(ctx, &x); err != nil {
			return false, err
		}
	}
	if whole {
		err = pages.close(ctx)
	}
	return whole, err
}

// addUp adds a chunk to the sums, and returns those whose window goes on behind it.
func (t *taskState) addUp(sums []*kept, x *chunk.Chunk, b *measure.Block) (rest []*kept, err error) {
	if len(sums) == 0 {
		return nil, nil
	}
	if err := chunk.DecodeSums(x, &t.setup, b); err != nil {
		return nil, err
	}
	for _, k := range sums {
		if err := k.sum.Add(b); err != nil {
			return nil, err
		}
		// An integrator needs the samples up to the first behind its window; then it is complete.
		if _, last, ok := k.sum.Covered(); !ok || last <= k.result.To {
			rest = append(rest, k)
		}
	}
	return rest, nil
}

// calibrationRow is a calibration as it is stored.
type calibrationRow struct {
	id       int64
	digest   []byte
	name     string
	bench    string
	channels int
	oneARole bool
	setup    measure.Setup
	linear   []measure.Linear // of the rails, as stored for the view data
}

const calibrationRemedy = "put the numbers back from a backup, or from another database with this calibration; " +
	"until then nothing is made anew by them"

// calibrations compares the calibrations, or those of one task alone, with their digests, and
// checks the columns that repeat others.
func (c *checker) calibrations(ctx context.Context, task TaskID) error {
	return c.d.view(ctx, "", func(s *session) {
		// Results may have been computed by other calibrations than the one in use: the UNION takes both.
		rows := all(s, func(rows *sql.Rows, k *calibrationRow) error {
			return rows.Scan(&k.id, &k.digest, (*text)(&k.name), (*text)(&k.bench), &k.channels, &k.oneARole)
		}, `SELECT calibration_id, digest, name, bench, channels, one_a_role FROM calibration k WHERE ?1=0
			OR calibration_id IN (SELECT calibration_id FROM task WHERE task_id=?1
			UNION SELECT calibration_id FROM result WHERE task_id=?1) ORDER BY 1`, task)
		for i := range rows {
			k := &rows[i]
			readSetup(s, k.id, &k.setup)
			k.linear = all(s, func(rows *sql.Rows, l *measure.Linear) error {
				return rows.Scan(&l.I0, &l.IX, &l.IY, &l.V0, &l.VY)
			}, `SELECT i0, ix, iy, v0, vy FROM rail WHERE calibration_id=? ORDER BY ordinal`, k.id)
			users := values[TaskID](s, `SELECT task_id FROM task WHERE calibration_id=?1
				UNION SELECT task_id FROM result WHERE calibration_id=?1 ORDER BY 1`, k.id)
			if s.err == nil {
				s.fail(c.calibration(k, users))
			}
		}
	})
}

// calibration checks one calibration.
// Three cases: the digest matches, and only derived columns can be wrong; the digest does not, but the
// name, which is itself a hash of the numbers, does; neither does, and the numbers are strange.
func (c *checker) calibration(k *calibrationRow, users []TaskID) error {
	f := Finding{Kind: BadCalibration, Chunk: NoChunk, Mendable: true, calibration: k.id}
	if len(users) > 0 {
		f.Task = users[0]
	}
	who := fmt.Sprintf("calibration %d (%s) of %s", k.id, k.name, someTasks(users))
	same, err := k.asDigested()
	if err != nil {
		return err
	}
	derived, invalid := k.derived()
	switch {
	case same && len(derived) == 0:
		return nil
	case same:
		f.What = fmt.Sprintf("%s: %s", who, words(derived))
		f.Remedy = "db repair computes it anew from channels and wiring"
	case invalid == nil && k.asNamed():
		f.What = who + ": the numbers are those that its name stands for, but column digest is not the SHA-256 of " +
			"them with bench and records: one of these three was changed"
		f.Remedy = "compare bench and records with a backup; db repair takes them as they are"
	default:
		f.Mendable, f.Remedy = false, calibrationRemedy
		f.What = who + ": a number in table calibration, channel (gain, offset, skew_s …) or rail was changed: their " +
			"SHA-256 is not that of column digest"
		if len(derived) > 0 {
			f.What += "; " + words(derived)
		}
		if invalid != nil {
			f.What += "; " + invalid.Error()
		}
		c.strange[k.id] = true
	}
	c.add(f)
	return nil
}

// derived names the columns that do not follow from the others. A setup that fails its own
// validation is an error, and nothing is derived from it.
func (k *calibrationRow) derived() (wrong []string, invalid error) {
	if err := k.setup.Validate(); err != nil {
		return nil, err
	}
	if n := len(k.setup.Channels); n != k.channels {
		wrong = append(wrong, fmt.Sprintf("calibration.channels is %d, there are %d", k.channels, n))
	}
	if one := oneARole(k.setup.Rails); one != k.oneARole {
		wrong = append(wrong, fmt.Sprintf("calibration.one_a_role is %t, the rails' roles give %t", k.oneARole, one))
	}
	for i, r := range k.setup.Rails {
		// The linear forms may have been computed on another machine: the last bits of a float64 may differ.
		l, w := k.linear[i], r.Linear(k.setup.Channels)
		is, want := [...]float64{l.I0, l.IX, l.IY, l.V0, l.VY}, [...]float64{w.I0, w.IX, w.IY, w.V0, w.VY}
		for j, column := range [...]string{"i0", "ix", "iy", "v0", "vy"} {
			if !nearly(is[j], want[j], 1e-12*math.Abs(want[j])) {
				wrong = append(wrong,
					fmt.Sprintf("rail.%s of rail %s is %v, its channels give %v", column, r.Name, is[j], want[j]))
			}
		}
	}
	return wrong, nil
}

// someTasks names tasks, of many the first few.
func someTasks(ids []TaskID) string {
	const most = 8
	switch n := len(ids); {
	case n == 0:
		return "no task"
	case n > most:
		return fmt.Sprintf("%s and %d others", taskList(ids[:most]), n-most)
	}
	return taskList(ids)
}

// isAsDigested fails with ErrCorrupt where a calibration's numbers are not those that its
// digest is of: nothing is to be made by them.
func isAsDigested(s *session, id int64, setup *measure.Setup) {
	k := calibrationRow{setup: *setup}
	s.row(`SELECT digest, name, bench FROM calibration WHERE calibration_id=?`, id).into(&k.digest, (*text)(&k.name),
		(*text)(&k.bench))
	if s.err != nil {
		return
	}
	same, err := k.asDigested()
	if err == nil && !same && !k.asNamed() {
		err = fmt.Errorf("%w: calibration %d (%s) is not what it was: see wattmark db check", ErrCorrupt, id, k.name)
	}
	s.fail(err)
}
