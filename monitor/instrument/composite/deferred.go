package composite

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
)

// replay places the members, now that all of their samples are at hand, and merges them.
func (s *session) replay() error {
	pairs, err := s.markers()
	if err != nil {
		return err
	}
	for i := range s.members {
		if i == s.c.base {
			continue
		}
		moved, _ := split(s.c.members, i, s.c.base, s.merger.tb, s.c.align, s.c.members[i].beside(s.c.parts[i]))
		p, text := s.placeBy(i, float64(moved), pairs)
		s.merger.place[i] = p
		s.merger.note("%s", text)
	}
	return s.mergeSpools()
}

// mergeSpools gives the merger as much of each member as the scans of the base need, until the base
// or another member ends.
func (s *session) mergeSpools() error {
	for _, f := range s.spools {
		if err := f.rewind(); err != nil {
			return err
		}
	}
	m, base := s.merger, s.c.base
	for open := true; open; {
		var err error
		if open, err = s.feed(base); err != nil {
			return err
		}
		until := m.newest()
		for i, t := range m.tracks {
			if t == nil {
				continue
			}
			for !t.done && t.newest() < m.place[i].of(until)+t.period {
				more, err := s.feed(i)
				if err != nil {
					return err
				}
				t.done = !more
			}
		}
		ended, err := m.drain()
		if err != nil {
			return err
		}
		open = open && !ended
	}
	return s.finish()
}

// finish takes what the base holds behind the end of another member, and ends there.
func (s *session) finish() error {
	m := s.merger
	for p, err := range s.spools[s.c.base].rest() {
		if err != nil {
			return err
		}
		m.count(p)
	}
	if err := m.finish(); err != nil || !m.begun {
		return err
	}
	for _, t := range m.tracks {
		if t != nil && t.unshown > 0 {
			m.note("%s of %s were shown by no scan: its clock runs faster", measure.Plural(t.unshown, "reading"), t.name)
		}
	}
	return m.failed
}

// feed gives the next record of a member to the merger; more is false at its end.
func (s *session) feed(i int) (more bool, err error) {
	p := s.packet(i)
	err = s.spools[i].next(p)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if p.event != nil && i != s.c.base && p.event.Kind != measure.EventGap {
		return true, s.merger.event(i, *p.event)
	}
	s.merger.add(i, p)
	return true, nil
}

// pair are the markers of one member.
type pair struct{ start, stop *marker.Found }

// placeBy places one member, and describes how.
func (s *session) placeBy(i int, moved float64, pairs []pair) (place, string) {
	name, base := s.c.members[i].Name, s.c.members[s.c.base].Name
	clocks := math.Hypot(s.c.parts[i].Timebase.UTickHz, s.merger.tb.UTickHz)
	if s.c.align.SharedClock {
		clocks = 0
	}
	half := float64(period(s.merger.tb)) / math.Sqrt(12)
	if pairs != nil && pairs[i].start != nil && pairs[s.c.base].start != nil {
		return byMarkers(pairs[s.c.base], pairs[i], name, base, half, clocks)
	}
	if s.c.align.By == Trigger {
		return place{d: -moved}, fmt.Sprintf("%s is aligned with %s by their common trigger, within %s (k = 1) at "+
			"its instant; their clocks may part by %.1f ppm", name, base, seconds(half), 1e6*clocks)
	}
	d := s.members[s.c.base].at.Sub(s.members[i].at).Seconds() - moved
	text := fmt.Sprintf("%s is aligned with %s by the host's clock, within %s (k = 1); their clocks may part by "+
		"%.1f ppm", name, base, seconds(math.Hypot(s.c.align.U.Seconds(), half)), 1e6*clocks)
	if pairs != nil && !s.c.members[i].beside(s.c.parts[i]) {
		blind := name
		if pairs[i].start != nil {
			blind = base
		}
		text = fmt.Sprintf("no start marker was seen in the power of %s: %s", blind, text)
	}
	return place{d: d}, text
}

// byMarkers places a member by its markers and the base's: the start gives the
// offset, the stop the rate.
func byMarkers(base, m pair, name, of string, half, clocks float64) (place, string) {
	p := place{at: float64(base.start.T), d: float64(m.start.T - base.start.T)}
	u := math.Hypot(math.Hypot(float64(m.start.U), float64(base.start.U)), half)
	if m.stop == nil || base.stop == nil {
		return p, fmt.Sprintf("%s is aligned with %s by the start marker, within %s (k = 1) there; no stop marker: "+
			"their clocks may part by %.1f ppm", name, of, seconds(u), 1e6*clocks)
	}
	span := float64(base.stop.T - base.start.T)
	p.slope = (float64(m.stop.T-base.stop.T) - p.d) / span
	u = max(u, math.Hypot(math.Hypot(float64(m.stop.U), float64(base.stop.U)), half))
	return p, fmt.Sprintf("%s is aligned with %s by both markers, within %s (k = 1) between them; its clock ran "+
		"%+.1f ppm", name, of, seconds(u), 1e6*p.slope)
}

