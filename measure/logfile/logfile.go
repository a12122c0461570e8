// Package logfile reads tables of measured values as programs log them: a heading whose
// columns carry units, then a row a sample.
//
//	Table ─┬─ Column ── Unit     of the heading: power_w, "Power [mW]", "t (ms)"
//	       └─ Row                Text, Number (SI) and Time of a column's field
//	Error                        file:line: column: the fault
//
// Values stand between commas; between semicolons or tabs where the heading has no comma.
// Lines that begin with # are comments; blank lines and a byte order mark are skipped. A row
// is bounded (MaxRow), so memory is too, whatever the file holds: encoding/csv alone would
// take a quoted value that does not end into memory as a whole.
//
// The package is pure: it reads an io.Reader, and knows neither files nor which columns a
// program wants. Those programs are the importers of store/exchange and the readers of
// analysis.
package logfile

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/measure"
)

// MaxRow is the most bytes that a row, or a comment before the heading, may have.
const MaxRow = 1 << 20

// ErrTooLong is wrapped by errors about a row of more than MaxRow.
var ErrTooLong = errors.New("a row is longer than 1 MiB, or a quoted value does not end")

// Options of a table. The zero value is for CSV with a heading.
type Options struct {
	// Name of the file, for errors; In adds it to errors of readers that do not know it.
	Name string
	// Kind is wrapped by all errors about the content.
	Kind error
	// Want is an example of a heading, for the error about a file without one.
	Want string
	// Heading takes the place of the file's own. Default is the heading of a file that
	// begins with a number; neither is needed where each file has a heading.
	Heading, Default string
	// Spaced lets a space part a column's unit from its name, as in "power w".
	Spaced bool
	// Blanks lets spaces part the values where the heading begins with "timestamp ", with
	// quotes anywhere.
	Blanks bool
	// Ragged allows rows shorter and longer than the heading.
	Ragged bool
	// Comment gets the comments before the heading, without the # and the end of line.
	Comment func(text string)
}

// Table is a file whose heading was read.
type Table struct {
	Columns []Column
	// Heading is the file's first row; its Fault reports the error of the columns.
	Heading Row
	// Blanks reports that values stand between spaces.
	Blanks bool

	o       *Options
	csv     *csv.Reader
	in      *bounded
	skipped int // lines before the heading
	last    int // line of the last row
	pending []string
}

// Open reads the comments and the heading of a table.
func Open(r io.Reader, o Options) (*Table, error) {
	t := &Table{o: &o}
	br := bufio.NewReaderSize(r, 1<<16)
	if err := t.preamble(br); err != nil {
		return nil, err
	}
	t.read(br)
	first, err := t.next()
	if errors.Is(err, io.EOF) {
		return nil, t.Fault("it is empty: want a heading such as %s, and rows", o.Want)
	}
	if err != nil {
		return nil, err
	}
	names := slices.Clone(first.Fields)
	first.Fields = names
	if o.Heading != "" || o.Default != "" {
		if _, err := strconv.ParseFloat(names[0], 64); err == nil {
			t.pending = names
			given := strings.Split(o.Default, ",")
			if o.Heading == "" && len(names) > len(given) && !o.Ragged {
				return nil, first.Fault(Column{}, "%d columns without a heading: name them, such as %s",
					len(names), o.Default)
			}
			names = given[:min(len(names), len(given))]
		}
		if o.Heading != "" {
			names = strings.Split(o.Heading, ",")
		}
	}
	t.Heading = first
	for i, text := range names {
		c := ParseColumn(text, o.Spaced)
		c.Index = i
		t.Columns = append(t.Columns, c)
	}
	return t, nil
}

