package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Detach writes tasks, with all that belongs to them, into a new file to carry away:
// under the same numbers, without a log, with the view data. Tasks that still run are
// left out. It takes its name when it is whole.
func (d *DB) Detach(ctx context.Context, path string, ids []TaskID, progress func(done, of int)) (*Imported, error) {
	return fill(ctx, path, d, ImportOptions{Tasks: ids, KeepIDs: true, Progress: progress}, "detach to "+path)
}

// Salvage writes what can be read of a broken file into a new one. The old one stays
// as it is.
func Salvage(ctx context.Context, broken, path string, progress func(done, of int)) (*Imported, error) {
	op := "salvage " + broken
	from, err := OpenReadOnly(ctx, broken)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	defer from.Close()
	return fill(ctx, path, from, ImportOptions{KeepIDs: true, Salvage: true, Progress: progress}, op)
}

// fill makes a new file of tasks of a database.
func fill(ctx context.Context, path string, from *DB, opt ImportOptions, op string) (out *Imported, err error) {
	part, err := newFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dropPart(part))
		}
	}()
	to, err := Open(ctx, part)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	out, err = to.Import(ctx, from, opt)
	if err := errors.Join(err, to.Close()); err != nil {
		return out, fmt.Errorf("%s: %w", op, err)
	}
	if err := settle(ctx, part); err != nil {
		return out, wrap(op, err)
	}
	return out, publish(part, path)
}

// OpenSource opens a database to copy from, of this program's version or older. One
// that is older is not changed: a copy of it is brought up to date, and removed by
// done.
func OpenSource(ctx context.Context, path string) (db *DB, done func() error, err error) {
	db, err = OpenReadOnly(ctx, path)
	if !errors.Is(err, ErrOlder) {
		return db, func() error { return db.Close() }, err
	}
	dir, err := os.MkdirTemp("", "wattmark-import-")
	if err != nil {
		return nil, nil, err
	}
	copied := filepath.Join(dir, "power.db")
	if err = (&DB{path: path}).Backup(ctx, copied, nil); err == nil {
		db, err = Open(ctx, copied)
	}
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return db, func() error { return errors.Join(db.Close(), os.RemoveAll(dir)) }, nil
}
