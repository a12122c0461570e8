package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Analysis is something worked out from tasks or files that is used again: a
// sensor's profile, a fitted model. It is never changed; making it again adds a
// version.
type Analysis struct {
	Kind    string // what it is; docs/format.md lists the kinds
	Name    string // what it is of, or what its maker called it
	Version int    // from 1 within kind and name; set by PutAnalysis
	Made    time.Time
	Maker   string // program and version
	Content json.RawMessage
	Tasks   []TaskID // that it rests on; they may be gone
}

// PutAnalysis records an analysis as the newest version of its kind and name,
// and returns which that is.
func (d *DB) PutAnalysis(ctx context.Context, a Analysis) (version int, err error) {
	op := fmt.Sprintf("store the %s %q", a.Kind, a.Name)
	switch {
	case a.Kind == "" || a.Name == "":
		return 0, fmt.Errorf("%s: it has no kind or no name", op)
	case !json.Valid(a.Content):
		return 0, fmt.Errorf("%s: its content is not JSON", op)
	}
	err = d.write(ctx, op, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(version),0)+1 FROM analysis WHERE kind=? AND name=?`, a.Kind, a.Name).Scan(&version); err != nil {
			return err
		}
		var id int64
		if err := tx.QueryRowContext(ctx, `INSERT INTO analysis(kind, name, version, made_ns, maker, content) VALUES(?,?,?,?,?,?) RETURNING analysis_id`,
			a.Kind, a.Name, version, a.Made.UnixNano(), a.Maker, string(a.Content)).Scan(&id); err != nil {
			return err
		}
		for _, t := range a.Tasks {
			if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO analysis_task VALUES(?,?)`, id, int64(t)); err != nil {
				return err
			}
		}
		return nil
	})
	return version, err
}

// Analyses returns what is recorded of a kind, or of all kinds where it is
// empty, by name and version.
func (d *DB) Analyses(ctx context.Context, kind string) ([]Analysis, error) {
	return d.analyses(ctx, fmt.Sprintf("list the analyses %q", kind), `WHERE ?='' OR kind=?`, kind, kind)
}

// Analysis returns one version of an analysis, the newest where version is 0.
// Errors wrap ErrNotFound.
func (d *DB) Analysis(ctx context.Context, kind, name string, version int) (*Analysis, error) {
	op := fmt.Sprintf("read the %s %q", kind, name)
	list, err := d.analyses(ctx, op, `WHERE kind=? AND name=? AND (version=? OR ?=0)`, kind, name, version, version)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: %w", op, ErrNotFound)
	}
	return &list[len(list)-1], nil
}

// DeleteAnalysis removes one version of an analysis, all of them where version
// is 0, and returns how many. Errors wrap ErrNotFound.
func (d *DB) DeleteAnalysis(ctx context.Context, kind, name string, version int) (n int64, err error) {
	op := fmt.Sprintf("delete the %s %q", kind, name)
	err = d.write(ctx, op, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `DELETE FROM analysis WHERE kind=? AND name=? AND (version=? OR ?=0)`, kind, name, version, version)
		if err != nil {
			return err
		}
		if n, err = r.RowsAffected(); err == nil && n == 0 {
			err = ErrNotFound
		}
		return err
	})
	return n, err
}

func (d *DB) analyses(ctx context.Context, op, where string, args ...any) ([]Analysis, error) {
	tx, err := d.reader.BeginTx(ctx, nil)
	if err != nil {
		return nil, wrap(op, err)
	}
	defer tx.Rollback() // it only read
	var ids []int64
	list, err := collect(ctx, tx, func(rows *sql.Rows, a *Analysis) error {
		var id, made int64
		var content string
		if err := rows.Scan(&id, textTo(&a.Kind), textTo(&a.Name), &a.Version, &made, textTo(&a.Maker), textTo(&content)); err != nil {
			return err
		}
		a.Made, a.Content = time.Unix(0, made), json.RawMessage(content)
		if !json.Valid(a.Content) {
			return fmt.Errorf("%w: version %d is not JSON", ErrCorrupt, a.Version)
		}
		ids = append(ids, id)
		return nil
	}, `SELECT analysis_id, kind, name, version, made_ns, maker, content FROM analysis `+where+` ORDER BY kind, name, version`, args...)
	if err != nil {
		return nil, wrap(op, err)
	}
	for i := range list {
		list[i].Tasks, err = collect(ctx, tx, func(rows *sql.Rows, t *TaskID) error { return rows.Scan(t) },
			`SELECT task_id FROM analysis_task WHERE analysis_id=? ORDER BY task_id`, ids[i])
		if err != nil {
			return nil, wrap(op, err)
		}
	}
	return list, nil
}
