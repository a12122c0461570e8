package validate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/measure/clock"
)

// world is a load with a known power, that a meter and sensors look at.
type world struct {
	power func(t float64) float64
	rate  float64 // of the meter
	from  float64 // of its samples
	to    float64
	noise float64
	rng   *rand.Rand
}

// truth yields the meter's samples.
func (w world) truth() iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		n := int((w.to - w.from) * w.rate)
		for i := range n + 1 {
			at := w.from + float64(i)/w.rate
			p := w.power(at)
			if w.noise > 0 {
				p += w.noise * w.rng.NormFloat64()
			}
			if !yield(Sample{measure.Seconds(at), measure.Watt(p)}, nil) {
				return
			}
		}
	}
}

// sensor reads the mean of the power over a window before each update, polled.
func (w world) sensor(poll, update, window, phase, gain float64) (out []Reading) {
	for at := w.from; at <= w.to; at += poll {
		u := math.Floor((at-phase)/update)*update + phase
		const steps = 200
		var sum float64
		for i := range steps {
			sum += w.power(u - window*(float64(i)+0.5)/steps)
		}
		out = append(out, Reading{measure.Seconds(at), measure.Watt(gain * sum / steps)})
	}
	return out
}

// square is 400 W and 100 W in turn, each for half of a period, within the work.
func square(period, from, to float64) func(float64) float64 {
	return func(t float64) float64 {
		if t < from || t >= to || math.Mod(t-from, period) >= period/2 {
			return 100
		}
		return 400
	}
}

var nan = measure.Joule(math.NaN())

// alternating is a subject of 5 s of pulses that an instant field sees the rest of.
func alternating() Subject {
	w := world{power: square(0.1, 0, 5), rate: 10000, from: -1.5, to: 6}
	s := Subject{
		Name: "pulses", GPU: "model card", Driver: "1", Truth: w.truth(), Work: Span{0, 5}, Systematic: 0.002,
		Methods: []Method{
			{Name: "instant", Readings: w.sensor(0.01, 0.1, 0.025, 0, 1), Energy: nan},
			{Name: "average", Readings: w.sensor(0.01, 0.1, 1, 0, 1), Energy: nan},
			{Name: "counter", Energy: 1252, Readings: w.sensor(0.1, 0.1, 0.1, 0, 1)},
			{Name: "papi", Energy: 1200, Readings: []Reading{{5.001, 240}}},
		},
	}
	for i := range 50 {
		at := measure.Seconds(float64(i) * 0.1)
		s.Kernels = append(s.Kernels, Kernel{"pulse", Span{at, at + 0.05}})
	}
	return s
}

func validateOK(t *testing.T, s Subject, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func around[T ~float64](t *testing.T, what string, value T, want, within float64) {
	t.Helper()
	if got := float64(value); !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %.6g, want %.6g within %.2g", what, got, want, within)
	}
}

