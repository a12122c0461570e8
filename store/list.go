package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Tasks returns a page of tasks, newest first.
func (d *DB) Tasks(ctx context.Context, q Query) ([]Row, error) {
	const op = "list tasks"
	l := q.list()
	names, err := d.namesOf(ctx, &l)
	if err != nil {
		return nil, wrap(op, err)
	}
	names.reach = 0
	pick, args := l.parts(names)[0].pick(l.Limit, d.server != nil) // in the order of ids there is one part
	list, err := d.tasks(ctx, op, "WHERE t.task_id IN (SELECT id FROM ("+pick+") p) ORDER BY t.task_id DESC", args...)
	if err != nil {
		return nil, err
	}
	list = list[:min(len(list), l.Limit)] // a server may pick more
	return list, wrap(op, tagAll(ctx, d.reader, list))
}

// list is the question as one for a page, newest first.
func (q Query) list() ListQuery {
	l := ListQuery{Order: ByID, Limit: q.Limit}
	if l.Limit <= 0 {
		l.Limit = 100
	}
	if q.Before != 0 {
		l.After = &Position{ID: q.Before}
	}
	name, cut := strings.CutSuffix(q.Name, "*")
	if name = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`).Replace(name); cut {
		name += "*"
	}
	l.Filter = Filter{User: q.User, Name: name, Job: q.Job, Since: q.Since, Until: q.Until, Without: q.Without, Search: q.Search}
	for _, k := range slices.Sorted(maps.Keys(q.Tags)) {
		l.Tags = append(l.Tags, Tag{k, q.Tags[k]})
	}
	return l
}

// tagAll fills in the tags of tasks.
func tagAll(ctx context.Context, q querier, list []Row) error {
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
	rows, err := q.QueryContext(ctx, `SELECT task_id, key, value FROM task_tag WHERE task_id IN (SELECT value FROM json_each(?))`, string(text))
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

// TaskIDs returns the numbers of all tasks, oldest number first.
func (d *DB) TaskIDs(ctx context.Context) ([]TaskID, error) {
	out, err := collect(ctx, d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan(id) }, `SELECT task_id FROM task t WHERE `+published+` ORDER BY task_id`)
	return out, wrap("list tasks", err)
}
