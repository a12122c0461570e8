package store

import (
	"slices"
	"strconv"
)

// part is a stretch of an order: the tasks of some conditions.
type part struct {
	*conditions
	q    *ListQuery
	from string       // tables, of which t is task
	id   string       // the tasks' ids there
	key  string       // NULL where they have none
	one  bool         // all have the same key
	few  *namePattern // found name by name; else nil
}

// parts are what a page can be made of, in order: behind a place, first the rest of
// the tasks with its key, then those of other keys, and at last those without a key.
// Each begins where an index is entered, so the page of a name that a million tasks
// have costs what any page costs.
func (q *ListQuery) parts(names namePattern) []part {
	key, a, beyond := orderKeys[q.Order], q.After, "<"
	if q.Ascending {
		beyond = ">"
	}
	all := part{q: q, from: "task t", id: "t.task_id", key: key.sql}
	if names.few {
		all.few = &names
	}
	f := q.Filter
	if i := slices.IndexFunc(f.Tags, func(t Tag) bool { return t.Value != "" }); i >= 0 && q.Order == ByID {
		// The index of a tag has its tasks in their order.
		all.from, all.id = "task_tag g CROSS JOIN task t ON t.task_id=g.task_id", "g.task_id"
		tag := f.Tags[i]
		f.Tags = slices.Delete(slices.Clone(f.Tags), i, i+1)
		all.conditions = f.conditions(names)
		all.add("g.key=? AND g.value=?", tag.Key, tag.Value)
	} else {
		all.conditions = f.conditions(names)
	}
	all.add(published)
	var out []part
	add := func(one bool, key, cond string, args ...any) {
		p := all
		p.conditions, p.key, p.one = all.clone(), key, one
		if cond != "" {
			p.add(cond, args...)
		}
		out = append(out, p)
	}
	switch {
	case key.sql == "" && a == nil:
		add(true, "NULL", "")
	case key.sql == "":
		add(true, "NULL", all.id+beyond+"?", int64(a.ID))
	case a == nil && key.nullable:
		add(false, key.sql, key.sql+" IS NOT NULL")
	case a == nil:
		add(false, key.sql, "")
	case !a.None:
		add(true, key.sql, key.sql+"=? AND t.task_id"+beyond+"?", a.keyOf(q.Order), int64(a.ID))
		add(false, key.sql, key.sql+beyond+"?", a.keyOf(q.Order))
	}
	if key.nullable && (a == nil || !a.None) {
		add(true, "NULL", key.sql+" IS NULL")
	} else if key.nullable {
		add(true, "NULL", key.sql+" IS NULL AND t.task_id"+beyond+"?", int64(a.ID))
	}
	return out
}

// pick picks the ids and keys of up to n of a part's tasks, out of an index alone
// where there is one. A server is told n in the text: it plans once for all values of a
// parameter, and for a tenth of all rows where that is the limit. There it may be up to 49
// more, lest each size of a page have a statement of its own.
func (p *part) pick(n int, onServer bool) (text string, args []any) {
	if p.few != nil {
		return p.q.pickFew(p.few, n)
	}
	direction := " DESC"
	if p.q.Ascending {
		direction = ""
	}
	order := p.id + direction
	if !p.one {
		order = p.key + direction + "," + order
	}
	text = "SELECT " + p.id + " AS id," + p.key + " AS k FROM " + p.from + " " + p.sql() + "ORDER BY " + order + " LIMIT "
	if onServer {
		return text + strconv.Itoa((n+48)/50*50+1), p.args
	}
	return text + "?", append(slices.Clone(p.args), n)
}
