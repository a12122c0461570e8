package store

import (
	"context"
	"database/sql"
	"hash/fnv"
	"maps"
	"slices"
)

// Mark is what a task is known by in Marks: it changes with its state, its result,
// the reason and its labels.
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
	const fields = "SELECT task_id, state, coalesce(result,0), has_result, coalesce(energy_j,0), coalesce(from_s,0), coalesce(to_s,0), reason, started_ns IS NULL, pinned FROM task t WHERE " + published + " AND "
	scan := func(rows *sql.Rows, m *Mark) error {
		var state State
		h := fnv.New64a()
		var v [9]sql.RawBytes
		if err := rows.Scan(&m.ID, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8]); err != nil {
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
		m, err := collect(ctx, d.reader, scan, fields+"task_id=?", int64(id))
		if err != nil {
			return nil, wrap("watch the database", err)
		}
		out = append(out, m...)
	}
	m, err := collect(ctx, d.reader, scan, fields+"task_id>=? ORDER BY task_id", int64(from))
	if err != nil {
		return nil, wrap("watch the database", err)
	}
	out = append(out, m...)
	return out, wrap("watch the database", d.markLabels(ctx, out))
}

// markLabels adds the tasks' tags and notes to their marks. Tasks with neither keep
// theirs.
func (d *DB) markLabels(ctx context.Context, marks []Mark) error {
	if len(marks) == 0 {
		return nil
	}
	at := make(map[TaskID]int, len(marks))
	for i, m := range marks {
		at[m.ID] = i
	}
	first := slices.Min(slices.Collect(maps.Keys(at)))
	for _, query := range []string{
		`SELECT task_id, key, value FROM task_tag WHERE task_id>=?`, `SELECT task_id, number, text FROM task_note WHERE task_id>=?`,
	} {
		rows, err := d.reader.QueryContext(ctx, query, int64(first))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id TaskID
			var v [2]sql.RawBytes
			if err := rows.Scan(&id, &v[0], &v[1]); err != nil {
				return err
			}
			if i, asked := at[id]; asked {
				h := fnv.New64a()
				for _, b := range v {
					_, _ = h.Write(b)
					_, _ = h.Write([]byte{0})
				}
				marks[i].Sum += h.Sum64() // in whatever order they come
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}
