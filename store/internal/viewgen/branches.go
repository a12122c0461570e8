package main

import (
	"fmt"
	"strings"
)

// roles of rails that the paper's table has columns for: PSU, PCIe 3.3 V, PCIe 12 V.
const roles = 3

// view turns the counts of all tasks into watts, amperes and volts.
func view() string {
	return fmt.Sprintf(`SELECT tid taskID, nm taskName, us user, %s power,
  %s current1, %s current2, %s current3,
  %s voltage1,
  %s voltage2,
  %s voltage3,
  tm taskTime, CAST(seq AS INTEGER) seqNum FROM (
%s
UNION ALL %s
UNION ALL %s)`, power(), current(1), current(2), current(3), voltage(1), voltage(2), voltage(3), fewRails(), manyRails(), cold())
}

// scanColumns are what the view knows of a scan: of each rail side by side its
// coefficients, and by factors of 0 and 1 its role; g1 to g3; the counts.
func scanColumns() (perBlock, counts []string) {
	for r := range few {
		for _, c := range []string{"i0", "ix", "iy", "v0", "vy", "e1", "e2", "e3"} {
			perBlock = append(perBlock, fmt.Sprintf("%s%d", c, r))
		}
		counts = append(counts, fmt.Sprintf("x%d", r), fmt.Sprintf("y%d", r))
	}
	return append(perBlock, "g1", "g2", "g3"), counts
}

// fewRails is the branch of tasks with up to few rails: they stand side by side,
// each with an x and a y column. One that is not there has coefficients of 0.
func fewRails() string {
	columns := append([]string{}, task...)
	var rails, joins strings.Builder
	for r := range few {
		for _, c := range []string{"i0", "ix", "iy", "v0", "vy"} {
			columns = append(columns, fmt.Sprintf("coalesce(r%d.%s,0.0) %s%d", r, c, c, r))
		}
		for role := 1; role <= roles; role++ {
			columns = append(columns, fmt.Sprintf("coalesce(r%[1]d.role=%[2]d,0) e%[2]d%[1]d", r, role))
		}
		fmt.Fprintf(&rails, "LEFT JOIN rail r%[1]d ON r%[1]d.calibration_id=k.calibration_id AND r%[1]d.ordinal=%[1]d\n", r)
		for _, xy := range []string{"x", "y"} {
			fmt.Fprintf(&joins, "LEFT JOIN chunk_column %[1]s%[2]d ON %[1]s%[2]d.task_id=c.task_id AND %[1]s%[2]d.chunk_no=c.chunk_no AND %[1]s%[2]d.col=r%[2]d.%[1]s\n", xy, r)
		}
	}
	columns = append(columns, granted()...)
	perBlock, ports := scanColumns()
	for _, p := range ports {
		columns = append(columns, port(p, "p.i")...)
	}
	blocks := barrier(columns, from(fmt.Sprintf("<=%d", few), rails.String(), joins.String()))
	scans := append([]string{"tid", "nm", "us", "tm", "f+s.i seq"}, perBlock...)
	for _, p := range ports {
		scans = append(scans, count(p)+" "+p)
	}
	return "SELECT " + strings.Join(scans, ",\n  ") + " FROM (\n" + blocks + ") CROSS JOIN _seq s ON s.i>=lo AND s.i<hi" + lookUps(ports)
}

// granted are g1 to g3: 1, or NULL where the role has no rail, or one that reads
// watts: there is neither current nor voltage then.
func granted() (out []string) {
	for role := 1; role <= roles; role++ {
		out = append(out, fmt.Sprintf("(SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=%[1]d) g%[1]d", role))
	}
	return out
}

func amp(r int) string  { return fmt.Sprintf("(i0%[1]d+ix%[1]d*x%[1]d+iy%[1]d*y%[1]d)", r) }
func volt(r int) string { return fmt.Sprintf("(v0%[1]d+vy%[1]d*y%[1]d)", r) }

// plus adds up what an expression is of each rail.
func plus(of func(r int) string) string {
	var terms []string
	for r := range few {
		terms = append(terms, of(r))
	}
	return strings.Join(terms, "+")
}

func power() string {
	return plus(func(r int) string { return amp(r) + "*" + volt(r) })
}

// current is what the rails of a role carry together.
func current(role int) string {
	return fmt.Sprintf("(%s)*g%d", plus(func(r int) string { return fmt.Sprintf("%s*e%d%d", amp(r), role, r) }), role)
}

