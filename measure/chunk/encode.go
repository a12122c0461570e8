package chunk

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

// Encoder codes blocks of scans into chunks. It codes each 256 counts as soon
// as they are complete, so that raw counts never pile up. It is for one
// goroutine.
type Encoder struct {
	tb       measure.Timebase
	channels int
	max      int

	cols    []column
	open    int // scans in the columns' open blocks
	scans   int // scans in the chunk, open block included
	full    bool
	flushed bool // out is lent to the caller; the next Append takes it back

	firstScan uint64
	firstTick int64
	out       Chunk
}

// column is a column that grows, with its open block.
type column struct {
	dir, data []byte
	block     [BlockScans]int32
}

// NewEncoder returns an encoder for blocks of the given number of channels
// that ends a chunk after maxScans scans (1 to MaxScans).
func NewEncoder(tb measure.Timebase, channels, maxScans int) (*Encoder, error) {
	err := tb.Validate()
	if err == nil {
		err = checkTimebase(tb)
	}
	if err != nil {
		return nil, fmt.Errorf("chunk encoder: %w", err)
	}
	n := Columns(tb, channels)
	if channels < 1 || n > MaxColumns {
		return nil, fmt.Errorf("chunk encoder: %d channels: want 1 to %d columns", channels, MaxColumns)
	}
	if maxScans < 1 || maxScans > MaxScans {
		return nil, fmt.Errorf("chunk encoder: %d scans a chunk: want 1 to %d", maxScans, MaxScans)
	}
	return &Encoder{tb: tb, channels: channels, max: maxScans, cols: make([]column, n)}, nil
}

// checkTimebase refuses a timebase whose ticks would not be exact integers in
// a float64 over the length of a chunk.
func checkTimebase(tb measure.Timebase) error {
	if tb.TicksPerScan*MaxScans >= 1<<53 {
		return fmt.Errorf("timebase: %v ticks a scan: too many to count exactly over a chunk", tb.TicksPerScan)
	}
	return nil
}

// Append takes scans from the front of the block and returns how many. Fewer
// than the block has means that the chunk ends there: call Flush, then Append
// the rest (Block.Slice, of the whole block, so that rounded ticks do not add up). A chunk ends when it is full, when
// the block does
// not follow the last one (a gap, or for a timebase without stamps a first
// tick more than one tick from where it was due), or when a stamp lies more
// than 2³¹ ticks from where it was due. An empty encoder takes at least one
// scan. The block's memory is not kept. A block of the wrong shape gives an
// error that wraps measure.ErrShape, and nothing is taken.
func (e *Encoder) Append(b *measure.Block) (int, error) {
	if err := b.Validate(e.tb, e.channels); err != nil {
		return 0, fmt.Errorf("append to chunk: %w", err)
	}
	e.reset()
	n := b.Scans()
	if n == 0 {
		return 0, nil
	}
	if e.scans == 0 {
		e.firstScan, e.firstTick = b.FirstScan, b.FirstTick
		if e.tb.Stamped {
			e.firstTick = b.Ticks[0]
		}
	} else if due := float64(e.scans) * e.tb.TicksPerScan; b.FirstScan != e.firstScan+uint64(e.scans) ||
		!e.tb.Stamped && math.Abs(float64(b.FirstTick-e.firstTick)-due) > 1 {
		e.full = true // the block does not go on where the chunk stands
	}
	taken := 0
	for taken < n && !e.full {
		m := min(n-taken, BlockScans-e.open, e.max-e.scans)
		taken += e.take(b, taken, m)
	}
	return taken, nil
}

// take codes up to m scans of the block from scan at on; they fit in the open
// block and in the chunk. It returns fewer when a stamp does not fit.
func (e *Encoder) take(b *measure.Block, at, m int) int {
	if e.tb.Stamped {
		fit := e.stamp(b.Ticks[at : at+m])
		if fit < m {
			m, e.full = fit, true
		}
	}
	whole := e.open == 0 && m == BlockScans
	for c, counts := range b.Counts {
		col := &e.cols[c]
		if whole {
			col.pack((*[BlockScans]int32)(counts[at : at+BlockScans]))
		} else {
			copy(col.block[e.open:], counts[at:at+m])
		}
	}
	e.scans += m
	e.open += m
	if e.open == BlockScans {
		from := 0
		if whole { // the channels' blocks are packed already
			from = e.channels
		}
		for c := from; c < len(e.cols); c++ {
			e.cols[c].pack(&e.cols[c].block)
		}
		e.open = 0
	}
	if e.scans == e.max {
		e.full = true
	}
	return m
}

