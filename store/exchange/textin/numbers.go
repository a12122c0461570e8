package textin

import (
	"math"
	"strconv"
	"strings"
)

// quantity is a value with its digits behind the point, in SI units.
type quantity struct {
	v      float64
	digits int // less than zero: none that are known
}

// resolution chooses the value of one count: the file's last decimal place where
// 31 bits hold the largest value in it, else the smallest step of 1, 2 or 5 times a
// power of ten for which they do.
func resolution(most float64, digits int) (gain float64, exact bool) {
	const top = 1 << 30
	most = max(most, 1e-9) // what is below is nothing
	if digits <= 15 {
		if g := pow10(-digits); most/g < top {
			return g, true
		}
	}
	e := math.Floor(math.Log10(most / top))
	for _, m := range []float64{1, 2, 5, 10} {
		if g := m * math.Pow(10, e); most/g <= top {
			return g, false
		}
	}
	return 10 * math.Pow(10, e), false
}

// pow10 is a power of ten that reads back as such.
func pow10(e int) float64 {
	f, _ := strconv.ParseFloat("1e"+strconv.Itoa(e), 64) // always a number
	return f
}

// digitsOf finds the digits behind the point that a number is written with.
func digitsOf(s string) int {
	exp, point, n := 0, false, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			point = true
		case c == 'e' || c == 'E':
			exp, _ = strconv.Atoi(s[i+1:]) // ParseFloat has checked it
			return max(n-exp, 0)
		case point && c >= '0' && c <= '9':
			n++
		}
	}
	return n
}

func parseQuantity(s string, exponent int) (quantity, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.ContainsAny(s, "xX") || math.IsNaN(f) || math.IsInf(f, 0) || math.Abs(f) > 1e12 {
		return quantity{}, ErrInput
	}
	return quantity{f * pow10(exponent), max(digitsOf(s)-exponent, 0)}, nil
}