func TestAlternatingLoad(t *testing.T) {
	r := validateOK(t, alternating(), Options{Seed: 1})
	around(t, "energy", float64(r.Truth.Energy), 1250, 0.2)
	around(t, "its U", float64(r.Truth.U), 2*0.002*1250, 0.02)
	around(t, "mean", float64(r.Mean), 250, 0.05)
	around(t, "peak", float64(r.Peak), 400, 0)
	if !(r.Alternation > 0.95) || !(r.Swing > 0.5) {
		t.Errorf("alternation %v, swing %v", r.Alternation, r.Swing)
	}
	instant, average, counter, papi := &r.Methods[0], &r.Methods[1], &r.Methods[2], &r.Methods[3]
	// It sees the last 25 ms of every period, which are rest; at the very first update,
	// what came before.
	around(t, "instant", instant.ErrorPct, -60, 0.1)
	around(t, "its bias", float64(instant.Bias), -150, 0.2)
	around(t, "its RMSE", float64(instant.RMSE), math.Sqrt(300*300/2), 12)
	around(t, "the average's update", float64(average.Update), 0.1, 0.001)
	if !math.IsNaN(float64(instant.Update)) {
		t.Errorf("a steady reading is said to have updates every %v", instant.Update)
	}
	if instant.Agreement != Reads || instant.Interval.Hi > -58 || instant.Interval.Lo < -62 {
		t.Errorf("instant: %+v", instant)
	}
	// The mean of a second rises over the first: half of a second's 150 W is missed.
	around(t, "instant's blocks, in periods", float64(instant.Block)/0.1, math.Round(float64(instant.Block)/0.1), 1e-6)
	around(t, "average", average.ErrorPct, -100*(0.5+0.05)*150/1250, 0.2)
	// All of that comes from the begin and the end of the work.
	around(t, "average's ends", average.EndsPct, float64(average.ErrorPct), 0.3)
	if average.Interval.Lo > 0 || average.Interval.Hi < 0 || average.Interval.Hi-average.Interval.Lo > 2 || !average.LateEnds() {
		t.Errorf("average without its ends: %+v", average)
	}
	around(t, "counter", counter.ErrorPct, 0.16, 0.02)
	if counter.Agreement != Agrees || !counter.Own || average.Own {
		t.Errorf("counter %+v, average %+v", counter, average)
	}
	around(t, "papi", papi.ErrorPct, -4, 0.02)
	around(t, "papi's U", papi.ErrorPct-papi.Interval.Lo, 0.4*0.96, 0.01)
	around(t, "papi's bias", float64(papi.Bias), -10, 0.05)
	for _, want := range []string{"instant reads 60.00 ± ", "low over this work: do not use it for kernels that alternate", "counter is within the uncertainty"} {
		if !strings.Contains(r.Verdict, want) {
			t.Errorf("%q is not in %q", want, r.Verdict)
		}
	}
	if len(r.Kernels) != 1 || r.Kernels[0].Launches != 50 {
		t.Fatalf("%+v", r.Kernels)
	}
	k := r.Kernels[0]
	around(t, "kernels' energy", float64(k.Truth.Energy), 1000, 1)
	around(t, "kernels' time", float64(k.Busy), 2.5, 1e-9)
	around(t, "instant of the kernels", k.Methods[0].ErrorPct, -75, 0.2)
}

// A sensor that trails the power by a known time is found to.
func TestLag(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	within := 0
	const times = 30
	for range times {
		edges := []float64{-2}
		for edges[len(edges)-1] < 8 {
			edges = append(edges, edges[len(edges)-1]+0.15+0.5*rng.ExpFloat64())
		}
		w := world{rate: 2000, from: -2, to: 8, power: func(t float64) float64 {
			n := 0
			for n < len(edges) && edges[n] <= t {
				n++
			}
			return 100 + 200*float64(n%2)
		}}
		// The mean of the window lies half of it before its update, and is held for an
		// update: half of that late, too.
		window, update := 0.025, 0.02+0.08*rng.Float64()
		want := window/2 + update/2
		r := validateOK(t, Subject{
			Name: "lag", Truth: w.truth(), Work: Span{0, 6}, Clock: Clock{OffsetU: 1e-4},
			Methods: []Method{{Name: "instant", Readings: w.sensor(0.002, update, window, rng.Float64(), 1), Energy: nan}},
		}, Options{Resamples: 200})
		m := &r.Methods[0]
		if !(math.Abs(float64(m.Lag)-want) < 0.03) || m.LagNote != "" {
			t.Errorf("lag %v ± %v (%s), want %v", m.Lag, m.LagU, m.LagNote, measure.Seconds(want))
		}
		if math.Abs(float64(m.Lag)-want) <= float64(m.LagU) {
			within++
		}
	}
	if within < times*8/10 {
		t.Errorf("within U in %d of %d", within, times)
	}
	t.Logf("within U in %d of %d", within, times)
}

// autoregressive is a power that wanders, one value a millisecond.
func autoregressive(rng *rand.Rand, n int, tau, mean, sd float64) []float64 {
	phi := math.Exp(-1 / tau)
	x, v := make([]float64, n), sd*rng.NormFloat64()
	for i := range x {
		x[i] = mean + v
		v = phi*v + sd*math.Sqrt(1-phi*phi)*rng.NormFloat64()
	}
	return x
}

