package counters

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"wattmark/measure"
)

// line is one record of a CSV file.
type line struct {
	no     int
	fields []string
}

// Parse reads a table of counters. file names it in errors, which wrap ErrFormat.
func Parse(file string, r io.Reader, o Options) (*Table, error) {
	t, err := parse(file, r, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t.File = file
	if o.Kernel != nil {
		t.Drop(func(r Run) bool { return !o.Kernel.MatchString(r.Name) })
	}
	if len(t.Runs) == 0 {
		return nil, fmt.Errorf("%s: %w: no rows in it", file, ErrFormat)
	}
	for i := range t.Runs {
		r := &t.Runs[i]
		r.File = file
		if o.AppName != "" {
			r.App = o.AppName
			if o.By == ByApp {
				r.Name = o.AppName
			}
		}
		if err := r.check(t); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file, r.Line, err)
		}
	}
	return t, nil
}

func (r *Run) check(t *Table) error {
	for _, s := range []string{r.Name, r.App, r.Task} {
		if err := measure.CheckText("the name", s); err != nil {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
	}
	switch {
	case r.Power <= 0:
		return fmt.Errorf("%w: a power of %v: want more than 0 W", ErrFormat, r.Power)
	case r.Time <= 0:
		return fmt.Errorf("%w: a time of %v: want more than 0 s", ErrFormat, r.Time)
	}
	return nil
}

func parse(file string, r io.Reader, o Options) (*Table, error) {
	if o.Form != "" && !slices.Contains(Forms(), o.Form) {
		return nil, fmt.Errorf("%w: no form %q: want one of %v", ErrFormat, o.Form, Forms())
	}
	data, err := readAll(r)
	if err != nil {
		return nil, err
	}
	lines, head, err := split(string(data), o.Form)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	}
	form := o.Form
	if form == "" {
		form = detect(lines, head)
	}
	t := &Table{Form: form}
	switch form {
	case Utilisation:
		return t, t.utilisation(lines)
	case NsightLong:
		return t, t.nsightLong(lines, o)
	case NsightWide:
		return t, t.nsightWide(lines, o)
	case AccelWattch:
		return t, t.accelwattch(lines)
	}
	return t, t.plain(lines, o)
}

// mostBytes is more than any profiler's table of a day.
const mostBytes = 256 << 20

// readAll reads a file that is not too large.
func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, mostBytes+1))
	if err == nil && len(data) > mostBytes {
		err = fmt.Errorf("%w: larger than 256 MiB: cut out the kernels that are wanted", ErrFormat)
	}
	return data, err
}

// split reads the records. Of a file by Nsight Compute, it leaves out what the
// profiled program and the profiler printed before the header and between rows.
func split(text string, form Form) (lines []line, head bool, err error) {
	text = strings.TrimPrefix(text, "\ufeff")
	rows := strings.Split(text, "\n")
	for i, row := range rows {
		if nsightHeader(row) && (form == "" || form == NsightLong || form == NsightWide) {
			head = true
			for j := range rows {
				if j < i || strings.HasPrefix(rows[j], "==") || j > i && strings.TrimSpace(rows[j]) == strings.TrimSpace(row) {
					rows[j] = ""
				}
			}
			break
		}
	}
	cr := csv.NewReader(strings.NewReader(strings.Join(rows, "\n")))
	cr.FieldsPerRecord = -1
	cr.TrimLeadingSpace = true
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			return lines, head, nil
		}
		if err != nil { // it names the line
			return nil, false, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		no, _ := cr.FieldPos(0)
		for i := range rec {
			rec[i] = strings.TrimSpace(rec[i])
		}
		if strings.HasPrefix(rec[0], "#") || len(rec) == 1 && rec[0] == "" {
			continue
		}
		lines = append(lines, line{no, rec})
	}
}

func nsightHeader(row string) bool {
	return strings.Contains(row, "Kernel Name") && (strings.HasPrefix(row, `"ID"`) || strings.HasPrefix(row, "ID,"))
}

func detect(lines []line, nsight bool) Form {
	first := lines[0].fields
	switch {
	case nsight && slices.Contains(first, "Metric Name"):
		return NsightLong
	case nsight:
		return NsightWide
	case slices.Contains(first, "Elapsed_Cycles") && slices.Contains(first, "Benchmark"):
		return AccelWattch
	case len(first) == 1 && len(lines) > 3:
		if n, err := strconv.Atoi(first[0]); err == nil && n == len(lines[1].fields) && n == len(lines[2].fields) {
			return Utilisation
		}
	}
	return Plain
}

// header checks that names of columns are there once each.
func header(l line) error {
	seen := map[string]int{}
	for i, name := range l.fields {
		if err := measure.CheckText("a column's name", name); err != nil {
			return fmt.Errorf("line %d: %w: %w", l.no, ErrFormat, err)
		}
		if first, twice := seen[name]; twice && name != "" {
			return fmt.Errorf("line %d: %w: columns %d and %d are both %q: rename or remove one", l.no, ErrFormat, first+1, i+1, name)
		}
		seen[name] = i
	}
	return nil
}

// width checks that a record is as long as the header.
func (l line) width(want int) error {
	if len(l.fields) != want {
		return fmt.Errorf("line %d: %w: %d fields, the header has %d", l.no, ErrFormat, len(l.fields), want)
	}
	return nil
}

// value reads a number of a record; it must be finite.
func (l line) value(i int, column string) (float64, error) {
	v, err := number(l.fields[i])
	if err != nil {
		return 0, fmt.Errorf("line %d: column %q: %w", l.no, column, err)
	}
	return v, nil
}
