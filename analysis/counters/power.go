package counters

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"wattmark/measure"
)

// Power is a measured power by name.
type Power struct {
	Name  string // of a kernel, or of an application
	Power measure.Watt
	Line  int
}

// ParsePower reads a table of powers: a header; a column of names, the first
// unless one is called so; a column of watts. AccelWattch's is one.
func ParsePower(file string, r io.Reader) ([]Power, error) {
	data, err := readAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	lines, _, err := split(string(data), Plain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("%s: %w: want a header and rows", file, ErrFormat)
	}
	head := lines[0]
	name, _ := roles[1].find(head.fields, "")
	if name < 0 {
		name = 0
	}
	at, scale := roles[0].find(head.fields, "")
	if at < 0 {
		at = slices.IndexFunc(head.fields, func(f string) bool { return strings.Contains(usual(f), "power") })
	}
	if at < 0 || at == name {
		return nil, fmt.Errorf("%s: line %d: %w: no column of powers: call it power_w", file, head.no, ErrFormat)
	}
	var out []Power
	seen := map[string]int{}
	for _, l := range lines[1:] {
		if err := l.width(len(head.fields)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		v, err := l.value(at, head.fields[at])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		p := Power{Name: l.fields[name], Power: measure.Watt(v * scale), Line: l.no}
		if first := seen[p.Name]; first > 0 {
			return nil, fmt.Errorf("%s: line %d: %w: %q has a power in line %d already: leave one", file, l.no, ErrFormat, p.Name, first)
		}
		if !(p.Power > 0) {
			return nil, fmt.Errorf("%s: line %d: %w: a power of %v: want more than 0 W", file, l.no, ErrFormat, p.Power)
		}
		seen[p.Name] = l.no
		out = append(out, p)
	}
	return out, nil
}

// JoinPower gives rows their powers by name: that of the kernel, then that of the
// application where it has one row alone. Letters and digits count; an
// application's name may go on behind that of the power ("kmeans-rodinia-3.1",
// "kmeans_k1"), where only one fits best. Rows without a power are an error;
// powers without a row are noted.
func (t *Table) JoinPower(file string, list []Power) error {
	used := make([]bool, len(list))
	apps := t.byApp()
	var missing []string
	for i := range t.Runs {
		r := &t.Runs[i]
		at := find(list, r.Name, r.App, len(apps[r.App]) == 1)
		if at < 0 {
			missing = append(missing, r.Name)
			continue
		}
		if used[at] {
			return fmt.Errorf("%s: line %d: %w: the power of %q fits several rows, %q too: give each its name", file, list[at].Line, ErrFormat, list[at].Name, r.Name)
		}
		used[at], r.Power = true, list[at].Power
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: %w: no power for %s: add it, or remove these rows", file, ErrFormat, quoted(missing))
	}
	for i, p := range list {
		if !used[i] {
			t.note("%s has a power and no counters", p.Name)
		}
	}
	return nil
}

func find(list []Power, name, app string, alone bool) int {
	for _, want := range []string{name, app} {
		if want == "" || want == app && !alone {
			continue
		}
		if i := slices.IndexFunc(list, func(p Power) bool { return p.Name == want }); i >= 0 {
			return i
		}
	}
	base, number := stem(name)
	best, length := -1, 0
	for i, p := range list {
		b, n := stem(p.Name)
		if n == number && b != "" && strings.HasPrefix(base, b) && len(b) > length {
			best, length = i, len(b)
		}
	}
	return best
}

// stem parts "parboil-mri-q_k1" into "parboilmriq" and "1".
func stem(name string) (base, number string) {
	if m := ownNumber.FindStringSubmatch(name); m != nil {
		name, number = m[1], m[2]
	}
	return strings.ReplaceAll(usual(name), "_", ""), number
}
