// Viewgen writes the migration that makes the view data: the paper's twelve
// columns (Cheng et al., Table 1) out of coded chunks, in SQL that any stock
// sqlite3 from 3.40 on can run.
//
// The view has three branches, of which a task takes one: a rail a role, few rails
// of whatever roles, or any number of them. Each is built in levels:
//
//	blocks  one row a block of 256 scans: width and packed bytes of each column
//	groups  one row one, four or eight scans: each column's values, as one number
//	scans   one row a scan: amperes and volts of the roles
//	view    one row a scan: what the query names
//
// Each level ends in "UNION ALL SELECT 0, … WHERE 0". The compound keeps SQLite
// from folding the level into the one above, which would work the block's
// values out again for every scan, or a scan's for every use; a WHERE on
// taskID still reaches the innermost table. Levels call each other's columns by
// short names: with hundreds of expressions the text stays small.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
)

// few is how many rails stand side by side: those of a card with three cables.
const few = 5

func main() {
	out := flag.String("o", "", "file to write")
	flag.Parse()
	if err := os.WriteFile(*out, []byte(Migration()), 0o644); err != nil {
		log.Fatal(err)
	}
}

// Migration returns the whole text.
func Migration() string {
	return header + "DROP VIEW data;\nCREATE VIEW data AS\n" + view() + ";\n"
}

const header = `-- Written by store/internal/viewgen; never change a released migration.
-- The view data decodes the chunks (docs/format.md) into the paper's twelve columns,
-- up to eight scans together: in half of the time that 0016's took where each rail is
-- all of its role.

`

// barrier is a SELECT that is not folded into the one above it.
func barrier(columns []string, rest string) string {
	zeros := strings.TrimSuffix(strings.Repeat("0,", len(columns)), ",")
	return selected(columns, rest) + "\nUNION ALL SELECT " + zeros + " WHERE 0"
}

func selected(columns []string, rest string) string {
	return "SELECT " + strings.Join(columns, ",\n  ") + "\n" + rest
}

// names returns what the levels above call columns: what stands behind the last blank.
func names(columns []string) (out []string) {
	for _, c := range columns {
		out = append(out, c[strings.LastIndexByte(c, ' ')+1:])
	}
	return out
}

// task is what all branches know of a block: the scan's number counts from
// the window's first scan (f), and scans lo to hi of the block are in the window.
var task = []string{
	"t.task_id tid", "t.name nm", "u.login us", "t.launched tm",
	"c.first_scan+256*p.i-coalesce(t.first_scan,(SELECT first_scan FROM chunk WHERE task_id=t.task_id ORDER BY chunk_no LIMIT 1)) f",
	"max(0,coalesce(t.first_scan,0)-c.first_scan-256*p.i) lo",
	"min(256,c.n-256*p.i,coalesce(t.end_scan-c.first_scan-256*p.i,256)) hi",
}

// Branches.
const (
	ownRoles  = iota // rails that each are all of a role that the paper has columns for
	fewRails         // other tasks with up to few rails
	manyRails        // all other tasks
)

// from joins the tasks of a branch to their blocks; between stands what comes before
// the chunks and columns what comes after. CROSS JOIN fixes the order of the loops.
func from(branch int, between, columns string) string {
	return fmt.Sprintf(`FROM task t CROSS JOIN user u ON u.user_id=t.user_id AND t.cold=0
CROSS JOIN calibration k ON k.calibration_id=t.calibration_id AND (SELECT CASE WHEN count(*)>%d THEN %d
  WHEN count(*)=count(DISTINCT role) AND max(role)<=%d THEN %d ELSE %d END FROM rail WHERE calibration_id=k.calibration_id)=%d
%sCROSS JOIN chunk c ON c.task_id=t.task_id AND (t.has_result=0 OR (c.first_scan<t.end_scan AND c.first_scan+c.n>t.first_scan))
%sCROSS JOIN _seq p ON p.i<(c.n+255)/256 AND p.i>=max(0,coalesce((t.first_scan-c.first_scan)/256,0))`,
		few, manyRails, roles, ownRoles, fewRails, branch, between, columns)
}
