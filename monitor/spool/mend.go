package spool

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"wattmark/measure"
)

// damagedName is a file beside the log: the bytes that were no record any more, as they
// were found.
const damagedName = "damaged"

// hole is a stretch of a log that holds no record, in front of one that is whole.
type hole struct {
	at, size int64
	why      error
	loss     loss
}

// loss is the body of an event's record that stands where damaged bytes were: so many
// scans are lost from the first on; none where the bytes held none.
type loss struct {
	Lost *[2]uint64 `json:"lost"`
}

// event returns what a loss means to a reader of the samples.
func (l loss) event() measure.Event {
	e := measure.Event{Kind: measure.EventGap, FirstScan: l.Lost[0], Scans: l.Lost[1], Exact: true, Channel: -1}
	if e.Scans == 0 {
		e.Kind, e.Detail = measure.EventNote, fmt.Sprintf("a record in front of scan %d was damaged on the monitor's disk", e.FirstScan)
	} else {
		e.Detail = fmt.Sprintf("scans %d to %d were damaged on the monitor's disk", e.FirstScan, e.FirstScan+e.Scans-1)
	}
	return e
}

// survey is what a log's bytes are.
type survey struct {
	good   int64 // where the last good record ends
	sealed bool  // that record is a final state
	holes  []hole
	why    error // what is wrong with the bytes behind good; nil where there are none
	cut    bool  // they are the begin of a record, as a killed writer leaves it

	next uint64 // the scan that is due
	open bool   // a hole lies in front of the scan that is due
}

// survey finds the good records. Of a log whose frames are whole and end with a final
// state, which was synced before anybody was told, the bodies are not read, unless all
// is asked for; of any other every byte is verified, since a power cut can lose what
// lies before the tail.
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
		r.at = 0
	}
	var s survey
	var buf []byte
	for {
		s.good = r.at
		rec, err := r.whole(&buf)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if errors.Is(err, ErrTorn) {
			var next int64
			if next, rec, err = r.resync(s.good+1, &buf); next == 0 && err == nil {
				return s, r.tail(&s)
			}
			s.holes, s.open = append(s.holes, hole{at: s.good, size: next - s.good, why: r.whyAt(s.good, &buf), loss: loss{&[2]uint64{s.next}}}), true
		}
		if err == nil {
			err = s.record(r, rec)
		}
		if err != nil {
			return s, err // the disk, not the record
		}
	}
}

// whole is Next of a record whose body is verified too.
func (r *Reader) whole(buf *[]byte) (Record, error) {
	rec, err := r.Next()
	if err != nil {
		return rec, err
	}
	if _, err = r.Body(rec, buf); errors.Is(err, io.EOF) {
		err = fmt.Errorf("the log became shorter while it was read: %w", io.ErrUnexpectedEOF)
	}
	return rec, err
}

// whyAt says what is wrong with the bytes at an offset, and leaves the reader where it is.
func (r *Reader) whyAt(at int64, buf *[]byte) error {
	back := r.at
	defer func() { r.at = back }()
	r.at = at
	_, err := r.whole(buf)
	return err
}

// tail tells what lies behind the last good record.
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

// resync returns the first whole record that begins at or behind an offset, and where;
// 0 where none does. The reader stands behind it then.
func (r *Reader) resync(from int64, buf *[]byte) (int64, Record, error) {
	magic := binary.LittleEndian.AppendUint32(nil, recordMagic)
	window := make([]byte, 1<<20)
	for end := r.log.Size(); from+frameSize <= end; from += int64(len(window) - len(magic) + 1) {
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

// record takes note of a good record: the scans between what came before a hole and what
// comes behind it, and of which no event tells, were in the hole.
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

// mend writes, in place, an event of its loss over each hole, so that every record keeps
// its place and readers need not know; and cuts off what lies behind the last good
// record. The damaged bytes are kept aside where there is room. Killed in between, it
// finds the same holes again.
func (l *Log) mend(s survey) error {
	l.keep(s)
	f, err := os.OpenFile(l.path(), os.O_WRONLY|noFollow, 0)
	if err != nil {
		return err
	}
	for _, h := range s.holes {
		body, merr := json.Marshal(h.loss)
		room := int(h.size) - frameSize
		if merr == nil && len(body) > room {
			merr = fmt.Errorf("byte %d: %w: %d damaged bytes leave no room to tell so: left as it is", h.at, ErrTorn, h.size)
		}
		if err = merr; err != nil {
			break
		}
		body = append(body, bytes.Repeat([]byte{' '}, room-len(body))...)
		if _, err = f.WriteAt(appendRecord(nil, RecordEvent, body), h.at); err != nil {
			break
		}
	}
	if err == nil && s.why != nil {
		err = f.Truncate(s.good)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// keep copies the damaged bytes to a file of their own. Where that fails, which is
// logged, the good records are not held up for it.
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
		l.opt.Log.Error("the damaged bytes of a capture could not be kept aside", "capture", l.header.CaptureID, "error", err)
	}
}

func (l *Log) copyPieces(log *os.File, pieces []hole) error {
	f, err := os.OpenFile(filepath.Join(l.dir, damagedName), os.O_WRONLY|os.O_CREATE|os.O_APPEND|noFollow, 0o644)
	if err != nil {
		return err
	}
	for _, p := range pieces {
		if _, err = fmt.Fprintf(f, "%d bytes from byte %d of the log: %v\n", p.size, p.at, p.why); err == nil {
			_, err = io.Copy(f, io.NewSectionReader(log, p.at, p.size))
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), syncDir(l.dir))
}

// Mend verifies every byte of a log that takes no more records, puts an event in place
// of each damaged record, and returns how many there were. It reads the whole log.
func (l *Log) Mend() (int, error) {
	s, err := l.survey(true)
	if err == nil && len(s.holes) > 0 {
		s.why = nil // the end is not touched: readers may be there
		err = l.mend(s)
	}
	if err != nil {
		return 0, fmt.Errorf("spool %s: %w", l.header.CaptureID, err)
	}
	return len(s.holes), nil
}
