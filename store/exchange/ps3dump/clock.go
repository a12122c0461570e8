package ps3dump

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

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
