package doctor

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// diskFree returns the bytes that this user may still write below a directory.
func diskFree(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// readClock reads the kernel's clock state; it sets nothing.
func readClock() (s clockState, err error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return s, fmt.Errorf("adjtimex: %w", err)
	}
	unit := time.Microsecond
	if t.Status&unix.STA_NANO != 0 {
		unit = time.Nanosecond
	}
	return clockState{
		Synchronised: state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0,
		Offset:       time.Duration(t.Offset) * unit, MaxError: time.Duration(t.Maxerror) * time.Microsecond,
	}, nil
}

// stepWatch starts to compare CLOCK_REALTIME with CLOCK_MONOTONIC; the returned
// function gives the movement of the former against the latter since then.
func stepWatch() func() time.Duration {
	apart := func() time.Duration {
		var best, least time.Duration = 0, time.Hour
		// Of five readings the shortest bounds the error best: the real time lies between
		// two monotonic ones.
		for range 5 {
			var m1, r, m2 unix.Timespec
			if unix.ClockGettime(unix.CLOCK_MONOTONIC, &m1) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &r) != nil ||
				unix.ClockGettime(unix.CLOCK_MONOTONIC, &m2) != nil {
				return 0
			}
			if took := time.Duration(m2.Nano() - m1.Nano()); took < least {
				least, best = took, time.Duration(r.Nano()-(m1.Nano()+m2.Nano())/2)
			}
		}
		return best
	}
	before := apart()
	return func() time.Duration { return apart() - before }
}

// readLimits returns the soft limits.
func readLimits() (limitState, error) {
	var files, locked unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return limitState{}, err
	}
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked); err != nil {
		return limitState{}, err
	}
	return limitState{Files: files.Cur, Locked: locked.Cur}, nil
}
