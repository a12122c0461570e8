// Package store is the task database: SQLite by default. Raw counts are kept as chunks; watts and joules
// are derived from them and the calibration that was in force. The view data serves the paper's twelve
// columns in any stock sqlite3 program; Chunks reads many times faster.
//
//	BeginTask ─▶ PutHeader ─▶ AppendChunks … ─▶ Finish     one writer
//	Task, Tasks, Users, Chunks, SQL                         many readers
//
// Every call that writes is one transaction, on disk when the call returns
// (WAL, synchronous=EXTRA): after a crash, an acknowledged call is there whole, and any
// other call whole or not at all. docs/format.md describes the file.
//
// A database on a server takes the file's place where its address is opened; see
// Server, and package store/postgres.
package store

import (
	"bytes"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wattmark/wattmark/store/internal/data"
	"github.com/wattmark/wattmark/store/internal/files"
)

// ApplicationID marks our files (PRAGMA application_id): "WaMk" in ASCII.
const ApplicationID = 0x57614d6b

// DB is an open task database. It is safe for concurrent use.
//
// A file has two pools of connections. The writer is a single connection whose transactions
// begin with the write lock (BEGIN IMMEDIATE), so that they never fail for a lock in the middle.
// The readers cannot write (query_only); in WAL mode each of their queries or transactions sees
// one moment of the database, and waits for no writer.
//
// On a server, both pools are the driver's, and transactions of several writers may run beside
// each other: a transaction that fails for another one is run again.
type DB struct {
	path   string
	server Server // nil for a file
	held   *held  // a file that is open with locks
	// temporary is the folder of a private copy that is read in the file's place.
	temporary string
	readDSN   string       // that readers are opened with
	short     bool         // readers open also a file with fewer pages than its header says
	still     func() error // checks a file that is read without locks; nil for others
	writer    *sql.DB      // to a file one connection; nil when read-only
	reader    *sql.DB      // cannot write
	limits    Limits
	logLoss   string

	mine sync.Map // TaskID of those that this handle has begun as Partial
	// folds are the pyramids of the tasks that chunks are coming in for: TaskID → *folding. One that is deleted is
	// resumed from the stored pages.
	folds  sync.Map
	unfold atomic.Bool
}

// Open opens the database of a path, creating it where there is none, or of an address on a server whose
// kind was registered. Errors wrap ErrNotDatabase, ErrForeign, ErrNewer, ErrOlder, ErrReadOnly,
// ErrCannotOpen or ErrUnreachable; the file is left as it was. Open may wait up to 30 s for another program
// that makes the file. A log that a killed program left is folded in; see LogLoss.
func Open(ctx context.Context, path string) (*DB, error) {
	op := "open database " + Conceal(path)
	if s, err := serverOf(path); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	} else if s != nil {
		return openServer(ctx, s, path, false)
	}
	abs, err := checkFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	loss := lookAtLog(abs, true)
	// A file that is missing is made with the mode that the umask leaves, in a folder that a group shares also
	// for the group: SQLite withholds writing from the group whatever the umask allows, and gives its log the
	// mode of the file. A file that is there is not opened, as closing it would take SQLite's locks on it away.
	// Errors are left to SQLite, which meets them again.
	if f, err := os.OpenFile(abs, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666); err == nil {
		dir, err := os.Stat(filepath.Dir(abs))
		if err == nil && dir.Mode()&os.ModeSetgid != 0 && dir.Mode()&0o020 != 0 {
			_ = f.Chmod(0o660)
		}
		_ = f.Close()
	}
	d := &DB{path: path, held: hold(abs), logLoss: loss}
	d.writer = sql.OpenDB(data.Connector(dsn(abs, "rwc", "_txlock=immediate",
		"_pragma=busy_timeout(10000)", "_pragma=page_size(16384)", "_pragma=foreign_keys(1)")))
	d.writer.SetMaxOpenConns(1)
	d.writer.SetConnMaxIdleTime(0)
	// SQLite's own wait does not cover the switch to WAL: of two programs that make the file at once, one
	// gets SQLITE_BUSY without a wait.
	if err := patiently(ctx, openPatience, 100*time.Millisecond, func() error { return d.prepareFile(ctx) },
		func(err error) bool { return errors.Is(wrap("", err), ErrBusy) }); err != nil {
		d.writer.Close()
		d.held.release()
		return nil, wrap(op, err)
	}
	if exists(abs + "-wal") {
		d.emptyLog(ctx) // of a program that was killed: its captures may be released from here on
	}
	d.openReaders(dsn(abs, "rw", "_pragma=busy_timeout(10000)"))
	return d, nil
}

// mayNotWrite is the error of a file that this program may read alone: ErrReadOnly.
func mayNotWrite(abs string) error {
	if errors.Is(syscall.Access(abs, 2), syscall.EROFS) { // for writing: the disk is read-only
		return fmt.Errorf("%w: %s", ErrReadOnly, hints[ErrReadOnly])
	}
	st, err := os.Stat(abs)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	owner := "another user"
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		owner = fmt.Sprintf("user %d", s.Uid)
		if u, err := user.LookupId(fmt.Sprint(s.Uid)); err == nil {
			owner = u.Username
		}
	}
	return fmt.Errorf("%w: %s belongs to %s and has mode %04o: have it made writable for you (chmod g+w for its group), "+
		"or name another", ErrReadOnly, abs, owner, st.Mode().Perm())
}

