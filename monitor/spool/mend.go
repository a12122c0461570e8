package spool

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/wattmark/wattmark/measure"
)

// hole is a stretch of a log that holds no record, in front of one that is whole.
type hole struct {
	at, size int64
	why      error
	loss     loss
}

// loss is the body of the event record that replaces damaged bytes: the first lost scan
// and their number, 0 where the bytes held no scan.
type loss struct {
	Lost *[2]uint64 `json:"lost"`
}

// event converts a loss to an event for readers of the samples.
func (l loss) event() measure.Event {
	e := measure.Event{Kind: measure.EventGap, FirstScan: l.Lost[0], Scans: l.Lost[1], Exact: true, Channel: -1}
	if e.Scans == 0 {
		e.Kind = measure.EventNote
		e.Detail = fmt.Sprintf("a record in front of scan %d was damaged on the monitor's disk", e.FirstScan)
	} else {
		e.Detail = fmt.Sprintf("scans %d to %d were damaged on the monitor's disk", e.FirstScan, e.FirstScan+e.Scans-1)
	}
	return e
}

// survey is the result of reading through a log's bytes.
type survey struct {
	good   int64 // where the last good record ends
	sealed bool  // that record is a final state
	holes  []hole
	why    error // the fault in the bytes behind good; nil where there are none
	cut    bool  // they are the begin of a record, left by a killed writer

	next uint64 // the scan that is due
	open bool   // a hole lies in front of the scan that is due
}

// survey finds the good records. It verifies every byte, since a power cut can lose bytes
// before the tail. Unless all is set, it skips the bodies of a log whose frames are whole
// and end with a final state: that was synced before the end was announced.
func (l *Log) survey(all bool) (survey, error) {
	r, err := l.NewReader()
	if err != nil {
		return survey{}, err
	}
	defer r.Close()
	if !all {
		if sealed, err := r.endsFinal(); err == nil && sealed {
			return survey{good: l.Size(), sealed: true}, nil
		}
		if err := r.open(); err != nil {
			return survey{}, err
		}
	}
	var s survey
	var buf []byte
	for {
		s.good = r.at
		old := r.headAt < r.end
		rec, err := r.whole(&buf)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if errors.Is(err, ErrTorn) && old {
			return s, fmt.Errorf("%s: damaged: %w", headsName, err) // no record of the log can take its place
		}
		if errors.Is(err, ErrTorn) {
			var next int64
			if next, rec, err = r.resync(s.good+1, &buf); next == 0 && err == nil {
				return s, r.tail(&s)
			}
			h := hole{at: s.good, size: next - s.good, why: r.whyAt(s.good, &buf), loss: loss{&[2]uint64{s.next}}}
			s.holes, s.open = append(s.holes, h), true
		}
		if err == nil {
			err = s.record(r, rec)
		}
		if err != nil {
			return s, err // the disk, not the record
		}
	}
}

// whole is Next of a record whose body is verified too, unless it is forgotten.
func (r *Reader) whole(buf *[]byte) (Record, error) {
	rec, err := r.Next()
	if err != nil {
		return rec, err
	}
	if rec.old && rec.Type == RecordChunk {
		return rec, nil
	}
	if _, err = r.Body(rec, buf); errors.Is(err, io.EOF) {
		err = fmt.Errorf("the log became shorter while it was read: %w", io.ErrUnexpectedEOF)
	}
	return rec, err
}

// whyAt returns the fault in the bytes at an offset. The reader stays at its place.
func (r *Reader) whyAt(at int64, buf *[]byte) error {
	back := r.at
	defer func() { r.at = back }()
	r.at = at
	_, err := r.whole(buf)
	return err
}

// tail fills in why and cut for the bytes behind the last good record.
func (r *Reader) tail(s *survey) error {
	var buf []byte
	s.why = r.whyAt(s.good, &buf)
	var head [frameSize]byte
	n, err := r.file.ReadAt(head[:], s.good)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	f, err := ParseFrame(head[:n])
	s.cut = n < frameSize || err == nil && s.good+int64(frameSize+f.Body) > r.log.Size()
	return nil
}

// resync returns the offset of the first whole record at or behind from, and the record;
// 0 where there is none. The reader stands behind it then. It searches windows for the
// magic number, which overlap by one byte less than its length.
func (r *Reader) resync(from int64, buf *[]byte) (int64, Record, error) {
	magic := binary.LittleEndian.AppendUint32(nil, recordMagic)
	end := r.log.Size()
	window := make([]byte, min(1<<20, max(end-from, frameSize)))
	for ; from+frameSize <= end; from += int64(len(window) - len(magic) + 1) {
		b := window[:min(int64(len(window)), end-from)]
		if _, err := r.file.ReadAt(b, from); err != nil {
			return 0, Record{}, err
		}
		for i := bytes.Index(b, magic); i >= 0; {
			r.at = from + int64(i)
			rec, err := r.whole(buf)
			if !errors.Is(err, ErrTorn) {
				return from + int64(i), rec, err
			}
			more := bytes.Index(b[i+1:], magic)
			if more < 0 {
				break
			}
			i += 1 + more
		}
	}
	return 0, Record{}, nil
}

