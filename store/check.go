package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/wattmark/wattmark/internal/lazy"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/internal/data"
)

// Kind is the sort of damage of a Finding.
type Kind string

// The kinds of damage.
const (
	BadPage     Kind = "page"     // SQLite cannot read a page of the file, or finds it inconsistent
	BadSchema   Kind = "schema"   // a table, view, index or trigger is missing or changed
	BadChunk    Kind = "chunk"    // a chunk does not pass its own checks
	MissingPart Kind = "missing"  // chunk numbers have a hole
	Overlap     Kind = "overlap"  // a chunk begins before the one before it ends
	Hole        Kind = "hole"     // scans are missing without an event
	BadCount    Kind = "count"    // the task's row counts other chunks or scans than there are
	BadResult   Kind = "result"   // a result differs from the chunks' or from the task's row
	BadPyramid  Kind = "pyramid"  // the pyramid does not agree with the chunks
	Dangling    Kind = "dangling" // rows that refer to a row that is not there
	BadSearch   Kind = "search"   // the full-text index lacks tasks, or has others
	BadTags     Kind = "tags"     // a list shows other tags than the task has
	BadLog      Kind = "log"      // the write-ahead log that a program left was damaged
	Unfinished  Kind = "partial"  // a task that a program which is gone stored or deleted in part
	BadState    Kind = "state"    // a task is hidden that no program has hidden
	// BadCalibration is a calibration of other numbers than its digest is of, or of which
	// one number does not follow from the others.
	BadCalibration Kind = "calibration"
	BadSeal        Kind = "seal" // a number of the task was changed after it had ended
	FalseGap       Kind = "gap"  // an event of lost scans that are there
)

// ChunkNo is the number of a chunk in its task. NoChunk, its zero in JSON, stands for none.
type ChunkNo int64

// NoChunk stands for none in a Finding.
const NoChunk ChunkNo = -1

// IsZero reports whether there is no chunk.
func (n ChunkNo) IsZero() bool { return n == NoChunk }

// Finding is one damage.
type Finding struct {
	Kind  Kind    `json:"kind"`
	Task  TaskID  `json:"task_id,omitempty"` // 0 for the file as a whole
	Chunk ChunkNo `json:"chunk,omitzero"`    // NoChunk where it is of no chunk
	What  string  `json:"what"`              // with the place
	// Remedy is the next step for the user. Repair mends findings that are Mendable.
	Remedy   string `json:"remedy"`
	Mendable bool   `json:"mendable"`

	name        string          // of BadSchema
	calibration int64           // of BadCalibration
	refers      foreignKey      // of Dangling
	to          int64           // value of the first column of refers
	events      []measure.Event // of FalseGap
	source      resultSource    // of BadResult
}

// CheckOptions bound the scope of a check.
type CheckOptions struct {
	Task TaskID // one task alone, without the file's own checks; 0 for everything
	// Quick reads the chunks' heads and the pyramid's pages, not the chunks.
	Quick bool
	// Progress is called after each task; nil for none.
	Progress func(done, of int)
}

// CheckReport counts the objects that Check read, and lists its findings.
type CheckReport struct {
	Tasks    uint64    `json:"tasks"`
	Chunks   uint64    `json:"chunks"`
	Scans    uint64    `json:"samples"` // one reading of all channels each
	Pages    uint64    `json:"pyramid_pages"`
	Findings []Finding `json:"findings"` // never nil
}

// checker is one Check. Its steps add findings and go on; an error ends the check only where the source of
// the error is not the file's damage.
type checker struct {
	d   *DB
	opt CheckOptions
	out CheckReport
	// strange are the calibrations whose numbers do not match their digest.
	strange map[int64]bool
}

// add appends a finding, printable and on one line, whatever the file holds.
func (c *checker) add(f Finding) {
	f.What = measure.Printable(f.What)
	c.out.Findings = append(c.out.Findings, f)
}

// found adds a finding that Repair mends, of a task, 0 for the file as a whole. The caller may note more in it
// until the next is added.
func (c *checker) found(kind Kind, task TaskID, remedy, format string, a ...any) *Finding {
	c.add(Finding{
		Kind: kind, Task: task, Chunk: NoChunk, Mendable: true, Remedy: remedy, What: fmt.Sprintf(format, a...),
	})
	return &c.out.Findings[len(c.out.Findings)-1]
}

