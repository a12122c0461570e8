package tiny_test

import (
	"context"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/experiment/tiny"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
)

// virtual is a clock that is always where somebody waits for it.
type virtual struct{ now time.Time }

func (v *virtual) Now() time.Time { return v.now }

func (v *virtual) WaitUntil(_ context.Context, t time.Time) error {
	if t.After(v.now) {
		v.now = t
	}
	return nil
}

// bench is a card, a meter and a simulated GPU in virtual time.
type bench struct {
	board  *board.Board
	meter  *meter.Sampler
	clock  *virtual
	device *sim.Device
	rng    *rand.Rand
	spread meter.Spread
}

// uFit is how well the host's clock and the meter's are related in these tests.
const uFit = 5e-6

// newBench makes a card of one linear rail (its slew is the same up and down, so
// that a kernel's energy is its power times its time, leakage aside).
func newBench(t testing.TB, seed uint64, k *sim.Kernel, cfg meter.Config) *bench {
	t.Helper()
	return newBenchOf(t, board.Config{}, seed, k, cfg)
}

// newBenchOf is newBench with a card that has its own drift.
func newBenchOf(t testing.TB, card board.Config, seed uint64, k *sim.Kernel, cfg meter.Config) *bench {
	t.Helper()
	model, err := board.New(board.Config{
		Seed: seed, Drift: card.Drift, TauUp: 50 * time.Microsecond, TauDown: 50 * time.Microsecond,
		Rails: []board.RailConfig{{Name: "aux_12v_1", Role: measure.RolePSU, Open: 12.1, Source: 0.005, Share: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Seed = seed
	if cfg.Rate == 0 {
		cfg.Rate = 20e3
	}
	b := &bench{
		board: model, clock: &virtual{now: time.Unix(1_700_000_000, 0)},
		rng: rand.New(rand.NewPCG(seed, 0x74696e79)), spread: cfg.Spread,
	}
	live := board.NewLive(model, b.clock.now.Add(-time.Second))
	if b.meter, err = meter.NewSampler(model, cfg); err != nil {
		t.Fatal(err)
	}
	if b.device, err = sim.Open(sim.Config{Plant: live, Clock: b.clock, Seed: seed, Kernel: k}); err != nil {
		t.Fatal(err)
	}
	b.clock.now = b.clock.now.Add(200 * time.Millisecond)
	return b
}

// fit relates the clocks as markers would: right within its own uncertainty.
func (b *bench) fit() clock.Fit {
	origin := time.Unix(1_700_000_000, 0)
	at := func(t time.Time) measure.Seconds {
		return b.meter.DeviceTime(b.since(t))
	}
	a, z := at(origin), at(origin.Add(10*time.Second))
	f := clock.Fit{Origin: measure.Seconds(origin.Unix()), A: a, B: float64(z-a) / 10, VarA: uFit * uFit, VarB: 1e-14}
	f.A += measure.Seconds(uFit * b.rng.NormFloat64())
	f.B += 1e-7 * b.rng.NormFloat64()
	return f
}

// blocks are the meter's until a time of day.
func (b *bench) blocks(until time.Time) iter.Seq2[*measure.Block, error] {
	return func(yield func(*measure.Block, error) bool) {
		var blk measure.Block
		end := b.since(until) + 20*time.Millisecond
		for b.meter.Elapsed() < end {
			b.meter.Next(&blk, 2048)
			if !yield(&blk, nil) {
				return
			}
		}
	}
}

// measure plays a plan and analyses it.
func (b *bench) measure(t testing.TB, p tiny.Plan, seed uint64) (tiny.Outcome, gpu.Ran) {
	t.Helper()
	ran, err := b.device.RunTrain(t.Context(), p.Train(gpu.BenchHalf, gpu.Insert{Name: "k"}, seed))
	if err != nil {
		t.Fatal(err)
	}
	setup := b.meter.Setup()
	end := ran.Phases[len(ran.Phases)-1].Span.End
	out, err := tiny.Analyse(p, ran, tiny.Source{Setup: &setup, Fit: b.fit(), Blocks: b.blocks(end)})
	if err != nil {
		t.Fatal(err)
	}
	return out, ran
}

// truth is the energy of one launch of a kernel of constant levels on the linear
// card: its power, with the leakage that the warm card adds to everything, times
// its time. The leakage is what the card itself says that the phases with the
// kernel drew beyond the levels that were set.
func (b *bench) truth(t testing.TB, ran gpu.Ran, k []load.Step) float64 {
	t.Helper()
	half, _ := b.board.Level(load.Half)
	var own, length float64
	for _, s := range k {
		own, length = own+float64(s.Level)*s.For.Seconds(), length+s.For.Seconds()
	}
	var extra, time float64
	for _, p := range ran.Phases {
		if p.Inserted == 0 {
			continue
		}
		e, err := b.board.Energy(b.since(p.Span.Start), b.since(p.Span.End))
		if err != nil {
			t.Fatal(err)
		}
		extra += float64(e.Total) - float64(half)*p.Carrier.Seconds() - float64(p.Inserted)*own
		time += p.Span.End.Sub(p.Span.Start).Seconds()
	}
	return own + extra/time*length
}

// since is a time of day as the board counts it.
func (b *bench) since(t time.Time) time.Duration {
	return t.Sub(time.Unix(1_700_000_000, 0).Add(-time.Second))
}
