package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"github.com/wattmark/wattmark/store/internal/data"
	"github.com/wattmark/wattmark/store/internal/files"
	"modernc.org/sqlite"
)

// ErrExists: a file that is to be made is there already.
var ErrExists = errors.New("the file is there already: name another, or remove it")

// backupPages is how many pages are copied between two looks at the context.
const backupPages = 512

// partSuffix ends the name of a file while it is being made.
const partSuffix = ".wattmark-part"

// dropPart deletes a part and its logs; files that are not there are no error.
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
// by the rows written meanwhile. The copy is one file, without a log, that opens for reading
// from a medium that cannot be written. It takes its name when it is whole.
func (d *DB) Backup(ctx context.Context, path string, progress func(done, of int)) error {
	op := "back up to " + path
	return makeFile(ctx, path, op, func(part string) error { return wrap(op, d.copyPages(ctx, part, progress)) })
}

// makeFile makes a new file by fill, which writes to the name that it gets. The file takes its own name
// when it is whole; a part that is not is deleted, with its logs. Order of steps: fill, fold the log in,
// sync, rename.
func makeFile(ctx context.Context, path, op string, fill func(part string) error) (err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	for _, p := range []string{abs, abs + "-wal", abs + "-journal"} {
		if _, err := os.Lstat(p); err == nil {
			return fmt.Errorf("%s: %s: %w", op, p, ErrExists)
		} else if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s: %w: %w", op, ErrCannotOpen, err)
		}
	}
	part := abs + partSuffix
	if err := dropPart(part); err != nil { // of a call that was interrupted
		return fmt.Errorf("%s: %w", op, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dropPart(part))
		}
	}()
	if err := fill(part); err != nil {
		return err
	}
	if err := settle(ctx, part); err != nil {
		return wrap(op, err)
	}
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
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

// copyPages copies the database page by page into a new file, within one read transaction, and calls
// progress after each step. A file that is read without locks is checked for changes at the end.
func (d *DB) copyPages(ctx context.Context, part string, progress func(done, of int)) error {
	d.beside()
	pool := sql.OpenDB(data.Connector(d.readDSN))
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
		// All connections of package data have the method.
		b, err := raw.(interface {
			NewBackup(string) (*sqlite.Backup, error)
		}).NewBackup(dsn(part, "rwc"))
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
			err = errors.Join(err, d.still())
		}
		return errors.Join(err, b.Finish())
	})
}

// settle folds the log into a file and takes it out of WAL mode, so that it opens for reading on
// a medium that cannot be written.
func settle(ctx context.Context, path string) error {
	db := sql.OpenDB(data.Connector(dsn(path, "rw", "_pragma=busy_timeout(10000)")))
	db.SetMaxOpenConns(1)
	var mode string
	err := db.QueryRowContext(ctx, "PRAGMA journal_mode=DELETE").Scan(&mode)
	if err == nil && mode != "delete" {
		err = fmt.Errorf("%w: it stays in journal mode %s", ErrBusy, mode)
	}
	return errors.Join(err, db.Close())
}

// Vacuum rewrites the file without the free pages that deleted tasks left, and returns its size in bytes
// before and after. It needs as much room again meanwhile, and no other program may write.
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

// NewBare makes an empty database for rows to travel in. It lacks the look-up tables of the view
// data, which are most of an empty database: in another program the view is empty.
func NewBare(ctx context.Context, path string) error {
	d, err := Open(ctx, path)
	if err != nil {
		return err
	}
	err = d.write(ctx, "empty the look-up tables", func(s *session) {
		s.exec(`DELETE FROM _u16`)
		s.exec(`DELETE FROM _seq`)
	})
	if err == nil {
		_, _, err = d.Vacuum(ctx)
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	return settle(ctx, path)
}

// Limits bound the room at which a database in a file takes no new tasks. Running tasks go on.
// Zeros are no limits; a database on a server has its own.
type Limits struct {
	// Bytes bounds the file and its log.
	Bytes int64
	// Free is the least room on the file's disk.
	Free int64
}

// SetLimits sets the limits. It must be called before others use the database.
func (d *DB) SetLimits(l Limits) { d.limits = l }

// Room returns the error with which BeginTask would refuse a task for lack of room, so that a
// caller can be refused before it takes a bench or a GPU. Errors wrap ErrFull.
func (d *DB) Room(ctx context.Context) error {
	l := d.limits
	if d.server != nil || l == (Limits{}) {
		return nil
	}
	if l.Bytes > 0 {
		s, err := d.Stats(ctx)
		if err != nil {
			return err
		}
		if used := s.Bytes + s.LogBytes; used >= l.Bytes {
			return fmt.Errorf("%w: the database takes %s, its limit is %s: "+
				"delete tasks (wattmark db retain), then wattmark db vacuum",
				ErrFull, humanize.Bytes(uint64(used)), humanize.Bytes(uint64(l.Bytes)))
		}
	}
	if l.Free > 0 {
		free, err := files.FreeBeside(d.path)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrIO, err)
		}
		if free < l.Free {
			return fmt.Errorf("%w: %s are free beside the database, a task needs %s: make room on its disk",
				ErrFull, humanize.Bytes(uint64(free)), humanize.Bytes(uint64(l.Free)))
		}
	}
	return nil
}

// Stats are sizes and counts of a database.
type Stats struct {
	Bytes, LogBytes int64 // of the file, and of its write-ahead log
	Tasks, Running  uint64
	Users           uint64
}

// Stats returns the sizes of the files and the counts of tasks and users. The counts come from
// indexes alone; Partial tasks are left out.
func (d *DB) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	q := d.reading(ctx)
	q.row(`SELECT (SELECT count(*) FROM task)-(SELECT count(*) FROM task WHERE `+partialTasks+`),
		(SELECT count(*) FROM task WHERE state=1), (SELECT count(*) FROM "user")`).into(&s.Tasks, &s.Running, &s.Users)
	if q.err != nil {
		return s, wrap("count tasks", q.err)
	}
	for path, size := range map[string]*int64{d.path: &s.Bytes, d.path + "-wal": &s.LogBytes} {
		if st := stateOf(path); st != nil { // no log is no error
			*size = st.Size()
		}
	}
	return s, nil
}