// The interval of an error holds what the sensor is off by in the long run in 93 to
// 97 % of the cases, for noise that depends on itself, with the meter's own gain in
// error by as much as it states.
func TestErrorCoverage(t *testing.T) {
	const n = 1000
	times := coverage.Trials(600)
	for _, c := range []struct {
		name      string
		tau, gain float64 // of the noise, in ms; of the sensor
		u         float64 // of the meter
	}{{"noise alone", 4, 0.9, 0}, {"noise and the meter's gain", 4, 1.05, 0.003}} {
		rng := rand.New(rand.NewPCG(3, uint64(c.tau)))
		in := 0
		for i := range times {
			p, e := autoregressive(rng, n+1, 20, 300, 30), autoregressive(rng, n+1, c.tau, 0, 15)
			off := 1 + c.u*rng.NormFloat64()
			s := Subject{Name: "noise", Work: Span{0, n / 1e3}, Systematic: c.u}
			m := Method{Name: "sensor", Energy: nan}
			for k := range p {
				m.Readings = append(m.Readings, Reading{measure.Seconds(float64(k) / 1e3), measure.Watt(c.gain*p[k] + e[k])})
			}
			s.Truth = func(yield func(Sample, error) bool) {
				for k := range p {
					if !yield(Sample{measure.Seconds(float64(k) / 1e3), measure.Watt(off * p[k])}, nil) {
						return
					}
				}
			}
			s.Methods = []Method{m}
			r := validateOK(t, s, Options{Resamples: 250, Seed: uint64(i), Columns: 10})
			if want := measure.Number(100 * (c.gain - 1)); r.Methods[0].Interval.Lo <= want && want <= r.Methods[0].Interval.Hi {
				in++
			}
		}
		share := 100 * float64(in) / float64(times)
		if !coverage.Within(share/100, 0.93, 0.97, times) {
			t.Errorf("%s: held in %.1f %%", c.name, share)
		}
		t.Logf("%s: held in %.1f %%", c.name, share)
	}
}

// What moves the window's ends moves the truth's energy, and a steady end does not.
func TestClockUncertainty(t *testing.T) {
	step := func(t float64) float64 {
		if t < 1 {
			return 100
		}
		return 300
	}
	w := world{power: step, rate: 10000, from: -1, to: 3}
	s := Subject{
		Name: "step", Truth: w.truth(), Work: Span{0.5, 2}, Clock: Clock{OffsetU: 0.02},
		Methods: []Method{{Name: "x", Readings: w.sensor(0.01, 0.01, 0.01, 0, 1), Energy: nan}},
	}
	r := validateOK(t, s, Options{})
	around(t, "U", float64(r.Truth.U), 0.02*200, 0.01) // both ends move alike: 10 ms · (300 − 100) W, twice
	s.Truth, s.Clock = w.truth(), Clock{OffsetU: measure.Seconds(math.NaN())}
	if r := validateOK(t, s, Options{}); r.Truth.U != 0 || len(r.Cautions) != 1 || !strings.Contains(r.Cautions[0], "clock") {
		t.Errorf("U %v, cautions %q", r.Truth.U, r.Cautions)
	}
	s.Truth, s.Clock, s.Gaps = w.truth(), Clock{}, []Span{{1.5, 1.6}, {5, 6}}
	r = validateOK(t, s, Options{})
	spread := math.Sqrt(2.0/9) * 200 // a third of the work at 100 W
	around(t, "U of a gap", float64(r.Truth.U), 2*0.1*spread, 0.1)
	around(t, "lost", float64(r.Lost), 0.1, 1e-9)
}

func TestMissingRails(t *testing.T) {
	s := alternating()
	s.Missing = []string{"slot_3v3"}
	r := validateOK(t, s, Options{})
	if !strings.Contains(r.Verdict, "the meter does not see slot_3v3, so that true errors lie up to 4.3 % lower") {
		t.Error(r.Verdict)
	}
	around(t, "bound", float64(r.MissingPower), 10.8, 0)
	s = alternating()
	s.Missing = []string{"slot 12 V", "pcie_3v3", "aux_12v_2"}
	r = validateOK(t, s, Options{})
	if got := []float64{float64(r.Missing[0].Most), float64(r.Missing[1].Most)}; got[0] != 71.3 || got[1] != 10.8 || !math.IsNaN(float64(r.Missing[2].Most)) {
		t.Errorf("%+v", r.Missing)
	}
	if !math.IsNaN(float64(r.MissingPower)) || !strings.Contains(r.Verdict, "by what nothing bounds") {
		t.Errorf("%v: %s", r.MissingPower, r.Verdict)
	}
}

