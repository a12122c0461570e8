package store

import "errors"

// Sentinel errors, wrapped with what was done and what to do next.
var (
	// ErrNotFound: there is no such task.
	ErrNotFound = errors.New("no such task")
	// ErrConflict: what is stored already says otherwise (a chunk number with
	// another checksum, scans that overlap, another header under stored samples).
	ErrConflict = errors.New("conflicts with what is stored")
	// ErrNoHeader: samples came before PutHeader.
	ErrNoHeader = errors.New("task has no header yet")
	// ErrCorrupt: stored or offered data does not pass its own checks.
	ErrCorrupt = errors.New("corrupt data")
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
	// ErrCannotOpen: the file or its folder does not exist, or may not be opened.
	ErrCannotOpen = errors.New("cannot open the database")
)
