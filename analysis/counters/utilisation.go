package counters

import (
	"fmt"
	"slices"

	"wattmark/measure"
)

// Clocks that a table in the form of gpupowermodel states.
const (
	CoreClock   = "core_mhz"
	MemoryClock = "memory_mhz"
)

// utilisation reads the form of gpupowermodel: the number of clock domains, their
// default clocks in MHz, how many utilisations each has, their names; then rows of
// power, clocks and utilisations, perhaps behind a name; of a name and utilisations
// where the power is to be estimated.
func (t *Table) utilisation(lines []line) error {
	if len(lines) < 4 {
		return fmt.Errorf("%w: %d lines: want clock domains, default clocks, sizes, names and rows", ErrFormat, len(lines))
	}
	defaults, total, err := clocksAndSizes(lines)
	if err != nil {
		return err
	}
	names := lines[3]
	if len(names.fields) != total {
		return fmt.Errorf("line %d: %w: %d names, line %d has %d utilisations", names.no, ErrFormat, len(names.fields), lines[2].no, total)
	}
	if err := header(names); err != nil {
		return err
	}
	for _, n := range names.fields {
		t.Columns = append(t.Columns, Column{Name: n})
	}
	for i := range defaults {
		t.Columns = append(t.Columns, Column{Name: clockName(i), Unit: "MHz", Context: true})
	}
	other := 0
	for _, l := range lines[4:] {
		r, err := t.utilisationRow(l, names.fields, defaults)
		if err != nil {
			return err
		}
		if !slices.Equal(r.Values[total:], defaults) {
			other++
		}
		t.Runs = append(t.Runs, r)
	}
	if other > 0 {
		t.note("%d rows ran at other clocks than the default ones: utilisations alone do not tell a clock: name core_mhz or memory_mhz in a formula", other)
	}
	return nil
}

// clocksAndSizes reads the default clocks and how many utilisations there are.
func clocksAndSizes(lines []line) (defaults []float64, total int, err error) {
	if err := lines[2].width(len(lines[1].fields)); err != nil {
		return nil, 0, err
	}
	for i := range lines[1].fields {
		clock, err := lines[1].value(i, "default clock")
		if err != nil {
			return nil, 0, err
		}
		n, err := lines[2].value(i, "size")
		if err != nil {
			return nil, 0, err
		}
		if n < 0 || n != float64(int(n)) || n > 1e4 {
			return nil, 0, fmt.Errorf("line %d: %w: a size of %g utilisations", lines[2].no, ErrFormat, n)
		}
		defaults, total = append(defaults, clock), total+int(n)
	}
	return defaults, total, nil
}

func clockName(domain int) string {
	switch domain {
	case 0:
		return CoreClock
	case 1:
		return MemoryClock
	}
	return fmt.Sprintf("clock%d_mhz", domain)
}

func (t *Table) utilisationRow(l line, names []string, defaults []float64) (Run, error) {
	domains, total := len(defaults), len(names)
	r := blank(total + domains)
	r.Line = l.no
	copy(r.Values[total:], defaults)
	at := 0 // of the field that comes next
	if _, err := number(l.fields[0]); err != nil {
		r.Name, at = l.fields[0], 1
	} else {
		r.Name, r.unnamed = fmt.Sprintf("row %d", len(t.Runs)+1), true
	}
	rest := len(l.fields) - at - total // power and clocks
	if rest != 1+domains && (at == 0 || rest != 0 && rest != 1) {
		return r, fmt.Errorf("line %d: %w: %d fields: want power, %d clocks and %d utilisations, perhaps behind a name, or a name and %d utilisations", l.no, ErrFormat, len(l.fields), domains, total, total)
	}
	if rest > 0 {
		p, err := l.value(at, "power")
		if err != nil {
			return r, err
		}
		r.Power = measure.Watt(p)
	}
	for i := range rest - 1 {
		var err error
		if r.Values[total+i], err = l.value(at+1+i, clockName(i)); err != nil {
			return r, err
		}
	}
	skip := at + rest
	for i, name := range names {
		var err error
		if r.Values[i], err = l.value(skip+i, name); err != nil {
			return r, err
		}
	}
	return r, nil
}