// preamble reads the byte order mark, comments and empty lines before the heading.
func (t *Table) preamble(br *bufio.Reader) error {
	if b, _ := br.Peek(3); bytes.Equal(b, []byte("\ufeff")) {
		_, _ = br.Discard(3) // they are there
	}
	for {
		c, err := br.Peek(1)
		if err != nil || c[0] != '#' && c[0] != '\n' && c[0] != '\r' {
			return nil // the heading's reader meets the error again
		}
		var line []byte
		for more := true; more; {
			part, err := br.ReadSlice('\n')
			if more = errors.Is(err, bufio.ErrBufferFull); more && len(line) > MaxRow {
				return &Error{File: t.o.Name, Line: t.skipped + 1, Kind: t.o.Kind, Err: ErrTooLong}
			}
			line = append(line, part...)
		}
		t.skipped++
		if text, ok := bytes.CutPrefix(line, []byte("#")); ok && t.o.Comment != nil {
			t.o.Comment(strings.TrimSpace(string(text)))
		}
	}
}

// read chooses the separator by the heading, which comes next.
func (t *Table) read(br *bufio.Reader) {
	head, _ := br.Peek(br.Size()) // shorter files have an error, and a heading
	head, _, _ = bytes.Cut(head, []byte("\n"))
	t.in = &bounded{r: br}
	t.csv = csv.NewReader(t.in)
	t.csv.Comment, t.csv.TrimLeadingSpace, t.csv.ReuseRecord, t.csv.FieldsPerRecord = '#', true, true, -1
	switch {
	case bytes.ContainsRune(head, ','):
	case bytes.ContainsRune(head, ';'):
		t.csv.Comma = ';'
	case bytes.ContainsRune(head, '\t'):
		t.csv.Comma = '\t'
	case t.o.Blanks && bytes.HasPrefix(head, []byte("timestamp ")):
		t.csv.Comma, t.csv.LazyQuotes, t.Blanks = ' ', true, true
	}
}

// Next returns the next row, io.EOF behind the last one. The row's slice is used again; its
// strings are not. After an error about one row the next call goes on behind it.
func (t *Table) Next() (Row, error) {
	if t.pending != nil {
		row := Row{Line: t.last, Fields: t.pending, o: t.o}
		t.pending = nil
		return row, t.width(row)
	}
	row, err := t.next()
	if err != nil {
		return row, err
	}
	return row, t.width(row)
}

// width refuses a row that is not as wide as the heading, unless the table is ragged.
func (t *Table) width(row Row) error {
	if t.o.Ragged || len(row.Fields) == len(t.Columns) {
		return nil
	}
	return row.Fault(Column{}, "%d fields, the heading has %d: mend or remove the row", len(row.Fields), len(t.Columns))
}

// Rows yields all rows that follow, and ends with the first error.
func (t *Table) Rows() iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for {
			row, err := t.Next()
			if errors.Is(err, io.EOF) || !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// next reads a row of any width, with its fields trimmed. Rows of blanks alone are skipped.
func (t *Table) next() (Row, error) {
	for {
		t.in.left = MaxRow
		fields, err := t.csv.Read()
		var pe *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return Row{}, io.EOF
		case errors.Is(err, ErrTooLong):
			err = fmt.Errorf("behind line %d: %w: cut it, or mend its quotes", t.last, ErrTooLong)
			return Row{}, &Error{File: t.o.Name, Kind: t.o.Kind, Err: err}
		case errors.As(err, &pe):
			t.last = pe.Line + t.skipped
			err = fmt.Errorf("%w: mend or remove the row", pe.Err)
			return Row{}, &Error{File: t.o.Name, Line: t.last, Kind: t.o.Kind, Err: err}
		case err != nil:
			return Row{}, &Error{File: t.o.Name, Err: err}
		}
		line, _ := t.csv.FieldPos(0)
		t.last = line + t.skipped
		for i, f := range fields {
			fields[i] = strings.TrimSpace(f)
		}
		if len(fields) > 1 || fields[0] != "" {
			return Row{Line: t.last, Fields: fields, o: t.o}, nil
		}
	}
}

// Find returns the first column whose whole plain name, unit included, is one of names; one
// without a field, whose Is is false, where there is none.
func (t *Table) Find(names ...string) Column {
	return t.First(func(c Column) bool { return slices.Contains(names, Plain(c.Text)) })
}

// First returns the first column that fits; one without a field where none does.
func (t *Table) First(fits func(Column) bool) Column {
	if i := slices.IndexFunc(t.Columns, fits); i >= 0 {
		return t.Columns[i]
	}
	return Column{Index: -1}
}

