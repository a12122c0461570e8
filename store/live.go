package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// newestTasks is among how many of the newest tasks a capture's task is looked for:
// captures that a monitor holds are of today.
const newestTasks = 1000

// TaskOfCapture returns the task that a monitor's capture is for, of the newest
// tasks; 0 where none is.
func (d *DB) TaskOfCapture(ctx context.Context, captureID string) (TaskID, error) {
	if captureID == "" {
		return 0, nil
	}
	var id TaskID
	err := d.reader.QueryRowContext(ctx, `SELECT task_id FROM (SELECT task_id, capture_id FROM task t WHERE `+published+` ORDER BY task_id DESC LIMIT ?) t
		WHERE capture_id=? ORDER BY task_id DESC LIMIT 1`, newestTasks, captureID).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return id, wrap(fmt.Sprintf("find the task of capture %s", captureID), err)
}
