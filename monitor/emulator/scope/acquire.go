package scope

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/scpi"
)

// Trigger is how it is set. Words are in the face's own spelling, but for those
// that the acquisition knows: sweep AUTO, slope POS, NEG or both.
type Trigger struct {
	Sweep, Slope, Coupling string
	Source                 int
	Level, Holdoff         float64
}

// State is the state of trigger and memory.
type State uint8

// The states.
const (
	Stopped   State = iota // memory stands
	Waiting                // for a trigger
	Sampling               // a single acquisition is triggered
	Free                   // runs by itself
	Triggered              // runs, and has just triggered
)

// acquisition is the state of the memory.
type acquisition struct {
	running   bool
	single    bool
	triggered bool
	armed     time.Duration // board time since which it waits, as far as looked
	begin     time.Duration // board time of the first point, once triggered
	ended     time.Duration // board time when it stopped
	held      int           // points in memory, once stopped
	depth     int           // points that it would hold
	rate      float64       // at which they were taken
	number    uint64        // of the acquisition: its noise
}

// Power is the state after *RST and after power came: it runs freely.
func (s *Scope) Power() { s.acq = acquisition{running: true, armed: s.cfg.Now()} }

// Start arms anew.
func (s *Scope) Start(single bool) {
	s.acq = acquisition{running: true, single: single, armed: s.cfg.Now(), number: s.acq.number + 1}
}

// Single reports whether the acquisition that runs, or stands in memory, is a single acquisition.
func (s *Scope) Single() bool { return s.acq.single }

// Fired reports whether the acquisition that runs, or stands in memory, has triggered. A scope that
// runs freely does so all the time.
func (s *Scope) Fired() bool {
	return s.acq.triggered || s.acq.running && !s.acq.single && s.Trig.Sweep == "AUTO"
}

// Running reports whether memory changes.
func (s *Scope) Running() bool {
	s.Update()
	return s.acq.running
}

// Force triggers now.
func (s *Scope) Force() {
	s.Update()
	if s.acq.running && !s.acq.triggered {
		s.fire(s.cfg.Now())
	}
}

// fire is a trigger at a board time. The window lies around it by the time shift.
func (s *Scope) fire(at time.Duration) {
	s.acq.triggered, s.acq.begin = true, at+measure.Seconds(s.geometry.Delay()).Duration()
	if l := s.cfg.TriggerOut; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pulses = append(l.pulses, at)
		l.pulses = slices.Delete(l.pulses, 0, max(0, len(l.pulses)-keepPulses)) // those that are long past
	}
}

// span is the true duration of so many points.
func (s *Scope) span(points int) time.Duration {
	return time.Duration(math.Round(float64(points) / s.geometry.Rate() / (1 + s.cfg.Clock) * 1e9))
}

// Update makes the events happen that are due: a trigger, the end of a single acquisition.
func (s *Scope) Update() {
	if !s.acq.running {
		return
	}
	now, points := s.cfg.Now(), s.geometry.Points()
	if !s.acq.triggered && (s.acq.single || s.Trig.Sweep != "AUTO") {
		s.look(now)
	}
	if s.acq.single && s.acq.triggered && now >= s.acq.begin+s.span(points) {
		s.freeze(points, s.acq.begin+s.span(points))
	}
}

// freeze ends an acquisition.
func (s *Scope) freeze(points int, at time.Duration) {
	s.acq.running, s.acq.held, s.acq.depth, s.acq.rate, s.acq.ended = false, points, s.geometry.Points(),
		s.geometry.Rate(), at
}

// Stop ends the acquisition that runs. A free-running scope holds the window that ends now; a
// single acquisition holds its contents so far.
func (s *Scope) Stop() {
	s.Update()
	if !s.acq.running {
		return
	}
	now, points := s.cfg.Now(), s.geometry.Points()
	if !s.acq.single {
		s.acq.begin, s.acq.triggered = now-s.span(points), true
	} else if !s.acq.triggered {
		points = 0
	} else {
		// A millionth of a point more than the time gives keeps a whole point from being rounded away.
		points = int(min(float64(points), max(0, (now-s.acq.begin).Seconds()*s.geometry.Rate()*(1+s.cfg.Clock)+1e-6)))
	}
	s.freeze(points, now)
}

// State returns the present state.
func (s *Scope) State() State {
	s.Update()
	switch {
	case !s.acq.running:
		return Stopped
	case s.acq.triggered && s.acq.single:
		return Sampling
	case s.acq.single, s.Trig.Sweep == "NORM":
		return Waiting
	case s.Trig.Sweep == "AUTO":
		return Free
	}
	return Triggered
}

