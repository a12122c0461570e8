package meter_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
)

// hostClock is the clock of the machine that plays the markers: another origin
// and another rate than the board's, and time stamps with some jitter.
type hostClock struct {
	offset measure.Seconds
	rate   float64
	jitter float64
	rng    *rand.Rand
}

func (h *hostClock) at(t time.Duration) measure.Seconds {
	return h.offset + measure.Seconds(t.Seconds()*(1+h.rate)+h.jitter*h.rng.NormFloat64())
}

// edge is a chip boundary as the host stamped it.
type edge struct {
	kind marker.Kind
	chip int
	host measure.Seconds
}

// lay puts a marker on the board as a GPU would play it and returns its end.
func lay(b *board.Board, h *hostClock, spec marker.Spec, kind marker.Kind, begin time.Duration) (edges []edge,
	end time.Duration, err error,
) {
	chips := spec.Chips(kind)
	for i := 0; i <= len(chips); i++ {
		l := load.ActiveIdle
		if i < len(chips) {
			l = load.Sleep
			if chips[i] {
				l = load.Full
			}
		}
		end = begin + measure.Seconds(float64(i)*float64(spec.Chip)).Duration()
		if _, err := b.SetLoad(end, l); err != nil {
			return nil, 0, err
		}
		edges = append(edges, edge{kind, i - spec.CodeStart(), h.at(end)})
	}
	return edges, end, nil
}

// task is one measurement in virtual time.
type task struct {
	board      board.Config
	meter      meter.Config
	kernel     load.State
	length     time.Duration
	stampNoise float64 // of the host's time stamps, in seconds
	seed       uint64
}

// run plays the task and measures it as the product does: markers found in the
// samples, clocks fitted to their edges, the kernel's window integrated.
func (k task) run() (measure.Result, board.Energy, error) {
	var none board.Energy
	fail := func(what string, err error) (measure.Result, board.Energy, error) {
		return measure.Result{}, none, fmt.Errorf("seed %d: %s: %w", k.seed, what, err)
	}
	b, err := board.New(k.board)
	if err != nil {
		return fail("board", err)
	}
	s, err := meter.NewSampler(b, k.meter)
	if err != nil {
		return fail("meter", err)
	}
	setup := s.Setup()
	spec := marker.FastProfile(setup.Timebase.SampleRate(), uint32(k.seed))
	rng := rand.New(rand.NewPCG(k.seed, 0x686f7374))
	h := &hostClock{
		offset: measure.Seconds(1000 * rng.Float64()), rate: 50e-6 * rng.NormFloat64(),
		jitter: k.stampNoise, rng: rng,
	}
	at := s.Elapsed() + 30*time.Millisecond + time.Duration(rng.Int64N(int64(time.Millisecond)))
	edges, at, err := lay(b, h, spec, marker.Start, at)
	if err != nil {
		return fail("start marker", err)
	}
	from := at + 5*time.Millisecond + time.Duration(rng.Int64N(int64(time.Millisecond)))
	to := from + k.length
	if _, err := b.SetLoad(from, k.kernel); err != nil {
		return fail("kernel", err)
	}
	if _, err := b.SetLoad(to, load.ActiveIdle); err != nil {
		return fail("kernel", err)
	}
	hostFrom, hostTo := h.at(from), h.at(to)
	more, at, err := lay(b, h, spec, marker.Stop, to+10*time.Millisecond)
	if err != nil {
		return fail("stop marker", err)
	}
	edges = append(edges, more...)
	blocks := capture(s, at+100*time.Millisecond)
	r, err := analyse(&setup, spec, blocks, edges, hostFrom, hostTo)
	if err != nil {
		return fail("measure", err)
	}
	truth, err := b.Energy(from, to)
	return r, truth, err
}

// capture reads blocks of 1024 scans up to a board instant.
func capture(s *meter.Sampler, until time.Duration) []*measure.Block {
	var out []*measure.Block
	for s.Elapsed() < until {
		b := new(measure.Block)
		s.Next(b, 1024)
		out = append(out, b)
	}
	return out
}

