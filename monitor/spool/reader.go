package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"wattmark/measure"
	"wattmark/measure/marker"
)

// Record is a record as a reader meets it: its frame, and a chunk's head.
type Record struct {
	Frame
	Chunk ChunkHead // of a RecordChunk
	at    int64     // offset of the body
}

// Reader walks a log from its begin, also while it is written. It holds a file
// descriptor of its own, so a capture that is released meanwhile can be read to
// the end. One goroutine owns it.
type Reader struct {
	log  *Log
	file *os.File
	at   int64
	head [frameSize + chunkHeadSize]byte
}

// NewReader returns a reader that stands before the first record.
func (l *Log) NewReader() (*Reader, error) {
	f, err := openRead(l.path())
	if err != nil {
		return nil, fmt.Errorf("spool %s: %w", l.header.CaptureID, err)
	}
	return &Reader{log: l, file: f}, nil
}

// Next returns the next record without reading its body, and io.EOF when there
// is none yet: try again when Log.Changed says so.
func (r *Reader) Next() (Record, error) {
	left := r.log.Size() - r.at
	if left == 0 {
		return Record{}, io.EOF
	}
	n, err := r.file.ReadAt(r.head[:min(int64(len(r.head)), left)], r.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return Record{}, r.bad(err)
	}
	f, err := ParseFrame(r.head[:n])
	if err != nil {
		return Record{}, r.bad(err)
	}
	if int64(frameSize+f.Body) > left {
		return Record{}, r.bad(fmt.Errorf("%w: a body of %d bytes in a log that has %d left", ErrTorn, f.Body, left))
	}
	rec := Record{Frame: f, at: r.at + frameSize}
	if f.Type == RecordChunk {
		if n < len(r.head) {
			return Record{}, r.bad(io.ErrUnexpectedEOF)
		}
		rec.Chunk = parseChunkHead(r.head[frameSize:])
	}
	r.at += int64(frameSize + f.Body)
	return rec, nil
}

func (r *Reader) bad(err error) error {
	return fmt.Errorf("spool %s, byte %d: %w", r.log.header.CaptureID, r.at, err)
}

// Body reads and verifies a record's body into *buf, which grows as needed and
// is kept for the next call. A chunk's body is its payload alone, without the
// head.
func (r *Reader) Body(rec Record, buf *[]byte) ([]byte, error) {
	b := slices.Grow((*buf)[:0], rec.Body)[:rec.Body]
	*buf = b
	if _, err := r.file.ReadAt(b, rec.at); err != nil {
		return nil, r.bad(err)
	}
	if crc32.Checksum(b, castagnoli) != rec.CRC {
		return nil, r.bad(fmt.Errorf("%w: the body's checksum does not fit", ErrTorn))
	}
	if rec.Type == RecordChunk {
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
		return r.bad(err)
	}
	return nil
}

// Close lets go of the file. It is safe to call twice.
func (r *Reader) Close() error {
	if err := r.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
