// Package viewgen writes view.sql, which makes the view data: the paper's twelve columns (Cheng et
// al., Table 1) out of coded chunks, in SQL that any stock sqlite3 from 3.40 on can run.
//
// The view has three branches, of which a task takes one: one rail a role, few rails of any
// roles, or any number of rails. Each branch is built in levels:
//
//	blocks  one row a block of 256 scans: width and packed bytes of each column
//	groups  one row one, four or eight scans: each column's values, as one number
//	scans   one row a scan: amperes and volts of the roles
//	view    one row a scan: the columns of the view
//
// Each level ends in "UNION ALL SELECT 0, … WHERE 0". The compound keeps SQLite from folding
// the level into the one above, which would compute the block's values again for every scan,
// or a scan's for every use; a WHERE on taskID still reaches the innermost table. Levels
// call each other's columns by short names: with hundreds of expressions the text stays small.
//
// The text is part of schema 26: db check compares it with that of a file.
package viewgen

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// few is the number of rails that stand side by side: those of a card with three cables.
const few = 5

// viewSQL returns the text of view.sql.
func viewSQL() string {
	bytes := make([]byte, 256)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	return fmt.Sprintf(lookUp, hex.EncodeToString(bytes)) + "CREATE VIEW data AS\n" + view() + ";\n" + coldView
}

// lookUp makes the tables in which the view finds numbers and the value of two bytes.
const lookUp = `-- Written by store/internal/viewgen: change that, and run go generate ./store.
-- The view data decodes the chunks (docs/format.md) into the paper's twelve columns, up to
-- eight scans together.

CREATE TABLE _seq(i INTEGER PRIMARY KEY) STRICT;
WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM s WHERE i<1023) INSERT INTO _seq SELECT i FROM s;

CREATE TABLE _u16(b BLOB PRIMARY KEY, v INTEGER NOT NULL) STRICT, WITHOUT ROWID;
WITH byte(i,b) AS MATERIALIZED (SELECT i, substr(x'%s',1+i,1) FROM _seq WHERE i<256)
INSERT INTO _u16 SELECT CAST(lo.b||hi.b AS BLOB), hi.i<<8|lo.i FROM byte lo CROSS JOIN byte hi; -- in their order

`

// coldView lists the tasks that the view data cannot read, with the way out.
const coldView = `
CREATE VIEW cold AS SELECT task_id taskID, name taskName,
  'packed: wattmark reads it as it is; wattmark db expand ' || task_id || ' brings it back for other programs' message
FROM task WHERE cold=1;
`

// barrier is a SELECT that is not folded into the one above it.
func barrier(columns []string, rest string) string {
	zeros := strings.TrimSuffix(strings.Repeat("0,", len(columns)), ",")
	return selected(columns, rest) + "\nUNION ALL SELECT " + zeros + " WHERE 0"
}

// selected is a SELECT of columns.
func selected(columns []string, rest string) string {
	return "SELECT " + strings.Join(columns, ",\n  ") + "\n" + rest
}

// names returns the names by which the levels above refer to columns: the last word of each.
func names(columns []string) (out []string) {
	for _, c := range columns {
		out = append(out, c[strings.LastIndexByte(c, ' ')+1:])
	}
	return out
}

// task are the columns that all branches have of a block: sequence numbers count from the
// window's first scan (f), and scans lo to hi of the block are in the window.
var task = []string{
	"t.task_id tid", "t.name nm", "u.login us", "t.launched tm",
	"c.first_scan+256*p.i-coalesce(t.first_scan," +
		"(SELECT first_scan FROM chunk WHERE task_id=t.task_id ORDER BY chunk_no LIMIT 1)) f",
	"max(0,coalesce(t.first_scan,0)-c.first_scan-256*p.i) lo",
	"min(256,c.n-256*p.i,coalesce(t.end_scan-c.first_scan-256*p.i,256)) hi",
}

