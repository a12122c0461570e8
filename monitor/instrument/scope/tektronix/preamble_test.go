package tektronix

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/monitor/scpi"
)

// Preambles as public logs of real scopes have them, in form.
var seen = map[string]string{
	"4000, early firmware": `2;16;BINARY;RI;MSB;"Ch1, DC coupling, 10.00mV/div, 40.00us/div, 1000000 points, Sample mode";1000000;Y;LINEAR;"s";400.0000E-12;-199.8476E-6;0;"V";1.5625E-6;-13.0560E+3;0.0E+0;TIME;ANALOG;0.0E+0;0.0E+0;0.0E+0`,
	"4000, late firmware":  `2;16;BINARY;RI;MSB;"Ch1, DC coupling, 10.00mV/div, 40.00us/div, 1000000 points, Sample mode";1000000;Y;"s";400.0000E-12;-199.8476E-6;0;"V";1.5625E-6;-13.0560E+3;0.0E+0`,
	"a cheaper one":        `1;8;BINARY;RI;MSB;"Ch1, DC coupling, 200.0mV/div, 40.00us/div, 20000 points, Average mode";20000;Y;"s";32.0000E-9;-320.0000E-6;0;"V";8.0000E-3;0.0E+0;0.0E+0;20000;200000000`,
	"5 Series":             `2;16;BINARY;RI;INTEGER;LSB;"Ch1, DC coupling, 500.0mV/div, 1.000us/div, 1250 points, Sample mode";1250;Y;LINEAR;"s";8.0E-9;4.7950E-9;505;"V";78.1250E-6;0.0E+0;1.9400;TIME;ANALOG`,
	"5 Series, no WFID":    `1;8;BINARY;RI;INTEGER;LSB;1000000;Y;LINEAR;"s";4.0E-9;0.0E+0;0;"V";4.0000E-3;0.0E+0;0.0E+0;TIME;ANALOG;0.0E+0;0.0E+0;0.0E+0;1`,
	"VERBose OFF":          `1;8;BIN;RI;INT;LSB;1000000;Y;LIN;"s";4.0E-9;0.0E+0;0;"V";4.0000E-3;0.0E+0;0.0E+0;TIM;ANA;0.0E+0;0.0E+0;0.0E+0;1;VEC`,
	"a label; and more":    `1;8;BINARY;RI;INTEGER;LSB;"Ch1; ""12 V; slot"", 5";10;Y;LINEAR;"s";4.0E-9;0.0E+0;0;"V";4.0000E-3;1.5;-2.0E+0`,
}

func TestPreambles(t *testing.T) {
	want := map[string]preamble{
		"4000, early firmware": {
			2, 16, true, true, 1_000_000, 400e-12, -199.8476e-6, 0, "V", 1.5625e-6, -13056, 0,
			true, true,
		},
		"4000, late firmware": {
			2, 16, true, true, 1_000_000, 400e-12, -199.8476e-6, 0, "V", 1.5625e-6, -13056, 0,
			true, true,
		},
		"a cheaper one":     {1, 8, true, true, 20_000, 32e-9, -320e-6, 0, "V", 8e-3, 0, 0, true, true},
		"5 Series":          {2, 16, true, false, 1250, 8e-9, 4.795e-9, 505, "V", 78.125e-6, 0, 1.94, true, true},
		"5 Series, no WFID": {1, 8, true, false, 1_000_000, 4e-9, 0, 0, "V", 4e-3, 0, 0, true, true},
		"VERBose OFF":       {1, 8, true, false, 1_000_000, 4e-9, 0, 0, "V", 4e-3, 0, 0, true, true},
		"a label; and more": {1, 8, true, false, 10, 4e-9, 0, 0, "V", 4e-3, 1.5, -2, true, true},
	}
	for name, s := range seen {
		if p, err := parsePreamble(s); err != nil || p != want[name] {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestRefusedPreambles(t *testing.T) {
	good := seen["5 Series"]
	for name, s := range map[string]string{
		"empty":            "",
		"an identity":      "TEKTRONIX,MSO44,C012345,CF:91.1CT FV:1.28.5",
		"hidden waveform":  "1;8;BINARY;RI;MSB",
		"with headers":     ":WFMOUTPRE:BYT_NR 1;BIT_NR 8;ENCDG BINARY;BN_FMT RI;BYT_OR MSB",
		"open quote":       strings.Replace(good, `mode"`, `mode`, 1),
		"no increment":     strings.Replace(good, "78.1250E-6", "0.0", 1),
		"no interval":      strings.Replace(good, "8.0E-9", "0", 1),
		"backwards":        strings.Replace(good, "8.0E-9", "-8.0E-9", 1),
		"not a number":     strings.Replace(good, "8.0E-9", "9.91E37", 1),
		"points of a part": strings.Replace(good, ";1250;", ";1250.5;", 1),
		"negative points":  strings.Replace(good, ";1250;", ";-1;", 1),
		"no byte order":    strings.Replace(good, ";LSB", "", 1),
		"cut":              good[:len(good)-40],
		"endless":          strings.Repeat("1;", 1000),
	} {
		if p, err := parsePreamble(s); !errors.Is(err, scpi.ErrReply) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func FuzzPreamble(f *testing.F) {
	for _, s := range seen {
		f.Add(s)
	}
	f.Add(`"";"`)
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePreamble(s)
		if err != nil {
			if !errors.Is(err, scpi.ErrReply) || len(err.Error()) > 2000 {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		for _, v := range []float64{p.xIncrement, p.xZero, p.xOffset, p.yIncrement, p.yOffset, p.yZero} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%q: %+v", s, p)
			}
		}
		if p.points < 0 || !(p.xIncrement > 0) || p.yIncrement == 0 {
			t.Errorf("%q: %+v", s, p)
		}
	})
}
