package spool

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync makes a file's bytes and length durable, without its times.
func datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