// Branches.
const (
	ownRoles  = iota // rails that each are all of a role that the paper has columns for
	fewRails         // other tasks with up to few rails
	manyRails        // all other tasks
)

// from joins the tasks of a branch to their blocks: between holds the joins before the chunks,
// columns those after. CROSS JOIN fixes the order of the loops.
func from(branch int, between, columns string) string {
	return fmt.Sprintf(`FROM task t CROSS JOIN user u ON u.user_id=t.user_id AND t.cold=0
CROSS JOIN calibration k ON k.calibration_id=t.calibration_id AND (SELECT CASE WHEN count(*)>%d THEN %d
  WHEN count(*)=count(DISTINCT role) AND max(role)<=%d THEN %d ELSE %d END FROM rail `+
		`WHERE calibration_id=k.calibration_id)=%d
%sCROSS JOIN chunk c ON c.task_id=t.task_id `+
		`AND (t.has_result=0 OR (c.first_scan<t.end_scan AND c.first_scan+c.n>t.first_scan))
%sCROSS JOIN _seq p ON p.i<(c.n+255)/256 AND p.i>=max(0,coalesce((t.first_scan-c.first_scan)/256,0))`,
		few, manyRails, roles, ownRoles, fewRails, branch, between, columns)
}

// roles of rails that the paper's table has columns for: PSU, PCIe 3.3 V, PCIe 12 V.
const roles = 3

// view names the amperes, volts and watts of all tasks' scans. Each branch returns, by role,
// amperes a, volts v, and 1 as g, or NULL where the role has no rail, or one that reads
// watts: there is neither current nor voltage then. pw is the power where that is not the
// sum of a·v.
func view() string {
	columns := []string{"tid taskID", "nm taskName", "us user", "coalesce(pw,a1*v1+a2*v2+a3*v3) power"}
	for _, av := range []string{"a%[1]d*g%[1]d current%[1]d", "v%[1]d*g%[1]d voltage%[1]d"} {
		for role := 1; role <= roles; role++ {
			columns = append(columns, fmt.Sprintf(av, role))
		}
	}
	columns = append(columns, "tm taskTime", "CAST(seq AS INTEGER) seqNum")
	return selected(columns,
		"FROM (\n"+strings.Join([]string{ofOwnRoles(), ofFewRails(), ofManyRails(), cold()}, "\nUNION ALL ")+")")
}

// perScan are the columns of a branch for a scan: its number, the power that stands in for
// the sum of a·v, and for each role the expressions a, v and g of the function of.
func perScan(seq, pw string, of func(role int) (a, v, g string)) []string {
	out := []string{"tid", "nm", "us", "tm", seq + " seq", pw + " pw"}
	for role := 1; role <= roles; role++ {
		a, v, g := of(role)
		out = append(out, fmt.Sprintf("%s a%d", a, role), fmt.Sprintf("%s v%d", v, role),
			fmt.Sprintf("%s g%d", g, role))
	}
	return out
}

// rail joins one rail of the calibration, the only one that matches, and the columns
// that it is read from, as x<n> and y<n>. One that is not there has coefficients of 0.
func rail(n int, which string) (rail, columns string) {
	rail = fmt.Sprintf("LEFT JOIN rail r%[1]d ON r%[1]d.calibration_id=k.calibration_id AND r%[1]d.%[2]s=%[1]d\n", n,
		which)
	for _, xy := range []string{"x", "y"} {
		columns += fmt.Sprintf("LEFT JOIN chunk_column %[1]s%[2]d ON %[1]s%[2]d.task_id=c.task_id "+
			"AND %[1]s%[2]d.chunk_no=c.chunk_no AND %[1]s%[2]d.col=r%[2]d.%[1]s\n",
			xy, n)
	}
	return rail, columns
}

