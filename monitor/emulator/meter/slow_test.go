package meter_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
)

// slowConfig describes a sensor inside the card that shows an average of the
// recent past, anew every update, and is polled more often than that.
type slowConfig struct {
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
	nvml100of25  = slowConfig{Update: 100 * time.Millisecond, Window: 25 * time.Millisecond}
	nvml20of10   = slowConfig{Update: 20 * time.Millisecond, Window: 10 * time.Millisecond}
	nvmlAverage1 = slowConfig{Update: 100 * time.Millisecond, Window: time.Second}
)

// slow is such a sensor as a meter. It reads the whole card in milliwatts.
type slow struct {
	board        *board.Board
	cfg          slowConfig
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

// newSlow puts a slow sensor into a board.
func newSlow(b *board.Board, cfg slowConfig) (*slow, error) {
	if cfg.Poll == 0 {
		cfg.Poll = 4 * time.Millisecond
	}
	if cfg.Update <= 0 || cfg.Window <= 0 || cfg.Poll <= 0 || cfg.Jitter < 0 || cfg.Jitter >= cfg.Poll ||
		cfg.Clock <= -1 {
		return nil, fmt.Errorf("emulated sensor: update %v, window %v, poll %v, jitter %v: want positive ones, and "+
			"the jitter below the poll", cfg.Update, cfg.Window, cfg.Poll, cfg.Jitter)
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x736c6f77))
	s := &slow{board: b, cfg: cfg, rng: rng, shown: math.MinInt64}
	s.period = float64(cfg.Update) * (1 + cfg.Clock)
	s.phase = time.Duration(rng.Int64N(int64(cfg.Update)))
	draw := meter.Drawing(rng, cfg.Draw)
	s.gain, s.offset = 1+draw(cfg.UGain), draw(float64(cfg.UOffset))
	s.setup = measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e9, TicksPerScan: float64(cfg.Poll), Stamped: cfg.Jitter > 0},
		Channels: []measure.Channel{{
			Name: "gpu.power", Unit: measure.UnitWatt, Gain: 1e-3, UGain: cfg.UGain,
			UOffset: float64(cfg.UOffset), Noise: float64(cfg.Noise),
		}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
		Response: measure.Response{Window: measure.SecondsOf(cfg.Window), Update: measure.SecondsOf(cfg.Update)},
	}
	s.Restart(cfg.Start)
	return s, s.setup.Validate()
}

// Setup is what the sensor states of itself.
func (s *slow) Setup() measure.Setup { return s.setup }

// Restart begins a new capture: its device time zero is the first reading.
func (s *slow) Restart(at time.Duration) {
	s.start, s.scan = at, 0
	s.schedule()
	s.first = s.next
}

// schedule sets the time of the next reading.
func (s *slow) schedule() {
	s.next = s.start + time.Duration(s.scan)*s.cfg.Poll
	if s.cfg.Jitter > 0 {
		s.next += time.Duration(s.rng.Int64N(int64(s.cfg.Jitter)))
	}
}

// Elapsed is the board time of the next reading.
func (s *slow) Elapsed() time.Duration { return s.next }

// DeviceTime is the device's time at a board instant: the host's own clock,
// from the first reading on.
func (s *slow) DeviceTime(at time.Duration) measure.Seconds { return measure.SecondsOf(at - s.first) }

// Phase is the board time of an update: the others are whole periods away.
func (s *slow) Phase() time.Duration { return s.phase }

