package measurement

import (
	"math"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// trace is a power in stretches: w[i] from at[i] on, with e[i] joules before.
type trace struct{ at, w, e []float64 }

func (p *trace) add(at, w float64) {
	e, n := 0.0, len(p.at)-1
	if n >= 0 {
		e = p.e[n] + p.w[n]*(at-p.at[n])
	}
	p.at, p.w, p.e = append(p.at, at), append(p.w, w), append(p.e, e)
}

// energy is the integral up to t.
func (p *trace) energy(t float64) float64 {
	i := sort.SearchFloat64s(p.at, t) - 1
	return p.e[i] + p.w[i]*(t-p.at[i])
}

// lagged is the power at t behind a first-order lag.
func (p *trace) lagged(t, tau float64) (w float64) {
	i := sort.SearchFloat64s(p.at, t) - 1
	for ; i >= 0; i-- {
		from := 1 - math.Exp((p.at[i]-t)/tau)
		to := 0.0
		if i+1 < len(p.at) {
			to = max(1-math.Exp((p.at[i+1]-t)/tau), 0)
		}
		w += p.w[i] * (from - to)
	}
	return w
}

// sensed are the readings of a sensor, polled every 3 ms, that shows a new value every 100 ms.
func (p *trace) sensed(rng *rand.Rand, r measure.Response, delay, end float64) []int32 {
	out := make([]int32, int(end/3e-3))
	next, value := rng.Float64()*float64(r.Update), 0.0
	for i := range out {
		for ; next <= float64(i)*3e-3; next += float64(r.Update) * 1.0001 {
			at := max(next-delay, 0.11)
			if r.Tau > 0 {
				value = p.lagged(at, float64(r.Tau))
			} else {
				value = (p.energy(at) - p.energy(at-float64(r.Window))) / float64(r.Window)
			}
			value += 0.3 * rng.NormFloat64()
		}
		out[i] = int32(math.Round(1e3 * value))
	}
	return out
}

// paused is a program of three names of 0.4 to 2 s with pauses of a mean length. With twins a fourth always runs beside
// the first.
type paused struct {
	pause float64
	twins bool
	trace
	runs  []attribute.Kernel
	truth map[string]float64 // J by line; "" for the pauses
	end   measure.Seconds
}

func (p *paused) play(rng *rand.Rand) {
	now, names := 1.0, "abcd"
	p.truth = map[string]float64{}
	p.add(0, 80)
	for now < 30 {
		n := rng.IntN(3)
		length, w := between(rng, 0.4, 0.8)*(1+0.7*float64(n)), 200+150*float64((n+1)%3)
		p.add(now, w)
		p.truth[names[n:n+1]] += w * length
		k := attribute.Kernel{Name: n, Start: measure.Seconds(now), End: measure.Seconds(now + length)}
		p.runs, p.end = append(p.runs, k), k.End
		if k.Name = 3; n == 0 && p.twins {
			p.runs = append(p.runs, k)
		}
		p.add(now+length, 85)
		now += length + p.pause*between(rng, 0.2, 1.8)
	}
	p.truth[""] = p.energy(float64(p.end)) - p.energy(1) - p.truth["a"] - p.truth["b"] - p.truth["c"]
	p.add(float64(p.end), 80)
}

// measured are the lines of the program as a GPU's own sensor reads it, and the window's energy.
func (p *paused) measured(t *testing.T, r measure.Response, seed uint64) ([]store.NameEnergy, *measure.Estimate) {
	t.Helper()
	const delay = 0.01
	rng := rand.New(rand.NewPCG(seed, 71))
	p.play(rng)
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, UTickHz: 20e-6, TicksPerScan: 3e3}, Response: r,
		Channels: []measure.Channel{{Name: "gpu", Unit: measure.UnitWatt, Gain: 1e-3, UGain: 1e-3, UOffset: 0.1, Skew: -delay}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
	}
	db := &shelf{task: store.Task{ID: 1, NewTask: store.NewTask{Marker: marker.ProfileFor(setup, 3)}}}
	db.task.Setup, db.task.Clock = setup, &clock.Fit{B: 1, VarA: 1e-5}
	rec := &Recording{Runs: []Run{{Counts: [][]int32{p.sensed(rng, r, delay, float64(p.end)+3)}}}}
	var err error
	if db.found, err = db.capture(rec); err != nil {
		t.Fatal(err)
	}
	edges := measure.Edges{UFrom: 3e-3, UTo: 3e-3}
	if db.task.Result, err = Integrate(t.Context(), db, &db.task, Window{From: 0.7, To: p.end + 0.3}, edges); err != nil {
		t.Fatal(err)
	}
	s := &sharing{ctx: t.Context(), db: db, task: &db.task, tables: &store.LaunchTables{Names: []string{"a", "b", "c", "d"}}}
	s.spans = func(yield func(attribute.Kernel, error) bool) {
		for i := 0; i < len(p.runs) && yield(p.runs[i], nil); i++ {
		}
	}
	all, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	lines, err := s.lines(all)
	if err != nil {
		t.Fatal(err)
	}
	return lines, &db.task.Result.Total
}

// check returns how many lines but that of before and after there are, and how many hold the truth within U.
func (p *paused) check(t *testing.T, lines []store.NameEnergy, whole *measure.Estimate) (within, n int) {
	t.Helper()
	var sum measure.Joule
	for i := range lines {
		l := &lines[i]
		sum += l.Energy.Energy
		if most := max(l.Energy.Energy, whole.Energy+whole.U-l.Energy.Energy); l.Energy.U > most {
			t.Errorf("%s: %v ± %v: U is above %v", l.Name, l.Energy.Energy, l.Energy.U, most)
		}
		if l.Class == store.IdleEnergy {
			continue
		}
		want := p.truth[strings.TrimSuffix(l.Name, store.Together+"d")]
		if n++; math.Abs(float64(l.Energy.Energy)-want) <= float64(l.Energy.U) {
			within++
		}
	}
	if n != len(p.truth) || math.Abs(float64(sum/whole.Energy)-1) > 1e-9 {
		t.Errorf("%d lines come to %v of %v", n, sum, whole.Energy)
	}
	return within, n
}

// Pauses that a GPU's sensor cannot resolve take nothing from the long kernels beside them: the lines of both hold their
// energy, and each has one of its own but kernels that always run together.
func TestLinesHoldBesidePausesTooShortForTheSensor(t *testing.T) {
	for _, r := range []measure.Response{
		{Update: 0.1, Tau: 0.0132}, {Update: 0.1, Window: 0.025}, {Update: 0.1, Window: 0.1},
	} {
		for _, pause := range []float64{0.005, 0.05, 0.2, 0.8} {
			within, n := 0, 0
			for seed := range uint64(6) {
				p := &paused{pause: pause, twins: seed == 5 && pause < 0.3}
				lines, whole := p.measured(t, r, seed)
				in, all := p.check(t, lines, whole)
				within, n = within+in, n+all
			}
			if float64(within) < 0.93*float64(n) {
				t.Errorf("%+v, pauses of %v s: %d of %d lines within U", r, pause, within, n)
			}
		}
	}
}
