package marker

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/measure"
)

var (
	fastSim  = sim{rate: 4785, tau: 0.3e-3, noise: 2, droop: 0.01}
	fastSpec = FastProfile(4785, 0xa5)
)

// expect compares kinds and times with what was played.
func expect(t *testing.T, found []Found, kinds []Kind, times []float64) {
	t.Helper()
	if len(found) != len(kinds) {
		t.Fatalf("found %d markers, want %d: %+v", len(found), len(kinds), found)
	}
	for i, f := range found {
		if f.Kind != kinds[i] || math.Abs(float64(f.T)-times[i]) > 5*float64(f.U)+2e-6 {
			t.Errorf("marker %d: %v at %v ± %v, want %v at %v", i, f.Kind, f.T, f.U, kinds[i], times[i])
		}
	}
}

// mixed plays start and stop markers amid work at levels far from the marker's.
func mixed(spec Spec, kinds []Kind, low, high float64) (levels []level, times []float64, end float64) {
	rng := newRand(3)
	levels = []level{{0, 300}}
	end = 30 * float64(spec.Chip)
	for _, k := range kinds {
		var t0 float64
		levels, t0, end = play(levels, spec, k, end, low, high)
		times = append(times, t0)
		for range 20 {
			levels = append(levels, level{end, 40 + 400*rng.Float64()})
			end += float64(spec.Chip) * 4 * rng.Float64()
		}
	}
	levels = append(levels, level{end, 320})
	return levels, times, end + 30*float64(spec.Chip)
}

func TestMarkersAmidWork(t *testing.T) {
	kinds := []Kind{Start, Stop, Stop, Start, Start, Stop, Start, Stop}
	for name, code := range map[string]Code{"m31": M31, "m15": M15, "barker13": Barker13, "updown": UpDown} {
		t.Run(name, func(t *testing.T) {
			spec := fastSpec
			spec.Code = code
			levels, times, until := mixed(spec, kinds, 70, 170)
			found := detect(spec, fastSim.setup(), fastSim.run(levels, until, newRand(1)))
			expect(t, found, kinds, times)
			for i, f := range found {
				if !f.TagOK || f.Tag != 0xa5 || f.Fallback != (code == UpDown) {
					t.Errorf("marker %d: tag %x ok %v, fallback %v", i, f.Tag, f.TagOK, f.Fallback)
				}
				if math.Abs(float64(f.Step)-100) > 3 || math.Abs(float64(f.Tau)-0.3e-3) > 0.05e-3 {
					t.Errorf("marker %d: step %v, tau %v", i, f.Step, f.Tau)
				}
				begin := times[i] - float64(spec.Guard)*float64(spec.Chip)
				if math.Abs(float64(f.Begin)-begin) > 50e-6 || math.Abs(float64(f.End-f.Begin-spec.Duration())) > 1e-9 {
					t.Errorf("marker %d: from %v to %v, want from %v for %v", i, f.Begin, f.End, begin, spec.Duration())
				}
			}
		})
	}
}

// TestPlainUpDown is the papers' own pattern: no tag, start and stop in turns.
func TestPlainUpDown(t *testing.T) {
	kinds := []Kind{Start, Stop, Start, Stop}
	spec := Spec{Code: UpDown, Chip: fastSpec.Chip, Guard: 4}
	levels, times, until := mixed(spec, kinds, 70, 170)
	found := detect(spec, fastSim.setup(), fastSim.run(levels, until, newRand(1)))
	expect(t, found, kinds, times)
	for i, f := range found {
		begin := times[i] - 4*float64(spec.Chip)
		if !f.Fallback || !f.TagOK || math.Abs(float64(f.Begin)-begin) > 50e-6 || math.Abs(float64(f.End-f.Begin-spec.Duration())) > 1e-9 {
			t.Errorf("marker %d: %+v", i, f)
		}
		for _, e := range f.Edges {
			want := times[i] + float64(e.Chip)*float64(spec.Chip)
			if math.Abs(float64(e.T)-want) > 6*float64(e.U) {
				t.Errorf("marker %d, chip %d: edge at %v ± %v, want %v", i, e.Chip, e.T, e.U, want)
			}
		}
	}
}

