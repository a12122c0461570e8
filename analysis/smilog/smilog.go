// Package smilog reads the CSV that nvidia-smi writes with
// --query-gpu=timestamp,…,power.draw… --format=csv, and the logs of its like: amd-smi,
// xpu-smi and tegrastats. It is pure: bytes in, readings out.
package smilog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"gonum.org/v1/gonum/stat"
)

// Field names a power column of nvidia-smi.
type Field string

// The power columns. Every driver has Draw; since driver 530 it means the average on
// some cards and the instant value on others.
const (
	Draw    Field = "power.draw"
	Average Field = "power.draw.average"
	Instant Field = "power.draw.instant"
)

// Reading is one value of one column.
type Reading struct {
	At    time.Time
	Power measure.Watt
	Line  int // of the file
}

// Log is a file's power columns, in the order of its lines.
type Log struct {
	Tool    string // the program that wrote it
	Columns map[Field][]Reading
	// Skipped counts values that were there but no number, such as [N/A], and a
	// last line that was cut off.
	Skipped int
	// Absolute: its times are seconds since 1970 or name their zone, as other programs
	// write them; no offset applies.
	Absolute bool
	lines    int
	order    []Field // of others than nvidia-smi
}

// Best returns the column nearest to the truth: of nvidia-smi instant where there is one,
// else power.draw, else average; of others the first one.
func (l *Log) Best() (Field, []Reading) {
	for _, f := range l.Fields() {
		return f, l.Columns[f]
	}
	return "", nil
}

// ErrFormat is wrapped by errors about files that are not such a log.
var ErrFormat = errors.New("not an nvidia-smi CSV log")

// Parse reads a log. nvidia-smi writes local time without saying which: the
// caller must know how far it was ahead of UTC. Times since 1970 or with a zone are
// taken as they are. Errors name the line.
func Parse(r io.Reader, utcOffset time.Duration) (*Log, error) {
	in, tegra := opened(r)
	if tegra {
		return parseTegrastats(in, utcOffset)
	}
	t, err := logfile.Open(in, logfile.Options{Kind: ErrFormat, Want: "timestamp, power.draw [W]", Ragged: true})
	if err != nil {
		return nil, err
	}
	if totals, err := parseTotals(t, utcOffset); totals != nil || err != nil {
		return totals, err
	}
	log := &Log{Columns: map[Field][]Reading{}}
	stamp := t.First(func(c logfile.Column) bool { return strings.EqualFold(c.Base, "timestamp") })
	columns, gpu := log.recognise(t)
	for _, c := range t.Columns {
		switch Field(c.Base) {
		case Draw, Average, Instant:
			if c.Base != c.Text && c.Unit.Of != measure.UnitWatt {
				return nil, t.Heading.Fault(c, "want watts")
			}
			columns = append(columns, c)
		}
	}
	if !stamp.Is() || len(columns) == 0 {
		return nil, t.Fault("want a column timestamp and one of power.draw, power.draw.average, power.draw.instant; "+
			"got %q", t.Heading.Fields)
	}
	which := ""
	for row, err := range t.Rows() {
		if err != nil {
			return nil, err
		}
		if row.Text(stamp) == stamp.Text {
			continue // amd-smi repeats its heading
		}
		if id := row.Text(gpu); which == "" {
			which = id
		} else if id != which {
			return nil, row.Fault(gpu, "a reading of GPU %s behind those of GPU %s: keep the lines of the task's", id, which)
		}
		if err := log.add(row, len(t.Columns), stamp, columns, utcOffset); err != nil {
			if _, next := t.Next(); errors.Is(next, io.EOF) {
				log.Skipped++ // the logger was stopped within its last line
				break
			}
			return nil, err
		}
	}
	if _, best := log.Best(); len(best) == 0 {
		return nil, t.Fault("no power readings in it")
	}
	return log, nil
}

