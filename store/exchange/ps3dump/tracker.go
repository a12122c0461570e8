package ps3dump

import (
	"cmp"
	"math"
	"slices"
)

const (
	phase    = 16   // rows of which the stamps are averaged, to less than a µs
	shortly  = 400  // rows after a gap, by which a late one that stays late is recognised
	windows  = 20   // the least latencies of so many windows, a second together, are
	window   = 1000 // compared: a host that is only behind catches up
	slack    = 1500 // µs, by which the least latency of a window may differ from the next
	drift    = 3e-4 // by which the clocks may run apart
	maxFixes = 1 << 20
)

// tracker finds the lengths of gaps in one pass. The stamps give them but for whole repeats of the pattern
// (25.6 ms), which the host's clock counts. USB and a busy machine delay a row on its way to the host, but
// it never comes early, and a host that is behind catches up: a latency that stays above its least for good
// is time that was lost, and one that returns to it shows that none was.
type tracker struct {
	g     *grid
	c     deviceClock // without fixes
	fixes []fix
	rest  uint64  // rows from which on all gaps are guesses; 0 for none
	ahead float64 // µs that the fixes add to c
	base  float64 // the least latency, µs; it follows the drift of the clocks
	seg   segment
	open  *opened // the last gap, until its stamps are averaged

	// doubt is the gap that gets the frames that the latency turns out to have lost, of
	// doubted gaps since the host was last seen to be on time.
	doubt   *opened
	doubted int
	counted *opened // the last gap of which repeats were counted, for a while

	gaps, guesses int
	lost          int64
	origin        float64 // the least latency at the beginning
	lastHost      float64
	late          float64 // of the last row
}

// segment is the rows between two gaps.
type segment struct {
	x0     float64 // its first row, µs
	rows   int
	early  float64 // sum of the first deviations from the grid
	recent [phase]float64
	soon   float64          // least latency of the first rows
	least  [windows]float64 // and of each window of late
	of64   [2]float64       // and of the last rows, and those before
}

// opened is a gap whose length is not settled.
type opened struct {
	at      uint64
	d       int
	frames  int64
	sure    bool    // of frames, but for repeats
	dev     float64 // of the last row before from the mean of those before it
	before  float64 // latency above the least
	silence float64 // of the host, µs
}

// add takes a row: its stamp, and the host's time since the first row in µs.
func (t *tracker) add(stamp int, host float64) {
	at, silence, before := t.c.rows, host-t.lastHost, t.c.micro
	t.lastHost = host
	d, frames, _ := t.c.next(stamp)
	x := float64(t.c.micro) + t.ahead
	switch {
	case at == 0:
		t.base = host
		t.seg.begin(x, host)
	case t.g.next(d):
		t.seg.add(x, t.g.period, host-x)
	default:
		t.stamps()
		t.direct()
		s := &t.seg
		mean, n := 0.0, min(s.rows, phase)
		for _, dev := range s.recent[:n] {
			mean += dev
		}
		t.open = &opened{
			at: at, d: d, frames: frames, silence: silence, before: s.late() - t.base,
			dev: s.recent[(s.rows-1)%phase] - mean/float64(n),
		}
		x = float64(t.c.micro) + t.ahead
		t.seg.begin(x, host-x)
	}
	if t.seg.rows == phase {
		t.stamps()
	}
	if t.seg.rows == shortly {
		t.direct()
	}
	t.level(host, float64(t.c.micro-before))
}

// level follows the least latency, and sizes the gaps so far by it.
func (t *tracker) level(host, step float64) {
	over := func() float64 { t.late = host - float64(t.c.micro) - t.ahead; return t.late - t.base }
	if c := t.counted; c != nil && t.open == nil && over() < -2*slack && c.frames > t.g.alike {
		t.resize(c, c.frames-t.g.alike, true) // too much was counted
	}
	t.base += drift * step
	if over() < 0 && t.open == nil {
		t.base = t.late
	}
	if t.c.rows <= window {
		t.origin = t.base
	}
	switch {
	case t.open != nil || t.doubt == nil:
	case over() < t.g.repeats()-2*slack: // no repeat has room
		t.doubt, t.doubted = nil, 0
	// Once a window: the least latencies of the last windows agree.
	case t.seg.rows >= windows*window && t.seg.rows%window == 0 &&
		slices.Max(t.seg.least[:])-slices.Min(t.seg.least[:]) < slack:
		if turns := t.turns(slices.Min(t.seg.least[:])); turns > 0 {
			t.resize(t.doubt, t.doubt.frames+turns*t.g.alike, t.doubted > 1)
		}
		t.doubt, t.doubted = nil, 0
	}
	if t.seg.rows == windows*window {
		t.counted = nil
	}
}

