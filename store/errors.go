package store

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Sentinel errors, wrapped with what was done and what to do next.
var (
	// ErrNotFound: there is no such task.
	ErrNotFound = errors.New("no such task")
	// ErrPinned: the task is pinned, and stays.
	ErrPinned = errors.New("pinned: unpin it first, or force it")
	// ErrConflict: what is stored already says otherwise (a chunk number with
	// another checksum, scans that overlap, another header under stored samples).
	ErrConflict = errors.New("conflicts with what is stored")
	// ErrNoHeader: samples came before PutHeader.
	ErrNoHeader = errors.New("task has no header yet")
	// ErrCorrupt: stored or offered data does not pass its own checks.
	ErrCorrupt = errors.New("corrupt data")
	// ErrDamaged: the database itself is damaged, whatever was offered. It is ErrCorrupt.
	ErrDamaged = fmt.Errorf("the database is damaged: %w", ErrCorrupt)
	// ErrFull: the disk or the database is full; the last call changed nothing.
	ErrFull = errors.New("disk full")
	// ErrIO: the operating system could not read or write the file; the last call
	// changed nothing.
	ErrIO = errors.New("database i/o error")
	// ErrBusy: another program holds the database's lock for too long.
	ErrBusy = errors.New("database is locked by another program")
	// ErrReadOnly: the file, its folder or this handle cannot be written.
	ErrReadOnly = errors.New("database is read-only")
	// ErrNotDatabase: the file is not an SQLite database.
	ErrNotDatabase = errors.New("not a database")
	// ErrForeign: the file is a database of another application.
	ErrForeign = errors.New("database of another application")
	// ErrNewer: the file was written by a newer version of this program.
	ErrNewer = errors.New("database is newer than this program")
	// ErrOlder: the file was written by an older version, and may not be changed here.
	ErrOlder = errors.New("database is older than this program")
	// ErrCannotOpen: the file or its folder does not exist, or may not be opened.
	ErrCannotOpen = errors.New("cannot open the database")
	// ErrFileOnly: the call is about a file, and the database is on a server.
	ErrFileOnly = errors.New("only a database in a file can do this")
	// ErrUnreachable: the database server does not answer, or the connection broke.
	ErrUnreachable = errors.New("database server cannot be reached")
)

var sentinels = map[int]error{
	sqlite3.SQLITE_FULL:     ErrFull,
	sqlite3.SQLITE_IOERR:    ErrIO,
	sqlite3.SQLITE_BUSY:     ErrBusy,
	sqlite3.SQLITE_LOCKED:   ErrBusy,
	sqlite3.SQLITE_READONLY: ErrReadOnly,
	sqlite3.SQLITE_PERM:     ErrReadOnly,
	sqlite3.SQLITE_NOTADB:   ErrNotDatabase,
	sqlite3.SQLITE_CORRUPT:  ErrDamaged,
	sqlite3.SQLITE_CANTOPEN: ErrCannotOpen,
}

var hints = map[error]string{
	ErrFull:       "free some space and ask again: nothing that was acknowledged is lost",
	ErrBusy:       "close the other program that writes to it, or ask again",
	ErrReadOnly:   "name a database in a folder that you may write to",
	ErrCannotOpen: "check that the folder exists and may be written to",
}

// wrap adds the operation to an error of the driver, and the sentinel and hint
// that its result code stands for.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	var se *sqlite.Error
	if !errors.As(err, &se) {
		if hint, s := explain(err); s != nil && !errors.Is(err, s) {
			return fmt.Errorf("%s: %w (%s): %w", op, s, hint, err)
		}
		return fmt.Errorf("%s: %w", op, err)
	}
	s, ok := sentinels[se.Code()&0xff]
	if !ok {
		return fmt.Errorf("%s: %w", op, err)
	}
	if h := hints[s]; h != "" {
		return fmt.Errorf("%s: %w (%s): %w", op, s, h, err)
	}
	return fmt.Errorf("%s: %w: %w", op, s, err)
}
