package marker

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
)

func text(chips []bool) string {
	b := make([]byte, len(chips))
	for i, c := range chips {
		b[i] = '0'
		if c {
			b[i] = '1'
		}
	}
	return string(b)
}

// aperiodic returns the largest sidelobe of a code that stands alone, periodic
// that of the code repeated for ever, both as counts of chips.
func aperiodic(c []bool) (worst int) {
	for lag := 1; lag < len(c); lag++ {
		sum := 0
		for i := 0; i+lag < len(c); i++ {
			sum += agree(c[i], c[i+lag])
		}
		worst = max(worst, sum, -sum)
	}
	return worst
}

func periodic(c []bool) (lowest, highest int) {
	lowest, highest = len(c), -len(c)
	for lag := 1; lag < len(c); lag++ {
		sum := 0
		for i := range c {
			sum += agree(c[i], c[(i+lag)%len(c)])
		}
		lowest, highest = min(lowest, sum), max(highest, sum)
	}
	return lowest, highest
}

func agree(a, b bool) int {
	if a == b {
		return 1
	}
	return -1
}

func TestCodes(t *testing.T) {
	for _, tc := range []struct {
		code            Code
		name, chips     string
		sidelobe        int
		lowest, highest int // periodic; an m-sequence has −1 everywhere
	}{
		{Barker13, "barker13", "1111100110101", 1, 1, 1},
		{M15, "m15", "100110101111000", 3, -1, -1},
		{M31, "m31", "1100111110001101110101000010010", 4, -1, -1},
		{UpDown, "updown", "10101010", 7, -8, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := tc.code.Chips()
			if got := text(c); got != tc.chips {
				t.Errorf("chips %s, want %s", got, tc.chips)
			}
			if tc.code.String() != tc.name {
				t.Errorf("name %s", tc.code)
			}
			if got := aperiodic(c); got != tc.sidelobe {
				t.Errorf("aperiodic sidelobe %d, want %d", got, tc.sidelobe)
			}
			if lo, hi := periodic(c); lo != tc.lowest || hi != tc.highest {
				t.Errorf("periodic sidelobes %d to %d, want %d to %d", lo, hi, tc.lowest, tc.highest)
			}
		})
	}
	if None.Chips() != nil || Code(99).Chips() != nil {
		t.Error("chips of an unknown code")
	}
}

func TestSpecChips(t *testing.T) {
	s := Spec{Code: Barker13, Chip: 1e-3, Guard: 2, TagBits: 3, Tag: 0b110}
	got := []string{text(s.Chips(Start)), text(s.Chips(Stop))}
	want := []string{"00" + "1111100110101" + "101001" + "00", "00" + "0000011001010" + "101001" + "00"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if s.CodeStart() != 2 || s.CodeLen() != 13 || s.Len() != 23 || math.Abs(float64(s.Duration())-23e-3) > 1e-12 {
		t.Errorf("start %d, code %d, length %d, duration %v", s.CodeStart(), s.CodeLen(), s.Len(), s.Duration())
	}
}

func TestSpecValidate(t *testing.T) {
	good := Spec{Code: M31, Chip: 2e-3, Guard: 4, TagBits: 8, Tag: 255}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Spec){
		"no code":      func(s *Spec) { s.Code = None },
		"unknown code": func(s *Spec) { s.Code = 77 },
		"zero chip":    func(s *Spec) { s.Chip = 0 },
		"NaN chip":     func(s *Spec) { s.Chip = measure.Seconds(math.NaN()) },
		"inf chip":     func(s *Spec) { s.Chip = measure.Seconds(math.Inf(1)) },
		"no guard":     func(s *Spec) { s.Guard = 0 },
		"long guard":   func(s *Spec) { s.Guard = 5000 },
		"long tag":     func(s *Spec) { s.TagBits = 33 },
		"tag too big":  func(s *Spec) { s.Tag = 256 },
	} {
		s := good
		spoil(&s)
		if err := s.Validate(); !errors.Is(err, ErrSpec) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProfiles(t *testing.T) {
	setup := func(rate float64, r measure.Response) measure.Setup {
		return measure.Setup{Timebase: measure.Timebase{TickHz: 1e9, TicksPerScan: 1e9 / rate}, Response: r}
	}
	for _, tc := range []struct {
		name string
		in   measure.Setup
		want Spec
	}{
		{"pmd", setup(4785, measure.Response{}), Spec{M31, 4245e-6, 4, 8, 0xcd}},
		{"powersensor3", setup(20e3, measure.Response{}), Spec{M31, 2016e-6, 4, 8, 0xcd}},
		{"1 kS/s", setup(1e3, measure.Response{}), Spec{M31, 8310e-6, 4, 8, 0xcd}},
		{"30 MS/s", setup(30e6, measure.Response{}), Spec{M31, 2e-3, 4, 8, 0xcd}},
		{"slow edges", setup(20e3, measure.Response{Tau: 2e-3}), Spec{M31, 10e-3, 4, 8, 0xcd}},
		{"hopper instant", setup(250, measure.Response{Window: 25e-3, Update: 0.1}), Spec{M31, 0.131, 4, 4, 0xd}},
		{"volta", setup(250, measure.Response{Window: 10e-3, Update: 20e-3}), Spec{M31, 26.2e-3, 4, 4, 0xd}},
		{"hopper average", setup(250, measure.Response{Window: 1, Update: 0.1}), Spec{M31, 0.131, 10, 4, 0xd}},
		{"kepler", setup(100, measure.Response{Tau: 58e-3, Update: 15e-3}), Spec{M31, 64.65e-3, 7, 4, 0xd}},
		{"10 S/s", setup(10, measure.Response{}), Spec{M31, 0.131, 4, 4, 0xd}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ProfileFor(tc.in, 0xabcd)
			got.Chip = measure.Seconds(math.Round(float64(got.Chip)*1e7) / 1e7)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}