// openPatience is how long a database that another program is just making may keep Open waiting.
const openPatience = 30 * time.Second

// prepareFile refuses foreign files, switches to WAL and makes the schema of an empty file.
func (d *DB) prepareFile(ctx context.Context) error {
	version, err := checkOurs(ctx, d.writer)
	if err != nil {
		return err
	}
	// SQLite opens a file for reading only without a word where it has to.
	conn, err := d.writer.Conn(ctx)
	if err != nil {
		return err
	}
	err = conn.Raw(func(c any) error {
		// All connections of package data have the method.
		if no, err := c.(interface{ IsReadOnly(string) (bool, error) }).IsReadOnly("main"); err != nil || !no {
			return err
		}
		return mayNotWrite(d.held.abs)
	})
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	// The journal of the switch to WAL must not come back after a power cut, when the file
	// holds more than it knows: with EXTRA its deletion is synced. For a log EXTRA is FULL.
	// journal_size_limit gives the disk back after a long reader let the log grow.
	for _, p := range []string{"synchronous=EXTRA", "journal_mode=WAL", "journal_size_limit=67108864"} {
		if _, err := d.writer.ExecContext(ctx, "PRAGMA "+p); err != nil {
			return err
		}
	}
	if version == schemaVersion {
		return nil
	}
	return createSchema(ctx, d.writer)
}

// Close waits for running calls and closes the database. The last program to close it that
// may write folds the log into the file, and leaves the file without one: so it can be read
// from a medium that cannot be written, and carried away alone.
func (d *DB) Close() error {
	var errs []error
	if d.reader != nil {
		errs = append(errs, d.reader.Close())
	}
	if d.writer != nil {
		if d.server == nil {
			// While others have it open, this fails at once; the last of them does it.
			_, _ = d.writer.Exec("PRAGMA busy_timeout=0; PRAGMA journal_mode=DELETE")
		}
		errs = append(errs, d.writer.Close())
	} else if d.held != nil && d.held.ours && exists(d.held.abs+"-wal") && d.held.writable() {
		d.held.setJournal("DELETE")
	}
	if d.held != nil {
		d.held.release()
	}
	if d.temporary != "" {
		errs = append(errs, os.RemoveAll(d.temporary))
	}
	return wrap("close database "+d.path, errors.Join(errs...))
}

// Path returns the file's path as it was given, a server's address without the password.
func (d *DB) Path() string { return d.path }

// SQL returns a pool of connections that can read but not write, for queries
// of one's own.
func (d *DB) SQL() *sql.DB { return d.reader }

// openReaders makes the pool of connections that cannot write.
func (d *DB) openReaders(dsn string) {
	if d.short { // this setting alone makes SQLite take the pages that there are; of the missing ones each is ErrDamaged
		dsn += "&_pragma=writable_schema(1)"
	}
	d.readDSN = dsn
	d.reader = sql.OpenDB(data.Reader(dsn, d.still))
	n := max(4, runtime.GOMAXPROCS(0))
	d.reader.SetMaxOpenConns(n)
	d.reader.SetMaxIdleConns(n)
}

// OpenAll opens every connection for reading that there will be, so that a service has the same
// number of files open from its start on, and its first callers do not wait for it. Of a
// server's connections it opens none.
func (d *DB) OpenAll(ctx context.Context) error {
	if d.server != nil {
		return nil
	}
	for range d.reader.Stats().MaxOpenConnections {
		c, err := d.reader.Conn(ctx)
		if err != nil {
			return wrap("open database "+d.path, err)
		}
		defer c.Close() // back into the pool
		// The log is opened by the first read.
		if _, err := c.ExecContext(ctx, "SELECT 1 FROM sqlite_schema LIMIT 1"); err != nil {
			return wrap("open database "+d.path, err)
		}
	}
	return nil
}

// dsn is the connection string of a file in a mode (ro, rw, rwc), with further parameters.
func dsn(abs, mode string, more ...string) string {
	u := url.URL{Scheme: "file", Path: abs, RawQuery: "mode=" + mode + "&_error_rc=1"}
	for _, m := range more {
		u.RawQuery += "&" + m
	}
	return strings.Replace(u.String(), "file://", "file:", 1)
}

