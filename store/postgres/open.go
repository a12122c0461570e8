// Package postgres holds the task database on a PostgreSQL server, for a lab that shares one. It is a kind
// of server of package store: the same calls, the same tables, the same answers. What differs is how a
// connection understands SQL (internal/dialect), that a transaction's rows are gathered and sent together,
// and that the view data decodes the chunks in the server, by functions of its own. docs/database.md is for
// users.
//
// A connection writes under REPEATABLE READ. Two that are in each other's way do not wait for a lock of the
// whole database, as they would on a file: one of them fails and package store runs it again.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/wattmark/wattmark/store"
)

// Schemes begin a server's address, as in postgres://user@host:5432/database.
var Schemes = []string{"postgres", "postgresql"}

// Register makes store.Open know the addresses of PostgreSQL. say is called, from any goroutine,
// while a server that stands still is waited for; nil for silence.
func Register(say func(text string)) { store.Register(Server{say}, Schemes...) }

// Server is PostgreSQL 13 or later.
type Server struct{ say func(text string) }

// writers is how many transactions of one program run beside each other.
const writers = 4

// Open connects, and brings the schema up to date unless it is only to be read. A question
// to a server that stands still fails with store.ErrUnreachable, after some 15 s.
func (s Server) Open(ctx context.Context, address string, readOnly bool) (writer, reader *sql.DB, err error) {
	cfg, err := config(address)
	if err != nil {
		return nil, nil, err
	}
	watch(cfg, s.say)
	if err := prepare(ctx, cfg, readOnly); err != nil {
		return nil, nil, err
	}
	if !readOnly {
		writer = pool(cfg, writers)
	}
	read := cfg.Copy()
	read.RuntimeParams["default_transaction_read_only"] = "on"
	return writer, pool(read, max(4, runtime.GOMAXPROCS(0))), nil
}

// pool makes a pool of connections that are kept open.
func pool(cfg *pgx.ConnConfig, connections int) *sql.DB {
	db := sql.OpenDB(&connector{stdlib.GetConnector(*cfg)})
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}

// config reads an address. The settings that durability and the transactions'
// order rest on are ours, whatever the server's defaults are.
func config(address string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, 10*time.Second)
	maps.Copy(cfg.RuntimeParams, map[string]string{
		"default_transaction_isolation": "repeatable read",
		"synchronous_commit":            "on",
		"lock_timeout":                  "10s",
		"client_encoding":               "UTF8",
		"standard_conforming_strings":   "on",
		"bytea_output":                  "hex",
		"extra_float_digits":            "3",
		"application_name":              cmp.Or(cfg.RuntimeParams["application_name"], "wattmark"),
	})
	return cfg, nil
}

// prepare makes the schema, or checks that it is there, over a connection of its own.
func prepare(ctx context.Context, cfg *pgx.ConnConfig, readOnly bool) error {
	c, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	n := schemaVersion
	if readOnly {
		n, err = version(ctx, c)
	} else {
		err = makeSchema(ctx, c)
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: it is empty: open it once for writing", store.ErrOlder)
	}
	return err
}

// schemaVersion is the schema of this program, equal to the file's.
const schemaVersion = 26

// schemaSQL makes tables, indexes, functions and triggers, viewSQL the view data.
//
//go:embed schema.sql
var schemaSQL string

//go:embed view.sql
var viewSQL string

// lockKey is the advisory lock of a program that makes the schema: "WaMk" in ASCII.
const lockKey = store.ApplicationID

// marks is the table that holds the version of the schema.
const marks = `CREATE TABLE IF NOT EXISTS wattmark_schema(
	version integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT now())`

