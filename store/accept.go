package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// readWithin bounds the check of a database file that another machine made.
const readWithin = 5 * time.Minute

// Accept stores the ended tasks of a database file that another program made. The file is
// checked first as by Check, and refused as a whole with ErrCorrupt; each task is then copied
// and verified as by CopyTask, under the user that user returns for the one in the file. Tasks
// that are here already stay as they are. Errors wrap ErrRunning for a task without an end,
// ErrOlder and ErrNewer for a file of another version.
func (d *DB) Accept(ctx context.Context, path string, user func(string) string) (out []CopiedTask, err error) {
	from, err := OpenReadOnly(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	reading, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	ids, err := from.sound(reading)
	if err != nil {
		return nil, wrap("accept tasks", err)
	}
	for _, id := range ids {
		t, err := from.Task(ctx, id)
		if err != nil {
			return out, err
		}
		done, err := from.CopyTask(ctx, d, id, CopyOptions{User: user(t.User)})
		if err != nil {
			return out, err
		}
		out = append(out, done)
	}
	return out, nil
}

// sound returns the tasks of a database in which Check finds nothing. Tables may not be views,
// whose queries another program would have written.
func (d *DB) sound(ctx context.Context) ([]TaskID, error) {
	s := d.reading(ctx)
	if n := one[int](s, `SELECT count(*) FROM sqlite_master WHERE type='view' AND name NOT IN ('data','cold')`); s.err != nil || n > 0 {
		return nil, errors.Join(s.err, fmt.Errorf("%w: it has views in place of tables", ErrCorrupt))
	}
	r, err := d.Check(ctx, CheckOptions{})
	if err != nil {
		return nil, err
	}
	if n := len(r.Findings); n > 0 {
		f := r.Findings[0]
		return nil, fmt.Errorf("%w: %d finding(s), the first: task %d: %s", ErrCorrupt, n, f.Task, f.What)
	}
	return d.TaskIDs(ctx)
}

// OpenReceived opens, for reading, a database file that receive writes at a path. It lies in a
// private folder, which Close removes.
func OpenReceived(ctx context.Context, receive func(path string) error) (*DB, error) {
	dir, err := TempDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "power.db")
	var d *DB
	if err = receive(path); err == nil {
		d, err = OpenReadOnly(ctx, path)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.temporary = dir
	return d, nil
}