// markers looks for both markers in each member's delivery.
func (s *session) markers() ([]pair, error) {
	detect, err := s.detectors()
	if err != nil || detect == nil {
		return nil, err
	}
	pairs := make([]pair, len(detect))
	for i, d := range detect {
		if d == nil {
			continue
		}
		f := s.spools[i]
		if err := f.rewind(); err != nil {
			return nil, err
		}
		for p, err := range f.rest() {
			if err == nil && p.event == nil {
				err = d.Push(&p.block)
			}
			if err != nil {
				return nil, err
			}
		}
		if err := d.Finish(); err != nil {
			return nil, err
		}
		pairs[i].start, pairs[i].stop = marker.Pair(d.Found())
	}
	return pairs, nil
}

// maxSpool bounds one member's part of the disk while another one
// samples into its own memory.
const maxSpool = 8 << 30

// maxScans bounds one block in the file: more is no block of ours.
const maxScans = 1 << 20

// spool keeps the blocks and events of one member in a file without a name, as gobs, until all
// members have delivered.
type spool struct {
	channels int
	file     *os.File
	w        *bufio.Writer
	out      *gob.Encoder
	in       *gob.Decoder
	size     int64
}

// record is one entry of the file: a block with its time of arrival in ns, or an event.
type record struct {
	Block measure.Block
	At    int64
	Event *measure.Event
}

// newSpool makes a file without a name in the system's temporary folder.
func newSpool(channels int) (*spool, error) {
	f, err := os.CreateTemp("", "wattmark-composite-*")
	if err != nil {
		return nil, fmt.Errorf("composite: a file to keep samples in: %w", err)
	}
	// Where an open file can lose its name nothing stays behind; else close removes it.
	_ = os.Remove(f.Name())
	s := &spool{channels: channels, file: f, w: bufio.NewWriterSize(f, 1<<18)}
	s.out = gob.NewEncoder(s)
	return s, nil
}

// close releases the file, and with it its space.
func (s *spool) close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

// Write takes the encoder's bytes.
func (s *spool) Write(b []byte) (int, error) {
	if s.size += int64(len(b)); s.size > maxSpool {
		return 0, fmt.Errorf("composite: more than %d GiB to keep until all members have delivered: measure for a "+
			"shorter time, or slower", maxSpool>>30)
	}
	n, err := s.w.Write(b)
	if err != nil {
		err = fmt.Errorf("composite: keep samples in %s: %w: is the disk full?", os.TempDir(), err)
	}
	return n, err
}

// rewind begins to read from the first record.
func (s *spool) rewind() error {
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("composite: keep samples: %w", err)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("composite: read what was kept: %w", err)
	}
	s.in = gob.NewDecoder(bufio.NewReaderSize(s.file, 1<<18))
	return nil
}

// errRecord: the file does not hold the records that were written.
var errRecord = errors.New("the file of samples is damaged")

// rest yields the records that are left, in one packet whose memory is used again, up to the first error.
func (s *spool) rest() iter.Seq2[*packet, error] {
	return func(yield func(*packet, error) bool) {
		p := &packet{}
		for err := s.next(p); !errors.Is(err, io.EOF) && yield(p, err) && err == nil; {
			err = s.next(p)
		}
	}
}

// next reads a record into p, whose memory is used again; io.EOF behind the last.
func (s *spool) next(p *packet) error {
	r := record{Block: p.block}
	r.Block.FirstScan, r.Block.FirstTick = 0, 0 // a gob leaves zeros out
	err := s.in.Decode(&r)
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	if b, n := &r.Block, r.Block.Scans(); err == nil && r.Event == nil && (len(b.Counts) != s.channels || n < 1 ||
		n > maxScans || b.Ticks != nil && len(b.Ticks) != n ||
		slices.ContainsFunc(b.Counts, func(c []measure.Count) bool { return len(c) != n })) {
		err = fmt.Errorf("%s of %d channels", measure.Plural(n, "scan"), len(b.Counts))
	}
	if err != nil {
		return fmt.Errorf("composite: read what was kept: %w: %w", errRecord, err)
	}
	p.block, p.at, p.event = r.Block, time.Unix(0, r.At), r.Event
	return nil
}
