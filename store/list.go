package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/quality"
)

// Order is the order of a list. The numbers stand in cursors: never renumber.
type Order uint8

// The orders.
const (
	ByID       Order = 1 // as the tasks were begun
	ByLaunched Order = 2
	ByEnergy   Order = 3
	ByDuration Order = 4 // of the window
	ByName     Order = 5 // by the bytes of its UTF-8
)

// orderKeys are the keys of the orders but ByID. Tasks of equal keys are ordered by id.
// The NULLs of a nullable key come last in either direction, in a part of their own: an index holds
// them at one end, which a single walk could not put last both ways.
var orderKeys = map[Order]struct {
	sql      string
	nullable bool
}{
	ByLaunched: {"t.launched_ns", true},
	ByEnergy:   {"t.energy_j", true},
	ByDuration: {durationSQL, true},
	ByName:     {"t.name", false},
}

// Position is the place of a task in an order. Exactly one of its keys counts, by the order;
// None: the task has no key.
type Position struct {
	ID     TaskID
	None   bool
	Nanos  int64   // ByLaunched
	Number float64 // ByEnergy, ByDuration
	Text   string  // ByName
}

// ListQuery selects a page of tasks.
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
	// Next is the place behind which the next page begins; nil on the last page.
	Next *Position
}

// List returns a page of tasks in an order. Tasks without a key come last in either direction. A page
// begins behind a place, not behind a number of tasks, so tasks that are added or deleted meanwhile move
// nothing; a task whose key changes meanwhile may come twice or not at all. Errors may wrap ErrPattern.
func (d *DB) List(ctx context.Context, q ListQuery) (Page, error) {
	list, next, err := d.pageOf(ctx, q, true)
	return Page{briefs(list), next}, err
}

// pageOf reads the rows of a page, or what a Brief needs of them, and the place of the last one where more follow.
func (d *DB) pageOf(ctx context.Context, q ListQuery, brief bool) (list []row, next *Position, err error) {
	// Each part is a query that enters an index once; the next one runs only where the page is not
	// full. The query asks for one row more than a page, so that next needs no count.
	const op = "list tasks"
	q.Order, q.Limit = cmp.Or(q.Order, ByID), cmp.Or(max(q.Limit, 0), 100)
	if _, known := orderKeys[q.Order]; !known && q.Order != ByID {
		return nil, nil, fmt.Errorf("%s: there is no order %d", op, q.Order)
	}
	parts, err := q.parts(ctx, d)
	if err != nil {
		return nil, nil, wrap(op, err)
	}
	for _, p := range parts { // one task more than a page shows whether there is another page
		more, err := d.listed(ctx, p, brief)
		if err != nil {
			return nil, nil, wrap(op, err)
		}
		if list = append(list, more...); len(list) > q.Limit {
			return list[:q.Limit], list[q.Limit-1].place(q.Order), nil
		}
	}
	return list, nil, nil
}

// Selected returns those of some tasks that a filter selects, as List does, by id.
func (d *DB) Selected(ctx context.Context, f Filter, ids []TaskID) ([]Brief, error) {
	const op = "read tasks"
	names, err := f.names()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	s := d.reading(ctx)
	c := f.conditions(names)
	// The ids travel as one JSON parameter: their number would otherwise be bound by SQLite's limit of
	// parameters, and each number of ids would be another statement to prepare.
	c.add("t.task_id IN (SELECT value FROM json_each(?))", s.json(ids))
	c.add(published)
	list := s.briefRows("NULL, t.tags", "task t", c.sql()+"ORDER BY t.task_id", c.args...)
	return briefs(list), wrap(op, s.err)
}

// part is a stretch of an order: the tasks of some conditions.
type part struct {
	*conditions
	from      string   // tables, of which t is task
	id        string   // column of the tasks' ids there
	key       string   // NULL where they have none
	one       bool     // all have the same key
	few       []string // names, each of which has a walk of its own; nil where the conditions have the name
	ascending bool
	limit     int
}

// parts splits a page into stretches of its order: behind a place, first the rest of the tasks
// with its key, then those of other keys, and at last those without a key. Each begins where an
// index is entered, so the page of a name that a million tasks have costs as much as any page.
func (q *ListQuery) parts(ctx context.Context, d *DB) (out []part, err error) {
	names, err := q.names()
	if err != nil {
		return nil, err
	}
	if err := d.placeNames(ctx, q, &names); err != nil {
		return nil, err
	}
	key, a, beyond := orderKeys[q.Order], q.After, "<"
	if q.Ascending {
		beyond = ">"
	}
	all := q.base(names)
	add := func(one bool, key, cond string, args ...any) {
		p := all
		p.conditions, p.key, p.one = &conditions{slices.Clone(all.where), slices.Clone(all.args)}, key, one
		if cond != "" {
			p.add(cond, args...)
		}
		out = append(out, p)
	}
	switch {
	// In ByID there is one part, since no id is NULL.
	case key.sql == "" && a == nil:
		add(true, "NULL", "")
	case key.sql == "":
		add(true, "NULL", all.id+beyond+"?", int64(a.ID))
	case a == nil && key.nullable:
		add(false, key.sql, key.sql+" IS NOT NULL")
	// A key that is never NULL: one part, from the index's end.
	case a == nil:
		add(false, key.sql, "")
	// Behind a place with a key: the rest of its equals, then the other keys, then those without one.
	case !a.None:
		add(true, key.sql, key.sql+"=? AND t.task_id"+beyond+"?", a.keyOf(q.Order), int64(a.ID))
		add(false, key.sql, key.sql+beyond+"?", a.keyOf(q.Order))
	}
	// The tasks without a key, all of them or those behind the place.
	if key.nullable && (a == nil || !a.None) {
		add(true, "NULL", key.sql+" IS NULL")
	} else if key.nullable {
		add(true, "NULL", key.sql+" IS NULL AND t.task_id"+beyond+"?", int64(a.ID))
	}
	return out, nil
}

