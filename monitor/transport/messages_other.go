//go:build !unix

package transport

import (
	"errors"
	"os"
)

// timedOut tells the system's own time-out of a message read.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
