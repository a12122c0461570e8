// Package ps3dump reads the text that PowerSensor3's host library writes while it
// measures (versions 0.1 to 1.6.1).
//
// A reading is a line of a marker's character (S where there is none), the host's time in seconds, the
// whole µs since the reading before, the device's time stamp (µs modulo 1024), then current, voltage and
// power of each pair in use, and the power of all together. A heading names the columns. Markers are the
// first character of a reading (1.5 on), or by lines of their own that begin with M.
//
//   - Time is the device's: its stamps, unwrapped. The host's clock counts whole repeats of
//     the stamps in gaps (tracker.go).
//   - PowerSensor and PowerSensor2, before it, write the host's time, the microseconds since the reading before,
//     the power of each sensor, of which a reading renews one, and the total: so their source has it, no dump
//     of theirs was at hand.
//   - From 1.2 to 1.6.1 a reading holds the first sensor, pair 0's current, of the
//     frame whose stamp it has, and the other seven sensors of the frame before; that
//     is undone. Before 1.2 readings were whole, but written several times a frame where
//     fewer than four pairs were in use; these are merged.
//
// The layout is checked by P = U·I on the first readings; a dump that fails is refused.
package ps3dump

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

// Input is a dump whose layout was understood.
type Input struct {
	*textin.Plan
	Markers []Marker
	// Absolute: times count from 1970, else from the start of the library.
	Absolute bool
	// Pairing of sensors into readings, and whether it is certain.
	Pairing Pairing
	// Gaps are the gaps between frames, Lost the frames lost in them. Guessed is the
	// number of gaps with a length by the host's clock alone, to UGap each (k = 1).
	Gaps, Guessed int
	Lost          int64
	UGap          measure.Seconds
	// Behind is the lead of the host's clock over the stamps at the end.
	Behind measure.Seconds
	// Period is the time between frames; 0 where the dump has no stamps.
	Period measure.Seconds
	// Repeats are readings that were merged. Cut: the last one was not whole.
	Repeats int
	Cut     bool
	// Turns is the number of sensors that readings renew in turn; 0 where each renews all.
	Turns int

	layout layout
	grid   *grid
	clock  deviceClock // before the first row
	origin int64       // ns, of the first row
	open   func() (io.ReadCloser, error)
}

// Pairing of the sensors of a frame into readings.
type Pairing struct {
	Late  bool // all sensors but the first are those of the frame before
	Known bool // by the dump or the caller; else it is that of most versions
}

// Marker is a mark that the host made.
type Marker struct {
	At, To int64 // ns on the readings' clock; the same but for a mark of a span
	Name   string
}

// Options settle ambiguities of a dump.
type Options struct {
	// Library is the version of the host library, as in 1.4.1; empty where it is not known.
	Library string
}

// ErrOption is wrapped where the dump contradicts an option.
var ErrOption = errors.New("wrong option")

// Open reads a dump's layout, its gaps and its markers.
// It reads the dump several times: its begin for layout and period (peek), all of it for gaps and
// pairing (survey), and once more for the times of markers (place).
func Open(open func() (io.ReadCloser, error), o Options) (*Input, error) {
	in := &Input{open: open}
	stamps, err := in.peek()
	if err != nil {
		return nil, err
	}
	var moves bool
	if in.layout.stamped() {
		if in.grid, moves = newGrid(stamps); !moves && (len(stamps) > 1 || in.layout.repeating) {
			return nil, fmt.Errorf("%w: the device's stamps stand still: want a dump of PowerSensor3's host library",
				textin.ErrInput)
		}
		if !moves { // a single frame
			in.grid = &grid{period: periods[0], alike: 512}
		}
		in.Period, in.UGap = measure.Seconds(in.grid.period*1e-6), measure.Seconds(in.grid.repeats()*1e-6/math.Sqrt(3))
		in.clock.g = in.grid
	}
	if err := in.survey(o); err != nil {
		return nil, err
	}
	return in, in.plan()
}

// peeked is the number of frames read to find a dump's layout and period.
const peeked = 8192

