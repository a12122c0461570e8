package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Mark is something that is known of a capture beside its log: an empty file.
type Mark string

// The marks.
const (
	// MarkReleased: its host needs it no more.
	MarkReleased Mark = "released"
	// MarkReplicated: other machines have its samples.
	MarkReplicated Mark = "replicated"
)

// Mark puts a mark on a capture, durably. Marking it again is no error.
func (s *Store) Mark(id string, m Mark) error {
	dir := filepath.Join(s.dir, id)
	err := create(filepath.Join(dir, string(m)), nil)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err = errors.Join(err, syncDir(dir)); err != nil {
		return fmt.Errorf("spool %s: mark it %s: %w", id, m, err)
	}
	return nil
}

// Marked reports whether a capture bears a mark.
func (s *Store) Marked(id string, m Mark) bool {
	_, err := os.Lstat(filepath.Join(s.dir, id, string(m)))
	return err == nil
}
