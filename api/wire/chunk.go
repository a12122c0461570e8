package wire

import (
	"encoding/binary"

	"wattmark/api/wattmarkv1"
	"wattmark/measure/chunk"
)

// Chunk converts a chunk to its message, copying its columns into one
// payload: each column's directory, then its data, columns in order
// (docs/format.md). SendChunk does the same without the copy.
func Chunk(c *chunk.Chunk) *wattmarkv1.Chunk {
	size := 0
	for _, col := range c.Columns {
		size += len(col.Dir) + len(col.Data)
	}
	p := chunkHead(c)
	p.Payload = make([]byte, 0, size)
	for _, col := range c.Columns {
		p.Payload = append(append(p.Payload, col.Dir...), col.Data...)
	}
	return p
}

// chunkHead converts all of a chunk but its columns.
func chunkHead(c *chunk.Chunk) *wattmarkv1.Chunk {
	return &wattmarkv1.Chunk{
		ChunkNo: c.No, FirstScan: c.FirstScan, FirstTick: c.FirstTick, Scans: toUint32(c.Scans), Crc32C: c.CRC,
	}
}

// ParseChunk reads a message into c, whose columns then alias the message's
// payload; c.Columns is reused when it is large enough, so that a loop over
// chunks does not allocate. columns is the number of columns that the setup
// asks for (Columns). The checksum is taken over, not verified: the reader who
// needs to know asks the chunk itself.
func ParseChunk(p *wattmarkv1.Chunk, columns int, c *chunk.Chunk) error {
	switch {
	case p == nil:
		return refuse("an empty chunk")
	case p.Scans == 0 || p.Scans > chunk.MaxScans:
		return refuse("chunk %d: %d scans: want 1 to %d", p.ChunkNo, p.Scans, chunk.MaxScans)
	case p.FirstScan+uint64(p.Scans) < p.FirstScan:
		return refuse("chunk %d: %d scans from scan %d on: past the largest number", p.ChunkNo, p.Scans, p.FirstScan)
	case columns < 1 || columns > MaxChannels+1:
		return refuse("chunk %d: a setup of %d columns", p.ChunkNo, columns)
	}
	c.No, c.FirstScan, c.FirstTick, c.Scans, c.CRC = p.ChunkNo, p.FirstScan, p.FirstTick, int(p.Scans), p.Crc32C
	c.Columns = c.Columns[:0]
	rest := p.Payload
	for i := range columns {
		col, tail, err := splitColumn(rest, c.Scans)
		if err != nil {
			return refuse("chunk %d, column %d of %d: %v", p.ChunkNo, i, columns, err)
		}
		c.Columns, rest = append(c.Columns, col), tail
	}
	if len(rest) != 0 {
		return refuse("chunk %d: %d bytes after the last of %d columns", p.ChunkNo, len(rest), columns)
	}
	return nil
}

// splitColumn takes one column off the front of a payload. The length of its
// data follows from its directory.
func splitColumn(b []byte, scans int) (col chunk.Column, rest []byte, err error) {
	dir := (scans + chunk.BlockScans - 1) / chunk.BlockScans * chunk.DirEntry
	if len(b) < dir {
		return col, nil, refuse("%d bytes left for a directory of %d", len(b), dir)
	}
	col.Dir, b = b[:dir:dir], b[dir:]
	blocks := 0 // length of the data, in units of 32 bytes
	for e := col.Dir; len(e) > 0; e = e[chunk.DirEntry:] {
		width, offset := binary.LittleEndian.Uint16(e[4:]), binary.LittleEndian.Uint16(e[6:])
		if width > 32 {
			return col, nil, refuse("a block of %d bits a count: at most 32", width)
		}
		blocks = max(blocks, int(offset)+int(width))
	}
	data := blocks*32 + chunk.Pad
	if len(b) < data {
		return col, nil, refuse("%d bytes left for %d bytes of data", len(b), data)
	}
	col.Data = b[:data:data]
	return col, b[data:], nil
}
