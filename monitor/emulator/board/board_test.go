package board

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
)

// busy lays down n random changes of load, 0.2–40 ms apart.
func busy(t *testing.T, cfg Config, n int) (*Board, time.Duration) {
	t.Helper()
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 99))
	at := time.Duration(0)
	for range n {
		at += 200*time.Microsecond + time.Duration(rng.Int64N(int64(40*time.Millisecond)))
		if rng.IntN(3) == 0 {
			_, err = b.SetLevel(at, measure.Watt(20+250*rng.Float64()))
		} else {
			_, err = b.SetLoad(at, load.State(rng.IntN(7)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b, at + 10*time.Millisecond
}

// numeric integrates the board's own power by Gauss-Legendre over short cells
// that never straddle a change of load: an independent way to the energy.
func numeric(b *Board, from, to time.Duration) (total float64, rails []float64) {
	x := [5]float64{-0.9061798459386640, -0.5384693101056831, 0, 0.5384693101056831, 0.9061798459386640}
	w := [5]float64{0.2369268850561891, 0.4786286704993665, 0.5688888888888889, 0.4786286704993665, 0.2369268850561891}
	rails = make([]float64, len(b.rails))
	cuts := []time.Duration{from}
	for _, s := range b.segs {
		if s.start > from && s.start < to {
			cuts = append(cuts, s.start)
		}
	}
	cuts = append(cuts, to)
	for c := 1; c < len(cuts); c++ {
		seg := &b.segs[b.find(cuts[c-1])]
		begin := cuts[c-1].Seconds()
		length := (cuts[c] - cuts[c-1]).Seconds()
		cells := int(length/40e-6) + 1
		h := length / float64(cells)
		for k := range cells {
			for j := range x {
				at := (float64(k) + (1+x[j])/2) * h
				p := b.ripple(begin + at)
				if seg.forever {
					p += seg.power(0)
				} else {
					p += seg.power(begin - seg.start.Seconds() + at)
				}
				total += p * w[j] * h / 2
				for i := range rails {
					r := b.Rail(i, measure.Watt(p))
					rails[i] += float64(r.V) * float64(r.I) * w[j] * h / 2
				}
			}
		}
	}
	return total, rails
}

func TestEnergyEqualsNumericIntegral(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Ripple: Ripple{RMS: 3, Low: 200, High: 2000}},
		{Rise: Edges["stacked"][0], Fall: Edges["stacked"][1]},
		{Fall: Edges["ramp"][1]},
	} {
		cfg.Seed = 7
		b, end := busy(t, cfg, 60)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 8 {
			from := time.Duration(rng.Int64N(int64(end))) - 20*time.Millisecond
			to := from + time.Duration(rng.Int64N(int64(end-from)))
			got, err := b.Energy(from, to)
			if err != nil {
				t.Fatal(err)
			}
			total, rails := numeric(b, from, to)
			if rel := math.Abs(float64(got.Total)-total) / total; rel > 1e-9 {
				t.Errorf("[%v, %v]: %.12g J, the numeric integral gives %.12g J (%.2g apart)", from, to,
					float64(got.Total), total, rel)
			}
			for i := range rails {
				if rel := math.Abs(float64(got.Rails[i])-rails[i]) / rails[i]; rel > 1e-9 {
					t.Errorf("rail %d: %.12g J, numeric %.12g J", i, float64(got.Rails[i]), rails[i])
				}
			}
		}
	}
}

func TestRailsAndWindowsAddUp(t *testing.T) {
	b, end := busy(t, Config{Seed: 3, Ripple: Ripple{RMS: 2, Low: 100, High: 900}}, 200)
	whole, err := b.Energy(0, end)
	if err != nil {
		t.Fatal(err)
	}
	var parts, rails measure.Joule
	last := measure.Joule(0)
	for i := range 997 {
		from, to := end*time.Duration(i)/997, end*time.Duration(i+1)/997
		e, err := b.Energy(from, to)
		if err != nil {
			t.Fatal(err)
		}
		parts += e.Total
		if parts <= last {
			t.Fatalf("the energy falls at %v", to)
		}
		last = parts
	}
	for _, r := range whole.Rails {
		rails += r
	}
	if math.Abs(float64(parts/whole.Total)-1) > 1e-11 || math.Abs(float64(rails/whole.Total)-1) > 1e-12 {
		t.Errorf("whole %v, windows add up to %v, rails to %v", float64(whole.Total), float64(parts), float64(rails))
	}
	for _, at := range []time.Duration{0, end / 3, end / 2, end} {
		var p measure.Watt
		for _, r := range b.At(at) {
			p += r.P
			if math.Abs(float64(r.V)*float64(r.I)-float64(r.P)) > 1e-9 {
				t.Errorf("at %v: %v · %v is not %v", at, r.V, r.I, r.P)
			}
		}
		if total := b.MeanPower(at, at); math.Abs(float64(p-total)) > 1e-9 {
			t.Errorf("at %v: rails %v, total %v", at, p, total)
		}
	}
}

func TestSlewAndDriftAndDroop(t *testing.T) {
	b, err := New(Config{Drift: -1, TauUp: 100 * time.Microsecond, TauDown: 400 * time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	set := func(at time.Duration, w measure.Watt) {
		if _, err := b.SetLevel(at, w); err != nil {
			t.Fatal(err)
		}
	}
	set(0, 100)
	set(50*time.Millisecond, 200)
	set(100*time.Millisecond, 100)
	near := func(at time.Duration, want float64) {
		t.Helper()
		if got := float64(b.MeanPower(at, at)); math.Abs(got-want) > 1e-6 {
			t.Errorf("at %v: %.9g W, want %.9g W", at, got, want)
		}
	}
	near(-time.Second, 22)
	near(50*time.Millisecond, 100)
	near(50*time.Millisecond+100*time.Microsecond, 200-100/math.E)
	near(100*time.Millisecond, 200)
	near(100*time.Millisecond+400*time.Microsecond, 100+100/math.E)

	warm, err := New(Config{Drift: 0.05, TauThermal: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := warm.SetLevel(0, 222); err != nil {
		t.Fatal(err)
	}
	// Two seconds are one thermal time constant; the slew is long over.
	got := float64(warm.MeanPower(2*time.Second, 2*time.Second))
	if want := 222 + 0.05*200*(1-1/math.E); math.Abs(got-want) > 2e-3 {
		t.Errorf("after one thermal time constant: %.6g W, want %.6g W", got, want)
	}
	cold, hot := warm.At(0), warm.At(time.Second)
	for i, r := range warm.Rails() {
		if drop := float64(r.Open - hot[i].V); math.Abs(drop-float64(r.Source)*float64(hot[i].I)) > 1e-9 {
			t.Errorf("%s: droop %v V at %v", r.Name, drop, hot[i].I)
		}
		if hot[i].V >= cold[i].V {
			t.Errorf("%s does not droop under load", r.Name)
		}
	}
}

func TestPastReadByAMeterCannotChange(t *testing.T) {
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]measure.Watt, 101)
	b.Trace(seen, 0, 1e5) // up to 10 ms
	at, err := b.SetLoad(5*time.Millisecond, load.Memory)
	if err != nil || at != 10*time.Millisecond {
		t.Fatalf("a change before the newest reading took effect at %v (%v), want 10ms", at, err)
	}
	again := make([]measure.Watt, 101)
	b.Trace(again, 0, 1e5)
	for i := range seen {
		// The power is continuous: at 10 ms itself only the rounding differs.
		if math.Abs(float64(seen[i]-again[i])) > 1e-9 {
			t.Fatalf("reading %d changed from %v to %v", i, seen[i], again[i])
		}
	}
}

func TestFutureChangesAndCancel(t *testing.T) {
	b, _ := New(Config{Drift: -1})
	other, _ := New(Config{Drift: -1})
	order := []time.Duration{30, 10, 40, 20}
	for _, ms := range order {
		_, _ = b.SetLevel(ms*time.Millisecond, measure.Watt(100+ms))
	}
	for _, ms := range []time.Duration{10, 20, 30, 40} {
		_, _ = other.SetLevel(ms*time.Millisecond, measure.Watt(100+ms))
	}
	e1, err1 := b.Energy(0, 60*time.Millisecond)
	e2, err2 := other.Energy(0, 60*time.Millisecond)
	if err1 != nil || err2 != nil || e1.Total != e2.Total {
		t.Errorf("changes laid down out of order give %v (%v), in order %v (%v)", e1.Total, err1, e2.Total, err2)
	}
	b.Cancel(25 * time.Millisecond)
	if got := float64(b.MeanPower(time.Second, time.Second)); math.Abs(got-120) > 1e-9 {
		t.Errorf("after the cancel at 25 ms the level is %v W, want 120 W", got)
	}
}

func TestSeedsAndErrors(t *testing.T) {
	cfg := Config{Seed: 5, Ripple: Ripple{RMS: 4, Low: 100, High: 2000}}
	a, _ := busy(t, cfg, 20)
	b, _ := busy(t, cfg, 20)
	cfg.Seed++
	c, _ := busy(t, cfg, 20)
	at := 123 * time.Millisecond
	if a.MeanPower(at, at) != b.MeanPower(at, at) {
		t.Error("the same seed gives another board")
	}
	if a.MeanPower(at, at) == c.MeanPower(at, at) {
		t.Error("another seed gives the same board")
	}
	for name, bad := range map[string]Config{
		"slew":    {TauUp: time.Second},
		"shares":  {Rails: []RailConfig{{Name: "a", Open: 12, Share: 0.5}}},
		"names":   {Rails: []RailConfig{{Name: "a", Open: 12, Share: 0.5}, {Name: "a", Open: 12, Share: 0.5}}},
		"ripple":  {Ripple: Ripple{RMS: 1}},
		"thermal": {TauThermal: time.Millisecond},
	} {
		if _, err := New(bad); err == nil {
			t.Errorf("%s: a bad configuration is taken", name)
		}
	}
	if _, err := a.SetLevel(0, measure.Watt(math.NaN())); err == nil {
		t.Error("a level of NaN is taken")
	}
	if _, err := a.SetLoad(0, load.Watts); err == nil {
		t.Error("a load without a level is taken")
	}
}

func TestRippleHasItsPower(t *testing.T) {
	b, err := New(Config{Drift: -1, Ripple: Ripple{RMS: 5, Low: 50, High: 400}})
	if err != nil {
		t.Fatal(err)
	}
	p := make([]measure.Watt, 40000)
	b.Trace(p, 0, 250e3)
	sum := 0.0
	for _, w := range p {
		sum += (float64(w) - 22) * (float64(w) - 22)
	}
	if rms := math.Sqrt(sum / float64(len(p))); math.Abs(rms-5) > 0.1 {
		t.Errorf("ripple of %.4g W rms, want 5 W", rms)
	}
}

func TestMemoryStaysFlat(t *testing.T) {
	b, err := New(Config{Keep: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]measure.Watt, 10)
	longest := 0
	for i := range 200_000 { // 1000 s of a change every 5 ms
		at := time.Duration(i) * 5 * time.Millisecond
		if _, err := b.SetLoad(at, load.State(i%7)); err != nil {
			t.Fatal(err)
		}
		b.Trace(buf, at, 5e5)
		longest = max(longest, len(b.segs))
	}
	if longest > 500 {
		t.Errorf("the history grew to %d segments for 200 in the kept second", longest)
	}
	if _, err := b.Energy(time.Second, 2*time.Second); !errors.Is(err, ErrForgotten) {
		t.Errorf("energy of a forgotten time: %v", err)
	}
	if _, err := b.Energy(999*time.Second, 1000*time.Second); err != nil {
		t.Errorf("energy of the last second: %v", err)
	}
}

func BenchmarkTrace(b *testing.B) {
	brd, _ := New(Config{})
	_, _ = brd.SetLoad(0, load.Compute)
	buf := make([]measure.Watt, 1000)
	b.ReportAllocs()
	for i := range b.N {
		brd.Trace(buf, time.Duration(i)*time.Millisecond, 1e3)
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds()/1e6, "MS/s")
}

func TestFind(t *testing.T) {
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if i, err := b.Find("pcie_12v"); err != nil || b.Rails()[i].Name != "pcie_12v" {
		t.Errorf("rail %d, %v", i, err)
	}
	if _, err := b.Find("aux"); err == nil || !strings.Contains(err.Error(), "aux_12v_1, aux_12v_2") {
		t.Errorf("got %v", err)
	}
}

func TestConnect(t *testing.T) {
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	card := b.At(0)
	before, _ := b.Energy(0, 1e9)
	if err := b.Connect("aux_12v_1", &Reading{V: 12, I: 5}); err != nil {
		t.Fatal(err)
	}
	if err := b.Connect("pcie_12v", &Reading{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Connect("none", nil); err == nil {
		t.Error("a rail that is not there")
	}
	now := b.At(0)
	if now[2] != (Reading{V: 12, I: 5, P: 60}) || now[1] != (Reading{}) || now[0] != card[0] || now[3] != card[3] {
		t.Errorf("%+v", now)
	}
	if after, _ := b.Energy(0, 1e9); after.Total != before.Total {
		t.Error("the card draws otherwise because its meter is elsewhere")
	}
	for _, r := range []string{"aux_12v_1", "pcie_12v"} {
		if err := b.Connect(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	if again := b.At(0); again[1] != card[1] || again[2] != card[2] {
		t.Errorf("%+v", again)
	}
}

func TestLiveIsTheBoardOnAClock(t *testing.T) {
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	epoch := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	l := NewLive(b, epoch)
	at := epoch.Add(50 * time.Millisecond)
	if got, err := l.SetLoad(at, load.Compute); err != nil || !got.Equal(at) {
		t.Errorf("the load changes at %v (%v)", got, err)
	}
	if _, err := l.SetLevel(at.Add(time.Second), 100); err != nil {
		t.Error(err)
	}
	l.Cancel(at.Add(500 * time.Millisecond))
	e, err := l.Energy(at, at.Add(2*time.Second))
	want, _ := b.Energy(50*time.Millisecond, 2050*time.Millisecond)
	if err != nil || e.Total != want.Total || e.Total < 2*220 {
		t.Errorf("%v by the clock (%v), %v by the board", e.Total, err, want.Total)
	}
	if p := l.MeanPower(at, at.Add(2*time.Second)); math.Abs(float64(p)-float64(e.Total)/2) > 1e-9 {
		t.Errorf("mean power %v of %v in 2 s", p, e.Total)
	}
	if r := l.At(l.Since(at)); len(r) != len(b.Rails()) {
		t.Errorf("%d rails", len(r))
	}
}

// A simulated GPU sets loads while meters read: run with -race.
func TestConcurrentUse(t *testing.T) {
	b, err := New(Config{Keep: 100 * time.Millisecond, Ripple: Ripple{RMS: 1, Low: 100, High: 200}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			buf := make([]measure.Watt, 20)
			for i := range 2000 {
				at := time.Duration(i) * time.Millisecond
				switch w {
				case 0:
					_, _ = b.SetLoad(at, load.State(i%7))
				case 1:
					b.Trace(buf, at, 5e4)
				default:
					_, _ = b.Energy(at-time.Millisecond, at)
					b.MeanPower(at-time.Millisecond, at)
				}
			}
		})
	}
	wg.Wait()
}

// What is laid down at once is drawn as it was laid down, however fast a meter reads on.
func TestStepsAreLaidDownAtOnce(t *testing.T) {
	epoch := time.Unix(0, 0)
	open := func() *Live {
		b, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		return NewLive(b, epoch)
	}
	read, unread := open(), open()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for at := epoch; ctx.Err() == nil; at = at.Add(time.Millisecond) {
			read.Observe(read.Since(at))
		}
	})
	steps := make([]load.Step, 40)
	for i := range steps {
		steps[i] = load.Step{Load: load.Sleep, For: 10 * time.Microsecond}
		if i%3 == 0 {
			steps[i].Load = load.Full
		}
	}
	steps[len(steps)-1] = load.Step{Load: load.ActiveIdle}
	at := epoch
	for i := range 500 {
		begin, err := read.SetSteps(at, steps)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unread.SetSteps(begin, steps); err != nil {
			t.Fatal(err)
		}
		at = begin.Add(500 * time.Microsecond)
		got, err := read.Energy(begin, at)
		want, e := unread.Energy(begin, at)
		if err != nil || e != nil || got.Total != want.Total {
			t.Fatalf("marker %d at %v: %v, laid down %v (%v, %v)", i, begin, got.Total, want.Total, err, e)
		}
	}
	stop()
	wg.Wait()
	at = at.Add(time.Hour)
	// One bad step, and nothing is changed.
	before := read.MeanPower(at, at.Add(time.Second))
	if _, err := read.SetSteps(at, []load.Step{
		{Load: load.Full, For: time.Second},
		{Level: measure.Watt(math.Inf(1))},
	}); err == nil {
		t.Error("an infinite level was laid down")
	}
	if after := read.MeanPower(at, at.Add(time.Second)); after != before {
		t.Errorf("a refused train draws %v instead of %v", after, before)
	}
}