// look searches the trigger's source for an edge since it last looked.
func (s *Scope) look(now time.Duration) {
	if p := s.Channel[s.Trig.Source].probe; p.Quantity == TriggerIn {
		// A pulse far shorter than the steps below still triggers.
		at, ok := p.Line.after(s.acq.armed, now)
		if ok && s.Trig.Level > 0 && s.Trig.Level < pulseVolts && s.Trig.Slope != "NEG" {
			s.fire(at)
		}
		return
	}
	// The signal is looked at as a screen shows it, in 1200 steps of the window or every microsecond,
	// whichever is coarser: edges that come and go between two steps are not seen.
	const most, screen = 1 << 16, 1200
	step := max(s.geometry.Window()/screen*1e9, 1000)
	n := int(float64(now-s.acq.armed) / step)
	if n < 2 {
		return
	}
	if n > most { // too far behind to look everywhere
		s.acq.armed, n = now-time.Duration(most*step), most
	}
	v, t := s.Volts(s.Trig.Source, s.acq.armed, step, n), &s.Trig
	for i := 1; i < n; i++ {
		rise := v[i-1] < t.Level && v[i] >= t.Level
		fall := v[i-1] > t.Level && v[i] <= t.Level
		if rise && t.Slope != "NEG" || fall && t.Slope != "POS" {
			s.fire(s.acq.armed + time.Duration(float64(i)*step))
			return
		}
	}
	s.acq.armed += time.Duration(float64(n-1) * step)
}

// On makes a setter of the channel that a header names by its first number.
func (s *Scope) On(set func(*Channel) func(scpi.Call) error) func(scpi.Call) error {
	return func(c scpi.Call) error {
		if n := c.Suffixes[0]; n < 1 || n > len(s.Channel) {
			return scpi.ErrUndefined
		}
		return set(&s.Channel[c.Suffixes[0]-1])(c)
	}
}

// Of makes a query of the channel that a header names.
func (s *Scope) Of(get func(*Channel) string) func(scpi.Call) ([]byte, error) {
	return func(c scpi.Call) ([]byte, error) {
		if n := c.Suffixes[0]; n < 1 || n > len(s.Channel) {
			return nil, scpi.ErrUndefined
		}
		return []byte(get(&s.Channel[c.Suffixes[0]-1])), nil
	}
}

// Keep is a channel's setting that is one of some words.
func (s *Scope) Keep(pattern string, at func(*Channel) *string, words ...string) scpi.Command {
	return scpi.Command{
		Pattern: pattern, Set: s.On(func(ch *Channel) func(scpi.Call) error { return scpi.Word(at(ch), words...) }),
		Query: s.Of(func(ch *Channel) string { return *at(ch) }),
	}
}

// Value is a channel's setting that is a number; set refuses or rounds it, and get returns the reported value.
func (s *Scope) Value(pattern string, get func(*Channel) float64, set func(*Channel, float64) error) scpi.Command {
	return scpi.Command{
		Pattern: pattern,
		Set: s.On(func(c *Channel) func(scpi.Call) error {
			return scpi.Set(func(v float64) error {
				err := set(c, v)
				if c.Placed {
					c.Shift = c.Position*c.Scale - c.Offset
				}
				return err
			})
		}),
		Query: s.Of(func(c *Channel) string { return s.Form(get(c)) }),
	}
}

// Reset puts all channels to the same settings, the first one on the screen.
func (s *Scope) Reset(to Channel) {
	for i := range s.Channel {
		c := &s.Channel[i]
		to.Shown, to.No, to.probe, to.rail = i == 0, i, c.probe, c.rail
		*c = to
	}
}

// SetRatio sets the probe's ratio; scale, shift and offset are those at its tip.
func (c *Channel) SetRatio(v, least, most float64) error {
	if !(v >= least && v <= most) {
		return scpi.ErrRange
	}
	part := v / c.Ratio
	c.Scale, c.Shift, c.Offset, c.Ratio = c.Scale*part, c.Shift*part, c.Offset*part, v
	return nil
}

// Reach is the most volts of offset at a channel's scale. The table is of a probe of 1:1: pairs of a scale and the
// most volts below it, and at last the most at any other.
func (c *Channel) Reach(table ...float64) float64 {
	for i := 0; i+1 < len(table); i += 2 {
		if c.Scale/c.Ratio < table[i]*0.999 {
			return table[i+1] * c.Ratio
		}
	}
	return table[len(table)-1] * c.Ratio
}

