package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// calibration returns the number over there of a calibration here, copying it where
// it is not there yet; nil for none. Calibrations are known by their digest.
func (c *copier) calibration(ctx context.Context, tx *sql.Tx, here any) (any, error) {
	if here == nil {
		return nil, nil
	}
	row, err := copiedOne(ctx, c.from.reader, "calibration", "calibration_id=?", here)
	if err != nil {
		return nil, fmt.Errorf("calibration %v: %w", here, err)
	}
	var there int64
	err = tx.QueryRowContext(ctx, `SELECT calibration_id FROM calibration WHERE digest=?`, row["digest"]).Scan(&there)
	if !errors.Is(err, sql.ErrNoRows) {
		return there, err
	}
	delete(row, "calibration_id")
	if there, err = row.insert(ctx, tx, "calibration", "calibration_id"); err != nil {
		return nil, err
	}
	for _, name := range []string{"channel", "rail", "calibration_record"} {
		cols, err := columnsOf(ctx, c.from.reader, name)
		if err != nil {
			return nil, err
		}
		t := copiedTable{name, cols}
		err = eachCopied(ctx, c.from.reader, t, "calibration_id=?", func(v []any) error {
			v[slices.Index(cols, "calibration_id")] = there
			_, err := tx.ExecContext(ctx, copiedInsert(name, cols), v...)
			return err
		}, here)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
	}
	return there, nil
}

