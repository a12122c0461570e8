package measure

import (
	"fmt"
	"slices"

	"github.com/wattmark/wattmark/internal/lists"
)

// PowerMeter turns blocks of counts into amperes, volts and watts under one
// setup. It holds no samples and allocates nothing once its destinations have
// grown. It is safe for concurrent use.
//
// It takes the readings of a scan as of one instant. Where a multiplexed
// converter reads a rail's two channels one after another, PowerStream brings
// them together.
type PowerMeter struct {
	rails []railMeter
}

// railMeter is one rail, ready for its inner loop.
type railMeter struct {
	wiring Wiring
	x, y   int // y is −1 for a rail of one channel
	lin    Linear
}

// Columns are the columns of one rail over a block, one value a scan. I and V
// are empty for a rail that reads watts itself; V is the assumed voltage for a
// rail that assumes one.
type Columns struct {
	I []Ampere
	V []Volt
	P []Watt
}

// NewPowerMeter validates the setup and prepares its rails.
func NewPowerMeter(s *Setup) (*PowerMeter, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("power: %w", err)
	}
	return &PowerMeter{lists.Map(s.Rails, func(r Rail) railMeter {
		return railMeter{wiring: r.Wiring, x: r.X, y: r.Y, lin: r.Linear(s.Channels)}
	})}, nil
}

// Total returns the sum of all rails for every scan of the block, in dst's
// storage where it is large enough. The block must fit the setup
// (Block.Validate); otherwise Total panics, as an index out of range does.
func (m *PowerMeter) Total(b *Block, dst []Watt) []Watt {
	dst = slices.Grow(dst[:0], b.Scans())[:b.Scans()]
	clear(dst)
	for i := range m.rails {
		addPower(&m.rails[i], b.Counts, 0, dst)
	}
	return dst
}

// Rail fills the columns of rail r (an index into Setup.Rails), reusing their
// storage. The block must fit the setup, as for Total.
func (m *PowerMeter) Rail(r int, b *Block, dst *Columns) {
	fill(dst, &m.rails[r], b.Counts, b.Scans())
}

// fill fills the columns of a rail over n scans.
func fill[T reading](dst *Columns, rail *railMeter, cols [][]T, n int) {
	dst.P = slices.Grow(dst.P[:0], n)[:n]
	clear(dst.P)
	addPower(rail, cols, 0, dst.P)
	if rail.wiring == WiringPower {
		dst.I, dst.V = dst.I[:0], dst.V[:0]
		return
	}
	dst.I, dst.V = slices.Grow(dst.I[:0], n)[:n], slices.Grow(dst.V[:0], n)[:n]
	l := rail.lin
	for i := range n {
		p := pairAt(rail, cols, i)
		dst.I[i], dst.V[i] = Ampere(l.I0+l.IX*p.x+l.IY*p.y), Volt(l.V0+l.VY*p.y)
	}
}

// addPower adds a rail's power to dst, one value a scan, from one on.
func addPower[T reading](r *railMeter, cols [][]T, from int, dst []Watt) {
	l, x := r.lin, cols[r.x][from:from+len(dst)]
	y := x
	if r.y >= 0 {
		y = cols[r.y][from : from+len(dst)]
	} else {
		l.IY, l.VY = 0, 0
	}
	for i := range dst {
		dst[i] += Watt(l.Power(float64(x[i]), float64(y[i])))
	}
}

// Powers are the columns of all rails over a run of scans.
type Powers struct {
	// FirstScan is the index of the run's first scan since the capture began.
	FirstScan uint64
	// Rails are the columns by rail, one value a scan.
	Rails []Columns
	ticks []int64
	start float64
	step  float64
}

// Scans returns the number of scans.
func (p *Powers) Scans() int { return len(p.Rails[0].P) }

// Tick returns the device time of scan i in ticks. A rail's values are of its
// first channel's instant, that channel's Skew later.
func (p *Powers) Tick(i int) float64 {
	if p.ticks != nil {
		return float64(p.ticks[i])
	}
	return p.start + float64(i)*p.step
}

// PowerStream turns blocks into the rails' amperes, volts and watts as a
// PowerMeter does, and brings a rail's two readings to one instant where its
// channels were read one after another. It holds back the few scans that wait
// for those behind them. It is not safe for concurrent use; its memory does not
// grow with the data.
type PowerStream struct {
	setup Setup
	meter *PowerMeter
	align *aligner
	out   func(*Powers) error
	p     Powers
}

// NewPowerStream prepares a setup's rails. out gets the scans in order, in
// storage that is reused.
func NewPowerStream(s *Setup, out func(*Powers) error) (*PowerStream, error) {
	m, err := NewPowerMeter(s)
	if err != nil {
		return nil, err
	}
	if err := s.checkSkew(); err != nil {
		return nil, fmt.Errorf("power: %w", err)
	}
	return &PowerStream{
		setup: *s, meter: m, align: newAligner(s), out: out, p: Powers{Rails: make([]Columns, len(s.Rails))},
	}, nil
}

// Add takes the next block. Errors wrap ErrShape, or are out's.
func (p *PowerStream) Add(b *Block) error {
	tb := p.setup.Timebase
	if err := b.Validate(tb, len(p.setup.Channels)); err != nil {
		return fmt.Errorf("power: scan %d: %w", b.FirstScan, err)
	}
	if b.Scans() == 0 {
		return nil
	}
	s := stretch[Count]{
		cols: b.Counts, ticks: b.Ticks, start: float64(b.FirstTick), step: tb.TicksPerScan, n: b.Scans(),
		first: b.FirstScan,
	}
	if p.align == nil {
		return hand(p, &s)
	}
	return p.align.add(&s, func(s *stretch[float64]) error { return hand(p, s) })
}

// Close hands on the scans that are held back. It must be called at the end.
func (p *PowerStream) Close() error {
	if p.align == nil {
		return nil
	}
	return p.align.flush(func(s *stretch[float64]) error { return hand(p, s) })
}

func hand[T reading](p *PowerStream, s *stretch[T]) error {
	for r := range p.p.Rails {
		fill(&p.p.Rails[r], &p.meter.rails[r], s.cols, s.n)
	}
	p.p.FirstScan, p.p.ticks, p.p.start, p.p.step = s.first, s.ticks, s.start, s.step
	return p.out(&p.p)
}
