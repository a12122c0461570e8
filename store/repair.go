package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"wattmark/measure"
)

// Repaired is what Repair did.
type Repaired struct {
	Mended []Finding
	// Left are the findings that it could not mend; their Remedy says why.
	Left []Finding
	// Cut are the tasks whose results are to be computed anew, from the samples that are
	// there now: those that lost samples, and those whose results are not of them.
	Cut []TaskID
}

// Repair mends what Check found, as far as it can be made from what is sound. A
// chunk that is damaged goes to the table damage as it is, the loss becomes an
// event, and the task incomplete. A task is mended in one transaction. Tasks that
// still run are left alone.
func (d *DB) Repair(ctx context.Context, findings []Finding) (*Repaired, error) {
	var out Repaired
	if slices.ContainsFunc(findings, torn) {
		out.Left = findings
		return &out, nil // writing could destroy what can still be salvaged
	}
	byTask := map[TaskID][]Finding{}
	for _, f := range findings {
		switch {
		case !f.Mendable:
			out.Left = append(out.Left, f)
		case f.Task != 0 && f.Kind != Dangling && f.Kind != Unfinished && f.Kind != BadCalibration:
			byTask[f.Task] = append(byTask[f.Task], f)
		default:
			if err := d.repairFile(ctx, f); err != nil {
				return &out, wrap(fmt.Sprintf("repair (%s)", f.What), err)
			}
			out.Mended = append(out.Mended, f)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byTask)) {
		if err := d.repairTask(ctx, id, byTask[id], &out); err != nil {
			return &out, wrap(fmt.Sprintf("repair task %d", id), err)
		}
	}
	return &out, nil
}

// repairFile mends what belongs to no task.
func (d *DB) repairFile(ctx context.Context, f Finding) error {
	switch f.Kind {
	case Unfinished:
		_, err := d.sweep(ctx, func(l *leftover) bool { return l.id == f.Task })
		return err
	case Dangling:
		return d.write(ctx, "set rows aside", func(tx *sql.Tx) error { return mendReference(ctx, tx, f) })
	case BadCalibration:
		return d.write(ctx, "compute what follows from a calibration", func(tx *sql.Tx) error { return calibrationAnew(ctx, tx, f.calibration) })
	case BadSearch:
		return d.write(ctx, "make the full-text index anew", func(tx *sql.Tx) error { return searchAnew(ctx, tx) })
	case BadTags:
		return d.write(ctx, "carry the tags anew", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE task AS t SET tags=`+carriedTags+` WHERE t.tags IS NOT `+carriedTags)
			return err
		})
	case BadPage:
		return d.write(ctx, "make the indexes anew", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "REINDEX")
			return err
		})
	case BadSchema:
		return d.write(ctx, "make "+f.name+" anew", func(tx *sql.Tx) error { return schemaAnew(ctx, tx, f.name) })
	}
	return fmt.Errorf("it cannot be mended here: %s", f.Remedy)
}

func searchAnew(ctx context.Context, tx *sql.Tx) error {
	want, err := reference()
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `DROP TABLE task_text; `+want["task_text"].sql+`;
		INSERT INTO task_text(rowid, name, notes, tags) SELECT task_id, name,
			coalesce((SELECT group_concat(text, ' ') FROM task_note n WHERE n.task_id=t.task_id), ''),
			coalesce((SELECT group_concat(key || ' ' || value, ' ') FROM task_tag g WHERE g.task_id=t.task_id), '') FROM task t`)
	return err
}

// schemaAnew makes a view, index or trigger, or the look-up table's rows.
func schemaAnew(ctx context.Context, tx *sql.Tx, name string) error {
	if name == "_u16" {
		sum := `WITH RECURSIVE s(v) AS (SELECT 0 UNION ALL SELECT v+1 FROM s WHERE v<65535)
			INSERT INTO _u16 SELECT unhex(printf('%02x%02x', v&255, v>>8)), v FROM s`
		_, err := tx.ExecContext(ctx, "DELETE FROM _u16; "+sum)
		return err
	}
	want, err := reference()
	if err != nil {
		return err
	}
	w := want[name]
	_, err = tx.ExecContext(ctx, fmt.Sprintf("DROP %s IF EXISTS main.%s; %s", strings.ToUpper(w.kind), quotedName(name), w.sql))
	return err
}

// mendReference deals with rows that refer to nothing: what they name is made, or no
// longer named, or they go to the table damage.
func mendReference(ctx context.Context, tx *sql.Tx, f Finding) error {
	if f.refers.parent == "user" {
		_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO user(user_id, login) VALUES(?,?)`, f.to, lostUser(f.to))
		return err
	}
	table, by := quotedName(f.refers.table), quotedName(f.refers.from[0])
	where := ` WHERE ` + by + `=? AND ` + f.refers.rows()
	rows, err := rowsAsText(ctx, tx, f.refers.table, where, f.to)
	if err != nil {
		return err
	}
	if err := keepDamage(ctx, tx, nil, nil, f, map[string]any{f.refers.from[0]: f.to, f.refers.table: rows}); err != nil {
		return err
	}
	do := `DELETE FROM ` + table
	if f.refers.deletes == "SET NULL" {
		do = `UPDATE ` + table + ` SET ` + by + `=NULL`
	}
	_, err = tx.ExecContext(ctx, do+where, f.to) // #nosec G202 -- names are quoted
	return err
}

