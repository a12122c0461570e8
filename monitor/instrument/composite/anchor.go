package composite

import (
	"fmt"
	"math"

	"wattmark/measure/marker"
)

// found keeps the markers of this task.
func (l *live) found(i int, f marker.Found) {
	switch {
	case !f.TagOK:
	case f.Kind == marker.Start && l.start[i] == nil && l.awaiting:
		l.start[i] = &f
	case f.Kind == marker.Stop:
		l.stop[i] = &f
	}
}

// anchor aligns members by their start markers as they are seen, and gives up on
// those that show none in time.
func (l *live) anchor() error {
	base := l.start[l.m.base]
	missing, latest := 0, math.Inf(-1)
	for i, f := range l.start {
		t := &l.align[i]
		switch {
		case i == l.m.base && f != nil:
			latest = max(latest, float64(f.T))
		case f == nil:
			missing++
		case base == nil:
			latest = max(latest, float64(f.T)-t.place.offset(float64(f.T)))
		case !t.anchor.known:
			l.move(i, f, base)
		}
	}
	if missing == 0 {
		l.awaiting = false
		return nil
	}
	if l.m.newest() < latest+l.wait || math.IsInf(latest, 0) {
		return nil
	}
	l.awaiting = false
	for i := range l.align {
		if i == l.m.base || l.align[i].anchor.known {
			continue
		}
		blind := l.m.names[i]
		if l.start[i] != nil {
			blind = l.m.names[l.m.base]
		}
		if err := l.m.note("no start marker was seen in the power of %s: %s is aligned with %s by the host's clock, within %s (k = 1)",
			blind, l.m.names[i], l.m.names[l.m.base], seconds(l.align[i].u)); err != nil {
			return err
		}
	}
	return nil
}

// move places a member by its start marker and the base's.
func (l *live) move(i int, f, base *marker.Found) {
	a := &l.align[i]
	was := a.place.offset(float64(base.T))
	d, u := float64(f.T-base.T), math.Hypot(float64(f.U), float64(base.U))
	l.hidden[i] = d - was
	a.anchorAt(float64(base.T), d, math.Hypot(u, float64(period(l.m.tb))/math.Sqrt(12)))
	l.m.place[i] = a.place
	l.m.tracks[i].rewind()
	// Behind the marker, so that it stays with a capture that is trimmed to it.
	l.m.noteAt(float64(base.End), "%s is aligned with %s by the start marker, within %s (k = 1); the host's clock had it %s off",
		l.m.names[i], l.m.names[l.m.base], seconds(a.u), seconds(d-was))
}

// known is what another stream of the same task may go by; nil where no marker
// told it.
func (l *live) known() *known {
	if l.detect == nil || l.awaiting {
		return nil
	}
	return &known{spec: l.spec, hidden: l.hidden}
}

// check compares the stop markers, once all are seen, with where the placing has
// them, and tells how the clocks ran.
func (l *live) check() (done bool, err error) {
	base := l.stop[l.m.base]
	for _, f := range l.stop {
		if f == nil {
			return false, nil
		}
	}
	for i, f := range l.stop {
		if i == l.m.base {
			continue
		}
		off := float64(f.T-base.T) - l.align[i].place.offset(float64(base.T))
		if err := l.m.note("at the stop marker %s lies %s ± %s (k = 1) off %s; %s", l.m.names[i], seconds(off),
			seconds(math.Hypot(float64(f.U), float64(base.U))), l.m.names[l.m.base], l.rates(i)); err != nil {
			return false, err
		}
	}
	clear(l.stop)
	return true, nil
}

// rates words how a member's clock ran against the base's.
func (l *live) rates(i int) string {
	b, m := l.leads[l.m.base].line(), l.leads[i].line()
	if b.n < 4 || m.n < 4 {
		return fmt.Sprintf("their clocks were compared for too short a time; %d of its readings were shown by no scan", l.m.tracks[i].unshown)
	}
	return fmt.Sprintf("its clock ran %+.1f ± %.1f ppm by the host's; %d of its readings were shown by no scan",
		1e6*(m.slope-b.slope), 1e6*math.Hypot(m.uSlope, b.uSlope), l.m.tracks[i].unshown)
}
