package roofline

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Work is what a task did, in flop and in bytes moved; zero for none.
type Work struct {
	Flop  float64 `json:"flop"`
	Bytes float64 `json:"byte"`
}

// ParseTaskWork reads a task's number and its work: TASK:flop=W,byte=Q. The number is
// positive; amounts are finite and not negative, each said once at most.
func ParseTaskWork(s string) (task int64, w Work, err error) {
	bad := func() (int64, Work, error) {
		return 0, Work{}, fmt.Errorf("%q: want a task's number and its work, as in 3:flop=4.4e12,byte=1e11", s)
	}
	number, list, ok := strings.Cut(s, ":")
	task, e := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if !ok || e != nil || task < 1 {
		return bad()
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(list, ",") {
		unit, amount, _ := strings.Cut(part, "=")
		v, e := strconv.ParseFloat(strings.TrimSpace(amount), 64)
		unit = strings.TrimSpace(unit)
		if e != nil || !(v >= 0) || math.IsInf(v, 0) || seen[unit] {
			return bad()
		}
		seen[unit] = true
		switch unit {
		case "flop":
			w.Flop = v
		case "byte":
			w.Bytes = v
		default:
			return bad()
		}
	}
	return task, w, nil
}