// Fault returns an error about the file as a whole.
func (t *Table) Fault(format string, a ...any) error {
	return &Error{File: t.o.Name, Kind: t.o.Kind, Err: fmt.Errorf(format, a...)}
}

// Row is one row of a table.
type Row struct {
	Line   int // in the file, from 1
	Fields []string

	o *Options
}

// Text returns a column's field; empty where the column or the field is not there.
func (r Row) Text(c Column) string {
	if c.Index < 0 || c.Index >= len(r.Fields) {
		return ""
	}
	return r.Fields[c.Index]
}

// Missing reports whether a column's field stands for no value: empty, N/A, or a reason in
// brackets as nvidia-smi's [Not Supported].
func (r Row) Missing(c Column) bool {
	s := r.Text(c)
	return s == "" || s[0] == '[' || strings.EqualFold(s, "n/a")
}

// Number returns a column's field in SI units. It must be a finite number, of the column's
// unit or with a unit of the same quantity behind it, as in "30.5 W".
func (r Row) Number(c Column) (float64, error) {
	text, scale := r.Text(c), c.Unit.Scale()
	if number, unit, ok := strings.Cut(text, " "); ok {
		if u, known := ParseUnit(unit); known && (u.Of == c.Unit.Of || c.Unit.Of == "") {
			text, scale = number, u.Scale()
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case text == "":
		return 0, r.Fault(c, "it is empty: fill it in, or remove the row")
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		return 0, r.Fault(c, "%q is not a finite number: mend or remove the row", text)
	}
	return v * scale, nil
}

// Form is how a time is written.
type Form int

// The forms of times.
const (
	Counted Form = iota // a number of the column's unit, from anywhere
	Local               // a date with a time that names no zone; it is taken for UTC
	Zoned               // a date with a time and its zone, or a number of 1970 and later
)

// Time returns a column's field in ns, with all of its decimal places: from where the numbers
// of the column's unit count, else from 1970.
func (r Row) Time(c Column) (ns int64, form Form, err error) {
	text := r.Text(c)
	if _, err := strconv.ParseFloat(text, 64); err == nil && c.Unit.Of == Second {
		if ns, err = measure.ParseNanos(text, c.Unit.Exponent); err != nil {
			return 0, Counted, r.Fault(c, "%q is no time within 146 years: mend or remove the row", text)
		}
		return ns, Counted, nil
	}
	ns, zoned, err := measure.ParseMoment(text)
	if err != nil {
		return 0, Local, r.Fault(c, "%w", err)
	}
	if zoned {
		return ns, Zoned, nil
	}
	return ns, Local, nil
}

// Fault returns an error about a column's field, or about the row where c is Column{}.
func (r Row) Fault(c Column, format string, a ...any) error {
	e := &Error{Line: r.Line, Column: c.Text, Err: fmt.Errorf(format, a...)}
	if r.o != nil {
		e.File, e.Kind = r.o.Name, r.o.Kind
	}
	return e
}

// Error is a fault of a file, with its place.
type Error struct {
	File   string // empty where the reader does not know it
	Line   int    // from 1; 0 for the file as a whole
	Column string // as the heading has it; empty for the row as a whole
	Kind   error  // the reader's own; may be nil
	Err    error  // the fault and its remedy
}

// Error returns file:line: column: fault. The kind stands before faults of a whole file.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.File != "" && e.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	case e.File != "":
		b.WriteString(e.File + ": ")
	case e.Line > 0:
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Kind != nil && e.Line == 0 {
		b.WriteString(e.Kind.Error() + ": ")
	}
	if e.Column != "" {
		b.WriteString(measure.Printable(e.Column) + ": ")
	}
	return b.String() + e.Err.Error()
}

// Unwrap returns the fault and the kind.
func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Kind}
}

// In adds a file's name to an error of reading it; nil stays nil.
func In(file string, err error) error {
	if err == nil {
		return nil
	}
	// An Error behind other words has its place in the middle of the text: it stays.
	if e, ok := err.(*Error); ok && e.File == "" { //nolint:errorlint // see above
		named := *e
		named.File = file
		return &named
	}
	return fmt.Errorf("%s: %w", file, err)
}

