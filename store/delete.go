package store

import (
	"context"
	"database/sql"
	"fmt"
)

// DeleteTask deletes one task with all that belongs to it. The file keeps its
// size; the room is used for what comes next.
func (d *DB) DeleteTask(ctx context.Context, id TaskID) error {
	n, err := d.deleteTasks(ctx, fmt.Sprintf("delete task %d", id), "task_id=?", int64(id))
	if err == nil && n == 0 {
		return fmt.Errorf("delete task %d: %w", id, ErrNotFound)
	}
	return err
}

// DeleteByName deletes all tasks of exactly this name and returns how many.
func (d *DB) DeleteByName(ctx context.Context, name string) (uint64, error) {
	return d.deleteTasks(ctx, "delete tasks named "+name, "name=?", name)
}

// DeleteByUser deletes all tasks of this user and returns how many.
func (d *DB) DeleteByUser(ctx context.Context, user string) (uint64, error) {
	return d.deleteTasks(ctx, "delete tasks of "+user, "user_id=(SELECT user_id FROM user WHERE login=?)", user)
}

// deleteTasks deletes the tasks that the condition selects, all in one
// transaction, and the users who have none left. Calibrations stay: they are
// records of the bench.
func (d *DB) deleteTasks(ctx context.Context, op, where string, arg any) (uint64, error) {
	var n int64
	err := d.write(ctx, op, func(tx *sql.Tx) error {
		groups, err := leaveGroups(ctx, tx, where, arg)
		if err != nil {
			return err
		}
		r, err := tx.ExecContext(ctx, "DELETE FROM task WHERE "+where, arg) // #nosec G202 -- where is a condition of this package
		if err != nil {
			return err
		}
		if n, err = r.RowsAffected(); err != nil || n == 0 {
			return err
		}
		if err := dropEmpty(ctx, tx, groups); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM user WHERE NOT EXISTS (SELECT 1 FROM task WHERE task.user_id=user.user_id)`)
		return err
	})
	return uint64(n), err
}
