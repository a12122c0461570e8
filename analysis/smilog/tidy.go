package smilog

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Tidied says what had to be put right in a log.
type Tidied struct {
	Repeated int           // lines that say what another one says
	Unsorted int           // lines that stood behind a later one
	Gap      time.Duration // the longest time without a reading
	GapLine  int           // behind which it is
	Interval time.Duration // between lines, the median
}

const (
	// disorder is how far back lines may stand: two writers share a file. More is a
	// clock that was set.
	disorder = time.Second
	// quarter is what time zones differ by at least, and near is how well a clock that
	// steps by it does so.
	quarter = 15 * time.Minute
	near    = 2 * time.Second
)

// Tidy puts every column in order of time and takes repeated lines out. It fails
// with ErrZone where the log's clock was set while it was written, which no one
// offset can undo: the error names the line.
func (l *Log) Tidy() (Tidied, error) {
	var out Tidied
	for field, rs := range l.Columns {
		t, rest, err := tidy(rs)
		if err != nil {
			return t, err
		}
		l.Columns[field] = rest
		out.Repeated, out.Unsorted = max(out.Repeated, t.Repeated), max(out.Unsorted, t.Unsorted)
		if t.Gap > out.Gap {
			out.Gap, out.GapLine, out.Interval = t.Gap, t.GapLine, t.Interval
		}
	}
	return out, nil
}

func tidy(rs []Reading) (t Tidied, rest []Reading, err error) {
	latest := time.Time{}
	var steps []time.Duration
	for i, r := range rs {
		switch {
		case i == 0:
		case r.At.Before(latest.Add(-disorder)):
			return t, nil, fmt.Errorf("smilog: line %d: %w: its time lies %v before that of the lines before it%s: cut the log there, and judge the part in which the work ran",
				r.Line, ErrZone, latest.Sub(r.At), reason(latest.Sub(r.At)))
		case r.At.Before(latest):
			t.Unsorted++
		default:
			steps = append(steps, r.At.Sub(latest))
		}
		if r.At.After(latest) {
			if gap := r.At.Sub(latest); i > 0 && gap > t.Gap {
				t.Gap, t.GapLine = gap, rs[i-1].Line
			}
			latest = r.At
		}
	}
	if len(steps) > 0 {
		slices.Sort(steps)
		t.Interval = steps[len(steps)/2]
	}
	if isQuarters(t.Gap) && t.Gap > 100*t.Interval {
		return t, nil, fmt.Errorf("smilog: line %d: %w: behind it time steps ahead by %v%s: cut the log there, and judge the part in which the work ran",
			t.GapLine, ErrZone, t.Gap, reason(t.Gap))
	}
	rest = slices.Clone(rs)
	slices.SortStableFunc(rest, func(a, b Reading) int { return a.At.Compare(b.At) })
	n := len(rest)
	rest = slices.CompactFunc(rest, func(a, b Reading) bool { return a.At.Equal(b.At) && a.Power == b.Power })
	t.Repeated = n - len(rest)
	return t, rest, nil
}

func isQuarters(d time.Duration) bool {
	off := math.Abs(float64(d - d.Round(quarter)))
	return d >= quarter/2 && off <= float64(near)
}

func reason(d time.Duration) string {
	if isQuarters(d) {
		return ", as when a clock changes its time zone or to or from summer time"
	}
	return ", as when a clock is set"
}