// add appends a line's readings. A line with another number of fields than the heading, a
// time in another form than the first, and a value that is no number are errors; a missing
// value is counted in Skipped.
func (l *Log) add(row logfile.Row, width int, stamp logfile.Column, columns []logfile.Column,
	utcOffset time.Duration,
) error {
	if len(row.Fields) != width {
		return row.Fault(logfile.Column{}, "%d fields, the heading has %d", len(row.Fields), width)
	}
	ns, form, err := row.Time(stamp)
	if err != nil {
		return err
	}
	zoned := form == logfile.Zoned
	if l.lines == 0 {
		l.Absolute = zoned
	} else if zoned != l.Absolute {
		return row.Fault(stamp, "%q is written in another form than the times before it: write all of them alike",
			row.Text(stamp))
	}
	l.lines++
	at := time.Unix(0, ns).UTC()
	if !zoned {
		at = at.Add(-utcOffset)
	}
	for _, c := range columns {
		if row.Missing(c) {
			l.Skipped++
			continue
		}
		w, err := row.Number(c)
		if err != nil {
			return err
		}
		f := Field(c.Base)
		l.Columns[f] = append(l.Columns[f], Reading{At: at, Power: measure.Watt(w), Line: row.Line})
	}
	return nil
}

// ErrSpan is wrapped when readings do not cover the wanted interval.
var ErrSpan = errors.New("readings do not cover the interval")

// Energy integrates readings over [from, to] by the trapezoid rule with the
// ends interpolated. Readings must be in order of time; equal times are kept.
func Energy(rs []Reading, from, to time.Time) (measure.Joule, error) {
	if len(rs) < 2 || rs[0].At.After(from) || rs[len(rs)-1].At.Before(to) || !from.Before(to) {
		return 0, fmt.Errorf("smilog: %w: %s to %s", ErrSpan, from.UTC().Format(time.RFC3339Nano),
			to.UTC().Format(time.RFC3339Nano))
	}
	var e measure.Joule
	for i := 1; i < len(rs); i++ {
		a, b := rs[i-1], rs[i]
		if b.At.Before(a.At) {
			return 0, fmt.Errorf("smilog: the log's clock steps back at %s", b.At.UTC().Format(time.RFC3339Nano))
		}
		lo, hi := lists.Latest(a.At, from), lists.Earliest(b.At, to)
		if !lo.Before(hi) {
			continue
		}
		at := func(t time.Time) measure.Watt {
			f := t.Sub(a.At).Seconds() / b.At.Sub(a.At).Seconds()
			return a.Power + measure.Watt(f)*(b.Power-a.Power)
		}
		e += measure.Joule(float64(at(lo)+at(hi)) / 2 * hi.Sub(lo).Seconds())
	}
	return e, nil
}

// Tidied counts the repairs of a log.
type Tidied struct {
	Repeated int           // lines with the content of another one
	Unsorted int           // lines that stood behind a later one
	Gap      time.Duration // the longest time without a reading
	GapLine  int           // behind which it is
	Interval time.Duration // between lines, the median
}

