package meter

import (
	"fmt"
	"math"
	"math/rand/v2"
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
	gain, offset float64 // of what it shows
	noise        *rand.Rand
	start        time.Duration
	scan         uint64
	shown        int64 // number of the update now shown
	value        measure.Count
}

// NewSlow puts a slow sensor into a board.
func NewSlow(b *board.Board, cfg SlowConfig) (*Slow, error) {
	if cfg.Poll == 0 {
		cfg.Poll = 4 * time.Millisecond
	}
	if cfg.Update <= 0 || cfg.Window <= 0 || cfg.Poll <= 0 {
		return nil, fmt.Errorf("emulated sensor: update %v, window %v, poll %v: all must be positive", cfg.Update, cfg.Window, cfg.Poll)
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x736c6f77))
	s := &Slow{board: b, cfg: cfg, noise: rng, start: cfg.Start, shown: math.MinInt64}
	s.phase = time.Duration(rng.Int64N(int64(cfg.Update)))
	s.gain = 1 + normal(rng, cfg.Draw, cfg.UGain)
	s.offset = normal(rng, cfg.Draw, float64(cfg.UOffset))
	s.setup = measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e9, TicksPerScan: float64(cfg.Poll)},
		Channels: []measure.Channel{{Name: "gpu.power", Unit: measure.UnitWatt, Gain: 1e-3, UGain: cfg.UGain, UOffset: float64(cfg.UOffset), Noise: float64(cfg.Noise)}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
		Response: measure.Response{Window: measure.SecondsOf(cfg.Window), Update: measure.SecondsOf(cfg.Update)},
	}
	return s, s.setup.Validate()
}

// Setup is what the sensor states of itself.
func (s *Slow) Setup() measure.Setup { return s.setup }

// Restart begins a new capture.
func (s *Slow) Restart(at time.Duration) { s.start, s.scan = at, 0 }

// Elapsed is the board time of the next reading.
func (s *Slow) Elapsed() time.Duration { return s.start + time.Duration(s.scan)*s.cfg.Poll }

// Phase is the board time of an update: the next are whole periods away.
func (s *Slow) Phase() time.Duration { return s.phase }

// Next fills b with the next n readings.
func (s *Slow) Next(b *measure.Block, n int) {
	prepare(b, 1, n)
	b.FirstScan, b.FirstTick = s.scan, int64(s.scan)*int64(s.cfg.Poll)
	for i := range n {
		b.Counts[0][i] = s.read(s.Elapsed())
		s.scan++
	}
}

// read returns what the sensor shows at an instant.
func (s *Slow) read(at time.Duration) measure.Count {
	k := int64(math.Floor(float64(at-s.phase) / float64(s.cfg.Update)))
	if k != s.shown {
		s.shown = k
		end := s.phase + time.Duration(k)*s.cfg.Update
		s.board.Observe(end)
		mean := float64(s.board.MeanPower(end-s.cfg.Window, end))
		mean = mean*s.gain + s.offset + float64(s.cfg.Noise)*s.noise.NormFloat64()
		s.value = measure.Count(math.Round(max(0, mean) * 1e3))
	}
	return s.value
}
