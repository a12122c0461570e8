package perf

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// forget makes the system drop the pages of a file from memory.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // only pages on the disk can be dropped
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// peakBytes returns the peak memory in RAM of a process that has ended; Linux counts it in KiB.
func peakBytes(s *os.ProcessState) int64 {
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		return r.Maxrss * 1024
	}
	return 0
}
