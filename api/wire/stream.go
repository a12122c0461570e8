package wire

import (
	"fmt"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure/chunk"
)

// Chunk converts a chunk to its message, with a copy of its columns as the
// payload (chunk.AppendPayload).
func Chunk(c *chunk.Chunk) *pb.Chunk {
	return ChunkOf(c, chunk.AppendPayload(make([]byte, 0, chunk.PayloadSize(c)), c))
}

// ChunkOf is the message of a chunk whose columns are in payload.
func ChunkOf(c *chunk.Chunk, payload []byte) *pb.Chunk {
	return &pb.Chunk{
		ChunkNo: c.No, FirstScan: c.FirstScan, FirstTick: c.FirstTick, Scans: toUint32(c.Scans), Crc32C: c.CRC,
		Payload: payload,
	}
}

// ParseChunk reads a message into c, whose columns are then views of the
// message's payload; the memory of c.Columns is used again, so that a loop over
// chunks does not allocate. columns is the number of columns that the setup
// asks for: its channels, and one more where the timebase is stamped. The
// structure is checked (chunk.ErrCorrupt), the checksum is taken over and not
// verified: chunk.Chunk.Validate does that.
func ParseChunk(p *pb.Chunk, columns int, c *chunk.Chunk) error {
	switch {
	case p == nil:
		return refuse("an empty chunk")
	case p.Scans == 0 || p.Scans > chunk.MaxScans:
		return refuse("chunk %d: %d scans: want 1 to %d", p.ChunkNo, p.Scans, chunk.MaxScans)
	case p.FirstScan+uint64(p.Scans) < p.FirstScan:
		return refuse("chunk %d: %d scans from scan %d on: past the largest number", p.ChunkNo, p.Scans, p.FirstScan)
	}
	c.No, c.FirstScan, c.FirstTick, c.Scans, c.CRC = p.ChunkNo, p.FirstScan, p.FirstTick, int(p.Scans), p.Crc32C
	if err := chunk.ParsePayload(c, p.Payload); err != nil {
		return fmt.Errorf("%w: chunk %d: %w", ErrMessage, p.ChunkNo, err)
	}
	if len(c.Columns) != columns {
		return refuse("chunk %d: %d columns, the setup asks for %d", p.ChunkNo, len(c.Columns), columns)
	}
	return nil
}