// peek finds the layout, checks the first readings, and returns the first stamps.
func (in *Input) peek() (stamps []int, err error) {
	enough := errors.New("enough")
	heading, fit := "", []layout(nil)
	err = lines(in.open, func(l line) error {
		if l.isHeading() {
			heading = l.text
			return nil
		}
		// A line is a reading where its marker is one character and its first value a number.
		marker, words := l.values(nil)
		if len(words) < 3 {
			return nil
		}
		_, _, numeric := printed(words[0])
		// The first reading may bear a marker in place of S only behind a heading.
		if marker == 0 || !numeric || marker != 'S' && heading == "" {
			return nil
		}
		if fit = layoutsOf(len(words)); len(fit) == 0 {
			return textin.Fault(l.no, "%d values in a reading: want S, time, step, (time stamp,) three a pair, "+
				"and the total; of PowerSensor2 S, time, step, one a sensor, and the total", len(words)+1)
		}
		return enough
	})
	if err == nil {
		return nil, fmt.Errorf("%w: no line of it is a reading (S and numbers): "+
			"want a dump of PowerSensor3's host library", textin.ErrInput)
	} else if !errors.Is(err, enough) {
		return nil, err
	}
	for i, l := range fit {
		in.layout = l
		in.layout.heading(heading)
		s, checked := in.begin()
		if i == 0 || checked == nil {
			stamps, err = s, checked
		}
		if err == nil {
			break
		}
	}
	return stamps, err
}

