package fold

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"wattmark/measure"
)

// ErrFold: the launches cannot be folded as asked.
var ErrFold = errors.New("launches that cannot be folded")

// Config says what to fold.
type Config struct {
	// Starts are the launches in device time, ascending.
	Starts []measure.Seconds
	// Length is how long one launch runs; Before and After how much of what
	// surrounds it belongs to the profile.
	Length, Before, After measure.Seconds
	// Settle is the part of After in which the power may still be the kernel's: the
	// supply's and the meter's response.
	Settle measure.Seconds
	// Bins over Before + Length + After; 100 when zero.
	Bins int
	// UStart is the standard uncertainty of a launch's own instant (new with each),
	// UClock that of all instants together.
	UStart, UClock measure.Seconds
}

// span is the length of the profile.
func (c Config) span() measure.Seconds { return c.Before + c.Length + c.After }

const (
	defaultBins = 100
	maxBins     = 4096
)

func (c *Config) validate() error {
	if c.Bins == 0 {
		c.Bins = defaultBins
	}
	switch {
	case len(c.Starts) < 2:
		return fmt.Errorf("%w: %d launches: thousands make a profile", ErrFold, len(c.Starts))
	case !slices.IsSorted(c.Starts):
		return fmt.Errorf("%w: the launches are not in order of time", ErrFold)
	case !(c.Length > 0) || !(c.Before > 0) || !(c.Settle >= 0) || !(c.After > c.Settle) || math.IsInf(float64(c.span()), 0):
		return fmt.Errorf("%w: %v of kernel, %v before it, %v behind it of which %v to settle: a level is needed on both sides",
			ErrFold, c.Length, c.Before, c.After, c.Settle)
	case c.Bins < 8 || c.Bins > maxBins:
		return fmt.Errorf("%w: %d bins: want 8 to %d", ErrFold, c.Bins, maxBins)
	case !(c.UStart >= 0) || !(c.UClock >= 0):
		return fmt.Errorf("%w: an uncertainty of the starts is negative", ErrFold)
	}
	return nil
}

// cell is what one bin has gathered: readings, sums of power and its square, and
// by rail the sums that the budget needs.
type cell struct {
	n, p, pp float64
	rails    []quantities
}

// quantities are a rail's power and what its derivatives are made of, each
// summed over readings or integrated over time; One counts or is the time.
type quantities struct{ one, i, v, vv, p float64 }

func (q quantities) plus(o quantities, k float64) quantities {
	return quantities{q.one + k*o.one, q.i + k*o.i, q.v + k*o.v, q.vv + k*o.vv, q.p + k*o.p}
}

// Folder lays scans over each other by their time since the last launch
// (equivalent-time sampling). Its memory is the bins'; it does not grow with the
// data, and a scan allocates nothing. It is not safe for concurrent use.
type Folder struct {
	cfg    Config
	setup  measure.Setup
	stream *measure.PowerStream
	cells  []cell
	at     int // the launch that the next scan most likely follows
	used   int // launches that some scan fell near
	last   int
}

// New prepares folding. Errors wrap ErrFold, or say what is wrong with the setup.
func New(s *measure.Setup, cfg Config) (*Folder, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	f := &Folder{cfg: cfg, setup: *s, cells: make([]cell, cfg.Bins), last: -1}
	for i := range f.cells {
		f.cells[i].rails = make([]quantities, len(s.Rails))
	}
	var err error
	if f.stream, err = measure.NewPowerStream(s, f.take); err != nil {
		return nil, fmt.Errorf("fold: %w", err)
	}
	return f, nil
}

// Add takes the next block, in order of time. The block is not kept.
func (f *Folder) Add(b *measure.Block) error { return f.stream.Add(b) }

// take places a run of scans. A rail's values are of its first channel's
// instant; the total is placed by the mean of them, which a skew of some
// microseconds makes a matter of the bin's width at most.
func (f *Folder) take(p *measure.Powers) error {
	tb := f.setup.Timebase
	width := f.cfg.span() / measure.Seconds(len(f.cells))
	delay := f.delay()
	for i := range p.Scans() {
		t := tb.Seconds(p.Tick(i)) + delay
		for f.at+1 < len(f.cfg.Starts) && t >= f.cfg.Starts[f.at+1]-f.cfg.Before {
			f.at++
		}
		bin := math.Floor(float64((t - f.cfg.Starts[f.at] + f.cfg.Before) / width))
		if bin < 0 || bin >= float64(len(f.cells)) {
			continue
		}
		if f.at != f.last {
			f.used, f.last = f.used+1, f.at
		}
		f.cells[int(bin)].add(p, i)
	}
	return nil
}

// delay is the mean skew of the rails' first channels behind a scan's tick.
func (f *Folder) delay() measure.Seconds {
	var s measure.Seconds
	for _, r := range f.setup.Rails {
		s += f.setup.Channels[r.X].Skew
	}
	return s / measure.Seconds(len(f.setup.Rails))
}

func (c *cell) add(p *measure.Powers, i int) {
	var total float64
	for r := range p.Rails {
		col, q := &p.Rails[r], &c.rails[r]
		w := float64(col.P[i])
		total += w
		q.one++
		q.p += w
		if len(col.V) > 0 {
			a, v := float64(col.I[i]), float64(col.V[i])
			q.i += a
			q.v += v
			q.vv += v * v
		}
	}
	c.n++
	c.p += total
	c.pp += total * total
}
