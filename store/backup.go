package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
)

// ErrExists: a file that is to be made is there already.
var ErrExists = errors.New("the file is there already: name another, or remove it")

// backupPages is how many pages are copied between two looks at the context.
const backupPages = 512

// partSuffix ends the name of a file while it is being made.
const partSuffix = ".wattmark-part"

// newFile refuses a path that is taken, and returns the name to write to meanwhile.
func newFile(path string) (part string, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for _, p := range []string{abs, abs + "-wal", abs + "-journal"} {
		if _, err := os.Lstat(p); err == nil {
			return "", fmt.Errorf("%s: %w", p, ErrExists)
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("%w: %w", ErrCannotOpen, err)
		}
	}
	part = abs + partSuffix
	return part, dropPart(part) // of one that was interrupted
}

func dropPart(part string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(part + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Backup copies the database, as it stands now, into a new file while others go on
// writing: page by page, within one read transaction. The log (-wal) grows meanwhile
// by what is written. The copy is one file, without a log, that opens for reading
// from a medium that cannot be written. It takes its name when it is whole.
func (d *DB) Backup(ctx context.Context, path string, progress func(done, of int)) (err error) {
	op := "back up to " + path
	part, err := newFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dropPart(part))
		}
	}()
	if err := d.copyPages(ctx, part, progress); err != nil {
		return wrap(op, err)
	}
	if err := settle(ctx, part); err != nil {
		return wrap(op, err)
	}
	return publish(part, path)
}

func (d *DB) copyPages(ctx context.Context, part string, progress func(done, of int)) error {
	d.beside()
	pool := sql.OpenDB(newConnector(d.readDSN, false))
	pool.SetMaxOpenConns(1)
	defer pool.Close()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// A transaction that is open keeps the copy to one moment: without it, every
	// write of another program would make it begin anew.
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // it only read
	var n int
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM user").Scan(&n); err != nil {
		return err
	}
	return conn.Raw(func(raw any) error {
		c, able := raw.(interface {
			NewBackup(string) (*sqlite.Backup, error)
		})
		if !able {
			return fmt.Errorf("the SQLite driver's connection %T cannot copy pages", raw)
		}
		b, err := c.NewBackup(dsn(part, "rwc"))
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			if err = ctx.Err(); err == nil {
				more, err = b.Step(backupPages)
			}
			if progress != nil {
				progress(b.PageCount()-b.Remaining(), b.PageCount())
			}
		}
		if d.still != nil {
			err = errors.Join(err, d.still.check())
		}
		return errors.Join(err, b.Finish())
	})
}

// settle makes a file one without a log, that reads anywhere.
func settle(ctx context.Context, path string) error {
	db := sql.OpenDB(newConnector(dsn(path, "rw", "_pragma=busy_timeout(10000)"), false))
	db.SetMaxOpenConns(1)
	var mode string
	err := db.QueryRowContext(ctx, "PRAGMA journal_mode=DELETE").Scan(&mode)
	if err == nil && mode != "delete" {
		err = fmt.Errorf("%w: it stays in journal mode %s", ErrBusy, mode)
	}
	return errors.Join(err, db.Close())
}

// publish gives a file that is whole its name, for good.
func publish(part, path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrIO, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrIO, err)
	}
	// A link refuses a name that was taken meanwhile, which renaming does not.
	if err := os.Link(part, abs); err == nil {
		return dropPart(part)
	} else if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	return os.Rename(part, abs) // a file system without links
}

// Vacuum writes the file anew without the room that deleted tasks left, and returns
// the bytes before and after. It needs as much room again meanwhile, and no other
// program may write.
func (d *DB) Vacuum(ctx context.Context) (before, after int64, err error) {
	const op = "vacuum"
	if d.writer == nil {
		return 0, 0, fmt.Errorf("%s: %w", op, ErrReadOnly)
	}
	size := func() (n int64, err error) {
		if _, err := d.writer.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			return 0, err
		}
		st, err := os.Stat(d.path)
		if err != nil {
			return 0, err
		}
		return st.Size(), nil
	}
	if before, err = size(); err != nil {
		return 0, 0, wrap(op, err)
	}
	if _, err := d.writer.ExecContext(ctx, "VACUUM"); err != nil {
		return before, before, wrap(op, err)
	}
	after, err = size()
	return before, after, wrap(op, err)
}
