// Package meter reads the emulated board without a wire, for tests:
//
//	Spread      the uncertainties that a meter states; with Draw its true errors are drawn from them
//	Sampler     an ADC of any rate and width in every wiring, in virtual time
//	Instrument  a Sampler as an instrument.Instrument
package meter

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
)

// Spread is the maker's statement about a meter: standard uncertainties
// (k = 1). With Config.Draw set, the true errors are drawn from normal
// distributions of these widths; without, the meter is perfect and merely states
// that it might not be.
type Spread struct {
	UGainI, UGainV   float64        // relative, of the gain of current and voltage channels
	UOffsetI         measure.Ampere // of a current channel's zero
	UOffsetV         measure.Volt   // of a voltage channel's zero
	UShunt           float64        // relative, of a shunt's resistance
	UClock           float64        // relative, of the tick rate
	NoiseI           measure.Ampere // white noise of one reading; always there
	NoiseV           measure.Volt
	ClockOffsetRange time.Duration // the capture begins at an unknown instant within this
}

// Config describes an ADC on the board's rails.
type Config struct {
	Seed uint64
	// Rate is the scans a second (default 100 kS/s) and Bits the converter's width (default 16).
	Rate measure.Hertz
	Bits int
	// Wiring of every rail: shunt, clamp or assumed (default clamp).
	Wiring measure.Wiring
	// CurrentRange is the end of the bipolar range of currents (default 50 A).
	CurrentRange measure.Ampere
	// Skew is the delay from one channel's conversion to the next.
	Skew   time.Duration
	Spread Spread
	Draw   bool
	// Omit names rails that the meter does not see: they become Setup.Missing.
	Omit []string
}

const (
	voltRange = 15   // V, both ways
	shuntOhms = 5e-3 // nominal, of a shunt rail
	tickHz    = 1e9  // of the device's counter
)

// The wiring of data acquisition boxes: a rail's voltage comes through a divider, its current through a clamp.
const (
	Divider = 2.0
	PerVolt = 10.0 // A/V
)

// Drawn holds the true errors of one meter. Tests know it; the meter does not.
type Drawn struct {
	Gain   []float64     // relative error of each channel's stated gain
	Offset []float64     // error of each channel's stated offset, in its unit
	Clock  float64       // the device's clock runs fast by this much (relative)
	Start  time.Duration // board time of the first scan
}

// Drawing draws from N(0, sigma). Where nothing is to be drawn the numbers are zero, and the
// generator moves on all the same.
func Drawing(rng *rand.Rand, draw bool) func(sigma float64) float64 {
	return func(sigma float64) float64 {
		n := rng.NormFloat64()
		if !draw {
			return 0
		}
		return n * sigma
	}
}

// Code returns the converter's code of a value, from least to most. All are in steps of the converter; noise is the
// standard deviation of the value.
func Code(v, noise float64, rng *rand.Rand, least, most float64) float64 {
	return min(max(math.Round(v+noise*rng.NormFloat64()), least), most)
}

// Default sets an option that was left at zero; a negative one stands for zero.
func Default[T ~float64](v *T, d T) {
	*v = max(0, cmp.Or(*v, d))
}

// Instrument is a Sampler as the monitor sees a meter: kind "emulated", no wire
// between. Its pace is a wall clock's or as fast as the sink takes the blocks.
type Instrument struct {
	instrument.Base
	src  *Sampler
	pace pace.Pace

	block measure.Block
}

var _ instrument.Instrument = (*Instrument)(nil)

// NewInstrument makes an instrument of a sampler.
func NewInstrument(name string, src *Sampler, p pace.Pace) *Instrument {
	s := src.Setup()
	m := &Instrument{src: src, pace: p, Base: instrument.Base{
		ID: instrument.Identity{Kind: "emulated", Model: name, Serial: "0", Firmware: "1", Address: "virtual"},
		In: instrument.Inputs{Timebase: s.Timebase, Response: s.Response, Channels: s.Channels},
	}}
	m.Run = m.stream
	return m
}

// stream delivers blocks of one batch each until ctx ends. At a free pace they come as fast as the sink takes them.
func (m *Instrument) stream(ctx context.Context, sink instrument.Sink) error {
	m.src.Restart(m.pace.Now(m.src.Elapsed()))
	scan := 1 / float64(m.src.Setup().Timebase.SampleRate())
	for {
		done := m.src.Elapsed()
		select {
		case <-ctx.Done():
			return nil
		case <-m.pace.Wait(done):
		}
		if ctx.Err() != nil {
			return nil
		}
		n := min(maxBlock, uint64(max(1, (m.pace.Due(done)-done).Seconds()/scan)))
		m.src.Next(&m.block, int(n))
		if err := sink.Block(&m.block); err != nil {
			return err
		}
	}
}

// maxBlock bounds a block after a long wait.
const maxBlock = 65536

