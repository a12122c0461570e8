package correct

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

// ErrCSV is wrapped by errors about files that are no table of readings.
var ErrCSV = errors.New("not a table of readings")

// timeColumns and powerColumns are the columns that are understood, with what makes
// seconds and watts of them; 0 for times of day.
var (
	timeColumns  = map[string]float64{"time_s": 1, "time_ms": 1e-3, "time_us": 1e-6, "time_ns": 1e-9, "timestamp": 0}
	powerColumns = map[string]float64{"power_w": 1, "power_mw": 1e-3}
)

// ParseCSV reads a table with a heading: a column time_s, time_ms, time_us or time_ns, or
// timestamp (a date with a time, or a number since 1970), and power_w or power_mw. Times of
// day count from the first. Other columns are left alone. Errors name the line.
func ParseCSV(r io.Reader) ([]Reading, error) {
	cr := csvrow.NewReader(r)
	cr.TrimLeadingSpace, cr.ReuseRecord = true, true
	head, err := cr.Read()
	if err != nil {
		return nil, fmt.Errorf("line 1: %w: no heading: %w", ErrCSV, err)
	}
	at, ts, err := column(head, timeColumns)
	if err != nil {
		return nil, err
	}
	power, ps, err := column(head, powerColumns)
	if err != nil {
		return nil, err
	}
	var out []Reading
	var first int64
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // it names the line
			return nil, fmt.Errorf("%w: %w", ErrCSV, err)
		}
		line, _ := cr.FieldPos(0)
		ns, err1 := nanos(strings.TrimSpace(rec[at]), ts)
		w, err2 := strconv.ParseFloat(strings.TrimSpace(rec[power]), 64)
		if err := errors.Join(err1, err2); err != nil || bad(w) {
			return nil, fmt.Errorf("line %d: %w: time %q, power %q: want two numbers: mend or remove the line", line, ErrCSV, rec[at], rec[power])
		}
		if len(out) == 0 && ts == 0 {
			first = ns
		}
		x := Reading{At: measure.Seconds(float64(ns-first) / 1e9), Power: measure.Watt(w * ps)}
		if n := len(out); n > 0 && x.At < out[n-1].At {
			return nil, fmt.Errorf("line %d: %w: its time steps back by %v: put the lines in order of time", line, ErrCSV, out[n-1].At-x.At)
		}
		out = append(out, x)
	}
	return Tidy(out), nil
}

// nanos reads a time of a column's scale.
func nanos(s string, scale float64) (ns int64, err error) {
	if scale == 0 {
		ns, _, err = measure.ParseMoment(s)
		return ns, err
	}
	return measure.ParseNanos(s, int(math.Round(math.Log10(scale))))
}

func column(head []string, known map[string]float64) (int, float64, error) {
	var names []string
	for n := range known {
		names = append(names, n)
	}
	slices.Sort(names)
	for i, h := range head {
		if scale, ok := known[strings.ToLower(strings.TrimSpace(h))]; ok {
			return i, scale, nil
		}
	}
	return 0, 0, fmt.Errorf("line 1: %w: want a column %s; got %q", ErrCSV, strings.Join(names, ", "), head)
}
