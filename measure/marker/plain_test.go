package marker

import (
	"math"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
)

// pulses appends four pulses as the papers' hosts play them, with silence on
// both sides, each of the given length and height in chips and watts. It
// returns the begin of the first one and the end of the silence.
func pulses(levels []level, begin, chip float64, guard int, low float64, width, height [4]float64) ([]level, float64, float64) {
	levels = append(levels, level{begin, low})
	first := begin + float64(guard)*chip
	for i := range 4 {
		at := first + 2*float64(i)*chip
		levels = append(levels, level{at, low + height[i]}, level{at + width[i]*chip, low})
	}
	return levels, first, first + float64(8+guard)*chip
}

var (
	evenWidth  = [4]float64{1, 1, 1, 1}
	evenHeight = [4]float64{100, 100, 100, 100}
)

// plainTask is two patterns around some work.
func plainTask(width, height [4]float64, low2, high2 float64) (levels []level, times []float64, until float64) {
	chip := float64(fastSpec.Chip)
	levels = []level{{0, 300}}
	levels, t1, end := pulses(levels, 0.2, chip, 4, 60, width, height)
	levels = append(levels, level{end, 250}, level{end + 0.1, 310})
	for i := range height {
		height[i] *= high2
	}
	levels, t2, end := pulses(levels, end+0.3, chip, 4, low2, width, height)
	return append(levels, level{end, 280}), []float64{t1, t2}, end + 0.4
}

func TestPlainPatternsStandForLostMarkers(t *testing.T) {
	for _, code := range []Code{M31, M15, Barker13} {
		spec := fastSpec
		spec.Code = code
		levels, times, until := plainTask(evenWidth, evenHeight, 60, 1)
		found := detect(spec, fastSim.setup(), fastSim.run(levels, until, newRand(1)))
		expect(t, found, []Kind{Start, Stop}, times)
		for i, f := range found {
			if !f.Fallback || f.TagOK || !f.Plain() || math.Abs(float64(f.Step)-100) > 3 {
				t.Errorf("%v, marker %d: %+v", code, i, f)
			}
			if lead := times[i] - float64(f.Begin); math.Abs(lead-4*float64(spec.Chip)) > 50e-6 {
				t.Errorf("%v, marker %d begins %v s before its first pulse", code, i, lead)
			}
		}
	}
}

// TestPlainBesideACode plays one marker as a code and the other one plainly, and
// plain ones beside two codes, which drop them.
func TestPlainBesideACode(t *testing.T) {
	chip := float64(fastSpec.Chip)
	plain := func(levels []level, at float64) ([]level, float64, float64) {
		return pulses(levels, at, chip, 4, 60, evenWidth, evenHeight)
	}
	type part struct {
		kind Kind // 0: plain
		want Kind // 0: dropped
	}
	for name, parts := range map[string][]part{
		"a plain stop":           {{Start, Start}, {0, Stop}},
		"a plain start":          {{0, Start}, {Stop, Stop}},
		"plain beside codes":     {{0, 0}, {Start, Start}, {0, 0}, {Stop, Stop}, {0, 0}},
		"the last one counts":    {{Start, Start}, {0, 0}, {0, Stop}},
		"the first one counts":   {{0, Start}, {0, 0}, {Stop, Stop}},
		"plain before the start": {{0, 0}, {Start, Start}},
		"plain after the stop":   {{Stop, Stop}, {0, 0}},
		"one plain one alone":    {{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			levels := []level{{0, 300}}
			at := 0.2
			var kinds []Kind
			var times []float64
			for _, p := range parts {
				var t0 float64
				if p.kind == 0 {
					levels, t0, at = plain(levels, at)
				} else {
					levels, t0, at = play(levels, fastSpec, p.kind, at, 60, 160)
				}
				levels = append(levels, level{at, 290})
				at += 0.25
				if p.want != 0 {
					kinds, times = append(kinds, p.want), append(times, t0)
				}
			}
			found := detect(fastSpec, fastSim.setup(), fastSim.run(levels, at+0.2, newRand(2)))
			expect(t, found, kinds, times)
			for i, f := range found {
				if f.Fallback == f.TagOK {
					t.Errorf("marker %d: %+v", i, f)
				}
			}
		})
	}
}

