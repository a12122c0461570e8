package measurement_test

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/meter"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/gonum/stat"
)

// late is how long after its update a value of the sensor appears.
const late = 10 * time.Millisecond

// registers are a simulated GPU's, as NVML reads them.
type registers struct{ *sim.Sensor }

func (registers) Info() nvml.Info {
	return nvml.Info{Name: "NVIDIA H200", UUID: "GPU-1", Driver: "580"}
}
func (registers) Close() error { return nil }
func (r registers) Read() (nvml.Reading, error) {
	p, err := r.Sensor.Read()
	return nvml.Reading{Instant: int32(1e3 * p.Instant), Average: int32(1e3 * p.Average), Usage: int32(1e3 * p.Usage)}, err
}

// behind is a clock that is late.
type behind struct{ sim.Wall }

func (behind) Now() time.Time { return time.Now().Add(-late) }

// ownSensor makes the GPU's sensor the meter.
func (b *bench) ownSensor(t *testing.T) (instrument.Instrument, measure.Setup) {
	t.Helper()
	open := func(context.Context, string) (nvml.Sensor, error) {
		return registers{sim.NewSensor(b.live, behind{}, sim.Response{
			Update: 100*time.Millisecond + 10*time.Microsecond, Instant: 25 * time.Millisecond, Average: time.Second,
		})}, nil
	}
	d, err := nvml.New(nvml.Kind, "", nvml.Defaults(), open)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := d.Inputs()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	in.Channels[0].UGain, in.Channels[0].UOffset = 1e-6, 1e-3 // the simulated sensor has no error
	return d, measure.Setup{
		Timebase: in.Timebase, Response: in.Response, Channels: in.Channels,
		Rails: []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
	}
}

// briefCase is a program of launches of known power.
type briefCase struct {
	rate   measure.Hertz // of the meter; 0 for the GPU's own sensor
	edges  string
	length time.Duration
	next   order
}

// order returns the name of launch number i, behind one of the name before.
type order func(rng *rand.Rand, i, before int) int

// launch is one of a program, from its begin.
type launch struct {
	name     int
	from, to time.Duration
}

const tenNames = 10

func tenPower(n int) measure.Watt { return 80 + 320*measure.Watt(n*7%tenNames)/9 }

// randomly draws names.
func randomly(rng *rand.Rand, _, _ int) int { return rng.IntN(tenNames) }

// inTurn has one order for ever.
func inTurn(_ *rand.Rand, i, _ int) int { return i % tenNames }

// paired has name 1 behind each launch of name 0, and nowhere else.
func paired(rng *rand.Rand, _, before int) int {
	if before == 0 {
		return 1
	}
	for {
		if n := rng.IntN(tenNames); n != 1 {
			return n
		}
	}
}

// program makes launches of 20 to 200 µs, with pauses of 1 to 5 µs.
func (c *briefCase) program(rng *rand.Rand) (steps []load.Step, launches []launch) {
	at, name := time.Duration(0), -1
	for i := 0; at < c.length; i++ {
		name = c.next(rng, i, name)
		length := time.Duration(20*(1+name)) * time.Microsecond
		pause := time.Microsecond + time.Duration(rng.IntN(4000))
		steps = append(steps, load.Step{Level: tenPower(name), For: length}, load.Step{Load: load.ActiveIdle, For: pause})
		launches = append(launches, launch{name, at, at + length})
		at += length + pause
	}
	return steps, launches
}

