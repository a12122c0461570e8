package spool

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
)

// RecordType is the content of a record. The numbers are stored: never renumber.
type RecordType uint8

// The types of record.
const (
	RecordChunk  RecordType = 1 // samples: a chunk's head and its coded columns
	RecordEvent  RecordType = 2 // a measure.Event, JSON
	RecordMarker RecordType = 3 // a marker.Found, JSON
	RecordState  RecordType = 4 // a State, JSON
)

// A record is a frame and a body, all numbers little-endian:
//
//	frame  magic u32, type u8, 0 0 0, body length u32, CRC-32C of the body u32, CRC-32C of the frame so far u32
//	chunk  number u64, first scan u64, first tick i64, scans u32, CRC-32C u32, payload
//
// The frame's own checksum lets a reader skip the body without trusting a torn length.
const (
	frameSize     = 20
	chunkHeadSize = 32
	recordMagic   = 0x524D_4B57 // "WKMR"
	// maxBody bounds the memory that a broken length can make a reader allocate.
	maxBody = 512 << 20
)

// ErrTorn: bytes that are not a whole record, as the tail of a log whose writer was
// killed, or a place where the disk lost its content.
var ErrTorn = errors.New("torn record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var order = binary.LittleEndian

// Frame is a record's frame as parsed.
type Frame struct {
	Type RecordType
	Body int    // bytes
	CRC  uint32 // of the body
}

// endRecord completes the frame at dst[at:], whose body is everything that follows.
func endRecord(dst []byte, at int, t RecordType) {
	body := dst[at+frameSize:]
	f := dst[at : at+frameSize]
	order.PutUint32(f, recordMagic)
	order.PutUint32(f[4:], uint32(t))
	order.PutUint32(f[8:], uint32(len(body)))
	order.PutUint32(f[12:], crc32.Checksum(body, castagnoli))
	order.PutUint32(f[16:], crc32.Checksum(f[:16], castagnoli))
}

// appendRecord appends a record with the given body.
func appendRecord(dst []byte, t RecordType, body []byte) []byte {
	at := len(dst)
	dst = append(append(dst, make([]byte, frameSize)...), body...)
	endRecord(dst, at, t)
	return dst
}

// appendChunk appends a chunk's record. The payload has the bytes that travel and that
// the database stores.
func appendChunk(dst []byte, c *chunk.Chunk) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, frameSize)...)
	dst = order.AppendUint64(dst, c.No)
	dst = order.AppendUint64(dst, c.FirstScan)
	dst = order.AppendUint64(dst, uint64(c.FirstTick))
	dst = order.AppendUint32(dst, uint32(c.Scans))
	dst = order.AppendUint32(dst, c.CRC)
	dst = chunk.AppendPayload(dst, c)
	endRecord(dst, at, RecordChunk)
	return dst
}

// chunkRecordSize returns the number of bytes that appendChunk appends.
func chunkRecordSize(c *chunk.Chunk) int { return frameSize + chunkHeadSize + chunk.PayloadSize(c) }

// parseChunkHead reads the fixed part of a chunk's body.
func parseChunkHead(b []byte) chunk.Chunk {
	return chunk.Chunk{
		No: order.Uint64(b), FirstScan: order.Uint64(b[8:]), FirstTick: int64(order.Uint64(b[16:])),
		Scans: int(order.Uint32(b[24:])), CRC: order.Uint32(b[28:]),
	}
}

