package sensor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// ErrFile is wrapped by errors about files that hold no readings or no events.
var ErrFile = errors.New("not in the wanted form")

// Defaults are the columns of files without a heading.
const (
	// DefaultReadings: the host's time, three power registers, the energy counter,
	// the register's own time.
	DefaultReadings = "time_us,instant_mw,average_mw,usage_mw,energy_mj,stamp_us"
	// DefaultEvents: the host's time, and what began or ended then.
	DefaultEvents = "time_us,event"
)

// Table is a file of readings: the polls of each power column, by its name.
type Table struct {
	Fields []string // in the file's order
	Polls  map[string][]Poll
}

// timeNames are the names of columns of time, by their use.
var timeNames = map[string][]string{
	"at": {"time", "timestamp", "at"}, "stamp": {"stamp"}, "begin": {"begin", "start", "from"}, "end": {"end", "to"},
}

// open reads the heading of a file. heading stands for the file's, standard for both.
func open(r io.Reader, heading, standard string) (*logfile.Table, error) {
	t, err := logfile.Open(r, logfile.Options{
		Kind: ErrFile, Want: standard, Heading: heading, Default: standard, Spaced: true,
	})
	if err != nil {
		return nil, err
	}
	for _, c := range t.Columns {
		for _, names := range timeNames {
			if n := c.Name; c.Named(names...) && c.Unit.Of != logfile.Second {
				return nil, t.Heading.Fault(c, "a time without a unit: write %s_s, %s_ms, %s_us or %s_ns", n, n, n, n)
			}
		}
	}
	return t, nil
}

// times returns the column of time of a use.
func times(t *logfile.Table, use string) logfile.Column {
	return t.First(func(c logfile.Column) bool { return c.Named(timeNames[use]...) })
}

// seconds returns a time in s.
func seconds(row logfile.Row, c logfile.Column) (measure.Seconds, error) {
	v, err := row.Number(c)
	return measure.Seconds(v), err
}

