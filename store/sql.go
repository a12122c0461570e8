package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/internal/data"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Sentinel errors, wrapped with the operation and the remedy.
var (
	// ErrNotFound: there is no such task.
	ErrNotFound = errors.New("no such task")
	// ErrPinned: the task is pinned, and stays.
	ErrPinned = errors.New("pinned: unpin it first, or force it")
	// ErrConflict: stored data contradicts the call (a chunk number with
	// another checksum, scans that overlap, another header under stored samples).
	ErrConflict = errors.New("conflicts with what is stored")
	// ErrNoHeader: samples came before PutHeader.
	ErrNoHeader = errors.New("task has no header yet")
	// ErrCorrupt: stored or offered data does not pass its own checks.
	ErrCorrupt = data.ErrCorrupt
	// ErrDamaged: the database itself is damaged, whatever was offered. It is ErrCorrupt.
	ErrDamaged = fmt.Errorf("the database is damaged: %w", ErrCorrupt)
	// ErrFull: the disk or the database is full; the last call changed nothing.
	ErrFull = errors.New("disk full")
	// ErrIO: the operating system could not read or write the file; the last call changed nothing.
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
	sqlite3.SQLITE_FULL:  ErrFull,
	sqlite3.SQLITE_IOERR: ErrIO,
	// A page that ends early: the file was cut off in it.
	sqlite3.SQLITE_IOERR_SHORT_READ: ErrDamaged,
	sqlite3.SQLITE_BUSY:             ErrBusy,
	sqlite3.SQLITE_LOCKED:           ErrBusy,
	sqlite3.SQLITE_READONLY:         ErrReadOnly,
	sqlite3.SQLITE_PERM:             ErrReadOnly,
	sqlite3.SQLITE_NOTADB:           ErrNotDatabase,
	sqlite3.SQLITE_CORRUPT:          ErrDamaged,
	sqlite3.SQLITE_CANTOPEN:         ErrCannotOpen,
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
	var hint string
	var s error
	if se, ok := errors.AsType[*sqlite.Error](err); ok {
		s = cmp.Or(sentinels[se.Code()], sentinels[se.Code()&0xff])
		hint = hints[s]
	} else {
		for _, kind := range serverKinds.Range {
			if h, of := kind.(Server).Explain(err); of != nil && !errors.Is(err, of) {
				hint, s = h, of
			}
		}
	}
	switch {
	case s == nil:
		return fmt.Errorf("%s: %w", op, err)
	case hint == "":
		return fmt.Errorf("%s: %w: %w", op, s, err)
	}
	return fmt.Errorf("%s: %w (%s): %w", op, s, hint, err)
}

// write runs f in one transaction that is on disk when write returns nil; where the session ends with an
// error nothing of it remains. On a server f may run more than once: variables that it changes outside of
// the database must allow that.
func (d *DB) write(ctx context.Context, op string, f func(*session)) error {
	if d.writer == nil {
		return fmt.Errorf("%s: %w", op, ErrReadOnly)
	}
	return wrap(op, d.again(ctx, func() error {
		tx, err := d.writer.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after Commit there is nothing to roll back
		s := session{ctx: ctx, on: tx}
		if d.server == nil {
			s.on = data.Preparing(tx)
		}
		if f(&s); s.err != nil {
			return s.err
		}
		err = tx.Commit()
		var n interface{ NotCommitted() bool }
		if err == nil || errors.As(err, &n) && n.NotCommitted() {
			return err
		}
		return uncertain{err}
	}))
}

// executor is a transaction or a pool.
type executor interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// session runs the statements of one call, in a transaction or by a pool. It keeps the first error:
// from then on its methods do nothing and return zero values, so that a sequence of statements is
// checked once, at its end. One goroutine uses it.
type session struct {
	ctx context.Context
	on  executor
	err error
}

// view runs f in a transaction that reads: all of its queries see the database at one moment. With an
// empty op, the error is as it came, for a caller that wraps it.
func (d *DB) view(ctx context.Context, op string, f func(*session)) error {
	tx, err := d.reader.BeginTx(ctx, nil)
	if err == nil {
		defer tx.Rollback() // it only read
		s := session{ctx: ctx, on: tx}
		f(&s)
		err = s.err
	}
	if op == "" {
		return err
	}
	return wrap(op, err)
}

// reading returns a session of the pool that reads, each of whose queries sees a moment of its own.
func (d *DB) reading(ctx context.Context) *session { return &session{ctx: ctx, on: d.reader} }

// fail keeps an error, unless there is one already.
func (s *session) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// failed is fail with a text, and without an effect where err is nil.
func (s *session) failed(err error, format string, a ...any) {
	if err != nil {
		s.fail(fmt.Errorf(format+": %w", append(a, err)...))
	}
}

