package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Tasks returns a page of tasks, newest first, without their markers, events,
// setups, rails, budgets, notes and provenance.
func (d *DB) Tasks(ctx context.Context, q Query) ([]Task, error) {
	const op = "list tasks"
	many, err := d.manyNamed(ctx, q)
	if err != nil {
		return nil, wrap(op, err)
	}
	pick, args := q.pick(many)
	list, err := d.tasks(ctx, op, "WHERE t.task_id IN ("+pick+") ORDER BY t.task_id DESC", args...)
	if err != nil {
		return nil, err
	}
	return list, wrap(op, d.tagAll(ctx, list))
}

// tagAll fills in the tags of tasks.
func (d *DB) tagAll(ctx context.Context, list []Task) error {
	if len(list) == 0 {
		return nil
	}
	at := make(map[TaskID]int, len(list))
	ids := make([]TaskID, len(list))
	for i, t := range list {
		at[t.ID], ids[i] = i, t.ID
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	rows, err := d.reader.QueryContext(ctx, `SELECT task_id, key, value FROM task_tag WHERE task_id IN (SELECT value FROM json_each(?))`, string(text))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id TaskID
		var k, v string
		if err := rows.Scan(&id, textTo(&k), textTo(&v)); err != nil {
			return err
		}
		t := &list[at[id]]
		if t.Tags == nil {
			t.Tags = map[string]string{}
		}
		t.Tags[k] = v
	}
	return rows.Err()
}

// manyNames is from how many tasks on a prefix of names counts as common.
const manyNames = 4096

// prefix returns the beginning that a question's names must have.
func (q Query) prefix() (string, bool) {
	p, cut := strings.CutSuffix(q.Name, "*")
	return p, cut && p != ""
}

// lastRune sorts after every character: a prefix with it behind ends the range
// of all names that begin so.
const lastRune = "\U0010FFFF"

// manyNamed reports whether a question's prefix of names is common. Then it is
// faster to walk the tasks from the newest on and pass over the others, else to
// collect those of the name and sort them.
func (d *DB) manyNamed(ctx context.Context, q Query) (bool, error) {
	prefix, some := q.prefix()
	if !some {
		return false, nil
	}
	var n int
	err := d.reader.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM task WHERE name>=? AND name<? LIMIT ?) few`,
		prefix, prefix+lastRune, manyNames).Scan(&n)
	return n == manyNames, err
}

// pick returns the statement that picks the ids of a question's page, out of
// indexes alone as far as it goes: sorting whole rows would take far longer.
// many: the prefix of names is common.
func (q Query) pick(many bool) (string, []any) {
	var where []string
	var args []any
	add := func(cond string, v ...any) { where, args = append(where, cond), append(args, v...) }
	if q.User != "" {
		add("t.user_id=(SELECT user_id FROM user WHERE login=?)", q.User)
	}
	if prefix, some := q.prefix(); some && many {
		add("+t.name>=? AND +t.name<?", prefix, prefix+lastRune) // the sign keeps it from the index of names
	} else if some {
		add("t.name>=? AND t.name<?", prefix, prefix+lastRune)
	} else if q.Name != "" && q.Name != "*" {
		add("t.name=?", q.Name)
	}
	if q.Job != "" {
		add("t.job=?", q.Job)
	}
	if !q.Since.IsZero() {
		add("t.launched_ns>=?", q.Since.UnixNano())
	}
	if !q.Until.IsZero() {
		add("t.launched_ns<?", q.Until.UnixNano())
	}
	if m := matchText(q.Search); m != "" {
		add("t.task_id IN (SELECT rowid FROM task_text WHERE task_text MATCH ?)", m)
	}
	from, id := "task t", "t.task_id"
	for _, k := range slices.Sorted(maps.Keys(q.Tags)) {
		switch v := q.Tags[k]; {
		case v == "":
			add("t.task_id IN (SELECT task_id FROM task_tag WHERE key=?)", k)
		case id == "t.task_id": // the index of one tag has its tasks in their order
			from, id = "task_tag g CROSS JOIN task t ON t.task_id=g.task_id", "g.task_id"
			add("g.key=? AND g.value=?", k, v)
		default:
			add("t.task_id IN (SELECT task_id FROM task_tag WHERE key=? AND value=?)", k, v)
		}
	}
	if q.Before != 0 {
		add(id+"<?", int64(q.Before))
	}
	tail := ""
	if len(where) > 0 {
		tail = " WHERE " + strings.Join(where, " AND ")
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	return "SELECT " + id + " FROM " + from + tail + " ORDER BY " + id + " DESC LIMIT ?", append(args, limit)
}

// TaskIDs returns the numbers of all tasks, oldest number first.
func (d *DB) TaskIDs(ctx context.Context) ([]TaskID, error) {
	out, err := collect(ctx, d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan(id) }, `SELECT task_id FROM task ORDER BY task_id`)
	return out, wrap("list tasks", err)
}