// Display is the setting that puts a channel on the screen; changed is called where that changes the share of memory.
func (s *Scope) Display(pattern string, changed func()) scpi.Command {
	return scpi.Command{
		Pattern: pattern,
		Set: s.On(func(ch *Channel) func(scpi.Call) error {
			return scpi.Do(scpi.Call.Bool, func(on bool) {
				if ch.Shown != on {
					ch.Shown = on
					changed()
				}
			})
		}),
		Query: s.Of(func(ch *Channel) string { return scpi.Flag(ch.Shown) }),
	}
}

// SourceOf is a setting that names a channel behind a word such as CHANnel.
func (s *Scope) SourceOf(pattern, name string, at *int) scpi.Command {
	words := lists.Map(s.Channel, func(c Channel) string { return fmt.Sprintf("%s%d", name, c.No+1) })
	return scpi.Command{
		Pattern: pattern, Query: scpi.Reply(func() string { return scpi.Short(words[*at]) }),
		Set: scpi.Do(scpi.OneOf(words...), func(w string) { *at = int(w[len(w)-1] - '1') }),
	}
}

// Level is the trigger's level, which must lie so many divisions of its source from the screen's middle at most.
func (s *Scope) Level(pattern string, divisions float64) scpi.Command {
	return scpi.Command{Pattern: pattern, Query: scpi.Number(&s.Trig.Level), Set: func(c scpi.Call) error {
		ch := &s.Channel[s.Trig.Source]
		reach := divisions * ch.Scale
		return scpi.Within(&s.Trig.Level, -reach-ch.Shift, reach-ch.Shift)(c)
	}}
}

// Slope is the trigger's slope in a maker's words for rising, falling and both edges; show
// makes the answer of a word.
func (s *Scope) Slope(pattern string, show func(string) string, words ...string) scpi.Command {
	kept := []string{"POS", "NEG", "RFAL"}
	return scpi.Command{Pattern: pattern, Set: scpi.Do(scpi.OneOf(words...), func(w string) {
		s.Trig.Slope = kept[slices.IndexFunc(words, func(long string) bool { return scpi.Short(long) == w })]
	}), Query: scpi.Reply(func() string { return show(words[slices.Index(kept, s.Trig.Slope)]) })}
}

// SetDepth sets a memory's depth to parameter 0, one of those known; a number of points may stand as 10k or 1.25M.
func SetDepth(at *int, c scpi.Call, known []int) error {
	text, err := c.Text(0)
	if err != nil {
		return err
	}
	text, unit := strings.ToLower(text), 1.0
	if i := strings.IndexAny(text, "kmg"); i >= 0 && i == len(text)-1 {
		text, unit = text[:i], map[byte]float64{'k': 1e3, 'm': 1e6, 'g': 1e9}[text[i]]
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return scpi.ErrType
	}
	if v *= unit; v != math.Trunc(v) || !slices.Contains(known, int(v)) {
		return scpi.ErrValue
	}
	*at = int(v)
	return nil
}

// Step125 puts a scale on the next of the steps 1, 2, 5 and their decades, within limits.
func Step125(at *float64, v, least, most float64) error { return Step(at, v, least, most, 1, 2, 5, 10) }

// Step puts a setting on the next of a decade's steps, of which the last begins the next decade.
func Step(at *float64, v, least, most float64, steps ...float64) error {
	if !(v >= least*0.999) || v > most*1.001 {
		return scpi.ErrRange
	}
	decade := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	for _, m := range steps {
		if *at = m * decade; v <= *at*1.001 {
			break
		}
	}
	return nil
}

// View is the points that can be read: how many, and how far apart they lie in nanoseconds of the scope's own time.
type View struct {
	Points int
	Step   float64
}

// Memory is a view of deep memory: its contents, present or expected while it runs.
func (s *Scope) Memory() View {
	if s.Running() {
		return View{s.geometry.Points(), 1e9 / s.geometry.Rate()}
	}
	return View{s.acq.held, 1e9 / s.acq.rate}
}

// Depth is how many points memory has room for, of the recording that it holds
// where it stands: the answer of a scope that does not know how many it took.
func (s *Scope) Depth() int {
	if s.Running() {
		return s.geometry.Points()
	}
	return s.acq.depth
}

// Screen is a view of so many points across the window.
func (s *Scope) Screen(points int) View {
	return View{points, s.geometry.Window() / float64(points) * 1e9}
}