// analyse is what monitor and host do with a capture.
func analyse(setup *measure.Setup, spec marker.Spec, blocks []*measure.Block, edges []edge, from,
	to measure.Seconds,
) (measure.Result, error) {
	var none measure.Result
	d, err := marker.NewDetector(spec, setup)
	if err != nil {
		return none, err
	}
	for _, b := range blocks {
		if err := d.Push(b); err != nil {
			return none, err
		}
	}
	if err := d.Finish(); err != nil {
		return none, err
	}
	found := d.Found()
	if len(found) != 2 || found[0].Kind != marker.Start || found[1].Kind != marker.Stop {
		return none, fmt.Errorf("found %d markers, want start and stop: %+v", len(found), found)
	}
	origin := edges[0].host
	type key struct {
		kind marker.Kind
		chip int
	}
	host := map[key]measure.Seconds{}
	for _, e := range edges {
		host[key{e.kind, e.chip}] = e.host - origin
	}
	var obs []clock.Obs
	for i, f := range found {
		if !f.TagOK || f.Tag != spec.Tag {
			return none, fmt.Errorf("%v marker carries tag %d (%v), want %d", f.Kind, f.Tag, f.TagOK, spec.Tag)
		}
		for _, e := range f.Edges {
			if t, ok := host[key{f.Kind, e.Chip}]; ok {
				obs = append(obs, clock.Obs{Host: t, Meter: e.T, U: e.U, Group: i, Shared: f.SharedU()})
			}
		}
	}
	fit, err := clock.FitClock(obs, clock.Prior{Origin: origin})
	if err != nil {
		return none, err
	}
	begin, _ := fit.Meter(from - origin)
	end, _ := fit.Meter(to - origin)
	g, err := measure.NewIntegrator(setup, begin, end)
	if err != nil {
		return none, err
	}
	for _, b := range blocks {
		if err := g.Add(b); err != nil {
			return none, err
		}
	}
	return g.Result(fit.Edges(from-origin, to-origin))
}

// each runs seeds on all cores and returns what f made of them, in order.
func each[T any](seeds int, f func(seed uint64) T) []T {
	if raceEnabled {
		seeds = max(1, seeds/20) // under the race detector we look for races, not for statistics
	}
	out := make([]T, seeds)
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				out[i] = f(uint64(i))
			}
		})
	}
	for i := range out {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

type outcome struct {
	miss, rel, u float64 // error over U, relative error, relative U
	err          error
}

func (k task) outcome() outcome {
	r, truth, err := k.run()
	if err != nil {
		return outcome{err: err}
	}
	e := float64(r.Total.Energy - truth.Total)
	return outcome{miss: e / float64(r.Total.U), rel: e / float64(truth.Total), u: float64(r.Total.U / truth.Total)}
}

// summary counts how often the truth lay within E ± U.
func summary(t *testing.T, outs []outcome) (covered float64) {
	t.Helper()
	var within, n int
	var bias, rms, u float64
	for _, o := range outs {
		if o.err != nil {
			t.Error(o.err)
			continue
		}
		n++
		if math.Abs(o.miss) <= 1 {
			within++
		}
		bias, rms, u = bias+o.rel, rms+o.rel*o.rel, u+o.u
	}
	k := float64(n)
	t.Logf("%d of %d within E ± U (%.1f %%); error %.4f %% rms, %+.4f %% mean; U %.4f %%",
		within, n, 100*float64(within)/k, 100*math.Sqrt(rms/k), 100*bias/k, 100*u/k)
	return float64(within) / k
}

// slews draws the GPU's slew and load for a seed, within what real cards show.
func slews(seed uint64) (board.Config, load.State, time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 0x736c6577))
	c := board.Config{
		Seed:    seed,
		TauUp:   time.Duration(60+rng.IntN(240)) * time.Microsecond,
		TauDown: time.Duration(60+rng.IntN(400)) * time.Microsecond,
	}
	return c, load.Half + load.State(rng.IntN(3)), time.Duration(40+rng.IntN(60)) * time.Millisecond
}