// base is the part of all tasks that the query selects, in the order of their ids.
func (q *ListQuery) base(names namePattern) part {
	// limit is one more than the page.
	all := part{from: "task t", id: "t.task_id", ascending: q.Ascending, limit: q.Limit + 1, few: names.few}
	f := q.Filter
	if i := slices.IndexFunc(f.Tags, valued); i >= 0 && q.Order == ByID {
		// Only for ByID: other orders would have to sort the tag's tasks, which may be all there are.
		// task_tag_value(key, value, task_id) has the tasks of a tag in order of their ids, and is walked from
		// its end; CROSS JOIN keeps SQLite from turning the loops around.
		tag := f.Tags[i]
		all.from, all.id = "task_tag g CROSS JOIN task t", "g.task_id"
		f.Tags = slices.Delete(slices.Clone(f.Tags), i, i+1)
		all.conditions = f.conditions(names)
		all.add("g.key=? AND g.value=? AND t.task_id=g.task_id", tag.Key, tag.Value)
	} else {
		all.conditions = f.conditions(names)
	}
	all.add(published)
	return all
}

// valued reports whether a tag is wanted with one value.
func valued(t Tag) bool { return t.Value != "" }

// fewNames is the most names of a prefix that are walked side by side, each in its own stretch of the
// index of names. Finding one name takes some 10 µs, and so does the first step of its walk.
const fewNames = 16

// commonNames is the number of tasks from which on a prefix is common. Of N tasks, n with the
// prefix, walking passes 50·N/n tasks for a page of 50, collecting sorts n: with a million tasks
// and 1024 either takes some milliseconds, and with more or fewer the chosen way takes less.
const commonNames = 1024

// placeNames decides where a page of a prefix enters an index. In the order of names, that is one end of
// the prefix's range, and the place the other. In the order of ids, the tasks of a prefix of few names are
// merged from a walk for each name. Otherwise a common prefix is found by walking along the order and
// passing over other names, a rare one by collecting its tasks out of the index of names.
func (d *DB) placeNames(ctx context.Context, q *ListQuery, names *namePattern) error {
	switch {
	case names.prefix == "" || names.exact:
		// Without a prefix, or with a whole name, the index of names is entered at one point anyway.
		return nil
	case q.Order == ByName:
		names.noLow, names.noHigh = q.After != nil && q.Ascending, q.After != nil && !q.Ascending
		return nil
	case q.Order == ByID && !slices.ContainsFunc(q.Tags, valued):
		few, err := d.fewNames(ctx, q.User, names.prefix)
		if names.few = few; err != nil || few != nil {
			return err
		}
	}
	c := &conditions{}
	if q.User != "" {
		c.add(byUser, q.User)
	}
	namePattern{prefix: names.prefix}.where(c)
	// At most commonNames entries of an index are walked for the count, whatever the prefix.
	s := d.reading(ctx)
	common := one[bool](s, "SELECT count(*) FROM (SELECT 1 FROM task t "+c.sql()+"LIMIT 1 OFFSET "+
		strconv.Itoa(commonNames-1)+") p", c.args...)
	// Without either end of the range the planner cannot use the index of names.
	names.noLow, names.noHigh = common, common
	return s.err
}

// fewNames returns the names of a user's tasks, or of all, that begin with a prefix; nil where
// there are none, or more than fewNames.
func (d *DB) fewNames(ctx context.Context, user, prefix string) ([]string, error) {
	// The least name above the last one is a single step into the index, however many tasks bear it.
	next := func(bound string) (string, []any) {
		c := &conditions{}
		if user != "" {
			c.add(byUser, user)
		}
		c.add("t.name" + bound)
		c.add("t.name<?", prefix+lastRune)
		return "SELECT min(t.name) FROM task t " + c.sql(), c.args
	}
	first, args := next(">=?")
	after, more := next(">n.name")
	args = append(slices.Insert(args, len(args)-1, any(prefix)), more...)
	s := d.reading(ctx)
	names := values[string](s, "WITH RECURSIVE n(name) AS ("+first+"UNION ALL SELECT ("+after+
		") FROM n WHERE n.name IS NOT NULL) SELECT name FROM n WHERE name IS NOT NULL LIMIT "+
		strconv.Itoa(fewNames+1), args...)
	if len(names) > fewNames {
		names = nil
	}
	return names, s.err
}

