package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
)

// Order is what a list is ordered by. The numbers stand in cursors: never renumber.
type Order uint8

// The orders.
const (
	ByID       Order = 1 // as the tasks were begun
	ByLaunched Order = 2
	ByEnergy   Order = 3
	ByDuration Order = 4 // of the window
	ByName     Order = 5 // by the bytes of its UTF-8
)

// orderKeys are the keys that a task is ordered by before its id.
var orderKeys = map[Order]struct {
	sql      string
	nullable bool
}{
	ByLaunched: {"t.launched_ns", true},
	ByEnergy:   {"t.energy_j", true},
	ByDuration: {durationSQL, true},
	ByName:     {"t.name", false},
}

// Position is the place of a task in an order. Exactly one of its keys counts,
// by the order; None says that the task has nothing to be ordered by.
type Position struct {
	ID     TaskID
	None   bool
	Nanos  int64   // ByLaunched
	Number float64 // ByEnergy, ByDuration
	Text   string  // ByName
}

// ListQuery asks for a page of tasks.
type ListQuery struct {
	Filter
	Order     Order     // 0 is ByID
	Ascending bool      // otherwise the greatest first
	After     *Position // the page begins behind it; nil for the first page
	Limit     int       // 0 for 100
}

// Page is a part of a list.
type Page struct {
	// Tasks have what identifies them and what they came to: no monitor, instrument,
	// setup, calibration, marker or clock, and of a result no rails and budgets.
	Tasks []Task
	// Next is where the next page begins behind; nil on the last page.
	Next *Position
}

// List returns a page of tasks in an order. Tasks without a key come last in
// either direction. A page begins behind a place, not behind a number of tasks, so
// what is added or deleted meanwhile moves nothing; a task whose key changes
// meanwhile may come twice or not at all. Errors may wrap ErrPattern.
func (d *DB) List(ctx context.Context, q ListQuery) (Page, error) {
	const op = "list tasks"
	c, err := q.conditions()
	if err != nil {
		return Page{}, fmt.Errorf("%s: %w", op, err)
	}
	q.Order, q.Limit = cmp.Or(q.Order, ByID), cmp.Or(max(q.Limit, 0), 100)
	if _, known := orderKeys[q.Order]; !known && q.Order != ByID {
		return Page{}, fmt.Errorf("%s: there is no order %d", op, q.Order)
	}
	tx, err := d.reader.BeginTx(ctx, nil)
	if err != nil {
		return Page{}, wrap(op, err)
	}
	defer tx.Rollback() // it only read
	places, err := q.pick(ctx, tx, c)
	if err != nil {
		return Page{}, wrap(op, err)
	}
	var p Page
	if len(places) > q.Limit {
		places = places[:q.Limit]
		p.Next = &places[q.Limit-1]
	}
	p.Tasks, err = tasksAt(ctx, tx, places)
	return p, wrap(op, err)
}

// pick finds the places of a page and of one task more. The ids are picked first,
// out of an index alone where there is one: sorting whole rows takes far longer.
func (q *ListQuery) pick(ctx context.Context, tx *sql.Tx, c *conditions) ([]Position, error) {
	key, keyed := orderKeys[q.Order]
	var out []Position
	if q.After == nil || !q.After.None {
		with := *c
		if keyed && key.nullable {
			with.add(key.sql + " IS NOT NULL")
		}
		q.behind(&with, key.sql)
		var err error
		if out, err = q.places(ctx, tx, &with, key.sql); err != nil || !keyed || !key.nullable || len(out) > q.Limit {
			return out, err
		}
	}
	// Then those that have no key.
	none := *c
	none.add(key.sql + " IS NULL")
	if q.After != nil && q.After.None {
		none.add("t.task_id"+q.beyond()+"?", int64(q.After.ID))
	}
	rest, err := q.places(ctx, tx, &none, "")
	for i := range rest {
		rest[i].None = true
	}
	out = append(out, rest...)
	return out[:min(len(out), q.Limit+1)], err
}

func (q *ListQuery) beyond() string {
	if q.Ascending {
		return ">"
	}
	return "<"
}

// behind adds the condition that a task comes after the place.
func (q *ListQuery) behind(c *conditions, key string) {
	a := q.After
	if a == nil {
		return
	}
	var at any
	switch q.Order {
	case ByLaunched:
		at = a.Nanos
	case ByEnergy, ByDuration:
		at = a.Number
	case ByName:
		at = a.Text
	default:
		c.add("t.task_id"+q.beyond()+"?", int64(a.ID))
		return
	}
	c.add("("+key+",t.task_id)"+q.beyond()+"(?,?)", at, int64(a.ID))
}

// places reads places in order; without a key by id alone.
func (q *ListQuery) places(ctx context.Context, tx *sql.Tx, c *conditions, key string) ([]Position, error) {
	direction := " DESC"
	if q.Ascending {
		direction = ""
	}
	order := "t.task_id" + direction
	if key != "" {
		order = key + direction + "," + order
	}
	scan := func(rows *sql.Rows, p *Position) error {
		switch {
		case key == "":
			return rows.Scan(&p.ID, new(any))
		case q.Order == ByLaunched:
			return rows.Scan(&p.ID, &p.Nanos)
		case q.Order == ByName:
			return rows.Scan(&p.ID, &p.Text)
		}
		return rows.Scan(&p.ID, &p.Number)
	}
	return collect(ctx, tx, scan, "SELECT t.task_id,"+cmp.Or(key, "NULL")+" FROM task t "+c.sql()+"ORDER BY "+order+" LIMIT ?",
		append(slices.Clone(c.args), q.Limit+1)...)
}

// tasksAt reads the tasks of places, in their order.
func tasksAt(ctx context.Context, tx *sql.Tx, places []Position) ([]Task, error) {
	if len(places) == 0 {
		return nil, nil
	}
	ids := make([]TaskID, len(places))
	for i, p := range places {
		ids[i] = p.ID
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	rows, err := briefs(ctx, tx, len(ids), "WHERE t.task_id IN (SELECT value FROM json_each(?))", string(list))
	if err != nil {
		return nil, err
	}
	if len(rows) != len(ids) { // within one transaction, only in a damaged file
		return nil, fmt.Errorf("%w: %d of %d tasks have a user", ErrCorrupt, len(rows), len(ids))
	}
	at := make(map[TaskID]int, len(ids))
	for i, id := range ids {
		at[id] = i
	}
	out := make([]Task, len(ids))
	for _, t := range rows {
		out[at[t.ID]] = t
	}
	return out, nil
}

// Selected returns those of some tasks that a filter selects, as List does, by id.
func (d *DB) Selected(ctx context.Context, f Filter, ids []TaskID) ([]Task, error) {
	const op = "read tasks"
	c, err := f.conditions()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	c.add("t.task_id IN (SELECT value FROM json_each(?))", string(list))
	out, err := briefs(ctx, d.reader, len(ids), c.sql()+"ORDER BY t.task_id", c.args...)
	return out, wrap(op, err)
}
