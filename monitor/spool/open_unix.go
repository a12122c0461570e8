//go:build unix

package spool

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// noFollow keeps a file of the spool from being opened through a link that
// somebody put in its place; and a pipe there from being waited for.
const noFollow = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

// safe refuses a directory or file of the spool that is somebody else's, or that
// others may change.
func safe(path string, want fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	return safeInfo(path, info, want)
}

func safeInfo(path string, info fs.FileInfo, want fs.FileMode) error {
	if info.Mode().Type() != want {
		return fmt.Errorf("%s: %w: it is %v: left as it is", path, ErrUnsafe, info.Mode().Type())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: %w: it belongs to user %d, this monitor runs as %d: left as it is", path, ErrUnsafe, st.Uid, os.Geteuid())
	}
	// In a folder as /tmp others may add files, but not touch ours.
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("%s: %w: everybody may write there (mode %#o): chmod o-w", path, ErrUnsafe, info.Mode().Perm())
	}
	return nil
}
