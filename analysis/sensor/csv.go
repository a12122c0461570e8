package sensor

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"

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

// ParseReadings reads a CSV file of readings. Its heading names the columns with
// their units: time_us or time_s (the host's, wanted), stamp_us (the register's
// own, if any), and power columns such as instant_mw or average_w. Other columns
// are left out, and so are values that are empty or N/A. heading stands for the
// file's, where it has none; DefaultReadings where both are missing. Errors name the
// line and wrap ErrFile.
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
		if name := strings.ToLower(c.Base); !slices.Contains(t.Fields, name) {
			t.Fields = append(t.Fields, name)
		}
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

// ParsePhases reads a CSV file of what ran when, in one of two forms: a line for
// each begin and end (time_us, event: NAME-begin, NAME-end), or a line for each
// stretch (begin_s, end_s, name). The name gap means that nothing ran. heading is as for
// ParseReadings, and errors are as its.
func ParsePhases(r io.Reader, heading string) ([]Phase, error) {
	in, err := open(r, heading, DefaultEvents)
	if err != nil {
		return nil, err
	}
	p := phases{
		at: times(in, "at"), begin: times(in, "begin"), end: times(in, "end"),
		name: in.Find("event", "name", "kernel"), open: map[string]measure.Seconds{},
	}
	add := p.event
	switch {
	case p.begin.Is() && p.end.Is() && p.name.Is():
		add = p.stretch
	case !p.at.Is() || !p.name.Is():
		return nil, in.Fault("want columns time_us and event (NAME-begin, NAME-end), or begin_s, end_s and name")
	}
	for row, err := range in.Rows() {
		if err == nil {
			err = add(row)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(p.open) > 0 || len(p.list) == 0 {
		return nil, in.Fault("%d stretches of work, %d begun and never ended", len(p.list), len(p.open))
	}
	slices.SortStableFunc(p.list, func(a, b Phase) int { return cmp.Compare(a.From, b.From) })
	return p.list, nil
}

// phases are being read.
type phases struct {
	at, begin, end, name logfile.Column
	list                 []Phase
	open                 map[string]measure.Seconds // begun, and not yet ended
}

// gap is the name by which files mark that no kernel ran.
const gap = "gap"

// add appends a stretch of work; gaps are none.
func (p *phases) add(name string, from, to measure.Seconds) {
	if name != gap {
		p.list = append(p.list, Phase{name, from, to})
	}
}

// stretch adds the row of a stretch of work.
func (p *phases) stretch(row logfile.Row) error {
	from, err := seconds(row, p.begin)
	if err != nil {
		return err
	}
	to, err := seconds(row, p.end)
	if err != nil {
		return err
	}
	if to < from {
		return row.Fault(p.end, "it ends at %s, before it begins at %s", row.Text(p.end), row.Text(p.begin))
	}
	p.add(row.Text(p.name), from, to)
	return nil
}

// event adds the row of a begin or an end.
func (p *phases) event(row logfile.Row) error {
	t, err := seconds(row, p.at)
	if err != nil {
		return err
	}
	event := row.Text(p.name)
	if n, ok := strings.CutSuffix(event, "-begin"); ok {
		if _, twice := p.open[n]; twice {
			return row.Fault(p.name, "%q begins twice", n)
		}
		p.open[n] = t
		return nil
	}
	n, ok := strings.CutSuffix(event, "-end")
	from, begun := p.open[n]
	if !ok || !begun || t < from {
		return row.Fault(p.name, "event %q: want NAME-begin, and NAME-end after it", event)
	}
	delete(p.open, n)
	p.add(n, from, t)
	return nil
}