// Taken is how many points of a view were really taken: all of those expected while the scope runs.
func (s *Scope) Taken(v View) int {
	if s.Running() {
		return v.Points
	}
	m := s.Memory()
	return min(v.Points, int(float64(m.Points)*m.Step/max(v.Step, 1e-9)+1e-6)) // a hidden channel's view has no step
}

// Since is how long the scope has been standing; 0 while it runs.
func (s *Scope) Since() time.Duration {
	if s.Running() {
		return 0
	}
	return s.cfg.Now() - s.acq.ended
}

// Increment is volts a code of a channel.
func (s *Scope) Increment(channel int) float64 { return s.Channel[channel].Scale / s.PerDiv }

// Codes converts points of a channel and appends them to dst. Reading twice gives the same.
func (s *Scope) Codes(dst []int32, channel, first, n int, v View) []int32 {
	step := v.Step / (1 + s.cfg.Clock)
	begin := s.acq.begin
	if s.acq.running { // the screen of a scope that runs shows the newest points
		begin = s.cfg.Now() - time.Duration(s.geometry.Window()*1e9)
	}
	// Gain and shift act in front of the converter, whose zero and clock have errors of their own. Noise
	// is added to whole steps, so that it does not vanish in a coarse converter.
	volts := s.Volts(channel, begin+time.Duration(math.Round(float64(first)*step)), step, n)
	inc, quantum, shift := s.Increment(channel), float64(max(1, s.Quantum)), s.Channel[channel].Shift
	base := s.Middle + s.cfg.Zero[channel]*s.PerDiv
	if s.WholeShift {
		base, shift = base+math.Round(shift/inc), 0
	}
	for i, x := range volts {
		code := (x*(1+s.cfg.Gain[channel])+shift)/inc + base
		code = math.Round(code/quantum+s.cfg.NoiseCodes*s.noise(channel, first+i)) * quantum
		dst = append(dst, int32(min(max(code, float64(s.Least)), float64(s.Most))))
	}
	return dst
}

// Coded appends codes in binary form: of each the uppermost bytes of its word.
func Coded(out []byte, codes []int32, bytes int, little bool, word func(code int32) uint32) []byte {
	for _, c := range codes {
		w := word(c)
		for i := range bytes {
			if little {
				i = bytes - 1 - i
			}
			out = append(out, byte(w>>(24-8*i)))
		}
	}
	return out
}

// Listed appends codes as texts with commas between.
func Listed(out []byte, codes []int32, text func(code int32) string) []byte {
	for _, c := range codes {
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = append(out, text(c)...)
	}
	return out
}

// Each converts points of a channel in pieces, and hands each on: a whole deep
// memory takes no more room than a piece.
func (s *Scope) Each(channel, first, n int, v View, take func(codes []int32)) {
	const piece = 1 << 16
	for end := first + n; first < end; first += piece {
		s.codes = s.Codes(s.codes[:0], channel, first, min(piece, end-first), v)
		take(s.codes)
	}
}

// noise is the noise of one point, near to normal with a deviation of one: the
// sum of four uniform numbers out of a hash, so that memory stays the same.
func (s *Scope) noise(channel, point int) float64 {
	x := s.cfg.Seed ^ s.acq.number<<48 ^ uint64(channel)<<40 ^ uint64(point)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	sum := float64(x&0xffff) + float64(x>>16&0xffff) + float64(x>>32&0xffff) + float64(x>>48)
	return (sum/65535 - 2) * math.Sqrt(3)
}

// Volts are the true volts at a probe, valid until the next call.
func (s *Scope) Volts(channel int, at time.Duration, step float64, n int) []float64 {
	c := &s.Channel[channel]
	if cap(s.volts) < n {
		s.volts, s.power = make([]float64, n), make([]measure.Watt, n)
	}
	out := s.volts[:n]
	clear(out)
	if c.probe.Quantity == TriggerIn {
		for i := range out {
			out[i] = c.probe.Line.volts(at + time.Duration(float64(i)*step))
		}
	}
	if c.rail < 0 {
		return out
	}
	p := s.power[:n]
	s.board.Trace(p, at, step)
	for i := range out {
		r := s.board.Rail(c.rail, p[i])
		switch c.probe.Quantity {
		case Load:
			out[i] = float64(r.V)
		case Source:
			out[i] = float64(r.V) + float64(r.I)*float64(c.probe.Ohm)
		case Clamp:
			out[i] = float64(r.I) * c.probe.VoltPerAmpere
		}
	}
	return out
}
