package capture

import (
	"encoding/binary"
	"fmt"

	"wattmark/measure"
	"wattmark/measure/chunk"
)

// overRange counts the readings of a chunk that stand at an end of their
// converter's range, and reports one event a channel. Each block of 256 counts
// states its smallest count and how many bits the rest needs, so that only
// blocks near an end are decoded.
func overRange(channels []measure.Channel, c *chunk.Chunk, emit func(measure.Event) error) (total uint64, err error) {
	for i, ch := range channels {
		if ch.MinCount == ch.MaxCount || i >= len(c.Columns) {
			continue
		}
		n, first, err := columnOver(ch, c, i)
		if err != nil {
			return total, err
		}
		if n == 0 {
			continue
		}
		total += n
		e := measure.Event{
			Kind: measure.EventOverRange, FirstScan: first, Scans: n, Exact: true, Channel: i,
			Detail: fmt.Sprintf("%s at the end of its range in %d of %d scans", ch.Name, n, c.Scans),
		}
		if err := emit(e); err != nil {
			return total, err
		}
	}
	return total, nil
}

// columnOver counts one channel's readings at the ends, and names the first.
func columnOver(ch measure.Channel, c *chunk.Chunk, column int) (n, first uint64, err error) {
	var counts [chunk.BlockScans]measure.Count
	dir := c.Columns[column].Dir
	for k := range c.Blocks() {
		entry := dir[k*chunk.DirEntry:]
		least := int64(int32(binary.LittleEndian.Uint32(entry)))
		most := least + 1<<binary.LittleEndian.Uint16(entry[4:]) - 1
		if least > int64(ch.MinCount) && most < int64(ch.MaxCount) {
			continue
		}
		m, err := c.Block(column, k, &counts)
		if err != nil {
			return n, first, err
		}
		for i, v := range counts[:m] {
			if !ch.OverRange(v) {
				continue
			}
			if n == 0 {
				first = c.FirstScan + uint64(k*chunk.BlockScans+i)
			}
			n++
		}
	}
	return n, first, nil
}
