// Package chunk is the stored and wired form of scans: FoR256, frame of
// reference and bit packing by blocks of 256 counts. The monitor codes the
// chunks; the spool, the wire and the database carry the same bytes
// (docs/format.md).
//
//	Block ──Encoder──▶ Chunk ──AppendPayload──▶ bytes
//	Block ◀──Decode─── Chunk ◀──ParsePayload─── bytes
package chunk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

const (
	// BlockScans is the number of counts that share a frame of reference.
	BlockScans = 256
	// MaxScans is the largest number of scans in a chunk.
	MaxScans = 262144
	// DirEntry is the size of a directory entry: base i32, width u16, offset u16
	// (in units of 32 bytes from the start of the column's data), little-endian.
	DirEntry = 8
	// Pad is the number of zero bytes after a column's data, so that a reader may
	// fetch past the last value.
	Pad = 8
	// MaxWidth is the largest number of bits a packed value can have.
	MaxWidth = 32
	// MaxColumns is the largest number of columns of a chunk.
	MaxColumns = 65535
)

// Sentinel errors.
var (
	// ErrCorrupt is wrapped by errors about chunks or payloads that do not hold
	// together. The bytes came from elsewhere: ask for the chunk again.
	ErrCorrupt = errors.New("corrupt chunk")
	// ErrChecksum is wrapped, beside ErrCorrupt, when the structure holds but the
	// checksum does not.
	ErrChecksum = errors.New("checksum does not match")
)

// Column is one coded channel of a chunk.
type Column struct {
	// Dir holds DirEntry bytes for each block of BlockScans counts.
	Dir []byte
	// Data holds the packed values, least significant bit first, 32·width bytes a
	// block (the last block too), then Pad zero bytes.
	Data []byte
}

// Chunk is a run of scans without a gap, coded. Columns are the channels in
// order and, when the timebase is stamped, a last column of time residuals:
// tick(i) − FirstTick − ⌊i·TicksPerScan⌋.
type Chunk struct {
	No        uint64
	FirstScan uint64
	FirstTick int64
	Scans     int
	Columns   []Column
	// Sums has what is left of scans that were deleted, in place of columns; nil elsewhere. See Thinning.
	Sums []byte
	// CRC is the CRC-32C of the fixed header and the payload.
	CRC uint32
}

// Blocks returns the number of blocks of BlockScans counts, the last of which
// may be partly filled.
func (c *Chunk) Blocks() int { return blocks(c.Scans) }

func blocks(scans int) int { return (scans + BlockScans - 1) / BlockScans }

// Clone returns a copy that shares no memory with c.
func (c *Chunk) Clone() *Chunk {
	out := *c
	out.Sums = slices.Clone(c.Sums)
	out.Columns = make([]Column, len(c.Columns))
	for i, col := range c.Columns {
		out.Columns[i] = Column{Dir: slices.Clone(col.Dir), Data: slices.Clone(col.Data)}
	}
	return &out
}

// Columns returns the number of columns that the timebase asks for.
func Columns(tb measure.Timebase, channels int) int {
	if tb.Stamped {
		return channels + 1
	}
	return channels
}

// Sink takes finished chunks. The chunk is borrowed until the call returns.
type Sink interface {
	Chunk(*Chunk) error
	Event(measure.Event) error
}

// DecodeAll decodes chunks as they come, such as a stored task's. The block is
// used again for the next chunk. The first error, of the chunks or of Decode,
// ends the iteration.
func DecodeAll(chunks iter.Seq2[*Chunk, error], s *measure.Setup) iter.Seq2[*measure.Block, error] {
	return decodeAll(chunks, func(c *Chunk, b *measure.Block) error {
		return Decode(c, s.Timebase, len(s.Channels), b)
	})
}

func decodeAll(chunks iter.Seq2[*Chunk, error], decode func(*Chunk, *measure.Block) error,
) iter.Seq2[*measure.Block, error] {
	return func(yield func(*measure.Block, error) bool) {
		var b measure.Block
		for c, err := range chunks {
			if err == nil {
				err = decode(c, &b)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(&b, nil) {
				return
			}
		}
	}
}

// Coding is the first byte of a payload.
const Coding = 1 // FoR256

const tableHead = 4 // coding u8, zero u8, columns u16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func corrupt(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, a...))
}

// PayloadSize returns the number of bytes that AppendPayload adds.
func PayloadSize(c *Chunk) int {
	if c.Sums != nil {
		return 2 + len(c.Sums)
	}
	n := tableHead + 4*len(c.Columns)
	for i := range c.Columns {
		n += len(c.Columns[i].Dir) + len(c.Columns[i].Data)
	}
	return n
}

// AppendPayload appends the columns as they travel and lie in the spool: a
// table of lengths, then directory and data of each column (docs/format.md).
// The fixed header (number, first scan, scans, first tick, checksum) travels
// beside it.
func AppendPayload(dst []byte, c *Chunk) []byte {
	dst = appendTable(dst, c)
	for i := range c.Columns {
		dst = append(dst, c.Columns[i].Dir...)
		dst = append(dst, c.Columns[i].Data...)
	}
	return dst
}

func appendTable(dst []byte, c *Chunk) []byte {
	if c.Sums != nil {
		return append(append(dst, Thinned, 0), c.Sums...)
	}
	dst = append(dst, Coding, 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(c.Columns)))
	for i := range c.Columns {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(c.Columns[i].Data)))
	}
	return dst
}

