package store

import "slices"

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
// index of names. Names that are all used take a share of the page each: with m, the task
// that ends the share of each name that has so many, there is a page at and before the
// m that comes when the shares make one up, and nothing behind it is looked at. Where too
// few names have so many, as many of each are looked at as the page may have.
func (q *ListQuery) pickFew(prefix string, limit int) (text string, args []any) {
	direction, beyond, last, after := " DESC", "<", ">=", any(int64(1<<63-1))
	end := "0"
	if q.Ascending {
		direction, beyond, last, after, end = "", ">", "<=", int64(0), "9223372036854775807"
	}
	if q.After != nil {
		after = int64(q.After.ID)
	}
	c := &conditions{}
	if q.User != "" {
		c.add(byUser, q.User)
	}
	text, args = namesSQL(c, prefix, prefix+lastRune)
	c.add("t.name=n.name AND t.task_id"+beyond+"?", after)
	at := "(SELECT t.task_id FROM task t " + c.sql() + "ORDER BY t.task_id" + direction + " LIMIT 1 OFFSET "

	// One name more than there are: there may be none any more, and a server does not divide by 0.
	const share = "(SELECT (?-1)/(count(n.name)+1)+1 FROM n)"
	text += ",m(id) AS (SELECT " + at + share + "-1) FROM n WHERE n.name IS NOT NULL),b(id) AS (SELECT m.id FROM m WHERE m.id IS NOT NULL ORDER BY m.id" +
		direction + " LIMIT 1 OFFSET (?-1)/" + share + ") "
	args = append(append(args, c.args...), limit, limit, limit)

	of := c.clone()
	of.add("t.task_id"+last+"coalesce((SELECT b.id FROM b),"+at+"?),"+end+")", append(slices.Clone(c.args), limit)...)
	text += "SELECT t.task_id AS id,NULL AS k FROM n CROSS JOIN task t " + of.sql() + "ORDER BY t.task_id" + direction + " LIMIT ?"
	return text, append(append(args, of.args...), limit)
}
