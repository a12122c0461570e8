package compare

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// WorkPair is the work of a run of A and of B, in one unit.
type WorkPair struct{ A, B Work }

// ParseWork reads UNIT=AMOUNT, the work of a run of either, and UNIT=A,B. Amounts are
// positive and finite.
func ParseWork(s string) (WorkPair, error) {
	unit, amounts, ok := strings.Cut(s, "=")
	a, b, two := strings.Cut(amounts, ",")
	if !two {
		b = a
	}
	unit = strings.TrimSpace(unit)
	p := WorkPair{A: Work{Unit: unit}, B: Work{Unit: unit}}
	for _, x := range []struct {
		w    *Work
		text string
	}{{&p.A, a}, {&p.B, b}} {
		v, err := strconv.ParseFloat(strings.TrimSpace(x.text), 64)
		if !ok || unit == "" || err != nil || !(v > 0) || math.IsInf(v, 0) {
			return WorkPair{}, fmt.Errorf("%q: want a unit and positive amounts, as in flop=4.4e12 or token=512,640", s)
		}
		x.w.Amount = v
	}
	return p, nil
}
