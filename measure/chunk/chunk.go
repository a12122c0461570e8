// Package chunk is the stored and wired form of scans: FoR256, frame of
// reference and bit packing by blocks of 256 counts. The monitor codes the
// chunks; the spool, the wire and the database carry the same bytes
// (docs/format.md).
package chunk

import "wattmark/measure"

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

// Sink takes finished chunks. The chunk is borrowed until the call returns.
type Sink interface {
	Chunk(*Chunk) error
	Event(measure.Event) error
}