// sideBySide are the blocks of tasks whose rails stand side by side, numbered from one
// number to another by a column of their table: the columns of task, the coefficients
// i0, ix, iy, v0, vy of each rail, and extra.
func sideBySide(branch int, which string, first, last int, extra []string) (blocks string, ports, pass []string) {
	columns := append([]string{}, task...)
	var rails, joins strings.Builder
	var coefficients []string
	for n := first; n <= last; n++ {
		r, c := rail(n, which)
		rails.WriteString(r)
		joins.WriteString(c)
		for _, c := range []string{"i0", "ix", "iy", "v0", "vy"} {
			columns = append(columns, fmt.Sprintf("coalesce(r%[1]d.%[2]s,0.0) %[2]s%[1]d", n, c))
			coefficients = append(coefficients, fmt.Sprint(c, n))
		}
		for _, p := range []string{fmt.Sprintf("x%d", n), fmt.Sprintf("y%d", n)} {
			columns = append(columns, port(p, "p.i")...)
			ports = append(ports, p)
		}
	}
	columns = append(append(columns, granted()...), extra...)
	pass = append([]string{"tid", "nm", "us", "tm", "f", "g1", "g2", "g3"}, coefficients...)
	return barrier(columns, from(branch, rails.String(), joins.String())), ports, append(pass, names(extra)...)
}

// amps and volts of rail n. Hardly any rail's current depends on y, which is unpacked twice
// where it does.
func amps(n int) string {
	return fmt.Sprintf("i0%[1]d+ix%[1]d*%[2]s+CASE WHEN iy%[1]d=0 THEN 0 ELSE iy%[1]d*%[3]s END", n,
		count(fmt.Sprintf("x%d", n)), count(fmt.Sprintf("y%d", n)))
}

func volts(n int) string {
	return fmt.Sprintf("v0%[1]d+vy%[1]d*%[2]s", n, count(fmt.Sprintf("y%d", n)))
}

// granted are g1 to g3.
func granted() (out []string) {
	for role := 1; role <= roles; role++ {
		out = append(out, fmt.Sprintf("(SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail "+
			"WHERE calibration_id=k.calibration_id AND role=%[1]d) g%[1]d",
			role))
	}
	return out
}

// ofOwnRoles is the branch of tasks whose rails each are all of a role: they are numbered by it.
func ofOwnRoles() string {
	blocks, ports, pass := sideBySide(ownRoles, "role", 1, roles, nil)
	return selected(scans(blocks, ports, pass, perScan("f+s+j.i", "NULL", func(role int) (a, v, g string) {
		return amps(role), volts(role), fmt.Sprintf("g%d", role)
	})))
}

// ofFewRails is the branch of other tasks with up to few rails. Each role adds its rails
// up; its voltage is that of its only rail, or ΣP/ΣI, so that current times voltage is the
// power of them all.
func ofFewRails() string {
	factor := func(role, n int) string { return fmt.Sprintf("e%d%d", role, n) }
	var factors []string // 1 where a rail is of a role
	for role := 1; role <= roles; role++ {
		sum := make([]string, few)
		for n := range few {
			is := fmt.Sprintf("coalesce(r%d.role=%d,0)", n, role)
			factors, sum[n] = append(factors, is+" "+factor(role, n)), is
		}
		factors = append(factors, fmt.Sprintf("%s e%d", strings.Join(sum, "+"), role))
	}
	blocks, ports, pass := sideBySide(fewRails, "ordinal", 0, few-1, factors)
	out := []string{"tid", "nm", "us", "tm", "f+s+j.i seq", "g1", "g2", "g3"}
	for n := range few {
		out = append(out, fmt.Sprintf("%s a%d", amps(n), n), fmt.Sprintf("%s v%d", volts(n), n))
	}
	out = append(out, names(factors)...)
	rails := barrier(scans(blocks, ports, pass, out))

	plus := func(term string, role int) string {
		var terms []string
		for n := range few {
			terms = append(terms, fmt.Sprintf(term, n, factor(role, n)))
		}
		return strings.Join(terms, "+")
	}
	columns := perScan("seq", plus("a%[1]d*v%[1]d", 0), func(role int) (a, v, g string) {
		v = fmt.Sprintf("CASE WHEN e%d=1 THEN %s ELSE (%s)/(%s) END", role, plus("v%d*%s", role),
			plus("a%[1]d*v%[1]d*%[2]s", role), plus("a%d*%s", role))
		return plus("a%d*%s", role), v, fmt.Sprintf("g%d", role)
	})
	return selected(columns, "FROM (\n"+rails+")")
}