// record notes a good record. The scans between the records before and behind a hole
// that no gap event covers were in the hole.
func (s *survey) record(r *Reader, rec Record) error {
	s.sealed = false
	var first, end uint64
	switch rec.Type {
	case RecordState:
		st, err := r.State(rec)
		s.sealed = err == nil && st.Final
		return err
	case RecordEvent:
		e, err := r.Event(rec)
		if err != nil || e.Kind != measure.EventGap {
			return err
		}
		first, end = e.FirstScan, e.FirstScan+e.Scans
	case RecordChunk:
		first, end = rec.Chunk.FirstScan, rec.Chunk.FirstScan+uint64(rec.Chunk.Scans)
	default:
		return nil
	}
	if s.open && first > s.next {
		lost := s.holes[len(s.holes)-1].loss.Lost
		if lost[1] == 0 {
			lost[0] = s.next
		}
		lost[1] += first - s.next
	}
	s.open = s.open && rec.Type != RecordChunk
	s.next = max(s.next, end)
	return nil
}

// mend overwrites each hole with an event of its loss, so that all other records keep
// their places, and cuts off the bytes behind the last good record. The damaged bytes are
// kept aside where there is room. Killed in between, it finds the same holes again.
func (l *Log) mend(s survey) error {
	l.keep(s)
	return change(l.path(), 0, true, func(f *os.File) error {
		for _, h := range s.holes {
			body, err := json.Marshal(h.loss)
			room := int(h.size) - frameSize
			if err == nil && len(body) > room {
				err = fmt.Errorf("byte %d: %w: %d damaged bytes leave no room to tell so: left as it is",
					h.at, ErrTorn, h.size)
			}
			if err != nil {
				return err
			}
			body = append(body, bytes.Repeat([]byte{' '}, room-len(body))...)
			if _, err := f.WriteAt(appendRecord(nil, RecordEvent, body), h.at); err != nil {
				return err
			}
		}
		if s.why == nil {
			return nil
		}
		return f.Truncate(s.good)
	})
}

// keep copies the damaged bytes to a file of their own. A failure is logged and does not
// hold up the good records.
func (l *Log) keep(s survey) {
	pieces := s.holes
	if s.why != nil && !s.cut {
		pieces = append(pieces[:len(pieces):len(pieces)], hole{at: s.good, size: l.Size() - s.good, why: s.why})
	}
	if len(pieces) == 0 {
		return
	}
	log, err := openRead(l.path())
	if err == nil {
		defer log.Close()
		err = l.copyPieces(log, pieces)
	}
	if err != nil {
		l.opt.Log.Error("the damaged bytes of a capture could not be kept aside",
			"capture", l.header.CaptureID, "error", err)
	}
}

// copyPieces appends damaged stretches to the file beside the log, each behind a line with its
// place and fault, and syncs it.
func (l *Log) copyPieces(log *os.File, pieces []hole) error {
	err := change(l.beside(damagedName), os.O_CREATE|os.O_APPEND, true, func(f *os.File) error {
		for _, p := range pieces {
			_, err := fmt.Fprintf(f, "%d bytes from byte %d of the log: %v\n", p.size, p.at, p.why)
			if err == nil {
				_, err = io.Copy(f, io.NewSectionReader(log, p.at, p.size))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, syncDir(l.dir))
}

// Mend verifies every byte of a log that takes no more records, puts an event in place of
// each damaged stretch, and returns their number. It reads the whole log.
func (l *Log) Mend() (int, error) {
	l.prefix.mu.Lock()
	defer l.prefix.mu.Unlock()
	s, err := l.survey(true)
	if err == nil && len(s.holes) > 0 {
		s.why = nil // the end is not touched: readers may be there
		err = l.mend(s)
	}
	if err != nil {
		return 0, l.fault(err)
	}
	return len(s.holes), nil
}

// endsFinal walks the frames and reports whether the last record is a final state.
func (r *Reader) endsFinal() (bool, error) {
	var last Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
		last = rec
	}
	if last.Type != RecordState {
		return false, nil
	}
	s, err := r.State(last)
	return err == nil && s.Final, nil
}
