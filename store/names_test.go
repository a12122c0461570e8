package store

import (
	"slices"
	"strings"
	"testing"
)

// A file of somebody else's can have tables with any names. They are names, and no
// statements: not where it is read, not where it is mended.
func TestNamesOfAForeignFileAreNoStatements(t *testing.T) {
	const inject = `x"; DELETE FROM task; DELETE FROM marker; --`
	for _, name := range []string{inject, `x; DELETE FROM task; --`, `two words`, `'`} {
		t.Run(name, func(t *testing.T) {
			d, to := open(t), open(t)
			id := whole(t, d, 1)
			harm(t, d, `CREATE TABLE `+quotedName(name)+`(task_id INTEGER REFERENCES task ON DELETE CASCADE, v)`)
			harm(t, d, `INSERT INTO `+quotedName(name)+` VALUES(77,'of no task')`)

			found := check(t, d)
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == Dangling && f.refers.table == name }) {
				t.Errorf("the rows of no task were not found: %+v", found)
			}
			r := must(d.Repair(t.Context(), found))(t)
			if len(r.Left) > 0 {
				t.Errorf("left: %+v", r.Left)
			}
			var n int
			ok(t, d.reader.QueryRowContext(t.Context(), `SELECT count(*) FROM `+quotedName(name)).Scan(&n))
			if n != 0 {
				t.Errorf("%d rows are still there", n)
			}
			if _, err := d.CopyTask(t.Context(), to, id, CopyOptions{}); err == nil || !strings.Contains(err.Error(), "has no table") {
				t.Errorf("a table that the other has not: %v", err)
			}
			if must(d.Task(t.Context(), id))(t).State != Complete {
				t.Error("the task is no more what it was")
			}
		})
	}
}