// Next fills b with the next n readings.
func (s *slow) Next(b *measure.Block, n int) {
	ticks := b.Ticks
	if len(b.Counts) == 0 {
		b.Counts = make([][]measure.Count, 1)
	}
	b.Counts[0], b.Ticks = slices.Grow(b.Counts[0][:0], n)[:n], nil
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
func (s *slow) read(at time.Duration) measure.Count {
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

func loadedBoard(t *testing.T, cfg board.Config, loads map[time.Duration]load.State) *board.Board {
	t.Helper()
	b, err := board.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for ms, l := range loads {
		if _, err := b.SetLoad(ms*time.Millisecond, l); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestSlowShowsItsWindow(t *testing.T) {
	const ms = time.Millisecond
	for name, cfg := range map[string]slowConfig{
		"100/25": nvml100of25, "20/10": nvml20of10,
		"1 s average": nvmlAverage1,
	} {
		b := loadedBoard(t, board.Config{}, nil)
		for i := range 400 { // 7 ms on, 11 ms off
			_, _ = b.SetLoad(time.Duration(i)*18*ms, load.Memory)
			_, _ = b.SetLoad(time.Duration(i)*18*ms+7*ms, load.Sleep)
		}
		cfg.Seed, cfg.Start = 3, 2*time.Second
		s, err := newSlow(b, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var blk measure.Block
		s.Next(&blk, 1000)
		changes, last := 0, measure.Count(-1)
		for i, c := range blk.Counts[0] {
			at := cfg.Start + time.Duration(i)*4*ms
			end := s.Phase() + (at - s.Phase()).Truncate(cfg.Update)
			want := b.MeanPower(end-cfg.Window, end)
			if math.Abs(float64(c)*1e-3-float64(want)) > 6e-4 {
				t.Fatalf("%s: reading %d shows %v mW, the window's mean is %v", name, i, c, want)
			}
			if c != last {
				changes++
				last = c
			}
		}
		if want := int(4 * time.Second / cfg.Update); changes < want-2 || changes > want+2 {
			t.Errorf("%s: %d new values in 4 s, want %d", name, changes, want)
		}
	}
}

func TestSlowJitterAndClock(t *testing.T) {
	b := loadedBoard(t, board.Config{}, nil)
	for i := range 2000 { // every update sees another level
		_, _ = b.SetLevel(time.Duration(i)*10*time.Millisecond, measure.Watt(50+i%97))
	}
	cfg := slowConfig{
		Update: 100 * time.Millisecond, Window: 25 * time.Millisecond, Jitter: time.Millisecond,
		Clock: 0.009, Start: time.Second,
	}
	s, err := newSlow(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	setup := s.Setup()
	var blk measure.Block
	last, first, seen, changes := int64(0), int64(0), measure.Count(0), 0
	var scan uint64
	for range 20 {
		s.Next(&blk, 200)
		if err := blk.Validate(setup.Timebase, 1); err != nil {
			t.Fatal(err)
		}
		for i, tick := range blk.Ticks {
			if late := tick - int64(scan)*4_000_000; late < -1_000_000 || late > 1_000_000 ||
				(scan > 0 && tick <= last) {
				t.Fatalf("scan %d is stamped %d ns", scan, tick)
			}
			if c := blk.Counts[0][i]; c != seen {
				seen = c
				changes++
				if changes == 2 {
					first = tick
				}
				last = tick
			}
			last, scan = max(last, tick), scan+1
		}
	}
	period := float64(16e9) / 100.9e6
	if math.Abs(float64(changes)-period) > 2 || first == 0 {
		t.Errorf("%d new values in 16 s, want %.0f", changes, period)
	}
}

// The facts' square wave of 50 ms on and 50 ms off: a sensor that sees 25 ms of
// each 100 ms does not move, whatever the truth is.
func TestSlowSensorMissesTheSquareWave(t *testing.T) {
	const ms = time.Millisecond
	b := loadedBoard(t, board.Config{Drift: -1}, nil)
	for i := range 100 {
		_, _ = b.SetLoad(time.Duration(i)*100*ms, load.Memory)
		_, _ = b.SetLoad(time.Duration(i)*100*ms+50*ms, load.Sleep)
	}
	cfg := nvml100of25
	cfg.Start = time.Second
	s, err := newSlow(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var blk measure.Block
	s.Next(&blk, 2000)
	lo, hi := blk.Counts[0][100], blk.Counts[0][100]
	for _, c := range blk.Counts[0][100:] {
		lo, hi = min(lo, c), max(hi, c)
	}
	if hi-lo > 100 {
		t.Errorf("it moves between %v and %v mW", lo, hi)
	}
}

func TestSlowErrorsAreDrawn(t *testing.T) {
	b := loadedBoard(t, board.Config{Drift: -1}, map[time.Duration]load.State{-10_000: load.Compute})
	cfg := slowConfig{Update: 20 * time.Millisecond, Window: 10 * time.Millisecond, UGain: 0.05, UOffset: 2, Draw: true}
	var sum, sq float64
	const seeds = 300
	for seed := range uint64(seeds) {
		cfg.Seed = seed
		s, err := newSlow(b, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var blk measure.Block
		s.Next(&blk, 1)
		d := float64(blk.Counts[0][0])*1e-3 - 225
		sum += d
		sq += d * d
	}
	want := math.Hypot(0.05*225, 2)
	if sd := math.Sqrt(sq / seeds); math.Abs(sd/want-1) > 0.12 || math.Abs(sum/seeds) > 3*want/math.Sqrt(seeds) {
		t.Errorf("errors of %.3g W around %.3g W, want %.3g W around 0", sd, sum/seeds, want)
	}
}

func TestBadSlowSensor(t *testing.T) {
	if _, err := newSlow(loadedBoard(t, board.Config{}, nil), slowConfig{}); err == nil {
		t.Error("a sensor without a period was made")
	}
}
