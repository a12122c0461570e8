package correct

import (
	"encoding/binary"
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/analysis/recording"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/measure"
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
		e, err := lag.Piece(rs, s, Span{})
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
// settled. The lengths follow from the two printed energies.
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

// sharedData is the folder of public recordings beside the repository.
func sharedData(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "shared", "data"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("recordings are not there: %v", err)
	}
	return path
}

// k40m is the public step on a K40m: nvidia-smi's readings, the meter's power, and
// the kernel, in seconds since the kernel began. The meter's decoding is that of
// the data's README: 7.568 mV and 48.8 mA a count, 2.9345 MHz, 50 ms.
func k40m(t testing.TB) (sensor, meter []Reading, kernel Span) {
	t.Helper()
	dir := sharedData(t, "pmd", "k40m-step")
	rec, err := recording.Read(os.DirFS(dir), recording.Clocks{Shift: -50 * time.Millisecond, UTCOffset: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	origin := rec.Events[0]
	_, list := rec.Sensor.Best()
	for _, r := range list {
		sensor = append(sensor, Reading{At: measure.SecondsOf(r.At.Sub(origin)), Power: r.Power})
	}
	raw, err := os.ReadFile(filepath.Join(dir, recording.SerialFile))
	if err != nil {
		t.Fatal(err)
	}
	start := measure.SecondsOf(rec.Start.Sub(origin))
	var last uint16
	ticks := 0.0
	for i := 0; i+18 <= len(raw); i += 18 {
		field := func(k int) uint16 { return binary.LittleEndian.Uint16(raw[i+2*k:]) }
		if i > 0 {
			ticks += float64(field(0) - last)
		}
		last = field(0)
		p := 0.0
		for c := 1; c < 9; c += 2 {
			p += float64(int16(field(c))>>4) * 0.007568 * float64(int16(field(c+1))>>4) * 0.0488
		}
		meter = append(meter, Reading{At: start + measure.Seconds(ticks/2.9345e6), Power: measure.Watt(p)})
	}
	return Tidy(sensor), meter, Span{From: 0, To: measure.SecondsOf(rec.Events[1].Sub(origin))}
}

// mean is the plain mean of the readings in a span.
func mean(rs []Reading, s Span) float64 {
	sum := 0.0
	in := within(rs, s)
	for _, r := range in {
		sum += float64(r.Power)
	}
	return sum / float64(len(in))
}

// TestK40mAgainstAMeter holds the correction against the meter, over windows that
// begin with the kernel. Static gain and offset are of this trace: the rest before
// the kernel and its level from 0.5 s on.
func TestK40mAgainstAMeter(t *testing.T) {
	sensor, meter, kernel := k40m(t)
	fit, err := FitRise(sensor, kernel)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("C = %v ± %v by %s; tau %v, delay %v; %v to %v; %q", fit.C, fit.U, fit.How, fit.Tau, fit.Delay, fit.Rest, fit.Work, fit.Warnings)
	if math.Abs(float64(fit.C)-0.058) > 0.003 || fit.U < 0.0005 || fit.U > 0.007 {
		t.Errorf("C = %v ± %v: want 58 ms within 3 ms", fit.C, fit.U)
	}
	rest, level := Span{From: -0.9, To: -0.05}, Span{From: 0.5, To: 5.8}
	l := Lag{C: fit.C, U: fit.U}
	l.Gain = (mean(sensor, level) - mean(sensor, rest)) / (mean(meter, level) - mean(meter, rest))
	l.Offset = measure.Watt(mean(sensor, rest) - l.Gain*mean(meter, rest))
	changes := Changes(sensor)
	for _, c := range []struct{ window, raw, corrected float64 }{{0.1, -18.2, -0.38}, {0.15, -13.5, -0.13}, {0.3, -7.2, -0.11}, {1, -2.24, -0.09}} {
		s := Span{From: 0, To: measure.Seconds(c.window)}
		truth := float64(must(Integrate(meter, s))(t))
		percent := func(e measure.Joule) float64 { return 100 * (float64(e)/truth - 1) }
		static := func(e measure.Joule) measure.Joule {
			return measure.Joule((float64(e) - float64(l.Offset)*c.window) / l.Gain)
		}
		raw := percent(static(must(Integrate(changes, s))(t)))
		e, err := l.Energy(sensor, s)
		if err != nil {
			t.Fatal(err)
		}
		got := percent(e.Energy)
		t.Logf("%4g ms: as read %.2f %%, its changes %.2f %%, corrected %.3f %%, U %.2f %%", 1e3*c.window, percent(static(e.Raw)), raw, got, 100*float64(e.U)/truth)
		if math.Abs(raw-c.raw) > 0.05 {
			t.Errorf("%v ms: the register's changes are off by %.2f %%, want %.2f", 1e3*c.window, raw, c.raw)
		}
		if math.Abs(got-c.corrected) > 0.1 {
			t.Errorf("%v ms: corrected off by %.3f %%, want %.2f within 0.1", 1e3*c.window, got, c.corrected)
		}
		if math.Abs(float64(e.Energy)-truth) > float64(e.U) {
			t.Errorf("%v ms: %v ± %v, the meter says %.3f J", 1e3*c.window, e.Energy, e.U, truth)
		}
	}
}

// The paper prints the constant as 833.333 s. Its joules tell: they need 0.8333 s,
// by energy in proportion to duration, and 833 s would make a kilowatt-hour of them.
func TestThePapersJoulesTellTheConstant(t *testing.T) {
	m := K20()
	m.Kernels = append(m.Kernels, ModelKernel{Span{From: 22, To: 22 + 2*5.346}, 158.47})
	m.End = 44
	rs := Collapse(m.Readings(), Near, K20Period)
	f, err := FitDuration(rs, []Span{m.Kernels[0].Span, m.Kernels[1].Span})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("C = %v ± %v, %v", f.C, f.U, f.Work)
	near(t, "C", float64(f.C), 0.8333, 0.01)
	if math.Abs(float64(f.C)-0.8333) > float64(f.U) {
		t.Errorf("C = %v ± %v does not hold 0.8333 s", f.C, f.U)
	}
	// From the printed figures alone: 2·732 − 1579 = −C·(2·ΔP₁ − ΔP₂), with readings that rise by 138 W.
	near(t, "C from the printed joules", (1579-2*732)/138.2, 0.8333, 0.01)
	if p := (732 + 833.333*138.2) / 5.346; p < 20e3 {
		t.Errorf("with 833 s the K20 would draw %.0f W", p)
	}
	r, err := FitRise(rs, m.Kernels[0].Span)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("rise: C = %v ± %v by %s, tau %v, delay %v; %v", r.C, r.U, r.How, r.Tau, r.Delay, r.Warnings)
	near(t, "C by the rise", float64(r.C), 0.8333, 0.01)
}

// h200 is our own recording: the instant and the average field, the counter in
// joules, and what the GPU did.
type h200 struct {
	instant, average, counter []Reading
	activities                []Activity
}

func readH200(t testing.TB) h200 {
	t.Helper()
	dir := sharedData(t, "h200")
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	rows := func(name string) [][]string {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		out, err := csv.NewReader(f).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var h h200
	for _, r := range rows("nvml-power.csv") {
		at := measure.Seconds(number(r[0]) / 1e6)
		add := func(to *[]Reading, s string) {
			*to = append(*to, Reading{At: at, Power: measure.Watt(number(s) / 1e3)})
		}
		add(&h.instant, r[1])
		add(&h.average, r[2])
		add(&h.counter, r[4])
	}
	events := rows("kernel-events.csv")
	for i := 0; i+1 < len(events); i += 2 {
		name := strings.TrimSuffix(events[i][1], "-begin")
		if name == "gap" {
			continue // like the time before: no kernel
		}
		h.activities = append(h.activities, Activity{Name: name, Span: Span{From: measure.Seconds(number(events[i][0]) / 1e6), To: measure.Seconds(number(events[i+1][0]) / 1e6)}})
	}
	return h
}

// counted is the counter's energy of a span, interpolated between its renewals.
func (h h200) counted(s Span) float64 {
	c := Renewals(h.counter, 0.1)
	return float64(valueAt(c, s.To) - valueAt(c, s.From))
}

// averageField is the H200's average field, as public studies have it; the delay is
// the one of least residual on this trace.
func averageField() *sensor.Profile {
	return &sensor.Profile{Field: "average", Model: sensor.Boxcar, Period: 0.1, Window: 1, Delay: 0.02, Gain: 1}
}

// TestAverageFieldOfAnH200 undoes the one-second window and holds it against the
// energy counter, which is the card's own and no independent truth.
func TestAverageFieldOfAnH200(t *testing.T) {
	h := readH200(t)
	renewals := Renewals(h.average, 0.1)
	smooth, err := Deconvolve(renewals, averageField(), 0.05, 50)
	if err != nil {
		t.Fatal(err)
	}
	levels, err := FindLevels(renewals, averageField(), h.activities)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("noise %v; levels %q %v ± %v", smooth.Noise, levels.Names, levels.Power, levels.U)
	var end measure.Seconds
	for _, a := range h.activities {
		end = max(end, a.To)
	}
	for _, c := range []struct {
		name           string
		s              Span
		raw, off, kern float64 // the least that the reading is off by, and the most that the corrected ones are, in %
	}{
		{"arithmetic, 2 s", Span{From: 2, To: 4}, 13, 1, 1},
		{"memory, 2 s", Span{From: 5, To: 7}, 18, 1, 1.5},
		{"rest, 2 s", Span{From: 8, To: 10}, 0, 1, 1},
		{"alternating, all", Span{From: 11, To: end}, 0.1, 1, 1},
		{"all", Span{From: 1, To: end}, 0.1, 1, 1},
	} {
		truth := h.counted(c.s)
		e, err1 := smooth.Energy(c.s)
		k, err2 := levels.Energy(c.s)
		raw, err3 := Integrate(h.average, c.s)
		for _, err := range []error{err1, err2, err3} {
			if err != nil {
				t.Fatal(c.name, err)
			}
		}
		percent := func(e measure.Joule) float64 { return 100 * (float64(e)/truth - 1) }
		t.Logf("%-18s counter %.1f J; as read %+.2f %%; deconvolved %+.2f ± %.2f %%; by kernels %+.2f ± %.2f %%", c.name, truth, percent(raw), percent(e.Energy), 100*float64(e.U)/truth, percent(k.Energy), 100*float64(k.U)/truth)
		if math.Abs(percent(raw)) < c.raw || math.Abs(percent(e.Energy)) > c.off || math.Abs(percent(k.Energy)) > c.kern {
			t.Errorf("%s: raw %.2f %%, deconvolved %.2f %%, by kernels %.2f %%", c.name, percent(raw), percent(e.Energy), percent(k.Energy))
		}
	}
}

// TestAlternationsOfAnH200 recovers the energy of kernels that alternate.
func TestAlternationsOfAnH200(t *testing.T) {
	h := readH200(t)
	renewals := Renewals(h.average, 0.1)
	instant := &sensor.Profile{Field: "instant", Model: sensor.Boxcar, Period: 0.1, Window: 0.025, Delay: 0.01, Gain: 1}
	seen := Renewals(h.instant, 0.1)
	smooth := must(Deconvolve(renewals, averageField(), 0.05, 50))(t)
	levels := must(FindLevels(renewals, averageField(), h.activities))(t)
	for _, block := range alternations(h.activities) {
		truth := h.counted(block.Span)
		i := must(Integrate(h.instant, block.Span))(t)
		a := must(Integrate(h.average, block.Span))(t)
		e := must(smooth.Energy(block.Span))(t)
		k := must(levels.Energy(block.Span))(t)
		u := must(FindUnseen(seen, instant, block.Span, 120, 480))(t)
		percent := func(e measure.Joule) float64 { return 100 * (float64(e)/truth - 1) }
		t.Logf("turns of %-6s %.2f s: counter %.1f J; instant %+.1f %%, average %+.1f %%; deconvolved %+.1f ± %.1f %%; by kernels %+.1f ± %.1f %%; instant saw %.0f %%: %.0f to %.0f J",
			block.Name, float64(block.Length()), truth, percent(i), percent(a), percent(e.Energy), 100*float64(e.U)/truth, percent(k.Energy), 100*float64(k.U)/truth, 100*u.Share, float64(u.Low), float64(u.High))
		// The counter is renewed every 100 ms: over a shorter stretch its error is larger.
		within := map[bool]float64{true: 1.5, false: 15}[block.Length() > 1.5]
		if math.Abs(percent(k.Energy)) > within || math.Abs(percent(e.Energy)) > within {
			t.Errorf("turns of %s: deconvolved %.1f %%, by kernels %.1f %% off, want %.1f", block.Name, percent(e.Energy), percent(k.Energy), within)
		}
		if truth < float64(u.Low) || truth > float64(u.High) {
			t.Errorf("turns of %s: the counter's %.1f J lie outside of the bound %v to %v", block.Name, truth, u.Low, u.High)
		}
	}
}

// alternations are the stretches in which mem and idle took turns of one length.
func alternations(list []Activity) (out []Activity) {
	for i, a := range list {
		length := float64(a.Length())
		if length > 1 || a.Name != "mem" && a.Name != "idle" {
			continue
		}
		name := measure.Seconds(math.Round(length*1e3/5) * 5e-3).String()
		if n := len(out); n > 0 && out[n-1].Name == name && a.From-list[i-1].To < 0.01 {
			out[n-1].To = a.To
			continue
		}
		out = append(out, Activity{Name: name, Span: a.Span})
	}
	return out
}
