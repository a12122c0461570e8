package measure

import "fmt"

// PowerMeter turns blocks of counts into amperes, volts and watts under one
// setup. It holds no samples and allocates nothing once its destinations have
// grown. It is safe for concurrent use.
//
// It takes the readings of a scan as of one instant. Where a multiplexed
// converter reads a rail's two channels one after another, PowerStream brings
// them together.
type PowerMeter struct {
	rails []railMeter
	tb    Timebase
	chans int
}

// railMeter is one rail, ready for its inner loop.
type railMeter struct {
	wiring Wiring
	x, y   int // y is −1 for a rail of one channel
	lin    Linear
	far    bool // its counts may be 2³¹ and more apart
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
	m := &PowerMeter{tb: s.Timebase, chans: len(s.Channels)}
	for _, r := range s.Rails {
		far := s.Channels[r.X].far() || r.Y >= 0 && s.Channels[r.Y].far()
		m.rails = append(m.rails, railMeter{wiring: r.Wiring, x: r.X, y: r.Y, lin: r.Linear(s.Channels), far: far})
	}
	return m, nil
}

// Total returns the sum of all rails for every scan of the block, in dst's
// storage where it is large enough. The block must fit the setup
// (Block.Validate); otherwise Total panics, as an index out of range does.
func (m *PowerMeter) Total(b *Block, dst []Watt) []Watt {
	n := b.Scans()
	dst = sized(dst, n)
	clear(dst)
	for i := range m.rails {
		addPower(&m.rails[i], b.Counts, dst)
	}
	return dst
}

// RailPower returns the power of rail r (an index into Setup.Rails) for every scan
// of the block, in dst's storage where it is large enough. The block must fit the
// setup, as for Total.
func (m *PowerMeter) RailPower(r int, b *Block, dst []Watt) []Watt {
	dst = sized(dst, b.Scans())
	clear(dst)
	addPower(&m.rails[r], b.Counts, dst)
	return dst
}

// Rail fills the columns of rail r (an index into Setup.Rails), reusing their
// storage. The block must fit the setup, as for Total.
func (m *PowerMeter) Rail(r int, b *Block, dst *Columns) {
	fill(dst, &m.rails[r], b.Counts, b.Scans())
}

// fill fills the columns of a rail over n scans.
func fill[T reading](dst *Columns, rail *railMeter, cols [][]T, n int) {
	dst.P = sized(dst.P, n)
	clear(dst.P)
	addPower(rail, cols, dst.P)
	if rail.wiring == WiringPower {
		dst.I, dst.V = dst.I[:0], dst.V[:0]
		return
	}
	dst.I, dst.V = sized(dst.I, n), sized(dst.V, n)
	l, x := rail.lin, cols[rail.x][:n]
	if rail.y < 0 {
		for i, c := range x {
			dst.I[i], dst.V[i] = Ampere(l.I0+l.IX*float64(c)), Volt(l.V0)
		}
		return
	}
	y := cols[rail.y][:n]
	for i, c := range x {
		fy := float64(y[i])
		dst.I[i], dst.V[i] = Ampere(l.I0+l.IX*float64(c)+l.IY*fy), Volt(l.V0+l.VY*fy)
	}
}

// addPower adds a rail's power to dst, one value a scan.
func addPower[T reading](r *railMeter, cols [][]T, dst []Watt) {
	l, x := r.lin, cols[r.x][:len(dst)]
	if r.y < 0 {
		p0, px := l.I0*l.V0, l.IX*l.V0
		for i, c := range x {
			dst[i] += Watt(p0 + px*float64(c))
		}
		return
	}
	y := cols[r.y][:len(dst)]
	for i, c := range x {
		fx, fy := float64(c), float64(y[i])
		dst[i] += Watt((l.I0 + l.IX*fx + l.IY*fy) * (l.V0 + l.VY*fy))
	}
}

// sized returns s with length n, in its own storage where that is enough.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
