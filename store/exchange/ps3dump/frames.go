package ps3dump

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

// maxLine bounds a line: four pairs have some 200 bytes.
const maxLine = 1 << 16

// line is one line of a dump.
type line struct {
	no   int
	text string
	// cut: the file ends within it, without an end of line.
	cut bool
}

// lines calls visit with each line of a dump.
func lines(open func() (io.ReadCloser, error), visit func(line) error) error {
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, maxLine)
	for no := 1; ; no++ {
		b, err := r.ReadSlice('\n')
		switch {
		case err == io.EOF && len(b) == 0:
			return nil
		case err != nil && err != io.EOF:
			return textin.Fault(no, "%w", err)
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		if err := visit(line{no, text, err == io.EOF}); err != nil {
			return err
		}
	}
}

// values splits off a line's first character, which is a reading's marker, and returns
// the words behind it in buf.
func (l line) values(buf []string) (marker byte, words []string) {
	rest := l.text
	switch {
	case rest == "":
		return 0, buf[:0]
	case len(rest) > 1 && rest[0] == ' ' && rest[1] != ' ': // the marker ended the line before
		marker, rest = '\n', rest[1:]
	case len(rest) > 1 && rest[1] == ' ':
		marker, rest = rest[0], rest[2:]
	default:
		return 0, buf[:0]
	}
	return marker, slices.AppendSeq(buf[:0], strings.FieldsFuncSeq(rest, func(r rune) bool { return r == ' ' }))
}

// isHeading reports whether a line names columns.
func (l line) isHeading() bool { return strings.HasPrefix(l.text, "marker time ") }

// mark is a marker as the dump has it: at a place among the readings, or with times of the host's clock.
type mark struct {
	name     string
	from, to float64 // µs of the host; equal for an instant
	step     float64 // the resolution of these
	timed    bool
	inline   bool // the first character of a reading
}

// parseMark reads a marker's own line: M and a character, M and a time with an optional tag and name, or M,
// two times, a tag and a name. The three forms are those of versions of the host library.
func (l line) parseMark() (mark, error) {
	rest := strings.TrimPrefix(strings.TrimPrefix(l.text, "M"), " ")
	if len(rest) <= 1 {
		return mark{name: markName(rest)}, nil
	}
	words, name, quoted := strings.Cut(rest, `"`)
	if quoted {
		name = strings.TrimSuffix(name, `"`)
	}
	f := strings.Fields(words)
	bad := textin.Fault(l.no, "marker %q: want M and a character, a time, or two times, with a name",
		measure.Printable(l.text))
	if len(f) == 0 {
		return mark{}, bad
	}
	m := mark{timed: true}
	var ok bool
	if m.from, m.step, ok = printed(f[0]); !ok {
		return mark{}, bad
	}
	m.to = m.from
	if f = f[1:]; quoted && len(f) == 2 {
		if m.to, _, ok = printed(f[0]); !ok || m.to < m.from {
			return mark{}, bad
		}
		f = f[1:]
	}
	if quoted && len(f) == 1 && name != "" && f[0] == "0" { // the default tag
		f = nil
	}
	m.name = measure.Printable(strings.TrimSpace(name + " " + strings.Join(f, " ")))
	return m, nil
}

// markName returns the name of a marker of one character.
func markName(c string) string {
	switch {
	case c == "":
		return `\n`
	case c[0] <= ' ' || c[0] >= 0x7f:
		return strings.Trim(strconv.QuoteToASCII(c), `"`)
	}
	return c
}

// layout is the order of the numbers in a dump's readings.
type layout struct {
	numbers int   // behind the marker
	lead    int   // of which before the first pair: time, step, and stamp
	pairs   []int // their numbers on the device
	group   group
	// repeating: frames are written several times.
	repeating bool
}

// group is what a reading has of each pair, or of each of PowerSensor2's sensors: the power last.
type group struct {
	name  string
	units []measure.Unit
	most  int // groups
}

var (
	pair   = group{"pair", []measure.Unit{measure.UnitAmpere, measure.UnitVolt, measure.UnitWatt}, 4}
	sensor = group{"sensor", []measure.Unit{measure.UnitWatt}, 5}
)

// stamped reports whether readings have the device's stamp.
func (l *layout) stamped() bool { return l.lead == 3 }

