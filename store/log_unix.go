//go:build unix

package store

import (
	"io"
	"os"
	"syscall"
)

// sharedByte is the byte of -shm on which each connection holds a lock.
const sharedByte = 128

// logInUse reports whether another program has the file open with its log.
func logInUse(abs string) bool {
	f, err := os.Open(abs + "-shm")
	if err != nil {
		return false
	}
	defer f.Close()
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: sharedByte, Len: 1}
	return syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &l) != nil || l.Type != syscall.F_UNLCK
}
