package meter

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
)

// channel is one ADC input with its true errors.
type channel struct {
	rail          int
	read          func(board.Reading) float64 // quantity at the input
	gain, offset  float64                     // true: value = offset + gain·count
	noise         float64                     // in counts
	lo, hi        float64
	skew          time.Duration
	stated        measure.Channel
	sharedInstant bool // converted at the same instant as the channel before
}

// Sampler is an ADC on the board's rails in virtual time: each Next moves its clock on. One
// goroutine owns it.
type Sampler struct {
	board    *board.Board
	cfg      Config
	setup    measure.Setup
	drawn    Drawn
	channels []channel
	noise    *rand.Rand
	step     float64 // true nanoseconds a scan
	start    time.Duration
	scan     uint64
	power    []measure.Watt
}

// NewSampler puts an ADC on a board.
func NewSampler(b *board.Board, cfg Config) (*Sampler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Sampler{board: b, cfg: cfg, noise: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x64726177))
	draw := Drawing(rng, cfg.Draw)
	s.drawn.Clock = draw(cfg.Spread.UClock)
	s.drawn.Start = cfg.Start
	if d := cfg.Spread.ClockOffsetRange; cfg.Draw && d > 0 {
		s.drawn.Start += time.Duration(rng.Int64N(int64(d)))
	}
	s.step = 1e9 / float64(cfg.Rate) / (1 + s.drawn.Clock)
	s.start = s.drawn.Start
	s.setup.Timebase = measure.Timebase{
		TickHz: cfg.TickHz, UTickHz: cfg.Spread.UClock, TicksPerScan: float64(cfg.TickHz) / float64(cfg.Rate),
	}
	for i, r := range b.Rails() {
		if slices.Contains(cfg.Omit, r.Name) {
			s.setup.Missing = append(s.setup.Missing, r.Name)
			continue
		}
		s.wire(draw, i, r)
	}
	return s, s.setup.Validate()
}

// wire adds a rail and its channels.
func (s *Sampler) wire(draw func(float64) float64, i int, r board.RailConfig) {
	cfg, sp := s.cfg, s.cfg.Spread
	x := len(s.channels)
	rail := measure.Rail{Name: r.Name, Role: r.Role, Wiring: cfg.Wiring, X: x, Y: x + 1}
	shunt, assumed := 0.0, measure.Volt(0)
	volts := func(name string, read func(board.Reading) float64) {
		s.input(draw, i, measure.Channel{
			Name: r.Name + name, Unit: measure.UnitVolt, UGain: sp.UGainV,
			UOffset: float64(sp.UOffsetV), Noise: float64(sp.NoiseV),
		}, float64(cfg.VoltRange), read)
	}
	amperes := func() {
		s.input(draw, i, measure.Channel{
			Name: r.Name + ".current", Unit: measure.UnitAmpere, UGain: sp.UGainI,
			UOffset: float64(sp.UOffsetI), Noise: float64(sp.NoiseI),
		}, float64(cfg.CurrentRange), func(q board.Reading) float64 { return float64(q.I) })
	}
	load := func(q board.Reading) float64 { return float64(q.V) }
	switch cfg.Wiring {
	case measure.WiringShunt:
		shunt = draw(sp.UShunt)
		rail.Shunt, rail.UShunt = cfg.Shunt, sp.UShunt
		// The stated resistance is the true one times (1 + error).
		ohms := float64(cfg.Shunt) / (1 + shunt)
		volts(".source", func(q board.Reading) float64 { return float64(q.V) + ohms*float64(q.I) })
		volts(".load", load)
	case measure.WiringClamp:
		amperes()
		volts(".voltage", load)
	default:
		amperes()
		assumed = measure.Volt(draw(float64(sp.UAssumed)))
		rail.Y, rail.Assumed, rail.UAssumed = -1, r.Open+assumed, sp.UAssumed
	}
	s.drawn.Shunt = append(s.drawn.Shunt, shunt)
	s.drawn.Assumed = append(s.drawn.Assumed, assumed)
	s.setup.Rails = append(s.setup.Rails, rail)
}

