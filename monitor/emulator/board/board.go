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
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"wattmark/measure"
)

// ErrForgotten is wrapped when the past that is asked for was dropped to keep
// memory flat (Config.Keep).
var ErrForgotten = errors.New("the board no longer remembers that time")

// Board is a GPU's supply. It is safe for concurrent use: a simulated GPU sets
// loads while a meter's face reads.
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
	b.lines = drawLines(cfg.Ripple, rand.New(rand.NewPCG(cfg.Seed, 0x7269_70706c65)))
	b.segs = []segment{b.steady(float64(cfg.Levels.Idle))}
	return b, nil
}

// Name returns the configured name.
func (b *Board) Name() string { return b.cfg.Name }

// Config returns the configuration with its defaults filled in.
func (b *Board) Config() Config { return b.cfg }

// Rails returns the rails in the order of every per-rail slice of this package.
func (b *Board) Rails() []RailConfig { return append([]RailConfig(nil), b.cfg.Rails...) }

// Level returns the power that a load settles at on a cool card.
func (b *Board) Level(l Load) (measure.Watt, error) {
	v := b.cfg.Levels
	levels := [...]measure.Watt{v.Idle, v.ActiveIdle, v.Sleep, v.Half, v.Compute, v.Memory, v.Full}
	if int(l) >= len(levels) {
		return 0, fmt.Errorf("board: load %v has no level of its own: use SetLevel", l)
	}
	return levels[l], nil
}

// SetLoad changes the load at an instant, which may lie in the future: a whole
// marker can be laid down before it is played. See SetLevel for the rest.
func (b *Board) SetLoad(at time.Duration, l Load) (time.Duration, error) {
	w, err := b.Level(l)
	if err != nil {
		return at, err
	}
	return b.SetLevel(at, w)
}

// SetLevel changes the load to a level in watts at an instant and returns the
// instant at which it really changed: what a meter has already read cannot be
// changed any more, so an instant before the newest reading is moved up to it.
// Changes laid down for later stay.
func (b *Board) SetLevel(at time.Duration, w measure.Watt) (time.Duration, error) {
	return b.SetLevels([]Change{{At: at, Level: w}})
}

// setLevel is SetLevel under the lock, of a level that is one.
func (b *Board) setLevel(at time.Duration, w measure.Watt) time.Duration {
	at = max(at, b.seen)
	i := b.find(at)
	if b.segs[i].start == at {
		b.segs[i].target = float64(w)
	} else {
		i++
		b.segs = append(b.segs, segment{})
		copy(b.segs[i+1:], b.segs[i:])
		b.segs[i] = segment{start: at, target: float64(w)}
	}
	b.relink(i)
	return at
}

// Cancel drops every change laid down for after an instant: the load of that
// instant stays. It cannot undo what a meter has already read.
func (b *Board) Cancel(after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.segs = b.segs[:b.find(max(after, b.seen))+1]
}

// find returns the segment that holds t. The first segment has no begin.
func (b *Board) find(t time.Duration) int {
	n := len(b.segs)
	if n == 1 || t >= b.segs[n-1].start {
		return n - 1
	}
	return max(0, sort.Search(n, func(i int) bool { return b.segs[i].start > t })-1)
}

// observe records that a meter has read up to t, and forgets what is too old.
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

// remembers reports whether t lies in the kept history.
func (b *Board) remembers(t time.Duration) bool {
	first := b.segs[0]
	return first.forever || t >= first.start
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
	first := b.setLevel(changes[0].At, changes[0].Level)
	for _, c := range changes[1:] {
		b.setLevel(c.At+first-changes[0].At, c.Level)
	}
	return first, nil
}