// ofManyRails is the branch of all other tasks: any number of rails. For each
// block a correlated query goes over the rails, each over its scans, adds the
// rails up by scan, and hands the 256 sums over as one JSON text, the one
// aggregate that can carry rows.
func ofManyRails() string {
	columns := append([]string{}, task...)
	columns = append(columns, "k.calibration_id kid", "c.chunk_no cn", "p.i pi")
	columns = append(columns, granted()...)
	blocks := barrier(columns, from(manyRails, "", ""))

	rail := append([]string{
		"o.lo lo", "o.hi hi", "r.role role", "r.i0 i00", "r.ix ix0", "r.iy iy0", "r.v0 v00", "r.vy vy0",
	}, port("x0", "o.pi")...)
	rails := barrier(append(rail, port("y0", "o.pi")...),
		`FROM rail r CROSS JOIN chunk_column x0 ON x0.task_id=o.tid AND x0.chunk_no=o.cn AND x0.col=r.x
LEFT JOIN chunk_column y0 ON y0.task_id=o.tid AND y0.chunk_no=o.cn AND y0.col=r.y WHERE r.calibration_id=o.kid`)
	// Rails outside, scans inside: the packed bytes then stay in registers.
	pass := []string{"role", "i00", "ix0", "iy0", "v00", "vy0"}
	power := barrier(scans(rails, []string{"x0", "y0"}, pass,
		[]string{"s+j.i i", "role", amps(0) + " a", volts(0) + " v"}))

	sum := func(e string, role int) string { return fmt.Sprintf("sum(CASE role WHEN %d THEN %s END)", role, e) }
	volt := func(role int) string {
		return fmt.Sprintf("CASE count(CASE role WHEN %d THEN 1 END) WHEN 1 THEN %s ELSE %s/%s END",
			role, sum("v", role), sum("a*v", role), sum("a", role))
	}
	scan := fmt.Sprintf("SELECT json_array(sum(a*v),\n  %s,%s,%s,\n  %s,\n  %s,\n  %s) q FROM (\n%s) "+
		"GROUP BY i ORDER BY i",
		sum("a", 1), sum("a", 2), sum("a", 3), volt(1), volt(2), volt(3), power)
	block := []string{
		"tid",
		"nm",
		"us",
		"tm",
		"f",
		"lo",
		"g1",
		"g2",
		"g3",
		"(SELECT json_group_array(json(q)) FROM (\n" + scan + ")) q",
	}

	item := func(i int) string { return fmt.Sprintf("json_extract(e.value,'$[%d]')", i) }
	out := perScan("f+lo+e.key", item(0),
		func(role int) (a, v, g string) { return item(role), item(roles + role), fmt.Sprintf("g%d", role) })
	return selected(out, "FROM (\n"+barrier(block, "FROM (\n"+blocks+") o")+") b CROSS JOIN json_each(b.q) e")
}

// cold are the tasks that SQL cannot read: one row each, without values.
func cold() string {
	return "SELECT t.task_id, t.name, u.login, t.launched, NULL" + strings.Repeat(",NULL", 1+3*roles) +
		" FROM task t CROSS JOIN user u ON u.user_id=t.user_id WHERE t.cold=1"
}

// Bytes become numbers by look-ups in _u16, two bytes at a time. As many
// scans are taken together as have all their values of a column in four look-ups: eight
// where no value is wider than 8 bits, four up to 16, otherwise one. The look-ups are
// joins: as a subquery each would open the table anew for each row.
const words = 4

