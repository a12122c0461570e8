package csvfile

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"wattmark/measure"
	"wattmark/measure/csvrow"
	"wattmark/store/exchange"
	"wattmark/store/exchange/textin"
)

// Input is a CSV file whose heading was understood.
type Input struct {
	*textin.Plan
	// Absolute says that times count from 1970, else from anywhere.
	Absolute bool
	// Meta is there where the file is an export of ours.
	Meta *exchange.Meta
	open func() (io.ReadCloser, error)
	sep  rune
	pmt  bool // a dump of PMT: values between spaces, watts without a unit, lines of M between
}

// pmtTime begins the heading of a dump of PMT, and of nothing else with spaces between.
const pmtTime = "timestamp"

// maxMeta bounds the comment lines that are searched for metadata.
const maxMeta = 1 << 20

// Open reads the heading of a CSV file. Columns are named with their units, as in
// pcie_12v_current_a or "12V current [mA]"; one is the time, as in t_s, time_ms,
// host_ns, or timestamp for a date with a time or a number since 1970 (docs/export.md). Lines that begin
// with # are comments; values stand between commas, semicolons or tabs, or spaces in a dump of PMT.
func Open(open func() (io.ReadCloser, error), o textin.Options) (*Input, error) {
	in := &Input{open: open, sep: ','}
	if err := in.preamble(); err != nil {
		return nil, err
	}
	if in.Meta != nil && in.Meta.Content == "raw" {
		return nil, fmt.Errorf("%w: it holds raw counts: export without --raw, or carry tasks over with --format recording", textin.ErrInput)
	}
	var names []string
	stop := errors.New("that is enough")
	err := in.rows(func(r textin.Row) error {
		for _, f := range r.Fields {
			names = append(names, strings.TrimSpace(f))
		}
		return stop
	}, true)
	if err != nil && !errors.Is(err, stop) {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: it is empty: want a line of column names and lines of values", textin.ErrInput)
	}
	if len(names) > maxColumns {
		return nil, fmt.Errorf("%w: it names %d columns: at most %d are taken: cut the file", textin.ErrInput, len(names), maxColumns)
	}
	columns, fields, err := columnsOf(names)
	if err != nil {
		return nil, err
	}
	if in.pmt && len(fields) == 0 {
		for i, name := range names[1:] {
			fields = append(fields, textin.Field{Column: i + 1, Rail: textin.PlainName(name), Unit: measure.UnitWatt})
		}
		if len(fields) > 1 && len(o.Rails) != 1 {
			return nil, fmt.Errorf("%w: its columns %s are views of what PMT reads, not rails to add up: choose one with --rail", textin.ErrInput, strings.Join(names[1:], ", "))
		}
	}
	for _, c := range columns {
		in.Absolute = in.Absolute || c.Kind == textin.Time && c.Absolute
	}
	if err := oneSensor(columns, fields, o); err != nil {
		return nil, err
	}
	if in.Plan, err = textin.NewPlan(columns, fields, o); err != nil {
		return nil, err
	}
	if n := len(in.Plan.Channels); n > maxChannels {
		return nil, fmt.Errorf("%w: %d of its %d columns are values: at most %d are taken: choose rails with --rail, or cut the file", textin.ErrInput, n, len(names), maxChannels)
	}
	for i := range in.Rails { // that sensor sees the whole card
		for _, f := range fields {
			if f.Rail == in.Rails[i].Name && strings.HasPrefix(columns[f.Column].Name, sensorColumn) {
				in.Rails[i].Role = measure.RoleWholeGPU
			}
		}
	}
	return in, nil
}

// maxChannels is how many columns of values become a task: of each, tens of thousands of
// readings are held at once.
const maxChannels = 256

// maxColumns is how many columns a file may have.
const maxColumns = 4096

// sensorColumn begins the names of nvidia-smi's columns of power: views of one
// sensor, which are not to be added up.
const sensorColumn = "power.draw"

// oneSensor refuses several views of one sensor.
func oneSensor(columns []textin.Column, fields []textin.Field, o textin.Options) error {
	var views []string
	for _, f := range fields {
		if strings.HasPrefix(columns[f.Column].Name, sensorColumn) && (len(o.Rails) == 0 || slices.Contains(o.Rails, f.Rail)) {
			views = append(views, f.Rail)
		}
	}
	if len(views) < 2 {
		return nil
	}
	return fmt.Errorf("%w: its columns %s* are views of one sensor, not rails to add up: choose one with --rail %s (or take the log in beside a task: wattmark import nvidia-smi)",
		textin.ErrInput, sensorColumn, strings.Join(views, " or --rail "))
}

// preamble looks at the comment lines and the heading for our metadata and the
// separator.
func (in *Input) preamble() error {
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, maxMeta)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	for line := range strings.Lines(string(b[:n])) {
		if text, ok := strings.CutPrefix(line, "# "+exchange.MetaKey+" {"); ok {
			var m exchange.Meta
			if err := json.Unmarshal([]byte("{"+text), &m); err == nil {
				in.Meta = &m
			}
		}
		if line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff")); line == "" || line[0] == '#' {
			continue
		}
		if !strings.Contains(line, ",") {
			if strings.Contains(line, ";") {
				in.sep = ';'
			} else if strings.Contains(line, "\t") {
				in.sep = '\t'
			} else if strings.HasPrefix(line, pmtTime+" ") {
				in.sep, in.pmt = ' ', true
			}
		}
		break
	}
	return nil
}

