package perf

import (
	"os"

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