// channel is one ADC input with its true errors.
type channel struct {
	rail         int
	read         func(board.Reading) float64 // quantity at the input
	gain, offset float64                     // true: value = offset + gain·count
	noise        float64                     // in counts
	lo, hi       float64
	skew         time.Duration // 0 also behind the first: at the same instant as the channel before
}

// Sampler is an ADC on the board's rails in virtual time: each Next moves its clock on. One goroutine owns it.
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
	c := &cfg
	c.Rate, c.Bits = cmp.Or(c.Rate, 100e3), cmp.Or(c.Bits, 16)
	c.CurrentRange, c.Wiring = cmp.Or(c.CurrentRange, 50), cmp.Or(c.Wiring, measure.WiringClamp)
	known := []measure.Wiring{measure.WiringShunt, measure.WiringClamp, measure.WiringAssumed}
	switch {
	case !slices.Contains(known, c.Wiring):
		return nil, fmt.Errorf("emulated meter: wiring %v: want shunt, clamp or assumed", c.Wiring)
	case c.Bits < 8 || c.Bits > 24:
		return nil, fmt.Errorf("emulated meter: %d bits: want 8 to 24", c.Bits)
	case !(c.Rate > 0) || c.Rate > 10e6:
		return nil, fmt.Errorf("emulated meter: rate %v: want up to 10 MHz", c.Rate)
	case c.CurrentRange <= 0:
		return nil, fmt.Errorf("emulated meter: the range of currents must be positive")
	}
	s := &Sampler{board: b, cfg: cfg, noise: rand.New(rand.NewPCG(cfg.Seed, 0x6e6f697365))}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x64726177))
	draw := Drawing(rng, cfg.Draw)
	s.drawn.Clock = draw(cfg.Spread.UClock)
	if d := cfg.Spread.ClockOffsetRange; cfg.Draw && d > 0 {
		s.drawn.Start = time.Duration(rng.Int64N(int64(d)))
	}
	s.step = 1e9 / float64(cfg.Rate) / (1 + s.drawn.Clock)
	s.start = s.drawn.Start
	s.setup.Timebase = measure.Timebase{
		TickHz: tickHz, UTickHz: cfg.Spread.UClock, TicksPerScan: tickHz / float64(cfg.Rate),
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
	volts := func(name string, read func(board.Reading) float64) {
		s.input(draw, i, measure.Channel{
			Name: r.Name + name, Unit: measure.UnitVolt, UGain: sp.UGainV,
			UOffset: float64(sp.UOffsetV), Noise: float64(sp.NoiseV),
		}, voltRange, read)
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
		rail.Shunt, rail.UShunt = shuntOhms, sp.UShunt
		// The stated resistance is the true one times (1 + error).
		ohms := shuntOhms / (1 + draw(sp.UShunt))
		volts(".source", func(q board.Reading) float64 { return float64(q.V) + ohms*float64(q.I) })
		volts(".load", load)
	case measure.WiringClamp:
		amperes()
		volts(".voltage", load)
	default:
		amperes()
		draw(0) // an error of the voltage, which is exact here
		rail.Y, rail.Assumed = -1, r.Open
	}
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
		rail: rail, read: read,
		// stated = true·(1 + error), so true = stated/(1 + error)
		gain: c.Gain / (1 + ge), offset: c.Offset - oe, noise: c.Noise / c.Gain,
		lo: -half, hi: half - 1, skew: skew,
	})
}

// Setup is the meter's statement about itself.
func (s *Sampler) Setup() measure.Setup { return s.setup }

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

// DeviceTime is the device's time at a board instant: the result of a perfect clock fit.
func (s *Sampler) DeviceTime(at time.Duration) measure.Seconds {
	return measure.Seconds(float64(at-s.start) / s.step / float64(s.cfg.Rate))
}

// Next fills b with the next n scans.
func (s *Sampler) Next(b *measure.Block, n int) {
	// b gets room for n scans of each channel; it is used again and again.
	b.Counts, b.Ticks = slices.Grow(b.Counts[:0], len(s.channels))[:len(s.channels)], nil
	for c := range b.Counts {
		b.Counts[c] = slices.Grow(b.Counts[c][:0], n)[:n]
	}
	s.power = slices.Grow(s.power[:0], n)[:n]
	b.FirstScan = s.scan
	b.FirstTick = int64(math.Round(float64(s.scan) * s.setup.Timebase.TicksPerScan))
	at := s.Elapsed()
	for c := range s.channels {
		ch := &s.channels[c]
		if c == 0 || ch.skew != 0 {
			s.board.Trace(s.power, at+ch.skew, s.step)
		}
		inv := 1 / ch.gain
		for i, p := range s.power {
			x := (ch.read(s.board.Rail(ch.rail, p)) - ch.offset) * inv
			if ch.noise > 0 {
				x += ch.noise * s.noise.NormFloat64()
			}
			b.Counts[c][i] = measure.Count(min(max(math.RoundToEven(x), ch.lo), ch.hi))
		}
	}
	s.scan += uint64(n)
}
