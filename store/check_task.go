package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

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
}

// columns is how many a chunk must have.
func (t *taskState) columns() int64 {
	if t.shape.tb.Stamped {
		return int64(t.shape.channels) + 1
	}
	return int64(t.shape.channels)
}

// task checks one task.
func (c *checker) task(ctx context.Context, id TaskID) error {
	t, err := c.state(ctx, id)
	if err != nil {
		return err
	}
	var scans uint64
	for i, h := range t.heads {
		scans += uint64(h.n)
		c.chunkPlace(t, i)
	}
	c.out.Chunks += uint64(len(t.heads))
	c.out.Scans += scans
	if uint64(len(t.heads)) != t.Chunks || scans != t.Scans {
		c.add(Finding{
			Kind: BadCount, Task: id, Chunk: NoChunk, Mendable: true, Remedy: "db repair counts anew",
			What: fmt.Sprintf("its row says %d chunks with %d scans; there are %d with %d", t.Chunks, t.Scans, len(t.heads), scans),
		})
	}
	if err := c.result(ctx, t); err != nil {
		return err
	}
	whole := true
	if !c.opt.Quick {
		if whole, err = c.chunks(ctx, t); err != nil {
			return err
		}
	}
	return c.pyramid(ctx, t, whole && !c.opt.Quick)
}

// state reads a task and its chunks' heads in one transaction: a capture may be
// coming in.
func (c *checker) state(ctx context.Context, id TaskID) (*taskState, error) {
	tx, err := c.d.reader.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // it only read
	rows, err := collect(ctx, tx, scanTask, "SELECT "+taskColumns+taskTables+"WHERE t.task_id=?"+c.d.unlessMine(id), int64(id))
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, ErrNotFound
	}
	t := &taskState{Task: rows[0].Task, cal: rows[0].calibration}
	if err := errors.Join(readSetup(ctx, tx, t.cal, &t.setup), readEvents(ctx, tx, &t.Task)); err != nil {
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
	case h.columns != t.columns() && !(h.cold && h.columns == 0):
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

// chunks checks every chunk by its checksum; whole: all could be read.
func (c *checker) chunks(ctx context.Context, t *taskState) (whole bool, err error) {
	if t.cal == 0 {
		return len(t.heads) == 0, nil
	}
	whole = true
	var x chunk.Chunk
	for _, h := range t.heads {
		err := c.d.readChunk(ctx, t.ID, uint64(h.no), t.shape, &x)
		if err == nil && x.No != uint64(h.no) {
			continue // it was deleted meanwhile
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, errNoMore):
			return whole, nil
		case !isCorrupt(err):
			return false, err
		}
		whole = false
		if h.columns == t.columns() || h.columns == 0 && h.cold { // else it was found by its place
			c.add(Finding{Kind: BadChunk, Task: t.ID, Chunk: h.no, Mendable: true, Remedy: asideRemedy, What: fmt.Sprintf("scans %d to %d: %v", h.first, h.first+h.n-1, err)})
		}
	}
	return whole, nil
}

// result compares the task's row with the result in use.
func (c *checker) result(ctx context.Context, t *taskState) error {
	f := Finding{Kind: BadResult, Task: t.ID, Chunk: NoChunk}
	var use sql.NullInt64
	var same sql.NullBool
	err := c.d.reader.QueryRowContext(ctx, `SELECT t.result, (r.number IS NOT NULL AND r.energy_j IS t.energy_j AND r.energy_u_j IS t.energy_u_j
		AND r.samples IS t.samples AND r.first_scan IS t.first_scan AND r.from_s IS t.from_s AND r.to_s IS t.to_s AND r.calibration_id IS t.calibration_id)
		FROM task t LEFT JOIN result r ON r.task_id=t.task_id AND r.number=t.result WHERE t.task_id=?`, int64(t.ID)).Scan(&use, &same)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	switch {
	case use.Valid && !same.Bool:
		f.What, f.Remedy, f.Mendable = fmt.Sprintf("its row does not say what result %d, which is in use, says", use.Int64), "db repair takes over the result's figures", true
	case t.Result != nil && t.Result.Samples > 0 && len(t.heads) > 0 && int64(t.Result.FirstScan) >= t.heads[len(t.heads)-1].first+t.heads[len(t.heads)-1].n:
		f.What, f.Remedy = "its window lies behind all samples that are stored", "set a window by hand: wattmark trim"
	default:
		return nil
	}
	c.add(f)
	return nil
}