// Check looks for damage: SQLite's own checks, the schema, rows that refer to nothing, calibrations against
// their digests, each task's chunks against their checksums, numbers and counts, its losses against its
// events, its results and pyramid against the chunks, and its row, markers and results against its seal. It
// changes nothing. Damage is no error: errors are of a check that could not be done. They wrap ErrNotFound
// for a task that is not there.
func (d *DB) Check(ctx context.Context, opt CheckOptions) (*CheckReport, error) {
	const op = "check the database"
	// A file without a log would keep writers out for as long as it is read.
	d.beside()
	c := &checker{d: d, opt: opt, out: CheckReport{Findings: []Finding{}}, strange: map[int64]bool{}}
	// The order matters: calibrations come before the tasks, which consult strange.
	ids := []TaskID{opt.Task}
	if opt.Task == 0 {
		var err error
		if err = c.file(ctx); err != nil {
			return nil, wrap(op, err)
		}
		ids, err = d.TaskIDs(ctx)
		if err == nil {
			err = c.calibrations(ctx, 0)
		}
		// Without the list of tasks there is nothing to walk through.
		if isCorrupt(err) {
			c.add(unreadable("tables task and calibration", err))
			c.out.settle()
			return &c.out, nil
		} else if err != nil {
			return nil, wrap(op, err)
		}
	}
	// Each task is read in a transaction of its own, so that a check of hours holds back no writer.
	for i, id := range ids {
		switch err := c.task(ctx, id); {
		case isCorrupt(err):
			f := unreadable(fmt.Sprintf("task %d", id), err)
			f.Task = id
			c.add(f)
		case errors.Is(err, ErrNotFound) && opt.Task == 0:
			continue // it was deleted meanwhile
		case err != nil:
			return nil, wrap(fmt.Sprintf("%s: task %d", op, id), err)
		}
		c.out.Tasks++
		if opt.Progress != nil {
			opt.Progress(i+1, len(ids))
		}
	}
	c.out.settle()
	return &c.out, nil
}

// settle makes all findings unmendable where a page is torn: nothing may write into a file whose
// pages cannot be trusted.
func (r *CheckReport) settle() {
	if !slices.ContainsFunc(r.Findings, torn) {
		return
	}
	for i := range r.Findings {
		r.Findings[i].Mendable, r.Findings[i].Remedy = false, salvageRemedy
	}
}

// torn reports whether a finding is of a page that cannot be mended.
func torn(f Finding) bool { return f.Kind == BadPage && !f.Mendable }

// isCorrupt reports whether an error comes from damage of the file.
// wrap maps the driver's codes (SQLITE_CORRUPT, SQLITE_NOTADB) to ErrCorrupt.
func isCorrupt(err error) bool { return errors.Is(wrap("", err), ErrCorrupt) }

const salvageRemedy = "save what can be read: wattmark db repair --salvage NEW.db; or go back to a backup"

// unreadable is the finding of a part of the file that cannot be read.
func unreadable(what string, err error) Finding {
	return Finding{
		Kind: BadPage, Chunk: NoChunk, What: fmt.Sprintf("%s cannot be read: %v", what, err), Remedy: salvageRemedy,
	}
}

// file checks the parts that belong to no task. A part that cannot be read becomes a finding,
// and the others are checked nevertheless.
func (c *checker) file(ctx context.Context) error {
	for _, f := range []func(*session){c.pages, c.schema, c.dangling, c.search, c.tags, c.unfinished, c.log} {
		s := c.d.reading(ctx)
		f(s)
		if isCorrupt(s.err) {
			c.add(unreadable("the file", s.err))
		} else if s.err != nil {
			return s.err
		}
	}
	return nil
}

// Messages of SQLite's check: of a table or index by its root page, and of an index that lacks rows.
var (
	tree     = lazy.Regexp(`^Tree (\d+)`)
	badIndex = lazy.Regexp(`(missing from|wrong # of entries in) index`)
)

// pages runs SQLite's own check, quick or whole, and turns each of its messages into a finding.
func (c *checker) pages(q *session) {
	pragma := "PRAGMA main.integrity_check(100)"
	if c.opt.Quick {
		pragma = "PRAGMA main.quick_check(100)"
	}
	// A row of the pragma may hold several lines, with a heading between asterisks.
	var lines []string
	for rows := range q.rows(pragma) {
		var s string
		q.fail(rows.Scan(&s))
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); line != "ok" && !strings.HasPrefix(line, "***") {
				lines = append(lines, line)
			}
		}
	}
	// A page that cannot be read ends the pragma itself; the lines until then count.
	if q.err != nil && len(lines) > 0 {
		lines, q.err = append(lines, q.err.Error()), nil
	}
	for _, s := range lines {
		f := Finding{Kind: BadPage, Chunk: NoChunk, What: s, Remedy: salvageRemedy}
		if m := tree().FindStringSubmatch(s); m != nil {
			var kind, name string // else the number alone must do
			if c.d.reading(q.ctx).row(`SELECT type, name FROM main.sqlite_master
				WHERE rootpage=CAST(? AS INTEGER)`, m[1]).found(&kind, &name) {
				f.What += fmt.Sprintf(" (%s %s)", kind, name)
			}
		}
		if strings.Contains(s, "task_text") {
			f.Kind, f.Remedy, f.Mendable = BadSearch, "db repair makes it anew", true
		}
		// An index can be made from its table, so the page counts as mendable, and the file as not torn.
		if badIndex().MatchString(s) {
			f.Remedy, f.Mendable, f.name = "db repair makes the index anew", true, "REINDEX"
		}
		c.add(f)
	}
}

