package composite

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"wattmark/measure"
)

// maxSpool bounds what one member may fill of the disk while another one
// samples into its own memory.
const maxSpool = 8 << 30

// spool keeps the blocks and events of one member in a file without a name, until
// all members have delivered.
//
//	u8 kind │ block: u64 first scan, i64 first tick, i64 arrival, u32 scans, u8 stamped,
//	        │        scans × i64 ticks where stamped, channels × scans × i32 counts
//	        │ event: u32 length, JSON
//
// All numbers are little-endian.
type spool struct {
	channels int
	file     *os.File
	w        *bufio.Writer
	r        *bufio.Reader
	size     int64
	buf      []byte
}

const (
	recordBlock = 1
	recordEvent = 2
	blockHead   = 8 + 8 + 8 + 4 + 1
	maxScans    = 1 << 20 // of one block in the file; more is no block of ours
)

func newSpool(channels int) (*spool, error) {
	f, err := os.CreateTemp("", "wattmark-composite-*")
	if err != nil {
		return nil, fmt.Errorf("composite: a file to keep samples in: %w", err)
	}
	// Where an open file can lose its name nothing stays behind; else close removes it.
	_ = os.Remove(f.Name())
	return &spool{channels: channels, file: f, w: bufio.NewWriterSize(f, 1<<18)}, nil
}

func (s *spool) close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

func (s *spool) write(p *packet) error {
	var err error
	if p.event != nil {
		err = s.encodeEvent(p.event)
	} else {
		s.encodeBlock(p)
	}
	if err == nil {
		if s.size += int64(len(s.buf)); s.size > maxSpool {
			return fmt.Errorf("composite: more than %d GiB to keep until all members have delivered: measure for a shorter time, or slower", maxSpool>>30)
		}
		_, err = s.w.Write(s.buf)
	}
	if err != nil {
		return fmt.Errorf("composite: keep samples in %s: %w: is the disk full?", os.TempDir(), err)
	}
	return nil
}

func (s *spool) encodeBlock(p *packet) {
	le, b := binary.LittleEndian, &p.block
	out := append(s.buf[:0], recordBlock)
	out = le.AppendUint64(out, b.FirstScan)
	out = le.AppendUint64(out, uint64(b.FirstTick))
	out = le.AppendUint64(out, uint64(p.at.UnixNano()))
	out = le.AppendUint32(out, uint32(b.Scans()))
	stamped := byte(0)
	if b.Ticks != nil {
		stamped = 1
	}
	out = append(out, stamped)
	for _, t := range b.Ticks {
		out = le.AppendUint64(out, uint64(t))
	}
	for _, col := range b.Counts {
		for _, v := range col {
			out = le.AppendUint32(out, uint32(v))
		}
	}
	s.buf = out
}

func (s *spool) encodeEvent(e *measure.Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	s.buf = binary.LittleEndian.AppendUint32(append(s.buf[:0], recordEvent), uint32(len(text)))
	s.buf = append(s.buf, text...)
	return nil
}

// rewind begins to read from the first record.
func (s *spool) rewind() error {
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("composite: keep samples: %w", err)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("composite: read what was kept: %w", err)
	}
	if s.r == nil {
		s.r = bufio.NewReaderSize(s.file, 1<<18)
	}
	s.r.Reset(s.file)
	return nil
}

// errRecord: the file does not hold what was written.
var errRecord = errors.New("the file of samples is damaged")

// next reads a record into p; io.EOF behind the last.
func (s *spool) next(p *packet) error {
	kind, err := s.r.ReadByte()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err == nil {
		switch kind {
		case recordBlock:
			err = s.decodeBlock(p)
		case recordEvent:
			err = s.decodeEvent(p)
		default:
			err = errRecord
		}
	}
	if err != nil {
		return fmt.Errorf("composite: read what was kept: %w: %w", errRecord, err)
	}
	return nil
}

func (s *spool) read(n int) ([]byte, error) {
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	s.buf = s.buf[:n]
	_, err := io.ReadFull(s.r, s.buf)
	return s.buf, err
}

func (s *spool) decodeBlock(p *packet) error {
	le := binary.LittleEndian
	h, err := s.read(blockHead)
	if err != nil {
		return err
	}
	p.event, p.at = nil, time.Unix(0, int64(le.Uint64(h[16:])))
	b := &p.block
	b.FirstScan, b.FirstTick = le.Uint64(h), int64(le.Uint64(h[8:]))
	n, stamped := int(le.Uint32(h[24:])), h[28] == 1
	if n < 1 || n > maxScans {
		return errRecord
	}
	b.Ticks = b.Ticks[:0]
	if stamped {
		raw, err := s.read(8 * n)
		if err != nil {
			return err
		}
		for i := range n {
			b.Ticks = append(b.Ticks, int64(le.Uint64(raw[8*i:])))
		}
	} else {
		b.Ticks = nil
	}
	if b.Counts == nil {
		b.Counts = make([][]measure.Count, s.channels)
	}
	for c := range b.Counts {
		raw, err := s.read(4 * n)
		if err != nil {
			return err
		}
		b.Counts[c] = b.Counts[c][:0]
		for i := range n {
			b.Counts[c] = append(b.Counts[c], measure.Count(le.Uint32(raw[4*i:])))
		}
	}
	return nil
}

func (s *spool) decodeEvent(p *packet) error {
	h, err := s.read(4)
	if err != nil {
		return err
	}
	n := int(binary.LittleEndian.Uint32(h))
	if n > 1<<20 {
		return errRecord
	}
	raw, err := s.read(n)
	if err != nil {
		return err
	}
	p.event = &measure.Event{}
	return json.Unmarshal(raw, p.event)
}
