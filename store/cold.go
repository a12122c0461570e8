package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"wattmark/measure/chunk"
)

// coders are made once: a coder holds tables of some megabytes, and EncodeAll and
// DecodeAll may be called from everywhere at once.
var coders = sync.OnceValues(func() (c struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}, err error,
) {
	// Of noise there is nothing to be found again, but how often each byte is: the
	// fastest level, told to code the bytes by that all the same, packs tighter than
	// higher ones that look for repeats.
	if c.enc, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithAllLitEntropyCompression(true), zstd.WithEncoderConcurrency(1)); err != nil {
		return c, err
	}
	c.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxUnpacked), zstd.WithDecodeAllCapLimit(true))
	return c, err
})

// maxUnpacked bounds a packed chunk, however many columns its calibration states.
const maxUnpacked = 256 << 20

// packChunk codes a valid chunk's columns tighter: by planes of bytes, through zstd.
func packChunk(c *chunk.Chunk) ([]byte, error) {
	z, err := coders()
	if err != nil {
		return nil, err
	}
	data := z.enc.EncodeAll(chunk.AppendPlanes(nil, c), nil)
	// What replaces the only copy must give it back to the byte.
	back := chunk.Chunk{No: c.No, FirstScan: c.FirstScan, FirstTick: c.FirstTick, Scans: c.Scans}
	if err := unpackChunk(&back, len(c.Columns), data); err != nil {
		return nil, err
	}
	if sum := chunk.Checksum(&back); sum != c.CRC {
		return nil, fmt.Errorf("%w: packed, it has checksum %08x, not %08x", ErrCorrupt, sum, c.CRC)
	}
	return data, nil
}

// unpackChunk fills in the columns of a chunk. It unpacks no more than a chunk of c.Scans
// scans can hold.
func unpackChunk(c *chunk.Chunk, columns int, data []byte) error {
	z, err := coders()
	if err != nil {
		return err
	}
	size := min(chunk.MaxPlanes(c.Scans, columns), maxUnpacked)
	var head zstd.Header
	if err := head.Decode(data); err == nil && head.HasFCS {
		if head.FrameContentSize > uint64(size) {
			return fmt.Errorf("%w: packed chunk: it states %d bytes, and %d scans of %d columns are at most %d", ErrCorrupt, head.FrameContentSize, c.Scans, columns, size)
		}
		size = int(head.FrameContentSize)
	}
	planes, err := z.dec.DecodeAll(data, make([]byte, 0, size))
	if err != nil {
		return fmt.Errorf("%w: packed chunk: %w", ErrCorrupt, err)
	}
	return chunk.ParsePlanes(c, columns, planes)
}

// loadCold fills in the columns of a chunk that has none in chunk_column.
func loadCold(ctx context.Context, q querier, id TaskID, sh shape, c *chunk.Chunk) error {
	list, err := collect(ctx, q, func(rows *sql.Rows, b *[]byte) error { return rows.Scan(b) },
		`SELECT data FROM chunk_cold WHERE task_id=? AND chunk_no=?`, int64(id), int64(c.No))
	if err != nil || len(list) == 0 {
		return err
	}
	n := sh.channels
	if sh.tb.Stamped {
		n++
	}
	if err := unpackChunk(c, n, list[0]); err != nil {
		return fmt.Errorf("%w: chunk %d: %w", ErrCorrupt, c.No, err)
	}
	return nil
}

// Packed is what Compact or Expand did.
type Packed struct {
	Chunks, Scans uint64
	// Before and After are the bytes of the chunks' columns.
	Before, After int64
}

// packBatch is how many chunks one transaction turns over.
const packBatch = 16

