package measure

import (
	"errors"
	"math"
	"testing"
)

// thinned puts the sums of blocks from to before end in their place, taken by two programs one after the other.
func thinned(t testing.TB, s *Setup, blocks []Block, from, end int) []Block {
	t.Helper()
	x, err := NewThinned(s)
	for i := from; i < end && err == nil; i++ {
		if err = x.Add(&blocks[i]); err == nil && i == (from+end)/2 {
			var data []byte
			if data, err = x.Encode(); err == nil {
				x, err = DecodeThinned(s, data)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	b := Block{FirstScan: blocks[from].FirstScan, thinned: x}
	return append(append(append([]Block(nil), blocks[:from]...), b), blocks[end:]...)
}

// alike compares two results, to the rounding of their sums.
func alike(t *testing.T, got, want *Result) {
	t.Helper()
	lines := func(what string, a, b []Contribution, of Joule) {
		for i := range b {
			if len(a) != len(b) || a[i].Source != b[i].Source || !(math.Abs(float64(a[i].U-b[i].U)) <= 1e-9*float64(of)) {
				t.Errorf("%s: budget %v, want %v", what, a, b)
				return
			}
		}
	}
	if got.Samples != want.Samples || got.FirstScan != want.FirstScan || got.Gaps != want.Gaps || got.Lost != want.Lost ||
		got.Peak != want.Peak {
		t.Errorf("%+v, want %+v", got, want)
	}
	closeTo(t, "energy", float64(got.Total.Energy), float64(want.Total.Energy), 1e-12)
	closeTo(t, "U", float64(got.Total.U), float64(want.Total.U), 1e-9)
	lines("total", got.Budget, want.Budget, want.Total.U)
	for i, r := range want.Rails {
		g := got.Rails[i]
		closeTo(t, r.Name, float64(g.Energy.Energy), float64(r.Energy.Energy), 1e-12)
		closeTo(t, r.Name+" peak", float64(g.Peak), float64(r.Peak), 0)
		closeTo(t, r.Name+" U", float64(g.Energy.U), float64(r.Energy.U), 1e-9)
		lines(r.Name, g.Budget, r.Budget, r.Energy.U)
	}
}

func TestThinnedSamplesGiveTheSameResult(t *testing.T) {
	for name, tb := range timebases {
		t.Run(name, func(t *testing.T) {
			s := mixedSetup(tb)
			all := split(tb, mixedBlock(tb, 60_000, 1), 2000)
			at := func(scan float64) Seconds { return tb.Seconds(scan * tb.TicksPerScan) }
			e := Edges{UFrom: at(1), UTo: at(1), Correlation: 0.5, Beats: true}
			from, to := at(301.3), at(59_500.7)
			want := integrate(t, s, from, to, e, all...)
			few := thinned(t, s, all, 3, 12)
			got := integrate(t, s, from, to, e, few...)
			alike(t, &got, &want)

			again := integrate(t, s, from, to, e, thinned(t, s, few, 6, 20)...)
			alike(t, &again, &want)

			lost := append(append([]Block(nil), all[:12]...), all[14:]...)
			few = thinned(t, s, lost, 3, 12)
			gap, same := integrate(t, s, from, to, e, few...), integrate(t, s, from, to, e, lost...)
			alike(t, &gap, &same)

			beside := integrate(t, s, at(29_000), at(50_000), e, few...)
			alone := integrate(t, s, at(29_000), at(50_000), e, lost...)
			alike(t, &beside, &alone)
		})
	}
}

func TestThinnedSamplesAreNotMadeUp(t *testing.T) {
	tb := timebases["uniform"]
	s := mixedSetup(tb)
	all := split(tb, mixedBlock(tb, 20_000, 2), 1000)
	few := thinned(t, s, all, 4, 10)
	try := func(s *Setup, from, to float64) error {
		g, err := NewIntegrator(s, tb.Seconds(from*tb.TicksPerScan), tb.Seconds(to*tb.TicksPerScan))
		for i := 0; err == nil && i < len(few); i++ {
			err = g.Add(&few[i])
		}
		return err
	}
	for _, w := range [][2]float64{{5000, 15_000}, {100, 7000}, {3990, 15_000}, {100, 10_030}, {5000, 6000}} {
		if err := try(s, w[0], w[1]); !errors.Is(err, ErrThinned) {
			t.Errorf("window of scans %v: %v, want ErrThinned", w, err)
		}
	}
	other := *s
	other.Channels = append([]Channel(nil), s.Channels...)
	other.Channels[0].Gain *= 1.01
	if err := try(&other, 100, 15_000); !errors.Is(err, ErrThinned) {
		t.Errorf("under another calibration: %v", err)
	}
	data, err := few[4].thinned.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeThinned(&other, data); !errors.Is(err, ErrThinned) {
		t.Errorf("read under another calibration: %v", err)
	}
	p, err := NewPowerStream(s, func(*Powers) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Add(&few[4]); !errors.Is(err, ErrThinned) {
		t.Errorf("watts of deleted samples: %v", err)
	}
	var energy, last, power float64
	err = few[4].thinned.Steady(func(p *Powers) error {
		for i := range p.Scans() {
			now := float64(p.Rails[1].P[i])
			if last > 0 {
				energy += (now + power) / 2 * float64(tb.Seconds(p.Tick(i)-last))
			}
			last, power = p.Tick(i), now
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	closeTo(t, "energy of the points in their place", energy, float64(few[4].thinned.Energy(1)), 1e-9)
}

func FuzzDecodeThinned(f *testing.F) {
	tb := timebases["uniform"]
	s := mixedSetup(tb)
	x, err := NewThinned(s)
	if err != nil {
		f.Fatal(err)
	}
	b := mixedBlock(tb, 3000, 3)
	if err := x.Add(&b); err != nil {
		f.Fatal(err)
	}
	data, err := x.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"Scans":5}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := DecodeThinned(s, data)
		if err != nil {
			return
		}
		g, err := NewIntegrator(s, -1, 1e9)
		if err != nil {
			t.Fatal(err)
		}
		_ = g.Add(&Block{thinned: x}) // must not panic
		_, _ = g.Result(Edges{Beats: true})
	})
}
