package emulator_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/wall"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
)

// machine is a card in a machine whose processors have loads of their own, behind a supply that loses a tenth.
type machine struct{ card, processors *board.Board }

func (m machine) energy(t *testing.T, from, to time.Duration) (whole, card measure.Joule) {
	t.Helper()
	var e [2]measure.Joule
	for i, b := range []*board.Board{m.card, m.processors} {
		x, err := b.Energy(from, to)
		if err != nil {
			t.Fatal(err)
		}
		e[i] = x.Total
	}
	return (60*measure.Joule((to-from).Seconds()) + e[1] + e[0]) / 0.9, e[0]
}

// loads lays random steps on a board, none of them within a stretch.
func loads(t *testing.T, b *board.Board, rng *rand.Rand, from, to, mean time.Duration, levels ...measure.Watt) {
	t.Helper()
	for at := from; at < to; at += time.Duration(rng.ExpFloat64() * float64(mean)) {
		if _, err := b.SetLevel(at, levels[rng.IntN(len(levels))]); err != nil {
			t.Fatal(err)
		}
	}
}

// trial is one window of a card's work, and what its meters say of it.
type trial struct {
	from, to time.Duration
	update   time.Duration
	wall     measure.Channel
	late     time.Duration // of the wall's readings, beyond what the setup says
	jitter   []time.Duration
	machine  machine
	sampler  *meter.Sampler
}

func newTrial(t *testing.T, seed uint64, processor time.Duration) *trial {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0x77616c6c))
	x := &trial{from: 4 * time.Second, update: []time.Duration{100, 250, 500}[rng.IntN(3)] * time.Millisecond}
	x.to = x.from + time.Duration(float64(x.update)*(3+40*rng.Float64()))
	for _, b := range []**board.Board{&x.machine.card, &x.machine.processors} {
		var err error
		if *b, err = board.New(board.Config{Seed: seed}); err != nil {
			t.Fatal(err)
		}
	}
	loads(t, x.machine.card, rng, x.from, x.to, 200*time.Millisecond, 61, 190, 225, 255, 280)
	if _, err := x.machine.card.SetLevel(x.to, 22); err != nil {
		t.Fatal(err)
	}
	loads(t, x.machine.processors, rng, 0, x.to+4*time.Second, processor, 25, 60, 90)
	x.late = time.Duration(rng.NormFloat64() * float64(wall.UTime.Duration()))
	var err error
	x.sampler, err = meter.NewSampler(x.machine.card, meter.Config{
		Seed: seed, Rate: 2000, Draw: true,
		Spread: meter.Spread{UGainV: 2e-4, UGainI: 5e-4, UOffsetV: 5e-4, UOffsetI: 2e-3, NoiseI: 0.05, NoiseV: 0.01, UClock: 3e-5},
	})
	if err != nil {
		t.Fatal(err)
	}
	x.wall = measure.Channel{
		Name: "wall", Unit: measure.UnitWall, UGain: 2e-4, UOffset: 0.05, Skew: measure.SecondsOf(-x.update / 2),
	}
	x.wall.Gain, x.wall.Offset = 1e-3*(1+rng.NormFloat64()*x.wall.UGain), rng.NormFloat64()*x.wall.UOffset
	return x
}

