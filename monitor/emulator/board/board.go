// Package board is a GPU's supply in software: a state machine of loads whose
// power follows with a first-order slew and a slow thermal drift, split over
// rails that droop. Its time is a plain duration since its epoch, so that it
// runs in virtual time; Live maps it to a wall clock.
//
// Between two changes of load the power is a constant and two exponentials,
//
//	P(t) = c0 + c1·e^(−t/τ) + c2·e^(−t/τθ)   (+ ripple, a sum of sines)
//
// so the energy between any two instants is known in closed form, rail by rail.
package board

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
)

// ErrForgotten is wrapped when the past that is asked for was dropped to keep memory flat (Config.Keep).
var ErrForgotten = errors.New("the board no longer remembers that time")

// Board is a GPU's supply. It is safe for concurrent use: a simulated GPU sets loads while a meter's face reads.
type Board struct {
	cfg   Config
	rails []rail
	base  float64 // sum of the rails' bases
	lines []line

	sources atomic.Pointer[[]*Reading] // by rail; see Connect

	mu   sync.Mutex
	segs []segment
	seen time.Duration // newest instant that a meter has read
}

// rail is a RailConfig with its numbers at hand.
type rail struct{ open, source, base, share float64 }

// New makes a board that has been idle for ever.
func New(cfg Config) (*Board, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Board{cfg: cfg, seen: math.MinInt64}
	for _, r := range cfg.Rails {
		b.rails = append(b.rails, rail{float64(r.Open), float64(r.Source), float64(r.Base), r.Share})
		b.base += float64(r.Base)
	}
	if r, rng := cfg.Ripple, rand.New(rand.NewPCG(cfg.Seed, 0x7269_70706c65)); r.RMS != 0 {
		// One sine to each equal part of the band, so that no seed leaves a part of it empty.
		width := float64(r.High-r.Low) / float64(r.Lines)
		for i := range r.Lines {
			f := float64(r.Low) + width*(float64(i)+rng.Float64())
			b.lines = append(b.lines, line{
				float64(r.RMS) * math.Sqrt(2/float64(r.Lines)), 2 * math.Pi * f, 2 * math.Pi * rng.Float64(),
			})
		}
	}
	b.segs = []segment{b.steady(float64(cfg.Levels.Idle))}
	return b, nil
}

// Config returns the configuration with its defaults filled in.
func (b *Board) Config() Config { return b.cfg }

// Rails returns the rails in the order of every per-rail slice of this package.
func (b *Board) Rails() []RailConfig { return slices.Clone(b.cfg.Rails) }

// Level returns the power that a load settles at on a cool card.
func (b *Board) Level(l load.State) (measure.Watt, error) {
	v := b.cfg.Levels
	levels := [...]measure.Watt{v.Idle, v.ActiveIdle, v.Sleep, v.Half, v.Compute, v.Memory, v.Full}
	if int(l) >= len(levels) {
		return 0, fmt.Errorf("board: load %v has no level of its own: use SetLevel", l)
	}
	return levels[l], nil
}

// SetLoad changes the load at an instant, which may lie in the future: a whole
// marker can be laid down before it is played. See SetLevel for the rest.
func (b *Board) SetLoad(at time.Duration, l load.State) (time.Duration, error) {
	w, err := b.Level(l)
	if err != nil {
		return at, err
	}
	return b.SetLevel(at, w)
}

// SetLevel changes the load to a level in watts at an instant and returns the
// instant at which it really changed: the past that a meter has read cannot
// be changed any more, so an instant before the newest reading is moved up to it.
// Changes laid down for later stay.
func (b *Board) SetLevel(at time.Duration, w measure.Watt) (time.Duration, error) {
	return b.SetLevels([]Change{{At: at, Level: w}})
}

