package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"wattmark/measure"
	"wattmark/measure/chunk"
)

// head is a chunk's row.
type head struct {
	no, first, n, tick int64
	columns            int64 // that are stored
	cold               bool
}

// taskState is a task as a check sees it, at one moment.
type taskState struct {
	Task
	heads []head
	shape shape
	setup measure.Setup
	cal   int64

	kept    []kept // all results
	row     kept   // the one in use, as the task's row has it; without result where it has none
	use     int    // the number of the result in use
	seal    []byte
	damaged int64 // ns: when something of it was last set aside

	blocked string // why nothing is to be made anew
}

// columns is how many a chunk must have.
func (t *taskState) columns() int64 {
	if t.shape.tb.Stamped {
		return int64(t.shape.channels) + 1
	}
	return int64(t.shape.channels)
}

// task checks one task. What was mended by a calibration or by markers that are not what
// they were would be wrong from then on: then nothing is.
func (c *checker) task(ctx context.Context, id TaskID) error {
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
	if c.strange[t.cal] || slices.ContainsFunc(t.kept, func(k kept) bool { return c.strange[k.cal] }) {
		t.blocked = "first its calibration (see calibration)"
	}
	for i := before; t.blocked != "" && i < len(c.out.Findings); i++ {
		if f := &c.out.Findings[i]; f.Kind != BadCount && f.Mendable {
			f.Mendable, f.Remedy = false, t.blocked
		}
	}
	return nil
}

// parts checks what a task is made of.
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
		c.add(Finding{
			Kind: BadCount, Task: t.ID, Chunk: NoChunk, Mendable: true, Remedy: "db repair counts anew",
			What: fmt.Sprintf("its row says %d chunks with %d scans; there are %d with %d", t.Chunks, t.Scans, len(t.heads), scans),
		})
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

// state reads a task and its chunks' heads in one transaction: a capture may be
// coming in.
func (c *checker) state(ctx context.Context, id TaskID) (*taskState, error) {
	tx, err := c.d.reader.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // it only read
	rows, err := collect(ctx, tx, scanTask, "SELECT "+taskColumns+strings.Replace(taskTables, "JOIN user", "LEFT JOIN user", 1)+"WHERE t.task_id=?"+c.d.unlessMine(id), int64(id))
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, ErrNotFound
	}
	t := &taskState{Task: rows[0].Task, cal: rows[0].calibration}
	var cal sql.NullInt64
	err = tx.QueryRowContext(ctx, `SELECT calibration_id FROM task WHERE task_id=?`, int64(id)).Scan(&cal)
	if gone := t.cal == 0 && cal.Valid; gone {
		t.cal, c.strange[cal.Int64] = cal.Int64, true
		if c.opt.Task != 0 { // else it was found dangling
			c.add(Finding{Kind: Dangling, Task: id, Chunk: NoChunk, Remedy: calibrationRemedy, What: fmt.Sprintf("task.calibration_id is %d, which is in no row of table calibration", t.cal)})
		}
	} else if err == nil {
		err = readSetup(ctx, tx, t.cal, &t.setup)
	}
	if err := errors.Join(err, readEvents(ctx, tx, &t.Task), c.readKept(ctx, tx, t)); err != nil {
		return nil, err
	}
	t.shape = shape{t.setup.Timebase, len(t.setup.Channels)}
	t.heads, err = collect(ctx, tx, func(rows *sql.Rows, h *head) error {
		return rows.Scan(&h.no, &h.first, &h.n, &h.tick, &h.columns, &h.cold)
	}, `SELECT chunk_no, first_scan, n, first_tick, (SELECT count(*) FROM chunk_column c WHERE c.task_id=h.task_id AND c.chunk_no=h.chunk_no),
		EXISTS (SELECT 1 FROM chunk_cold c WHERE c.task_id=h.task_id AND c.chunk_no=h.chunk_no)
		FROM chunk h WHERE task_id=? ORDER BY chunk_no`, int64(id))
	return t, err
}