// rowsAsText reads rows with every value as an SQL literal: blobs in hexadecimal.
func rowsAsText(ctx context.Context, tx *sql.Tx, table, where string, args ...any) ([]map[string]string, error) {
	cols, err := tableColumns(ctx, tx, table)
	if err != nil {
		return nil, err
	}
	quotes := make([]string, len(cols))
	for i, c := range cols {
		quotes[i] = "quote(" + quotedName(c) + ")"
	}
	return collect(ctx, tx, func(rows *sql.Rows, m *map[string]string) error {
		vals, ptrs := make([]string, len(cols)), make([]any, len(cols))
		for i := range vals {
			ptrs[i] = &vals[i]
		}
		err := rows.Scan(ptrs...)
		*m = map[string]string{}
		for i, c := range cols {
			(*m)[c] = vals[i]
		}
		return err
	}, `SELECT `+strings.Join(quotes, ",")+` FROM `+quotedName(table)+where, args...)
}

// keepDamage writes what was damaged, as it is, into the table damage.
func keepDamage(ctx context.Context, tx *sql.Tx, task, no any, f Finding, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO damage(task_id, chunk_no, at_ns, kind, what, content) VALUES(?,?,?,?,?,?)`,
		task, no, time.Now().UnixNano(), string(f.Kind), measure.Printable(f.What), string(text))
	return err
}

// repairTask mends one task's findings.
func (d *DB) repairTask(ctx context.Context, id TaskID, findings []Finding, out *Repaired) error {
	left := func(why string) {
		for _, f := range findings {
			f.Remedy, f.Mendable = why, false
			out.Left = append(out.Left, f)
		}
	}
	cut, fold := false, false
	err := d.write(ctx, "repair", func(tx *sql.Tx) error {
		var state State
		var result sql.NullInt64
		if err := tx.QueryRowContext(ctx, `SELECT state, result FROM task WHERE task_id=?`, int64(id)).Scan(&state, &result); err != nil {
			return err
		}
		if state == Running {
			return errRuns
		}
		r := repairer{tx: tx, id: int64(id), gone: map[int64]bool{}}
		for _, f := range findings {
			if err := r.mend(ctx, f, int(result.Int64)); err != nil {
				return err
			}
		}
		cut, fold = r.sum || r.lost > 0, r.fold || r.lost > 0
		return r.conclude(ctx)
	})
	switch {
	case errors.Is(err, errRuns):
		left("it still runs: let it end, or let wattmark host end it, and repair again")
		return nil
	case errors.Is(err, ErrCorrupt):
		left(salvageRemedy)
		return nil
	case err != nil:
		return err
	}
	d.keepFolding(id, nil)
	if fold {
		if err := d.BuildPyramid(ctx, id); err != nil && !errors.Is(err, ErrNoHeader) {
			return err
		}
	}
	if cut {
		out.Cut = append(out.Cut, id)
	}
	out.Mended = append(out.Mended, findings...)
	return nil
}

var errRuns = errors.New("the task still runs")