// ParseFrame reads the frame at the head of b. Errors wrap ErrTorn.
func ParseFrame(b []byte) (Frame, error) {
	if len(b) < frameSize {
		return Frame{}, fmt.Errorf("%w: %d bytes of a frame of %d", ErrTorn, len(b), frameSize)
	}
	if m := order.Uint32(b); m != recordMagic {
		return Frame{}, fmt.Errorf("%w: begins with %08x", ErrTorn, m)
	}
	if crc32.Checksum(b[:16], castagnoli) != order.Uint32(b[16:]) {
		return Frame{}, fmt.Errorf("%w: the frame's checksum does not fit", ErrTorn)
	}
	f := Frame{Type: RecordType(b[4]), Body: int(order.Uint32(b[8:])), CRC: order.Uint32(b[12:])}
	switch {
	case b[5]|b[6]|b[7] != 0 || f.Type < RecordChunk || f.Type > RecordState:
		return Frame{}, fmt.Errorf("%w: record type %d is not known to this version", ErrTorn, f.Type)
	case f.Body > maxBody || (f.Type == RecordChunk && f.Body < chunkHeadSize):
		return Frame{}, fmt.Errorf("%w: a body of %d bytes", ErrTorn, f.Body)
	}
	return f, nil
}

// ParseRecord reads the whole record at the head of b and returns its body, which
// aliases b, and the bytes after it. Errors wrap ErrTorn.
func ParseRecord(b []byte) (f Frame, body, rest []byte, err error) {
	if f, err = ParseFrame(b); err != nil {
		return Frame{}, nil, nil, err
	}
	if len(b)-frameSize < f.Body {
		return Frame{}, nil, nil, fmt.Errorf("%w: %d bytes of a body of %d", ErrTorn, len(b)-frameSize, f.Body)
	}
	body, rest = b[frameSize:frameSize+f.Body], b[frameSize+f.Body:]
	return f, body, rest, f.check(body)
}

// check verifies a body's checksum.
func (f Frame) check(body []byte) error {
	if crc32.Checksum(body, castagnoli) != f.CRC {
		return fmt.Errorf("%w: the body's checksum does not fit", ErrTorn)
	}
	return nil
}

// Record is a record as a reader meets it: its frame, and a chunk without columns.
type Record struct {
	Frame
	Chunk chunk.Chunk // of a RecordChunk
	at    int64       // offset of the body
	old   bool        // in the file of heads
	n     uint64      // from the log's begin
}

// Reader walks a log from its begin, also while it is written. It holds a file
// descriptor of its own, so a capture that is released meanwhile can be read to the end.
// One goroutine owns it.
type Reader struct {
	log  *Log
	file *os.File
	at   int64
	head [frameSize + chunkHeadSize]byte

	heads       *os.File // of forgotten chunks, nil for none
	headAt, end int64    // in it
	n           uint64   // records that Next returned
}

// NewReader returns a reader that stands before the first record.
func (l *Log) NewReader() (*Reader, error) {
	r := &Reader{log: l}
	if err := r.open(); err != nil {
		return nil, l.fault(err)
	}
	return r, nil
}

// open goes to the first record.
func (r *Reader) open() error {
	if err := r.Close(); err != nil {
		return err
	}
	p := r.log.prefix.now.Load()
	r.at, r.headAt, r.end, r.n, r.heads = p.cut, 0, p.heads, 0, nil
	var err error
	if r.file, err = openRead(r.log.path()); err == nil && r.end > 0 {
		r.heads, err = openRead(r.log.beside(headsName))
	}
	if err != nil {
		return errors.Join(err, r.Close())
	}
	return nil
}

// skip goes behind the first n records.
func (r *Reader) skip(n uint64) error {
	err := r.open()
	for err == nil && r.n < n {
		_, err = r.Next()
	}
	return err
}

// forgotten reports whether bytes of the log are, or may be, in its hole.
func (r *Reader) forgotten(at int64) bool { return at < r.log.prefix.now.Load().cut }

// Next returns the next record without reading its body, and io.EOF when there is none
// yet: try again after Log.Changed. Errors wrap ErrTorn, or are the disk's.
func (r *Reader) Next() (Record, error) {
	rec, size, err := r.peek()
	if !rec.old && r.headAt == r.end && r.forgotten(r.at) { // meanwhile: it is among the heads now
		if err := r.skip(r.n); err != nil {
			return Record{}, err
		}
		return r.Next()
	}
	if err != nil {
		return Record{}, err
	}
	rec.n = r.n
	r.n++
	if rec.old {
		r.headAt += size
	} else {
		r.at += size
	}
	return rec, nil
}

