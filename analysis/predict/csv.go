package predict

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"wattmark/measure"
	"wattmark/measure/csvrow"
)

// ErrFormat: a file is not what it should be.
var ErrFormat = errors.New("unreadable")

// Table are the points of a file.
type Table struct {
	Points []Point
	// Kernels names the kernel of each point; empty where the file names none.
	Kernels []string
}

// Kernel returns the points of one kernel, all where name is empty. A file of
// several wants a name.
func (t *Table) Kernel(name string) ([]Point, error) {
	known := slices.Compact(slices.Sorted(slices.Values(t.Kernels)))
	if name == "" {
		if len(known) > 1 {
			return nil, fmt.Errorf("%w: it has points of %d kernels: name one of %s", ErrFormat, len(known), strings.Join(known, ", "))
		}
		return t.Points, nil
	}
	var out []Point
	for i, k := range t.Kernels {
		if k == name {
			out = append(out, t.Points[i])
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no points of %q: it has %s", ErrFormat, name, strings.Join(known, ", "))
	}
	return out, nil
}

// columns of a table of points. The first three must be there.
var pointColumns = []string{"blocks", "time_s", "energy_j", "u_j", "u_s", "repeat", "kernel"}

// ReadPoints reads a CSV file with a header: blocks, time_s and energy_j, and
// where wanted u_j and u_s (expanded uncertainties, k = 2), repeat (launches that
// time and energy are divided by) and kernel. Other columns are passed over. name
// is for the errors, which tell the line.
func ReadPoints(r io.Reader, name string) (*Table, error) {
	rows, err := newReader(r, name, pointColumns[:3], pointColumns)
	if err != nil {
		return nil, err
	}
	t := &Table{}
	for {
		row, err := rows.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		p, err := parsePoint(row)
		if err == nil {
			p.From = fmt.Sprintf("%s:%d", name, row.line)
			if err = p.Validate(); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return nil, row.wrap(err)
		}
		t.Points, t.Kernels = append(t.Points, p), append(t.Kernels, row.text("kernel"))
	}
	if len(t.Points) == 0 {
		return nil, fmt.Errorf("%s: %w: a header and no points", name, ErrFormat)
	}
	return t, nil
}

func parsePoint(r row) (p Point, err error) {
	var n, t, e, ut, ue float64
	repeat := 1.0
	for _, c := range []struct {
		name string
		to   *float64
	}{{"blocks", &n}, {"time_s", &t}, {"energy_j", &e}, {"u_s", &ut}, {"u_j", &ue}, {"repeat", &repeat}} {
		if err := r.number(c.name, c.to); err != nil {
			return p, err
		}
	}
	if n != math.Trunc(n) || n < 0 || n > MostBlocks {
		return p, fmt.Errorf("%w: blocks %v: want a whole number", ErrFormat, n)
	}
	if repeat < 1 || repeat != math.Trunc(repeat) {
		return p, fmt.Errorf("%w: repeat %v: want a whole number of launches, 1 or more", ErrFormat, repeat)
	}
	return Point{
		Blocks: uint64(n), Time: measure.Seconds(t / repeat), Energy: measure.Joule(e / repeat),
		UTime: measure.Seconds(ut / 2 / repeat), UEnergy: measure.Joule(ue / 2 / repeat),
	}, nil
}

// table reads rows of a CSV file by the names of its columns.
type rows struct {
	name string
	csv  *csvrow.Reader
	at   map[string]int
	n    int // columns
}

type row struct {
	of   *rows
	line int
	rec  []string
}

func newReader(r io.Reader, name string, must, may []string) (*rows, error) {
	c := csvrow.NewReader(r)
	c.TrimLeadingSpace, c.ReuseRecord, c.Comment, c.FieldsPerRecord = true, true, '#', -1
	header, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: no header: want %s", name, ErrFormat, strings.Join(must, ","))
	}
	out := &rows{name: name, csv: c, at: map[string]int{}, n: len(header)}
	for i, h := range header {
		h = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(h, "\ufeff")))
		if _, twice := out.at[h]; twice && slices.Contains(may, h) {
			return nil, fmt.Errorf("%s:1: %w: two columns %q", name, ErrFormat, h)
		}
		out.at[h] = i
	}
	for _, m := range must {
		if _, ok := out.at[m]; !ok {
			return nil, fmt.Errorf("%s:1: %w: no column %q: want %s, and may have %s", name, ErrFormat, m, strings.Join(must, ","), strings.Join(may[len(must):], ","))
		}
	}
	return out, nil
}

func (r *rows) next() (row, error) {
	rec, err := r.csv.Read()
	if errors.Is(err, io.EOF) {
		return row{}, io.EOF
	}
	if err != nil { // it names the line
		return row{}, fmt.Errorf("%s: %w: %w", r.name, ErrFormat, err)
	}
	line, _ := r.csv.FieldPos(0)
	out := row{r, line, rec}
	if len(rec) != r.n {
		return out, out.wrap(fmt.Errorf("%w: %d fields, the header has %d", ErrFormat, len(rec), r.n))
	}
	return out, nil
}

func (r row) wrap(err error) error { return fmt.Errorf("%s:%d: %w", r.of.name, r.line, err) }

// text is a field, empty where the column is not there.
func (r row) text(column string) string {
	i, ok := r.of.at[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(r.rec[i])
}

// number reads a field; one that is empty or not there leaves v alone.
func (r row) number(column string, v *float64) error {
	s := r.text(column)
	if s == "" {
		if slices.Contains([]string{"blocks", "time_s", "energy_j", "power_w"}, column) {
			return fmt.Errorf("%w: %s is empty", ErrFormat, column)
		}
		return nil
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("%w: %s %q: want a finite number", ErrFormat, column, s)
	}
	*v = x
	return nil
}
