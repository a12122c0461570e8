// Package flock takes advisory locks of open files, one holder a file (flock(2)). The
// kernel releases them when the process ends.
package flock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another open file holds the lock.
var ErrHeld = errors.New("the file is locked")

// Try takes the lock, or returns ErrHeld at once where it is held.
func Try(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

// Wait takes the lock; it blocks while another holds it.
func Wait(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Close releases the lock and closes the file. Closing alone is not enough: a process that is
// being started has a copy of every descriptor until its program is loaded, and with it the lock.
func Close(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
