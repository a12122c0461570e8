package main

import (
	"fmt"
	"strings"
)

// Bytes become numbers by look-ups in _u16 (step 0002), two bytes at a time. As many
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
	sized = append(sized, fmt.Sprintf("CASE WHEN max(%[1]s)<=8 THEN 8 WHEN max(%[1]s)<=16 THEN 4 ELSE 1 END z", strings.Join(widths, ",")))
	columns := append([]string{"lo", "hi", "z"}, pass...)
	columns = names(columns)
	for _, p := range ports {
		columns = append(columns, "b"+p, "w"+p, "d"+p, fmt.Sprintf("z*w%[1]s g%[1]s", p), fmt.Sprintf("(z*w%[1]s+22)/16 n%[1]s", p), fmt.Sprintf("(1<<w%[1]s)-1 m%[1]s", p))
	}
	return barrier(columns, "FROM (\n"+barrier(sized, "FROM (\n"+blocks+")")+")")
}

// scans are the scans lo to hi of each of a SELECT of blocks: out is what is told of
// each, made of the columns pass of its block and of counts.
// The scan is number s+j.i of its block.
func scans(blocks string, ports, pass, out []string) (columns []string, rest string) {
	var joins strings.Builder
	groups := append([]string{"lo", "hi", "z", "z*q.i s"}, names(pass)...)
	for _, p := range ports {
		word := func(k int) string { return fmt.Sprintf("(ifnull(%s%d.v,0)<<%d)", p, k, 16*k) }
		groups = append(groups, "b"+p, "w"+p, "m"+p,
			fmt.Sprintf("(ifnull(%[1]s0.v,0)|%[2]s|%[3]s|%[4]s)>>(q.i*g%[1]s&7) q%[1]s", p, word(1), word(2), word(3)))
		for k := range words {
			fmt.Fprintf(&joins, "\nLEFT JOIN _u16 %[1]s%[2]d ON %[1]s%[2]d.b=CASE WHEN n%[1]s>%[2]d THEN substr(d%[1]s,(q.i*g%[1]s>>3)+%[3]d,2) END", p, k, 2*k+1)
		}
	}
	from := "FROM (\n" + grouped(blocks, ports, pass) + ") CROSS JOIN _seq q ON q.i>=lo/z AND q.i<(hi+z-1)/z" + joins.String()
	return out, "FROM (\n" + barrier(groups, from) + ") CROSS JOIN _seq j ON j.i<z AND s+j.i>=lo AND s+j.i<hi"
}

// count is that of a port.
func count(name string) string { return fmt.Sprintf("(b%[1]s+(q%[1]s>>j.i*w%[1]s&m%[1]s))", name) }
