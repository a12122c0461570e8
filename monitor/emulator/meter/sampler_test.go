package meter

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	"github.com/wattmark/wattmark/monitor/instrument"
)

func newBoard(t *testing.T, cfg board.Config, loads map[time.Duration]load.State) *board.Board {
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

func newSampler(t *testing.T, b *board.Board, cfg Config) *Sampler {
	t.Helper()
	s, err := NewSampler(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// integrate reads scans in blocks and integrates the window [from, to] of board
// time, whose device time is known here.
func integrate(t *testing.T, s *Sampler, scans int, from, to time.Duration) measure.Result {
	t.Helper()
	setup := s.Setup()
	g, err := measure.NewIntegrator(&setup, s.DeviceTime(from), s.DeviceTime(to))
	if err != nil {
		t.Fatal(err)
	}
	var b measure.Block
	for scans > 0 {
		n := min(scans, 4096)
		s.Next(&b, n)
		if err := g.Add(&b); err != nil {
			t.Fatal(err)
		}
		scans -= n
	}
	r, err := g.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A kernel of 1 s on a 16-bit, 100 kS/s face: the goal is 0.1 %.
func TestSixteenBitsAt100kSPerSecond(t *testing.T) {
	const ms = time.Millisecond
	for name, cfg := range map[string]Config{
		"clamp":           {Wiring: measure.WiringClamp, Spread: Spread{NoiseI: 0.02, NoiseV: 0.002}},
		"clamp, no noise": {Wiring: measure.WiringClamp},
		"clamp, skewed":   {Wiring: measure.WiringClamp, Skew: time.Microsecond},
		"shunt":           {Wiring: measure.WiringShunt, Spread: Spread{NoiseV: 0.0005}},
		"assumed":         {Wiring: measure.WiringAssumed, Spread: Spread{NoiseI: 0.02}},
	} {
		bc := board.Config{}
		if cfg.Wiring == measure.WiringAssumed {
			bc.Rails = board.DefaultRails()
			for i := range bc.Rails {
				bc.Rails[i].Source = 0 // an assumed voltage cannot know the droop
			}
		}
		b := newBoard(t, bc, map[time.Duration]load.State{100: load.Memory, 1100: load.ActiveIdle})
		s := newSampler(t, b, cfg)
		r := integrate(t, s, 130_000, 100*ms, 1100*ms)
		truth, err := b.Energy(100*ms, 1100*ms)
		if err != nil {
			t.Fatal(err)
		}
		rel := float64(r.Total.Energy/truth.Total) - 1
		t.Logf("%s: %+.5f %% (U %.5f %%)", name, 100*rel, 100*float64(r.Total.U/r.Total.Energy))
		if math.Abs(rel) > 1e-3 {
			t.Errorf("%s: %v measured, %v injected", name, r.Total.Energy, truth.Total)
		}
		for i, rail := range r.Rails {
			if rel := float64(rail.Energy.Energy/truth.Rails[i]) - 1; math.Abs(rel) > 1e-2 {
				t.Errorf("%s: rail %s is %+.3f %% off", name, rail.Name, 100*rel)
			}
		}
	}
}

func TestDrawnErrorsAreWhatTheySay(t *testing.T) {
	b := newBoard(t, board.Config{Drift: -1}, map[time.Duration]load.State{-1000: load.Compute})
	sp := Spread{
		UGainI: 0.02, UGainV: 0.003, UOffsetI: 0.1, UOffsetV: 0.01, UClock: 1e-4,
		ClockOffsetRange: time.Second,
	}
	s := newSampler(t, b, Config{Seed: 11, Bits: 24, Spread: sp, Draw: true})
	setup, drawn := s.Setup(), s.drawn
	var blk measure.Block
	s.Next(&blk, 1)
	at := b.At(s.BoardTime(0))
	for c, ch := range setup.Channels {
		q := at[c/2]
		truth := float64(q.I)
		if c%2 == 1 {
			truth = float64(q.V)
		}
		// What it reads is (truth − true offset)·(1 + gain error) + stated offset.
		want := (truth + drawn.Offset[c]) * (1 + drawn.Gain[c])
		if got := ch.Value(blk.Counts[c][0]); math.Abs(got-want) > 2*ch.Gain {
			t.Errorf("%s reads %v, the drawn errors give %v", ch.Name, got, want)
		}
	}
	elapsed := s.BoardTime(100e3) - s.BoardTime(0)
	if want := 1e9 / (1 + drawn.Clock); drawn.Clock == 0 || math.Abs(float64(elapsed)-want) > 1 {
		t.Errorf("a second of its clock is %v, its error %v", elapsed, drawn.Clock)
	}
	if math.Abs(float64(s.DeviceTime(s.BoardTime(5e5)))-5) > 1e-8 {
		t.Errorf("DeviceTime does not undo BoardTime: %v", s.DeviceTime(s.BoardTime(5e5)))
	}
	perfect := newSampler(t, b, Config{Seed: 11, Spread: sp})
	for c, g := range perfect.drawn.Gain {
		if g != 0 || perfect.drawn.Offset[c] != 0 {
			t.Error("errors are drawn without being asked for")
		}
	}
	if perfect.Setup().Channels[0].UGain != 0.02 {
		t.Error("a perfect meter does not state its uncertainty")
	}
}

func TestSpreadOfTheDraws(t *testing.T) {
	b := newBoard(t, board.Config{}, nil)
	var g, c float64
	const seeds = 400
	for seed := range uint64(seeds) {
		d := newSampler(t, b, Config{Seed: seed, Draw: true, Spread: Spread{UGainI: 0.01, UClock: 5e-5}}).drawn
		g += d.Gain[0] * d.Gain[0]
		c += d.Clock * d.Clock
	}
	if sd := math.Sqrt(g / seeds); sd < 0.009 || sd > 0.011 {
		t.Errorf("gains spread by %v, stated 0.01", sd)
	}
	if sd := math.Sqrt(c / seeds); sd < 4.5e-5 || sd > 5.5e-5 {
		t.Errorf("clocks spread by %v, stated 5e-5", sd)
	}
}

func TestBlocksJoinAndSeedsRepeat(t *testing.T) {
	cfg := Config{Seed: 5, Rate: 4800, Spread: Spread{NoiseI: 0.1, NoiseV: 0.01}, Draw: true}
	read := func(sizes ...int) [][]measure.Count {
		b := newBoard(t, board.Config{}, map[time.Duration]load.State{5: load.Half})
		s := newSampler(t, b, cfg)
		var out [][]measure.Count
		var blk measure.Block
		next := uint64(0)
		for _, n := range sizes {
			s.Next(&blk, n)
			setup := s.Setup()
			if err := blk.Validate(setup.Timebase, len(setup.Channels)); err != nil {
				t.Fatal(err)
			}
			if blk.FirstScan != next || math.Abs(float64(blk.FirstTick)-float64(next)*setup.Timebase.TicksPerScan) > 0.5 {
				t.Fatalf("block begins with scan %d, tick %d; want scan %d", blk.FirstScan, blk.FirstTick, next)
			}
			next += uint64(n)
			if out == nil {
				out = make([][]measure.Count, len(blk.Counts))
			}
			for c := range out {
				out[c] = append(out[c], blk.Counts[c]...)
			}
		}
		return out
	}
	whole, again := read(1000), read(1000)
	if d := cmp.Diff(whole, again); d != "" {
		t.Error("the same seed reads otherwise")
	}
	cfg.Spread.NoiseI, cfg.Spread.NoiseV = 0, 0 // noise is drawn channel by channel within a block
	if d := cmp.Diff(read(1000), read(1, 99, 400, 500)); d != "" {
		t.Error("the cutting into blocks changes the counts")
	}
}

func TestOmitAndOverRange(t *testing.T) {
	b := newBoard(t, board.Config{}, map[time.Duration]load.State{-1: load.Full})
	s := newSampler(t, b, Config{CurrentRange: 5, Omit: []string{"pcie_3v3"}})
	if setup := s.Setup(); len(setup.Rails) != 3 || len(setup.Missing) != 1 || setup.Missing[0] != "pcie_3v3" {
		t.Errorf("rails %v, missing %v", setup.Rails, setup.Missing)
	}
	var blk measure.Block
	s.Next(&blk, 100)
	s.Next(&blk, 10)
	if blk.FirstScan != 100 || blk.FirstTick != 1_000_000 {
		t.Errorf("after 100 scans the block begins with scan %d, tick %d", blk.FirstScan, blk.FirstTick)
	}
	over := 0
	for c, ch := range s.Setup().Channels {
		if ch.OverRange(blk.Counts[c][0]) {
			over++
		}
	}
	if over != 2 { // both auxiliary rails carry more than 5 A
		t.Errorf("%d channels are over range, want 2", over)
	}
}

func TestBadMeters(t *testing.T) {
	b := newBoard(t, board.Config{}, nil)
	for name, cfg := range map[string]Config{
		"wiring": {Wiring: measure.WiringPower}, "bits": {Bits: 40}, "rate": {Rate: -1}, "range": {CurrentRange: -1},
		"no rails": {Omit: []string{"pcie_3v3", "pcie_12v", "aux_12v_1", "aux_12v_2"}},
	} {
		if _, err := NewSampler(b, cfg); err == nil {
			t.Errorf("%s: a bad configuration is taken", name)
		}
	}
}

func BenchmarkSampler(b *testing.B) {
	brd, _ := board.New(board.Config{})
	s, _ := NewSampler(brd, Config{Spread: Spread{NoiseI: 0.02, NoiseV: 0.002}})
	var blk measure.Block
	b.ReportAllocs()
	for range b.N {
		s.Next(&blk, 1000)
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds()/1e6, "MS/s")
}

type collect struct {
	scans, blocks uint64
	fail          error
	enough        func() // called once there are 100 000 scans
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
	if c.enough != nil && c.scans >= 100_000 {
		c.enough()
	}
	return nil
}
func (c *collect) Event(measure.Event) error { return nil }

func TestInstrumentFreeAndPaced(t *testing.T) {
	b := newBoard(t, board.Config{}, nil)
	m := NewInstrument("adc", newSampler(t, b, Config{}), pace.Pace{})
	if err := m.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var c collect
	for range 2 { // each stream counts from zero
		ctx, cancel := context.WithCancel(t.Context())
		c = collect{enough: cancel}
		if err := m.Stream(ctx, instrument.SinkOf(&c)); err != nil || c.scans < 100_000 || c.order != nil {
			t.Errorf("%d scans, blocks out of order at %v: %v", c.scans, c.order, err)
		}
	}
	boom := errors.New("boom")
	if err := m.Stream(t.Context(), instrument.SinkOf(&collect{fail: boom})); !errors.Is(err, boom) {
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
		if err := m.Open(ctx); err != nil {
			t.Fatal(err)
		}
		if err := m.Stream(ctx, instrument.SinkOf(&c)); err != nil {
			t.Fatal(err)
		}
		if c.scans < 299_000 || c.scans > 300_100 || c.blocks < 1400 {
			t.Errorf("%d scans in %d blocks in 3 s", c.scans, c.blocks)
		}
	})
}