// stamp writes the residuals of the ticks into the open block of the time
// column, and returns how many fit in 32 bits.
func (e *Encoder) stamp(ticks []int64) int {
	dst := e.cols[e.channels].block[e.open:]
	for i, t := range ticks {
		r := t - e.firstTick - due(e.tb, e.scans+i)
		if int64(int32(r)) != r {
			return i
		}
		dst[i] = int32(r)
	}
	return len(ticks)
}

// due is ⌊i·TicksPerScan⌋, the ticks from a chunk's first scan to scan i where
// the device keeps its nominal rate.
func due(tb measure.Timebase, i int) int64 { return int64(float64(i) * tb.TicksPerScan) }

// pack codes one block of counts.
func (c *column) pack(s *[BlockScans]int32) {
	base, width := spread(s)
	at := len(c.data)
	c.dir = binary.LittleEndian.AppendUint32(c.dir, uint32(base))
	c.dir = binary.LittleEndian.AppendUint32(c.dir, uint32(width)|uint32(at/32)<<16)
	size := 32 * int(width)
	c.data = slices.Grow(c.data, size+Pad)
	pack(c.data[at:at+size+Pad], s, base, width)
	c.data = c.data[:at+size]
}

// Full reports whether the chunk has ended: Append takes nothing until Flush.
func (e *Encoder) Full() bool { return e.full && !e.flushed }

// Scans returns the number of scans in the chunk so far.
func (e *Encoder) Scans() int {
	if e.flushed {
		return 0
	}
	return e.scans
}

// Flush ends the chunk and returns it under the given number, nil when it has
// no scans. The chunk's memory belongs to the encoder and is valid until the
// next call of Append; Clone it, or append its payload elsewhere, to keep it.
func (e *Encoder) Flush(no uint64) *Chunk {
	if e.flushed || e.scans == 0 {
		e.reset()
		return nil
	}
	e.out = Chunk{No: no, FirstScan: e.firstScan, FirstTick: e.firstTick, Scans: e.scans, Columns: e.out.Columns[:0]}
	for i := range e.cols {
		col := &e.cols[i]
		if e.open > 0 {
			// The rest of the last block repeats a count of it: it costs no width.
			for k := e.open; k < BlockScans; k++ {
				col.block[k] = col.block[0]
			}
			col.pack(&col.block)
		}
		var pad [Pad]byte
		col.data = append(col.data, pad[:]...)
		e.out.Columns = append(e.out.Columns, Column{Dir: col.dir, Data: col.data})
	}
	e.out.CRC = Checksum(&e.out)
	e.flushed = true
	return &e.out
}

// reset takes the memory of a flushed chunk back.
func (e *Encoder) reset() {
	if !e.flushed {
		return
	}
	for i := range e.cols {
		e.cols[i].dir, e.cols[i].data = e.cols[i].dir[:0], e.cols[i].data[:0]
	}
	e.open, e.scans, e.full, e.flushed = 0, 0, false, false
}

// spread returns the smallest of a block's counts and the bits that the
// largest distance from it needs.
func spread(s *[BlockScans]int32) (base int32, width uint) {
	lo, hi := s[0], s[0]
	for _, v := range s {
		lo, hi = min(lo, v), max(hi, v)
	}
	// The difference is taken modulo 2³², so that it is right even between the
	// ends of the int32 range.
	return lo, uint(bits.Len32(uint32(hi) - uint32(lo)))
}

// pack writes the distances of a block's counts from base, width bits each,
// least significant bit first. dst must hold 32·width bytes.
func pack(dst []byte, s *[BlockScans]int32, base int32, width uint) {
	var acc uint64
	var n uint // bits waiting in acc, below 32
	for _, v := range s {
		acc |= uint64(uint32(v)-uint32(base)) << (n & 63)
		n += width
		if n >= 32 {
			binary.LittleEndian.PutUint32(dst, uint32(acc))
			dst, acc, n = dst[4:], acc>>32, n-32
		}
	}
}

// unpack is the inverse of pack. src must hold 32·width bytes.
func unpack(dst *[BlockScans]int32, src []byte, base int32, width uint) {
	mask := uint32(uint64(1)<<width - 1)
	var acc uint64
	var n uint // bits left in acc
	for i := range dst {
		if n < width {
			acc |= uint64(binary.LittleEndian.Uint32(src)) << (n & 63)
			src, n = src[4:], n+32
		}
		dst[i] = int32(uint32(base) + uint32(acc)&mask)
		acc, n = acc>>(width&63), n-width
	}
}