// Over 500 seeds, or a sample of them, the true energy lies within E ± U (k = 2) in 93 to 98 % of the
// cases: the stated uncertainty is neither too small nor too large.
func TestCoverageOfTheWholeChain(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name string
		cfg  meter.Config
	}{
		{"clamp, 10 kS/s", meter.Config{Rate: 10e3, Spread: meter.Spread{
			UGainI: 0.006, UGainV: 0.002, UOffsetI: 0.03, UOffsetV: 0.008, UClock: 50e-6,
			NoiseI: 0.06, NoiseV: 0.006, ClockOffsetRange: 20 * ms,
		}}},
		{"shunt, 20 kS/s", meter.Config{Rate: 20e3, Wiring: measure.WiringShunt, Bits: 18, Spread: meter.Spread{
			UGainV: 30e-6, UOffsetV: 300e-6, UShunt: 0.005, UClock: 50e-6, NoiseV: 300e-6, ClockOffsetRange: 20 * ms,
		}}},
		{"noise and timing alone, 5 kS/s", meter.Config{Rate: 5e3, Spread: meter.Spread{
			UClock: 50e-6, NoiseI: 0.3, NoiseV: 0.02, ClockOffsetRange: 20 * ms,
		}}},
		{"timing alone, 20 kS/s", meter.Config{Rate: 20e3, Spread: meter.Spread{
			UClock: 50e-6, NoiseI: 0.02, NoiseV: 0.002, ClockOffsetRange: 20 * ms,
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seeds := coverage.Trials(500)
			outs := each(seeds, func(seed uint64) outcome {
				cfg := c.cfg
				cfg.Seed, cfg.Draw = seed, true
				bc, load, length := slews(seed)
				return task{board: bc, meter: cfg, kernel: load, length: length, stampNoise: 1e-6, seed: seed}.outcome()
			})
			if c := summary(t, outs); !raceEnabled && !coverage.Within(c, 0.93, 0.97, seeds) {
				t.Errorf("coverage %.1f %%, want 93 to 97 %%", 100*c)
			}
		})
	}
}

// TestCoverageOnEdges sweeps the shapes of a card's edges and short kernels, with a meter that has no errors to
// hide those of timing behind. Without the product's allowance for a kernel's own delay, what is left is the
// marker's uncertainty.
func TestCoverageOnEdges(t *testing.T) {
	coverage.Long(t)
	seeds := 60
	if !coverage.Slow {
		seeds = 20 // enough for all lengths together, not for each
	}
	least := func(t *testing.T, outs []outcome) {
		t.Helper()
		if c := summary(t, outs); !raceEnabled && c < 0.85 {
			t.Errorf("coverage %.1f %%, want at least 85 %% of 60", 100*c)
		}
	}
	for name, e := range board.Edges {
		t.Run(name, func(t *testing.T) {
			var all []outcome
			for _, length := range []time.Duration{500 * time.Microsecond, 10 * time.Millisecond, 100 * time.Millisecond} {
				outs := each(seeds, func(seed uint64) outcome {
					bc, load, _ := slews(seed)
					bc.Rise, bc.Fall = e[0], e[1]
					cfg := meter.Config{Rate: 20e3, Seed: seed, Draw: true, Spread: meter.Spread{
						UClock: 50e-6, NoiseI: 0.15, NoiseV: 0.005, ClockOffsetRange: 20 * time.Millisecond,
					}}
					return task{board: bc, meter: cfg, kernel: load, length: length, stampNoise: 1e-6, seed: seed}.outcome()
				})
				if all = append(all, outs...); coverage.Slow {
					least(t, outs)
				}
			}
			least(t, all)
		})
	}
}

// step100 is a board of one rail whose markers step from 100 W to 200 W.
func step100(seed uint64) board.Config {
	return board.Config{
		Seed:   seed,
		Levels: board.Levels{Idle: 30, ActiveIdle: 95, Sleep: 100, Full: 200},
		Rails:  []board.RailConfig{{Name: "aux_12v_1", Role: measure.RolePSU, Open: 12, Source: 0.005, Share: 1}},
	}
}

// miss is the time error of one marker and how that compares with its own U.
type miss struct {
	t, u float64
	err  error
}

// source is a meter that tells the device time of a board instant.
type source interface {
	Setup() measure.Setup
	Next(b *measure.Block, n int)
	Elapsed() time.Duration
	DeviceTime(at time.Duration) measure.Seconds
}

