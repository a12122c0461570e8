package composite

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
)

// openSpools makes a file for each member.
func (s *session) openSpools() error {
	for _, in := range s.c.parts {
		f, err := newSpool(len(in.Channels))
		if err != nil {
			return err
		}
		s.spools = append(s.spools, f)
	}
	return nil
}

// replay merges what all members delivered.
func (s *session) replay() error {
	if err := s.placeDeferred(); err != nil {
		return err
	}
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
	return s.closeReplay()
}

// closeReplay finds where the base ends, and ends there.
func (s *session) closeReplay() error {
	p := &packet{}
	for {
		err := s.spools[s.c.base].next(p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		s.merger.count(p)
	}
	if err := s.merger.finish(); err != nil || !s.merger.begun {
		return err
	}
	for _, t := range s.merger.tracks {
		if t != nil && t.unshown > 0 {
			if err := s.merger.note("%d readings of %s were shown by no scan: its clock runs faster", t.unshown, t.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// feed gives the next record of a member to the merger; more is false at its end.
func (s *session) feed(i int) (more bool, err error) {
	p := s.feeds[i].packet()
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

// placeDeferred places the members once all is at hand.
func (s *session) placeDeferred() error {
	pairs, err := s.markers()
	if err != nil {
		return err
	}
	for i := range s.members {
		if i == s.c.base {
			continue
		}
		moved, _ := split(s.c.members, i, s.c.base, s.merger.tb, s.c.align)
		p, text := s.placeBy(i, float64(moved), pairs)
		s.merger.place[i] = p
		if err := s.merger.note("%s", text); err != nil {
			return err
		}
	}
	return nil
}

// pair are the markers of one member.
type pair struct{ start, stop *marker.Found }

// placeBy places one member, and says how.
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
		return place{d: -moved}, fmt.Sprintf("%s is aligned with %s by their common trigger, within %s (k = 1) at its instant; their clocks may part by %.1f ppm",
			name, base, seconds(half), 1e6*clocks)
	}
	d := s.members[s.c.base].at.Sub(s.members[i].at).Seconds() - moved
	text := fmt.Sprintf("%s is aligned with %s by the host's clock, within %s (k = 1); their clocks may part by %.1f ppm",
		name, base, seconds(math.Hypot(s.c.align.U.Seconds(), half)), 1e6*clocks)
	if pairs != nil {
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
		return p, fmt.Sprintf("%s is aligned with %s by the start marker, within %s (k = 1) there; no stop marker: their clocks may part by %.1f ppm",
			name, of, seconds(u), 1e6*clocks)
	}
	span := float64(base.stop.T - base.start.T)
	p.slope = (float64(m.stop.T-base.stop.T) - p.d) / span
	u = max(u, math.Hypot(math.Hypot(float64(m.stop.U), float64(base.stop.U)), half))
	return p, fmt.Sprintf("%s is aligned with %s by both markers, within %s (k = 1) between them; its clock ran %+.1f ppm", name, of, seconds(u), 1e6*p.slope)
}

// markers looks for both markers in what each member delivered.
func (s *session) markers() ([]pair, error) {
	detect, err := s.detectors()
	if err != nil || detect == nil {
		return nil, err
	}
	pairs := make([]pair, len(detect))
	for i, d := range detect {
		f := s.spools[i]
		if err := f.rewind(); err != nil {
			return nil, err
		}
		p := &packet{at: time.Time{}}
		for {
			err := f.next(p)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			if p.event == nil {
				if err := d.Push(&p.block); err != nil {
					return nil, err
				}
			}
		}
		if err := d.Finish(); err != nil {
			return nil, err
		}
		pairs[i].start, pairs[i].stop = marker.Pair(d.Found())
	}
	return pairs, nil
}
