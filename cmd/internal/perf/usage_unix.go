//go:build unix

package perf

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// cpuSeconds returns this process's processor time in s (getrusage); 0 where it fails.
func cpuSeconds() (user, system float64) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0, 0
	}
	s := func(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)*1e-6 }
	return s(r.Utime), s(r.Stime)
}

// residentBytes returns this process's memory in RAM; 0 on systems without /proc.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(f[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// peakBytes returns the peak memory in RAM of a process that has ended; 0 outside of Linux,
// which counts in KiB.
func peakBytes(s *os.ProcessState) int64 {
	if r, ok := s.SysUsage().(*syscall.Rusage); ok && runtime.GOOS == "linux" {
		return r.Maxrss * 1024
	}
	return 0
}