// keyOf is the key of a place.
func (p *Position) keyOf(o Order) any {
	switch o {
	case ByLaunched:
		return p.Nanos
	case ByName:
		return p.Text
	}
	return p.Number
}

// pick selects the ids and keys of a part's first tasks, out of an index alone where there is one. The
// limit stands in the text: a server that plans for any parameter would plan for a tenth of all rows.
func (p *part) pick() string {
	direction := " DESC"
	if p.ascending {
		direction = ""
	}
	order := p.id + direction
	if !p.one {
		order = p.key + direction + "," + order
	}
	text := "SELECT " + p.id + " AS id," + p.key + " AS k FROM " + p.from + " " + p.sql()
	if p.few != nil {
		// The walks of a compound come in order out of the index: databases merge them and stop at the limit.
		text = strings.Repeat("UNION ALL "+text+"AND t.name=? ", len(p.few))[len("UNION ALL "):]
		order = "id" + direction
	}
	return text + "ORDER BY " + order + " LIMIT " + strconv.Itoa(p.limit)
}

// arguments are those of pick.
func (p *part) arguments() (out []any) {
	for _, name := range p.few {
		out = append(append(out, p.args...), name)
	}
	if p.few == nil {
		out = p.args
	}
	return out
}

// listed reads a part's first tasks. To sort whole rows takes far longer than to pick the ids
// first. A join promises no order, so the rows are ordered here.
func (d *DB) listed(ctx context.Context, p part, brief bool) ([]row, error) {
	s := d.reading(ctx)
	read, from := s.briefRows, "("+p.pick()+") p CROSS JOIN task t"
	if !brief {
		read, from = s.taskRows, from+" JOIN"
	}
	list := read("p.k, t.tags", from, "WHERE t.task_id=p.id", p.arguments()...)
	slices.SortFunc(list, func(a, b row) int {
		// Of one order, only one of the keys is other than zero; where it is equal, the ids decide.
		x, y := a.place(ByID), b.place(ByID)
		c := cmp.Or(cmp.Compare(x.Nanos, y.Nanos), cmp.Compare(x.Number, y.Number), cmp.Compare(x.Text, y.Text),
			cmp.Compare(x.ID, y.ID))
		if !p.ascending {
			c = -c
		}
		return c
	})
	return list, s.err
}

// place is the task's place in an order.
func (t *row) place(o Order) *Position {
	p := &Position{ID: t.ID, None: t.key == nil && o != ByID}
	switch k := t.key.(type) {
	case int64:
		p.Nanos = k
	case float64:
		p.Number = k
	case string:
		p.Text = k
	}
	return p
}

// briefs are the rows of a list in short; nil for an empty one.
func briefs(list []row) []Brief { return lists.Map(list, func(t row) Brief { return t.Brief() }) }

// tagsOf reads a JSON object of texts.
func tagsOf(object string) (map[string]string, error) {
	var raw map[string]string
	if err := json.Unmarshal([]byte(object), &raw); err != nil {
		return nil, err
	}
	tags := make(map[string]string, len(raw))
	for k, v := range raw {
		tags[measure.Printable(k)] = measure.Printable(v)
	}
	return tags, nil
}

// Tasks returns a page of tasks in the order of q, by default the newest first. For verdicts it reads pages of
// all tasks until its own is full.
func (d *DB) Tasks(ctx context.Context, q Query) (out []Row, err error) {
	for l := q.list(); ; {
		list, next, err := d.pageOf(ctx, l, false)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			if fits, err := d.judged(ctx, t.ID, q.Verdicts); err != nil {
				return nil, err
			} else if fits {
				out = append(out, t.Row())
			}
			if len(out) == l.Limit {
				return out, nil
			}
		}
		if l.After = next; next == nil {
			return out, nil
		}
	}
}

// judged reports whether a task has one of some verdicts; none stand for all.
func (d *DB) judged(ctx context.Context, id TaskID, verdicts []quality.Level) (bool, error) {
	if len(verdicts) == 0 {
		return true, nil
	}
	t, err := d.Task(ctx, id)
	if errors.Is(err, ErrNotFound) { // it may be deleted meanwhile
		return false, nil
	}
	v, ok := t.Verdict()
	return ok && slices.Contains(verdicts, v.Level), err
}

// list is the question as one for a page.
func (q Query) list() ListQuery {
	l := ListQuery{Order: cmp.Or(q.Order, ByID), Ascending: q.Ascending, Limit: cmp.Or(max(q.Limit, 0), 100)}
	if q.Before != 0 {
		l.After = &Position{ID: q.Before}
	}
	l.Filter = Filter{
		User: q.User, Name: NamePattern(q.Name), Job: q.Job, Since: q.Since, Until: q.Until, Without: q.Without,
		Search: q.Search,
	}
	for _, k := range slices.Sorted(maps.Keys(q.Tags)) {
		l.Tags = append(l.Tags, Tag{k, q.Tags[k]})
	}
	return l
}
