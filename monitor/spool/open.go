package spool

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrUnsafe: something in the spool is not what this monitor put there.
var ErrUnsafe = errors.New("not this monitor's own")

// openRead opens a file of the spool, but no link, and nothing that others may
// have put there.
func openRead(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = safeInfo(path, info, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// maxHeader bounds a header's file: one with 64 channels has 30 kB.
const maxHeader = 16 << 20

func readSmall(path string) ([]byte, error) {
	f, err := openRead(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxHeader+1))
	if err == nil && len(b) > maxHeader {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("larger than any header")}
	}
	return b, err
}

// create makes a file that was not there.
func create(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// Free returns the bytes that may still be written on the spool's disk.
func (s *Store) Free() (int64, error) { return s.opt.Free(s.dir) }

// Dir returns where the spool is.
func (s *Store) Dir() string { return filepath.Clean(s.dir) }