// input adds a channel: its statement and its truth.
func (s *Sampler) input(draw func(float64) float64, rail int, c measure.Channel, full float64, read func(board.Reading) float64) {
	half := float64(int64(1) << (s.cfg.Bits - 1))
	c.Gain = full / half
	c.MinCount, c.MaxCount = measure.Count(-half), measure.Count(half-1)
	skew := s.cfg.Skew * time.Duration(len(s.channels))
	c.Skew = measure.SecondsOf(skew)
	ge, oe := draw(c.UGain), draw(c.UOffset)
	s.drawn.Gain, s.drawn.Offset = append(s.drawn.Gain, ge), append(s.drawn.Offset, oe)
	s.setup.Channels = append(s.setup.Channels, c)
	s.channels = append(s.channels, channel{
		rail: rail, read: read, stated: c,
		// stated = true·(1 + error), so true = stated/(1 + error)
		gain: c.Gain / (1 + ge), offset: c.Offset - oe, noise: c.Noise / c.Gain,
		lo: -half, hi: half - 1, skew: skew,
		sharedInstant: skew == 0 && len(s.channels) > 0,
	})
}

// Setup is the meter's statement about itself.
func (s *Sampler) Setup() measure.Setup { return s.setup }

// Drawn returns its true errors.
func (s *Sampler) Drawn() Drawn { return s.drawn }

// Restart begins a new capture at the first conversion at or after a board instant.
func (s *Sampler) Restart(at time.Duration) {
	// The converter free-runs from its own start: captures begin on its grid.
	n := math.Ceil(float64(at-s.drawn.Start) / s.step)
	s.start, s.scan = s.drawn.Start+time.Duration(math.Round(max(0, n)*s.step)), 0
}

// Elapsed is the board time of the next scan.
func (s *Sampler) Elapsed() time.Duration { return s.BoardTime(float64(s.scan)) }

// BoardTime is the board time of a scan (which may be fractional) of this capture.
func (s *Sampler) BoardTime(scan float64) time.Duration {
	return s.start + time.Duration(math.Round(scan*s.step))
}

// DeviceTime is the device's time at a board instant: the result of a perfect
// clock fit.
func (s *Sampler) DeviceTime(at time.Duration) measure.Seconds {
	return measure.Seconds(float64(at-s.start) / s.step / float64(s.cfg.Rate))
}

// Skip loses n scans: the next block begins after them.
func (s *Sampler) Skip(n uint64) { s.scan += n }

// Next fills b with the next n scans.
func (s *Sampler) Next(b *measure.Block, n int) {
	prepare(b, len(s.channels), n)
	b.FirstScan = s.scan
	b.FirstTick = int64(math.Round(float64(s.scan) * s.setup.Timebase.TicksPerScan))
	if cap(s.power) < n {
		s.power = make([]measure.Watt, n)
	}
	s.power = s.power[:n]
	at := s.Elapsed()
	for c := range s.channels {
		ch := &s.channels[c]
		if !ch.sharedInstant {
			s.board.Trace(s.power, at+ch.skew, s.step)
		}
		s.convert(ch, b.Counts[c])
	}
	s.scan += uint64(n)
}

// convert turns the board's power into one channel's counts.
func (s *Sampler) convert(ch *channel, dst []measure.Count) {
	inv := 1 / ch.gain
	for i, p := range s.power {
		x := (ch.read(s.board.Rail(ch.rail, p)) - ch.offset) * inv
		if ch.noise > 0 {
			x += ch.noise * s.noise.NormFloat64()
		}
		dst[i] = measure.Count(min(max(math.RoundToEven(x), ch.lo), ch.hi))
	}
}

// prepare gives b room for channels of n scans, keeping its contents.
func prepare(b *measure.Block, channels, n int) {
	if len(b.Counts) != channels {
		b.Counts = make([][]measure.Count, channels)
	}
	for c := range b.Counts {
		if cap(b.Counts[c]) < n {
			b.Counts[c] = make([]measure.Count, n)
		}
		b.Counts[c] = b.Counts[c][:n]
	}
	b.Ticks = nil
}
