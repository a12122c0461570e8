package chunk

import (
	"fmt"
	"slices"

	"wattmark/measure"
)

// Decode writes the chunk's scans to dst, whose memory it uses again where it
// is large enough. It checks the chunk's structure (ErrCorrupt), not its
// checksum: Validate does, once, where a chunk arrives.
func Decode(c *Chunk, tb measure.Timebase, channels int, dst *measure.Block) error {
	if err := c.validateShape(tb, channels); err != nil {
		return fmt.Errorf("decode chunk %d: %w", c.No, err)
	}
	if err := checkTimebase(tb); err != nil {
		return fmt.Errorf("decode chunk %d: %w", c.No, err)
	}
	dst.FirstScan, dst.FirstTick = c.FirstScan, c.FirstTick
	if cap(dst.Counts) < channels {
		dst.Counts = append(dst.Counts[:cap(dst.Counts)], make([][]measure.Count, channels-cap(dst.Counts))...)
	}
	dst.Counts = dst.Counts[:channels]
	for i := range dst.Counts {
		dst.Counts[i] = resize(dst.Counts[i], c.Scans)
		c.Columns[i].decode(dst.Counts[i])
	}
	if !tb.Stamped {
		dst.Ticks = nil
		return nil
	}
	dst.Ticks = resize(dst.Ticks, c.Scans)
	c.decodeTicks(tb, &c.Columns[channels], dst.Ticks)
	return nil
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// decode writes len(dst) counts; the column has passed check.
func (col *Column) decode(dst []measure.Count) {
	for k := 0; len(dst) > 0; k++ {
		if len(dst) < BlockScans {
			var last [BlockScans]int32
			col.block(k, &last)
			copy(dst, last[:])
			return
		}
		col.block(k, (*[BlockScans]int32)(dst))
		dst = dst[BlockScans:]
	}
}

// block unpacks block k; the column has passed check.
func (col *Column) block(k int, dst *[BlockScans]int32) {
	base, width, at := col.entry(k)
	unpack(dst, col.Data[at:at+32*int(width)+Pad], base, width)
}

func (c *Chunk) decodeTicks(tb measure.Timebase, col *Column, dst []int64) {
	var r [BlockScans]int32
	for at := 0; at < len(dst); at += BlockScans {
		col.block(at/BlockScans, &r)
		part := dst[at:min(at+BlockScans, len(dst))]
		for i := range part {
			part[i] = c.FirstTick + due(tb, at+i) + int64(r[i])
		}
	}
}

// Block decodes block k (scans 256·k on) of a column alone and returns how
// many of dst's counts are scans. For the time column the counts are
// residuals. Errors wrap ErrCorrupt.
func (c *Chunk) Block(column, k int, dst *[BlockScans]measure.Count) (int, error) {
	if column < 0 || column >= len(c.Columns) || k < 0 || k >= c.Blocks() {
		return 0, corrupt("no block %d of column %d: the chunk has %d columns of %d blocks", k, column, len(c.Columns), c.Blocks())
	}
	col := &c.Columns[column]
	if len(col.Dir) < DirEntry*(k+1) {
		return 0, corrupt("column %d: directory of %d bytes", column, len(col.Dir))
	}
	_, width, at := col.entry(k)
	if width > MaxWidth || at+32*int(width)+Pad > len(col.Data) {
		return 0, corrupt("column %d, block %d: width %d at %d of %d bytes", column, k, width, at, len(col.Data))
	}
	col.block(k, dst)
	return min(BlockScans, c.Scans-BlockScans*k), nil
}

// OverRange calls f with each scan whose count in a column stands at an end of the
// channel's range, in order. Each block states its smallest count and how many bits the
// rest needs, so that only blocks that may reach an end are decoded. Errors wrap ErrCorrupt.
func (c *Chunk) OverRange(ch measure.Channel, column int, f func(scan uint64)) error {
	if ch.MinCount == ch.MaxCount {
		return nil
	}
	var counts [BlockScans]measure.Count
	for k := range c.Blocks() {
		if column >= 0 && column < len(c.Columns) && len(c.Columns[column].Dir) >= DirEntry*(k+1) {
			base, width, _ := c.Columns[column].entry(k)
			least := int64(base)
			most := least + 1<<width - 1
			if width <= MaxWidth && least > int64(ch.MinCount) && most < int64(ch.MaxCount) {
				continue
			}
		}
		n, err := c.Block(column, k, &counts)
		if err != nil {
			return err
		}
		for i, v := range counts[:n] {
			if ch.OverRange(v) {
				f(c.FirstScan + uint64(k*BlockScans+i))
			}
		}
	}
	return nil
}

// OverRangeEvents counts the readings that stand at an end of their channel's range, and
// calls emit with one event a channel that has some: where the first one lies, and how many
// of the chunk's scans there are. The others may lie anywhere behind the first. Whoever
// stores chunks of a new recording stores these events with them. Errors are emit's, or
// wrap ErrCorrupt.
func (c *Chunk) OverRangeEvents(channels []measure.Channel, emit func(measure.Event) error) error {
	for i, ch := range channels {
		e := measure.Event{Kind: measure.EventOverRange, Exact: true, Channel: i}
		err := c.OverRange(ch, i, func(scan uint64) {
			if e.Scans == 0 {
				e.FirstScan = scan
			}
			e.Scans++
		})
		if err == nil && e.Scans > 0 {
			e.Detail = fmt.Sprintf("%s at the end of its range in %d of %d scans", ch.Name, e.Scans, c.Scans)
			err = emit(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Packed returns block k of a column as it is stored; false where the block is not
// whole, or damaged: Block says by what.
func (c *Chunk) Packed(column, k int) (p measure.Packed, ok bool) {
	if column < 0 || column >= len(c.Columns) || k < 0 || (k+1)*BlockScans > c.Scans {
		return p, false
	}
	col := &c.Columns[column]
	if len(col.Dir) < DirEntry*(k+1) {
		return p, false
	}
	base, width, at := col.entry(k)
	if width > MaxWidth || at+32*int(width)+Pad > len(col.Data) {
		return p, false
	}
	return measure.Packed{Bits: col.Data[at : at+32*int(width)+Pad], Width: width, Base: base}, true
}

// Decode appends the column's counts, of a chunk of the given number of scans,
// to dst: one column alone, where the others are not wanted. Errors wrap
// ErrCorrupt.
func (col *Column) Decode(dst []measure.Count, scans int) ([]measure.Count, error) {
	if scans < 1 || scans > MaxScans {
		return dst, corrupt("%d scans: want 1 to %d", scans, MaxScans)
	}
	if err := col.check(scans); err != nil {
		return dst, err
	}
	n := len(dst)
	dst = slices.Grow(dst, scans)[:n+scans]
	col.decode(dst[n:])
	return dst, nil
}
