package store

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// file checks what belongs to no task.
func (c *checker) file(ctx context.Context) error {
	for _, f := range []func(context.Context) error{c.pages, c.schema, c.dangling, c.search, c.tags, c.unfinished, c.log} {
		err := f(ctx)
		if isCorrupt(err) {
			c.add(unreadable("the file", err))
		} else if err != nil {
			return err
		}
	}
	return nil
}

// What SQLite's check says of a table or index by its root page, and of an index that
// lacks rows.
var (
	tree     = regexp.MustCompile(`^Tree (\d+)`)
	badIndex = regexp.MustCompile(`(missing from|wrong # of entries in) index`)
)

// pages asks SQLite itself.
func (c *checker) pages(ctx context.Context) error {
	pragma := "PRAGMA main.integrity_check(100)"
	if c.opt.Quick {
		pragma = "PRAGMA main.quick_check(100)"
	}
	rows, err := c.d.reader.QueryContext(ctx, pragma)
	if err != nil {
		return err
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return err
		}
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); line != "ok" && !strings.HasPrefix(line, "***") {
				lines = append(lines, line)
			}
		}
	}
	if err := rows.Err(); err != nil {
		lines = append(lines, err.Error())
	}
	rows.Close()
	for _, s := range lines {
		f := Finding{Kind: BadPage, Chunk: NoChunk, What: s, Remedy: salvageRemedy}
		if m := tree.FindStringSubmatch(s); m != nil {
			f.What += c.treeName(ctx, m[1])
		}
		if strings.Contains(s, "task_text") {
			f.Kind, f.Remedy, f.Mendable = BadSearch, "db repair makes it anew", true
		}
		if badIndex.MatchString(s) {
			f.Remedy, f.Mendable, f.name = "db repair makes the index anew", true, "REINDEX"
		}
		c.add(f)
	}
	return nil
}

// treeName is the table or index that a root page belongs to, in brackets.
func (c *checker) treeName(ctx context.Context, root string) string {
	n, err := strconv.Atoi(root)
	if err != nil {
		return ""
	}
	var kind, name string
	if err := c.d.reader.QueryRowContext(ctx, `SELECT type, name FROM main.sqlite_master WHERE rootpage=?`, n).Scan(&kind, &name); err != nil {
		return "" // the number alone must do
	}
	return fmt.Sprintf(" (%s %s)", kind, name)
}

// schema compares with what the migrations make.
func (c *checker) schema(ctx context.Context) error {
	want, err := reference()
	if err != nil {
		return err
	}
	got, err := objects(ctx, c.d.reader)
	if err != nil {
		return err
	}
	for name, w := range want {
		g, there := got[name]
		if there && g.sql == w.sql {
			continue
		}
		f := Finding{Kind: BadSchema, Chunk: NoChunk, What: fmt.Sprintf("%s %s was changed", w.kind, name), name: name}
		if !there {
			f.What = fmt.Sprintf("%s %s is missing", w.kind, name)
		}
		if f.Mendable = w.kind != "table"; f.Mendable {
			f.Remedy = "db repair makes it anew"
		} else {
			f.Remedy = salvageRemedy
		}
		c.add(f)
	}
	slices.SortFunc(c.out.Findings, func(a, b Finding) int { return compareKinds(a, b) })
	return c.lookup(ctx)
}

// lookup checks the table in which the view data looks bytes up.
func (c *checker) lookup(ctx context.Context) error {
	rows, err := c.d.reader.QueryContext(ctx, `SELECT b, v FROM _u16`)
	if err != nil {
		return err
	}
	defer rows.Close()
	good := 0
	var b sql.RawBytes
	for rows.Next() {
		var v int
		if err := rows.Scan(&b, &v); err != nil {
			return err
		}
		if len(b) == 2 && int(b[0])|int(b[1])<<8 == v {
			good++
		}
	}
	if err := rows.Err(); err != nil || good == 1<<16 {
		return err
	}
	c.add(Finding{
		Kind: BadSchema, Chunk: NoChunk, name: "_u16", Mendable: true, Remedy: "db repair fills it anew",
		What: fmt.Sprintf("table _u16, in which the view data looks bytes up, has %d right rows of 65536", good),
	})
	return nil
}

func compareKinds(a, b Finding) int {
	if a.Kind != b.Kind || a.Kind != BadSchema {
		return 0
	}
	if a.name < b.name {
		return -1
	}
	return 1
}

// foreignKey is columns of a table that name a row of another.
type foreignKey struct {
	table, parent string
	from, to      []string
	deletes       string // what becomes of the row when the other is deleted
}

