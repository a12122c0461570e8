package correct

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

// ErrCSV is wrapped by errors about files that are no table of readings.
var ErrCSV = errors.New("not a table of readings")

// timeColumns and powerColumns are the columns that are understood, with what makes
// seconds and watts of them.
var (
	timeColumns  = map[string]float64{"time_s": 1, "time_ms": 1e-3, "time_us": 1e-6, "time_ns": 1e-9}
	powerColumns = map[string]float64{"power_w": 1, "power_mw": 1e-3}
)

// ParseCSV reads a table with a heading: a column time_s, time_ms, time_us or time_ns,
// and power_w or power_mw. Other columns are left alone. Errors name the line.
func ParseCSV(r io.Reader) ([]Reading, error) {
	cr := csv.NewReader(r)
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
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // it names the line
			return nil, fmt.Errorf("%w: %w", ErrCSV, err)
		}
		line, _ := cr.FieldPos(0)
		t, err1 := strconv.ParseFloat(strings.TrimSpace(rec[at]), 64)
		w, err2 := strconv.ParseFloat(strings.TrimSpace(rec[power]), 64)
		if err := errors.Join(err1, err2); err != nil || bad(t) || bad(w) {
			return nil, fmt.Errorf("line %d: %w: time %q, power %q: want two numbers: mend or remove the line", line, ErrCSV, rec[at], rec[power])
		}
		x := Reading{At: measure.Seconds(t * ts), Power: measure.Watt(w * ps)}
		if n := len(out); n > 0 && x.At < out[n-1].At {
			return nil, fmt.Errorf("line %d: %w: its time steps back by %v: put the lines in order of time", line, ErrCSV, out[n-1].At-x.At)
		}
		out = append(out, x)
	}
	return Tidy(out), nil
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
