package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"wattmark/store"
	"wattmark/store/postgres/internal/dialect"
)

// current refuses a schema that lacks steps.
func current(ctx context.Context, c *pgx.Conn) error {
	n, err := version(ctx, c)
	if err == nil && n < len(migrations) {
		err = fmt.Errorf("%w: schema %d, this program's is %d: open it once for writing", store.ErrOlder, n, len(migrations))
	}
	return err
}

// meaning is what an SQLSTATE, or a class of them, stands for.
type meaning struct {
	sentinel error
	hint     string
}

var (
	away   = meaning{store.ErrUnreachable, "see that the server runs and the address is right, and ask again: nothing that was acknowledged is lost"}
	denied = meaning{store.ErrCannotOpen, "check the address's user, password and database, and the server's pg_hba.conf"}
	full   = meaning{store.ErrFull, "free some space on the server and ask again: nothing that was acknowledged is lost"}
	busy   = meaning{store.ErrBusy, "ask again when the other programs are done"}
	barred = meaning{store.ErrReadOnly, "ask the server's keeper for the right to write, or name the primary and not a standby"}
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

// Explain returns what an error stands for.
func (Server) Explain(err error) (hint string, sentinel error) {
	m := meaningOf(err)
	return m.hint, m.sentinel
}

func meaningOf(err error) meaning {
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	var parse *pgconn.ParseConfigError
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return meaning{}
	case errors.Is(err, dialect.ErrFileOnly):
		return file
	case errors.As(err, &server):
		return meanings[server.Code]
	case errors.As(err, &parse):
		return meaning{store.ErrCannotOpen, "an address is postgres://user@host:5432/database"}
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, driver.ErrBadConn), errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, pgconn.ErrConnClosed):
		return away
	}
	return meaning{}
}

// Again reports whether a transaction may go better when it is run again: others
// were in its way, or the server was away. A unique key that was taken meanwhile
// is one of the former: the next run sees it.
func (Server) Again(err error) bool {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		case "40001", "40P01", "23505", "23503", "57P01", "57P02", "57P03":
			return true
		}
		return false
	}
	return errors.Is(meaningOf(err).sentinel, store.ErrUnreachable)
}