// drawn is the energy that a card draws for each name, and at last for the pauses: how much less it draws without a
// launch, with the pause behind it, and when pauses are shorter by a tenth. It is power times time on a card
// that follows rises and falls alike. Of each name every eighth launch is left out at a time, so that one
// launch does not bear on another; phases are how many of the eight are looked at. program is what it draws for
// all launches and pauses.
func (c *briefCase) drawn(t *testing.T, card board.Config, steps []load.Step, launches []launch, phases int) (out []float64, program float64) {
	t.Helper()
	energy := func(without func(i int) bool, pause time.Duration) float64 {
		m, err := board.New(card)
		if err != nil {
			t.Fatal(err)
		}
		changes := []board.Change{{At: 0, Level: 58}}
		at := time.Second
		for i, s := range steps {
			if without(i / 2) {
				continue
			}
			level, length := s.Level, s.For
			if i%2 == 1 {
				level, length = 58, length*pause/10
			}
			changes = append(changes, board.Change{At: at, Level: level})
			at += length
		}
		if _, err := m.SetLevels(append(changes, board.Change{At: at, Level: 58})); err != nil {
			t.Fatal(err)
		}
		e, err := m.Energy(0, at+5*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		return float64(e.Total)
	}
	number, count := make([]int, len(launches)), [tenNames]int{} // of each launch among those of its name
	for i, l := range launches {
		number[i] = count[l.name]
		count[l.name]++
	}
	all := func(int) bool { return false }
	whole := energy(all, 10)
	out = make([]float64, tenNames+1)
	out[tenNames] = 10 * (whole - energy(all, 9))
	program = whole - 58*1.005
	for n := range tenNames {
		for phase := range phases {
			out[n] += 8 / float64(phases) * (whole - energy(func(i int) bool {
				return launches[i].name == n && number[i]%8 == phase
			}, 10))
		}
		out[n] -= out[tenNames] * float64(count[n]) / float64(len(launches))
	}
	return out, program
}

// briefLog writes the log of a program that began at an instant.
func briefLog(t *testing.T, begin time.Time, launches []launch) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "1")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := launchlog.NewWriter(f, 1, 130001, begin.UnixNano())
	w.Device(0, [16]byte{7})
	var names [tenNames]uint32
	for i := range names {
		names[i], _ = w.Name([]byte{'k', byte('0' + i)})
	}
	for _, l := range launches {
		w.Kernel(&launchlog.Kernel{Name: names[l.name], Start: begin.Add(l.from).UnixNano(), End: begin.Add(l.to).UnixNano()})
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

// briefLine is a line of the result beside the truth.
type briefLine struct {
	names          []int
	energy, u, own float64
}

// measure runs one program on the bench, and returns its lines of kernels.
func (c *briefCase) measure(t *testing.T, seed uint64) (out []briefLine) {
	m := meter.Config{Seed: seed, Rate: max(c.rate, 1e3), Spread: meter.Spread{NoiseI: 0.1}}
	edges := board.Edges[c.edges]
	b := &bench{card: board.Config{Rise: edges[0], Fall: edges[1], Drift: -1}, nvml: c.rate == 0}
	inVirtualTimeOn(t, b, m, func(t *testing.T, b *bench) {
		ctx := t.Context()
		steps, launches := c.program(rand.New(rand.NewPCG(seed, 31)))
		var began time.Time
		cfg := b.config()
		cfg.Marker, cfg.Lead = nil, 0 // chips of 1 ms are too short for the slowest of the edges
		id, err := measurement.Measure(ctx, cfg, func(context.Context) ([]gpu.Kernel, error) {
			begin := time.Now()
			var err error
			if began, err = b.live.SetSteps(begin.Add(5*time.Millisecond), append(steps, load.Step{Load: load.ActiveIdle})); err != nil {
				return nil, err
			}
			time.Sleep(time.Until(began.Add(launches[len(launches)-1].to + 5*time.Millisecond)))
			return []gpu.Kernel{{Name: "program", Span: gpu.Span{Start: begin, End: time.Now()}}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		card := gpu.Info{UUID: "GPU-07000000-0000-0000-0000-000000000000"}
		if _, err := measurement.StoreLaunches(ctx, b.db, id, briefLog(t, began, launches), card); err != nil {
			t.Fatal(err)
		}
		lines, err := measurement.Attribute(ctx, b.db, id)
		if err != nil {
			t.Fatal(err)
		}
		phases := 8
		if b.nvml {
			phases = 1
		}
		truth, program := c.drawn(t, b.card, steps, launches, phases)
		for _, l := range lines {
			switch l.Class {
			case store.IdleEnergy:
				continue
			case store.ActiveIdleEnergy:
				l.Name = "(between kernels)"
			}
			x := briefLine{energy: float64(l.Energy.Energy), u: float64(l.Energy.U)}
			for _, name := range strings.Split(l.Name, store.Together) {
				n := tenNames // between kernels
				if name[0] == 'k' {
					n = int(name[1] - '0')
				}
				x.names, x.own = append(x.names, n), x.own+truth[n]
			}
			if len(x.names) == tenNames+1 { // of all kernels, with or without the pauses
				x.own = program
			} else if len(x.names) == tenNames && !slices.Contains(x.names, tenNames) {
				x.own = program - truth[tenNames]
			}
			slices.Sort(x.names)
			out = append(out, x)
		}
	})
	return out
}

// tally counts lines that hold the truth.
type tally struct {
	lines, within, single int
	u                     float64   // sum of U over the truth
	programs              []float64 // the share of each
}

func (n *tally) add(lines []briefLine) {
	within := n.within
	for _, l := range lines {
		n.lines++
		n.u += l.u / l.own
		if len(l.names) == 1 {
			n.single++
		}
		if math.Abs(l.energy-l.own) <= l.u {
			n.within++
		}
	}
	n.programs = append(n.programs, float64(n.within-within)/float64(len(lines)))
}

// check holds the count of lines within U against a share of 93 to 97 %. The lines of a program have errors in common:
// the scatter of the share is that between programs, where that is more than independent lines have.
func (n *tally) check(t *testing.T) {
	t.Helper()
	t.Logf("%d of %d lines within U, %d single, mean U %.2g %%", n.within, n.lines, n.single, 100*n.u/float64(n.lines))
	share, slack := float64(n.within)/float64(n.lines), 2*math.Sqrt(0.95*0.05/float64(n.lines))
	slack = max(slack, 2*stat.StdErr(stat.StdDev(n.programs, nil), float64(len(n.programs))))
	if share < 0.93-slack || share > 0.97+slack {
		t.Errorf("%d of %d lines within U; by program %.2f", n.within, n.lines, n.programs)
	}
}

var briefTrials = flag.Int("brief-trials", 1, "programs a case in TestBriefKernels, with the tag slow")

// TestBriefKernels runs programs of ten short kernels of known power on emulated cards and holds each line against
// the energy that the card draws for it. Names in random order are told apart; a name that always
// follows another is in one line with it.
func TestBriefKernels(t *testing.T) {
	coverage.Long(t)
	edges, trials := []string{"exponential", "ramp", "two-step", "stacked"}, *briefTrials
	rates := map[string]briefCase{
		"20 kS/s": {rate: 20e3, length: 500 * time.Millisecond}, "4.8 kS/s": {rate: 4800, length: time.Second},
		"the GPU's sensor": {length: 20 * time.Second},
	}
	if !coverage.Slow {
		edges, trials = edges[1:3], 2
		rates = map[string]briefCase{"20 kS/s": {rate: 20e3, length: 200 * time.Millisecond}}
	}
	for rate, c := range rates {
		for order, next := range map[string]order{"random order": randomly, "one follows another": paired} {
			t.Run(rate+", "+order, func(t *testing.T) {
				var n tally
				c.next = next
				for _, c.edges = range edges {
					for seed := range uint64(trials) {
						lines := c.measure(t, seed+1)
						n.add(lines)
						for _, l := range lines {
							if order != "random order" && slices.Contains(l.names, 0) != slices.Contains(l.names, 1) {
								t.Errorf("%s: a line of %v", c.edges, l.names)
							}
						}
					}
				}
				n.check(t)
				// At least seven of eight, within two standard deviations: with a slow sensor the number scatters.
				if most := 7. / 8 * float64(n.lines); order == "random order" && float64(n.single) < most-2*math.Sqrt(most/8) {
					t.Errorf("%d of %d lines are of one name", n.single, n.lines)
				}
			})
		}
	}
}

// Ten names that always follow each other in one order are not told apart: one line has their joint energy.
func TestBriefKernelsInTurn(t *testing.T) {
	for _, c := range []briefCase{{rate: 20e3, length: 300 * time.Millisecond}, {rate: 4800, length: 500 * time.Millisecond}} {
		c.edges, c.next = "two-step", inTurn
		for _, l := range c.measure(t, 1) {
			if len(l.names) > 1 && math.Abs(l.energy-l.own) > l.u || len(l.names) > 1 && len(l.names) < tenNames ||
				len(l.names) == 1 && l.names[0] < tenNames {
				t.Errorf("%v: %v ± %v J, drawn %v J", l.names, l.energy, l.u, l.own)
			}
		}
	}
}