// schema compares the file with a new database.
func (c *checker) schema(s *session) {
	want, err := reference()
	s.fail(err)
	got := objects(s)
	if s.err != nil {
		return
	}
	// Objects that are there and not wanted are left alone: users may add indexes and views.
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w := want[name]
		g, there := got[name]
		if there && (g.sql == w.sql || canonicalSQL(g.sql) == canonicalSQL(w.sql)) {
			continue
		}
		what := "was changed"
		if !there {
			what = "is missing"
		}
		f := c.found(BadSchema, 0, "db repair makes it anew", "%s %s %s", w.kind, name, what)
		// A table holds data: making it anew would lose them.
		if f.name = name; w.kind == "table" {
			f.Mendable, f.Remedy = false, salvageRemedy
		}
	}
	c.lookup(s)
}

// lookup checks the table in which the view data looks bytes up.
// 65 536 rows: the two little-endian bytes b of each v.
func (c *checker) lookup(s *session) {
	good := 0
	var b sql.RawBytes
	for rows := range s.rows(`SELECT b, v FROM _u16`) {
		var v int
		s.fail(rows.Scan(&b, &v))
		if len(b) == 2 && int(b[0])|int(b[1])<<8 == v {
			good++
		}
	}
	if s.err == nil && good != 1<<16 {
		c.found(BadSchema, 0, "db repair fills it anew",
			"table _u16, in which the view data looks bytes up, has %d right rows of 65536", good).name = "_u16"
	}
}

// foreignKey is columns of a table that name a row of another.
type foreignKey struct {
	table, parent string
	from, to      []string
	deletes       string // action when the parent row is deleted
}

// foreignKeys finds the foreign keys of all tables.
func foreignKeys(s *session) (out []foreignKey) {
	type column struct {
		table, parent, from, to, deletes string
		first                            bool
	}
	// A foreign key without named columns refers to the parent's primary key, in the order seq.
	list := all(s, func(rows *sql.Rows, c *column) error {
		return rows.Scan(&c.table, &c.parent, &c.from, &c.to, &c.deletes, &c.first)
	}, `SELECT m.name, f."table", f."from", coalesce(f."to", (SELECT p.name FROM pragma_table_info(f."table", 'main') p
		WHERE p.pk=f.seq+1)), f.on_delete, f.seq=0 FROM main.sqlite_master m, pragma_foreign_key_list(m.name, 'main') f
		WHERE m.type='table' ORDER BY m.name, f.id, f.seq`)
	for _, c := range list {
		// Rows of one key follow each other; the first has seq 0.
		if c.first {
			out = append(out, foreignKey{table: c.table, parent: c.parent, deletes: c.deletes})
		}
		last := &out[len(out)-1]
		last.from, last.to = append(last.from, c.from), append(last.to, c.to)
	}
	return out
}

// rows is the condition of the rows that refer to nothing.
// A key with a NULL in any column refers to nothing and is intact.
func (r *foreignKey) rows() string {
	var same, set []string
	for i := range r.from {
		from := quotedName(r.table) + "." + quotedName(r.from[i])
		set = append(set, from+" IS NOT NULL")
		same = append(same, "p."+quotedName(r.to[i])+"="+from)
	}
	return strings.Join(set, " AND ") + " AND NOT EXISTS (SELECT 1 FROM " + quotedName(r.parent) + " p WHERE " +
		strings.Join(same, " AND ") + ")"
}

