package store

import (
	"math"
	"slices"
)

// namesSQL begins a statement with a table n of the names from low to before high of
// tasks t of some conditions, each once, and behind them NULL: of each, the index is
// entered behind the one before.
func namesSQL(c *conditions, low, high string) (text string, args []any) {
	first, next := c.clone(), c.clone()
	first.add("t.name>=? AND t.name<?", low, high)
	next.add("t.name>n.name AND t.name<?", high)
	text = `WITH RECURSIVE n(name) AS (SELECT (SELECT t.name FROM task t ` + first.sql() + `ORDER BY t.name LIMIT 1)
		UNION ALL SELECT (SELECT t.name FROM task t ` + next.sql() + `ORDER BY t.name LIMIT 1) FROM n WHERE n.name IS NOT NULL) `
	return text, append(first.args, next.args...)
}

// pickFew picks a page's ids in their order where few names are asked for, out of the
// index of names. Of each name, only what lies within reach is looked at: as far as the
// last such page went; and where that makes no page, or nothing is known of it, or it went
// far, what fewBound leaves.
func (q *ListQuery) pickFew(names *namePattern, limit int) (text string, args []any) {
	o := q.fewOrder()
	c := &conditions{}
	if q.User != "" {
		c.add(byUser, q.User)
	}
	text, args = namesSQL(c, names.prefix, names.prefix+lastRune)
	c.add("t.name=n.name AND t.task_id"+o.beyond+"?", o.after)
	c.add(published)
	of := c.clone()
	switch {
	case names.reach == 0:
		tables, tableArgs, bound, boundArgs := c.fewBound(o, limit)
		text, args = text+tables, append(args, tableArgs...)
		of.add("t.task_id"+o.until+bound, boundArgs...)
	case q.After == nil:
		of.add("t.task_id"+o.until+"(SELECT "+o.first+"(task_id) FROM task)"+o.onward+"?", names.reach)
	default:
		of.add("t.task_id"+o.until+"?"+o.onward+"?", o.after, names.reach)
	}
	text += "SELECT t.task_id AS id,NULL AS k FROM n CROSS JOIN task t " + of.sql() + "ORDER BY t.task_id" + o.direction + " LIMIT ?"
	return text, append(append(args, of.args...), limit)
}

// fewOrder is what the order of ids is in SQL.
type fewOrder struct {
	direction, beyond, until, first, onward string
	after                                   int64 // the page begins beyond it
	end                                     string
}

func (q *ListQuery) fewOrder() fewOrder {
	o := fewOrder{" DESC", "<", ">=", "max", "-", math.MaxInt64, "0"}
	if q.Ascending {
		o = fewOrder{"", ">", "<=", "min", "+", 0, "9223372036854775807"}
	}
	if q.After != nil {
		o.after = int64(q.After.ID)
	}
	return o
}

// fewBound is where a page of few names has ended for sure. Names that are all used take
// a share of the page each: with m, the task that ends the share of each name that has so
// many, there is a page at and before the m that comes when the shares make one up. Where
// too few names have so many, as many of each are looked at as the page may have. c are the
// conditions on a task of a name.
func (c *conditions) fewBound(o fewOrder, limit int) (tables string, tableArgs []any, bound string, boundArgs []any) {
	at := "(SELECT t.task_id FROM task t " + c.sql() + "ORDER BY t.task_id" + o.direction + " LIMIT 1 OFFSET "
	// One name more than there are: there may be none any more, and a server does not divide by 0.
	const share = "(SELECT (?-1)/(count(n.name)+1)+1 FROM n)"
	tables = ",m(id) AS (SELECT " + at + share + "-1) FROM n WHERE n.name IS NOT NULL),b(id) AS (SELECT m.id FROM m WHERE m.id IS NOT NULL ORDER BY m.id" +
		o.direction + " LIMIT 1 OFFSET (?-1)/" + share + ") "
	return tables, append(slices.Clone(c.args), limit, limit, limit),
		"coalesce((SELECT b.id FROM b)," + at + "?)," + o.end + ")", append(slices.Clone(c.args), limit)
}

// apart is how far the tasks of a page and one more lie apart, in ids.
func (l *briefs) apart() float64 {
	n := len(l.tasks) - 1
	from, to := l.tasks[0].ID, l.tasks[n].ID
	return float64(max(from-to, to-from)) / float64(n)
}

// mostReach bounds a reach: all that lies there may have to be looked at, for a millisecond,
// where tasks lie closer than those of the last page did.
const mostReach = 8192

// reachOf is how far a page and one more go, with tasks so far apart: farther than where
// they are expected to end by three standard deviations, were they strewn at random. It is
// 0 where that is too far to look at all of it.
func reachOf(apart float64, limit int) int64 {
	n := float64(limit + 1)
	if reach := math.Ceil(apart * (n + 3*math.Sqrt(n))); reach <= mostReach {
		return int64(reach)
	}
	return 0
}