// note puts a place before the error, where there is one.
func (s *session) note(format string, a ...any) {
	if s.err != nil {
		s.err = fmt.Errorf(format+": %w", append(a, s.err)...)
	}
}

// exec runs a statement and returns the number of rows that it changed.
func (s *session) exec(query string, args ...any) (n int64) {
	if s.err != nil {
		return 0
	}
	r, err := s.on.ExecContext(s.ctx, query, stored(args)...)
	if err == nil {
		n, err = r.RowsAffected()
	}
	s.err = err
	return n
}

// insert inserts a row of all columns of a table.
func (s *session) insert(table string, row ...any) {
	s.exec("INSERT INTO "+table+" VALUES(?"+strings.Repeat(",?", len(row)-1)+")", row...)
}

// must runs a statement that changes a row; ErrNotFound where there is none.
func (s *session) must(query string, args ...any) {
	if s.exec(query, args...) == 0 {
		s.fail(ErrNotFound)
	}
}

// answer is the row of a query.
type answer struct {
	s   *session
	row *sql.Row // nil after an error
}

// row asks for one row.
func (s *session) row(query string, args ...any) answer {
	if s.err != nil {
		return answer{s: s}
	}
	return answer{s, s.on.QueryRowContext(s.ctx, query, stored(args)...)}
}

// into reads the row into dest. No row is sql.ErrNoRows.
func (a answer) into(dest ...any) {
	if a.row != nil {
		a.s.err = a.row.Scan(dest...)
	}
}

// found is into, but that no row is no error.
func (a answer) found(dest ...any) bool {
	if a.row == nil {
		return false
	}
	if a.into(dest...); errors.Is(a.s.err, sql.ErrNoRows) {
		a.s.err = nil
		return false
	}
	return a.s.err == nil
}

// one reads the value of a query of one row and column.
func one[T any](s *session, query string, args ...any) (v T) {
	s.row(query, args...).into(&v)
	return v
}

// rows yields the rows of a query, until the session has an error. They are closed behind the loop.
func (s *session) rows(query string, args ...any) iter.Seq[*sql.Rows] {
	return func(yield func(*sql.Rows) bool) {
		if s.err != nil {
			return
		}
		rows, err := s.on.QueryContext(s.ctx, query, args...)
		if err != nil {
			s.err = err
			return
		}
		defer rows.Close()
		for rows.Next() && yield(rows) && s.err == nil {
		}
		s.fail(rows.Err())
	}
}

// all reads the rows of a query with scan, which copies the values; nil for none.
func all[T any](s *session, scan func(*sql.Rows, *T) error, query string, args ...any) (out []T) {
	for rows := range s.rows(query, args...) {
		var v T
		if s.err = scan(rows, &v); s.err == nil {
			out = append(out, v)
		}
	}
	return out
}

// value scans the one column of a row.
func value[T any](rows *sql.Rows, v *T) error { return rows.Scan(v) }

// values reads the rows of a query of one column.
func values[T any](s *session, query string, args ...any) []T {
	return all(s, value[T], query, args...)
}

// collect reads the rows of a query with scan, at a moment of its own.
func collect[T any](ctx context.Context, d *DB, op string, scan func(*sql.Rows, *T) error, query string,
	args ...any,
) ([]T, error) {
	s := d.reading(ctx)
	out := all(s, scan, query, args...)
	return out, wrap(op, s.err)
}

// json is a value as JSON.
func (s *session) json(v any) string {
	text, err := json.Marshal(v)
	s.fail(err)
	return string(text)
}

