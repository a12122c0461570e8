package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"sync"
	"time"
)

// Server is a kind of database server that can hold tasks in place of a file.
// Its connections understand the SQL of this package, which is SQLite's, and
// give what SQLite gives: integers for truth values, NULL for no number.
type Server interface {
	// Open connects to the database of an address and, unless it is only to be
	// read, brings its schema up to date. A transaction of the writer sees one
	// state of the database, and fails where it cannot be put behind another one's.
	// The reader cannot write. A reader alone comes without a writer.
	Open(ctx context.Context, address string, readOnly bool) (writer, reader *sql.DB, err error)
	// Explain returns what to do about an error of a connection, and the sentinel
	// that it stands for; nil where it stands for none.
	Explain(err error) (hint string, sentinel error)
	// Again reports whether a transaction that failed with the error before it was
	// committed may succeed when it is run again.
	Again(err error) bool
}

var servers = struct {
	sync.RWMutex
	kinds   map[string]Server // by the scheme of the address
	secrets map[string]string // addresses by what Conceal made of them
}{kinds: map[string]Server{}, secrets: map[string]string{}}

// Register makes a kind of server known by the schemes of its addresses. It is
// called while a program starts.
func Register(s Server, schemes ...string) {
	servers.Lock()
	defer servers.Unlock()
	for _, scheme := range schemes {
		servers.kinds[scheme] = s
	}
}

var schemeOf = regexp.MustCompile(`^([a-z][a-z0-9+]+)://`)

// serverOf returns the kind of server that an address names; nil for a file.
func serverOf(address string) (Server, error) {
	m := schemeOf.FindStringSubmatch(address)
	if m == nil {
		return nil, nil
	}
	servers.RLock()
	defer servers.RUnlock()
	if s := servers.kinds[m[1]]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: %s:// is no kind of database server that this program knows", ErrCannotOpen, m[1])
}

// OnServer reports whether an address names a database server and not a file.
func OnServer(address string) bool { return schemeOf.MatchString(address) }

// Conceal takes the password out of a server's address, so that it can be shown.
// Within this program, Open knows the password again. A file's path stays as it is.
func Conceal(address string) string {
	if !OnServer(address) {
		return address
	}
	shown := concealed(address)
	if shown != address {
		servers.Lock()
		servers.secrets[shown] = address
		servers.Unlock()
	}
	return shown
}

// concealed is an address without its password.
func concealed(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		m := schemeOf.FindString(address) // whatever it is, it may hold a password
		return m + "…"
	}
	if q := u.Query(); q.Has("password") {
		q.Del("password")
		u.RawQuery = q.Encode()
	}
	if _, has := u.User.Password(); has {
		u.User = url.User(u.User.Username())
	}
	return u.String()
}

// Planning says how a server best plans a statement.
type Planning uint8

// The ways to plan.
const (
	// PlanEach plans for the values of the statement's parameters, each time.
	PlanEach Planning = iota
	// PlanOnce plans for any values: the statement enters an index at them, whatever they
	// are, and looks no further than a page. Planning would take longer than to answer.
	PlanOnce
	// PlanInOrder plans for any values and sorts nothing that an index has in order: the
	// statement walks along it until its page is full. A server that takes each user for an
	// average one would rather sort all tasks of one who has very many.
	PlanInOrder
)

type planning struct{}

// PlanningOf is how a server best plans the statement that it is asked in a context.
func PlanningOf(ctx context.Context) Planning {
	p, _ := ctx.Value(planning{}).(Planning)
	return p
}

// openServer opens a database on a server.
func openServer(ctx context.Context, s Server, address string, readOnly bool) (*DB, error) {
	servers.RLock()
	full, known := servers.secrets[address]
	servers.RUnlock()
	if !known {
		full = address
	}
	d := &DB{path: Conceal(address), server: s}
	op := "open database " + d.path
	var err error
	if d.writer, d.reader, err = s.Open(ctx, full, readOnly); err != nil {
		return nil, wrap(op, err)
	}
	if d.writer == nil {
		return d, nil
	}
	if err := d.st.prepare(ctx, d.writer); err != nil {
		return nil, errors.Join(wrap(op, err), d.Close())
	}
	return d, nil
}

// serverPatience is how long a transaction is tried again while the server is
// away, or others are in its way; as long as a file's lock is waited for.
const serverPatience = 10 * time.Second

// uncertain is an error of a commit: whether it took place is not known.
type uncertain struct{ error }

func (u uncertain) Unwrap() error { return u.error }

// committing is an error of a commit, which may say that it was not even tried.
func committing(err error) error {
	var n interface{ NotCommitted() bool }
	if err == nil || errors.As(err, &n) && n.NotCommitted() {
		return err
	}
	return uncertain{err}
}

// again runs a transaction until it succeeds, fails for good, or patience ends.
func (d *DB) again(ctx context.Context, transaction func() error) error {
	end := time.Now().Add(serverPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		err := transaction()
		if err == nil || !d.mayRepeat(err) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// mayRepeat reports whether a transaction left nothing behind and may go better
// now. After a commit whose answer was lost, that is not known.
func (d *DB) mayRepeat(err error) bool {
	if d.server == nil || !d.server.Again(err) {
		return false
	}
	var u uncertain
	_, sentinel := d.server.Explain(err)
	return !errors.As(err, &u) || !errors.Is(sentinel, ErrUnreachable)
}

// explain asks the kinds of servers what an error stands for.
func explain(err error) (hint string, sentinel error) {
	servers.RLock()
	defer servers.RUnlock()
	for _, s := range servers.kinds {
		if hint, sentinel = s.Explain(err); sentinel != nil {
			return hint, sentinel
		}
	}
	return "", nil
}
