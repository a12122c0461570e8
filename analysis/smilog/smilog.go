// Package smilog reads the CSV that nvidia-smi writes with
// --query-gpu=timestamp,…,power.draw… --format=csv. It is pure: bytes in,
// readings out.
package smilog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"wattmark/measure"
	"wattmark/measure/csvrow"
)

// Field names a power column of nvidia-smi.
type Field string

// The power columns. Draw is what every driver has; since driver 530 it means
// the average on some cards and the instant value on others.
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
	Columns map[Field][]Reading
	// Skipped counts values that were there but no number, such as [N/A], and a
	// last line that was cut off.
	Skipped int
	// Absolute says that its times are seconds since 1970 or name their zone, as other
	// programs write them: no offset applies.
	Absolute bool
	lines    int
}

// Best returns the column nearest to the truth: instant where there is one,
// else power.draw, else average.
func (l *Log) Best() (Field, []Reading) {
	for _, f := range []Field{Instant, Draw, Average} {
		if len(l.Columns[f]) > 0 {
			return f, l.Columns[f]
		}
	}
	return "", nil
}

// ErrFormat is wrapped by errors about files that are not such a log.
var ErrFormat = errors.New("not an nvidia-smi CSV log")

// Parse reads a log. nvidia-smi writes local time without saying which: the
// caller must know how far it was ahead of UTC. Times since 1970 or with a zone are
// taken as they are. Errors name the line.
func Parse(r io.Reader, utcOffset time.Duration) (*Log, error) {
	cr := csvrow.NewReader(r)
	cr.TrimLeadingSpace = true
	cr.FieldsPerRecord = -1
	cr.ReuseRecord = true
	header, err := cr.Read()
	if err != nil {
		return nil, fmt.Errorf("smilog: line 1: %w: no header: %w", ErrFormat, err)
	}
	stamp, columns, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	width := len(header)
	log := &Log{Columns: map[Field][]Reading{}}
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // it names the line
			return nil, fmt.Errorf("smilog: %w: %w", ErrFormat, err)
		}
		line, _ := cr.FieldPos(0)
		if err := log.addLine(rec, line, width, stamp, columns, utcOffset); err != nil {
			if _, next := cr.Read(); errors.Is(next, io.EOF) {
				log.Skipped++ // the logger was stopped within its last line
				break
			}
			return nil, fmt.Errorf("smilog: line %d: %w", line, err)
		}
	}
	if _, best := log.Best(); len(best) == 0 {
		return nil, fmt.Errorf("smilog: %w: no power readings in it", ErrFormat)
	}
	return log, nil
}

func parseHeader(header []string) (stamp int, columns map[int]Field, err error) {
	stamp, columns = -1, map[int]Field{}
	for i, h := range header {
		name, unit, _ := strings.Cut(strings.TrimSpace(h), " ")
		switch f := Field(name); f {
		case "timestamp":
			stamp = i
		case Draw, Average, Instant:
			if unit != "" && unit != "[W]" {
				return 0, nil, fmt.Errorf("smilog: line 1: column %q: want watts", h)
			}
			columns[i] = f
		}
	}
	if stamp < 0 || len(columns) == 0 {
		return 0, nil, fmt.Errorf("smilog: line 1: %w: want a column timestamp and one of power.draw, power.draw.average, power.draw.instant; got %q", ErrFormat, header)
	}
	return stamp, columns, nil
}

func (l *Log) addLine(rec []string, line, width, stamp int, columns map[int]Field, utcOffset time.Duration) error {
	if len(rec) != width {
		return fmt.Errorf("%w: %d fields, the header has %d", ErrFormat, len(rec), width)
	}
	ns, zoned, err := measure.ParseMoment(rec[stamp])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if first := l.lines == 0; first {
		l.Absolute = zoned
	} else if zoned != l.Absolute {
		return fmt.Errorf("%w: time %q is written in another form than those before it: write all of them alike", ErrFormat, rec[stamp])
	}
	l.lines++
	at := time.Unix(0, ns).UTC()
	if !zoned {
		at = at.Add(-utcOffset)
	}
	for i, f := range columns {
		w, err := parseWatts(rec[i])
		if err != nil {
			return err
		}
		if math.IsNaN(w) {
			l.Skipped++
			continue
		}
		l.Columns[f] = append(l.Columns[f], Reading{At: at, Power: measure.Watt(w), Line: line})
	}
	return nil
}

// parseWatts reads "126.96" or "126.96 W"; NaN for what nvidia-smi writes
// where a card has no such reading.
func parseWatts(s string) (float64, error) {
	s = strings.TrimSuffix(strings.TrimSpace(s), " W")
	if strings.HasPrefix(s, "[") || strings.EqualFold(s, "N/A") || s == "" {
		return math.NaN(), nil
	}
	w, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(w, 0) {
		return 0, fmt.Errorf("%w: power %q is not a number of watts", ErrFormat, s)
	}
	return w, nil
}

// ErrSpan is wrapped when readings do not cover the wanted interval.
var ErrSpan = errors.New("readings do not cover the interval")

// Energy integrates readings over [from, to] by the trapezoid rule with the
// ends interpolated. Readings must be in order of time; equal times are kept.
func Energy(rs []Reading, from, to time.Time) (measure.Joule, error) {
	if len(rs) < 2 || rs[0].At.After(from) || rs[len(rs)-1].At.Before(to) || !from.Before(to) {
		return 0, fmt.Errorf("smilog: %w: %s to %s", ErrSpan, from.UTC().Format(time.RFC3339Nano), to.UTC().Format(time.RFC3339Nano))
	}
	var e measure.Joule
	for i := 1; i < len(rs); i++ {
		a, b := rs[i-1], rs[i]
		if b.At.Before(a.At) {
			return 0, fmt.Errorf("smilog: the log's clock steps back at %s", b.At.UTC().Format(time.RFC3339Nano))
		}
		lo, hi := a.At, b.At
		if lo.Before(from) {
			lo = from
		}
		if hi.After(to) {
			hi = to
		}
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