// begin checks the first readings by the layout, and returns the first stamps.
func (in *Input) begin() (stamps []int, err error) {
	enough := errors.New("enough")
	r, err := in.frames(func(f *frame) error {
		// A hundred readings are enough to refuse another tool's file early.
		if len(stamps) < 100 {
			if err := checkPower(f.values, &in.layout); err != nil {
				return textin.Fault(f.line, "%w", err)
			}
		}
		if stamps = append(stamps, f.stamp); len(stamps) == peeked {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	in.layout.repeating = r.repeats > 0
	return stamps, err
}

// placed is a marker, and the frame that it stands at.
type placed struct {
	mark
	frame uint64
}

// survey reads the whole dump: it sizes gaps and places markers.
func (in *Input) survey(o Options) error {
	var t *tracker
	if in.layout.stamped() {
		t = &tracker{g: in.grid, c: deviceClock{g: in.grid}}
	}
	var marks []placed
	var n uint64
	var from, to, zero float64 // µs of the host
	best := math.Inf(1)
	inline := false
	r, err := in.frames(func(f *frame) error {
		if n == 0 {
			from = f.host
		}
		to = f.host
		// The host's clock is anchored at the frame whose printed time is the most certain.
		if f.uHost < best {
			zero, best = f.host-f.since, f.uHost
		}
		if t != nil {
			t.add(f.stamp, f.since)
		}
		for _, m := range f.marks {
			marks = append(marks, placed{m, n})
			inline = inline || m.inline
		}
		n++
		return nil
	})
	if err != nil {
		return err
	}
	// 1e14 µs are the year 1973: less counts from the start of the library.
	in.Repeats, in.Cut, in.Absolute = r.repeats, r.cut, from >= 1e14
	origin := from
	if t != nil {
		in.Behind = measure.Seconds(t.end() * 1e-6)
		in.Gaps, in.Guessed, in.Lost = t.gaps, t.guesses, t.lost
		in.clock.fixes, in.clock.rest = t.fixes, t.rest
		origin = zero + t.origin
	}
	in.origin = int64(math.Round(origin * 1e3))
	if in.Pairing, err = in.pairing(o, inline, r.marks > 0); err != nil {
		return err
	}
	if in.Pairing.Late {
		n-- // the last frame has but its first sensor
	}
	return in.place(marks, from, to, n)
}

// pairing returns the pairing of readings, by the library's version or by signs in the dump. Versions
// before 1.2 wrote each frame once for each group of sensors; from 1.2 on a reading has the first sensor of
// its own frame and the others of the frame before; from 1.5 on markers stand within readings.
func (in *Input) pairing(o Options, inline, marked bool) (Pairing, error) {
	four := len(in.layout.pairs) == 4
	if o.Library != "" {
		var major, minor int
		if n, _ := fmt.Sscanf(o.Library, "%d.%d", &major, &minor); n != 2 || major < 0 || minor < 0 {
			return Pairing{}, contradicts(fmt.Sprintf("%q", o.Library), "want one as in 1.4.1")
		}
		late := major > 1 || major == 1 && minor >= 2
		switch {
		case inline && (major < 1 || major == 1 && minor < 5):
			return Pairing{}, contradicts(o.Library, "the dump has markers within its readings, as 1.5 and later write them")
		case late && in.Repeats > 0:
			return Pairing{}, contradicts(o.Library, "the dump has several readings of a frame, as 1.1 and earlier write them")
		}
		// Before 1.2, with four pairs, the first marker put all later readings out of step.
		return Pairing{Late: late, Known: late || !four || !marked}, nil
	}
	switch {
	case !in.layout.stamped() || in.Repeats > 0:
		return Pairing{Known: true}, nil
	case inline || in.Absolute || !four:
		return Pairing{Late: true, Known: true}, nil
	}
	return Pairing{Late: true}, nil
}

// contradicts returns the error of a version of the library that cannot be the dump's.
func contradicts(version, why string) error {
	return fmt.Errorf("%w: version %s of the host library: %s", ErrOption, version, why)
}

// place finds the times of markers, of n frames that are kept. Markers with a host's time lie at the first
// frame behind it, others at their row. Both lists are sorted and walked beside the frames once.
func (in *Input) place(marks []placed, from, to float64, n uint64) error {
	if len(marks) == 0 || n == 0 {
		return nil
	}
	type end struct {
		at   *int64
		host float64
		row  uint64 // where host does not count
	}
	in.Markers = make([]Marker, len(marks))
	var byHost, byRow []end
	for i, p := range marks {
		m := &in.Markers[i]
		m.Name = p.name
		// A time outside of the dump is of another clock: the row counts.
		if p.timed && p.from >= from-p.step && p.to <= to+p.step {
			byHost = append(byHost, end{at: &m.At, host: p.from - p.step/2}, end{at: &m.To, host: p.to - p.step/2})
			continue
		}
		byRow = append(byRow, end{at: &m.At, row: p.frame}, end{at: &m.To, row: p.frame})
	}
	slices.SortStableFunc(byHost, func(a, b end) int { return cmp.Compare(a.host, b.host) })
	row := uint64(0)
	clock := in.clock
	var last int64
	_, err := in.frames(func(f *frame) error {
		at := in.at(&clock, f)
		if row < n {
			last = at
		}
		for ; len(byRow) > 0 && byRow[0].row <= row; byRow = byRow[1:] {
			*byRow[0].at = last
		}
		for ; len(byHost) > 0 && byHost[0].host <= f.host; byHost = byHost[1:] {
			*byHost[0].at = last
		}
		row++
		return nil
	})
	for _, e := range slices.Concat(byRow, byHost) {
		*e.at = last
	}
	slices.SortStableFunc(in.Markers, func(a, b Marker) int { return cmp.Compare(a.At, b.At) })
	return err
}

// at returns the time of a frame, in ns.
func (in *Input) at(c *deviceClock, f *frame) int64 {
	if in.grid == nil {
		return int64(math.Round(f.host * 1e3))
	}
	c.next(f.stamp)
	return in.origin + 1000*c.micro
}

// plan names the columns and makes rails of them.
func (in *Input) plan() (err error) {
	l := &in.layout
	if len(l.group.units) == 1 {
		in.Turns = len(l.pairs)
	}
	columns := make([]textin.Column, l.numbers)
	for i, name := range []string{"time", "dt_micro", "device_timestamp"}[:l.lead] {
		columns[i].Text = name
	}
	columns[l.numbers-1].Text = "power_total"
	var fields []textin.Field
	for i, n := range l.pairs {
		rail := fmt.Sprintf("%s%d", l.group.name, n)
		for k, u := range l.group.units {
			at := l.lead + len(l.group.units)*i + k
			columns[at].Text = rail + " " + string(u)
			fields = append(fields, textin.Field{Column: at, Rail: rail, Unit: logfile.Unit{Of: u}})
		}
	}
	in.Plan, err = textin.NewPlan(columns, fields, textin.Options{})
	return err
}

// Rows is the source of the readings, one a frame, with the time of its stamp.
func (in *Input) Rows(row func(textin.Row) error) error {
	clock := in.clock
	first := -1 // the value that is of the reading's own frame, where the others are late
	if in.Pairing.Late && in.layout.pairs[0] == 0 {
		first = in.layout.lead
	}
	var last int64
	var held struct {
		line  int
		clock textin.Clock
		first string
		some  bool
	}
	_, err := in.frames(func(f *frame) error {
		c := textin.Clock{Scan: -1}
		if in.grid != nil {
			_, _, c.Estimated = clock.next(f.stamp)
			c.Time, c.Scan = in.origin+1000*clock.micro, clock.frame
		} else if c.Time = in.at(nil, f); clock.rows > 0 {
			c.Time = max(c.Time, last+1)
		}
		last = c.Time
		if in.grid == nil {
			clock.rows++
		}
		if !in.Pairing.Late {
			return row(textin.Row{Row: logfile.Row{Line: f.line, Fields: f.values}, Clock: &c})
		}
		was := held
		held.line, held.clock, held.some = f.line, c, true
		if first >= 0 {
			held.first = f.values[first]
		}
		if !was.some { // its other sensors are of a frame before the dump
			return nil
		}
		if first >= 0 {
			f.values[first] = was.first
		}
		return row(textin.Row{Row: logfile.Row{Line: was.line, Fields: f.values}, Clock: &was.clock})
	})
	return err
}
