package sensor

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

// column is what a heading says: a name and a factor to seconds or watts.
type column struct {
	name  string
	kind  byte // t time, p power, s the register's time, n a name, b begin, e end, - nothing of ours
	scale float64
}

var timeScales = map[string]float64{"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}

var powerScales = map[string]float64{"w": 1, "mw": 1e-3, "uw": 1e-6, "kw": 1e3}

// parseColumn reads a heading: name_unit, name [unit] or name (unit).
func parseColumn(h string) (column, error) {
	h = strings.TrimSpace(h)
	base, unit := h, ""
	for _, sep := range []string{"[", "(", "_", " "} {
		if i := strings.LastIndex(h, sep); i > 0 {
			base, unit = strings.TrimSpace(h[:i]), strings.ToLower(strings.Trim(h[i+1:], " ])"))
			break
		}
	}
	c := column{name: strings.ToLower(base), kind: '-'}
	kinds := map[string]byte{"time": 't', "timestamp": 't', "at": 't', "stamp": 's', "begin": 'b', "start": 'b', "from": 'b', "end": 'e', "to": 'e'}
	if k, ok := kinds[c.name]; ok {
		if c.scale, ok = timeScales[unit]; !ok {
			return c, fmt.Errorf("column %q: a time without a unit: write %s_s, %s_ms, %s_us or %s_ns", h, c.name, c.name, c.name, c.name)
		}
		c.kind = k
		return c, nil
	}
	if low := strings.ToLower(h); low == "event" || low == "name" || low == "kernel" {
		return column{name: low, kind: 'n'}, nil
	}
	if s, ok := powerScales[unit]; ok {
		c.kind, c.scale = 'p', s
	}
	return c, nil
}

// rows reads a file's records and its columns; heading replaces or stands in for
// the file's own first line.
func rows(r io.Reader, heading, standard string) (cols []column, recs [][]string, lines []int, err error) {
	cr := csvrow.NewReader(r)
	cr.TrimLeadingSpace, cr.FieldsPerRecord, cr.Comment = true, -1, '#'
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // it names the line
			return nil, nil, nil, fmt.Errorf("%w: %w", ErrFile, err)
		}
		line, _ := cr.FieldPos(0)
		recs, lines = append(recs, rec), append(lines, line)
	}
	if len(recs) == 0 {
		return nil, nil, nil, fmt.Errorf("%w: it is empty", ErrFile)
	}
	first := recs[0]
	if _, err := strconv.ParseFloat(first[0], 64); err != nil {
		recs, lines = recs[1:], lines[1:]
		if heading == "" {
			heading = strings.Join(first, ",")
		}
	}
	if heading == "" {
		names := strings.Split(standard, ",")
		if len(first) > len(names) {
			return nil, nil, nil, fmt.Errorf("line 1: %w: %d columns without a heading: name them, such as %s", ErrFile, len(first), standard)
		}
		heading = strings.Join(names[:len(first)], ",")
	}
	for _, h := range strings.Split(heading, ",") {
		c, err := parseColumn(h)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%w: %w", ErrFile, err)
		}
		cols = append(cols, c)
	}
	return cols, recs, lines, nil
}

// ParseReadings reads a CSV file of readings. Its heading names the columns with
// their units: time_us or time_s (the host's, wanted), stamp_us (the register's
// own, if any), and power columns such as instant_mw or average_w. Other columns
// are left out, and so are values that are empty or N/A. heading stands for the
// file's, where it has none; DefaultReadings where both are missing. Errors name the
// line and wrap ErrFile.
func ParseReadings(r io.Reader, heading string) (*Table, error) {
	cols, recs, lines, err := rows(r, heading, DefaultReadings)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(cols, func(c column) bool { return c.kind == 't' })
	stamp := slices.IndexFunc(cols, func(c column) bool { return c.kind == 's' })
	t := &Table{Polls: map[string][]Poll{}}
	for _, c := range cols {
		if c.kind == 'p' && !slices.Contains(t.Fields, c.name) {
			t.Fields = append(t.Fields, c.name)
		}
	}
	if at < 0 || len(t.Fields) == 0 {
		return nil, fmt.Errorf("%w: want a column time_us (or _s, _ms, _ns) and one of power, such as instant_mw or average_w", ErrFile)
	}
	for i, rec := range recs {
		if err := t.add(rec, cols, at, stamp); err != nil {
			return nil, fmt.Errorf("line %d: %w: %w", lines[i], ErrFile, err)
		}
	}
	return t, nil
}

