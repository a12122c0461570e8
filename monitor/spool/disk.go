package spool

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeBytes returns the bytes that a user may still write on a directory's disk.
func freeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// noFollow makes an open fail on a link that was planted in place of a file of the
// spool, and return at once on a pipe.
const noFollow = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

// safe refuses an entry of the spool that is not of type want, is another user's, or may
// be changed by others. Errors wrap ErrUnsafe.
func safe(path string, want fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return safeInfo(path, info, want)
}

func safeInfo(path string, info fs.FileInfo, want fs.FileMode) error {
	mode := info.Mode()
	if mode.Type() != want {
		return fmt.Errorf("%s: %w: it is %v: left as it is", path, ErrUnsafe, mode.Type())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: %w: it belongs to user %d, this monitor runs as %d: left as it is",
			path, ErrUnsafe, st.Uid, os.Geteuid())
	}
	// In a sticky directory as /tmp others may add files, but not touch ours.
	if mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("%s: %w: everybody may write there (mode %#o): chmod o-w", path, ErrUnsafe, mode.Perm())
	}
	return nil
}

// datasync makes a file's bytes and length durable, without its times.
func datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