// nanos is a time as it is stored; NULL where there is none.
func nanos(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

// stored brings values into the form in which they are stored: SQLite has no NaN, and stores NULL; unsigned numbers
// of 64 bits keep their bits in signed columns. It changes values in place.
func stored(values []any) []any {
	for i := range values {
		switch v := reflect.ValueOf(values[i]); v.Kind() {
		case reflect.Float64:
			if math.IsNaN(v.Float()) {
				values[i] = nil
			}
		case reflect.Uint64:
			values[i] = int64(v.Uint())
		}
	}
	return values
}

// Pointers to fields are converted to one of these where the column is to be scanned in another way: to *real, as in
// (*real)(&r.Mean).
type (
	real   float64   // NULL becomes NaN
	text   string    // without characters that must not reach a terminal; NULL becomes an empty one
	moment time.Time // of what nanos wrote; NULL becomes the zero time
)

// Scan takes a number or NULL.
func (r *real) Scan(v any) error {
	var f sql.NullFloat64
	err := f.Scan(v)
	if *r = real(f.Float64); !f.Valid {
		*r = real(math.NaN())
	}
	return err
}

// Scan takes a text or NULL.
func (t *text) Scan(v any) error {
	var s sql.NullString
	err := s.Scan(v)
	*t = text(measure.Printable(s.String))
	return err
}

// Scan takes nanoseconds since 1970 or NULL.
func (m *moment) Scan(v any) error {
	var n sql.NullInt64
	err := n.Scan(v)
	if *m = (moment{}); n.Valid {
		*m = moment(time.Unix(0, n.Int64).UTC())
	}
	return err
}

// Server is a kind of database server that can hold tasks in place of a file.
// Its connections understand the SQL of this package, which is SQLite's, and
// return SQLite's values: integers for truth values, NULL for no number.
type Server interface {
	// Open connects to the database of an address and, unless it is only to be read, brings its schema up
	// to date. A transaction of the writer sees one state of the database, and fails where it cannot be put
	// behind another one's. The reader cannot write. A reader alone comes without a writer.
	Open(ctx context.Context, address string, readOnly bool) (writer, reader *sql.DB, err error)
	// Explain returns the remedy for an error of a connection, and the sentinel
	// that it stands for; nil where it stands for none.
	Explain(err error) (hint string, sentinel error)
	// Again reports whether a transaction that failed with the error before it was
	// committed may succeed when it is run again.
	Again(err error) bool
}

var (
	serverKinds   sync.Map // by the scheme of the address: string → Server
	serverSecrets sync.Map // addresses by their concealed form: string → string
)

// Register makes a kind of server known by the schemes of its addresses. It is
// called while a program starts.
func Register(s Server, schemes ...string) {
	for _, scheme := range schemes {
		serverKinds.Store(scheme, s)
	}
}

var schemeOf = lazy.Regexp(`^([a-z][a-z0-9+]+)://`)

// serverOf returns the kind of server that an address names; nil for a file.
func serverOf(address string) (Server, error) {
	m := schemeOf().FindStringSubmatch(address)
	if m == nil {
		return nil, nil
	}
	if s, known := serverKinds.Load(m[1]); known {
		return s.(Server), nil
	}
	if strings.HasPrefix(address, HostScheme) {
		return nil, fmt.Errorf("%w: this wants a SQLite file or a PostgreSQL database, and not a wattmark host: name one "+
			"with --db, or copy tasks with wattmark db copy", ErrCannotOpen)
	}
	return nil, fmt.Errorf("%w: %s:// is no kind of database server that this program knows", ErrCannotOpen, m[1])
}

// HostScheme begins the address of a wattmark host, whose database is reached over TaskService
// and is not opened by this package.
const HostScheme = "host://"

// OnServer reports whether an address names a database server or a host, and not a file.
func OnServer(address string) bool { return schemeOf().MatchString(address) }

// Conceal takes the password out of a server's address, so that it can be shown.
// Within this program, Open knows the password again. A file's path stays as it is.
func Conceal(address string) string {
	if !OnServer(address) {
		return address
	}
	// An address that is none may hold a password anywhere.
	if strings.HasPrefix(address, HostScheme) {
		return address
	}
	shown := schemeOf().FindString(address) + "…"
	if u, err := url.Parse(address); err == nil {
		if q := u.Query(); q.Has("password") {
			q.Del("password")
			u.RawQuery = q.Encode()
		}
		if _, has := u.User.Password(); has {
			u.User = url.User(u.User.Username())
		}
		shown = u.String()
	}
	if shown != address {
		serverSecrets.Store(shown, address)
	}
	return shown
}

// openServer opens a database on a server.
func openServer(ctx context.Context, s Server, address string, readOnly bool) (*DB, error) {
	d := &DB{path: Conceal(address), server: s}
	if full, known := serverSecrets.Load(address); known {
		address = full.(string)
	}
	var err error
	d.writer, d.reader, err = s.Open(ctx, address, readOnly)
	if err != nil {
		return nil, wrap("open database "+d.path, err)
	}
	return d, nil
}

// serverPatience is how long a transaction is tried again while the server is
// away, or others are in its way; as long as a file's lock is waited for.
const serverPatience = 10 * time.Second

// uncertain is an error of a commit: whether it took place is not known.
type uncertain struct{ error }

func (u uncertain) Unwrap() error { return u.error }

// again runs a transaction until it succeeds, fails for good, or patience ends.
func (d *DB) again(ctx context.Context, transaction func() error) error {
	return patiently(ctx, serverPatience, 250*time.Millisecond, transaction, func(err error) bool {
		if d.server == nil || !d.server.Again(err) {
			return false
		}
		// After a commit whose answer was lost, it is not known whether it took place.
		var u uncertain
		_, sentinel := d.server.Explain(err)
		return !errors.As(err, &u) || !errors.Is(sentinel, ErrUnreachable)
	})
}

// patiently repeats f while retry holds of its error, at most for a time, with pauses that grow from 1 ms
// to the longest.
func patiently(ctx context.Context, most, longest time.Duration, f func() error, retry func(error) bool) error {
	end := time.Now().Add(most)
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		err := f()
		if err == nil || !retry(err) || time.Now().After(end) {
			return err
		}
		if backoff.Sleep(ctx, pause) != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}
