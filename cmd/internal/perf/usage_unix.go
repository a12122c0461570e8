//go:build unix

package perf

import "golang.org/x/sys/unix"

// cpuSeconds returns this process's processor time in s, of its own and of the system for it (getrusage); 0 where that
// fails.
func cpuSeconds() float64 {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}
