package ps3dump

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
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

// turn is the range of the device's stamp, in µs.
const turn = 1024

// jitter is the most that a stamp may lie from its due value, in µs, on any device.
const jitter = 5

// periods are the times between frames in µs that the public firmware has on an F411,
// an F401 and an F407 by their clocks; the stamps of any of them are whole µs.
var periods = []float64{50, 400.0 / 7, 88.0 / 3}

// grid is the period of a device's frames, and the lengths of gaps by their stamps.
type grid struct {
	period float64 // µs between two frames
	// alike is the number of frames after which the stamps repeat: gaps that differ by so many
	// look the same in them. 512 (25.6 ms) on a period of 50 µs.
	alike int64
	// near is the most that a stamp may lie from its due value, in µs.
	near  float64
	spans [turn]struct {
		frames int64
		sure   bool
	}
}

// newGrid finds the grid of a dump's first stamps; ok is false where these do not move.
func newGrid(stamps []int) (g *grid, ok bool) {
	var steps []float64
	for i := range stamps[min(1, len(stamps)):] {
		if d := wrap(stamps[i+1] - stamps[i]); d != 0 {
			steps = append(steps, float64(d))
		}
	}
	if len(steps) == 0 {
		return nil, false
	}
	sorted := slices.Sorted(slices.Values(steps))
	median := sorted[len(sorted)/2]
	sum, n := 0.0, 0.0
	steps = slices.DeleteFunc(steps, func(d float64) bool { return math.Abs(d-median) > jitter })
	for _, d := range steps {
		sum, n = sum+d, n+1
	}
	// The mean over thousands of frames is far better than the whole µs of one step.
	g = &grid{period: sum / n}
	for _, p := range periods { // both clocks of the device are one: the ratio is exact
		if math.Abs(g.period-p) <= 1e-3+2/n {
			g.period = p
		}
	}
	for i, d := range steps {
		steps[i] = math.Abs(d - g.period)
	}
	slices.Sort(steps)
	g.near = min(jitter, max(1, steps[len(steps)*99/100]+0.6))
	for g.alike = 2; g.alike < 4*turn && math.Abs(apart(float64(g.alike)*g.period)) >= 0.8; {
		g.alike++
	}
	for d := range g.spans {
		s := &g.spans[d]
		s.frames, s.sure = g.frames(float64(d), nil)
	}
	return g, true
}

// wrap returns the distance of two stamps within one turn.
func wrap(d int) int { return (d%turn + turn) % turn }

// apart returns the distance of a time from a whole number of turns, in µs.
func apart(us float64) float64 { return us - turn*math.Round(us/turn) }

// repeats returns the time after which the stamps repeat in step with the frames, in µs.
func (g *grid) repeats() float64 { return float64(g.alike) * g.period }

// frames returns the number of frames between two stamps d µs apart, from 1 to alike. sure is
// false where other numbers fit as well: then near chooses, if it is there.
func (g *grid) frames(d float64, near func(frames int64) float64) (n int64, sure bool) {
	best, second := math.Inf(1), math.Inf(1)
	for m := int64(1); m <= g.alike; m++ {
		switch r := math.Abs(apart(d - float64(m)*g.period)); {
		case r < best:
			best, second, n = r, best, m
		case r < second:
			second = r
		}
	}
	// A stamp is cut off to a whole µs, so the right number fits to 1 µs, and is the only one
	// where the next best is 0.8 µs worse.
	sure = best <= 1 && second > best+0.8
	if sure || near == nil {
		return n, sure
	}
	for m := int64(1); m <= g.alike; m++ {
		if math.Abs(apart(d-float64(m)*g.period)) <= max(best, 1)+0.5 && near(m) < near(n) {
			n = m
		}
	}
	return n, false
}

// next reports whether a stamp d µs after another is that of the next frame.
func (g *grid) next(d int) bool { return math.Abs(float64(d)-g.period) <= g.near }

// fix is a gap of a length that the stamps alone do not give.
type fix struct {
	at     uint64 // number of the row after it
	frames int64  // from the row before
	guess  bool
}

// deviceClock unwraps stamps.
type deviceClock struct {
	g     *grid
	fixes []fix
	rest  uint64 // rows from which on every gap is a guess; 0 for none
	rows  uint64
	last  int
	micro int64 // since the first row
	frame int64
}

// next takes the stamp of the next row. It returns the advance of the stamp in µs, the frames
// since the row before, and whether these were guessed.
func (c *deviceClock) next(stamp int) (d int, frames int64, guess bool) {
	at := c.rows
	c.rows++
	if at == 0 {
		c.last = stamp
		return 0, 0, false
	}
	d, c.last = wrap(stamp-c.last), stamp
	switch {
	case len(c.fixes) > 0 && c.fixes[0].at == at:
		frames, guess, c.fixes = c.fixes[0].frames, c.fixes[0].guess, c.fixes[1:]
	case c.g.next(d):
		frames = 1
	default:
		frames, guess = c.g.spans[d].frames, c.rest > 0 && at >= c.rest
	}
	// The stamps give the fine part of the time between the two.
	c.micro += int64(d) + turn*int64(math.Round((float64(frames)*c.g.period-float64(d))/turn))
	c.frame += frames
	return d, frames, guess
}

// hostClock follows the host's time from row to row. A row has it twice: as seconds in
// six digits, which resolve 10 µs before 10 s and 100 ms after hours, and as the whole
// microseconds since the row before, without the fraction.
type hostClock struct {
	lo, hi float64 // µs, the bounds of the last row
	print  float64 // as it is printed, where that is good to some µs
	rel    float64 // µs since the first row
	some   bool
}

// coarse is the step of a printed time, in µs, from which on it bounds nothing: the
// seconds since 1970 in six digits have one of 10 000 s.
const coarse = 1e6

// next takes a row's time, its resolution, and the microseconds since the row before.
func (h *hostClock) next(printed, step float64, dt int64) {
	h.print = math.NaN()
	if step <= 10 {
		h.print = printed
	}
	lo, hi := printed-step/2, printed+step/2
	if !h.some {
		h.lo, h.hi, h.some = lo, hi, true
		return
	}
	if dt < 0 { // not a number that an int holds
		dt = max(0, int64(printed-(h.lo+h.hi)/2))
	}
	h.rel += float64(dt) + 0.5 // the mean of the fraction that was cut off
	switch sum := h.lo + float64(dt); {
	case step >= coarse:
		h.lo, h.hi = sum, h.hi+float64(dt)+1
	case max(lo, sum) > min(hi, h.hi+float64(dt)+1): // the host's clock was set
		h.lo, h.hi = lo, hi
	default:
		h.lo, h.hi = max(lo, sum), min(hi, h.hi+float64(dt)+1)
	}
}

// printed reads a time as the library prints it, in µs, with the step of its last digit. The stream writes
// six significant digits and leaves zeros at the end out, or six decimal places.
func printed(s string) (micros, step float64, ok bool) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > 1e12 || strings.ContainsAny(s, "xX") {
		return 0, 0, false
	}
	mantissa, _, scientific := strings.Cut(strings.ToLower(s), "e")
	whole, fraction, _ := strings.Cut(strings.TrimLeft(mantissa, "+-0"), ".")
	digits := len(whole) + len(fraction)
	last := -len(fraction)
	if scientific || digits <= 6 {
		last = -5
		if v != 0 {
			last = int(math.Floor(math.Log10(math.Abs(v)))) - 5
		}
	}
	return v * 1e6, math.Pow10(last + 6), true
}