// Rows is the source of the rows of values.
func (in *Input) Rows(row func(textin.Row) error) error { return in.rows(row, false) }

func (in *Input) rows(row func(textin.Row) error, heading bool) error {
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	r := csvrow.NewReader(f)
	r.Comma, r.Comment, r.ReuseRecord, r.FieldsPerRecord, r.TrimLeadingSpace = in.sep, '#', true, -1, true
	r.LazyQuotes = in.pmt
	for first := true; ; first = false {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			var pe *csv.ParseError
			if errors.As(err, &pe) {
				return fmt.Errorf("row %d: %w: %w: mend or remove it", pe.Line, textin.ErrInput, pe.Err)
			}
			return err
		}
		if first {
			fields[0] = strings.TrimPrefix(fields[0], "\ufeff")
		}
		if first && !heading {
			continue
		}
		if in.pmt && fields[0] == "M" { // a marker, at a time from when PMT began
			continue
		}
		line, _ := r.FieldPos(0)
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if err := row(textin.Row{Number: line, Fields: fields}); err != nil {
			return err
		}
	}
}

// units are the units of columns, with their power of ten.
var units = map[string]struct {
	unit     measure.Unit // empty for seconds
	exponent int
}{
	"s": {"", 0}, "ms": {"", -3}, "us": {"", -6}, "µs": {"", -6}, "ns": {"", -9},
	"a": {measure.UnitAmpere, 0}, "ma": {measure.UnitAmpere, -3}, "ua": {measure.UnitAmpere, -6}, "µa": {measure.UnitAmpere, -6},
	"v": {measure.UnitVolt, 0}, "mv": {measure.UnitVolt, -3}, "uv": {measure.UnitVolt, -6}, "µv": {measure.UnitVolt, -6},
	"w": {measure.UnitWatt, 0}, "mw": {measure.UnitWatt, -3}, "uw": {measure.UnitWatt, -6}, "µw": {measure.UnitWatt, -6}, "kw": {measure.UnitWatt, 3},
}

// quantities are words for what a unit says anyway.
var quantities = map[measure.Unit][]string{
	measure.UnitAmpere: {"current", "i"}, measure.UnitVolt: {"voltage", "u", "v"}, measure.UnitWatt: {"power", "p"},
}

// columnsOf understands names of columns.
func columnsOf(names []string) (columns []textin.Column, fields []textin.Field, err error) {
	columns = make([]textin.Column, len(names))
	times := 0
	for i, name := range names {
		columns[i].Name = name
		base, unit := split(name)
		u, known := units[unit]
		switch {
		case base == "scan" && unit == "":
			columns[i].Kind = textin.Scan
		case known && u.unit != "":
			fields = append(fields, textin.Field{Column: i, Rail: railOf(base, u.unit), Unit: u.unit, Exponent: u.exponent})
		case isTime(base) && (known || unit == ""):
			c := textin.Column{Name: name, Kind: textin.Time, Exponent: u.exponent, Absolute: base == "host" || base == "unix" || base == "epoch"}
			if !known {
				c.Stamp, c.Absolute = stamp, true
			}
			// Of several times the first is taken: ours has device time before the host's.
			if times++; times == 1 {
				columns[i] = c
			}
		}
	}
	if times == 0 {
		return nil, nil, fmt.Errorf("%w: no column tells the time: name one t_s, time_ms, host_ns or, for a date with a time or a number since 1970, timestamp", textin.ErrInput)
	}
	return columns, fields, nil
}

func isTime(base string) bool {
	switch base {
	case "t", "time", "timestamp", "elapsed", "device_time", "host", "unix", "epoch", "datetime", "date":
		return true
	}
	return false
}

// split takes the unit off a column's name: "x [mA]", "x (mA)" or x_ma.
func split(name string) (base, unit string) {
	name = strings.TrimSpace(name)
	for _, p := range []string{"[]", "()"} {
		if open := strings.LastIndexByte(name, p[0]); open >= 0 && strings.HasSuffix(name, p[1:]) {
			return textin.PlainName(name[:open]), strings.ToLower(strings.TrimSpace(name[open+1 : len(name)-1]))
		}
	}
	if i := strings.LastIndexByte(name, '_'); i >= 0 {
		if unit := strings.ToLower(name[i+1:]); units[unit].exponent != 0 || unit == "s" || unit == "a" || unit == "v" || unit == "w" {
			return textin.PlainName(name[:i]), unit
		}
	}
	return textin.PlainName(name), ""
}

// railOf takes the quantity's word off a column's base name; what is left is the
// rail. The total has none.
func railOf(base string, u measure.Unit) string {
	for _, q := range quantities[u] {
		if base == q {
			base = ""
		}
		if rail, ok := strings.CutSuffix(base, "_"+q); ok {
			base = rail
			break
		}
		if rail, ok := strings.CutPrefix(base, q+"_"); ok {
			base = rail
			break
		}
	}
	if base == "total" || base == "sum" {
		return ""
	}
	if base == "" && u != measure.UnitWatt {
		return "rail" // a file of one current and one voltage
	}
	return base
}

// stamp reads a date with a time, UTC where it names no zone, or a number since 1970.
func stamp(s string) (int64, error) {
	ns, _, err := measure.ParseMoment(s)
	return ns, err
}
