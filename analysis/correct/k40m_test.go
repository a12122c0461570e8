package correct

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"wattmark/analysis/recording"
	"wattmark/measure"
)

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
