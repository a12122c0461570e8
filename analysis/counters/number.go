package counters

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// grouped is a number with a comma between thousands.
var (
	grouped    = regexp.MustCompile(`^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$`)
	foreign    = regexp.MustCompile(`^[+-]?\d{1,3}(\.\d{3}){2,}(,\d+)?$|^[+-]?\d+(\.\d{3})*,\d+$`)
	foreignSum = regexp.MustCompile(`^\d{1,3}\.\d{3}$`)
)

// number reads a finite number, with or without commas between thousands.
func number(s string) (float64, error) {
	if grouped.MatchString(s) {
		s = strings.ReplaceAll(s, ",", "")
	} else if foreign.MatchString(s) {
		return 0, fmt.Errorf("%w: %q is written in the manner of another country: export again with LC_ALL=C", ErrFormat, s)
	}
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case s == "":
		return 0, fmt.Errorf("%w: the field is empty: fill it, remove the row, or leave the column out with --ignore", ErrFormat)
	case err != nil:
		return 0, fmt.Errorf("%w: %q is no number: correct it, or leave the column out with --ignore", ErrFormat, s)
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, fmt.Errorf("%w: %q is not finite: correct it, remove the row, or leave the column out with --ignore", ErrFormat, s)
	}
	return v, nil
}

// Parts of units as Nsight Compute scales and writes them. Its prefixes are
// decimal.
var (
	prefixes  = map[string]float64{"": 1, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
	unitRE    = regexp.MustCompile(`^([KkMGTP]?)(bytes?|hz|Hz|bit|inst|sectors?|requests?|cycles?|warps?|threads?|blocks?|registers?)$`)
	timeUnits = map[string]float64{
		"s": 1, "sec": 1, "second": 1, "seconds": 1, "ms": 1e-3, "msecond": 1e-3, "millisecond": 1e-3, "us": 1e-6, "µs": 1e-6,
		"usecond": 1e-6, "microsecond": 1e-6, "ns": 1e-9, "nsecond": 1e-9, "nanosecond": 1e-9,
	}
)

// unit returns what to multiply a value by to have it in the base unit, and that
// unit: ("Kbyte/ms") is (1e6, "byte/second").
func unit(s string) (scale float64, base string) {
	num, den, ratio := strings.Cut(strings.TrimSpace(s), "/")
	scale, base = part(num)
	if ratio {
		d, b := part(den)
		return scale / d, base + "/" + b
	}
	return scale, base
}

func part(s string) (float64, string) {
	if f, ok := timeUnits[s]; ok {
		return f, "second"
	}
	if m := unitRE.FindStringSubmatch(s); m != nil {
		return prefixes[m[1]], strings.ToLower(m[2])
	}
	return 1, s
}
