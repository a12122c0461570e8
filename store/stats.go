package store

import (
	"context"
	"os"
)

// Stats is how large a database is.
type Stats struct {
	Bytes, LogBytes int64 // of the file, and of its write-ahead log
	Tasks, Running  uint64
	Users           uint64
}

// Stats counts what is in the database, from indexes alone.
func (d *DB) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	err := d.reader.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM task)-(SELECT count(*) FROM task WHERE `+partialTasks+`), (SELECT count(*) FROM task WHERE state=1), (SELECT count(*) FROM user)`).
		Scan(&s.Tasks, &s.Running, &s.Users)
	if err != nil {
		return s, wrap("count tasks", err)
	}
	for _, f := range []struct {
		path string
		size *int64
	}{{d.path, &s.Bytes}, {d.path + "-wal", &s.LogBytes}} {
		if st, err := os.Stat(f.path); err == nil { // no log is no error
			*f.size = st.Size()
		}
	}
	return s, nil
}
