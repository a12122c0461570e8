// Viewgen writes the migration that makes the view data: the paper's twelve
// columns (Cheng et al., Table 1) out of coded chunks, in SQL that any stock
// sqlite3 from 3.40 on can run.
//
// The view has two branches, of which a task takes one: few rails, side by side, or
// any number of them. Each is built in levels:
//
//	blocks  one row a block of 256 scans: base, width, packed bytes of each column
//	scans   one row a scan: counts
//	view    one row a scan: amperes, volts, watts
//
// Each level ends in "UNION ALL SELECT 0, … WHERE 0". The compound keeps SQLite
// from folding the level into the one above, which would work the block's
// values out again for every scan, or a scan's counts for every use; a WHERE on
// taskID still reaches the innermost table. Levels call each other's columns by
// short names: with hundreds of expressions the text stays small.
//
// Bytes become numbers by a look-up in _u16 (step 0002), by the two bytes that a value
// begins in. It is a join: as a subquery it would open the table anew for each value.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
)

// few is how many rails stand side by side: those of a card with three cables. Each
// that is not there still takes about a twentieth of the time.
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
-- in three quarters to half of the time that 0013's took.

`

// u16 looks two bytes of a blob up, from a position that counts from 1.
func u16(blob, pos string) string {
	return fmt.Sprintf("(SELECT v FROM _u16 WHERE b=substr(%s,%s,2))", blob, pos)
}

// port returns base, width, mask and packed bytes of one block of a column, as
// columns b<name>, w<name>, m<name>, d<name>. A column that is not there has base 0
// and no width. The base is signed: its upper bit weighs −2³¹.
func port(name, block string) []string {
	e := func(offset int) string { return u16(name+".dir", fmt.Sprintf("8*%s+%d", block, 1+offset)) }
	return []string{
		fmt.Sprintf("coalesce((%s|(%s<<16))-((%s>>15)<<32),0) b%s", e(0), e(2), e(2), name),
		fmt.Sprintf("%s w%s", e(4), name),
		fmt.Sprintf("(1<<%s)-1 m%s", e(4), name),
		fmt.Sprintf("substr(%s.data,1+32*%s,32*%s+8) d%s", name, e(6), e(4), name),
	}
}

// at is where the two bytes are that a count begins in, or those behind them.
func at(name string, further int) string {
	return fmt.Sprintf("((s.i*w%s)>>3)+%d", name, 1+further)
}

// lookUps joins what the two bytes are that each count begins in, as q<name>.
func lookUps(ports []string) string {
	var b strings.Builder
	for _, p := range ports {
		fmt.Fprintf(&b, "\nLEFT JOIN _u16 q%[1]s ON q%[1]s.b=substr(d%[1]s,%[2]s,2)", p, at(p, 0))
	}
	return b.String()
}

// count decodes the count at s.i. One look-up covers values of up to 9 bits
// wherever they begin in a byte, two up to 25, three all.
func count(name string) string {
	more := func(further int) string { return u16("d"+name, at(name, further)) }
	cut := fmt.Sprintf(">>((s.i*w%[1]s)&7))&m%[1]s", name)
	return fmt.Sprintf("b%[1]s+CASE WHEN w%[1]s<=9 THEN (q%[1]s.v%[4]s\n    WHEN w%[1]s<=25 THEN ((q%[1]s.v|(%[2]s<<16))%[4]s\n"+
		"    WHEN w%[1]s<=32 THEN ((q%[1]s.v|(%[2]s<<16)|(%[3]s<<32))%[4]s ELSE 0 END", name, more(2), more(4), cut)
}

// barrier is a SELECT that is not folded into the one above it.
func barrier(columns []string, rest string) string {
	zeros := strings.TrimSuffix(strings.Repeat("0,", len(columns)), ",")
	return "SELECT " + strings.Join(columns, ",\n  ") + "\n" + rest + "\nUNION ALL SELECT " + zeros + " WHERE 0"
}

// task is what both branches know of a block: the scan's number counts from
// the window's first scan (f), and scans lo to hi of the block are in the window.
var task = []string{
	"t.task_id tid", "t.name nm", "u.login us", "t.launched tm",
	"c.first_scan+256*p.i-coalesce(t.first_scan,(SELECT first_scan FROM chunk WHERE task_id=t.task_id ORDER BY chunk_no LIMIT 1)) f",
	"max(0,coalesce(t.first_scan,0)-c.first_scan-256*p.i) lo",
	"min(256,c.n-256*p.i,coalesce(t.end_scan-c.first_scan-256*p.i,256)) hi",
}

// from joins the tasks with so many rails to their blocks; between stands what comes
// before the chunks and columns what comes after. CROSS JOIN fixes the order of the loops.
func from(rails, between, columns string) string {
	return fmt.Sprintf(`FROM task t CROSS JOIN user u ON u.user_id=t.user_id AND t.cold=0
CROSS JOIN calibration k ON k.calibration_id=t.calibration_id AND (SELECT count(*) FROM rail WHERE calibration_id=k.calibration_id)%s
%sCROSS JOIN chunk c ON c.task_id=t.task_id AND (t.has_result=0 OR (c.first_scan<t.end_scan AND c.first_scan+c.n>t.first_scan))
%sCROSS JOIN _seq p ON p.i<(c.n+255)/256 AND p.i>=max(0,coalesce((t.first_scan-c.first_scan)/256,0))`, rails, between, columns)
}