// u16 looks two bytes of a blob up, from a position that counts from 1.
func u16(blob, pos string) string {
	return fmt.Sprintf("(SELECT v FROM _u16 WHERE b=substr(%s,%s,2))", blob, pos)
}

// port returns base, width, and packed bytes of one block of a column, as columns
// b<name>, w<name>, d<name>. A column that is not there has base 0 and no width. The
// base is signed: its upper bit weighs −2³¹.
func port(name, block string) []string {
	e := func(offset int) string { return u16(name+".dir", fmt.Sprintf("8*%s+%d", block, 1+offset)) }
	return []string{
		fmt.Sprintf("coalesce((%s|(%s<<16))-((%s>>15)<<32),0) b%s", e(0), e(2), e(2), name),
		fmt.Sprintf("coalesce(%s,0) w%s", e(4), name),
		fmt.Sprintf("substr(%s.data,1+32*%s,32*%s+8) d%s", name, e(6), e(4), name),
	}
}

// grouped are the columns of a block that groups are made by: those of pass, and of each
// port the bits g<name> that a group's values take, the words n<name> that those may lie
// in, and the mask m<name>; z is how many scans a group has.
func grouped(blocks string, ports, pass []string) string {
	var widths []string
	for _, p := range ports {
		widths = append(widths, "w"+p)
	}
	sized := append([]string{"lo", "hi"}, pass...)
	for _, p := range ports {
		sized = append(sized, "b"+p, "w"+p, "d"+p)
	}
	sized = append(sized,
		fmt.Sprintf("CASE WHEN max(%[1]s)<=8 THEN 8 WHEN max(%[1]s)<=16 THEN 4 ELSE 1 END z",
			strings.Join(widths, ",")))
	columns := append([]string{"lo", "hi", "z"}, pass...)
	columns = names(columns)
	for _, p := range ports {
		columns = append(columns, "b"+p, "w"+p, "d"+p, fmt.Sprintf("z*w%[1]s g%[1]s", p),
			fmt.Sprintf("(z*w%[1]s+22)/16 n%[1]s", p), fmt.Sprintf("(1<<w%[1]s)-1 m%[1]s", p))
	}
	return barrier(columns, "FROM (\n"+barrier(sized, "FROM (\n"+blocks+")")+")")
}

// scans are the scans lo to hi of each block of a SELECT: out are their columns, made of the
// columns pass of the block and of counts. A scan is number s+j.i of its block.
func scans(blocks string, ports, pass, out []string) (columns []string, rest string) {
	var joins strings.Builder
	groups := append([]string{"lo", "hi", "z", "z*q.i s"}, names(pass)...)
	for _, p := range ports {
		word := func(k int) string { return fmt.Sprintf("(ifnull(%s%d.v,0)<<%d)", p, k, 16*k) }
		groups = append(groups, "b"+p, "w"+p, "m"+p,
			fmt.Sprintf("(ifnull(%[1]s0.v,0)|%[2]s|%[3]s|%[4]s)>>(q.i*g%[1]s&7) q%[1]s", p, word(1), word(2), word(3)))
		for k := range words {
			fmt.Fprintf(&joins,
				"\nLEFT JOIN _u16 %[1]s%[2]d ON %[1]s%[2]d.b="+
					"CASE WHEN n%[1]s>%[2]d THEN substr(d%[1]s,(q.i*g%[1]s>>3)+%[3]d,2) END",
				p, k, 2*k+1)
		}
	}
	from := "FROM (\n" + grouped(blocks, ports,
		pass) + ") CROSS JOIN _seq q ON q.i>=lo/z AND q.i<(hi+z-1)/z" + joins.String()
	return out, "FROM (\n" + barrier(groups, from) + ") CROSS JOIN _seq j ON j.i<z AND s+j.i>=lo AND s+j.i<hi"
}

// count is that of a port.
func count(name string) string { return fmt.Sprintf("(b%[1]s+(q%[1]s>>j.i*w%[1]s&m%[1]s))", name) }
