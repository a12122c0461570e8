package sensor

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// nap waits for less than the millisecond to which the runtime's timers round on Linux. It
// ignores the context, for the wait is short, and may return early on a signal.
func nap(_ context.Context, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal may cut it short
}
