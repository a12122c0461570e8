package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// DeleteOptions say what a deletion may take.
type DeleteOptions struct {
	// Pinned tasks go too; without it they stay.
	Pinned bool
}

// Deleted is what a deletion did.
type Deleted struct {
	Tasks  uint64   // that are gone
	Pinned []TaskID // that stay
}

// DeleteTask deletes one task with all that belongs to it. The file keeps its
// size; the room is used for what comes next. Errors wrap ErrPinned or ErrNotFound.
func (d *DB) DeleteTask(ctx context.Context, id TaskID) error {
	return d.DeleteTasks(ctx, []TaskID{id}, DeleteOptions{})
}

// DeleteTasks deletes all of the tasks in one transaction, or none of them: one that is
// not there is ErrNotFound, one that is pinned ErrPinned, and the error names them.
func (d *DB) DeleteTasks(ctx context.Context, ids []TaskID, o DeleteOptions) error {
	op := "delete " + taskList(ids)
	text, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	const listed = `task_id IN (SELECT value FROM json_each(?))`
	return d.write(ctx, op, func(tx *sql.Tx) error {
		there, pinned, err := chosen(ctx, tx, listed, string(text))
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(ids), func(id TaskID) bool { return slices.Contains(there, id) })
		switch {
		case len(missing) > 0 && len(ids) > 1:
			return fmt.Errorf("%s: %w, and nothing was deleted", taskList(missing), ErrNotFound)
		case len(missing) > 0:
			return ErrNotFound
		case len(pinned) > 0 && !o.Pinned && len(ids) > 1:
			return fmt.Errorf("%s: %w, and nothing was deleted", taskList(pinned), ErrPinned)
		case len(pinned) > 0 && !o.Pinned:
			return ErrPinned
		}
		_, err = remove(ctx, tx, listed, string(text))
		return err
	})
}

// taskList is tasks by number in words.
func taskList(ids []TaskID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = fmt.Sprint(id)
	}
	if len(ids) == 1 {
		return "task " + words[0]
	}
	return "tasks " + strings.Join(words, ", ")
}

// DeleteByName deletes all tasks of exactly this name, but for pinned ones.
func (d *DB) DeleteByName(ctx context.Context, name string, o DeleteOptions) (Deleted, error) {
	return d.deleteAll(ctx, "delete tasks named "+name, "state<>6 AND name=?", name, o)
}

// DeleteByUser deletes all tasks of this user, but for pinned ones.
func (d *DB) DeleteByUser(ctx context.Context, user string, o DeleteOptions) (Deleted, error) {
	return d.deleteAll(ctx, "delete tasks of "+user, "state<>6 AND user_id=(SELECT user_id FROM user WHERE login=?)", user, o)
}

// deleteAll deletes the tasks that the condition selects, but for pinned ones, all in one
// transaction.
func (d *DB) deleteAll(ctx context.Context, op, where string, arg any, o DeleteOptions) (out Deleted, err error) {
	err = d.write(ctx, op, func(tx *sql.Tx) error {
		out = Deleted{}
		var err error
		if _, out.Pinned, err = chosen(ctx, tx, where, arg); err != nil {
			return err
		}
		if o.Pinned {
			out.Pinned = nil
			out.Tasks, err = remove(ctx, tx, where, arg)
			return err
		}
		out.Tasks, err = remove(ctx, tx, where+" AND pinned=0", arg)
		return err
	})
	return out, err
}

// chosen returns the tasks that the condition selects, and those of them that are pinned.
func chosen(ctx context.Context, tx *sql.Tx, where string, args ...any) (all, pinned []TaskID, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT task_id, pinned FROM task WHERE "+where+" ORDER BY task_id", args...) // #nosec G202 -- where is a condition of this package
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id TaskID
		var pin bool
		if err := rows.Scan(&id, &pin); err != nil {
			return nil, nil, err
		}
		if all = append(all, id); pin {
			pinned = append(pinned, id)
		}
	}
	return all, pinned, rows.Err()
}

// remove deletes the tasks that the condition selects, and the users who have none left.
// Calibrations stay: they are records of the bench.
func remove(ctx context.Context, tx *sql.Tx, where string, args ...any) (uint64, error) {
	groups, err := leaveGroups(ctx, tx, where, args)
	if err != nil {
		return 0, err
	}
	r, err := tx.ExecContext(ctx, "DELETE FROM task WHERE "+where, args...) // #nosec G202 -- as above
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	if err != nil || n == 0 {
		return 0, err
	}
	if err := dropEmpty(ctx, tx, groups); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM user WHERE NOT EXISTS (SELECT 1 FROM task WHERE task.user_id=user.user_id)`)
	return uint64(n), err
}
