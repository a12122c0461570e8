package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrMode: others can read or change a file that must be kept from them.
var ErrMode = errors.New("others can get at this file")

// maxFile bounds the files that are read here, in bytes.
const maxFile = 8 << 20

// ReadSecret reads a file that only its owner, this user or root, may read; one that
// is root's may be read by a group too.
func ReadSecret(path string) ([]byte, error) { return readFile(path, true) }

// ReadPublic reads a file that nobody but its owner, this user or root, may change.
func ReadPublic(path string) ([]byte, error) { return readFile(path, false) }

func readFile(path string, secret bool) ([]byte, error) {
	// What is no plain file is refused below, and not waited for here.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkMode(path, s, secret); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return b, err
}

func checkMode(path string, s fs.FileInfo, secret bool) error {
	if !s.Mode().IsRegular() {
		return fmt.Errorf("%s: %w: it is no plain file", path, ErrMode)
	}
	uid := -1
	if st, ok := s.Sys().(*syscall.Stat_t); ok {
		uid = int(st.Uid)
	}
	if uid > 0 && uid != os.Geteuid() && os.Geteuid() != 0 {
		return fmt.Errorf("%s: %w: it belongs to user %d, not to this user or root", path, ErrMode, uid)
	}
	forbidden, want := fs.FileMode(0o022), "go-w"
	if secret {
		forbidden, want = 0o077, "go="
		if uid == 0 {
			forbidden, want = 0o037, "g-w,o="
		}
	}
	if p := s.Mode().Perm(); p&forbidden != 0 {
		return fmt.Errorf("%s: %w: its mode is %#o: chmod %s %s", path, ErrMode, uint32(p), want, path)
	}
	return nil
}

// WriteNew makes a file that must not be there yet.
func WriteNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Replace puts a file in another's place, whole or not at all; owner and mode stay.
func Replace(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone, once it was renamed
	if s, err := os.Stat(path); err == nil {
		mode = s.Mode().Perm()
		if st, ok := s.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(st.Uid), int(st.Gid)) // what root replaces stays its owner's
		}
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// readToken reads a token from a file: its first line that is no comment.
func readToken(path string) (string, error) {
	b, err := ReadSecret(path)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line, nil
		}
	}
	return "", fmt.Errorf("token: %s is empty", path)
}
