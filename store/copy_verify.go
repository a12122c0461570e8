package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"wattmark/measure/chunk"
)

// verify counts both sides' rows and reads every chunk back.
func (c *copier) verify(ctx context.Context) error {
	for _, t := range c.tables {
		if strings.HasPrefix(t.name, "pyramid") {
			continue
		}
		var here, there int64
		q := `SELECT count(*) FROM ` + t.name + ` WHERE task_id=?`
		if err := c.from.reader.QueryRowContext(ctx, q, c.id).Scan(&here); err != nil {
			return err
		}
		if err := c.to.reader.QueryRowContext(ctx, q, c.new).Scan(&there); err != nil {
			return err
		}
		if here != there {
			return fmt.Errorf("%w: table %s has %d rows of the task, the copy %d", ErrCorrupt, t.name, here, there)
		}
		c.done.Rows += uint64(here)
	}
	want, err := collect(ctx, c.from.reader, func(rows *sql.Rows, crc *int64) error { return rows.Scan(crc) },
		`SELECT crc FROM chunk WHERE task_id=? ORDER BY chunk_no`, c.id)
	if err != nil {
		return err
	}
	crcs := make([]uint32, len(want))
	for i, crc := range want {
		crcs[i] = uint32(crc)
	}
	return c.checksums(ctx, crcs)
}

// checksums reads every chunk back; want are the source's checksums.
func (c *copier) checksums(ctx context.Context, want []uint32) error {
	for x, err := range c.to.chunksInto(ctx, TaskID(c.new), 0, &chunk.Chunk{}) {
		if err != nil {
			return err
		}
		if i := c.done.Chunks; i >= uint64(len(want)) || want[i] != x.CRC {
			return fmt.Errorf("%w: chunk %d is not the source's", ErrCorrupt, x.No)
		}
		c.done.Chunks++
		c.done.Scans += uint64(x.Scans)
	}
	if c.done.Chunks != uint64(len(want)) {
		return fmt.Errorf("%w: %d of %d chunks can be read back", ErrCorrupt, c.done.Chunks, len(want))
	}
	return nil
}