// Cancel drops every change laid down for after an instant: the load of that
// instant stays. It cannot undo the past that a meter has read.
func (b *Board) Cancel(after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.find(max(after, b.seen)) + 1
	for i < len(b.segs) && b.segs[i].leg > 0 { // of a change that has begun
		i++
	}
	b.segs = b.segs[:i]
}

// find returns the segment that holds t. The first segment has no begin.
func (b *Board) find(t time.Duration) int {
	n := len(b.segs)
	if n == 1 || t >= b.segs[n-1].start {
		return n - 1
	}
	return max(0, sort.Search(n, func(i int) bool { return b.segs[i].start > t })-1)
}

// observe records that a meter has read up to t, and forgets changes that are too old.
func (b *Board) observe(t time.Duration) {
	if t <= b.seen {
		return
	}
	b.seen = t
	if len(b.segs) < 64 {
		return
	}
	// Dropping in large steps keeps the copying rare.
	if old := b.find(t - b.cfg.Keep); old >= len(b.segs)/2 && old > 0 {
		b.segs = append(b.segs[:0], b.segs[old:]...)
	}
}

// Change is a level from an instant on.
type Change struct {
	At    time.Duration
	Level measure.Watt
}

// SetLevels is SetLevel for many changes in order of time, at once: no meter reads
// between them. It returns when the first really took place; the others keep their
// distance from it. One bad level, and nothing is changed.
func (b *Board) SetLevels(changes []Change) (time.Duration, error) {
	if len(changes) == 0 {
		return 0, nil
	}
	for _, c := range changes {
		if !(c.Level >= 0) || math.IsInf(float64(c.Level), 0) {
			return c.At, fmt.Errorf("board: level %v: must be zero or positive and finite", float64(c.Level))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	first := max(changes[0].At, b.seen)
	for _, c := range changes {
		at := max(c.At+first-changes[0].At, b.seen)
		i := b.find(at)
		if b.segs[i].start < at {
			i++
		}
		end := i
		if end < len(b.segs) && b.segs[end].start == at {
			end++
		}
		for end < len(b.segs) && b.segs[end].leg > 0 { // the rest of a change that this one breaks off
			end++
		}
		edge := b.cfg.Rise
		if i > 0 && float64(c.Level) < b.segs[i-1].target {
			edge = b.cfg.Fall
		}
		added := edge.segments(at, float64(c.Level))
		for end < len(b.segs) && added[len(added)-1].start >= b.segs[end].start { // the next change breaks it off
			added = added[:len(added)-1]
		}
		b.segs = slices.Replace(b.segs, i, end, added...)
		b.relink(i)
	}
	return first, nil
}

// Levels is the power that each load settles at when the card is at its idle temperature.
type Levels struct {
	Idle, ActiveIdle, Sleep, Half, Compute, Memory, Full measure.Watt
}

// RailConfig is one supply of the card. Its power is
// Base + Share·(total − sum of all bases), so that the rails always add up.
type RailConfig struct {
	Name string
	Role measure.Role
	// Open is the voltage without a load, Source the resistance that makes it droop with current.
	Open   measure.Volt
	Source measure.Ohm
	// Base is drawn whatever the load; Share is the rail's part of the rest, in [0, 1].
	Base  measure.Watt
	Share float64
}

// Ripple is band-limited supply noise: a sum of sines of random phase between
// Low and High. It is real power and is part of the injected energy.
type Ripple struct {
	RMS       measure.Watt // of the total; zero for none
	Low, High measure.Hertz
	Lines     int // number of sines; zero for 24
}

// Config describes a board. The zero value of every field means its default,
// except where a negative value means "none".
type Config struct {
	Seed uint64
	// Levels of the loads; a zero level takes its default (a 300 W card).
	Levels Levels
	// Rails in order; nil for the four of DefaultRails.
	Rails []RailConfig
	// TauUp and TauDown are the first-order time constants of the slew, 50 µs to 1 ms; defaults 120 µs and 300 µs.
	TauUp, TauDown time.Duration
	// Rise and Fall are the shapes of changes of the load in place of a first-order slew; nil for that.
	Rise, Fall Edge
	// Drift is the leakage power added per watt of load once the card is warm
	// (default 0.02, negative for none); TauThermal is the time it takes
	// (default 4 s, at least 10 × the slew).
	Drift      float64
	TauThermal time.Duration
	Ripple     Ripple
	// Keep is how much of the past stays known behind the newest reading
	// (default 10 min). Energy before that is forgotten.
	Keep time.Duration
}

// DefaultRails are the slot's two rails and two auxiliary connectors.
func DefaultRails() []RailConfig {
	return []RailConfig{
		{Name: "pcie_3v3", Role: measure.RolePCIe3V3, Open: 3.32, Source: 0.012, Base: 1.2, Share: 0.004},
		{Name: "pcie_12v", Role: measure.RolePCIe12V, Open: 12.12, Source: 0.009, Base: 3, Share: 0.156},
		{Name: "aux_12v_1", Role: measure.RolePSU, Open: 12.15, Source: 0.005, Share: 0.44},
		{Name: "aux_12v_2", Role: measure.RolePSU, Open: 12.14, Source: 0.005, Share: 0.40},
	}
}

// withDefaults replaces zeros by the values of a card of 300 W.
func (c Config) withDefaults() Config {
	l := &c.Levels
	l.Idle, l.ActiveIdle, l.Sleep = cmp.Or(l.Idle, 22), cmp.Or(l.ActiveIdle, 58), cmp.Or(l.Sleep, 61)
	l.Half, l.Compute = cmp.Or(l.Half, 190), cmp.Or(l.Compute, 225)
	l.Memory, l.Full = cmp.Or(l.Memory, 255), cmp.Or(l.Full, 280)
	if c.Rails == nil {
		c.Rails = DefaultRails()
	}
	c.TauUp = cmp.Or(c.TauUp, 120*time.Microsecond)
	c.TauDown = cmp.Or(c.TauDown, 300*time.Microsecond)
	c.TauThermal = cmp.Or(c.TauThermal, 4*time.Second)
	c.Drift = max(0, cmp.Or(c.Drift, 0.02))
	c.Keep = cmp.Or(c.Keep, 10*time.Minute)
	c.Ripple.Lines = cmp.Or(c.Ripple.Lines, 24)
	return c
}

// validate checks a configuration whose defaults are filled in.
func (c Config) validate() error {
	for _, tau := range []time.Duration{c.TauUp, c.TauDown} {
		if tau < 50*time.Microsecond || tau > time.Millisecond {
			return fmt.Errorf("board: slew of %v: must lie in 50 µs to 1 ms", tau)
		}
	}
	if err := errors.Join(c.Rise.validate(), c.Fall.validate()); err != nil {
		return err
	}
	if c.TauThermal < 10*max(c.TauUp, c.TauDown) {
		return fmt.Errorf("board: thermal time constant %v: must be at least ten times the slew", c.TauThermal)
	}
	if r := c.Ripple; r.RMS < 0 || (r.RMS > 0 && !(r.Low > 0 && r.High > r.Low)) {
		return fmt.Errorf("board: ripple of %v between %v and %v: want 0 < low < high", r.RMS, r.Low, r.High)
	}
	if len(c.Rails) == 0 {
		return fmt.Errorf("board: no rails")
	}
	sum, names := 0.0, map[string]bool{}
	for _, r := range c.Rails {
		if r.Name == "" || names[r.Name] {
			return fmt.Errorf("board: rail name %q: must be unique and not empty", r.Name)
		}
		names[r.Name] = true
		if !(r.Open > 0) || r.Source < 0 || r.Base < 0 || r.Share < 0 {
			return fmt.Errorf("board: rail %s: open voltage must be positive, resistance, base and share not negative", r.Name)
		}
		sum += r.Share
	}
	if math.Abs(sum-1) > 1e-9 {
		return fmt.Errorf("board: the rails' shares add up to %v: must be 1", sum)
	}
	return nil
}

// Connect puts something else than the card on a rail's meter: a calibrator
// that holds a voltage and a current, or with zeros nothing at all. nil gives the
// rail back to the card, which meanwhile has gone on drawing its power.
func (b *Board) Connect(rail string, v *Reading) error {
	i, err := b.Find(rail)
	if err != nil {
		return err
	}
	if v != nil {
		c := *v
		c.P = measure.Watt(float64(c.V) * float64(c.I))
		v = &c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := make([]*Reading, len(b.rails))
	if s := b.sources.Load(); s != nil {
		copy(now, *s)
	}
	now[i] = v
	b.sources.Store(&now)
	return nil
}

// Edge is how power follows a change of the load: a polyline from no part of the change at the change
// itself to all of it at the last knot. Parts may exceed 1 on the way: cards overshoot.
type Edge []Knot

// Knot is the part of a change that is done a time after it.
type Knot struct {
	After time.Duration
	Part  float64
}

// Edges are the rises and falls of cards, by name. "ramp" has the widths found in the public recordings
// of an RTX 3090, "stacked" is the mean of 80 edges of each direction in 3090-square laid over each other
// (arXiv 2312.02741); "two-step" is made up. "exponential" is the first-order slew of Config.
var Edges = map[string][2]Edge{
	"exponential": {},
	"ramp":        {{{250 * time.Microsecond, 1}}, {{900 * time.Microsecond, 1}}},
	"two-step": {
		edge(0.05, 0.6, 0.3, 0.65, 0.35, 1),
		edge(0.1, 0.4, 0.5, 0.5, 0.6, 1),
	},
	"stacked": {
		edge(0.11, 0.316, 0.21, 0.759, 0.31, 0.875, 0.41, 0.917, 0.51, 0.968, 0.61, 1.004, 0.71, 1.019, 0.91, 1,
			1.01, 0.985, 1.2, 1),
		edge(0.15, 0.045, 0.25, 0.087, 0.35, 0.124, 0.65, 0.175, 0.75, 0.248, 0.85, 0.347, 0.95, 0.422, 1.05, 0.562,
			1.15, 0.7, 1.25, 0.884, 1.35, 0.939, 1.45, 0.969, 1.6, 1.01, 1.75, 1.04, 1.9, 1),
	},
}

// edge makes an edge of pairs of milliseconds and parts.
func edge(pairs ...float64) (e Edge) {
	for i := 0; i < len(pairs); i += 2 {
		e = append(e, Knot{time.Duration(pairs[i] * float64(time.Millisecond)), pairs[i+1]})
	}
	return e
}

// leg returns the ends of a straight part, counted from 0. Behind the last knot both are that knot.
func (e Edge) leg(k int) (from, to Knot) {
	if k > 0 {
		from = e[k-1]
	}
	if k < len(e) {
		return from, e[k]
	}
	return from, from
}

// segments returns the segments of a change to a level: one for each straight part and one behind
// them, or one of first-order slew.
func (e Edge) segments(at time.Duration, level float64) []segment {
	out := []segment{{start: at, target: level, edge: e}}
	for k := range e {
		out = append(out, segment{start: at + e[k].After, target: level, edge: e, leg: k + 1})
	}
	return out
}

// validate checks that knots follow each other and end at the whole change, within 10 ms.
func (e Edge) validate() error {
	last := Knot{Part: 1}
	for i, k := range e {
		if k.After <= last.After || k.After > 10*time.Millisecond || math.IsNaN(k.Part) || math.Abs(k.Part) > 2 {
			return fmt.Errorf("board: knot %d of an edge, %v of the change after %v: knots must follow each other within 10 ms",
				i, k.Part, k.After)
		}
		last = k
	}
	if last.Part != 1 {
		return fmt.Errorf("board: an edge ends at %v of the change: must be 1", last.Part)
	}
	return nil
}