// checkFile refuses a path that holds something else than an SQLite database,
// before SQLite gets to touch it.
func checkFile(path string) (abs string, err error) {
	if path == "" {
		return "", fmt.Errorf("%w: no file is named", ErrCannotOpen)
	}
	if abs, err = filepath.Abs(path); err != nil {
		return "", err
	}
	st, err := os.Stat(abs)
	if errors.Is(err, os.ErrNotExist) {
		return abs, nil
	}
	if err == nil && !st.Mode().IsRegular() {
		return "", fmt.Errorf("%w: not a regular file", ErrNotDatabase) // opening a pipe would wait for ever
	}
	head, opened, err := peek(abs)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrCannotOpen, err)
	case opened || len(head) == 0:
		return abs, nil // SQLite had a look at it; an empty file is an empty database
	case len(bytes.Trim(head, "\x00")) == 0 && exists(abs+"-journal"):
		return abs, nil // a power cut while the file was made: SQLite rolls that back
	case !bytes.HasPrefix(head, []byte("SQLite format 3\x00")):
		return "", fmt.Errorf("%w: %s holds something else; name another file", ErrNotDatabase, filepath.Base(path))
	}
	return abs, nil
}

// checkOurs returns the version of the schema, 0 for an empty database.
func checkOurs(ctx context.Context, db *sql.DB) (version int, err error) {
	var app, tables, exported int
	row := db.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_master),
		(SELECT count(*) FROM sqlite_master WHERE name IN ('data', 'unit', 'wattmark'))`)
	if err := row.Scan(&app, &version, &tables, &exported); err != nil {
		return 0, err
	}
	switch {
	case app == 0 && version == 0 && tables == 0:
		return 0, nil
	case app == 0 && exported == 3:
		return 0, fmt.Errorf("%w: it is an export for other programs (--format sqlite), without the meter's counts: "+
			"wattmark db detach writes tasks that db import takes", ErrForeign)
	case app != ApplicationID:
		return 0, fmt.Errorf("%w (application_id %#x, %d tables): name another file", ErrForeign, app, tables)
	case version > schemaVersion:
		return 0, fmt.Errorf("%w: schema %d, this program knows %d: update the program", ErrNewer, version, schemaVersion)
	case version < schemaVersion:
		return 0, fmt.Errorf("%w: schema %d of a development version, this program's is %d: read it with the program "+
			"that made it",
			ErrOlder, version, schemaVersion)
	}
	return version, nil
}

// held is a file that a handle of this program has open.
type held struct {
	abs  string
	info os.FileInfo // nil where it was not made yet
	ours bool        // it is a task database of this version
}

// holding are all of them. On Unix a program loses its locks of a file, SQLite's too, when
// it closes any descriptor of that file: so no function of this program opens a held file by itself.
var holding struct {
	sync.Mutex
	files []*held
}

// hold notes that SQLite is about to open a file.
func hold(abs string) *held {
	h := &held{abs: abs}
	holding.Lock()
	defer holding.Unlock()
	h.info, _ = os.Stat(abs)
	holding.files = append(holding.files, h)
	return h
}

// release notes that it is closed.
func (h *held) release() {
	holding.Lock()
	defer holding.Unlock()
	holding.files = slices.DeleteFunc(holding.files, func(x *held) bool { return x == h })
}

// isHeld reports whether this program has a file open; holding is locked.
func isHeld(abs string) bool {
	st, err := os.Stat(abs)
	return slices.ContainsFunc(holding.files, func(h *held) bool {
		return h.abs == abs || err == nil && h.info != nil && os.SameFile(h.info, st)
	})
}

// peek returns the first bytes of a file, unless this program has it open.
func peek(abs string) (head []byte, opened bool, err error) {
	if _, err := os.Stat(abs); err != nil {
		return nil, false, err
	}
	holding.Lock()
	defer holding.Unlock()
	if isHeld(abs) {
		return nil, true, nil
	}
	f, err := os.Open(abs)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	head, err = io.ReadAll(io.LimitReader(f, 100)) // SQLite's header
	return head, false, err
}

// writable reports whether this program may write the file and beside it.
func (h *held) writable() bool { return files.MayWrite(h.abs) && files.MayWrite(filepath.Dir(h.abs)) }

// setJournal sets a file's journal mode, unless another program is in the way.
func (h *held) setJournal(mode string) {
	db := sql.OpenDB(data.Connector(dsn(h.abs, "rw", "_pragma=busy_timeout(0)")))
	_, _ = db.Exec("PRAGMA journal_mode=" + mode) // else it stays as it is
	_ = db.Close()
}

// schemaVersion is the schema of this program (PRAGMA user_version). A database of this version
// stays readable and writable by later versions of the program.
const schemaVersion = 26

//go:generate go test ./internal/viewgen -update

// schemaSQL makes tables, indexes and triggers, viewSQL the view data with its look-up tables.
//
//go:embed schema.sql
var schemaSQL string

//go:embed view.sql
var viewSQL string

// createSchema makes the schema of an empty database in one transaction. It does nothing where
// another program has just made it.
func createSchema(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit there is nothing to roll back
	s := &session{ctx: ctx, on: tx}
	if version := one[int](s, "PRAGMA user_version"); s.err != nil || version != 0 {
		return s.err
	}
	s.exec(schemaSQL)
	s.exec(viewSQL)
	s.exec(fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d", ApplicationID, schemaVersion))
	if s.note("make the schema"); s.err != nil {
		return s.err
	}
	return tx.Commit()
}
