package store

import (
	"context"
	"errors"
	"fmt"
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
