package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// captureName is the form of a capture's id, and so of its directory's name.
var captureName = regexp.MustCompile(`^\d{8}-\d{6}-[0-9a-f]{8}$`)

// Files that a capture's directory may hold when it is removed.
var (
	// begun is what Create writes before the header is there.
	begun = []string{reserveName, headerName + ".new", logName}
	// released is what a whole capture has.
	released = append([]string{headerName, damagedName, string(MarkReleased), string(MarkReplicated)}, begun...)
)

// remove removes a left-over directory whose capture id is id, and logs it. A directory
// of another name, or with anything but the files, is left as it is: the error says so.
func (s *Store) remove(dir, id string, files []string) error {
	if !captureName.MatchString(id) {
		return fmt.Errorf("%s: %w: its name is no capture's: left as it is", dir, ErrUnsafe)
	}
	if err := removeFiles(dir, files); err != nil {
		return err
	}
	s.opt.Log.Info("removed a capture's left-over directory", "directory", dir)
	return nil
}

// removeFiles removes a directory that holds nothing but regular files of these names,
// and no begun log with records in it. Otherwise nothing is removed.
func removeFiles(dir string, names []string) error {
	if err := safe(dir, fs.ModeDir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	whole := slices.Contains(names, headerName)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		full := e.Name() == logName && !whole && info.Size() > 0
		if !info.Mode().IsRegular() || !slices.Contains(names, e.Name()) || full {
			return fmt.Errorf("%s: %w: it holds %s: left as it is", dir, ErrUnsafe, e.Name())
		}
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(append(errs, os.Remove(dir))...)
}