// ParsePayload sets the columns of a chunk whose fixed header is filled in (at
// least Scans) to views of the payload, without copying: the payload must live
// and stay unchanged as long as the chunk is used. The memory of c.Columns is
// used again. It checks every length and directory entry, and wraps ErrCorrupt
// when one is wrong; it does not compute the checksum (Validate does).
func ParsePayload(c *Chunk, payload []byte) error {
	c.Sums = nil
	if len(payload) >= 2+sumsHead && payload[0] == Thinned && payload[1] == 0 {
		c.Columns, c.Sums = c.Columns[:0], payload[2:]
		return c.validateSums()
	}
	if c.Scans < 1 || c.Scans > MaxScans {
		return corrupt("%d scans: want 1 to %d", c.Scans, MaxScans)
	}
	if len(payload) < tableHead {
		return corrupt("payload of %d bytes", len(payload))
	}
	if payload[0] != Coding || payload[1] != 0 {
		return corrupt("coding %d.%d: this program reads %d.0", payload[0], payload[1], Coding)
	}
	n := int(binary.LittleEndian.Uint16(payload[2:]))
	if len(payload) < tableHead+4*n {
		return corrupt("payload of %d bytes: too short for %d columns", len(payload), n)
	}
	table, rest := payload[tableHead:tableHead+4*n], payload[tableHead+4*n:]
	c.Columns = c.Columns[:0]
	dir := DirEntry * c.Blocks()
	for i := range n {
		size := int(binary.LittleEndian.Uint32(table[4*i:]))
		if len(rest) < dir || len(rest)-dir < size {
			return corrupt("payload too short for column %d", i)
		}
		col := Column{Dir: rest[:dir:dir], Data: rest[dir : dir+size : dir+size]}
		if err := col.check(c.Scans); err != nil {
			return fmt.Errorf("column %d: %w", i, err)
		}
		c.Columns = append(c.Columns, col)
		rest = rest[dir+size:]
	}
	if len(rest) != 0 {
		return corrupt("%d bytes after the last column", len(rest))
	}
	return nil
}

// Checksum returns the CRC-32C over the fixed header (no u64, first scan u64,
// scans u32, first tick i64, little-endian) and the payload.
func Checksum(c *Chunk) uint32 {
	head := make([]byte, 0, 28+tableHead+4*len(c.Columns))
	head = binary.LittleEndian.AppendUint64(head, c.No)
	head = binary.LittleEndian.AppendUint64(head, c.FirstScan)
	head = binary.LittleEndian.AppendUint32(head, uint32(c.Scans))
	head = binary.LittleEndian.AppendUint64(head, uint64(c.FirstTick))
	crc := crc32.Update(0, castagnoli, appendTable(head, c))
	for i := range c.Columns {
		crc = crc32.Update(crc, castagnoli, c.Columns[i].Dir)
		crc = crc32.Update(crc, castagnoli, c.Columns[i].Data)
	}
	return crc
}

// Validate checks that the chunk has the columns that the timebase and the
// number of channels ask for, that every directory entry is in place, and that
// the checksum is right. Errors wrap ErrCorrupt.
func (c *Chunk) Validate(tb measure.Timebase, channels int) error {
	if err := c.validateShape(tb, channels); err != nil {
		return fmt.Errorf("chunk %d: %w", c.No, err)
	}
	if crc := Checksum(c); crc != c.CRC {
		return fmt.Errorf("chunk %d: %w: %08x, want %08x", c.No, errors.Join(ErrCorrupt, ErrChecksum), crc, c.CRC)
	}
	return nil
}

func (c *Chunk) validateShape(tb measure.Timebase, channels int) error {
	if c.Sums != nil {
		return c.validateSums()
	}
	if c.Scans < 1 || c.Scans > MaxScans {
		return corrupt("%d scans: want 1 to %d", c.Scans, MaxScans)
	}
	if want := Columns(tb, channels); len(c.Columns) != want {
		return corrupt("%d columns, want %d (%d channels, stamped: %v)", len(c.Columns), want, channels, tb.Stamped)
	}
	for i := range c.Columns {
		if err := c.Columns[i].check(c.Scans); err != nil {
			return fmt.Errorf("column %d: %w", i, err)
		}
	}
	return nil
}

func (c *Chunk) validateSums() error {
	if n, _ := c.Deleted(); c.Scans < 1 || c.Scans > MaxThinned || len(c.Sums) < sumsHead || len(c.Columns) > 0 ||
		n < 1 || n > uint64(c.Scans) {
		return corrupt("sums of %d scans in %d chunks, and %d columns", c.Scans, n, len(c.Columns))
	}
	return nil
}

// check verifies that the directory has an entry a block, that the blocks lie
// one after the other, and that the data ends with the last one and its pad.
func (col *Column) check(scans int) error {
	if want := DirEntry * blocks(scans); len(col.Dir) != want {
		return corrupt("directory of %d bytes, want %d for %d scans", len(col.Dir), want, scans)
	}
	at := 0
	for k := 0; k < len(col.Dir); k += DirEntry {
		wo := binary.LittleEndian.Uint32(col.Dir[k+4:])
		width, offset := int(wo&0xffff), int(wo>>16)
		if width > MaxWidth {
			return corrupt("block %d: width %d: want 0 to %d", k/DirEntry, width, MaxWidth)
		}
		if offset != at {
			return corrupt("block %d: at %d, want %d", k/DirEntry, offset, at)
		}
		at += width
	}
	if want := 32*at + Pad; len(col.Data) != want {
		return corrupt("%d bytes of data, want %d", len(col.Data), want)
	}
	return nil
}
