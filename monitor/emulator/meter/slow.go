package meter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
)

// SlowConfig describes a sensor inside the card that shows an average of the
// recent past, anew every update, and is polled more often than that.
type SlowConfig struct {
	Seed uint64
	// Update is the distance of new values, Window the boxcar behind each (it may
	// be longer than Update: a 1 s average every 100 ms), Poll the distance of
	// readings (default 4 ms).
	Update, Window, Poll time.Duration
	// Jitter is how late a reading may come, uniformly, as on a machine that also
	// does other things; every reading then carries its own time stamp. Without
	// it, polls on a grid that divides Update see every update equally late.
	Jitter time.Duration
	// Clock is how slow the card's own clock runs, relative: updates come every
	// Update·(1 + Clock). Nobody states it. An H200 was seen at +0.009.
	Clock float64
	// Noise of one new value; its resolution is 1 mW.
	Noise measure.Watt
	// UGain (relative) and UOffset are stated; with Draw the card's own errors
	// are drawn from them.
	UGain   float64
	UOffset measure.Watt
	Draw    bool
	// Start is the board's time at the first reading. The phase of the updates is
	// drawn by the seed: nobody knows it.
	Start time.Duration
}

// The sensors of arXiv 2312.02741, and the average that newer drivers show.
var (
	NVML100of25  = SlowConfig{Update: 100 * time.Millisecond, Window: 25 * time.Millisecond}
	NVML20of10   = SlowConfig{Update: 20 * time.Millisecond, Window: 10 * time.Millisecond}
	NVMLAverage1 = SlowConfig{Update: 100 * time.Millisecond, Window: time.Second}
)

// Slow is such a sensor as a meter. It reads the whole card in milliwatts.
type Slow struct {
	board        *board.Board
	cfg          SlowConfig
	setup        measure.Setup
	phase        time.Duration
	period       float64 // ns between updates, really
	rng          *rand.Rand
	gain, offset float64 // of what it shows
	start        time.Duration
	first        time.Duration // board time of scan 0
	next         time.Duration // board time of the next reading
	scan         uint64
	shown        int64 // number of the update now shown
	value        measure.Count
}

// NewSlow puts a slow sensor into a board.
func NewSlow(b *board.Board, cfg SlowConfig) (*Slow, error) {
	if cfg.Poll == 0 {
		cfg.Poll = 4 * time.Millisecond
	}
	if cfg.Update <= 0 || cfg.Window <= 0 || cfg.Poll <= 0 || cfg.Jitter < 0 || cfg.Jitter >= cfg.Poll || cfg.Clock <= -1 {
		return nil, fmt.Errorf("emulated sensor: update %v, window %v, poll %v, jitter %v: want positive ones, and the jitter below the poll", cfg.Update, cfg.Window, cfg.Poll, cfg.Jitter)
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x736c6f77))
	s := &Slow{board: b, cfg: cfg, rng: rng, shown: math.MinInt64}
	s.period = float64(cfg.Update) * (1 + cfg.Clock)
	s.phase = time.Duration(rng.Int64N(int64(cfg.Update)))
	s.gain = 1 + normal(rng, cfg.Draw, cfg.UGain)
	s.offset = normal(rng, cfg.Draw, float64(cfg.UOffset))
	s.setup = measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e9, TicksPerScan: float64(cfg.Poll), Stamped: cfg.Jitter > 0},
		Channels: []measure.Channel{{Name: "gpu.power", Unit: measure.UnitWatt, Gain: 1e-3, UGain: cfg.UGain, UOffset: float64(cfg.UOffset), Noise: float64(cfg.Noise)}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
		Response: measure.Response{Window: measure.SecondsOf(cfg.Window), Update: measure.SecondsOf(cfg.Update)},
	}
	s.Restart(cfg.Start)
	return s, s.setup.Validate()
}

// Setup is what the sensor states of itself.
func (s *Slow) Setup() measure.Setup { return s.setup }

// Restart begins a new capture: its device time zero is the first reading.
func (s *Slow) Restart(at time.Duration) {
	s.start, s.scan = at, 0
	s.schedule()
	s.first = s.next
}

// schedule sets the time of the next reading.
func (s *Slow) schedule() {
	s.next = s.start + time.Duration(s.scan)*s.cfg.Poll
	if s.cfg.Jitter > 0 {
		s.next += time.Duration(s.rng.Int64N(int64(s.cfg.Jitter)))
	}
}

// Elapsed is the board time of the next reading.
func (s *Slow) Elapsed() time.Duration { return s.next }

// DeviceTime is the device's time at a board instant: the host's own clock,
// from the first reading on.
func (s *Slow) DeviceTime(at time.Duration) measure.Seconds { return measure.SecondsOf(at - s.first) }

// Phase is the board time of an update: the others are whole periods away.
func (s *Slow) Phase() time.Duration { return s.phase }

// Next fills b with the next n readings.
func (s *Slow) Next(b *measure.Block, n int) {
	ticks := b.Ticks
	prepare(b, 1, n)
	b.FirstScan, b.FirstTick = s.scan, int64(s.next-s.first)
	if s.setup.Timebase.Stamped {
		b.Ticks = slices.Grow(ticks[:0], n)[:n]
	}
	for i := range n {
		b.Counts[0][i] = s.read(s.next)
		if b.Ticks != nil {
			b.Ticks[i] = int64(s.next - s.first)
		}
		s.scan++
		s.schedule()
	}
}

// read returns what the sensor shows at an instant.
func (s *Slow) read(at time.Duration) measure.Count {
	k := int64(math.Floor(float64(at-s.phase) / s.period))
	if k != s.shown {
		s.shown = k
		end := s.phase + time.Duration(math.Round(float64(k)*s.period))
		s.board.Observe(end)
		mean := float64(s.board.MeanPower(end-s.cfg.Window, end))
		mean = mean*s.gain + s.offset + float64(s.cfg.Noise)*s.rng.NormFloat64()
		s.value = measure.Count(math.Round(max(0, mean) * 1e3))
	}
	return s.value
}
