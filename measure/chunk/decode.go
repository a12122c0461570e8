package chunk

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

// Decode writes the chunk's scans to dst, whose memory it uses again where it
// is large enough. It checks the chunk's structure (ErrCorrupt), not its
// checksum: Validate does, once, where a chunk arrives.
func Decode(c *Chunk, tb measure.Timebase, channels int, dst *measure.Block) error {
	err := c.validateShape(tb, channels)
	if err == nil && c.Sums != nil {
		err = c.thinnedError(tb)
	}
	if err == nil {
		err = checkTimebase(tb)
	}
	if err != nil {
		return fmt.Errorf("decode chunk %d: %w", c.No, err)
	}
	dst.Reset(c.FirstScan, c.FirstTick)
	dst.Counts = slices.Grow(dst.Counts[:0], channels)[:channels]
	for i := range dst.Counts {
		dst.Counts[i] = slices.Grow(dst.Counts[i][:0], c.Scans)[:c.Scans]
		c.Columns[i].decode(dst.Counts[i])
	}
	if !tb.Stamped {
		dst.Ticks = nil
		return nil
	}
	dst.Ticks = slices.Grow(dst.Ticks[:0], c.Scans)[:c.Scans]
	var residuals [BlockScans]int32
	for at := 0; at < c.Scans; at += BlockScans {
		c.Columns[channels].block(at/BlockScans, &residuals)
		part := dst.Ticks[at:min(at+BlockScans, c.Scans)]
		for i := range part {
			part[i] = c.FirstTick + due(tb, at+i) + int64(residuals[i])
		}
	}
	return nil
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

// Block decodes block k (scans 256·k on) of a column alone and returns how
// many of dst's counts are scans. For the time column the counts are
// residuals. Errors wrap ErrCorrupt.
func (c *Chunk) Block(column, k int, dst *[BlockScans]measure.Count) (int, error) {
	if column < 0 || column >= len(c.Columns) || k < 0 || k >= c.Blocks() {
		return 0, corrupt("no block %d of column %d: the chunk has %d columns of %d blocks", k, column, len(c.Columns),
			c.Blocks())
	}
	col := &c.Columns[column]
	if len(col.Dir) < DirEntry*(k+1) {
		return 0, corrupt("column %d: directory of %d bytes", column, len(col.Dir))
	}
	if _, width, at := col.entry(k); width > MaxWidth || at+32*int(width)+Pad > len(col.Data) {
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

// The columns of a chunk by planes of bytes, for a compressor that works on bytes.
// A column's packed values cross the bounds of bytes, which hides from it how often
// each is; a byte a value shows it.
//
//	u8 version 1
//	per column: u8 mode, the directory, then plane 0, 1, … of its blocks
//
// Plane p has a byte, bits 8p to 8p+7, of each of the 256 values of every block wider
// than 8p bits. In mode 0 a value is the packed number. In mode 1 it is the distance from
// the one before in the block, and in mode 2 from the block's middle, modulo 2^width,
// as 0, -1, 1, -2, … are numbered; the middle's byte stands before the block's 256.
const planesVersion = 1

const (
	modePlain  = 0
	modeDelta  = 1
	modeMiddle = 2
)

// blockBytes returns the bytes that a block takes of a plane.
func blockBytes(mode byte) int {
	if mode == modeMiddle {
		return BlockScans + 1
	}
	return BlockScans
}

// MaxPlanes returns the most bytes that the planes of a chunk of so many scans and columns
// take; 0 where there is no such chunk.
func MaxPlanes(scans, columns int) int {
	if scans < 1 || scans > MaxScans || columns < 0 || columns > MaxColumns {
		return 0
	}
	blocks := (&Chunk{Scans: scans}).Blocks()
	return 1 + columns*(1+blocks*(DirEntry+MaxWidth/8*blockBytes(modeMiddle)))
}

// AppendPlanes appends a chunk's columns by planes. The chunk must be a valid one.
func AppendPlanes(dst []byte, c *Chunk) []byte {
	dst = append(dst, planesVersion)
	var modes [3][]byte
	for i := range c.Columns {
		col := &c.Columns[i]
		best, least := 0, math.Inf(1)
		for m := range modes {
			modes[m] = col.planes(modes[m][:0], byte(m))
			if e := entropy(modes[m]); e < least {
				best, least = m, e
			}
		}
		dst = append(append(append(dst, byte(best)), col.Dir...), modes[best]...)
	}
	return dst
}

// entropy is the information in bytes, in bits, if each stood alone.
func entropy(b []byte) float64 {
	var n [256]int
	for _, v := range b {
		n[v]++
	}
	sum := 0.0
	for _, k := range n {
		if k > 0 {
			sum -= float64(k) * math.Log2(float64(k)/float64(len(b)))
		}
	}
	return sum
}

// entry reads a block's directory entry.
func (col *Column) entry(k int) (base int32, width uint, at int) {
	d := col.Dir[DirEntry*k:]
	wo := binary.LittleEndian.Uint32(d[4:])
	return int32(binary.LittleEndian.Uint32(d)), uint(wo & 0xffff), 32 * int(wo>>16)
}

// planes appends a column's planes.
func (col *Column) planes(dst []byte, mode byte) []byte {
	widest := uint(0)
	for k := range len(col.Dir) / DirEntry {
		_, w, _ := col.entry(k)
		widest = max(widest, w)
	}
	var v [BlockScans]int32
	for shift := uint(0); shift < widest; shift += 8 {
		for k := range len(col.Dir) / DirEntry {
			_, w, at := col.entry(k)
			if w <= shift {
				continue
			}
			unpack(&v, col.Data[at:], 0, w)
			m := uint32(0)
			if mode == modeMiddle {
				m = middle(&v)
				dst = append(dst, byte(m>>shift))
			}
			if mode != modePlain {
				fold(&v, m, mode == modeDelta, w)
			}
			for _, x := range v {
				dst = append(dst, byte(uint32(x)>>shift))
			}
		}
	}
	return dst
}

// middle is the mean of a block's values.
func middle(v *[BlockScans]int32) uint32 {
	sum := uint64(0)
	for _, x := range v {
		sum += uint64(uint32(x))
	}
	return uint32(sum / BlockScans)
}

// number numbers distances of a width 0, -1, 1, -2, … as 0, 1, 2, 3, …
func number(d uint32, width uint) int32 {
	s := int32(d<<(32-width)) >> (32 - width) // signed, of that width, which is 1 to 32
	return int32((uint32(s)<<1 ^ uint32(s>>31)) & mask(width))
}

// distance is the inverse of number.
func distance(z int32) uint32 { return uint32(z)>>1 ^ -(uint32(z) & 1) }

// fold replaces values of a width by their numbered distances from m, or each from the one before in a chain, which
// begins at m.
func fold(v *[BlockScans]int32, m uint32, chain bool, width uint) {
	for i, x := range v {
		v[i] = number(uint32(x)-m, width)
		if chain {
			m = uint32(x)
		}
	}
}

// unfold is the inverse of fold.
func unfold(v *[BlockScans]int32, m uint32, chain bool, width uint) {
	for i, z := range v {
		x := (distance(z) + m) & mask(width)
		v[i] = int32(x)
		if chain {
			m = x
		}
	}
}

func mask(width uint) uint32 { return uint32(uint64(1)<<width - 1) }

// ParsePlanes fills a chunk's columns from their planes; Scans must be set. Errors
// wrap ErrCorrupt. It is the inverse of AppendPlanes to the byte, but for a pad that
// is not zero: the checksum detects it.
func ParsePlanes(c *Chunk, columns int, b []byte) error {
	if c.Scans < 1 || c.Scans > MaxScans || columns > MaxColumns {
		return corrupt("%d scans of %d columns", c.Scans, columns)
	}
	if len(b) < 1 || b[0] != planesVersion {
		return corrupt("planes do not begin as such")
	}
	b = b[1:]
	c.Columns = c.Columns[:0]
	dir := DirEntry * c.Blocks()
	for i := range columns {
		if len(b) < 1+dir || b[0] > modeMiddle {
			return corrupt("column %d: planes too short, or of an unknown mode", i)
		}
		col := Column{Dir: append([]byte(nil), b[1:1+dir]...)}
		n, err := col.fromPlanes(b[1+dir:], b[0])
		if err != nil {
			return err
		}
		b = b[1+dir+n:]
		c.Columns = append(c.Columns, col)
	}
	if len(b) != 0 {
		return corrupt("%d bytes after the last plane", len(b))
	}
	return nil
}

// fromPlanes packs a column's data, and returns how many bytes of planes it took.
func (col *Column) fromPlanes(b []byte, mode byte) (int, error) {
	size := 0
	var next [MaxWidth/8 + 1]int // where a plane begins, and how far it was read; behind them the end
	for k := range len(col.Dir) / DirEntry {
		_, w, at := col.entry(k)
		if w > MaxWidth || at != 32*size {
			return 0, corrupt("block %d: width %d at %d", k, w, at)
		}
		size += int(w)
		for p := 0; uint(8*p) < w; p++ {
			next[p+1] += blockBytes(mode)
		}
	}
	for p := 1; p < len(next); p++ {
		next[p] += next[p-1]
	}
	total := next[len(next)-1]
	if len(b) < total {
		return 0, corrupt("%d bytes of planes, want %d", len(b), total)
	}
	col.Data = make([]byte, 32*size+Pad)
	var v [BlockScans]int32
	for k := range len(col.Dir) / DirEntry {
		_, w, at := col.entry(k)
		if w == 0 {
			continue
		}
		clear(v[:])
		m := uint32(0)
		for p := 0; uint(8*p) < w; p++ {
			if mode == modeMiddle {
				m |= uint32(b[next[p]]) << (8 * p)
				next[p]++
			}
			for i, x := range b[next[p]:][:BlockScans] {
				v[i] |= int32(uint32(x) << (8 * p))
			}
			next[p] += BlockScans
		}
		if mode != modePlain {
			unfold(&v, m, mode == modeDelta, w)
		}
		pack(col.Data[at:], &v, 0, w)
	}
	clear(col.Data[32*size:])
	return total, nil
}
