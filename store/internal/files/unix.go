//go:build unix

package files

import (
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedByte is the byte of -shm on which each connection holds a lock.
const sharedByte = 128

// InUse reports whether another program has the file open with its log.
func InUse(abs string) bool {
	f, err := os.Open(abs + "-shm")
	if err != nil {
		return false
	}
	defer f.Close()
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: sharedByte, Len: 1}
	return syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &l) != nil || l.Type != syscall.F_UNLCK
}

// FreeBeside returns the bytes that may still be written on the disk of a file.
func FreeBeside(path string) (free int64, known bool, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &s); err != nil {
		return 0, false, err
	}
	return int64(s.Bavail) * int64(s.Bsize), true, nil
}

// MayWrite reports whether this program may write a file, or make files in a folder.
func MayWrite(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
}
