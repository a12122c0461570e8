package measure

import "fmt"

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

// NewPowerStream prepares a setup's rails. out gets the scans in order; what it
// gets is reused.
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
		cols: b.Counts, ticks: b.Ticks, start: float64(b.FirstTick), step: tb.TicksPerScan, n: b.Scans(), first: b.FirstScan,
	}
	if p.align == nil {
		return hand(p, &s)
	}
	return p.align.add(&s, func(s *stretch[float64]) error { return hand(p, s) })
}

// Close hands on what was held back. It must be called at the end.
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