// The same subject gives the same report, and another seed another interval.
func TestSeed(t *testing.T) {
	a, b, c := validateOK(t, alternating(), Options{Seed: 3}), validateOK(t, alternating(), Options{Seed: 3}), validateOK(t, alternating(), Options{Seed: 4})
	if a.Methods[1].Interval.Lo != b.Methods[1].Interval.Lo || a.Methods[1].Interval.Lo == c.Methods[1].Interval.Lo {
		t.Errorf("%v, %v, %v", a.Methods[1].Interval.Lo, b.Methods[1].Interval.Lo, c.Methods[1].Interval.Lo)
	}
}

func TestSilentMethods(t *testing.T) {
	s := alternating()
	s.Methods = []Method{
		{Name: "none", Energy: nan},
		{Name: "told", Energy: nan, Note: "no reading fell into 5 s"},
		{Name: "late", Energy: nan, Readings: []Reading{{4, 250}, {4.5, 250}, {5, 250}}},
	}
	r := validateOK(t, s, Options{})
	for i, want := range []string{"it has no readings", "no reading fell into 5 s", "do not reach over the work"} {
		if m := &r.Methods[i]; m.Agreement != Unknown || measure.Known(m.ErrorPct) || !strings.Contains(m.Note, want) {
			t.Errorf("%+v", m)
		}
	}
	if r.Verdict != "no method says what this work took" {
		t.Error(r.Verdict)
	}
}