// layoutsOf returns the layouts of so many numbers: lead, groups, and the total. As lead is 2 without the device's
// stamp and 3 with it, the count decides, but for PowerSensor2, which has no stamp:
//
//	pairs or sensors   1   2   3   4   5
//	without stamp      6   9  12  15
//	with stamp         7  10  13  16
//	PowerSensor2       4   5   6   7   8
func layoutsOf(numbers int) (all []layout) {
	for _, l := range []layout{{lead: 2, group: pair}, {lead: 3, group: pair}, {lead: 2, group: sensor}} {
		n, each := numbers-l.lead-1, len(l.group.units)
		if n < each || n%each != 0 || n/each > l.group.most {
			continue
		}
		l.numbers = numbers
		for i := range n / each {
			l.pairs = append(l.pairs, i)
		}
		all = append(all, l)
	}
	return all
}

// heading takes the numbers of the pairs from the line that names the columns.
// Pairs that are switched off have no columns, so the names have numbers with holes.
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

// frame is a row: the values of one frame of the device.
type frame struct {
	line   int
	values []string // the numbers behind the marker
	marks  []mark
	host   float64 // µs
	uHost  float64
	since  float64 // the first row, by the host, in µs
	stamp  int
}

// reader makes frames of a dump's lines. A frame is passed on when the next one begins, since a repeated
// frame replaces its values and adds its markers.
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

// frames calls visit with each frame of a dump and the markers before it. A frame is
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

// maxMarkers bounds the memory for the markers of a file.
const maxMarkers = 1 << 20

// line takes the next line of the dump: a reading, a marker, the heading or a blank.
func (r *reader) line(l line) error {
	bad := func(format string, a ...any) error { return textin.Fault(l.no, format, a...) }
	marker, words := l.values(r.words)
	r.words = words
	at, step, ok := 0.0, 0.0, false
	// A marker's name may be several words: both the first and the last value must be numbers.
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
	case l.text == "M" || strings.HasPrefix(l.text, "M "): // a line of its own
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
		return bad("%q is neither a reading of %d values nor a marker: mend or remove the row",
			measure.Printable(l.text[:min(len(l.text), 40)]), r.numbers)
	}
	return nil
}

// reading takes the numbers of a reading.
func (r *reader) reading(l line, words []string, at, step float64, bad func(string, ...any) error) error {
	dt, err := strconv.ParseFloat(words[1], 64)
	if err != nil || !(math.Abs(dt) < 1e18) { // PowerSensor2's first one counts from 1970
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
	host, u := r.host.print, (r.host.hi-r.host.lo)/2
	if math.IsNaN(host) { // the printed time is too coarse
		host = (r.host.lo + r.host.hi) / 2
	}
	// A last line that was cut may look whole: its power must agree with current and voltage.
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
	r.held = frame{
		line: l.no, values: append(r.held.values[:0], words...), marks: append(r.held.marks[:0], r.waiting...),
		host: host, uHost: u, since: r.host.rel, stamp: stamp,
	}
	r.waiting = r.waiting[:0]
	return nil
}

// checkPower compares a reading's powers with its currents and voltages.
func checkPower(words []string, l *layout) error {
	var v [16]float64
	for i, w := range words {
		var err error
		if v[i], err = strconv.ParseFloat(w, 64); err != nil {
			return fmt.Errorf("%q is no number: mend or remove the row", w)
		}
	}
	sum := 0.0
	// Printed values are rounded to three or so digits: 1 % and 0.05 W allow for that.
	near := func(a, b float64) bool { return math.Abs(a-b) <= 0.05+0.01*math.Max(math.Abs(a), math.Abs(b)) }
	each := len(l.group.units)
	for i := l.lead; i+each < len(words); i += each {
		if each == 3 && !near(v[i]*v[i+1], v[i+2]) {
			return fmt.Errorf("%s A and %s V do not make %s W: it is no dump of current, voltage and power a pair",
				words[i], words[i+1], words[i+2])
		}
		sum += v[i+each-1]
	}
	if total := v[len(words)-1]; !near(sum, total) {
		return fmt.Errorf("the %ss make %.4g W, the total is %s W: it is no dump of PowerSensor3 or PowerSensor2",
			l.group.name, sum, words[len(words)-1])
	}
	return nil
}