// ParseReadings reads a CSV file of readings. Its heading names the columns with their units: time_us or time_s (the
// host's, wanted), stamp_us (the register's own, if any), and power columns such as instant_mw or average_w. Other
// columns are left out, and so are values that are empty or N/A. heading stands for the file's, where it has none;
// DefaultReadings where both are missing. Errors name the line and wrap ErrFile.
func ParseReadings(r io.Reader, heading string) (*Table, error) {
	in, err := open(r, heading, DefaultReadings)
	if err != nil {
		return nil, err
	}
	at, stamp := times(in, "at"), times(in, "stamp")
	t := &Table{Polls: map[string][]Poll{}}
	var power []logfile.Column
	for _, c := range in.Columns {
		if c.Unit.Of != measure.UnitWatt {
			continue
		}
		power = append(power, c)
		t.Fields = lists.AddNew(t.Fields, strings.ToLower(c.Base))
	}
	if !at.Is() || len(power) == 0 {
		return nil, in.Fault("want a column time_us (or _s, _ms, _ns) and one of power, " +
			"such as instant_mw or average_w")
	}
	for row, err := range in.Rows() {
		if err == nil {
			err = t.add(row, at, stamp, power)
		}
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// add appends a row's poll of each power column that has a value.
func (t *Table) add(row logfile.Row, at, stamp logfile.Column, power []logfile.Column) (err error) {
	p := Poll{}
	if p.At, err = seconds(row, at); err == nil && stamp.Is() {
		p.Stamp, err = seconds(row, stamp)
	}
	if err != nil {
		return err
	}
	for _, c := range power {
		if row.Missing(c) {
			continue
		}
		w, err := row.Number(c)
		if err != nil {
			return err
		}
		p.Power = measure.Watt(w)
		name := strings.ToLower(c.Base)
		if list := t.Polls[name]; len(list) > 0 && p.At < list[len(list)-1].At {
			return row.Fault(at, "%s goes back in time", row.Text(at))
		}
		t.Polls[name] = append(t.Polls[name], p)
	}
	return nil
}

// ParsePhases reads a CSV file of what ran when, in one of two forms: a line for each begin and end (time_us, event:
// NAME-begin, NAME-end), or a line for each stretch (begin_s, end_s, name). The name gap means that nothing ran.
// heading is as for ParseReadings, and errors are as its.
func ParsePhases(r io.Reader, heading string) ([]Phase, error) {
	in, err := open(r, heading, DefaultEvents)
	if err != nil {
		return nil, err
	}
	at, begin, end, name := times(in, "at"), times(in, "begin"), times(in, "end"), in.Find("event", "name", "kernel")
	stretches := begin.Is() && end.Is() && name.Is()
	if !stretches && (!at.Is() || !name.Is()) {
		return nil, in.Fault("want columns time_us and event (NAME-begin, NAME-end), or begin_s, end_s and name")
	}
	var list []Phase
	open := map[string]measure.Seconds{} // begun, and not yet ended
	for row, err := range in.Rows() {
		if err != nil {
			return nil, err
		}
		p, whole := Phase{Name: row.Text(name)}, true
		if stretches {
			if p.From, err = seconds(row, begin); err == nil {
				p.To, err = seconds(row, end)
			}
			if err == nil && p.To < p.From {
				err = row.Fault(end, "it ends at %s, before it begins at %s", row.Text(end), row.Text(begin))
			}
		} else {
			p, whole, err = event(row, at, name, open)
		}
		if err != nil {
			return nil, err
		}
		if whole && p.Name != "gap" { // by which files mark that no kernel ran
			list = append(list, p)
		}
	}
	if len(open) > 0 || len(list) == 0 {
		return nil, in.Fault("%d stretches of work, %d begun and never ended", len(list), len(open))
	}
	slices.SortStableFunc(list, func(a, b Phase) int { return cmp.Compare(a.From, b.From) })
	return list, nil
}

// ParseLoad reads a CSV file of a meter's power over stretches that follow each other
// (begin_s, end_s, power_w), as [Load.Write] writes it; nil for a file without a column of
// power. heading is as for ParseReadings, and errors are as its.
func ParseLoad(r io.Reader, heading string) (*Load, error) {
	in, err := open(r, heading, DefaultEvents)
	if err != nil {
		return nil, err
	}
	begin, end := times(in, "begin"), times(in, "end")
	power := in.First(func(c logfile.Column) bool { return c.Unit.Of == measure.UnitWatt })
	if !power.Is() || !begin.Is() || !end.Is() {
		return nil, nil
	}
	var at []measure.Seconds
	var watts []measure.Watt
	last := measure.Seconds(0)
	for row, err := range in.Rows() {
		if err != nil {
			return nil, err
		}
		from, err := seconds(row, begin)
		if err == nil {
			last, err = seconds(row, end)
		}
		w, perr := row.Number(power)
		if err = cmp.Or(err, perr); err != nil {
			return nil, err
		}
		at, watts = append(at, from), append(watts, measure.Watt(w))
	}
	l, err := NewLoad(append(at, last), watts)
	if err != nil {
		err = in.Fault("%w", err)
	}
	return l, err
}

// Write writes the file that ParseLoad reads, with all digits.
func (l *Load) Write(w io.Writer) error {
	_, err := io.WriteString(w, "begin_s,end_s,power_w\n")
	for i := 0; i < l.pieces() && err == nil; i++ {
		_, err = fmt.Fprintf(w, "%g,%g,%g\n", l.at[i], l.at[i+1], l.value[i])
	}
	return err
}

// event reads the row of a begin, which it notes in open, or of an end, which makes a
// whole phase of it.
func event(row logfile.Row, at, name logfile.Column, open map[string]measure.Seconds) (p Phase, whole bool, err error) {
	t, err := seconds(row, at)
	if err != nil {
		return p, false, err
	}
	text := row.Text(name)
	if n, ok := strings.CutSuffix(text, "-begin"); ok {
		if _, twice := open[n]; twice {
			return p, false, row.Fault(name, "%q begins twice", n)
		}
		open[n] = t
		return p, false, nil
	}
	n, ok := strings.CutSuffix(text, "-end")
	from, begun := open[n]
	if !ok || !begun || t < from {
		return p, false, row.Fault(name, "event %q: want NAME-begin, and NAME-end after it", text)
	}
	delete(open, n)
	return Phase{n, from, t}, true, nil
}