// group makes the copy a member of the group that the task is a member of. A group
// is known by its name, user and launch.
func (c *copier) group(ctx context.Context, tx *sql.Tx) error {
	member, err := copiedOne(ctx, c.from.reader, "group_member", "task_id=?", c.id)
	if errors.Is(err, ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	g, err := copiedOne(ctx, c.from.reader, "task_group", "group_id=?", member["group_id"])
	if err != nil {
		return err
	}
	var there int64
	err = tx.QueryRowContext(ctx, `SELECT group_id FROM task_group WHERE name=? AND user=? AND launched_ns IS NOT DISTINCT FROM ? ORDER BY group_id LIMIT 1`,
		g["name"], g["user"], g["launched_ns"]).Scan(&there)
	if errors.Is(err, sql.ErrNoRows) {
		there, err = c.newGroup(ctx, tx, g)
	}
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE group_member SET task_id=?, reason='' WHERE group_id=? AND ordinal=? AND task_id IS NULL`,
		c.new, there, member["ordinal"])
	return err
}

func (c *copier) newGroup(ctx context.Context, tx *sql.Tx, g copiedRow) (int64, error) {
	here := g["group_id"]
	delete(g, "group_id")
	there, err := g.insert(ctx, tx, "task_group", "group_id")
	if err != nil {
		return 0, err
	}
	t := copiedTable{"group_member", []string{"group_id", "ordinal", "gpu", "gpu_uuid", "monitor", "reason"}}
	return there, eachCopied(ctx, c.from.reader, t, "group_id=?", func(v []any) error {
		if v[0] = there; v[5] == "" {
			v[5] = "its task was not copied"
		}
		_, err := tx.ExecContext(ctx, copiedInsert(t.name, t.columns), v...)
		return err
	}, here)
}

// CopyAnalyses copies what was worked out, as newest versions; one of the same
// content and moment is known. tasks are the copies' numbers by the originals'. It
// returns how many were copied.
func (d *DB) CopyAnalyses(ctx context.Context, to *DB, tasks map[TaskID]TaskID) (n int, err error) {
	list, err := d.Analyses(ctx, "")
	if err != nil {
		return 0, err
	}
	there, err := to.Analyses(ctx, "")
	if err != nil {
		return 0, err
	}
	for _, a := range list {
		known := slices.ContainsFunc(there, func(b Analysis) bool {
			return a.Kind == b.Kind && a.Name == b.Name && a.Made.Equal(b.Made) && a.Maker == b.Maker && string(a.Content) == string(b.Content)
		})
		if known {
			continue
		}
		var ids []TaskID
		for _, id := range a.Tasks {
			if to, copied := tasks[id]; copied {
				ids = append(ids, to)
			}
		}
		a.Tasks = ids
		if _, err := to.PutAnalysis(ctx, a); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// CopyCampaigns copies the measurements of instructions; one of the same GPU and
// moment is known. It returns how many were copied.
func (d *DB) CopyCampaigns(ctx context.Context, to *DB) (n int, err error) {
	list, err := d.InstructionCampaigns(ctx)
	if err != nil {
		return 0, err
	}
	slices.Reverse(list) // oldest first
	for _, c := range list {
		runs, err := d.Instructions(ctx, c.ID)
		if err != nil {
			return n, err
		}
		_, err = to.ImportInstructions(ctx, c, runs)
		if errors.Is(err, ErrConflict) {
			continue
		} else if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// copiedTables are the tables of tasks that both databases have: those with a
// column task_id, but for members of groups and of analyses. Rows that a table of
// the source has and the target cannot take are an error of CopyTask.
func copiedTables(ctx context.Context, from, to *DB) (out []copiedTable, err error) {
	names, err := from.tableNames(ctx)
	if err != nil {
		return nil, err
	}
	theirs, err := to.tableNames(ctx)
	if err != nil {
		return nil, err
	}
	first := []string{"result", "chunk", "marker", "tiny"}
	for _, name := range append(first, names...) {
		if slices.Contains([]string{"task", "group_member", "analysis_task"}, name) || slices.ContainsFunc(out, func(t copiedTable) bool { return t.name == name }) {
			continue
		}
		cols, err := columnsOf(ctx, from.reader, name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(cols, "task_id") {
			continue
		}
		if !slices.Contains(theirs, name) {
			return nil, fmt.Errorf("the other database has no table %s: update the program that made it", name)
		}
		// A number that only counts within its database.
		cols = slices.DeleteFunc(cols, func(c string) bool { return c == name+"_id" })
		out = append(out, copiedTable{name, cols})
	}
	return out, nil
}

// tableNames lists the tables.
func (d *DB) tableNames(ctx context.Context) ([]string, error) {
	q := `SELECT name FROM sqlite_master WHERE type='table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name`
	if d.server != nil {
		q = `SELECT table_name::text FROM information_schema.tables WHERE table_schema=current_schema() AND table_type='BASE TABLE' ORDER BY 1`
	}
	return collect(ctx, d.reader, func(rows *sql.Rows, s *string) error { return rows.Scan(s) }, q)
}

// columnsOf lists a table's columns.
func columnsOf(ctx context.Context, q querier, table string) ([]string, error) {
	rows, err := q.QueryContext(ctx, `SELECT * FROM `+quotedName(table)+` WHERE 1=0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return rows.Columns()
}

func copiedInsert(table string, cols []string) string {
	return `INSERT INTO ` + quotedName(table) + `(` + quoted(cols) + `) VALUES(?` + strings.Repeat(",?", len(cols)-1) + `)`
}

// insert puts a row into a table and returns the number that it gets.
func (r copiedRow) insert(ctx context.Context, tx *sql.Tx, table, key string) (id int64, err error) {
	cols := slices.Sorted(maps.Keys(r))
	vals := make([]any, len(cols))
	for i, c := range cols {
		vals[i] = r[c]
	}
	if err := tx.QueryRowContext(ctx, copiedInsert(table, cols)+` RETURNING `+key, vals...).Scan(&id); err != nil {
		return 0, fmt.Errorf("table %s: %w", table, err)
	}
	return id, nil
}

// eachCopied hands out rows of a table, each lent until the next.
func eachCopied(ctx context.Context, q querier, t copiedTable, where string, f func([]any) error, args ...any) error {
	rows, err := q.QueryContext(ctx, `SELECT `+quoted(t.columns)+` FROM `+quotedName(t.name)+` WHERE `+where, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	vals, ptrs := make([]any, len(t.columns)), make([]any, len(t.columns))
	for i := range vals {
		ptrs[i] = &vals[i]
	}
	for rows.Next() {
		if err := rows.Scan(ptrs...); err != nil {
			return err
		}
		if err := f(vals); err != nil {
			return err
		}
	}
	return rows.Err()
}

// copiedOne reads one row; ErrNotFound where there is none.
func copiedOne(ctx context.Context, q querier, table, where string, arg any) (copiedRow, error) {
	cols, err := columnsOf(ctx, q, table)
	if err != nil {
		return nil, err
	}
	var out copiedRow
	err = eachCopied(ctx, q, copiedTable{table, cols}, where, func(v []any) error {
		out = copiedRow{}
		for i, c := range cols {
			out[c] = v[i]
		}
		return nil
	}, arg)
	if err == nil && out == nil {
		err = ErrNotFound
	}
	return out, err
}