// foreignKeys finds the foreign keys of all tables.
func foreignKeys(ctx context.Context, q querier) (out []foreignKey, err error) {
	type column struct {
		table, parent, from, to, deletes string
		first                            bool
	}
	list, err := collect(ctx, q, func(rows *sql.Rows, c *column) error {
		return rows.Scan(&c.table, &c.parent, &c.from, &c.to, &c.deletes, &c.first)
	}, `SELECT m.name, f."table", f."from", coalesce(f."to", (SELECT p.name FROM pragma_table_info(f."table", 'main') p WHERE p.pk=f.seq+1)), f.on_delete, f.seq=0
		FROM main.sqlite_master m, pragma_foreign_key_list(m.name, 'main') f WHERE m.type='table' ORDER BY m.name, f.id, f.seq`)
	for _, c := range list {
		if c.first {
			out = append(out, foreignKey{table: c.table, parent: c.parent, deletes: c.deletes})
		}
		last := &out[len(out)-1]
		last.from, last.to = append(last.from, c.from), append(last.to, c.to)
	}
	return out, err
}

// rows is the condition of the rows that refer to nothing.
func (r *foreignKey) rows() string {
	var same, set []string
	for i := range r.from {
		from := quotedName(r.table) + "." + quotedName(r.from[i])
		set = append(set, from+" IS NOT NULL")
		same = append(same, "p."+quotedName(r.to[i])+"="+from)
	}
	return strings.Join(set, " AND ") + " AND NOT EXISTS (SELECT 1 FROM " + quotedName(r.parent) + " p WHERE " + strings.Join(same, " AND ") + ")"
}

// dangling looks for rows that refer to a row that is not there, as PRAGMA
// foreign_key_check does.
func (c *checker) dangling(ctx context.Context) error {
	keys, err := foreignKeys(ctx, c.d.reader)
	if err != nil {
		return err
	}
	for _, k := range keys {
		by := quotedName(k.from[0])
		rows, err := collect(ctx, c.d.reader, func(rows *sql.Rows, x *[2]int64) error { return rows.Scan(&x[0], &x[1]) },
			`SELECT `+by+`, count(*) FROM `+quotedName(k.table)+` WHERE `+k.rows()+` GROUP BY 1`)
		if err != nil {
			return err
		}
		for _, r := range rows {
			f := Finding{
				Kind: Dangling, Chunk: NoChunk, Mendable: true, Remedy: "db repair sets them aside", refers: k, to: r[0],
				What: fmt.Sprintf("table %s has %d row(s) whose %s (%s %d) is in no row of table %s", k.table, r[1], strings.Join(k.from, ", "), k.from[0], r[0], k.parent),
			}
			switch {
			case k.from[0] == "task_id":
				f.Task = TaskID(r[0])
			case k.parent == "user":
				f.Remedy = "no list shows these tasks; db repair makes a user of that number, " + lostUser(r[0])
			case k.parent == "calibration" && (k.table == "task" || k.table == "result"):
				f.Mendable, f.Remedy = false, calibrationRemedy
				c.strange[r[0]] = true
			}
			if k.deletes == "SET NULL" {
				f.Remedy = "db repair makes it NULL"
			}
			if k.table == "task" || k.table == "result" {
				if err := c.whose(ctx, &f); err != nil {
					return err
				}
			}
			c.add(f)
		}
	}
	return nil
}

// whose names the tasks whose rows refer to nothing.
func (c *checker) whose(ctx context.Context, f *Finding) error {
	ids, err := collect(ctx, c.d.reader, func(rows *sql.Rows, id *TaskID) error { return rows.Scan(id) },
		`SELECT DISTINCT task_id FROM `+quotedName(f.refers.table)+` WHERE `+quotedName(f.refers.from[0])+`=? AND `+f.refers.rows()+` ORDER BY 1`, f.to)
	if err != nil || len(ids) == 0 {
		return err
	}
	f.Task = ids[0]
	f.What += ": of " + someTasks(ids)
	return nil
}

// lostUser is the login of a user of whom only the number is known.
func lostUser(id int64) string { return fmt.Sprintf("lost-user-%d", id) }

// search compares the full-text index with the tasks.
func (c *checker) search(ctx context.Context) error {
	var without, strange int
	err := c.d.reader.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM task WHERE task_id NOT IN (SELECT rowid FROM task_text)),
		(SELECT count(*) FROM task_text WHERE rowid NOT IN (SELECT task_id FROM task))`).Scan(&without, &strange)
	if err == nil && without+strange > 0 {
		c.add(Finding{
			Kind: BadSearch, Chunk: NoChunk, What: fmt.Sprintf("the full-text index lacks %d task(s), and has %d that are not there", without, strange),
			Remedy: "db repair makes it anew", Mendable: true,
		})
	}
	return err
}

// carriedTags is what the row of a task t carries of its tags.
const carriedTags = `(SELECT nullif(json_group_object(key,value),'{}') FROM (SELECT key, value FROM task_tag g WHERE g.task_id=t.task_id ORDER BY key))`

// tags compares what lists show with the tags of the tasks.
func (c *checker) tags(ctx context.Context) error {
	var n int
	err := c.d.reader.QueryRowContext(ctx, `SELECT count(*) FROM task t WHERE t.tags IS NOT `+carriedTags).Scan(&n)
	if err == nil && n > 0 {
		c.add(Finding{
			Kind: BadTags, Chunk: NoChunk, What: fmt.Sprintf("lists show other tags of %d task(s) than these have", n),
			Remedy: "db repair carries them anew", Mendable: true,
		})
	}
	return err
}
