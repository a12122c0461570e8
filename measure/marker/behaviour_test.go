package marker

import (
	"math"
	"testing"

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
