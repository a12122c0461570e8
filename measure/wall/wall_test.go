package wall

import (
	"errors"
	"math"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// bench has a card of one rail, read 1000 times a second, and a meter at the wall with an update of 100 ms.
func bench() measure.Setup {
	return measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 1000},
		Channels: []measure.Channel{
			{Name: "card", Unit: measure.UnitWatt, Gain: 1},
			{Name: "wall", Unit: measure.UnitWall, Gain: 1, UGain: 0.01, MinCount: -1000, MaxCount: 1000, Skew: -0.05},
		},
		Rails: []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
	}
}

// scans are two seconds of a card that draws 100 W more from 0.52 s on, in a machine that draws 50 W besides; change
// is called with the number of each update of the wall's, and its mean; readings come so many milliseconds late.
func scans(late int, change func(update int, mean measure.Count) measure.Count) *measure.Block {
	b := &measure.Block{Counts: make([][]measure.Count, 2)}
	card := func(ms int) measure.Count {
		if ms < 520 {
			return 20
		}
		return 120
	}
	for ms := range 2000 {
		n := (ms+50-late+1000)/100 - 10 // the update that ended nearest, in [100·(n − 1), 100·n)
		var sum measure.Count
		for i := range 100 {
			sum += card(100*(n-1)+i) + 50
		}
		b.Counts[0], b.Counts[1] = append(b.Counts[0], card(ms)), append(b.Counts[1], change(n, sum/100))
	}
	return b
}

func result(t *testing.T, w measure.Window, late int, change func(int, measure.Count) measure.Count) (Result, error) {
	t.Helper()
	s, b := bench(), scans(late, change)
	m, err := New(&s, w)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(b); err != nil {
		t.Fatal(err)
	}
	energy := func(w measure.Window) measure.Result {
		g, err := measure.NewIntegrator(&s, w.From, w.To)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Add(b); err != nil {
			t.Fatal(err)
		}
		r, err := g.Result(measure.Edges{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	card := energy(w)
	r, err := m.Result(&card, measure.Edges{})
	if err != nil {
		return Result{}, err
	}
	return *r, nil
}

// A window from the middle of an update, in which the card stepped, takes what the card took there.
func TestAnEndWithinAnUpdate(t *testing.T) {
	whole := func(_ int, mean measure.Count) measure.Count { return mean }
	r, err := result(t, measure.Window{From: 0.52, To: 1.33}, 0, whole)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(float64(r.Rest.Energy)-50*0.81) > 0.2 || math.Abs(float64(r.Wall.Energy)-170*0.81) > 0.2 || r.Updates != 7 ||
		math.Abs(float64(r.RestMean)-50) > 0.3 {
		t.Errorf("%+v", r)
	}
	if u := 2 * 0.01 * 170 * 0.81; float64(r.Wall.U) < u || float64(r.Wall.U) > 2*u {
		t.Errorf("U of the wall %v, of its gain alone %v", r.Wall.U, u)
	}
	// A lost reading is bridged, and makes the figure less certain by what may have happened meanwhile.
	step := measure.Window{From: 0.31, To: 1.33}
	if r, err = result(t, step, 0, whole); err != nil {
		t.Fatal(err)
	}
	lost, err := result(t, step, 0, func(n int, mean measure.Count) measure.Count {
		if n == 9 {
			return measure.NoReading
		}
		return mean
	})
	if err != nil || math.Abs(float64(lost.Wall.Energy-r.Wall.Energy)) > 0.2 || lost.Updates != r.Updates-1 || !(lost.Rest.U > r.Rest.U) {
		t.Errorf("%v: %+v with a lost reading, %+v without", err, lost, r)
	}
}

// Readings that come late are placed by the card's step, and the energies are those of readings in time.
func TestLateReadings(t *testing.T) {
	for _, late := range []int{-60, 0, 35, 120, 210} {
		r, err := result(t, measure.Window{From: 0.41, To: 1.33}, late, func(n int, mean measure.Count) measure.Count {
			return mean + measure.Count(n%2) // no two readings are equal
		})
		if err != nil {
			t.Fatal(err)
		}
		off, miss := float64(r.Late)-float64(late)/1000, float64(r.Wall.Energy)-(70.5*0.11+170.5*0.81)
		t.Logf("%d ms late: taken for %v ± %v; %v, off by %.2f J", late, r.Late, r.ULate, r.Wall, miss)
		if math.Abs(off) > 3*float64(r.ULate) || r.ULate > 0.004 || math.Abs(miss) > 0.5 {
			t.Error("it is misplaced")
		}
	}
}

// Where there is no figure the reason is an error.
func TestRefusals(t *testing.T) {
	whole := func(_ int, mean measure.Count) measure.Count { return mean }
	for name, c := range map[string]struct {
		from, to measure.Seconds
		change   func(int, measure.Count) measure.Count
		want     error
	}{
		"an update and a half":     {0.72, 0.87, whole, ErrShort},
		"before the first reading": {0.01, 1.5, whole, ErrShort},
		"behind the last":          {0.5, 1.96, whole, ErrShort},
		"over range": {0.5, 1.5, func(n int, mean measure.Count) measure.Count {
			if n == 9 {
				return 1000
			}
			return mean
		}, ErrRange},
		"a lost reading at an end": {0.55, 1.5, func(n int, mean measure.Count) measure.Count {
			if n == 6 {
				return measure.NoReading
			}
			return mean
		}, ErrShort},
	} {
		if r, err := result(t, measure.Window{From: c.from, To: c.to}, 0, c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	s := bench()
	s.Channels = s.Channels[:1]
	if _, err := New(&s, measure.Window{From: 0, To: 1}); !errors.Is(err, ErrNone) {
		t.Errorf("without a meter at the wall: %v", err)
	}
	// The check that keeps it out of every sum of rails.
	s = bench()
	s.Rails[0].X = 1
	if err := s.Validate(); err == nil {
		t.Error("a rail of the card is made of the wall")
	}
}