// chunkPlace checks where a chunk stands among the others.
func (c *checker) chunkPlace(t *taskState, i int) {
	h := t.heads[i]
	f := Finding{Task: t.ID, Chunk: h.no, Mendable: true}
	switch {
	case t.cal == 0:
		f.Kind, f.What, f.Remedy = BadChunk, "it is there, but the task has no header to read it by", "db repair sets it aside"
		c.add(f)
	case !c.strange[t.cal] && h.columns != t.columns() && !(h.cold && h.columns == 0):
		f.Kind, f.What, f.Remedy = BadChunk, fmt.Sprintf("it has %d columns of %d", h.columns, t.columns()), asideRemedy
		c.add(f)
	}
	if i == 0 {
		return
	}
	before := t.heads[i-1]
	end := before.first + before.n
	switch {
	case h.first < end:
		f.Kind, f.Remedy = Overlap, asideRemedy
		f.What = fmt.Sprintf("it begins at scan %d, before chunk %d ends at %d", h.first, before.no, end)
		c.add(f)
	case h.first > end && len(untold(t.Events, end, h.first)) > 0:
		f.Kind, f.Remedy = Hole, "db repair records the loss, and marks the task incomplete"
		f.What = fmt.Sprintf("of scans %d to %d, which are missing before it, not all are told to be lost", end, h.first-1)
		c.add(f)
	case h.first == end && h.no != before.no+1:
		f.Kind, f.Remedy, f.Mendable = MissingPart, "nothing is lost, but something numbered the chunks wrong: keep a backup of the file and report it", false
		f.What = fmt.Sprintf("chunks %d to %d are missing, though no scan is", before.no+1, h.no-1)
		c.add(f)
	}
}

const asideRemedy = "db repair sets it aside, records the loss, and computes the result anew"

// untold returns the stretches from a scan to before end that no event tells to be
// lost. A loss whose number is an estimate may be noted a little beside its place, and
// then tells of all of it.
func untold(events []measure.Event, from, end int64) (out [][2]int64) {
	for _, e := range events { // in their order
		first, n := int64(e.FirstScan), int64(e.Scans)
		switch {
		case e.Kind == measure.EventOverRange || e.Kind == measure.EventNote || e.Kind == measure.EventClock || e.Kind == measure.EventOthers:
			continue
		case !e.Exact && first <= end && first+max(n, 1) >= from:
			return nil
		case !e.Exact || first >= end || first+n <= from:
			continue
		}
		if first > from {
			out = append(out, [2]int64{from, first})
		}
		from = first + n
	}
	if from < end {
		out = append(out, [2]int64{from, end})
	}
	return out
}

// falseGaps checks that scans which events tell to be lost, and in what number, are missing.
func (c *checker) falseGaps(t *taskState) {
	for _, e := range t.Events {
		first, end := int64(e.FirstScan), int64(e.FirstScan)+int64(e.Scans)
		if e.Kind != measure.EventGap || !e.Exact || e.Scans == 0 {
			continue
		}
		i, _ := slices.BinarySearchFunc(t.heads, first, func(h head, scan int64) int { return cmp.Compare(h.first+h.n-1, scan) })
		if i < len(t.heads) && t.heads[i].first < end {
			c.add(Finding{
				Kind: FalseGap, Task: t.ID, Chunk: t.heads[i].no, Mendable: true, Remedy: "db repair sets the event aside", events: []measure.Event{e},
				What: fmt.Sprintf("table event tells scans %d to %d to be lost, and the chunk holds some of them", first, end-1),
			})
		}
	}
}

// chunks reads every chunk once: it checks its checksum, adds it up for the results, and
// folds it into the pyramid that the stored one is compared with; pages may be nil. whole:
// all could be read.
func (c *checker) chunks(ctx context.Context, t *taskState, pages *refolding) (whole bool, err error) {
	if t.cal == 0 || len(t.setup.Channels) == 0 {
		return len(t.heads) == 0, nil
	}
	whole = true
	sums := c.summed(t)
	var x chunk.Chunk
	var b measure.Block
	for _, h := range t.heads {
		err := c.d.readChunk(ctx, t.ID, uint64(h.no), t.shape, &x)
		switch {
		case err == nil && x.No != uint64(h.no):
			whole = false // it was deleted meanwhile
			continue
		case err == nil:
		case errors.Is(err, errNoMore):
			return false, nil
		case !isCorrupt(err):
			return false, err
		default:
			whole = false
			if h.columns == t.columns() || h.columns == 0 && h.cold { // else it was found by its place
				c.add(Finding{Kind: BadChunk, Task: t.ID, Chunk: h.no, Mendable: true, Remedy: asideRemedy, What: fmt.Sprintf("scans %d to %d: %v", h.first, h.first+h.n-1, err)})
			}
			continue
		}
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

// addUp adds a chunk to the sums, and returns those that are not at their window's end.
func (t *taskState) addUp(sums []*kept, x *chunk.Chunk, b *measure.Block) (rest []*kept, err error) {
	if len(sums) == 0 {
		return nil, nil
	}
	if err := chunk.Decode(x, t.setup.Timebase, len(t.setup.Channels), b); err != nil {
		return nil, err
	}
	for _, k := range sums {
		if err := k.sum.Add(b); err != nil {
			return nil, err
		}
		if _, last, ok := k.sum.Covered(); !ok || last <= k.result.To {
			rest = append(rest, k)
		}
	}
	return rest, nil
}