// peek returns the next record and its length in the file.
func (r *Reader) peek() (rec Record, size int64, err error) {
	file, at, end := r.file, r.at, r.log.Size()
	rec.old = r.headAt < r.end
	if rec.old {
		file, at, end = r.heads, r.headAt, r.end
	}
	left := end - at
	if left == 0 {
		return rec, 0, io.EOF
	}
	n, err := file.ReadAt(r.head[:min(int64(len(r.head)), left)], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return rec, 0, r.fault(err)
	}
	if rec.Frame, err = ParseFrame(r.head[:n]); err != nil {
		return rec, 0, r.fault(err)
	}
	size = int64(frameSize + rec.Frame.Body)
	if rec.old && rec.Type == RecordChunk {
		size = int64(len(r.head))
	}
	if size > left {
		return rec, 0, r.fault(fmt.Errorf("%w: a body of %d bytes in a log that has %d left", ErrTorn, rec.Frame.Body, left))
	}
	if rec.at = at + frameSize; rec.Type == RecordChunk {
		if n < len(r.head) {
			return rec, 0, r.fault(io.ErrUnexpectedEOF)
		}
		rec.Chunk = parseChunkHead(r.head[frameSize:])
	}
	return rec, size, nil
}

// fault names the place in an error.
func (r *Reader) fault(err error) error {
	return fmt.Errorf("spool %s, byte %d: %w", r.log.header.CaptureID, r.at, err)
}

// Body reads and verifies a record's body into *buf, which grows as needed and is kept
// for the next call. For a chunk it returns the payload alone. Errors wrap ErrTorn or
// ErrForgotten, or are the disk's.
func (r *Reader) Body(rec Record, buf *[]byte) ([]byte, error) {
	file, chunk := r.file, rec.Type == RecordChunk
	if rec.old {
		file = r.heads
	}
	if rec.old && chunk {
		return nil, r.fault(fmt.Errorf("chunk %d: %w", rec.Chunk.No, ErrForgotten))
	}
	b := slices.Grow((*buf)[:0], rec.Body)[:rec.Body]
	*buf = b
	_, err := file.ReadAt(b, rec.at)
	switch gone := !rec.old && r.forgotten(rec.at); {
	case gone && chunk:
		return nil, r.fault(fmt.Errorf("chunk %d: %w", rec.Chunk.No, ErrForgotten))
	case gone: // meanwhile: it is among the heads now
		next := r.n
		if err := r.skip(rec.n); err != nil {
			return nil, err
		}
		if rec, err = r.Next(); err == nil {
			b, err = r.Body(rec, buf)
		}
		return b, errors.Join(err, r.skip(next))
	case err != nil:
		return nil, r.fault(err)
	}
	if err := rec.check(b); err != nil {
		return nil, r.fault(err)
	}
	if chunk {
		b = b[chunkHeadSize:]
	}
	return b, nil
}

// Event reads an event record.
func (r *Reader) Event(rec Record) (measure.Event, error) {
	var v struct {
		measure.Event
		loss
	}
	err := r.json(rec, &v)
	if err == nil && v.Lost != nil {
		return v.loss.event(), nil
	}
	return v.Event, err
}

// Marker reads a marker record.
func (r *Reader) Marker(rec Record) (f marker.Found, err error) { return f, r.json(rec, &f) }

// State reads a state record.
func (r *Reader) State(rec Record) (s State, err error) { return s, r.json(rec, &s) }

func (r *Reader) json(rec Record, v any) error {
	var buf []byte
	b, err := r.Body(rec, &buf)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return r.fault(err)
	}
	return nil
}

// Close closes the files. It is safe to call twice.
func (r *Reader) Close() (err error) {
	for _, f := range []*os.File{r.file, r.heads} {
		if f == nil {
			continue
		}
		if e := f.Close(); e != nil && !errors.Is(e, os.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
