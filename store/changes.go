package store

import (
	"context"
	"database/sql"
	"hash/fnv"
)

// Mark is what a task is known by in Marks: it changes with its state, its result
// and the reason.
type Mark struct {
	ID      TaskID
	Running bool
	Sum     uint64
}

// Watch tells when the database changed. It is not safe for concurrent use.
type Watch struct {
	conn    *sql.Conn
	version int64
}

// NewWatch begins to watch, on a connection of its own until Close.
func (d *DB) NewWatch(ctx context.Context) (*Watch, error) {
	conn, err := d.reader.Conn(ctx)
	if err != nil {
		return nil, wrap("watch the database", err)
	}
	return &Watch{conn: conn, version: -1}, nil
}

// Changed reports whether anything was written since it was last asked, by
// whatever program; the first time it is true.
func (w *Watch) Changed(ctx context.Context) (bool, error) {
	var v int64
	// The number stands for the commits of others that this connection has seen.
	if err := w.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v); err != nil {
		return false, wrap("watch the database", err)
	}
	changed := v != w.version
	w.version = v
	return changed, nil
}

// Close gives the connection back.
func (w *Watch) Close() error { return w.conn.Close() }

// Marks returns the marks of the tasks from an id on, and of the others named,
// in order.
func (d *DB) Marks(ctx context.Context, from TaskID, others []TaskID) ([]Mark, error) {
	const fields = "SELECT task_id, state, coalesce(result,0), has_result, coalesce(energy_j,0), coalesce(from_s,0), coalesce(to_s,0), reason, started_ns IS NULL FROM task "
	scan := func(rows *sql.Rows, m *Mark) error {
		var state State
		h := fnv.New64a()
		var v [8]sql.RawBytes
		if err := rows.Scan(&m.ID, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]); err != nil {
			return err
		}
		for _, b := range v {
			_, _ = h.Write(b)
			_, _ = h.Write([]byte{0})
		}
		if len(v[0]) == 1 {
			state = State(v[0][0] - '0')
		}
		m.Running, m.Sum = state == Running, h.Sum64()
		return nil
	}
	var out []Mark
	for _, id := range others {
		if id >= from {
			continue
		}
		m, err := collect(ctx, d.reader, scan, fields+"WHERE task_id=?", int64(id))
		if err != nil {
			return nil, wrap("watch the database", err)
		}
		out = append(out, m...)
	}
	m, err := collect(ctx, d.reader, scan, fields+"WHERE task_id>=? ORDER BY task_id", int64(from))
	return append(out, m...), wrap("watch the database", err)
}
