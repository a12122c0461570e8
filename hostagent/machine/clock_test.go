package machine

import (
	"math"
	"testing"
	"time"
)

// A disciplined clock has a reading of its bound, any other none; of several the largest counts.
func TestClock(t *testing.T) {
	if _, err := ReadClock(); err != nil {
		t.Error(err)
	}
	at := time.Unix(1, 0)
	free := ClockState{Offset: time.Second, MaxError: time.Hour}
	if rs := free.Readings(at); len(rs) > 0 || !math.IsNaN(float64(UTC(rs))) {
		t.Errorf("a free clock has %v", rs)
	}
	good := ClockState{Synchronised: true, Offset: -time.Millisecond, MaxError: 2 * time.Millisecond}
	worse := ClockState{Synchronised: true, MaxError: 4 * time.Millisecond}
	rs := good.Readings(at)
	if u := UTC(rs); !math.IsNaN(float64(u)) {
		t.Errorf("UTC within %v of a clock that was free before or after the work", u)
	}
	if u := UTC(append(worse.Readings(at), rs...)); math.Abs(float64(u)-4e-3) > 1e-12 {
		t.Errorf("UTC within %v, want 4 ms", u)
	}
}
