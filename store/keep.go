package store

import (
	"context"
	"database/sql/driver"
)

// keptStatements bounds how many statements a connection keeps: all that lists and
// tasks are asked with, and room for the questions of one program.
const keptStatements = 64

// keeper keeps the statements of a connection prepared, as a server's driver does:
// of a page of tasks, preparing its question took a fifth of the time. It belongs
// to one goroutine at a time, as the connection does.
type keeper struct {
	conn fullConn
	kept map[string]*keptStatement
}

type keptStatement struct {
	stmt  driver.Stmt
	inUse bool
}

func newKeeper(conn fullConn) *keeper {
	return &keeper{conn: conn, kept: map[string]*keptStatement{}}
}

// query runs a query, with the statement of the same text as before where that is
// free.
func (k *keeper) query(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s := k.kept[text]
	if s == nil {
		stmt, err := k.conn.PrepareContext(ctx, text)
		if err != nil {
			return nil, err
		}
		s = &keptStatement{stmt: stmt}
		k.makeRoom()
		k.kept[text] = s
	}
	q, can := s.stmt.(driver.StmtQueryContext)
	if s.inUse || !can {
		return k.conn.QueryContext(ctx, text, args)
	}
	rows, err := q.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	s.inUse = true
	return &keptRows{Rows: rows, of: s}, nil
}

// makeRoom lets go of some statement, where there are many.
func (k *keeper) makeRoom() {
	for text, s := range k.kept {
		if len(k.kept) < keptStatements {
			return
		}
		if !s.inUse {
			_ = s.stmt.Close() // it is at rest, and only its memory is given back
			delete(k.kept, text)
		}
	}
}

func (k *keeper) close() {
	for _, s := range k.kept {
		_ = s.stmt.Close() // as above
	}
	clear(k.kept)
}

// keptRows frees their statement when they are closed.
type keptRows struct {
	driver.Rows
	of *keptStatement
}

func (r *keptRows) Close() error {
	r.of.inUse = false
	return r.Rows.Close()
}