// voltage is that of a role's only rail, or what makes the product of current and
// voltage the power of them all: ΣP/ΣI.
func voltage(role int) string {
	factor := func(r int) string { return fmt.Sprintf("e%d%d", role, r) }
	watts := plus(func(r int) string { return amp(r) + "*" + volt(r) + "*" + factor(r) })
	amps := plus(func(r int) string { return amp(r) + "*" + factor(r) })
	only := plus(func(r int) string { return volt(r) + "*" + factor(r) })
	return fmt.Sprintf("g%d*CASE WHEN %s=1 THEN %s ELSE (%s)/(%s) END", role, plus(factor), only, watts, amps)
}

// manyRails is the branch of all other tasks: any number of rails. For each
// block a correlated query goes over the rails, each over its scans, adds the
// rails up by scan, and hands the 256 sums over as one JSON text, the one
// aggregate that can carry rows.
func manyRails() string {
	columns := append([]string{}, task...)
	columns = append(columns, "k.calibration_id kid", "c.chunk_no cn", "p.i pi")
	columns = append(columns, granted()...)
	blocks := barrier(columns, from(fmt.Sprintf(">%d", few), "", ""))

	rail := []string{"r.role", "r.i0", "r.ix", "r.iy", "r.v0", "r.vy"}
	rail = append(append(rail, port("x", "g.pi")...), port("y", "g.pi")...)
	rails := barrier(rail, `FROM rail r CROSS JOIN chunk_column x ON x.task_id=g.tid AND x.chunk_no=g.cn AND x.col=r.x
LEFT JOIN chunk_column y ON y.task_id=g.tid AND y.chunk_no=g.cn AND y.col=r.y WHERE r.calibration_id=g.kid`)
	// Rails outside, scans inside: the packed bytes then stay in registers.
	counts := barrier([]string{"s.i", "role", "i0", "ix", "iy", "v0", "vy", count("x") + " x", count("y") + " y"},
		"FROM (\n"+rails+") CROSS JOIN _seq s ON s.i>=g.lo AND s.i<g.hi"+lookUps([]string{"x", "y"}))
	power := barrier([]string{"i", "role", "i0+ix*x+iy*y a", "v0+vy*y v"}, "FROM (\n"+counts+")")

	sum := func(e string, role int) string { return fmt.Sprintf("sum(CASE role WHEN %d THEN %s END)", role, e) }
	volt := func(role int) string {
		return fmt.Sprintf("CASE count(CASE role WHEN %d THEN 1 END) WHEN 1 THEN %s ELSE %s/%s END",
			role, sum("v", role), sum("a*v", role), sum("a", role))
	}
	scan := fmt.Sprintf("SELECT json_array(sum(a*v),\n  %s,%s,%s,\n  %s,\n  %s,\n  %s) q FROM (\n%s) GROUP BY i ORDER BY i",
		sum("a", 1), sum("a", 2), sum("a", 3), volt(1), volt(2), volt(3), power)
	block := []string{"tid", "nm", "us", "tm", "f", "lo", "g1", "g2", "g3", "(SELECT json_group_array(json(q)) FROM (\n" + scan + ")) q"}

	// A role's sum stands as a rail of its own, and what is left of the power as one more.
	item := func(i int) string { return fmt.Sprintf("json_extract(e.value,'$[%d]')", i) }
	scans := map[string]string{"g1": "g1", "g2": "g2", "g3": "g3", fmt.Sprintf("v0%d", roles): "1"}
	rest := item(0)
	for r := range roles {
		scans[fmt.Sprintf("i0%d", r)] = fmt.Sprintf("coalesce(%s,0.0)", item(1+r))
		scans[fmt.Sprintf("v0%d", r)] = fmt.Sprintf("coalesce(%s,0.0)", item(1+roles+r))
		scans[fmt.Sprintf("e%d%d", 1+r, r)] = "1"
		rest += fmt.Sprintf("-coalesce(%s*%s,0.0)", item(1+r), item(1+roles+r))
	}
	scans[fmt.Sprintf("i0%d", roles)] = rest
	return fmt.Sprintf("SELECT tid, nm, us, tm, f+lo+e.key, %s FROM (\n%s) b CROSS JOIN json_each(b.q) e",
		shaped(scans, "0"), barrier(block, "FROM (\n"+blocks+") g"))
}

// shaped lists scanColumns of which only some are known.
func shaped(known map[string]string, other string) string {
	perBlock, counts := scanColumns()
	var out []string
	for _, c := range append(perBlock, counts...) {
		if v, ok := known[c]; ok {
			out = append(out, v)
		} else {
			out = append(out, other)
		}
	}
	return strings.Join(out, ",")
}

// cold are the tasks that SQL cannot read: one row each, without values.
func cold() string {
	return "SELECT t.task_id, t.name, u.login, t.launched, NULL, " + shaped(nil, "NULL") +
		" FROM task t CROSS JOIN user u ON u.user_id=t.user_id WHERE t.cold=1"
}