const (
	// disorder is how far back lines may stand: two writers share a file. More is a
	// clock that was set.
	disorder = time.Second
	// quarter is the least difference of time zones, near the tolerance of a clock
	// that steps by it.
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

// tidy sorts readings that are out of order by less than disorder, and drops repeated
// ones. It refuses a clock that steps back further, or ahead by quarters of an hour and
// more than 100 intervals: such a log mixes time zones. Errors wrap ErrZone.
func tidy(rs []Reading) (t Tidied, rest []Reading, err error) {
	latest := time.Time{}
	var steps []time.Duration
	for i, r := range rs {
		switch {
		case i == 0:
		case r.At.Before(latest.Add(-disorder)):
			return t, nil, fmt.Errorf("smilog: line %d: %w: its time lies %v before that of the lines before it%s: "+
				"cut the log there, and judge the part in which the work ran",
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
		return t, nil, fmt.Errorf("smilog: line %d: %w: behind it time steps ahead by %v%s: cut the log there, and "+
			"judge the part in which the work ran", t.GapLine, ErrZone, t.Gap, reason(t.Gap))
	}
	rest = slices.Clone(rs)
	slices.SortStableFunc(rest, func(a, b Reading) int { return a.At.Compare(b.At) })
	n := len(rest)
	rest = slices.CompactFunc(rest, func(a, b Reading) bool { return a.At.Equal(b.At) && a.Power == b.Power })
	t.Repeated = n - len(rest)
	return t, rest, nil
}

// isQuarters reports whether a step of a clock is a multiple of a quarter of an hour,
// as of time zones and daylight saving.
func isQuarters(d time.Duration) bool {
	off := math.Abs(float64(d - d.Round(quarter)))
	return d >= quarter/2 && off <= float64(near)
}

// reason names the likely cause of a step of the clock.
func reason(d time.Duration) string {
	if isQuarters(d) {
		return ", as when a clock changes its time zone or to or from summer time"
	}
	return ", as when a clock is set"
}

// Span is a stretch of time in which the GPU worked.
type Span struct{ From, To time.Time }

// Recovered is a time zone's offset that was found by the readings.
type Recovered struct {
	Offset      time.Duration
	Correlation float64 // of the readings with the work
	Next        float64 // at the next best offset; 0 where no other fits at all
}

const (
	// farthest is how far local time lies from UTC.
	farthest = 14 * time.Hour
	// memory is how long a sensor may average.
	memory = 250 * time.Millisecond
	// The correlation must be believable, and better than any other.
	leastCorrelation = 0.4
	rivalry          = 0.8
	mostReadings     = 20000
)

// lags are how far readings may trail the work.
var lags = []time.Duration{
	0, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
	400 * time.Millisecond, 800 * time.Millisecond,
}

// Recover finds how far a log that was parsed with an offset of zero was ahead of
// UTC: at which whole quarter of an hour its readings follow the work. The spans are
// in order. It fails with ErrZone where none does, or several do.
func Recover(rs []Reading, spans []Span) (Recovered, error) {
	if len(spans) == 0 || len(rs) < 8 {
		return Recovered{}, fmt.Errorf("smilog: %w: %s and %d stretches of work are too few to tell it by",
			ErrZone, measure.Plural(len(rs), "reading"), len(spans))
	}
	from, to := spans[0].From, spans[len(spans)-1].To
	type fit struct {
		off time.Duration
		r   float64
	}
	var fits []fit
	// Zones differ from UTC by whole quarters of an hour: 113 candidates.
	for off := -farthest; off <= farthest; off += quarter {
		if rs[0].At.After(from.Add(off)) || rs[len(rs)-1].At.Before(to.Add(off)) {
			continue
		}
		best := math.Inf(-1)
		for _, lag := range lags {
			best = max(best, follow(rs, spans, off+lag))
		}
		fits = append(fits, fit{off, best})
	}
	if len(fits) == 0 {
		return Recovered{}, fmt.Errorf("smilog: %w: at no whole quarter of an hour does it cover the work, %s to %s "+
			"UTC: is it the log of this run?", ErrZone, stamp(from), stamp(to))
	}
	slices.SortStableFunc(fits, func(a, b fit) int { return cmp.Compare(b.r, a.r) })
	out := Recovered{Offset: fits[0].off, Correlation: fits[0].r}
	if len(fits) > 1 {
		out.Next = fits[1].r
	}
	switch {
	case !(out.Correlation >= leastCorrelation):
		return out, fmt.Errorf("smilog: %w: at no whole quarter of an hour do its readings follow the work (best "+
			"%v, correlation %.2f)", ErrZone, out.Offset, out.Correlation)
	case out.Next > rivalry*out.Correlation:
		return out, fmt.Errorf("smilog: %w: its readings follow the work at %v and at %v ahead of UTC alike "+
			"(correlation %.2f and %.2f)", ErrZone, out.Offset, fits[1].off, out.Correlation, out.Next)
	}
	return out, nil
}

// stamp writes an instant in UTC to the millisecond.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// follow correlates readings, moved back by a time, with the work just before them.
func follow(rs []Reading, spans []Span, by time.Duration) float64 {
	every := (len(rs) + mostReadings - 1) / mostReadings
	var busy, power []float64
	first := 0
	for i := 0; i < len(rs); i += every {
		to := rs[i].At.Add(-by)
		from := to.Add(-memory)
		for first < len(spans) && spans[first].To.Before(from) {
			first++
		}
		share := 0.0
		for _, s := range spans[first:] {
			if !s.From.Before(to) {
				break
			}
			a, b := lists.Latest(s.From, from), lists.Earliest(s.To, to)
			share += float64(measure.SecondsOf(b.Sub(a))) / memory.Seconds()
		}
		busy, power = append(busy, share), append(power, float64(rs[i].Power))
	}
	if min(stat.PopVariance(busy, nil), stat.PopVariance(power, nil)) <= 1e-12/float64(len(busy)) {
		return 0 // one of both does not vary
	}
	return stat.Correlation(busy, power, nil)
}

// ErrZone is wrapped where a zone does not determine the offset of a log from UTC.
var ErrZone = errors.New("the log's time zone does not tell its time")

// Extent is the first and the last time of any column; zero for none.
func (l *Log) Extent() (first, last time.Time) {
	for _, rs := range l.Columns {
		if len(rs) == 0 {
			continue
		}
		if a := rs[0].At; first.IsZero() || a.Before(first) {
			first = a
		}
		last = lists.Latest(last, rs[len(rs)-1].At)
	}
	return first, last
}

// Covers reports whether every column has readings on both sides of an interval.
func (l *Log) Covers(from, to time.Time) bool {
	for _, rs := range l.Columns {
		if len(rs) > 0 && (rs[0].At.After(from) || rs[len(rs)-1].At.Before(to)) {
			return false
		}
	}
	return true
}

// Shift moves all readings in time, and returns the log.
func (l *Log) Shift(by time.Duration) *Log {
	for _, rs := range l.Columns {
		for i := range rs {
			rs[i].At = rs[i].At.Add(by)
		}
	}
	return l
}

// OffsetIn returns the offset from UTC of a log that was parsed with an offset of zero,
// if its times are a zone's local ones. It fails with ErrZone where the clocks were put
// forward or back while it was written, or the hour came twice.
func (l *Log) OffsetIn(zone *time.Location) (time.Duration, error) {
	first, last := l.Extent()
	a, err := offsetAt(first, zone)
	b, fault := offsetAt(last, zone)
	if err = cmp.Or(err, fault); err != nil {
		return 0, err
	}
	if a != b {
		return 0, fmt.Errorf("smilog: %w: the clocks in %v were changed while it was written", ErrZone, zone)
	}
	return a, nil
}

// offsetAt finds the offset of a local time, which is given as if it were UTC.
func offsetAt(local time.Time, zone *time.Location) (time.Duration, error) {
	var fits []time.Duration
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} { // before and after any change
		off := offsetOf(local.Add(near), zone)
		if offsetOf(local.Add(-off), zone) == off && (len(fits) == 0 || fits[0] != off) {
			fits = append(fits, off)
		}
	}
	if len(fits) == 1 {
		return fits[0], nil
	}
	what := "came twice"
	if len(fits) == 0 {
		what = "never was"
	}
	return 0, fmt.Errorf("smilog: %w: %s %s in %v", ErrZone, local.Format("2006-01-02 15:04:05"), what, zone)
}

// offsetOf returns the offset from UTC of a zone at a local time.
func offsetOf(t time.Time, zone *time.Location) time.Duration {
	_, s := t.In(zone).Zone()
	return time.Duration(s) * time.Second
}
