package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"wattmark/measure/chunk"
)

var errNoMore = errors.New("no more chunks")

// readChunk reads the first chunk whose number is at least from, and checks it.
func (d *DB) readChunk(ctx context.Context, id TaskID, from uint64, sh shape, c *chunk.Chunk) error {
	if err := d.loadChunk(ctx, d.reader, id, from, sh, c); err != nil {
		return err
	}
	if err := c.Validate(sh.tb, sh.channels); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// loadChunk reads the first chunk whose number is at least from, as it is stored, into
// the memory of c. A header without columns is a chunk without columns.
func (d *DB) loadChunk(ctx context.Context, q querier, id TaskID, from uint64, sh shape, c *chunk.Chunk) error {
	c.Columns = c.Columns[:0]
	found, last := false, int64(-1)
	err := d.lend(ctx, q, func(row []driver.Value) error {
		r := lentRow{row: row}
		c.No, c.FirstScan, c.Scans, c.FirstTick, c.CRC = uint64(r.integer()), uint64(r.integer()), int(r.integer()), r.integer(), uint32(r.integer())
		col, dir, data := r.next(), r.blob(), r.blob()
		if found = true; r.err != nil || dir == nil {
			return r.err
		}
		at, ok := col.(int64)
		if !ok || at <= last {
			return fmt.Errorf("%w: column %v of a chunk behind column %d", ErrCorrupt, col, last)
		}
		last = at
		n := len(c.Columns)
		c.Columns = slices.Grow(c.Columns, 1)[:n+1] // where there was a column, its memory is used again
		c.Columns[n].Dir = append(c.Columns[n].Dir[:0], dir...)
		c.Columns[n].Data = append(c.Columns[n].Data[:0], data...)
		return nil
	}, `h.chunk_no, h.first_scan, h.n, h.first_tick, h.crc, c.col, c.dir, c.data`,
		`chunk h LEFT JOIN chunk_column c ON c.task_id=h.task_id AND c.chunk_no=h.chunk_no
		WHERE h.task_id=?1 AND h.chunk_no=(SELECT chunk_no FROM chunk WHERE task_id=?1 AND chunk_no>=?2 ORDER BY chunk_no LIMIT 1) ORDER BY c.col`, int64(id), int64(from))
	switch {
	case err != nil:
		return err
	case !found:
		return errNoMore
	case len(c.Columns) > 0:
		return nil
	}
	return loadCold(ctx, q, id, sh, c)
}
