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

// dangling looks for rows of tasks that are not there.
func (c *checker) dangling(ctx context.Context) error {
	tables, err := ownedTables(ctx, c.d.reader)
	if err != nil {
		return err
	}
	for _, t := range tables {
		rows, err := collect(ctx, c.d.reader, func(rows *sql.Rows, x *[2]int64) error { return rows.Scan(&x[0], &x[1]) },
			`SELECT task_id, count(*) FROM `+quotedName(t.name)+` WHERE task_id IS NOT NULL AND `+danglingRows(t.name)+` GROUP BY task_id`)
		if err != nil {
			return err
		}
		for _, r := range rows {
			c.add(Finding{
				Kind: Dangling, Task: TaskID(r[0]), Chunk: NoChunk, What: fmt.Sprintf("table %s has %d row(s) of a task or chunk that is not there", t.name, r[1]),
				Remedy: "db repair sets them aside", Mendable: true, table: t.name,
			})
		}
	}
	return nil
}

// danglingRows is the condition of a table's rows that belong to nothing.
func danglingRows(table string) string {
	if table == "chunk_column" || table == "chunk_cold" {
		return `NOT EXISTS (SELECT 1 FROM chunk h WHERE h.task_id="` + table + `".task_id AND h.chunk_no="` + table + `".chunk_no)`
	}
	return `task_id NOT IN (SELECT task_id FROM task)`
}

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
