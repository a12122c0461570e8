package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A database file is read without writing anything, in one of three ways:
//
//   - With SQLite's locks, beside a program that writes. A file that its last program left
//     has no log (journal_mode=DELETE) and can be read like that from anywhere; one with a
//     log can where the log's index (-shm) is there, or may be made.
//   - As it is (immutable=1), where the file's head says that it may have a log, and there
//     is none. No lock keeps a writer away, so each query checks that the file was not
//     changed meanwhile.
//   - As a private copy, where there is a log that only a writer could bring into the file.

// sideSuffixes name what lies beside a file while it is written, or after a crash.
var sideSuffixes = []string{"-wal", "-journal"}

// OpenReadOnly opens an existing database that is never changed through this handle,
// beside whoever writes to it. It needs no right to write: not on the medium, nor in the
// folder, nor of the file. A file of an older version is ErrOlder; see OpenSource. Close
// must be called: it removes a private copy.
func OpenReadOnly(ctx context.Context, path string) (*DB, error) {
	d, version, err := openToRead(ctx, path)
	if err == nil && d.server == nil && version < len(migrations) {
		err = errors.Join(wrap("open database "+d.path, olderError(version)), d.Close())
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

func olderError(version int) error {
	return fmt.Errorf("%w: schema %d, this program's is %d: open it once for writing", ErrOlder, version, len(migrations))
}

// OpenSource opens a database as OpenReadOnly does, and one of an older version too: a
// private copy of it is brought up to date, and removed by Close.
func OpenSource(ctx context.Context, path string) (*DB, error) {
	d, version, err := openToRead(ctx, path)
	if err != nil || d.server != nil || version == len(migrations) {
		return d, err
	}
	fill := func(to string) error { return d.copyPages(ctx, to, nil) }
	if version == 0 {
		fill = func(string) error { return nil } // an empty file
	}
	if err := d.copyAside(ctx, fill); err != nil {
		return nil, errors.Join(wrap("open database "+path, err), d.Close())
	}
	return d, nil
}

// openToRead opens a database of any version, and returns the file's.
func openToRead(ctx context.Context, path string) (d *DB, version int, err error) {
	op := "open database " + Conceal(path)
	if s, err := serverOf(path); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", op, err)
	} else if s != nil {
		d, err := openServer(ctx, s, path, true)
		return d, 0, err
	}
	abs, err := checkFile(path)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", op, err)
	}
	if _, err := os.Stat(abs); err != nil {
		return nil, 0, fmt.Errorf("%s: %w: %w", op, ErrCannotOpen, err)
	}
	d = &DB{path: path, logLoss: lookAtLog(abs, true)}
	if version, err = d.openFileToRead(ctx, abs); err != nil {
		return nil, 0, errors.Join(wrap(op, err), d.Close())
	}
	return d, version, nil
}

func (d *DB) openFileToRead(ctx context.Context, abs string) (version int, err error) {
	if canLock(abs) {
		d.openReaders(dsn(abs, "ro", "_pragma=busy_timeout(10000)"))
		d.held = hold(abs)
		version, err = checkOurs(ctx, d.reader)
		d.held.ours = err == nil && version == len(migrations)
		if s := wrap("", err); !errors.Is(s, ErrCannotOpen) && !errors.Is(s, ErrReadOnly) && !errors.Is(s, ErrIO) {
			return version, err
		}
		d.closeReaders()
	}
	if !hasLog(abs) {
		if d.still, err = newStill(abs); err != nil {
			return 0, err
		}
		d.openReaders(dsn(abs, "ro", "immutable=1"))
		return checkOurs(ctx, d.reader)
	}
	if err := d.copyAside(ctx, func(to string) error { return copyWithLog(ctx, abs, to) }); err != nil {
		name := filepath.Base(abs)
		return 0, fmt.Errorf("%w: what its log holds cannot be read in place without the right to write, and no copy could be made to read: copy %s and what begins with %s- into a folder that you may write to, and name that one: %w",
			ErrCannotOpen, name, name, err)
	}
	return checkOurs(ctx, d.reader)
}

// closeReaders leaves a file, to read it in another way.
func (d *DB) closeReaders() {
	if d.reader != nil {
		d.reader.Close() // which only read
	}
	if d.held != nil {
		d.held.release()
	}
	d.reader, d.held, d.still = nil, nil, nil
}

