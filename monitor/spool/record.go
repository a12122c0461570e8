package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"wattmark/measure/chunk"
)

// RecordType names what a record holds. The numbers are stored: never renumber.
type RecordType uint8

// The types of record.
const (
	RecordChunk  RecordType = 1 // samples: ChunkHead and the coded columns
	RecordEvent  RecordType = 2 // a measure.Event, JSON
	RecordMarker RecordType = 3 // a marker.Found, JSON
	RecordState  RecordType = 4 // a State, JSON
)

const (
	// frameSize is the size of a record's frame: magic u32, type u8, three zero
	// bytes, body length u32, CRC-32C of the body u32, CRC-32C of the frame so
	// far u32; little-endian. The frame's own checksum lets a reader skip the
	// body without trusting a torn length.
	frameSize = 20
	// chunkHeadSize is the fixed part of a chunk's body: number u64, first scan
	// u64, first tick i64, scans u32, CRC-32C u32.
	chunkHeadSize = 32
	// maxBody bounds a body, so that a broken length cannot make a reader
	// allocate without end.
	maxBody = 512 << 20

	recordMagic = 0x524D_4B57 // "WKMR"
)

// ErrTorn is wrapped by errors about bytes that are not a whole record: the
// tail of a log whose writer was killed, or a disk that lost what it held.
var ErrTorn = errors.New("torn record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ChunkHead is what the log says of a chunk before its columns.
type ChunkHead struct {
	No        uint64
	FirstScan uint64
	FirstTick int64
	Scans     uint32
	CRC       uint32 // of the chunk's fixed header and payload (docs/format.md)
}

// Frame is a record's frame as parsed.
type Frame struct {
	Type RecordType
	Body int    // bytes of the body
	CRC  uint32 // of the body
}

// beginRecord appends room for a frame; endRecord fills it in.
func beginRecord(dst []byte) []byte {
	var room [frameSize]byte
	return append(dst, room[:]...)
}

// endRecord completes the frame at dst[at:], whose body is all that follows.
func endRecord(dst []byte, at int, t RecordType) {
	body := dst[at+frameSize:]
	f := dst[at : at+frameSize]
	binary.LittleEndian.PutUint32(f, recordMagic)
	binary.LittleEndian.PutUint32(f[4:], uint32(t))
	binary.LittleEndian.PutUint32(f[8:], uint32(len(body)))
	binary.LittleEndian.PutUint32(f[12:], crc32.Checksum(body, castagnoli))
	binary.LittleEndian.PutUint32(f[16:], crc32.Checksum(f[:16], castagnoli))
}

// appendRecord appends a record whose body is at hand.
func appendRecord(dst []byte, t RecordType, body []byte) []byte {
	at := len(dst)
	dst = append(beginRecord(dst), body...)
	endRecord(dst, at, t)
	return dst
}

// appendChunk appends a chunk's record: its head, then the payload, the same
// bytes that travel and are stored.
func appendChunk(dst []byte, c *chunk.Chunk) []byte {
	at := len(dst)
	dst = beginRecord(dst)
	dst = binary.LittleEndian.AppendUint64(dst, c.No)
	dst = binary.LittleEndian.AppendUint64(dst, c.FirstScan)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.FirstTick))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(c.Scans))
	dst = binary.LittleEndian.AppendUint32(dst, c.CRC)
	dst = chunk.AppendPayload(dst, c)
	endRecord(dst, at, RecordChunk)
	return dst
}

// chunkRecordSize is the number of bytes that appendChunk appends.
func chunkRecordSize(c *chunk.Chunk) int { return frameSize + chunkHeadSize + chunk.PayloadSize(c) }

// ParseFrame reads the frame at the head of b. Errors wrap ErrTorn.
func ParseFrame(b []byte) (Frame, error) {
	if len(b) < frameSize {
		return Frame{}, fmt.Errorf("%w: %d bytes of a frame of %d", ErrTorn, len(b), frameSize)
	}
	if m := binary.LittleEndian.Uint32(b); m != recordMagic {
		return Frame{}, fmt.Errorf("%w: begins with %08x", ErrTorn, m)
	}
	if crc32.Checksum(b[:16], castagnoli) != binary.LittleEndian.Uint32(b[16:]) {
		return Frame{}, fmt.Errorf("%w: the frame's checksum does not fit", ErrTorn)
	}
	f := Frame{Type: RecordType(b[4]), Body: int(binary.LittleEndian.Uint32(b[8:])), CRC: binary.LittleEndian.Uint32(b[12:])}
	switch {
	case b[5]|b[6]|b[7] != 0 || f.Type < RecordChunk || f.Type > RecordState:
		return Frame{}, fmt.Errorf("%w: record type %d is not known to this version", ErrTorn, f.Type)
	case f.Body > maxBody || (f.Type == RecordChunk && f.Body < chunkHeadSize):
		return Frame{}, fmt.Errorf("%w: a body of %d bytes", ErrTorn, f.Body)
	}
	return f, nil
}

// ParseRecord reads the whole record at the head of b and returns its body,
// which aliases b, and the bytes after it. Errors wrap ErrTorn.
func ParseRecord(b []byte) (f Frame, body, rest []byte, err error) {
	if f, err = ParseFrame(b); err != nil {
		return Frame{}, nil, nil, err
	}
	if len(b)-frameSize < f.Body {
		return Frame{}, nil, nil, fmt.Errorf("%w: %d bytes of a body of %d", ErrTorn, len(b)-frameSize, f.Body)
	}
	body, rest = b[frameSize:frameSize+f.Body], b[frameSize+f.Body:]
	if crc32.Checksum(body, castagnoli) != f.CRC {
		return Frame{}, nil, nil, fmt.Errorf("%w: the body's checksum does not fit", ErrTorn)
	}
	return f, body, rest, nil
}

// parseChunkHead reads the fixed part of a chunk's body.
func parseChunkHead(b []byte) ChunkHead {
	return ChunkHead{
		No: binary.LittleEndian.Uint64(b), FirstScan: binary.LittleEndian.Uint64(b[8:]),
		FirstTick: int64(binary.LittleEndian.Uint64(b[16:])),
		Scans:     binary.LittleEndian.Uint32(b[24:]), CRC: binary.LittleEndian.Uint32(b[28:]),
	}
}
