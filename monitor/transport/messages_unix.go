//go:build unix

package transport

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// timedOut reports the kernel's own time-out of a message read.
func timedOut(err error) bool {
	return errors.Is(err, unix.ETIMEDOUT) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) ||
		errors.Is(err, os.ErrDeadlineExceeded)
}