// timing plays one start marker and returns the error of the time found.
func timing(seed uint64, b *board.Board, s source, spec marker.Spec, block int) miss {
	rng := rand.New(rand.NewPCG(seed, 0x74696d65))
	lead := 4*spec.Chip.Duration() + time.Duration(rng.Int64N(int64(spec.Chip.Duration())))
	h := &hostClock{rng: rng}
	edges, end, err := lay(b, h, spec, marker.Start, s.Elapsed()+lead)
	if err != nil {
		return miss{err: err}
	}
	truth := s.DeviceTime(measure.Seconds(edges[spec.CodeStart()].host).Duration())
	setup := s.Setup()
	d, err := marker.NewDetector(spec, &setup)
	if err != nil {
		return miss{err: err}
	}
	var blk measure.Block
	// The detector wants to see the code's sidelobes before it reports.
	for until := end + spec.Duration().Duration(); s.Elapsed() < until; {
		s.Next(&blk, block)
		if err := d.Push(&blk); err != nil {
			return miss{err: err}
		}
	}
	if err := d.Finish(); err != nil {
		return miss{err: err}
	}
	if f := d.Found(); len(f) == 1 && f[0].Kind == marker.Start {
		return miss{t: float64(f[0].T - truth), u: float64(f[0].U)}
	}
	return miss{err: fmt.Errorf("seed %d: %w: %+v", seed, errNotFound, d.Found())}
}

var errNotFound = errors.New("not exactly the one start marker was found")

// rmsOf fails the test when the rms time error is over goal, a marker was
// missed, or its stated uncertainty is too small.
func rmsOf(t *testing.T, outs []miss, goal float64) {
	t.Helper()
	var sum, bias, within float64
	for _, o := range outs {
		if o.err != nil {
			t.Error(o.err)
			continue
		}
		sum += o.t * o.t
		bias += o.t
		if math.Abs(o.t) <= 2*o.u {
			within++
		}
	}
	n := float64(len(outs))
	rms := math.Sqrt(sum / n)
	t.Logf("%.3g µs rms, %+.3g µs mean, %.0f %% within 2 u (n = %d)", rms*1e6, bias/n*1e6, 100*within/n, len(outs))
	if raceEnabled {
		return
	}
	if rms > goal {
		t.Errorf("marker time error %.3g µs rms, goal %.3g µs", rms*1e6, goal*1e6)
	}
	if within < 0.9*n {
		t.Errorf("%.0f %% within 2 u, want 90 %%", 100*within/n)
	}
}

func TestMarkerTimingOnTheBoard(t *testing.T) {
	for _, c := range []struct {
		name  string
		noise measure.Watt
		goal  float64
		seeds int
	}{{"2 W of noise", 2, 5e-6, 200}, {"100 W of noise, 0 dB", 100, 200e-6, 120}} {
		t.Run(c.name, func(t *testing.T) {
			rmsOf(t, each(c.seeds, func(seed uint64) miss {
				b, err := board.New(step100(seed))
				if err != nil {
					return miss{err: err}
				}
				s, err := meter.NewSampler(b, meter.Config{
					Seed: seed, Rate: 4800, CurrentRange: 100, Draw: true,
					Spread: meter.Spread{
						NoiseI: measure.Ampere(c.noise / 12), UClock: 50e-6,
						ClockOffsetRange: time.Millisecond,
					},
				})
				if err != nil {
					return miss{err: err}
				}
				return timing(seed, b, s, marker.FastProfile(4800, uint32(seed)), 256)
			}), c.goal)
		})
	}
}

func TestMarkerTimingOfSlowSensors(t *testing.T) {
	for _, c := range []struct {
		name  string
		cfg   slowConfig
		goal  float64
		seeds int
	}{
		{"100 ms / 25 ms", nvml100of25, 1e-3, 40},
		{"20 ms / 10 ms", nvml20of10, 1e-3, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			rmsOf(t, each(c.seeds, func(seed uint64) miss {
				b, err := board.New(step100(seed))
				if err != nil {
					return miss{err: err}
				}
				cfg := c.cfg
				cfg.Seed, cfg.Noise, cfg.Jitter = seed, 0.5, 2*time.Millisecond
				s, err := newSlow(b, cfg)
				if err != nil {
					return miss{err: err}
				}
				spec := marker.SensorProfile(measure.SecondsOf(cfg.Update), uint32(seed)&15)
				return timing(seed, b, s, spec, 64)
			}), c.goal)
		})
	}
}
