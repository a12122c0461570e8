//go:build unix

package store

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// freeBeside returns what may still be written on the disk of a file.
func freeBeside(path string) (free int64, known bool, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &s); err != nil {
		return 0, false, err
	}
	return int64(s.Bavail) * int64(s.Bsize), true, nil
}

// mayWrite reports whether this program may write a file, or make files in a folder.
func mayWrite(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
}