// dangling looks for rows that refer to a row that is not there, as PRAGMA foreign_key_check does.
func (c *checker) dangling(s *session) {
	for _, k := range foreignKeys(s) {
		by := quotedName(k.from[0])
		for _, r := range all(s, func(rows *sql.Rows, x *[2]int64) error { return rows.Scan(&x[0], &x[1]) },
			`SELECT `+by+`, count(*) FROM `+quotedName(k.table)+` WHERE `+k.rows()+` GROUP BY 1`) {
			f := c.found(Dangling, 0, "db repair sets them aside",
				"table %s has %s whose %s (%s %d) is in no row of table %s",
				k.table, measure.Plural(r[1], "row"), strings.Join(k.from, ", "), k.from[0], r[0], k.parent)
			f.refers, f.to = k, r[0]
			// Which reference it is decides over the remedy: rows of a task go aside, tasks of a user
			// get one, and a lost calibration can be mended by nothing.
			switch {
			case k.from[0] == "task_id":
				f.Task = TaskID(r[0])
			case k.parent == "user":
				f.Remedy = "these tasks have no user; db repair makes one of that number, " + lostUser(r[0])
			case k.parent == "calibration" && (k.table == "task" || k.table == "result"):
				f.Mendable, f.Remedy = false, calibrationRemedy
				c.strange[r[0]] = true
			}
			if k.deletes == "SET NULL" {
				f.Remedy = "db repair makes it NULL"
			}
			if k.table == "task" || k.table == "result" {
				whose(s, f)
			}
		}
	}
}

// whose adds the tasks whose rows refer to nothing to a finding.
func whose(s *session, f *Finding) {
	ids := values[TaskID](s, `SELECT DISTINCT task_id FROM `+quotedName(f.refers.table)+` WHERE `+
		quotedName(f.refers.from[0])+`=? AND `+f.refers.rows()+` ORDER BY 1`, f.to)
	if len(ids) > 0 {
		f.Task = ids[0]
		f.What += ": of " + someTasks(ids)
	}
}

// lostUser is the login of a user of whom only the number is known.
func lostUser(id int64) string { return fmt.Sprintf("lost-user-%d", id) }

// carriedTags computes the column tags of a task t from task_tag.
// json_group_object keeps the order of its rows, so equal tags give equal texts; no tags give NULL.
const carriedTags = `(SELECT nullif(json_group_object(key,value),'{}') FROM (SELECT key, value FROM task_tag g
	WHERE g.task_id=t.task_id ORDER BY key))`

// search compares the full-text index with the tasks.
func (c *checker) search(s *session) {
	var without, strange int
	s.row(`SELECT (SELECT count(*) FROM task WHERE task_id NOT IN (SELECT rowid FROM task_text)),
		(SELECT count(*) FROM task_text WHERE rowid NOT IN (SELECT task_id FROM task))`).into(&without, &strange)
	if without+strange > 0 {
		c.found(BadSearch, 0, "db repair makes it anew", "the full-text index lacks %s, and has %d that are not there",
			measure.Plural(without, "task"), strange)
	}
}

// tags compares the column tags, which lists show, with the tags of the tasks.
func (c *checker) tags(s *session) {
	// IS NOT compares NULL with NULL as equal.
	if n := one[int](s, `SELECT count(*) FROM task t WHERE t.tags IS NOT `+carriedTags); n > 0 {
		c.found(BadTags, 0, "db repair carries them anew", "lists show other tags of %s than these have",
			measure.Plural(n, "task"))
	}
}

// object is an entry of SQLite's list of tables, views, indexes and triggers.
type object struct{ kind, name, sql string }

// reference is the schema of a new database, by name.
// It is made once a process, in memory, and read by name.
var reference = sync.OnceValues(func() (map[string]object, error) {
	ctx := context.Background()
	db := sql.OpenDB(data.Connector("file::memory:?_error_rc=1"))
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
	defer db.Close()
	if err := createSchema(ctx, db); err != nil {
		return nil, err
	}
	s := &session{ctx: ctx, on: db}
	out := objects(s)
	return out, s.err
})

// objects reads the schema of a database, by name, without SQLite's own objects.
func objects(s *session) map[string]object {
	out := map[string]object{}
	for rows := range s.rows(`SELECT type, name, coalesce(sql,'') FROM main.sqlite_master
		WHERE name NOT LIKE 'sqlite_%'`) {
		var o object
		s.fail(rows.Scan(&o.kind, &o.name, &o.sql))
		out[o.name] = o
	}
	return out
}

// sqlToken matches texts, quoted names, comments, words and signs of SQL.
var sqlToken = lazy.Regexp(`'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|[\w.]+|\S`)

// canonicalSQL is a statement without comments, with one blank between tokens: a file keeps the
// text by which a table was made, and that of columns that were added later.
func canonicalSQL(text string) string {
	tokens := sqlToken().FindAllString(text, -1)
	return strings.Join(slices.DeleteFunc(tokens, func(t string) bool { return strings.HasPrefix(t, "--") }), " ")
}

// quoted quotes names and joins them by commas.
func quoted(names []string) string {
	out := lists.Map(names, func(n string) string { return `"` + strings.ReplaceAll(n, `"`, `""`) + `"` })
	return strings.Join(out, ",")
}

// quotedName quotes one name. Tables of a foreign database have any names.
func quotedName(name string) string { return quoted([]string{name}) }
