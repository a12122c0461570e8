package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"wattmark/measure/csvrow"
)

// Kernel is a named stretch of work on the host's clock.
type Kernel struct {
	Name       string
	Start, End time.Time
}

// Pairs makes kernels of event times that alternate between start and end, as
// [ParseEvents] returns them. A last time without a partner ends the run, not a
// kernel.
func Pairs(events []time.Time) (out []Kernel) {
	for i := 0; i+1 < len(events); i += 2 {
		out = append(out, Kernel{Name: "kernel", Start: events[i], End: events[i+1]})
	}
	return out
}

// mostKernels bounds what is held of a file of kernels.
const mostKernels = 4 << 20

// ParseKernels reads a CSV with named columns: start and end with their units
// (start_s, start_ms, start_us or start_ns since 1970), and name where there is
// one; or timestamps.csv's single column. The kernels come in order of their
// starts. What wattmark export --format kernels writes is such a file. Span is
// from the first time to the last in the file.
func ParseKernels(r io.Reader) (list []Kernel, from, to time.Time, err error) {
	cr := csvrow.NewReader(r)
	cr.TrimLeadingSpace, cr.ReuseRecord, cr.FieldsPerRecord, cr.Comment = true, true, -1, '#'
	header, err := cr.Read()
	if err != nil {
		return nil, from, to, fmt.Errorf("recording: row 1: no header: want name,start_us,end_us or timestamp")
	}
	c := columnsOf(header)
	if c.stamp >= 0 && c.start < 0 {
		return parseStamps(cr, c.stamp)
	}
	if c.start < 0 || c.end < 0 {
		return nil, from, to, fmt.Errorf("recording: row 1: no columns start and end with a unit in %q: want name,start_us,end_us (s, ms, us or ns since 1970)", header)
	}
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, from, to, fmt.Errorf("recording: %w", err)
		}
		row, _ := cr.FieldPos(0)
		k, err := c.kernel(rec)
		if err == nil && len(list) == mostKernels {
			err = fmt.Errorf("more than %d kernels: cut the file", mostKernels)
		}
		if err != nil {
			return nil, from, to, fmt.Errorf("recording: row %d: %w", row, err)
		}
		list = append(list, k)
	}
	if len(list) == 0 {
		return nil, from, to, errors.New("recording: no kernels in it: at least one start and end is wanted")
	}
	slices.SortStableFunc(list, func(a, b Kernel) int { return a.Start.Compare(b.Start) })
	from = list[0].Start
	to = slices.MaxFunc(list, func(a, b Kernel) int { return cmp.Compare(a.End.UnixNano(), b.End.UnixNano()) }).End
	return list, from, to, nil
}

// kernelColumns are where in a row a kernel stands; −1 for nowhere.
type kernelColumns struct {
	name, start, end, stamp int
	startUnit, endUnit      time.Duration
}

func columnsOf(header []string) kernelColumns {
	c := kernelColumns{name: -1, start: -1, end: -1, stamp: -1}
	units := map[string]time.Duration{"s": time.Second, "ms": time.Millisecond, "us": time.Microsecond, "µs": time.Microsecond, "ns": 1}
	for i, h := range header {
		h = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(h, "\ufeff")))
		base, unit, _ := strings.Cut(strings.NewReplacer(" [", "_", "]", "", " (", "_", ")", "").Replace(h), "_")
		switch {
		case h == "name" || h == "kernel":
			c.name = i
		case h == "timestamp":
			c.stamp = i
		case base == "start" && units[unit] > 0:
			c.start, c.startUnit = i, units[unit]
		case base == "end" && units[unit] > 0:
			c.end, c.endUnit = i, units[unit]
		}
	}
	return c
}

func (c kernelColumns) kernel(rec []string) (k Kernel, err error) {
	if len(rec) <= max(c.start, c.end, c.name) {
		return k, fmt.Errorf("%d fields, too few: mend or remove it", len(rec))
	}
	if k.Start, err = parseUnit(rec[c.start], c.startUnit); err != nil {
		return k, err
	}
	if k.End, err = parseUnit(rec[c.end], c.endUnit); err != nil {
		return k, err
	}
	if k.End.Before(k.Start) {
		return k, fmt.Errorf("it ends %v before it starts: mend or remove it", k.Start.Sub(k.End))
	}
	k.Name = "kernel"
	if c.name >= 0 && rec[c.name] != "" {
		k.Name = strings.Clone(rec[c.name])
	}
	return k, nil
}

// parseUnit reads a time since 1970 of this century, in a unit.
func parseUnit(s string, unit time.Duration) (time.Time, error) {
	s = strings.TrimSpace(s)
	n, err := strconv.ParseInt(s, 10, 64)
	t := time.Unix(0, 0)
	perSecond := int64(time.Second / unit)
	if err == nil {
		t = time.Unix(n/perSecond, n%perSecond*int64(unit))
	} else if whole, part, ok := strings.Cut(s, "."); ok && part != "" && len(part) <= 18 { // without the rounding of a float
		var w int64
		var f float64
		if w, err = strconv.ParseInt(whole, 10, 64); err == nil {
			f, err = strconv.ParseFloat("0."+part, 64)
		}
		t = time.Unix(w/perSecond, w%perSecond*int64(unit)+int64(f*float64(unit)+0.5))
	}
	if err != nil || t.Year() < 2000 || t.Year() > 2199 {
		return time.Time{}, fmt.Errorf("%q is no time since 1970 in the column's unit (%v)", s, unit)
	}
	return t, nil
}

// parseStamps reads a single column of times that alternate between start and end.
func parseStamps(cr *csvrow.Reader, column int) ([]Kernel, time.Time, time.Time, error) {
	var text strings.Builder
	text.WriteString("timestamp\n")
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || len(rec) <= column {
			return nil, time.Time{}, time.Time{}, fmt.Errorf("recording: a row without its time: %w", errors.Join(ErrRecording, err))
		}
		text.WriteString(rec[column] + "\n")
	}
	events, err := ParseEvents(text.String())
	if err != nil {
		return nil, time.Time{}, time.Time{}, err
	}
	return Pairs(events), events[0], events[len(events)-1], nil
}