// turns returns the number of repeats that fit into a latency.
func (t *tracker) turns(late float64) int64 {
	return int64(max(0, math.Floor((late-t.base+slack)/t.g.repeats())))
}

// stamps settles the frames of the last gap but for repeats.
func (t *tracker) stamps() {
	o := t.open
	if o == nil || o.at == 0 {
		return
	}
	if t.open = nil; t.seg.rows == 0 {
		return
	}
	d := float64(o.d) + t.seg.early/float64(min(t.seg.rows, phase)) + o.dev
	due := float64(o.frames)*t.g.period + t.seg.soon - t.base - o.before
	frames, sure := t.g.frames(d, func(n int64) float64 { return math.Abs(float64(n)*t.g.period - due) })
	o.sure = sure
	t.gaps++
	t.lost += o.frames - 1
	t.resize(o, frames, !sure)
	t.doubted++
	if t.doubt == nil || o.silence > t.doubt.silence {
		t.doubt = o
	}
}

// direct counts the repeats of the last gap where the host was on time before, was
// silent for just as long, and got the rows after it without catching up.
func (t *tracker) direct() {
	o := t.doubt
	if o == nil || t.doubted > 1 || !o.sure || t.seg.rows < shortly/4 || t.seg.rows > shortly {
		return
	}
	near := t.g.repeats() / 4
	late := t.seg.late()
	turns := t.turns(late)
	frames := o.frames + turns*t.g.alike
	silent := math.Abs(o.silence-float64(frames)*t.g.period) <= near
	if turns == 0 || o.before > near || t.seg.soon-late > slack || !silent {
		return
	}
	t.resize(o, frames, false)
	t.counted, t.doubt, t.doubted = o, nil, 0
}

// resize sets a gap's length.
func (t *tracker) resize(o *opened, frames int64, guess bool) {
	i, found := slices.BinarySearchFunc(t.fixes, o.at, func(f fix, at uint64) int { return cmp.Compare(f.at, at) })
	switch {
	case t.rest > 0:
		return
	case found && t.fixes[i].guess:
		t.guesses--
	case !found && frames == o.frames && !guess:
		return
	case !found && len(t.fixes) == maxFixes:
		t.rest = o.at
		return
	case !found:
		t.fixes = slices.Insert(t.fixes, i, fix{at: o.at})
	}
	t.fixes[i].frames, t.fixes[i].guess = frames, guess
	if guess {
		t.guesses++
	}
	more := frames - o.frames
	o.frames = frames
	t.lost += more
	us := float64(more) * t.g.period
	t.ahead += us
	s := &t.seg
	s.x0, s.soon, s.of64 = s.x0+us, s.soon-us, [2]float64{s.of64[0] - us, s.of64[1] - us}
	for i := range s.least {
		s.least[i] -= us
	}
}

// end settles the open gaps at the end of a dump. It returns the time in µs by which the host's clock ran
// ahead without a gap for it: it was behind, or frames were lost that the stamps do not show.
func (t *tracker) end() (behind float64) {
	t.stamps()
	t.direct()
	behind = t.seg.late() - t.base
	if t.doubt != nil && t.turns(t.seg.late()) > 0 {
		t.resize(t.doubt, t.doubt.frames, true)
	}
	return behind
}

// begin starts a segment with its first row.
func (s *segment) begin(x, late float64) {
	*s = segment{x0: x, rows: 1, soon: late, of64: [2]float64{late, late}}
	s.least[0] = late
}

// add takes the next row of a segment.
func (s *segment) add(x, period, late float64) {
	dev := x - s.x0 - float64(s.rows)*period
	s.recent[s.rows%phase] = dev
	if s.rows < phase {
		s.early += dev
	}
	if s.rows < shortly/4 {
		s.soon = min(s.soon, late)
	}
	if w := &s.least[s.rows/window%windows]; s.rows%window == 0 {
		*w = late
	} else {
		*w = min(*w, late)
	}
	if s.rows%64 == 0 {
		s.of64 = [2]float64{late, s.of64[0]}
	}
	s.of64[0] = min(s.of64[0], late)
	s.rows++
}

// late is the least latency of the last rows, in µs.
func (s *segment) late() float64 { return min(s.of64[0], s.of64[1]) }
