// Package ps3dump reads the text that PowerSensor3's host library writes while it
// measures (versions 0.1 to 1.6.1).
//
// A reading is a line of a marker's character (S where there is none), the host's time
// in seconds, the whole µs since the reading before, the device's time stamp (µs modulo
// 1024), then current, voltage and power of each pair in use, and the power of all
// together. A heading names the columns. Markers are told by the first character of a
// reading (1.5 on), or by lines of their own that begin with M.
//
//   - Time is the device's: its stamps, unwrapped (stamps.go). The host's clock
//     (host.go) counts whole repeats of the stamps in gaps (tracker.go).
//   - From 1.2 to 1.6.1 a reading holds the first sensor, pair 0's current, of the
//     frame whose stamp it has, and the other seven sensors of the frame before; that
//     is undone. Before 1.2 readings were whole, but written several times a frame where
//     fewer than four pairs were in use; these are merged.
//
// The layout is checked by P = U·I on the first readings: what does not pass is refused.
package ps3dump

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"wattmark/measure"
	"wattmark/store/exchange/textin"
)

// Input is a dump whose layout was understood.
type Input struct {
	*textin.Plan
	Markers []Marker
	// Absolute says that times count from 1970, else from when the library started.
	Absolute bool
	// Pairing is how readings were put together, and whether that is certain.
	Pairing Pairing
	// Gaps are the gaps between frames, Lost the frames lost in them. Guessed is how
	// many have a length that only the host's clock tells, to UGap each (k = 1).
	Gaps, Guessed int
	Lost          int64
	UGap          measure.Seconds
	// Behind is how far the host's clock ran ahead of the stamps at the end.
	Behind measure.Seconds
	// Period is the time between frames; 0 where the dump has no stamps.
	Period measure.Seconds
	// Repeats are readings that were merged, Cut says that the last one was not whole.
	Repeats int
	Cut     bool

	layout layout
	grid   *grid
	clock  deviceClock // before the first row
	origin int64       // ns, of the first row
	open   func() (io.ReadCloser, error)
}

// Pairing is how the sensors of a frame were put into readings.
type Pairing struct {
	Late  bool // all sensors but the first are those of the frame before
	Known bool // the dump or the caller tells; else it is what most versions do
}

// Marker is a mark that the host made.
type Marker struct {
	At, To int64 // ns on the readings' clock; the same but for a mark of a span
	Name   string
}

// Options say what a dump leaves open.
type Options struct {
	// Library is the version of the host library, as in 1.4.1; empty for not known.
	Library string
}

// ErrOption is wrapped by errors about options that the dump contradicts.
var ErrOption = errors.New("wrong option")

// Open reads a dump's layout, its gaps and its markers.
func Open(open func() (io.ReadCloser, error), o Options) (*Input, error) {
	in := &Input{open: open}
	stamps, err := in.peek()
	if err != nil {
		return nil, err
	}
	var moves bool
	if in.layout.stamped() {
		if in.grid, moves = newGrid(stamps); !moves && (len(stamps) > 1 || in.layout.repeating) {
			return nil, fmt.Errorf("%w: the device's stamps stand still: want a dump of PowerSensor3's host library", textin.ErrInput)
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

// peeked is how many frames are looked at to understand a dump.
const peeked = 8192

// peek finds the layout, checks the first readings, and returns the first stamps.
func (in *Input) peek() (stamps []int, err error) {
	enough := errors.New("enough")
	heading, first := "", line{}
	err = lines(in.open, func(l line) error {
		if l.isHeading() {
			heading = l.text
			return nil
		}
		marker, words := l.values(nil)
		_, numeric := 0.0, false
		if len(words) > 2 {
			_, _, numeric = printed(words[0])
		}
		if marker == 0 || !numeric || marker != 'S' && heading == "" {
			return nil
		}
		var ok bool
		if in.layout, ok = layoutOf(len(words)); !ok {
			return fmt.Errorf("row %d: %w: %d values in a reading: want S, time, step, (time stamp,) three a pair, and the total", l.no, textin.ErrInput, len(words)+1)
		}
		in.layout.heading(heading)
		first = l
		return enough
	})
	if err != nil && !errors.Is(err, enough) {
		return nil, err
	}
	if first.no == 0 {
		return nil, fmt.Errorf("%w: no line of it is a reading (S and numbers): want a dump of PowerSensor3's host library", textin.ErrInput)
	}
	n := 0
	r, err := in.frames(func(f *frame) error {
		if n++; n <= 100 {
			if err := checkPower(f.values, &in.layout); err != nil {
				return fmt.Errorf("row %d: %w: %w", f.line, textin.ErrInput, err)
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

// survey goes through the whole dump: it sizes gaps and places markers.
func (in *Input) survey(o Options) error {
	var t *tracker
	if in.layout.stamped() {
		t = newTracker(in.grid)
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

// pairing tells how readings were put together.
func (in *Input) pairing(o Options, inline, marked bool) (Pairing, error) {
	four := len(in.layout.pairs) == 4
	if o.Library != "" {
		var major, minor int
		if n, _ := fmt.Sscanf(o.Library, "%d.%d", &major, &minor); n != 2 || major < 0 || minor < 0 {
			return Pairing{}, fmt.Errorf("%w: version %q of the host library: want one as in 1.4.1", ErrOption, o.Library)
		}
		late := major > 1 || major == 1 && minor >= 2
		switch {
		case inline && (major < 1 || major == 1 && minor < 5):
			return Pairing{}, fmt.Errorf("%w: version %s of the host library: the dump has markers within its readings, as 1.5 and later write them", ErrOption, o.Library)
		case late && in.Repeats > 0:
			return Pairing{}, fmt.Errorf("%w: version %s of the host library: the dump has several readings of a frame, as 1.1 and earlier write them", ErrOption, o.Library)
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

// place finds the times of markers, of n frames that are kept.
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

// at is the time of a frame, in ns.
func (in *Input) at(c *deviceClock, f *frame) int64 {
	if in.grid == nil {
		return int64(math.Round(f.host * 1e3))
	}
	c.next(f.stamp)
	return in.origin + 1000*c.micro
}
