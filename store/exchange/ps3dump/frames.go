package ps3dump

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"wattmark/measure"
	"wattmark/store/exchange/textin"
)

// layout is how the readings of a dump are built.
type layout struct {
	numbers int   // behind the marker
	lead    int   // of which before the first pair: time, step, and stamp
	pairs   []int // their numbers on the device
	// repeating says that frames are written several times.
	repeating bool
}

// stamped reports whether readings have the device's stamp.
func (l *layout) stamped() bool { return l.lead == 3 }

// layoutOf is the layout of so many numbers: lead, three a pair, and the total.
func layoutOf(numbers int) (l layout, ok bool) {
	for _, lead := range []int{2, 3} {
		if n := numbers - lead - 1; n >= 3 && n%3 == 0 && n <= 12 {
			l = layout{numbers: numbers, lead: lead}
			for i := range n / 3 {
				l.pairs = append(l.pairs, i)
			}
			return l, true
		}
	}
	return l, false
}

// heading takes the numbers of the pairs from the line that names the columns.
func (l *layout) heading(text string) {
	names := strings.Fields(text)
	if len(names) != l.numbers+1 {
		return
	}
	for i := range l.pairs {
		if n, err := strconv.Atoi(strings.TrimPrefix(names[1+l.lead+3*i], "current")); err == nil && n >= 0 && n < 4 {
			l.pairs[i] = n
		}
	}
}

// frame is a row: what one frame of the device gave.
type frame struct {
	line   int
	values []string // the numbers behind the marker
	marks  []mark
	host   float64 // µs
	uHost  float64
	since  float64 // the first row, by the host, in µs
	stamp  int
}

// reader makes frames of a dump's lines.
type reader struct {
	*layout
	host    hostClock
	visit   func(*frame) error
	held    frame
	some    bool
	repeats int // readings that gave no frame of their own
	cut     bool
	waiting []mark
	words   []string
	marks   int
}

// frames hands on a dump's frames, with the markers that stand before them. A frame is
// lent until visit returns.
func (in *Input) frames(visit func(*frame) error) (*reader, error) {
	r := &reader{layout: &in.layout, visit: visit}
	err := lines(in.open, r.line)
	if err == nil && r.some {
		r.held.marks = append(r.held.marks, r.waiting...) // behind the last reading
		err = visit(&r.held)
	}
	return r, err
}

// maxMarkers bounds what is kept of a file.
const maxMarkers = 1 << 20

func (r *reader) line(l line) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("row %d: %w: %s", l.no, textin.ErrInput, fmt.Sprintf(format, a...))
	}
	marker, words := l.values(r.words)
	r.words = words
	at, step, ok := 0.0, 0.0, false
	if len(words) == r.numbers {
		at, step, ok = printed(words[0])
		_, _, total := printed(words[len(words)-1])
		ok = ok && total // no marker with a name of several words
	}
	if r.marks > maxMarkers {
		return bad("more than %d markers: want a dump of PowerSensor3's host library", maxMarkers)
	}
	switch {
	case ok:
		if marker != 'S' {
			r.waiting = append(r.waiting, mark{name: markName(string([]byte{marker})), inline: true})
			r.marks++
		}
		return r.reading(l, words, at, step, bad)
	case l.isMarker():
		m, err := l.parseMark()
		if err != nil {
			if l.cut {
				r.cut = true
				return nil
			}
			return err
		}
		r.waiting = append(r.waiting, m)
		r.marks++
	case l.cut && (r.some || marker != 0): // the program was killed while it wrote
		r.cut = true
	case l.isHeading() && r.some:
		return bad("a second dump begins here: split the file")
	case r.some && strings.TrimSpace(l.text) != "", marker == 'S':
		return bad("%q is neither a reading of %d values nor a marker: mend or remove the row", measure.Printable(l.text[:min(len(l.text), 40)]), r.numbers)
	}
	return nil
}

// reading takes the numbers of a reading.
func (r *reader) reading(l line, words []string, at, step float64, bad func(string, ...any) error) error {
	dt, err := strconv.ParseFloat(words[1], 64)
	if err != nil || !(math.Abs(dt) < 1e15) {
		return bad("%q is no number of microseconds since the row before: mend or remove the row", words[1])
	}
	stamp := 0
	if r.stamped() {
		if stamp, err = strconv.Atoi(words[2]); err != nil || stamp < 0 || stamp >= turn {
			return bad("the device's stamp is %q: want µs from 0 to %d: mend or remove the row", words[2], turn-1)
		}
	}
	last := r.host
	r.host.next(at, step, int64(dt))
	host, u := r.host.time()
	if l.cut && checkPower(words, r.layout) != nil {
		r.host, r.cut = last, true
		return nil
	}
	if r.some && r.stamped() && stamp == r.held.stamp && (r.repeating || r.host.rel-r.held.since < 12*turn) {
		// Before 1.2 the library wrote a frame once for each group of active sensors.
		r.held.values = append(r.held.values[:0], words...)
		r.held.marks = append(r.held.marks, r.waiting...)
		r.waiting = r.waiting[:0]
		r.repeats++
		return nil
	}
	if r.some {
		if err := r.visit(&r.held); err != nil {
			return err
		}
	}
	r.some = true
	r.held = frame{l.no, append(r.held.values[:0], words...), append(r.held.marks[:0], r.waiting...), host, u, r.host.rel, stamp}
	r.waiting = r.waiting[:0]
	return nil
}

// checkPower holds a reading's powers against its currents and voltages.
func checkPower(words []string, l *layout) error {
	var v [16]float64
	for i, w := range words {
		var err error
		if v[i], err = strconv.ParseFloat(w, 64); err != nil {
			return fmt.Errorf("%q is no number: mend or remove the row", w)
		}
	}
	sum := 0.0
	near := func(a, b float64) bool { return math.Abs(a-b) <= 0.05+0.01*math.Max(math.Abs(a), math.Abs(b)) }
	for i := l.lead; i+3 < len(words); i += 3 {
		if !near(v[i]*v[i+1], v[i+2]) {
			return fmt.Errorf("%s A and %s V do not make %s W: it is no dump of current, voltage and power a pair", words[i], words[i+1], words[i+2])
		}
		sum += v[i+2]
	}
	if total := v[len(words)-1]; !near(sum, total) {
		return fmt.Errorf("the pairs make %.4g W, the total is %s W: it is no dump of current, voltage and power a pair", sum, words[len(words)-1])
	}
	return nil
}
