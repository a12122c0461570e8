//go:build unix

package spool

import "golang.org/x/sys/unix"

// freeBytes returns what a user may still write on a directory's disk.
func freeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
