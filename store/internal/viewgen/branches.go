package main

import (
	"fmt"
	"strings"
)

// roles of rails that the paper's table has columns for: PSU, PCIe 3.3 V, PCIe 12 V.
const roles = 3

// view names the amperes, volts and watts of all tasks' scans. Each branch tells, by role,
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
	return selected(columns, "FROM (\n"+strings.Join([]string{ofOwnRoles(), ofFewRails(), ofManyRails(), cold()}, "\nUNION ALL ")+")")
}

// told is what a branch tells of a scan: its number, what stands in for the sum of a·v, and
// of each role what of says that a, v and g are.
func told(seq, pw string, of func(role int) (a, v, g string)) []string {
	out := []string{"tid", "nm", "us", "tm", seq + " seq", pw + " pw"}
	for role := 1; role <= roles; role++ {
		a, v, g := of(role)
		out = append(out, fmt.Sprintf("%s a%d", a, role), fmt.Sprintf("%s v%d", v, role), fmt.Sprintf("%s g%d", g, role))
	}
	return out
}

// rail joins one rail of the calibration, the only one that matches, and the columns
// that it is read from, as x<n> and y<n>. One that is not there has coefficients of 0.
func rail(n int, which string) (rail, columns string) {
	rail = fmt.Sprintf("LEFT JOIN rail r%[1]d ON r%[1]d.calibration_id=k.calibration_id AND r%[1]d.%[2]s=%[1]d\n", n, which)
	for _, xy := range []string{"x", "y"} {
		columns += fmt.Sprintf("LEFT JOIN chunk_column %[1]s%[2]d ON %[1]s%[2]d.task_id=c.task_id AND %[1]s%[2]d.chunk_no=c.chunk_no AND %[1]s%[2]d.col=r%[2]d.%[1]s\n", xy, n)
	}
	return rail, columns
}

// sideBySide are the blocks of tasks whose rails stand side by side, numbered from one
// number to another by a column of their table: what is known of a task, the coefficients
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
	return fmt.Sprintf("i0%[1]d+ix%[1]d*%[2]s+CASE WHEN iy%[1]d=0 THEN 0 ELSE iy%[1]d*%[3]s END", n, count(fmt.Sprintf("x%d", n)), count(fmt.Sprintf("y%d", n)))
}

func volts(n int) string {
	return fmt.Sprintf("v0%[1]d+vy%[1]d*%[2]s", n, count(fmt.Sprintf("y%d", n)))
}

// granted are g1 to g3.
func granted() (out []string) {
	for role := 1; role <= roles; role++ {
		out = append(out, fmt.Sprintf("(SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=%[1]d) g%[1]d", role))
	}
	return out
}

// ofOwnRoles is the branch of tasks whose rails each are all of a role: they are numbered by it.
func ofOwnRoles() string {
	blocks, ports, pass := sideBySide(ownRoles, "role", 1, roles, nil)
	return selected(scans(blocks, ports, pass, told("f+s+j.i", "NULL", func(role int) (a, v, g string) {
		return amps(role), volts(role), fmt.Sprintf("g%d", role)
	})))
}

// ofFewRails is the branch of other tasks with up to few rails. Each role adds its rails
// up; its voltage is that of its only rail, or ΣP/ΣI, what makes the product of current
// and voltage the power of them all.
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
	columns := told("seq", plus("a%[1]d*v%[1]d", 0), func(role int) (a, v, g string) {
		v = fmt.Sprintf("CASE WHEN e%d=1 THEN %s ELSE (%s)/(%s) END", role, plus("v%d*%s", role), plus("a%[1]d*v%[1]d*%[2]s", role), plus("a%d*%s", role))
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

	rail := append([]string{"o.lo lo", "o.hi hi", "r.role role", "r.i0 i00", "r.ix ix0", "r.iy iy0", "r.v0 v00", "r.vy vy0"}, port("x0", "o.pi")...)
	rails := barrier(append(rail, port("y0", "o.pi")...), `FROM rail r CROSS JOIN chunk_column x0 ON x0.task_id=o.tid AND x0.chunk_no=o.cn AND x0.col=r.x
LEFT JOIN chunk_column y0 ON y0.task_id=o.tid AND y0.chunk_no=o.cn AND y0.col=r.y WHERE r.calibration_id=o.kid`)
	// Rails outside, scans inside: the packed bytes then stay in registers.
	pass := []string{"role", "i00", "ix0", "iy0", "v00", "vy0"}
	power := barrier(scans(rails, []string{"x0", "y0"}, pass, []string{"s+j.i i", "role", amps(0) + " a", volts(0) + " v"}))

	sum := func(e string, role int) string { return fmt.Sprintf("sum(CASE role WHEN %d THEN %s END)", role, e) }
	volt := func(role int) string {
		return fmt.Sprintf("CASE count(CASE role WHEN %d THEN 1 END) WHEN 1 THEN %s ELSE %s/%s END",
			role, sum("v", role), sum("a*v", role), sum("a", role))
	}
	scan := fmt.Sprintf("SELECT json_array(sum(a*v),\n  %s,%s,%s,\n  %s,\n  %s,\n  %s) q FROM (\n%s) GROUP BY i ORDER BY i",
		sum("a", 1), sum("a", 2), sum("a", 3), volt(1), volt(2), volt(3), power)
	block := []string{"tid", "nm", "us", "tm", "f", "lo", "g1", "g2", "g3", "(SELECT json_group_array(json(q)) FROM (\n" + scan + ")) q"}

	item := func(i int) string { return fmt.Sprintf("json_extract(e.value,'$[%d]')", i) }
	out := told("f+lo+e.key", item(0), func(role int) (a, v, g string) { return item(role), item(roles + role), fmt.Sprintf("g%d", role) })
	return selected(out, "FROM (\n"+barrier(block, "FROM (\n"+blocks+") o")+") b CROSS JOIN json_each(b.q) e")
}

// cold are the tasks that SQL cannot read: one row each, without values.
func cold() string {
	return "SELECT t.task_id, t.name, u.login, t.launched, NULL" + strings.Repeat(",NULL", 1+3*roles) +
		" FROM task t CROSS JOIN user u ON u.user_id=t.user_id WHERE t.cold=1"
}
