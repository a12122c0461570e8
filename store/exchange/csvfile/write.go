// Package csvfile writes tables as CSV and reads the CSV of other tools.
package csvfile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

// Write writes a table: comment lines that begin with # (task, units and calibration, and all of it once
// more as JSON behind "# wattmark "), a line of column names, one line a scan. Numbers read back to the
// same float64. It blocks as long as w does, and keeps one batch in memory.
func Write(w io.Writer, t *exchange.Table) error {
	out := bufio.NewWriterSize(w, 1<<16)
	if err := header(out, t); err != nil {
		return err
	}
	// Lines are built in one buffer, without fmt: exports have millions of them.
	line := make([]byte, 0, 512)
	for b, err := range t.Batches {
		if err != nil {
			return err
		}
		for i := range b.Rows {
			line = line[:0]
			for c := range t.Columns {
				if c > 0 {
					line = append(line, ',')
				}
				switch v := &b.Columns[c]; t.Columns[c].Type {
				case exchange.Int32:
					line = strconv.AppendInt(line, int64(v.I32[i]), 10)
				case exchange.Int64:
					line = strconv.AppendInt(line, v.I64[i], 10)
				default: // the shortest digits that read back to the same bits
					line = strconv.AppendFloat(line, v.F64[i], 'g', -1, 64)
				}
			}
			if _, err := out.Write(append(line, '\n')); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// header writes the comments and the line of names.
// For people first, as sentences; then the same once more as JSON on one line, which Open reads.
func header(out *bufio.Writer, t *exchange.Table) error {
	m := &t.Meta
	fmt.Fprintf(out, "# wattmark task %d, %s, by %s, launched %s, calibration %s\n",
		m.Task.ID, m.Task.Name, m.Task.User, m.Task.Launched.Format(time.RFC3339Nano), m.Setup.ID)
	for _, n := range m.Notes {
		fmt.Fprintf(out, "# %s\n", n)
	}
	// The offset and gain by which raw counts become values, with standard uncertainties (k = 1).
	for _, c := range m.Setup.Channels {
		fmt.Fprintf(out, "# channel %s: %s = %g + %g x count, u(gain) %g relative, u(offset) %g\n",
			c.Name, c.Unit, c.Offset, c.Gain, c.UGainRel, c.UOffset)
		if c.Skew != 0 {
			fmt.Fprintf(out, "# channel %s: read %g s behind its scan's time; "+
				"derived values of a rail are brought to the instant of its first channel\n", c.Name, c.Skew)
		}
	}
	for _, r := range m.Setup.Missing {
		fmt.Fprintf(out, "# not measured: rail %s\n", r)
	}
	text, err := m.JSON()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# %s %s\n", exchange.MetaKey, text)
	names := lists.Map(t.Columns, func(c exchange.Column) string { return c.Name })
	_, err = fmt.Fprintln(out, strings.Join(names, ","))
	return err
}

// Input is a CSV file whose heading was understood.
type Input struct {
	*textin.Plan
	// Absolute: times count from 1970, else from anywhere.
	Absolute bool
	// Meta is there where the file is an export of ours.
	Meta *exchange.Meta
	open func() (io.ReadCloser, error)
}

const (
	// maxChannels bounds the columns of values that become a task: of each, tens of
	// thousands of readings are held at once.
	maxChannels = 256
	maxColumns  = 4096
)

// Open reads the heading of a CSV file. Columns are named with their units, as in
// pcie_12v_current_a or "12V current [mA]"; one is the time, as in t_s, time_ms,
// host_ns, or timestamp for a date with a time or a number since 1970 (docs/export.md). Lines
// that begin with # are comments; values stand between commas, semicolons or tabs, or spaces in
// a dump of PMT, which gives watts without a unit. Each pass over the file calls open anew.
func Open(open func() (io.ReadCloser, error), o textin.Options) (*Input, error) {
	in := &Input{open: open}
	err := in.table(func(comment string) {
		// The text behind the key is JSON on one line; a comment that merely begins like it is no metadata.
		var m exchange.Meta
		text, ok := strings.CutPrefix(comment, exchange.MetaKey+" {")
		if ok && json.Unmarshal([]byte("{"+text), &m) == nil {
			in.Meta = &m
		}
	}, func(t *logfile.Table) error { return in.plan(t, o) })
	if err != nil {
		return nil, err
	}
	return in, nil
}

// table opens the file from its beginning, for the duration of a call.
// The file is closed when visit returns: rows are valid until then.
func (in *Input) table(comment func(string), visit func(*logfile.Table) error) error {
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	t, err := logfile.Open(f, logfile.Options{
		Kind: textin.ErrInput, Want: "t_s,power_w", Blanks: true, Ragged: true, Comment: comment,
	})
	if err != nil {
		return err
	}
	return visit(t)
}

// Rows is the source of the rows of values.
func (in *Input) Rows(row func(textin.Row) error) error {
	return in.table(nil, func(t *logfile.Table) error {
		for r, err := range t.Rows() {
			if err != nil {
				return err
			}
			if t.Blanks && r.Fields[0] == "M" { // PMT's marker, at a time from when PMT began
				continue
			}
			if err := row(textin.Row{Row: r}); err != nil {
				return err
			}
		}
		return nil
	})
}

// plan understands the heading. Order: refuse raw exports, find the uses of columns, give PMT's columns a
// unit, choose among views of one sensor, make rails.
func (in *Input) plan(t *logfile.Table, o textin.Options) (err error) {
	if in.Meta != nil && in.Meta.Content == "raw" {
		return t.Fault("it holds raw counts: export without --raw, or carry tasks over with --format recording")
	}
	columns, fields, err := columnsOf(t)
	if err != nil {
		return err
	}
	// PMT's dump names devices without units: all of its values are watts.
	if t.Blanks && len(fields) == 0 {
		for i, c := range t.Columns[1:] {
			watts := logfile.Unit{Of: measure.UnitWatt}
			fields = append(fields, textin.Field{Column: i + 1, Rail: logfile.Plain(c.Text), Unit: watts})
		}
		// Adding up views of one sensor would count its power twice.
		if len(fields) > 1 && len(o.Rails) != 1 {
			return t.Fault("its columns %s are views of what PMT reads, not rails to add up: choose one with --rail",
				strings.Join(t.Heading.Fields[1:], ", "))
		}
	}
	in.Absolute = slices.ContainsFunc(columns, func(c textin.Column) bool { return c.Absolute })
	var views, chosen []string // rails that are views of nvidia-smi's sensor
	for _, f := range fields {
		if !strings.HasPrefix(t.Columns[f.Column].Text, sensorColumn) {
			continue
		}
		if views = append(views, f.Rail); len(o.Rails) == 0 || slices.Contains(o.Rails, f.Rail) {
			chosen = append(chosen, f.Rail)
		}
	}
	if len(chosen) > 1 {
		return t.Fault("its columns %s* are views of one sensor, not rails to add up: choose one with --rail %s "+
			"(or take the log in beside a task: wattmark import nvidia-smi)",
			sensorColumn, strings.Join(chosen, " or --rail "))
	}
	if in.Plan, err = textin.NewPlan(columns, fields, o); err != nil {
		return err
	}
	if n := len(in.Channels); n > maxChannels {
		return t.Fault("%d of its %d columns are values: at most %d are taken: "+
			"choose rails with --rail, or cut the file", n, len(t.Columns), maxChannels)
	}
	for i := range in.Rails {
		if slices.Contains(views, in.Rails[i].Name) { // that sensor sees the whole card
			in.Rails[i].Role = measure.RoleWholeGPU
		}
	}
	return nil
}

// sensorColumn begins the names of nvidia-smi's columns of power: views of one
// sensor, which are not to be added up.
const sensorColumn = "power.draw"

// columnsOf finds the uses of columns. Of several times the first is taken: an export of ours has device
// time before the host's. A column with a unit other than seconds is a value; one named for time, the time;
// others are left out.
func columnsOf(t *logfile.Table) (columns []textin.Column, fields []textin.Field, err error) {
	if n := len(t.Columns); n > maxColumns {
		return nil, nil, t.Fault("it names %d columns: at most %d are taken: cut the file", n, maxColumns)
	}
	columns = make([]textin.Column, len(t.Columns))
	timed := false
	for i, c := range t.Columns {
		columns[i].Column = c
		switch {
		case c.Name == "scan" && c.Unit.Of == "":
			columns[i].Kind = textin.Scan
		case c.Unit.Of != "" && c.Unit.Of != logfile.Second:
			fields = append(fields, textin.Field{Column: i, Rail: railOf(c.Name, c.Unit.Of), Unit: c.Unit})
		case timed:
		case c.Named("t", "time", "timestamp", "elapsed", "device_time", "host", "unix", "epoch", "datetime", "date"):
			timed, columns[i].Kind = true, textin.Time
			columns[i].Absolute = c.Unit.Of == "" || c.Named("host", "unix", "epoch")
		}
	}
	if !timed {
		return nil, nil, t.Fault("no column tells the time: " +
			"name one t_s, time_ms, host_ns or, for a date with a time or a number since 1970, timestamp")
	}
	return columns, fields, nil
}

// quantities are words for a quantity that its unit implies. They are cut off the column's name to give
// that of the rail: 12v_current and 12v_voltage are of rail 12v.
var quantities = map[measure.Unit][]string{
	measure.UnitAmpere: {"current", "i"}, measure.UnitVolt: {"voltage", "u", "v"}, measure.UnitWatt: {"power", "p"},
}

// railOf returns the rail of a column: its name without the word for the quantity. The total has none.
func railOf(base string, u measure.Unit) string {
	for _, q := range quantities[u] {
		if base == q {
			base = ""
		}
		// As a suffix, then as a prefix; the first word that fits ends the search.
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
