package store

import (
	"database/sql/driver"
	"math"
)

// bounds is what a plan's arguments leave: one task or all, and a range of
// sequence numbers, ends included.
type bounds struct {
	task   driver.Value // of one; SQLite compares it with the tasks' numbers
	one    bool
	lo, hi int64
}

// bound narrows by one argument. Sequence numbers that are no numbers are left to SQLite's
// own check; NULL compares with nothing.
func (b *bounds) bound(letter byte, v driver.Value) {
	if letter == 't' {
		b.task, b.one = v, true
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
