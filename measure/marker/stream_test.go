package marker

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
)

// TestBlocks cuts one capture into blocks of random length: the markers must be
// the same to the last bit.
func TestBlocks(t *testing.T) {
	stampedSim := fastSim
	stampedSim.stamped, stampedSim.tickHz = 20e-6, 2.9345e6
	fineSim := sim{rate: 50e3, tau: 0.3e-3, noise: 2, tickHz: 1e6}
	oddSim := sim{rate: 3e6 / 7, tau: 0.3e-3, noise: 2, tickHz: 1e6} // no whole number of ticks a scan
	for name, s := range map[string]sim{"uniform": fastSim, "stamped": stampedSim, "fine": fineSim, "odd ticks": oddSim} {
		t.Run(name, func(t *testing.T) {
			setup := s.setup()
			spec := ProfileFor(*setup, 0x33)
			levels, times, until := mixed(spec, []Kind{Start, Stop}, 70, 170)
			whole := s.run(levels, until, newRand(1))
			want := detect(spec, setup, whole)
			expect(t, want, []Kind{Start, Stop}, times)
			rng := newRand(5)
			for range 4 {
				var blocks []measure.Block
				for at := 0; at < whole.Scans(); {
					n := min(1+rng.IntN(3000), whole.Scans()-at)
					blocks = append(blocks, whole.Slice(setup.Timebase, at, at+n))
					at += n
				}
				if d := cmp.Diff(want, detect(spec, setup, blocks...)); d != "" {
					t.Fatal(d)
				}
			}
		})
	}
}

// TestGaps loses scans: a short hole is bridged, a long one costs the marker
// that it hits and nothing else.
func TestGaps(t *testing.T) {
	setup := fastSim.setup()
	levels, times, until := mixed(fastSpec, []Kind{Start, Stop, Start}, 70, 170)
	whole := fastSim.run(levels, until, newRand(1))
	scan := func(t float64) int { return int(t * fastSim.rate) }
	chip := float64(fastSpec.Chip)
	for _, tc := range []struct {
		name     string
		from, to float64
		lost     bool
	}{
		{"half a chip", times[1] + 10*chip, times[1] + 10.5*chip, false},
		{"two chips", times[1] + 10*chip, times[1] + 12*chip, false},
		{"twelve chips", times[1] + 10*chip, times[1] + 22*chip, true},
		{"the whole marker and more", times[1] - 5*chip, times[1] + 60*chip, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := detect(fastSpec, setup, whole.Slice(setup.Timebase, 0, scan(tc.from)), whole.Slice(setup.Timebase, scan(tc.to), whole.Scans()))
			kinds, at := []Kind{Start, Stop, Start}, times
			if tc.lost {
				kinds, at = []Kind{Start, Start}, []float64{times[0], times[2]}
			}
			expect(t, found, kinds, at)
		})
	}
}

// TestLatency feeds scan by scan: a marker is known a few chips after its end,
// and one whose capture ends with it is known at Finish.
func TestLatency(t *testing.T) {
	levels, _, end := play([]level{{0, 50}}, fastSpec, Start, 0.3, 60, 160)
	levels = append(levels, level{end, 280})
	setup := fastSim.setup()
	whole := fastSim.run(levels, 2, newRand(1))
	d, err := NewDetector(fastSpec, setup)
	if err != nil {
		t.Fatal(err)
	}
	now, known := 0.0, math.NaN()
	d.OnFound(func(Found) { known = now })
	for i := range whole.Scans() {
		b := whole.Slice(setup.Timebase, i, i+1)
		now = float64(i) / fastSim.rate
		if err := d.Push(&b); err != nil {
			t.Fatal(err)
		}
	}
	if late := known - end; !(late < 6*float64(fastSpec.Chip)) {
		t.Errorf("known %v after its end", measure.Seconds(late))
	}
	short := whole.Slice(setup.Timebase, 0, int((end-1.5*float64(fastSpec.Chip))*fastSim.rate))
	if found := detect(fastSpec, setup, short); len(found) != 1 {
		t.Errorf("at the end of the capture: %+v", found)
	}
}

// TestHostIsNotPerfect plays chips that last longer than told and begin late by
// a random time each: the uncertainty must say so, the edges must follow.
func TestHostIsNotPerfect(t *testing.T) {
	var tr trial
	var edges []float64
	for seed := range uint64(30) {
		rng := newRand(seed)
		chip := float64(fastSpec.Chip) * 1.002
		t0 := 0.3 + 0.01*rng.Float64()
		levels := []level{{0, 60}}
		truth := map[int]float64{}
		for i, high := range fastSpec.Chips(Start) {
			k := i - fastSpec.CodeStart()
			truth[k] = t0 + float64(k)*chip
			if k > 0 {
				truth[k] += 30e-6 * rng.NormFloat64()
			}
			w := 60.0
			if high {
				w = 160
			}
			levels = append(levels, level{truth[k], w})
		}
		found := detect(fastSpec, fastSim.setup(), fastSim.run(levels, 1, rng))
		tr.add(fastSpec, found, map[Kind]float64{Start: t0})
		for _, f := range found {
			// How the edges lie to each other: all of them share the error of the marker.
			mean := 0.0
			for _, e := range f.Edges {
				mean += (float64(e.T) - truth[e.Chip]) / float64(len(f.Edges))
			}
			for _, e := range f.Edges {
				edges = append(edges, float64(e.T)-truth[e.Chip]-mean)
			}
		}
	}
	tr.check(t, 40e-6, 0.5, 1.5, 0)
	if r := rms(edges); !(r < 12e-6) || len(edges) < 30*20 {
		t.Errorf("%d edges with an rms error of %v", len(edges), measure.Seconds(r))
	}
}

func TestNewDetectorErrors(t *testing.T) {
	good := fastSim.setup()
	if _, err := NewDetector(Spec{}, good); err == nil {
		t.Error("an empty spec was taken")
	}
	if _, err := NewDetector(fastSpec, &measure.Setup{}); err == nil {
		t.Error("an empty setup was taken")
	}
	long := fastSpec
	long.Chip = 1e9
	if _, err := NewDetector(long, good); err == nil {
		t.Error("a chip of thirty years was taken")
	}
	blind := sensorSim{window: 25e-3, period: 0.1, poll: 4e-3}.setup()
	if _, err := NewDetector(fastSpec, blind); !errors.Is(err, ErrSpec) {
		t.Errorf("chips that the sensor cannot show: %v", err)
	}
	d, err := NewDetector(fastSpec, good)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Push(&measure.Block{Counts: make([][]measure.Count, 2)}); err == nil {
		t.Error("a block of two channels was taken")
	}
}