// version returns the version of the schema, 0 where it is empty. Errors wrap store.ErrForeign,
// store.ErrNewer and store.ErrOlder.
func version(ctx context.Context, c *pgx.Conn) (n int, err error) {
	var ours bool
	var tables int
	err = c.QueryRow(ctx, `SELECT to_regclass('wattmark_schema') IS NOT NULL, (SELECT count(*) FROM pg_class
		WHERE relkind IN ('r','v','p') AND relnamespace=to_regnamespace(quote_ident(current_schema())))`).
		Scan(&ours, &tables)
	switch {
	case err != nil:
		return 0, err
	case !ours && tables > 0:
		return 0, fmt.Errorf("%w (%d tables in the schema): name an empty database, or another schema with "+
			"?search_path=NAME", store.ErrForeign, tables)
	case !ours:
		return 0, nil
	}
	err = c.QueryRow(ctx, `SELECT coalesce(max(version),0) FROM wattmark_schema`).Scan(&n)
	switch {
	case err != nil:
	case n > schemaVersion:
		err = fmt.Errorf("%w: schema %d, this program knows %d: update the program", store.ErrNewer, n, schemaVersion)
	case n > 0 && n < schemaVersion:
		err = fmt.Errorf("%w: schema %d of a development version, this program's is %d: read it with the program that "+
			"made it", store.ErrOlder, n, schemaVersion)
	}
	return n, err
}