// bounded passes on so many bytes, then ErrTooLong.
type bounded struct {
	r    io.Reader
	left int
}

// Read is part of io.Reader. Table sets left before each row.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, ErrTooLong
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}

// Second is the unit of time, beside those of channels.
const Second measure.Unit = "s"

// Unit is a quantity's unit and the power of ten that brings numbers to it: −3 for mW.
type Unit struct {
	Of       measure.Unit // Second, or a channel's; empty where a heading names none
	Exponent int
}

// Scale returns the factor from the column's numbers to SI units.
func (u Unit) Scale() float64 { return math.Pow10(u.Exponent) }

// units are the units by the words for them, in lower case.
var units = func() map[string]Unit {
	out := map[string]Unit{}
	for u, words := range map[Unit]string{
		{Second, 0}:              "s sec second seconds",
		{Second, -3}:             "ms msec msecond millisecond milliseconds",
		{Second, -6}:             "us µs μs usec usecond microsecond microseconds",
		{Second, -9}:             "ns nsec nsecond nanosecond nanoseconds",
		{measure.UnitVolt, 0}:    "v volt volts",
		{measure.UnitVolt, -3}:   "mv millivolts",
		{measure.UnitVolt, -6}:   "uv µv μv",
		{measure.UnitAmpere, 0}:  "a amp amps amperes",
		{measure.UnitAmpere, -3}: "ma milliamps",
		{measure.UnitAmpere, -6}: "ua µa μa",
		{measure.UnitWatt, 3}:    "kw kilowatts",
		{measure.UnitWatt, 0}:    "w watt watts",
		{measure.UnitWatt, -3}:   "mw milliwatts",
		{measure.UnitWatt, -6}:   "uw µw μw microwatts",
	} {
		for _, w := range strings.Fields(words) {
			out[w] = u
		}
	}
	return out
}()

// ParseUnit reads a unit's symbol or name, in lower or upper case.
func ParseUnit(s string) (Unit, bool) {
	u, ok := units[strings.ToLower(strings.TrimSpace(s))]
	return u, ok
}

// Column is a column of a table, as its heading describes it.
type Column struct {
	Index int    // of its field in a row; less than 0 where there is no such column
	Text  string // as the heading has it
	Base  string // without the unit
	Name  string // Base as a plain name
	Unit  Unit
}

// Is reports whether there is such a column.
func (c Column) Is() bool { return c.Index >= 0 }

// Named reports whether the column's name without the unit is one of names.
func (c Column) Named(names ...string) bool { return slices.Contains(names, c.Name) }

// ParseColumn splits a heading's text into name and unit: "x [mA]", "x (mA)", x_ma, and, with
// spaced, "x ma". A unit in brackets that is not known is dropped; any other stays a part of
// the name.
func ParseColumn(text string, spaced bool) Column {
	c := Column{Text: strings.TrimSpace(text)}
	c.Base = c.Text
	for _, p := range []string{"[]", "()"} {
		if i := strings.LastIndexByte(c.Text, p[0]); i > 0 && strings.HasSuffix(c.Text, p[1:]) {
			c.Base = strings.TrimRight(c.Text[:i], " _")
			c.Unit, _ = ParseUnit(c.Text[i+1 : len(c.Text)-1])
			c.Name = Plain(c.Base)
			return c
		}
	}
	separators := "_"
	if spaced {
		separators = "_ "
	}
	if i := strings.LastIndexAny(c.Text, separators); i > 0 {
		if u, ok := ParseUnit(c.Text[i+1:]); ok {
			c.Base, c.Unit = strings.TrimRight(c.Text[:i], " _"), u
		}
	}
	c.Name = Plain(c.Base)
	return c
}

// Plain returns a text as a name: lower-case letters and digits, with a _ for each run of
// anything else between them.
func Plain(s string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteRune(r)
		} else {
			gap = true
		}
	}
	return b.String()
}
