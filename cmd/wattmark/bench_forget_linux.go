package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget has the system drop what it keeps of a file in memory.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // only what is on the disk can be dropped
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