// makeSchema makes the schema of an empty database in one transaction, under a lock that keeps
// other programs from making it as well. Where it is there, nothing is locked.
func makeSchema(ctx context.Context, c *pgx.Conn) (err error) {
	n, err := version(ctx, c)
	if err != nil || n == schemaVersion {
		return err
	}
	if _, err := c.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(lockKey)); err != nil {
		return err
	}
	defer func() {
		_, unlock := c.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, int64(lockKey))
		err = errors.Join(err, unlock)
	}()
	if n, err = version(ctx, c); err != nil || n == schemaVersion {
		return err
	}
	return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{}, func(tx pgx.Tx) error {
		for _, text := range []string{marks, schemaSQL, viewSQL} {
			if _, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll(); err != nil {
				return fmt.Errorf("make the schema: %w", err)
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO wattmark_schema(version, name) VALUES($1,'schema.sql')`, schemaVersion)
		return err
	})
}

// meaning is the sentinel that an SQLSTATE stands for, with the remedy.
type meaning struct {
	sentinel error
	hint     string
}

var (
	away = meaning{
		store.ErrUnreachable,
		"see that the server runs and the address is right, and ask again: nothing that was acknowledged is lost",
	}
	denied = meaning{
		store.ErrCannotOpen, "check the address's user, password and database, and the server's pg_hba.conf",
	}
	full   = meaning{store.ErrFull, "free some space on the server and ask again: nothing that was acknowledged is lost"}
	busy   = meaning{store.ErrBusy, "ask again when the other programs are done"}
	barred = meaning{
		store.ErrReadOnly, "ask the server's keeper for the right to write, or name the primary and not a standby",
	}
	broken = meaning{store.ErrDamaged, "the server finds its files damaged: look into its log"}
	file   = meaning{store.ErrFileOnly, "use the server's own tools, or copy tasks to a file with wattmark db copy"}
	noise  = meaning{store.ErrIO, "look into the server's log"}
)

var meanings = map[string]meaning{
	"53100": full, // disk full
	"53200": busy, // out of memory
	"53300": busy, // too many connections
	"55P03": busy, // lock not available
	"40001": busy, // serialization failure
	"40P01": busy, // deadlock
	"25006": barred,
	"42501": barred,
	"57P01": away, // shut down by its keeper
	"57P02": away, // crashed
	"57P03": away, // starting up
	"28000": denied, "28P01": denied, "3D000": denied,
	"58030": noise,
	"XX001": broken, "XX002": broken,
	"08000": away, "08003": away, "08006": away, "08001": away, "08004": away,
}

// Explain returns the remedy and the sentinel of an error.
func (Server) Explain(err error) (hint string, sentinel error) {
	m := meaningOf(err)
	return m.hint, m.sentinel
}

// meaningOf finds the meaning of an error by its SQLSTATE, or by the layer that it comes from.
func meaningOf(err error) meaning {
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	var parse *pgconn.ParseConfigError
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return meaning{}
	case errors.Is(err, store.ErrFileOnly):
		return file
	case errors.As(err, &server):
		return meanings[server.Code]
	case errors.As(err, &parse):
		return meaning{store.ErrCannotOpen, "an address is postgres://user@host:5432/database"}
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, driver.ErrBadConn),
		errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, pgconn.ErrConnClosed):
		return away
	}
	return meaning{}
}

// Again reports whether a transaction may go better when it is run again: others were in its way, or the
// server was away. A unique key that was taken meanwhile is one of the former: the next run sees it.
func (Server) Again(err error) bool {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		again := []string{"40001", "40P01", "23505", "23503", "57P01", "57P02", "57P03"}
		return slices.Contains(again, server.Code)
	}
	return errors.Is(meaningOf(err).sentinel, store.ErrUnreachable)
}

// A server that stands still – stopped, swapped out, behind a line that is cut – keeps its connections and
// answers nothing. A question may take its time, so silence alone proves little: after some of it a
// connection of its own asks whether the server answers at all. Where it does not, the question has failed.
var (
	// silence is how long a question goes unanswered before the server is doubted; it
	// doubles up to longestSilence while the server answers others.
	silence = 5 * time.Second
	// probing is how long a new connection may take.
	probing = 10 * time.Second
)

const (
	longestSilence = 30 * time.Second
	// longQuestion is the time after which the user hears of a question that is still worked on.
	longQuestion = time.Minute
)

// silentError: the server stands still.
type silentError struct {
	server string
	waited time.Duration
}

func (e silentError) Error() string {
	return fmt.Sprintf("PostgreSQL at %s has answered nothing for %v, and no new connection either", e.server,
		e.waited.Round(time.Second))
}

// Timeout is false: the connection is of no more use.
func (silentError) Timeout() bool   { return false }
func (silentError) Temporary() bool { return true }

// pulse finds out whether a server answers. Its connections share it.
type pulse struct {
	cfg    *pgx.ConnConfig // without a watch
	server string
	say    func(text string)
	// silence and probing are those in force when the database was opened.
	silence, probing time.Duration

	mu    sync.Mutex
	asked time.Time // when the last probe ended
	still bool      // it was not answered
}

// watch puts the connections of a configuration under a pulse.
func watch(cfg *pgx.ConnConfig, say func(text string)) {
	if say == nil {
		say = func(string) {}
	}
	p := &pulse{
		cfg: cfg.Copy(), server: net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port)), say: say, silence: silence,
		probing: probing,
	}
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if p.known() {
			return nil, silentError{p.server, p.silence}
		}
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &watched{Conn: c, pulse: p}, nil
	}
}

// known reports whether the server was found standing still just now.
func (p *pulse) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.still && time.Since(p.asked) < p.silence
}

// beats asks the server over a connection of its own, once for all connections that doubt it.
func (p *pulse) beats() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) < p.silence {
		return !p.still
	}
	late := time.AfterFunc(p.probing/10, func() {
		p.say(fmt.Sprintf("waiting for PostgreSQL at %s, which answers nothing: given up in %v", p.server,
			p.probing-p.probing/10))
	})
	defer late.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), p.probing)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, p.cfg.Copy())
	if err == nil {
		_ = c.Close(ctx) // it has answered
	}
	var refused *pgconn.PgError // an answer, too
	p.asked, p.still = time.Now(), err != nil && !errors.As(err, &refused)
	return !p.still
}

// watched is a connection whose reads end when the server stands still.
type watched struct {
	net.Conn
	pulse *pulse

	mu    sync.Mutex
	reads uint64    // begun and ended: odd while one waits
	since time.Time // when it began
	given error     // why it was given up
	told  bool
}

// Read ends with a silentError once the server is found standing still.
func (w *watched) Read(b []byte) (int, error) {
	w.mu.Lock()
	w.reads++
	this := w.reads
	w.since = time.Now()
	timer := time.AfterFunc(w.pulse.silence, func() { w.doubt(this, w.pulse.silence) })
	w.mu.Unlock()
	n, err := w.Conn.Read(b)
	timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if err != nil && w.given != nil {
		err = w.given
	}
	return n, err
}

// doubt looks whether the server answers others while a read waits, and gives the
// connection up where it does not.
func (w *watched) doubt(read uint64, waited time.Duration) {
	beats := w.pulse.beats()
	w.mu.Lock()
	defer w.mu.Unlock()
	since := time.Since(w.since)
	switch {
	case w.reads != read: // it was answered meanwhile
	case !beats:
		w.given = silentError{w.pulse.server, since}
		_ = w.Close() // the read returns the cause
	default:
		if since > longQuestion && !w.told {
			w.told = true
			w.pulse.say(fmt.Sprintf("PostgreSQL at %s has worked on one question for %v", w.pulse.server,
				since.Round(time.Second)))
		}
		next := min(2*waited, longestSilence)
		time.AfterFunc(next, func() { w.doubt(read, next) })
	}
}
