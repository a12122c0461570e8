package sensor

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu/sim"
)

func TestAllMethodsAgreeOnASteadyLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := watch(t, sim.NewSensor(step(time.Now(), 300, 300), nil, hopper), MethodOptions{}, 3*time.Second)
		for _, m := range Methods() {
			// SMA's beats and the counter's updates may fall beside the work's ends.
			near(t, got, m, 300, map[Method]float64{SMA: 0.0051, CounterEnds: 0.04}[m]+1e-9)
			if got[m].Note != "" {
				t.Errorf("%s: %s", m, got[m].Note)
			}
		}
		if n := got[SMA].Readings; n < 199 || n > 201 {
			t.Errorf("SMA: %d readings in 3 s at 15 ms", n)
		}
		if n := got[MTSM].Readings; n < 5990 || n > 6001 {
			t.Errorf("MTSM: %d readings in 3 s at 0.5 ms", n)
		}
		if got[PAPI].Readings != 1 || got[PAPI].Call.N != 1 {
			t.Errorf("PAPI: %+v", got[PAPI])
		}
		if a := got[SMA].Alone; math.Abs(float64(a.P50)-15e-3) > 1e-3 {
			t.Errorf("SMA's readings lie %v apart", a.P50)
		}
	})
}

// What PAPI's one reading says at the end of a rise was not drawn all the time.
func TestPAPIExceedsMTSMOnARise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rise := ramp(time.Now().Add(time.Second), 100, 100) // from 100 W to 300 W in 2 s
		got := watch(t, sim.NewSensor(rise, nil, quick), MethodOptions{}, 2*time.Second)
		near(t, got, PAPI, 300, 0.001)
		for _, m := range []Method{MTSM, AverageField, InstantField, Counter} {
			near(t, got, m, 200, 0.005)
		}
		near(t, got, SMA, 200, 0.02)
		near(t, got, CounterEnds, 200, 0.02)
	})
}

// A Hopper's GetPowerUsage is the mean of the second before: 300 ms at 400 W after
// a rest at 100 W read as at most 100 + 0.3·300 W, and by their end.
func TestAveragesHideShortWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := step(time.Now().Add(time.Second), 100, 400)
		got := watch(t, sim.NewSensor(work, nil, hopper), MethodOptions{}, 300*time.Millisecond)
		for _, m := range []Method{SMA, MTSM, PAPI, AverageField} {
			if p := float64(got[m].Mean); p > 195 || p < 99 {
				t.Errorf("%s: %v W of 400 W", m, p)
			}
		}
		if got[MTSM].Mean >= got[PAPI].Mean {
			t.Errorf("MTSM %v, PAPI %v on a rise", got[MTSM].Mean, got[PAPI].Mean)
		}
		near(t, got, Counter, 400, 1e-6)
	})
}

// SMA's energy is a whole number of beats: of short work it is mostly wrong, of
// long work it is not.
func TestSMAIsWrongOnShortWork(t *testing.T) {
	for _, tc := range []struct {
		length      time.Duration
		least, most float64 // relative error
	}{
		{22500 * time.Microsecond, 0.33, 0.34}, // one beat or two
		{97500 * time.Microsecond, 0.07, 0.08}, // six or seven
		{10 * time.Second, 0, 0.0016},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := watch(t, sim.NewSensor(step(time.Now(), 200, 200), nil, quick), MethodOptions{}, tc.length)[SMA]
			off := math.Abs(float64(got.Mean)/200 - 1)
			if off < tc.least || off > tc.most {
				t.Errorf("%v: off by %.4f in %d readings, want %v to %v", tc.length, off, got.Readings, tc.least,
					tc.most)
			}
		})
	}
}

// The instant field sees 25 ms of every 100: of pulses of that period always the
// same part.
func TestInstantAliasesPulses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Updates come at whole periods of the clock; a pulse begins there too, so that
		// the sensor looks at the end of the rest.
		at := time.Now().Truncate(100 * time.Millisecond)
		got := watch(t, sim.NewSensor(square(at, 100*time.Millisecond, 450, 140), nil, hopper), MethodOptions{},
			5*time.Second)
		near(t, got, InstantField, 140, 1e-9)
		for _, m := range []Method{MTSM, PAPI, AverageField, Counter} {
			near(t, got, m, 295, 1e-6)
		}
		seen := watch(t, sim.NewSensor(square(at.Add(50*time.Millisecond), 100*time.Millisecond, 450, 140), nil,
			hopper), MethodOptions{}, 5*time.Second)
		near(t, seen, InstantField, 450, 1e-9)
	})
}

func TestWorkShorterThanASample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := MethodOptions{SMAEvery: time.Hour} // no beat falls into a moment
		got := watch(t, sim.NewSensor(step(time.Now(), 200, 200), nil, hopper), o, 2*time.Millisecond)
		for m, want := range map[Method]string{SMA: "no reading", Counter: "moved 0 times in 2 ms"} {
			if r := got[m]; !math.IsNaN(float64(r.Energy)) || !math.IsNaN(float64(r.Mean)) ||
				!strings.Contains(r.Note, want) {
				t.Errorf("%s: %+v, want a note that says %q", m, r, want)
			}
		}
		for _, m := range []Method{MTSM, PAPI, AverageField, InstantField} { // they interpolate, or read as fast
			near(t, got, m, 200, 1e-9)
		}
		if n := got[CounterEnds]; n.Energy != 0 && math.Abs(float64(n.Energy)-20) > 1e-6 {
			t.Errorf("counter-ends: %v: want none or all of an update's energy", n.Energy)
		}
	})
}

func TestErrorsMidWayAreToldAndTheRestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := bare{PowerSensor: sim.NewSensor(step(time.Now(), 200, 200), nil, hopper), fails: func() bool {
			d := time.Since(begin)
			return d > 1500*time.Millisecond && d < 1600*time.Millisecond
		}}
		got := watch(t, s, MethodOptions{}, time.Second)
		for _, m := range []Method{MTSM, AverageField, InstantField, PAPI, Counter} {
			near(t, got, m, 200, 1e-9)
		}
		near(t, got, SMA, 180, 0.02) // a beat that failed is energy that is missing
		for _, m := range []Method{SMA, MTSM, AverageField, InstantField} {
			if !strings.Contains(got[m].Note, "calls failed: GPU is lost") {
				t.Errorf("%s: note %q", m, got[m].Note)
			}
		}
		if n := got[MTSM].Readings; n < 1790 || n > 1810 {
			t.Errorf("MTSM: %d readings of 2000, a tenth of which failed", n)
		}
	})
}

func TestAGPUThatIsLostForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bare{
			PowerSensor: sim.NewSensor(step(time.Now(), 200, 200), nil, hopper),
			fails:       func() bool { return true },
		}
		got := watch(t, s, MethodOptions{MTSMEvery: -1}, time.Second) // without pause, yet it ends
		for _, m := range []Method{SMA, MTSM, PAPI, AverageField, InstantField} {
			if r := got[m]; !math.IsNaN(float64(r.Energy)) || !strings.Contains(r.Note, "GPU is lost") {
				t.Errorf("%s: %+v", m, r)
			}
		}
		near(t, got, Counter, 200, 1e-6)
	})
}

func TestWhatAGPUDoesNotHaveIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bare{PowerSensor: sim.NewSensor(step(time.Now(), 200, 200), nil, hopper), noFields: true, noCounter: true}
		got := watch(t, s, MethodOptions{}, time.Second)
		for m, want := range map[Method]string{
			AverageField: "gave no reading", InstantField: "gave no reading", Counter: "no energy counter",
			CounterEnds: "no energy counter",
		} {
			if r := got[m]; !math.IsNaN(float64(r.Energy)) || r.Note != got[m].Note || !strings.Contains(r.Note, want) {
				t.Errorf("%s: %+v", m, r)
			}
		}
		if n := got[Counter].Call.N; n != 1 {
			t.Errorf("a counter that is not there was asked %d times", n)
		}
		near(t, got, MTSM, 200, 1e-9)
	})
}

// The calls of the counter hold the driver's lock for 3.3 ms: the times between
// the others' readings are told apart by it.
func TestTheCountersCallIsSeenInTheIntervals(t *testing.T) {
	for name, o := range map[string]MethodOptions{"with": {}, "without": {CounterPause: -1}} {
		synctest.Test(t, func(t *testing.T) {
			s := bare{
				PowerSensor: sim.NewSensor(step(time.Now(), 200, 200), nil, hopper), takes: 600 * time.Nanosecond,
				countTakes: 3300 * time.Microsecond, lock: make(chan struct{}, 1),
			}
			got := watch(t, s, o, time.Second)
			m := got[MTSM]
			if float64(m.Alone.P50) < 490e-6 || float64(m.Alone.P50) > 550e-6 {
				t.Errorf("%s: alone %+v", name, m.Alone)
			}
			switch {
			case name == "without" && m.Beside.N != 0:
				t.Errorf("without the counter: %+v", m.Beside)
			case name == "with" && (m.Beside.N < 60 || float64(m.Beside.P99) < 3.2e-3 ||
				float64(m.Beside.Max) > 4.5e-3):
				t.Errorf("beside the counter: %+v", m.Beside)
			}
			if name == "with" && math.Abs(float64(got[Counter].Call.P50)-3.3e-3) > 0.2e-3 {
				t.Errorf("a call of the counter took %v", got[Counter].Call.P50)
			}
			if name == "without" && !strings.Contains(got[Counter].Note, "not read") {
				t.Errorf("without: %+v", got[Counter])
			}
		})
	}
}

func TestMTSMWithoutPauseIsAsFastAsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bare{PowerSensor: sim.NewSensor(step(time.Now(), 200, 200), nil, hopper), takes: 500 * time.Microsecond}
		got := watch(t, s, MethodOptions{MTSMEvery: -1}, time.Second)
		if n := got[MTSM].Readings; n < 1998 || n > 2001 {
			t.Errorf("%d readings in a second, of 0.5 ms each", n)
		}
	})
}

// Two pieces of work under one watcher are told apart by their spans.
func TestTracesCoverWhatTheyMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(sim.NewSensor(step(time.Now().Add(2*time.Second), 100, 300), nil, quick), MethodOptions{})
		w.o.Nap = napVirtual
		results := twice(t, w)
		if a, b := results[0][MTSM], results[1][MTSM]; math.Abs(float64(a.Mean)-100) > 1e-6 ||
			math.Abs(float64(b.Mean)-300) > 1e-6 {
			t.Errorf("MTSM: %v, then %v", a.Mean, b.Mean)
		}
		if a, b := results[0][PAPI], results[1][PAPI]; math.Abs(float64(a.Mean)-100) > 1e-6 ||
			math.Abs(float64(b.Mean)-300) > 1e-6 {
			t.Errorf("PAPI: %v, then %v", a.Mean, b.Mean)
		}
		names := map[Method]int{}
		for _, tr := range w.Traces() {
			names[tr.Method] = len(tr.Points)
			for i := 1; i < len(tr.Points); i++ {
				if !tr.Points[i-1].At.Before(tr.Points[i].At) {
					t.Fatalf("%s: points out of order", tr.Method)
				}
			}
		}
		if len(names) != 6 || names[MTSM] > 8 {
			t.Errorf("traces: %v", names)
		}
	})
}
