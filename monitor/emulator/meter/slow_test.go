package meter

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"wattmark/measure"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/pace"
)

func TestSlowShowsItsWindow(t *testing.T) {
	const ms = time.Millisecond
	for name, cfg := range map[string]SlowConfig{"100/25": NVML100of25, "20/10": NVML20of10, "1 s average": NVMLAverage1} {
		b := newBoard(t, board.Config{}, nil)
		for i := range 400 { // 7 ms on, 11 ms off
			_, _ = b.SetLoad(time.Duration(i)*18*ms, board.Memory)
			_, _ = b.SetLoad(time.Duration(i)*18*ms+7*ms, board.Sleep)
		}
		cfg.Seed, cfg.Start = 3, 2*time.Second
		s, err := NewSlow(b, cfg)
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
	b := newBoard(t, board.Config{}, nil)
	for i := range 2000 { // every update sees another level
		_, _ = b.SetLevel(time.Duration(i)*10*time.Millisecond, measure.Watt(50+i%97))
	}
	cfg := SlowConfig{Update: 100 * time.Millisecond, Window: 25 * time.Millisecond, Jitter: time.Millisecond, Clock: 0.009, Start: time.Second}
	s, err := NewSlow(b, cfg)
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
			if late := tick - int64(scan)*4_000_000; late < -1_000_000 || late > 1_000_000 || (scan > 0 && tick <= last) {
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
	b := newBoard(t, board.Config{Drift: -1}, nil)
	for i := range 100 {
		_, _ = b.SetLoad(time.Duration(i)*100*ms, board.Memory)
		_, _ = b.SetLoad(time.Duration(i)*100*ms+50*ms, board.Sleep)
	}
	cfg := NVML100of25
	cfg.Start = time.Second
	s, err := NewSlow(b, cfg)
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
	b := newBoard(t, board.Config{Drift: -1}, map[time.Duration]board.Load{-10_000: board.Compute})
	cfg := SlowConfig{Update: 20 * time.Millisecond, Window: 10 * time.Millisecond, UGain: 0.05, UOffset: 2, Draw: true}
	var sum, sq float64
	const seeds = 300
	for seed := range uint64(seeds) {
		cfg.Seed = seed
		s, err := NewSlow(b, cfg)
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

type collect struct {
	scans, blocks uint64
	fail          error
	order         []uint64
}

func (c *collect) Block(b *measure.Block) error {
	if c.fail != nil {
		return c.fail
	}
	if b.FirstScan != c.scans {
		c.order = append(c.order, b.FirstScan)
	}
	c.scans += uint64(b.Scans())
	c.blocks++
	return nil
}
func (c *collect) Event(measure.Event) error { return nil }

func TestInstrumentFreeAndPaced(t *testing.T) {
	b := newBoard(t, board.Config{}, nil)
	m := NewInstrument("adc", newSampler(t, b, Config{}), pace.Pace{})
	m.Limit = 100_000
	var c collect
	for range 2 { // each stream counts from zero
		c = collect{}
		if err := m.Stream(t.Context(), &c); err != nil || c.scans != m.Limit || c.order != nil {
			t.Errorf("%d scans, blocks out of order at %v: %v", c.scans, c.order, err)
		}
	}
	boom := errors.New("boom")
	if err := m.Stream(t.Context(), &collect{fail: boom}); !errors.Is(err, boom) {
		t.Errorf("the sink's error comes back as %v", err)
	}
	if id := m.Identity(); id.Kind != "emulated" {
		t.Errorf("identity %+v", id)
	}
	synctest.Test(t, func(t *testing.T) {
		m := NewInstrument("adc", newSampler(t, newBoard(t, board.Config{}, nil), Config{}), pace.Real(time.Now()))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var c collect
		if err := m.Stream(ctx, &c); err != nil {
			t.Fatal(err)
		}
		if c.scans < 299_000 || c.scans > 300_100 || c.blocks < 1400 {
			t.Errorf("%d scans in %d blocks in 3 s", c.scans, c.blocks)
		}
	})
}
