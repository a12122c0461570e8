//go:build unix

package cli

import (
	"golang.org/x/sys/unix"
)

// outputClosed reports whether the standard output or standard error is a pipe or socket
// whose reader is gone.
func outputClosed() bool {
	fds := []unix.PollFd{{Fd: 1}, {Fd: 2}}
	_, err := unix.Poll(fds, 0)
	return err == nil && (fds[0].Revents|fds[1].Revents)&(unix.POLLERR|unix.POLLHUP) != 0
}
