package correct

import (
	"math"
	"testing"

	"wattmark/measure"
)

// near fails where a value is not what it must be, within a share of it.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*math.Abs(want)) {
		t.Errorf("%s: %.6g, want %.6g within %.3g %%", what, got, want, 100*share)
	}
}

// k20Energies measures a model as the paper does: raw from t1 to t2 of each kernel,
// and corrected where the power exceeds the active idle.
func k20Energies(t *testing.T, m Model) (raw, corrected []float64) {
	t.Helper()
	p, err := FindPreset("k20power")
	if err != nil {
		t.Fatal(err)
	}
	all := m.Readings()
	for _, k := range m.Kernels {
		e, err := Integrate(all, k.Span)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, float64(e))
	}
	lag := p.Lag
	lag.C = m.Tau
	rs := Collapse(all, Near, K20Period)
	for _, s := range Work(lag.True(rs), p.Level+p.Margin, lag.Slope) {
		e, err := lag.Piece(rs, s)
		if err != nil {
			t.Fatal(err)
		}
		corrected = append(corrected, float64(e.Energy))
	}
	return raw, corrected
}

// Section 4.1: 732 J, and 1579 J for twice the time; section 6.2: exactly twice.
func TestTwiceTheTimeIsTwiceTheEnergy(t *testing.T) {
	once := K20()
	twice := K20()
	twice.Kernels[0].To += 5.346
	twice.End += 6
	raw1, e1 := k20Energies(t, once)
	raw2, e2 := k20Energies(t, twice)
	near(t, "raw", raw1[0], 732, 0.002)
	near(t, "raw, twice the time", raw2[0], 1579, 0.002)
	if len(e1) != 1 || len(e2) != 1 {
		t.Fatalf("%d and %d pieces of work: want one each", len(e1), len(e2))
	}
	near(t, "corrected", e1[0], 158.47*5.346, 0.005)
	near(t, "corrected, doubled", e2[0]/e1[0], 2, 0.005)
	t.Logf("raw %.1f, %.1f J; corrected %.2f, %.2f J: factor %.4f", raw1[0], raw2[0], e1[0], e2[0], e2[0]/e1[0])
}

// closeRuns is figure 2: two kernels alike, the second before the sensor has
// settled. The lengths are what the two printed energies leave.
func closeRuns() Model {
	m := K20()
	const length, gap = 1.2938, 1.215
	m.Kernels = []ModelKernel{{Span{From: 2, To: 2 + length}, 158.47}, {Span{From: 2 + length + gap, To: 2 + 2*length + gap}, 158.47}}
	return m
}

// Section 4.1: 114 J and 147 J for the same work; section 6.2: equal.
func TestCloseRunsAreEqual(t *testing.T) {
	raw, e := k20Energies(t, closeRuns())
	near(t, "first, raw", raw[0], 114, 0.005)
	near(t, "second, raw", raw[1], 147, 0.005)
	if len(e) != 2 {
		t.Fatalf("%d pieces of work: want two", len(e))
	}
	near(t, "second against first, corrected", e[1]/e[0], 1, 0.005)
	near(t, "corrected", e[0], float64(closeRuns().Energy())/2, 0.01)
	t.Logf("raw %.1f, %.1f J; corrected %.2f, %.2f J", raw[0], raw[1], e[0], e[1])
}

// Section 4.2: a kernel of 0.107 s has 3.25 J and peaks at 35.7 W; with the first
// part of its tail 119 J, which would be 1.1 kW.
func shortKernel() Model {
	m := K20()
	m.Idle, m.ActiveFor, m.Steps = 24.8, 2.475, []measure.Watt{44, 36, 28, 22}
	m.Kernels = []ModelKernel{{Span{From: 2, To: 2.107}, 115.3}}
	return m
}

func TestShortKernelAndItsTail(t *testing.T) {
	m := shortKernel()
	all := m.Readings()
	k := m.Kernels[0].Span
	peak := m.Lagging(k.To)
	near(t, "peak", float64(peak), 35.7, 0.005)
	e := must(Integrate(all, k))(t)
	near(t, "raw", float64(e), 3.25, 0.02)
	with := must(Integrate(all, Span{From: k.From, To: m.T3()}))(t)
	near(t, "with the tail", float64(with), 119, 0.01)
	if p := float64(with) / 0.107; p < 1100 {
		t.Errorf("with the tail it would draw %.0f W: want the paper's absurd 1.1 kW", p)
	}
	if w := Warnings(Collapse(all, Near, K20Period), k, K20Period); len(w) != 1 {
		t.Errorf("warnings %q: want one about a kernel of 107 ms", w)
	}
	tail := must(Integrate(all, Span{From: m.T3(), To: m.T4()}))(t)
	near(t, "t3 to t4", float64(tail), 130, 0.02)
	rs := Collapse(all, Near, K20Period)
	lag := Lag{C: m.Tau}
	c, err := lag.Energy(rs, k)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "corrected", float64(c.Energy), float64(m.Energy()), 0.2) // as short as it is
	t.Logf("raw %.2f J, with the tail %.1f J, t3 to t4 %.1f J, corrected %v ± %v of %v", float64(e), float64(with), float64(tail), c.Energy, c.U, m.Energy())
}

// Section 4.3: 1066 J by the time stamps, 1205 J by equal intervals.
func TestEqualIntervalsMislead(t *testing.T) {
	m := K20()
	rs := m.Readings()
	s := Span{From: m.Kernels[0].From, To: m.T4()}
	stamped := must(Integrate(rs, s))(t)
	near(t, "by time stamps", float64(stamped), 1066, 0.005)
	sum, n := 0.0, 0
	short, long := measure.Seconds(1), measure.Seconds(0)
	for i, r := range rs {
		if r.At >= s.From && r.At <= s.To {
			sum, n = sum+float64(r.Power), n+1
			short, long = min(short, r.At-rs[i-1].At), max(long, r.At-rs[i-1].At)
		}
	}
	equal := sum / float64(n) * float64(s.Length())
	near(t, "by equal intervals", equal, 1205, 0.005)
	near(t, "excess", equal/float64(stamped), 1.13, 0.005)
	if short < 0.000266 || short > 0.0003 || math.Abs(float64(long)-0.130) > 1e-6 {
		t.Errorf("intervals from %v to %v", short, long)
	}
	t.Logf("%.1f J by time stamps, %.1f J by equal intervals; %d readings, intervals %v to %v", float64(stamped), equal, n, short, long)
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
