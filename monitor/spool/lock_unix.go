//go:build unix

package spool

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock takes a file for this process alone; the system lets go of it when the
// process ends, however it ends.
func lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