func (t *Table) add(rec []string, cols []column, at, stamp int) error {
	if len(rec) != len(cols) {
		return fmt.Errorf("%d fields, want %d", len(rec), len(cols))
	}
	p := Poll{}
	v, err := parseNumber(rec[at])
	if err != nil {
		return err
	}
	p.At = measure.Seconds(v * cols[at].scale)
	if stamp >= 0 {
		if v, err = parseNumber(rec[stamp]); err != nil {
			return err
		}
		p.Stamp = measure.Seconds(v * cols[stamp].scale)
	}
	for i, c := range cols {
		if c.kind != 'p' || rec[i] == "" || strings.HasPrefix(rec[i], "[") || strings.EqualFold(rec[i], "n/a") {
			continue
		}
		if v, err = parseNumber(rec[i]); err != nil {
			return err
		}
		p.Power = measure.Watt(v * c.scale)
		if list := t.Polls[c.name]; len(list) > 0 && p.At < list[len(list)-1].At {
			return fmt.Errorf("%s goes back in time", rec[at])
		}
		t.Polls[c.name] = append(t.Polls[c.name], p)
	}
	return nil
}

func parseNumber(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return v, nil
}

// ParsePhases reads a CSV file of what ran when, in one of two forms: a line for
// each begin and end (time_us, event: NAME-begin, NAME-end), or a line for each
// stretch (begin_s, end_s, name). The name gap means that nothing ran. heading is as for
// ParseReadings, and errors are as its.
func ParsePhases(r io.Reader, heading string) ([]Phase, error) {
	cols, recs, lines, err := rows(r, heading, DefaultEvents)
	if err != nil {
		return nil, err
	}
	find := func(kind byte) int {
		return slices.IndexFunc(cols, func(c column) bool { return c.kind == kind })
	}
	at, name, begin, end := find('t'), find('n'), find('b'), find('e')
	var p phases
	for i, rec := range recs {
		switch {
		case len(rec) != len(cols):
			err = fmt.Errorf("%d fields, want %d", len(rec), len(cols))
		case begin >= 0 && end >= 0 && name >= 0:
			err = p.stretch(rec, cols, begin, end, name)
		case at >= 0 && name >= 0:
			err = p.event(rec[at], cols[at].scale, rec[name])
		default:
			return nil, fmt.Errorf("%w: want columns time_us and event (NAME-begin, NAME-end), or begin_s, end_s and name", ErrFile)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %w", lines[i], ErrFile, err)
		}
	}
	if len(p.open) > 0 || len(p.list) == 0 {
		return nil, fmt.Errorf("%w: %d stretches of work, %d begun and never ended", ErrFile, len(p.list), len(p.open))
	}
	slices.SortStableFunc(p.list, func(a, b Phase) int {
		switch {
		case a.From < b.From:
			return -1
		case a.From > b.From:
			return 1
		}
		return 0
	})
	return p.list, nil
}

// phases are being read.
type phases struct {
	list []Phase
	open map[string]measure.Seconds
}

// gap is how files say that no kernel ran.
const gap = "gap"

func (p *phases) add(name string, from, to measure.Seconds) {
	if name != gap {
		p.list = append(p.list, Phase{name, from, to})
	}
}

func (p *phases) stretch(rec []string, cols []column, begin, end, name int) error {
	a, err := parseNumber(rec[begin])
	b, err2 := parseNumber(rec[end])
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	from, to := measure.Seconds(a*cols[begin].scale), measure.Seconds(b*cols[end].scale)
	if to < from {
		return fmt.Errorf("it ends at %s, before it begins at %s", rec[end], rec[begin])
	}
	p.add(rec[name], from, to)
	return nil
}

func (p *phases) event(at string, scale float64, event string) error {
	v, err := parseNumber(at)
	if err != nil {
		return err
	}
	t := measure.Seconds(v * scale)
	if p.open == nil {
		p.open = map[string]measure.Seconds{}
	}
	if n, ok := strings.CutSuffix(event, "-begin"); ok {
		if _, twice := p.open[n]; twice {
			return fmt.Errorf("%q begins twice", n)
		}
		p.open[n] = t
		return nil
	}
	n, ok := strings.CutSuffix(event, "-end")
	from, begun := p.open[n]
	if !ok || !begun || t < from {
		return fmt.Errorf("event %q: want NAME-begin, and NAME-end after it", event)
	}
	delete(p.open, n)
	p.add(n, from, t)
	return nil
}
