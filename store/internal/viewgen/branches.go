package main

import (
	"fmt"
	"strings"
)

// oneARole is the branch of tasks in which every role has at most one rail: up
// to four rails side by side, each with an x and a y column. A rail that is
// not there has NULL coefficients, so that its current and voltage are NULL.
func oneARole() string {
	columns := append([]string{}, task...)
	var rails, joins strings.Builder
	var ports []string
	for r := 1; r <= 4; r++ {
		for _, c := range []string{"i0", "ix", "iy", "v0", "vy"} {
			columns = append(columns, fmt.Sprintf("r%d.%s %s%d", r, c, c, r))
		}
		if r < 4 {
			// A rail that reads watts has neither current nor voltage.
			columns = append(columns, fmt.Sprintf("CASE WHEN r%d.wiring<>4 THEN 1 END g%d", r, r))
		}
		fmt.Fprintf(&rails, "LEFT JOIN rail r%d ON r%d.calibration_id=k.calibration_id AND r%d.role=%d\n", r, r, r, r)
		for _, xy := range []string{"x", "y"} {
			p := fmt.Sprintf("%s%d", xy, r)
			ports = append(ports, p)
			fmt.Fprintf(&joins, "LEFT JOIN chunk_column %[1]s ON %[1]s.task_id=c.task_id AND %[1]s.chunk_no=c.chunk_no AND %[1]s.col=r%[2]d.%[3]s\n", p, r, xy)
		}
	}
	known := names(columns)[len(task):]
	for _, p := range ports {
		columns = append(columns, port(p, "p.i")...)
	}
	blocks := barrier(columns, from(1, rails.String(), joins.String()))

	scans := append([]string{"tid", "nm", "us", "tm", "f+s.i seq"}, known...)
	for _, p := range ports {
		scans = append(scans, count(p)+" "+p)
	}
	counts := barrier(scans, "FROM (\n"+blocks+") CROSS JOIN _seq s ON s.i>=lo AND s.i<hi")

	amp := func(r int) string { return fmt.Sprintf("(i0%[1]d+ix%[1]d*x%[1]d+iy%[1]d*y%[1]d)", r) }
	volt := func(r int) string { return fmt.Sprintf("(v0%[1]d+vy%[1]d*y%[1]d)", r) }
	watt := func(r int) string { return fmt.Sprintf("coalesce(%s*%s,0.0)", amp(r), volt(r)) }
	return fmt.Sprintf(`SELECT tid taskID, nm taskName, us user,
  %s+%s
  +%s+%s power,
  %s*g1 current1, %s*g2 current2, %s*g3 current3,
  %s*g1 voltage1, %s*g2 voltage2, %s*g3 voltage3,
  tm taskTime, CAST(seq AS INTEGER) seqNum FROM (
%s)`, watt(1), watt(2), watt(3), watt(4), amp(1), amp(2), amp(3), volt(1), volt(2), volt(3), counts)
}

// several is the branch of all other tasks: any number of rails. For each
// block a correlated query goes over the rails, each over its scans, adds the
// rails up by scan, and hands the 256 sums over as one JSON text, the one
// aggregate that can carry rows. Within a role currents and powers are added,
// and the voltage is the one that makes their product right: ΣP/ΣI.
func several() string {
	columns := append([]string{}, task...)
	columns = append(columns, "k.calibration_id kid", "c.chunk_no cn", "p.i pi")
	for r := 1; r <= 3; r++ {
		// No current and voltage where the role has no rail, or one that reads watts.
		columns = append(columns, fmt.Sprintf("(SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=%d) g%d", r, r))
	}
	blocks := barrier(columns, from(0, "", ""))

	rail := []string{"r.role", "r.i0", "r.ix", "r.iy", "r.v0", "r.vy"}
	rail = append(append(rail, port("x", "g.pi")...), port("y", "g.pi")...)
	rails := barrier(rail, `FROM rail r CROSS JOIN chunk_column x ON x.task_id=g.tid AND x.chunk_no=g.cn AND x.col=r.x
LEFT JOIN chunk_column y ON y.task_id=g.tid AND y.chunk_no=g.cn AND y.col=r.y WHERE r.calibration_id=g.kid`)
	// Rails outside, scans inside: the packed bytes then stay in registers.
	counts := barrier([]string{"s.i", "role", "i0", "ix", "iy", "v0", "vy", count("x") + " x", count("y") + " y"},
		"FROM (\n"+rails+") CROSS JOIN _seq s ON s.i>=g.lo AND s.i<g.hi")
	power := barrier([]string{"i", "role", "i0+ix*x+iy*y a", "v0+vy*y v"}, "FROM (\n"+counts+")")

	sum := func(e string, role int) string { return fmt.Sprintf("sum(CASE role WHEN %d THEN %s END)", role, e) }
	volt := func(role int) string {
		return fmt.Sprintf("CASE count(CASE role WHEN %d THEN 1 END) WHEN 1 THEN %s ELSE %s/%s END",
			role, sum("v", role), sum("a*v", role), sum("a", role))
	}
	scan := fmt.Sprintf("SELECT json_array(sum(a*v),\n  %s,%s,%s,\n  %s,\n  %s,\n  %s) q FROM (\n%s) GROUP BY i ORDER BY i",
		sum("a", 1), sum("a", 2), sum("a", 3), volt(1), volt(2), volt(3), power)
	block := []string{"tid", "nm", "us", "tm", "f", "lo", "g1", "g2", "g3", "(SELECT json_group_array(json(q)) FROM (\n" + scan + ")) q"}

	item := func(i int) string { return fmt.Sprintf("json_extract(e.value,'$[%d]')", i) }
	return fmt.Sprintf(`SELECT tid, nm, us, %s,
  %s*g1, %s*g2, %s*g3,
  %s*g1, %s*g2, %s*g3,
  tm, CAST(f+lo+e.key AS INTEGER) FROM (
%s) b CROSS JOIN json_each(b.q) e`, item(0), item(1), item(2), item(3), item(4), item(5), item(6),
		barrier(block, "FROM (\n"+blocks+") g"))
}