// result integrates the window by the card's meter, and the wall's with it.
func (x *trial) result(t *testing.T) (*measure.Result, wall.Result, error) {
	t.Helper()
	setup := x.sampler.Setup()
	stated := x.wall
	stated.Gain, stated.Offset = 1e-3, 0
	setup.Channels = append(setup.Channels, stated)
	w := measure.Window{From: measure.SecondsOf(x.from), To: measure.SecondsOf(x.to)}
	blocks := x.blocks(t)
	g, err := measure.NewIntegrator(&setup, w.From, w.To)
	if err != nil {
		t.Fatal(err)
	}
	m, err := wall.New(&setup, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if err := errors.Join(g.Add(b), m.Add(b)); err != nil {
			t.Fatal(err)
		}
	}
	card, err := g.Result(measure.Edges{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Result(&card, measure.Edges{})
	if err != nil {
		return nil, wall.Result{}, err
	}
	return &card, *r, nil
}

// blocks are the scans of the card's meter, each with the update of the wall's that stands there: its arrival is the
// nearest in time.
func (x *trial) blocks(t *testing.T) (out []*measure.Block) {
	t.Helper()
	ends, shown, mean := x.to+3*time.Second, time.Duration(0), 0.0
	for at := time.Duration(0); at < ends; {
		b := &measure.Block{}
		x.sampler.Next(b, 500)
		col := make([]measure.Count, b.Scans())
		for i := range col {
			scan := time.Duration(b.TickAt(x.sampler.Setup().Timebase, i)) - x.late
			n := time.Duration(math.Floor(float64(scan+x.update/2) / float64(x.update))) // this update ends there
			if n == shown+1 && len(x.jitter) > 0 && scan+x.update/2 < n*x.update+x.jitter[n] {
				n = shown
			}
			if n > shown {
				e, _ := x.machine.energy(t, (n-1)*x.update, n*x.update)
				shown, mean = n, float64(e)/x.update.Seconds()
			}
			col[i] = measure.Count(math.Round((mean - x.wall.Offset) / x.wall.Gain))
		}
		b.Counts = append(b.Counts, col)
		out = append(out, b)
		at += 250 * time.Millisecond
	}
	return out
}

// Of random windows, by meters that are off by what they state and are placed wrong by what is stated, the true
// energies of the wall and of the rest lie within U, and U is not far wider than the errors: with processors
// that step once in an update, now and then, and hardly ever; and where the host's clock places the readings wrong by
// ten times what is stated, or each by something of its own.
func TestTheWholeMachineWithinItsUncertainty(t *testing.T) {
	coverage.Long(t)
	for name, c := range map[string]struct {
		step         time.Duration // between the processors'
		late, jitter time.Duration
	}{
		"busy": {step: 300 * time.Millisecond}, "now and then": {step: 3 * time.Second}, "steady": {step: time.Hour},
		"late, busy":           {step: 300 * time.Millisecond, late: 200 * time.Millisecond},
		"late, now and then":   {step: 3 * time.Second, late: 200 * time.Millisecond},
		"jitter, now and then": {step: 3 * time.Second, jitter: 10 * time.Millisecond},
		"jitter, steady":       {step: time.Hour, jitter: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trials := coverage.Trials(600)
			var inside [2]int
			var errorOf, uOf [2]float64
			for seed := range trials {
				x := newTrial(t, uint64(seed), c.step)
				rng := rand.New(rand.NewPCG(uint64(seed), 0x6c617465))
				if c.late > 0 {
					x.late = time.Duration(rng.Float64() * float64(c.late))
				}
				for n := time.Duration(0); c.jitter > 0 && n*x.update < x.to+4*time.Second; n++ {
					x.jitter = append(x.jitter, min(time.Duration(rng.ExpFloat64()*float64(c.jitter)), x.update/2))
				}
				_, r, err := x.result(t)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				whole, card := x.machine.energy(t, x.from, x.to)
				for i, c := range []struct {
					got  measure.Estimate
					want measure.Joule
				}{{r.Wall, whole}, {r.Rest, whole - card}} {
					miss := float64(c.got.Energy - c.want)
					if math.Abs(miss) <= float64(c.got.U) {
						inside[i]++
					}
					errorOf[i] += miss * miss / float64(trials)
					uOf[i] += float64(c.got.U*c.got.U) / 4 / float64(trials)
				}
			}
			for i, what := range []string{"wall", "rest"} {
				share, wide := float64(inside[i])/float64(trials), math.Sqrt(uOf[i]/errorOf[i])
				t.Logf("%s: %d of %d windows within U; u is %.2f of the errors' rms (%.2f J)", what, inside[i], trials, wide, math.Sqrt(errorOf[i]))
				if !coverage.Within(share, 0.93, 0.975, trials) || wide > 1.5 {
					t.Errorf("%s: %.3f within U, u %.2f of the errors", what, share, wide)
				}
			}
		})
	}
}