func list(samples ...Sample) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		for _, s := range samples {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		name string
		edit func(*Subject)
		want string
	}{
		{"no truth", func(s *Subject) { s.Truth = nil }, "no samples of a meter"},
		{"no samples", func(s *Subject) { s.Truth = list() }, "0 samples"},
		{"one sample", func(s *Subject) { s.Truth = list(Sample{1, 2}) }, "1 sample"},
		{"no length", func(s *Subject) { s.Work = Span{2, 2} }, "no length"},
		{"backwards", func(s *Subject) { s.Work = Span{3, 2} }, "no length"},
		{"no window", func(s *Subject) { s.Work = Span{0, measure.Seconds(math.NaN())} }, "give it a window"},
		{"elsewhere", func(s *Subject) { s.Work = Span{100, 105} }, "choose a work within the samples"},
		{"dark", func(s *Subject) { s.Truth = list(Sample{-2, 0}, Sample{8, 0}) }, "check its wiring"},
		{"no methods", func(s *Subject) { s.Methods = nil }, "without --no-methods"},
		{"no name", func(s *Subject) { s.Methods[1].Name = "" }, "no name"},
		{"NaN sample", func(s *Subject) { s.Truth = list(Sample{-2, 1}, Sample{3, measure.Watt(math.NaN())}) }, "sample 2: NaN W"},
		{"samples out of order", func(s *Subject) { s.Truth = list(Sample{-2, 1}, Sample{3, 1}, Sample{2.5, 1}) }, "sort the samples"},
		{"NaN reading", func(s *Subject) { s.Methods[0].Readings[4].Power = measure.Watt(inf) }, "method instant: reading 5"},
		{"readings out of order", func(s *Subject) { s.Methods[0].Readings[4].At = 99 }, "sort the readings"},
		{"uncertainty", func(s *Subject) { s.Systematic = -1 }, "uncertainty"},
		{"offset", func(s *Subject) { s.Offset = measure.Watt(inf) }, "uncertainty"},
		{"kernel", func(s *Subject) { s.Kernels[3].To = s.Kernels[3].From - 1 }, "kernel 4 (pulse)"},
		{"gap", func(s *Subject) { s.Gaps = []Span{{2, 1}} }, "gap 1"},
	} {
		s := alternating()
		c.edit(&s)
		_, err := Run(t.Context(), s, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "pulses: ") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s, lost := alternating(), errors.New("disk is gone")
	s.Truth = func(yield func(Sample, error) bool) { yield(Sample{}, lost) }
	if _, err := Run(t.Context(), s, Options{}); !errors.Is(err, lost) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, alternating(), Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Memory does not grow with the meter's samples: ten times as many cost no more
// allocations.
func TestFlatMemory(t *testing.T) {
	run := func(rate float64) float64 {
		w := world{power: func(float64) float64 { return 100 }, rate: rate, from: -1, to: 3}
		readings := w.sensor(0.01, 0.1, 0.1, 0, 1)
		return testing.AllocsPerRun(2, func() {
			validateOK(t, Subject{Name: "x", Truth: w.truth(), Work: Span{0, 2}, Methods: []Method{{Name: "m", Readings: readings, Energy: nan}}}, Options{Resamples: 100})
		})
	}
	if few, many := run(5e3), run(5e4); many > few+20 {
		t.Errorf("%v allocations for 20 000 samples, %v for 200 000", few, many)
	}
}

func BenchmarkMillionSamples(b *testing.B) {
	w := world{power: square(0.1, 0, 48), rate: 20000, from: -1, to: 49}
	s := Subject{Name: "x", Work: Span{0, 48}}
	for _, n := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		s.Methods = append(s.Methods, Method{Name: n, Readings: w.sensor(0.01, 0.1, 0.025, 0, 1), Energy: nan})
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Truth = w.truth()
		if _, err := Run(b.Context(), s, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTruth is the pass over the samples alone.
func BenchmarkTruth(b *testing.B) {
	cuts := ticks(0, 48, 100000)
	b.ReportAllocs()
	for b.Loop() {
		c := newCumulative(cuts)
		for i := range 1_000_000 {
			if err := c.add(Sample{measure.Seconds(float64(i) * 48e-6), 100}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// Kernels that overlap have equal shares, as package attribute books them, and all
// lines come to the work's energy, by the meter and by every method.
func TestOverlappingKernelsShare(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := world{power: square(0.13, 0, 2), rate: 5000, from: -1.5, to: 3.5}
		s := Subject{
			Name: "streams", Truth: w.truth(), Work: Span{0, 2}, Systematic: 0.002, Clock: Clock{OffsetU: 1e-4},
			Methods: []Method{{Name: "average", Readings: w.sensor(0.01, 0.1, 0.2, 0, 1), Energy: nan}, {Name: "papi", Energy: 480, Readings: []Reading{{2.001, 240}}}},
		}
		at, names := -0.1, []string{"gemm", "softmax", "copy", "reduce"}
		for at < 2.05 {
			s.Kernels = append(s.Kernels, Kernel{names[rng.IntN(len(names))], Span{measure.Seconds(at), measure.Seconds(at + 0.2*rng.Float64()*rng.Float64())}})
			at += 0.06 * rng.Float64()
		}
		r := validateOK(t, s, Options{Seed: 1, Resamples: 100})
		lines := r.ByKernel(2)
		if len(lines) != 5 || lines[2].Kind != OtherKernels || lines[3].Kind != WithoutKernel || lines[4].Kind != AllKernels {
			t.Fatalf("%+v", lines)
		}
		var sum, share, said float64
		for _, l := range lines[:4] {
			sum, share, said = sum+float64(l.Truth.Energy), share+float64(l.Share), said+float64(l.Methods[0].Energy)
		}
		around(t, "sum of the shares", sum, float64(r.Truth.Energy), 1e-9*sum)
		around(t, "sum of their time", share, 2, 1e-9)
		around(t, "the line of the sum", float64(lines[4].Truth.Energy), float64(r.Truth.Energy), 1e-9*sum)
		around(t, "sum of the average's", said, float64(r.Methods[0].Energy), 1e-9*said)
		around(t, "its error", lines[4].Methods[0].ErrorPct, float64(r.Methods[0].ErrorPct), 1e-6)

		for name, want := range shared(t, w, s, names) {
			for _, k := range r.Kernels {
				if k.Name == name {
					around(t, name, float64(k.Truth.Energy), float64(want.Energy), 1e-6)
					around(t, name+"'s share of the time", float64(k.Share), float64(want.Share), 1e-9)
					around(t, name+"'s time", float64(k.Busy), float64(want.Busy), 1e-9)
				}
			}
		}
	}
}

// The time of the work that no kernel takes up because floating point rounds is none: it has no
// energy, and no method an error over it.
func TestRoundingIsNoPause(t *testing.T) {
	t.Parallel()
	w := world{power: square(0.13, 0, 2), rate: 5000, from: -1.5, to: 3.5}
	s := Subject{
		Name: "one", Truth: w.truth(), Work: Span{0, 2}, Systematic: 0.002, Clock: Clock{OffsetU: 1e-4},
		Methods: []Method{{Name: "average", Readings: w.sensor(0.01, 0.1, 0.2, 0, 1), Energy: nan}},
		Kernels: []Kernel{{"gemm", Span{0, 0.7}}, {"gemm", Span{0.7 + 1e-16, 1.3}}, {"copy", Span{1.3 + 1e-9, 2 - 4e-16}}},
	}
	r := validateOK(t, s, Options{Seed: 1, Resamples: 100})
	k := r.NoKernel
	around(t, "the pause of a nanosecond", float64(k.Share), 1e-9, 1e-15)
	s.Kernels[2].From = 1.3
	k = validateOK(t, s, Options{Seed: 1, Resamples: 100}).NoKernel
	if k.Busy != 0 || k.Truth.Energy != 0 || k.Truth.U != 0 || measure.Known(k.Methods[0].ErrorPct) {
		t.Errorf("no pause: %v of %v ± %v, %+v", k.Busy, k.Truth.Energy, k.Truth.U, k.Methods)
	}
}

// shared holds a subject's energies by kernel, as package attribute shares them.
func shared(t *testing.T, w world, s Subject, names []string) map[string]attribute.Use {
	t.Helper()
	e, err := attribute.New(attribute.Config{Window: measure.Window{From: 0, To: 2}, Clock: clock.Fit{B: 1}, Resolution: 1e-9}, func(yield func(attribute.Kernel, error) bool) {
		for _, k := range s.Kernels {
			if !yield(attribute.Kernel{Name: slices.Index(names, k.Name), Start: k.From, End: k.To}, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for x := range w.truth() {
		if err := e.Add(float64(x.At), float64(x.Power)); err != nil {
			t.Fatal(err)
		}
	}
	res, err := e.Result()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]attribute.Use{}
	for i, u := range res.Kernels {
		out[names[i]] = u
	}
	return out
}

// Whatever methods come to, no sentence says more than the tables below hold: who is
// said to be within is so, and then what the tables have against it stands beside.
func TestVerdictIsWhatTheTablesSay(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	for range 5000 {
		rep := &Report{Work: Span{0, 2}, Truth: Truth{Energy: 100, U: measure.Joule(rng.Float64() * 5)}, Mean: 50, NoKernel: &KernelReport{}, KernelSum: &KernelReport{}}
		kernels := []*KernelReport{{Name: "gemm"}, {Name: "copy"}, rep.NoKernel}
		for _, k := range kernels {
			k.Truth = Truth{Energy: measure.Joule(10 + 30*rng.Float64()), U: rep.Truth.U / 3}
		}
		for i := range 1 + rng.IntN(4) {
			wide := math.Pow(10, 2*rng.Float64()-1)
			m := MethodReport{Name: fmt.Sprintf("m%d", i), ErrorPct: measure.Number(wide * rng.NormFloat64()), MAPEPct: measure.Number(30 * rng.Float64()), Compared: rng.IntN(20), Update: 0.1}
			m.Energy = measure.Joule(100 + m.ErrorPct)
			m.Agreement = measure.Estimate{Energy: m.Energy}.Against(measure.Estimate(rep.Truth), measure.Joule(5*float64(rng.IntN(2))))
			u := max(float64(rep.Truth.U), math.Abs(5*rng.NormFloat64()))
			m.Interval = Interval{m.ErrorPct - measure.Number(u*(1+rng.Float64())), m.ErrorPct + measure.Number(u*(1+rng.Float64()))}
			if rng.IntN(9) == 0 {
				m = MethodReport{Name: m.Name, ErrorPct: measure.Number(math.NaN()), Agreement: Unknown}
			}
			rep.Methods = append(rep.Methods, m)
			for _, k := range kernels {
				x := KernelMethod{Name: m.Name, ErrorPct: measure.Number(10 * rng.NormFloat64())}
				x.Energy = k.Truth.Energy * measure.Joule(1+x.ErrorPct/100)
				x.Agreement = measure.Estimate{Energy: x.Energy}.Against(measure.Estimate(k.Truth), 0)
				k.Methods = append(k.Methods, x)
			}
		}
		rep.Kernels = []KernelReport{*kernels[0], *kernels[1]}
		rep.conclude()
		for _, part := range strings.Split(rep.Verdict, "; ") {
			for i := range rep.Methods {
				if m := &rep.Methods[i]; strings.Contains(part, m.Name+" ") {
					heldAgainstTables(t, rep, m, part)
				}
			}
		}
	}
}

func heldAgainstTables(t *testing.T, rep *Report, m *MethodReport, said string) {
	t.Helper()
	if strings.Contains(said, "within") != (m.Agreement == Agrees) && !strings.Contains(said, "may say anything") && !strings.Contains(said, "the nearest") {
		t.Fatalf("%q of %+v", said, m)
	}
	if strings.Contains(said, "outside") && m.Agreement != Reads || strings.Contains(said, " reads ") && !m.everOff() {
		t.Fatalf("%q of %+v", said, m)
	}
	if !strings.Contains(said, "within") {
		return
	}
	off := 0.0
	for _, k := range append(slices.Clone(rep.Kernels), *rep.NoKernel) {
		for _, x := range k.Methods {
			if x.Name == m.Name && x.Agreement == Reads {
				off = max(off, size(x.ErrorPct))
			}
		}
	}
	if strings.Contains(said, "by kernel it is off by up to") != (off > 0) || off > 0 && !strings.Contains(said, fmt.Sprintf("%.1f %% (", off)) {
		t.Fatalf("%q, by kernel off by %v", said, off)
	}
	if bad := m.Compared > 1 && float64(m.MAPEPct) > float64(rep.Truth.U); strings.Contains(said, "single readings are off by") != bad {
		t.Fatalf("%q, MAPE %v of ± %v", said, m.MAPEPct, rep.Truth.U)
	}
}

// A method that has no energy has none, whatever it read; one that states a U is
// within the meter's and its own; a meter that looks away judges nothing.
func TestAgreementOfAMethod(t *testing.T) {
	w := world{power: func(float64) float64 { return 100 }, rate: 1000, from: -1, to: 2}
	s := Subject{
		Name: "steady", Truth: w.truth(), Work: Span{0, 1}, Systematic: 0.01, Total: measure.Estimate{Energy: 100, U: 3},
		Methods: []Method{
			{Name: "deconvolved", Energy: nan, Silent: true, Note: "no number, a bound", Readings: w.sensor(0.01, 0.1, 0.1, 0, 1)},
			{Name: "corrected", Energy: 104, U: 4, Made: 1668, Readings: w.sensor(0.05, 0.1, 0.1, 0, 1)},
			{Name: "sma", Energy: 104, Readings: w.sensor(0.05, 0.1, 0.1, 0, 1)},
		},
	}
	r := validateOK(t, s, Options{Seed: 1})
	if m := &r.Methods[0]; m.judged() || m.Agreement != Unknown || m.Note != "no number, a bound" {
		t.Errorf("%+v", m)
	}
	if m := &r.Methods[1]; m.Agreement != Agrees || m.Interval.Lo > 0 || m.Readings != 1668 || m.Compared > 40 {
		t.Errorf("%+v", m)
	}
	if m := &r.Methods[2]; m.Agreement != Reads {
		t.Errorf("%+v", m)
	}
	if r.Truth.U != 3 {
		t.Errorf("the meter's U is %v, stated as 3 J", r.Truth.U)
	}
	s.LooksAway, s.Truth = true, w.truth()
	for _, m := range validateOK(t, s, Options{Seed: 1}).Methods {
		if m.Agreement != Unknown {
			t.Errorf("%+v", m)
		}
	}
}
