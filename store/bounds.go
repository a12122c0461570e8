package store

import (
	"database/sql/driver"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// bounds is what a plan's arguments leave: one task or all, and a range of
// sequence numbers, ends included.
type bounds struct {
	task   int64
	one    bool
	lo, hi int64
}

// bound narrows by one argument. A task's number is compared as SQLite compares a column
// of integers; of sequence numbers, values that are no numbers are left to SQLite's own
// check. NULL compares with nothing.
func (b *bounds) bound(letter byte, v driver.Value) {
	if letter == 't' {
		if b.task, b.one = idOf(v), true; b.task == 0 {
			b.lo, b.hi = 1, 0
		}
		return
	}
	var down, up int64
	switch n := v.(type) {
	case int64:
		down, up = n, n
	case float64:
		if math.Abs(n) >= 1<<53 {
			return
		}
		down, up = int64(math.Floor(n)), int64(math.Ceil(n))
	case nil:
		b.lo, b.hi = 1, 0
		return
	default:
		return
	}
	switch letter {
	case '=':
		b.lo, b.hi = max(b.lo, down), min(b.hi, up)
	case '>':
		b.lo = max(b.lo, down)
	case '<':
		b.hi = min(b.hi, up)
	}
}

// numeric is a text that SQLite's numeric affinity takes for a number
// (sqlite.org/datatype3.html, section 3).
var numeric = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

// idOf is the positive integer that a column of integers must hold to equal v; 0 where
// there is none.
func idOf(v driver.Value) int64 {
	switch n := v.(type) {
	case int64:
		return max(n, 0)
	case float64:
		if n >= 1 && n < 1<<63 && n == math.Trunc(n) {
			return int64(n)
		}
	case string:
		n = strings.Trim(n, " \t\n\v\f\r")
		if !numeric.MatchString(n) {
			return 0
		}
		if i, err := strconv.ParseInt(n, 10, 64); err == nil {
			return max(i, 0)
		}
		if f, err := strconv.ParseFloat(n, 64); err == nil {
			return idOf(f)
		}
	}
	return 0
}
