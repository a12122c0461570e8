// Package clocktest has clocks for tests as an operating system has them: a wall time that
// can be set, beside a monotonic reading that cannot.
package clocktest

import (
	"fmt"
	"sync"
	"time"
	"unsafe"
)

// Clock is a system's clock with a wall's time that can be set.
type Clock struct {
	base time.Time // with a monotonic reading

	mu    sync.Mutex
	begun time.Time // time.Now when it was first asked
	step  time.Duration
	rate  float64   // by which part the wall's time runs faster
	since time.Time // with that rate
}

// New makes a clock that goes as time.Now does from the first Now on. Times within a
// bubble of synctest have no monotonic reading: a clock for one is made outside.
func New() *Clock { return &Clock{base: time.Now()} }

// Now returns the result of time.Now on such a system.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.IsZero() {
		c.begun = time.Now()
	}
	return Stepped(c.base.Add(time.Since(c.begun)), c.offset())
}

// offset is by how much the wall's time is ahead. mu is held.
func (c *Clock) offset() time.Duration {
	return c.step + time.Duration(c.rate*float64(time.Since(c.since)))
}

// Skew lets the wall's time run faster by a part from now on, the monotonic one not.
func (c *Clock) Skew(part float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step, c.rate, c.since = c.offset(), part, time.Now()
}

// Step sets the wall's time, by so much.
func (c *Clock) Step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step += by
}

// Offset is by how much the wall's time is ahead of the system's.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset()
}

// Stepped returns a time of time.Now with another wall time and the same monotonic reading.
// Package time makes one only where the system's clock was set, so its fields are changed
// here, and the result is verified.
func Stepped(t time.Time, by time.Duration) time.Time {
	const (
		monotonic   = 1 << 63
		nanoseconds = 30 // bits
	)
	if t == t.Round(0) {
		return t.Add(by) // without a monotonic reading
	}
	moved := t
	inside := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&moved)) // #nosec G103 -- a time's own fields, which nothing else moves
	seconds := int64(inside.wall << 1 >> (nanoseconds + 1))
	nanos := int64(inside.wall&(1<<nanoseconds-1)) + int64(by)
	seconds += nanos / int64(time.Second)
	if nanos %= int64(time.Second); nanos < 0 {
		nanos += int64(time.Second)
		seconds--
	}
	inside.wall = monotonic | uint64(seconds)<<nanoseconds | uint64(nanos)
	if moved.Sub(t) != 0 || !moved.Round(0).Equal(t.Round(0).Add(by)) {
		panic(fmt.Sprintf("clocktest: package time has changed inside: %v by %v gave %v", t, by, moved))
	}
	return moved
}