// Compact packs a task's samples tighter. Everything here reads it as before; other
// programs find one row without values in the view data, and a message in the view
// cold. It can be interrupted and called again. Errors wrap ErrConflict for a task
// that runs, and ErrCorrupt for one with a damaged chunk: what was packed before
// that chunk stays packed.
func (d *DB) Compact(ctx context.Context, id TaskID) (Packed, error) {
	return d.repack(ctx, id, fmt.Sprintf("pack task %d", id), true, func(tx *sql.Tx, c *chunk.Chunk) (before, after int64, err error) {
		before = int64(chunk.PayloadSize(c))
		data, err := packChunk(c)
		if err != nil || int64(len(data)) >= before {
			return before, before, err // one that does not shrink stays as it is
		}
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO chunk_cold VALUES(?,?,?)`, int64(id), int64(c.No), data); err != nil {
			return 0, 0, err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM chunk_column WHERE task_id=? AND chunk_no=?`, int64(id), int64(c.No))
		return before, int64(len(data)), err
	})
}

// Expand undoes Compact.
func (d *DB) Expand(ctx context.Context, id TaskID) (Packed, error) {
	return d.repack(ctx, id, fmt.Sprintf("expand task %d", id), false, func(tx *sql.Tx, c *chunk.Chunk) (before, after int64, err error) {
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(length(data)),0) FROM chunk_cold WHERE task_id=? AND chunk_no=?`, int64(id), int64(c.No)).Scan(&before); err != nil {
			return 0, 0, err
		}
		after = int64(chunk.PayloadSize(c))
		if before == 0 {
			return after, after, nil // it was never packed
		}
		for i, col := range c.Columns {
			if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO chunk_column(task_id,chunk_no,col,dir,data) VALUES(?,?,?,?,?)`, int64(id), int64(c.No), i, col.Dir, col.Data); err != nil {
				return 0, 0, err
			}
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM chunk_cold WHERE task_id=? AND chunk_no=?`, int64(id), int64(c.No))
		return before, after, err
	})
}

// repack turns a task's chunks over, some a transaction. While it is half done the
// task counts as cold: the plain view must not show half of it.
func (d *DB) repack(ctx context.Context, id TaskID, op string, cold bool, turn func(*sql.Tx, *chunk.Chunk) (before, after int64, err error)) (out Packed, err error) {
	sh, err := scanShape(d.reader.QueryRowContext(ctx, shapeSQL+d.unlessMine(id), int64(id)))
	if err != nil {
		return out, wrap(op, err)
	}
	if err := d.write(ctx, op, func(tx *sql.Tx) error { return beginRepack(ctx, tx, id) }); err != nil {
		return out, err
	}
	var c chunk.Chunk
	for next, more := uint64(0), true; more; {
		err := d.write(ctx, op, func(tx *sql.Tx) error {
			for range packBatch {
				// Through the same transaction: nobody may turn it over meanwhile.
				if err := d.loadChunk(ctx, tx, id, next, sh, &c); errors.Is(err, errNoMore) {
					more = false
					return nil
				} else if err != nil {
					return err
				}
				if err := c.Validate(sh.tb, sh.channels); err != nil {
					return fmt.Errorf("%w: %w", ErrCorrupt, err)
				}
				before, after, err := turn(tx, &c)
				if err != nil {
					return fmt.Errorf("chunk %d: %w", c.No, err)
				}
				next = c.No + 1
				out.Chunks, out.Scans = out.Chunks+1, out.Scans+uint64(c.Scans)
				out.Before, out.After = out.Before+before, out.After+after
			}
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	if cold {
		return out, nil
	}
	return out, d.write(ctx, op, func(tx *sql.Tx) error {
		return mustExist(tx.ExecContext(ctx, `UPDATE task SET cold=0 WHERE task_id=?`, int64(id)))
	})
}

func beginRepack(ctx context.Context, tx *sql.Tx, id TaskID) error {
	var state State
	if err := tx.QueryRowContext(ctx, `SELECT state FROM task WHERE task_id=?`, int64(id)).Scan(&state); err != nil {
		return err
	}
	switch state {
	case Running:
		return fmt.Errorf("%w: the task still runs", ErrConflict)
	case Partial:
		return ErrNotFound
	}
	_, err := tx.ExecContext(ctx, `UPDATE task SET cold=1 WHERE task_id=?`, int64(id))
	return err
}
