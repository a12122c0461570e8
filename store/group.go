package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"wattmark/measure"
)

// GroupID identifies a measurement of several GPUs.
type GroupID int64

// GroupRef says which member of which group a task is; the zero value is none.
type GroupRef struct {
	Group  GroupID
	Member int // counts from 0
}

// NewGroup is what is known when a measurement of several GPUs begins.
type NewGroup struct {
	Name, User string
	Launched   time.Time
	Members    []GroupMember
}

// GroupMember is one GPU of a group.
type GroupMember struct {
	GPU, GPUUUID string
	// Monitor is the address of the one that measures the GPU; empty where none does.
	Monitor string
	// Task is the member's task; 0 where there is none, and then Reason says why,
	// as far as the host came to know it.
	Task   TaskID
	Reason string
}

// Group ties the tasks of a measurement of several GPUs.
type Group struct {
	ID GroupID
	NewGroup
}

// BeginGroup records a measurement of several GPUs; their tasks name it when
// they begin. Name and user must not be empty, and printable.
func (d *DB) BeginGroup(ctx context.Context, g NewGroup) (GroupID, error) {
	err := errors.Join(measure.CheckText("name", g.Name), measure.CheckText("user", g.User))
	if err == nil && (g.Name == "" || g.User == "" || len(g.Members) == 0) {
		err = fmt.Errorf("it needs a name, a user and GPUs (name %q, user %q, %d GPUs)", g.Name, g.User, len(g.Members))
	}
	if err != nil {
		return 0, fmt.Errorf("begin group: %w", err)
	}
	var id int64
	err = d.write(ctx, "begin group "+g.Name, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `INSERT INTO task_group(name, user, launched_ns) VALUES(?,?,?) RETURNING group_id`,
			g.Name, g.User, nanos(g.Launched)).Scan(&id); err != nil {
			return err
		}
		for i, m := range g.Members {
			if _, err := tx.ExecContext(ctx, `INSERT INTO group_member VALUES(?,?,?,?,?,NULL,?)`,
				id, i, m.GPU, m.GPUUUID, m.Monitor, m.Reason); err != nil {
				return fmt.Errorf("member %d: %w", i, err)
			}
		}
		return nil
	})
	return GroupID(id), err
}

// joinGroup makes a new task a member of its group.
func joinGroup(ctx context.Context, tx *sql.Tx, id int64, r GroupRef) error {
	if r.Group == 0 {
		return nil
	}
	err := mustExist(tx.ExecContext(ctx, `UPDATE group_member SET task_id=?, reason='' WHERE group_id=? AND ordinal=? AND task_id IS NULL`,
		id, int64(r.Group), r.Member))
	if err != nil {
		return fmt.Errorf("GPU %d of group %d: %w", r.Member, r.Group, err)
	}
	return nil
}

// FailMember keeps why a member has no task. One that has a task is left as it is.
func (d *DB) FailMember(ctx context.Context, r GroupRef, reason string) error {
	return d.write(ctx, fmt.Sprintf("note what GPU %d of group %d lacks", r.Member, r.Group), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE group_member SET reason=? WHERE group_id=? AND ordinal=? AND task_id IS NULL`,
			measure.Printable(reason), int64(r.Group), r.Member)
		return err
	})
}

// DropGroup deletes a group that has no task; one that has keeps what it is.
func (d *DB) DropGroup(ctx context.Context, id GroupID) error {
	return d.write(ctx, fmt.Sprintf("drop group %d", id), func(tx *sql.Tx) error {
		return dropEmpty(ctx, tx, []GroupID{id})
	})
}

// Group returns one group with its members in their order. Errors wrap
// ErrNotFound.
func (d *DB) Group(ctx context.Context, id GroupID) (Group, error) {
	op := fmt.Sprintf("read group %d", id)
	tx, err := d.reader.BeginTx(ctx, nil)
	if err != nil {
		return Group{}, wrap(op, err)
	}
	defer tx.Rollback() // it only read
	groups, err := collect(ctx, tx, func(rows *sql.Rows, g *Group) error {
		var launched sql.NullInt64
		err := rows.Scan(&g.ID, textTo(&g.Name), textTo(&g.User), &launched)
		g.Launched = fromNanos(launched)
		return err
	}, `SELECT group_id, name, user, launched_ns FROM task_group WHERE group_id=?`, int64(id))
	if err != nil {
		return Group{}, wrap(op, err)
	}
	if len(groups) == 0 {
		return Group{}, fmt.Errorf("%s: %w", op, ErrNotFound)
	}
	g := groups[0]
	g.Members, err = collect(ctx, tx, func(rows *sql.Rows, m *GroupMember) error {
		return rows.Scan(textTo(&m.GPU), textTo(&m.GPUUUID), textTo(&m.Monitor), &m.Task, textTo(&m.Reason))
	}, `SELECT gpu, gpu_uuid, monitor, coalesce((SELECT t.task_id FROM task t WHERE t.task_id=m.task_id AND `+published+`),0), reason FROM group_member m WHERE group_id=? ORDER BY ordinal`, int64(id))
	return g, wrap(op, err)
}

// leaveGroups prepares the deletion of the tasks that a condition selects: their
// groups remember what was there, and are returned.
func leaveGroups(ctx context.Context, tx *sql.Tx, where string, args []any) (groups []GroupID, err error) {
	selected := `task_id IN (SELECT task_id FROM task WHERE ` + where + `)`
	groups, err = collect(ctx, tx, func(rows *sql.Rows, id *GroupID) error { return rows.Scan(id) },
		`SELECT DISTINCT group_id FROM group_member WHERE `+selected, args...)
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE group_member SET reason='task ' || task_id || ' was deleted' WHERE `+selected, args...) // #nosec G202 -- selected is a condition of this package
	return groups, err
}

// dropEmpty deletes those of the groups that have no task left.
func dropEmpty(ctx context.Context, tx *sql.Tx, groups []GroupID) error {
	for _, id := range groups {
		if _, err := tx.ExecContext(ctx, `DELETE FROM task_group WHERE group_id=?1
			AND NOT EXISTS (SELECT 1 FROM group_member WHERE group_id=?1 AND task_id IS NOT NULL)`, int64(id)); err != nil {
			return err
		}
	}
	return nil
}