// TestSkew moves the channel that carries the current behind its ticks.
func TestSkew(t *testing.T) {
	levels, times, until := mixed(fastSpec, []Kind{Start}, 70, 170)
	b := fastSim.run(levels, until, newRand(1))
	setup := fastSim.setup()
	plain := detect(fastSpec, setup, b)
	setup.Channels[2].Skew = 100e-6
	skewed := detect(fastSpec, setup, b)
	expect(t, plain, []Kind{Start}, times)
	if late := float64(skewed[0].T-plain[0].T) - 100e-6; math.Abs(late) > 1e-9 {
		t.Errorf("a skew of 100 µs moves the marker by %v more", measure.Seconds(late))
	}
}

func TestSensorMarkersAmidWork(t *testing.T) {
	kinds := []Kind{Start, Stop, Stop, Start}
	s := sensorSim{window: 25e-3, period: 0.1, noise: 1, poll: 4e-3}
	spec := ProfileFor(*s.setup(), 9)
	levels, times, until := mixed(spec, kinds, 136, 450)
	found := detect(spec, s.setup(), s.run(levels, until, newRand(1)))
	expect(t, found, kinds, times)
	for i, f := range found {
		if !f.TagOK || len(f.Edges) != 1 || f.Edges[0].T != f.T || f.Edges[0].U != f.U {
			t.Errorf("marker %d: %+v", i, f)
		}
	}
}

func TestWrongTagIsNoticed(t *testing.T) {
	for tag := range uint32(256) {
		if tag%17 != 3 {
			continue
		}
		played := fastSpec
		played.Tag = tag
		levels, times, until := mixed(played, []Kind{Start}, 70, 170)
		found := detect(fastSpec, fastSim.setup(), fastSim.run(levels, until, newRand(1)))
		expect(t, found, []Kind{Start}, times)
		if found[0].Tag != tag || found[0].TagOK {
			t.Errorf("tag %x read as %x, ok %v", tag, found[0].Tag, found[0].TagOK)
		}
	}
}

func TestNotAMarker(t *testing.T) {
	chip := float64(fastSpec.Chip)
	whole := func(spec Spec, kind Kind) []level {
		levels, _, end := play([]level{{0, 55}}, spec, kind, 0.3, 60, 160)
		return append(levels, level{end, 50})
	}
	cut := func(levels []level, chips float64, then float64) []level {
		at := 0.3 + chips*chip
		for i, l := range levels {
			if l.at > at {
				return append(levels[:i:i], level{at, then})
			}
		}
		return levels
	}
	slow, fast, other := fastSpec, fastSpec, fastSpec
	slow.Chip *= 1.15
	fast.Chip *= 0.87
	other.Code = Barker13
	train := []level{{0, 60}}
	for i := range 40 {
		train = append(train, level{0.3 + float64(i)*chip, 60 + 100*float64((i+1)%2)})
	}
	updown := fastSpec
	updown.Code, updown.TagBits, updown.Tag = UpDown, 0, 0
	for _, tc := range []struct {
		name   string
		spec   Spec
		levels []level
		until  float64
	}{
		{"cut within the code, idle after", fastSpec, cut(whole(fastSpec, Start), 24, 60), 1},
		{"cut within the code, work after", fastSpec, cut(whole(fastSpec, Start), 24, 300), 1},
		{"cut within the tag, work after", fastSpec, cut(whole(fastSpec, Stop), 4+31+6, 300), 1},
		{"capture ends within the code", fastSpec, whole(fastSpec, Start), 0.3 + 25*chip},
		{"capture ends within the tag", fastSpec, whole(fastSpec, Start), 0.3 + 42*chip},
		{"chips too long", fastSpec, whole(slow, Start), 1},
		{"chips too short", fastSpec, whole(fast, Stop), 1},
		{"another code", fastSpec, whole(other, Start), 1},
		{"no work at all", fastSpec, []level{{0, 60}}, 1},
		{"a square wave of the chip's length", fastSpec, train, 1},
		{"ten pulses are not the four of up-down", updown, train, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if found := detect(tc.spec, fastSim.setup(), fastSim.run(tc.levels, tc.until, newRand(1))); len(found) > 0 {
				t.Errorf("found %+v", found)
			}
		})
	}
}

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
			for _, e := range f.Edges {
				edges = append(edges, float64(e.T)-truth[e.Chip])
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