// canLock reports whether SQLite can read a file with its locks, and leave nothing beside
// it that was not there: files that would keep the owner of the file from writing.
func canLock(abs string) bool {
	head, opened, err := peek(abs)
	if opened || err != nil || len(head) < 20 || !slices.Contains(head[18:20], 2) {
		return true // there is no log, as the versions of who may write and read say
	}
	if exists(abs+"-wal") && exists(abs+"-shm") {
		return true // somebody has it open, or left it suddenly
	}
	return hasLog(abs) && mayWrite(abs) && mayWrite(filepath.Dir(abs))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hasLog reports whether something lies beside a file that belongs into it.
func hasLog(abs string) bool {
	return slices.ContainsFunc(sideSuffixes, func(suffix string) bool {
		st, err := os.Stat(abs + suffix)
		return err == nil && st.Size() > 0
	})
}

// copyAside reads, in place of the file, a copy that this program alone has. It is brought
// up to date, and what its log holds into it.
func (d *DB) copyAside(ctx context.Context, fill func(to string) error) error {
	dir, err := TempDir()
	if err != nil {
		return err
	}
	d.temporary = dir
	to := filepath.Join(dir, "power.db")
	if err := fill(to); err != nil {
		return err
	}
	d.closeReaders()
	copied, err := Open(ctx, to)
	if err != nil {
		return err
	}
	if err := copied.Close(); err != nil {
		return err
	}
	d.openReaders(dsn(to, "ro"))
	return nil
}

// copyTries is how often a file is copied that changes meanwhile.
const copyTries = 3

// copyWithLog copies a file and what lies beside it, as they stood at one moment.
func copyWithLog(ctx context.Context, from, to string) error {
	for range copyTries {
		before := statesOf(from)
		for _, suffix := range append([]string{""}, sideSuffixes...) {
			if err := copyFile(ctx, from+suffix, to+suffix); err != nil && !(suffix != "" && errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		}
		if slices.EqualFunc(before, statesOf(from), fileState.same) {
			return nil
		}
		if err := dropPart(to); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: it is being written", ErrBusy)
}

func copyFile(ctx context.Context, from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, contextReader{ctx, r})
	return errors.Join(err, w.Close())
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// fileState is what tells that a file was written; the zero one is of no file.
type fileState struct {
	info os.FileInfo
	size int64
	at   time.Time
}

func stateOf(path string) fileState {
	st, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return fileState{st, st.Size(), st.ModTime()}
}

func (s fileState) same(o fileState) bool {
	if s.info == nil || o.info == nil {
		return s.info == nil && o.info == nil
	}
	return s.size == o.size && s.at.Equal(o.at) && os.SameFile(s.info, o.info)
}

func statesOf(abs string) (out []fileState) {
	for _, suffix := range append([]string{""}, sideSuffixes...) {
		out = append(out, stateOf(abs+suffix))
	}
	return out
}

// still is a file that is read without locks, as it was when it was opened.
type still struct {
	path string
	was  fileState
}

func newStill(abs string) (*still, error) {
	s := &still{abs, stateOf(abs)}
	if s.was.info == nil {
		return nil, fmt.Errorf("%w: %s is gone", ErrCannotOpen, abs)
	}
	return s, nil
}

// check fails where the file was written since it was opened: what was read of it may be
// of two moments.
func (s *still) check() error {
	if s.was.same(stateOf(s.path)) {
		return nil
	}
	return fmt.Errorf("%w: it was written while it was read, and may not be locked: ask again", ErrBusy)
}

// stillRows end in an error where the file was written meanwhile.
type stillRows struct {
	driver.Rows
	still *still
}

func (r *stillRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err == nil {
		return nil
	}
	if changed := r.still.check(); changed != nil {
		return changed
	}
	return err
}

// longRead is the size of a file, in bytes, that takes longer to read than a writer waits.
var longRead int64 = 128 << 20

// beside lets others write while a large file is read as a whole. A reader of a file without
// a log keeps writers out, so it is given a log until Close, where that may be done.
func (d *DB) beside() {
	if d.writer != nil || d.held == nil || !d.held.ours || stateOf(d.held.abs).size < longRead || !d.held.writable() {
		return
	}
	d.held.setJournal("WAL")
}
