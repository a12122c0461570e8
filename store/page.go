package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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
	Tasks []Brief
	// Next is where the next page begins behind; nil on the last page.
	Next *Position
}

// List returns a page of tasks in an order. Tasks without a key come last in
// either direction. A page begins behind a place, not behind a number of tasks, so
// what is added or deleted meanwhile moves nothing; a task whose key changes
// meanwhile may come twice or not at all. Errors may wrap ErrPattern.
func (d *DB) List(ctx context.Context, q ListQuery) (Page, error) {
	const op = "list tasks"
	q.Order, q.Limit = cmp.Or(q.Order, ByID), cmp.Or(max(q.Limit, 0), 100)
	if _, known := orderKeys[q.Order]; !known && q.Order != ByID {
		return Page{}, fmt.Errorf("%s: there is no order %d", op, q.Order)
	}
	names, err := d.namesOf(ctx, &q)
	if err != nil {
		return Page{}, wrap(op, err)
	}
	list, err := q.read(ctx, d, names)
	if err == nil && names.reach > 0 && len(list.tasks) <= q.Limit { // it lies farther, or is the last
		names.reach = 0
		list, err = q.read(ctx, d, names)
	}
	if err != nil {
		return Page{}, wrap(op, err)
	}
	if names.few && len(list.tasks) > q.Limit {
		d.hints.lay(&q, names, list.apart())
	}
	var p Page
	if len(list.tasks) > q.Limit {
		list.cut(q.Limit)
		p.Next = list.place(q.Limit-1, q.Order)
	}
	if len(list.tasks) > 0 {
		p.Tasks = list.tasks
	}
	return p, nil
}

// place is where a task stands in an order.
func (l *briefs) place(i int, o Order) *Position {
	k := &l.keys[i]
	p := &Position{ID: l.tasks[i].ID, None: k.kind == cellNone && o != ByID}
	switch k.kind {
	case cellInt:
		p.Nanos = int64(k.bits)
	case cellReal:
		p.Number = k.number()
	case cellText:
		p.Text = k.text
	}
	return p
}

// keyOf is what a place is ordered by.
func (p *Position) keyOf(o Order) any {
	switch o {
	case ByLaunched:
		return p.Nanos
	case ByName:
		return p.Text
	}
	return p.Number
}

// read reads a page and one task more.
func (q *ListQuery) read(ctx context.Context, d *DB, names namePattern) (*briefs, error) {
	out := newBriefs(q.Limit + 1)
	plan := q.planning(names)
	for _, p := range q.parts(names) {
		if err := q.part(ctx, d, p, plan, out); err != nil {
			return nil, err
		}
		if len(out.tasks) > q.Limit {
			break
		}
	}
	return out, nil
}

// part adds tasks of a part, until there is one more than a page has. Sorting whole rows
// takes far longer than to pick the ids first; and as a join promises no order, they are
// put in order again here.
func (q *ListQuery) part(ctx context.Context, d *DB, p part, plan Planning, out *briefs) error {
	n := len(out.tasks)
	pick, args := p.pick(q.Limit+1-n, d.server != nil)
	if err := out.read(ctx, d, plan, "p.k", "("+pick+") p CROSS JOIN task t ON t.task_id=p.id", "", args...); err != nil {
		return err
	}
	out.order(n, q.Ascending)
	return nil
}

// Selected returns those of some tasks that a filter selects, as List does, by id.
func (d *DB) Selected(ctx context.Context, f Filter, ids []TaskID) ([]Brief, error) {
	const op = "read tasks"
	names, err := f.names()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	c := f.conditions(names)
	c.add("t.task_id IN (SELECT value FROM json_each(?))", string(list))
	c.add(published)
	out := newBriefs(len(ids))
	if err := out.read(ctx, d, PlanEach, "NULL", "task t", c.sql(), c.args...); err != nil {
		return nil, wrap(op, err)
	}
	if out.order(0, true); len(out.tasks) == 0 {
		return nil, nil
	}
	return out.tasks, nil
}
