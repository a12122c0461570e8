// Package chunk is the stored and wired form of scans: FoR256, frame of
// reference and bit packing by blocks of 256 counts. The monitor codes the
// chunks; the spool, the wire and the database carry the same bytes
// (docs/format.md).
//
//	Block ──Encoder──▶ Chunk ──AppendPayload──▶ bytes
//	Block ◀──Decode─── Chunk ◀──ParsePayload─── bytes
package chunk

import (
	"errors"
	"slices"

	"wattmark/measure"
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
	out.Columns = make([]Column, len(c.Columns))
	for i, col := range c.Columns {
		out.Columns[i] = Column{Dir: slices.Clone(col.Dir), Data: slices.Clone(col.Data)}
	}
	return &out
}

// columns returns the number of columns that the timebase asks for.
func columns(tb measure.Timebase, channels int) int {
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