func TestNotAPlainPattern(t *testing.T) {
	chip := float64(fastSpec.Chip)
	for name, tc := range map[string]struct {
		width, height [4]float64
		low2, high2   float64
	}{
		"a longer pulse":      {[4]float64{1, 1.1, 1, 1}, evenHeight, 60, 1},
		"shorter pulses":      {[4]float64{0.85, 0.85, 0.85, 0.85}, evenHeight, 60, 1},
		"a higher pulse":      {evenWidth, [4]float64{100, 100, 125, 100}, 60, 1},
		"rising pulses":       {evenWidth, [4]float64{80, 90, 100, 110}, 60, 1},
		"two unlike heights":  {evenWidth, evenHeight, 60, 1.3},
		"two unlike silences": {evenWidth, evenHeight, 90, 1},
	} {
		t.Run(name, func(t *testing.T) {
			levels, _, until := plainTask(tc.width, tc.height, tc.low2, tc.high2)
			if found := detect(fastSpec, fastSim.setup(), fastSim.run(levels, until, newRand(1))); len(found) > 0 {
				t.Errorf("found %+v", found)
			}
		})
	}
	// A pulse within either guard, and five pulses instead of four.
	for _, at := range []float64{-2.5, 10} {
		var levels []level
		levels = append(levels, level{0, 60})
		end := 0.2
		for range 2 {
			var first float64
			levels, first, end = pulses(levels, end, chip, 4, 60, evenWidth, evenHeight)
			extra := first + at*chip
			levels = append(levels, level{extra, 160}, level{extra + chip, 60})
			sortLevels(levels)
			levels = append(levels, level{end, 250})
			end += 0.2
		}
		if found := detect(fastSpec, fastSim.setup(), fastSim.run(levels, end+0.2, newRand(1))); len(found) > 0 {
			t.Errorf("a pulse %v chips behind the first: found %+v", at, found)
		}
	}
}

// TestPlainIsNoWeakerThanUpDown runs an hour of work: what passes for a plain
// pattern here is not more than what passes for up-down without a tag.
func TestPlainIsNoWeakerThanUpDown(t *testing.T) {
	const each = 60.0
	s := sim{rate: 1000, tau: 0.5e-3, noise: 2}
	spec := FastProfile(measure.Hertz(s.rate), 0x5a)
	updown := Spec{Code: UpDown, Chip: spec.Chip, Guard: spec.Guard}
	total := 3600.0
	if !coverage.Slow {
		total /= 12
	}
	patterns, reported, asUpDown := 0, 0, 0
	for seed := range int(total / each) {
		rng := newRand(uint64(seed) + 5000)
		b := s.run(workload(rng, float64(spec.Chip), each), each, rng)
		d, err := NewDetector(spec, s.setup())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Push(&b); err != nil {
			t.Fatal(err)
		}
		d.finder.finish()
		if p := d.finder.(*sampled).plain; p.first != nil {
			patterns++
		}
		if err := d.Finish(); err != nil {
			t.Fatal(err)
		}
		reported += len(d.Found())
		if len(detect(updown, s.setup(), b)) > 0 {
			asUpDown++
		}
	}
	t.Logf("of %d stretches %d held a plain pattern, %d markers were reported; %d held an up-down", int(total/each), patterns, reported, asUpDown)
	if patterns > asUpDown || reported > 0 {
		t.Errorf("%d plain patterns, %d reported; up-down %d", patterns, reported, asUpDown)
	}
}

func TestPair(t *testing.T) {
	at := func(kind Kind, t measure.Seconds) Found {
		return Found{Kind: kind, T: t, Begin: t - 0.1, End: t + 0.3, TagOK: true}
	}
	foreign := func(f Found) Found { f.TagOK = false; return f }
	plain := func(f Found) Found { f.TagOK, f.Fallback = false, true; return f }
	s1, s2, e3, e4 := at(Start, 1), at(Start, 2), at(Stop, 3), at(Stop, 4)
	for _, tc := range []struct {
		name        string
		found       []Found
		start, stop int // index into found; −1: none
	}{
		{"nothing", nil, -1, -1},
		{"both", []Found{s1, e3}, 0, 1},
		{"a retry: all tries", []Found{s1, s2, e3, e4}, 0, 3},
		{"a retry of the whole task: both tries", []Found{s1, at(Stop, 1.5), s2, e3}, 0, 3},
		{"start alone", []Found{s1}, 0, -1},
		{"stop alone", []Found{e3}, -1, 0},
		{"a stop before the start", []Found{at(Stop, 0.5), s1}, 1, -1},
		{"a stop that overlaps the start", []Found{s1, at(Stop, 1.2)}, 0, -1},
		{"a stop before, and one after", []Found{at(Stop, 0.5), s1, e3}, 1, 2},
		{"another task's are passed over", []Found{foreign(s1), s2, e3, foreign(e4)}, 1, 2},
		{"only another task's", []Found{foreign(s1), foreign(e3)}, -1, -1},
		{"the tag beats the plain pattern", []Found{plain(s1), s2, e3, plain(e4)}, 1, 2},
		{"plain where the stop was lost", []Found{s1, plain(e3)}, 0, 1},
		{"plain where the start was lost", []Found{plain(s1), plain(s2), e3}, 0, 2},
		{"nothing but plain", []Found{plain(s1), plain(s2), plain(e3), plain(e4)}, 0, 3},
		{"up-down that was asked for", []Found{{Kind: Start, T: 1, End: 1.3, TagOK: true, Fallback: true}, e3}, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start, stop := Pair(tc.found)
			pick := func(i int) *Found {
				if i < 0 {
					return nil
				}
				return &tc.found[i]
			}
			if start != pick(tc.start) || stop != pick(tc.stop) {
				t.Errorf("got %+v and %+v", start, stop)
			}
		})
	}
}
