package store

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"sync"
	"time"
)

// lastRune sorts after every character: a prefix with it behind ends the range
// of all names that begin so.
const lastRune = "\U0010FFFF"

// namesOf reads a question's pattern for names, and says how it is best looked for.
// In the order of names, one end of a prefix's range is where the page begins. In
// other orders, a common prefix is found by walking along the order and passing over
// the others; a rare one by collecting its tasks out of the index of names, and in the
// order of ids, where few names begin so, by collecting a page of each name.
func (d *DB) namesOf(ctx context.Context, q *ListQuery) (namePattern, error) {
	p, err := q.names()
	if err != nil || p.prefix == "" || p.exact {
		return p, err
	}
	if q.Order == ByName {
		p.onlyLow, p.onlyHigh = q.After != nil && !q.Ascending, q.After != nil && q.Ascending
		return p, nil
	}
	// A page of each name is enough only if no other condition takes tasks from it; and a
	// server walks faster than it looks names up.
	byName := q.Order == ByID && p.glob == "" && q.onlyNames() && d.server == nil
	h, err := d.hint(ctx, hinted{q.User, p.prefix, byName})
	p.onlyLow, p.onlyHigh, p.few, p.reach = h.how == commonNames, h.how == commonNames, h.how == fewNames, reachOf(h.apart, q.Limit)
	return p, err
}

// onlyNames reports whether a filter asks for nothing but a user and names.
func (f *Filter) onlyNames() bool {
	rest := *f
	rest.User, rest.Name = "", ""
	return len(rest.conditions(namePattern{}).where) == 0
}

// planning tells pages apart that are found in an index, whatever the values of the
// conditions are: nothing is looked at beyond it or what namesOf bounds.
func (q *ListQuery) planning(names namePattern) Planning {
	rest := q.Filter
	switch {
	case rest.User != "" || rest.Name != "":
		rest.User, rest.Name = "", ""
	case rest.Job != "":
		rest.Job = ""
	default:
		rest.States = nil
	}
	switch {
	case q.Name != "" && !names.exact && names.glob != "", len(rest.conditions(namePattern{}).where) > 0:
		return PlanEach
	case names.onlyLow && names.onlyHigh:
		return PlanInOrder
	}
	return PlanOnce
}

// commonness is how many tasks have names that begin so, as far as it matters.
type commonness uint8

const (
	rareNames   commonness = iota // they are fast collected
	commonNames                   // walking along all tasks to fill a page is faster than that
	fewNames                      // neither, but they are few names
)

// nameHints are what was found out of names lately: a page is followed by the next, and what
// is common stays so for a while.
type nameHints struct {
	mu   sync.Mutex
	of   map[hinted]nameHint
	till time.Time
}

// nameHint is how names are found, and of few names how far apart, in ids, the tasks of a
// page lay; 0 where that is not known.
type nameHint struct {
	how   commonness
	apart float64
}

// lay keeps how far apart the tasks of a page of few names lay.
func (h *nameHints) lay(q *ListQuery, names namePattern, apart float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := hinted{q.User, names.prefix, true}
	if hint, known := h.of[of]; known {
		hint.apart = apart
		h.of[of] = hint
	}
}

// hinted is what a hint is about: names that begin so, of a user's tasks or with "" of
// all. byName: a page may be made name by name.
type hinted struct {
	user, prefix string
	byName       bool
}

const (
	hintsLast = time.Minute
	mostHints = 256
)

// hint is commonness, which may be as old as hintsLast: it only bears on how long a page
// takes.
func (d *DB) hint(ctx context.Context, of hinted) (nameHint, error) {
	h := &d.hints
	h.mu.Lock()
	if now := time.Now(); h.of == nil || now.After(h.till) || len(h.of) >= mostHints {
		h.of, h.till = map[hinted]nameHint{}, now.Add(hintsLast)
	}
	hint, known := h.of[of]
	h.mu.Unlock()
	if known {
		return hint, nil
	}
	how, err := d.commonness(ctx, of)
	hint = nameHint{how: how}
	if err == nil {
		h.mu.Lock()
		h.of[of] = hint
		h.mu.Unlock()
	}
	return hint, err
}

// A look at the newest tasks tells a prefix that many of them have; a longer look one that
// some have.
const (
	sampled, manySampled = 64, 4
	looked, manyLooked   = 1024, 8
	mostFew              = 32
	pageTasks            = 50
)

// commonness tells how tasks of some names are best found. With n of N tasks, walking
// takes a page's N/n steps for each task, collecting n: where many of the newest are
// called so, walking is faster for sure; else n is counted up to where both take as long.
func (d *DB) commonness(ctx context.Context, of hinted) (commonness, error) {
	c := &conditions{}
	if of.user != "" {
		c.add(byUser, of.user)
	}
	low, high := of.prefix, of.prefix+lastRune
	names, args := namesSQL(c, low, high)
	newest := `(SELECT count(*) AS n FROM (SELECT t.name AS name FROM task t ` + c.sql() + `ORDER BY t.task_id DESC LIMIT ?) w WHERE name>=? AND name<?) s`
	look := func(n int) []any { return append(slices.Clone(c.args), n, low, high) }
	args = slices.Concat([]any{manySampled}, args, []any{mostFew + 1}, look(sampled))
	var n, last int64
	var few sql.NullInt64
	err := d.reader.QueryRowContext(ctx, `SELECT s.n, CASE WHEN s.n<? THEN (`+names+`SELECT count(*) FROM (SELECT 1 FROM n WHERE n.name IS NOT NULL LIMIT ?) f) END,
		(SELECT coalesce(max(task_id),0) FROM task) FROM `+newest, args...).Scan(&n, &few, &last)
	switch {
	case err != nil || !few.Valid:
		return commonNames, err
	case few.Int64 <= mostFew && of.byName:
		return fewNames, nil
	}
	if of.user == "" && d.server == nil { // a user's tasks lie apart: to look at many takes as long as to count
		err := d.reader.QueryRowContext(ctx, `SELECT n FROM `+newest, look(looked)...).Scan(&n)
		if err != nil || n >= manyLooked {
			return commonNames, err
		}
	}
	c.add("t.name>=? AND t.name<?", low, high)
	even := int64(math.Sqrt(pageTasks * float64(last)))
	c.args = append(c.args, even)
	err = d.reader.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM task t `+c.sql()+`LIMIT ?) few`, c.args...).Scan(&n)
	if n >= even && n > 0 {
		return commonNames, err
	}
	return rareNames, err
}
