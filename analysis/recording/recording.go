// Package recording reads directories in which others kept a meter's serial bytes beside the GPU's own readings, in
// the layout of the public data of arXiv 2312.02741 (GPU_Power_Benchmark): PMD_data.bin, PMD_start_ts.txt,
// gpudata.csv and timestamps.csv.
package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
)

// The files of a recording.
const (
	SerialFile = "PMD_data.bin"     // the meter's serial bytes
	StartFile  = "PMD_start_ts.txt" // host time at the first of them, µs since 1970
	SensorFile = "gpudata.csv"      // nvidia-smi, local time
	EventsFile = "timestamps.csv"   // kernel events, µs since 1970
)

// Clocks is the relation of the recording's clocks, which its files lack.
type Clocks struct {
	// Shift is added to the meter's start time.
	Shift time.Duration
	// UTCOffset is how far nvidia-smi's local time was ahead of UTC.
	UTCOffset time.Duration
}

// Recording is the content of the small files of a directory.
type Recording struct {
	// Start is the host's time of the meter's first sample, shifted.
	Start time.Time
	// Events are the kernel events in order, each once.
	Events []time.Time
	// Sensor holds the GPU's own readings.
	Sensor *smilog.Log
}

// ErrRecording is wrapped by errors about directories that are no recording.
var ErrRecording = errors.New("not a meter recording")

// Read reads the small files of a recording. The serial bytes stay where they
// are: they are played back, not loaded.
func Read(dir fs.FS, clocks Clocks) (*Recording, error) {
	var r Recording
	start, err := read(dir, StartFile)
	if err != nil {
		return nil, err
	}
	start = strings.TrimSpace(start)
	us, err := strconv.ParseInt(start, 10, 64)
	first := time.UnixMicro(us)
	if err != nil || first.Year() < 2000 || first.Year() > 2199 { // of another century: no such count
		return nil, fmt.Errorf("recording: %s: %w: %q is no time in microseconds since 1970", StartFile, ErrRecording,
			start)
	}
	r.Start = first.Add(clocks.Shift)
	events, err := read(dir, EventsFile)
	if err != nil {
		return nil, err
	}
	if r.Events, err = ParseEvents(events); err != nil {
		return nil, logfile.In(EventsFile, err)
	}
	f, err := dir.Open(SensorFile)
	if err != nil {
		return nil, fmt.Errorf("recording: %w: %w", ErrRecording, err)
	}
	defer f.Close()
	if r.Sensor, err = smilog.Parse(f, clocks.UTCOffset); err != nil {
		return nil, logfile.In(SensorFile, err)
	}
	info, err := fs.Stat(dir, SerialFile)
	if err != nil {
		return nil, fmt.Errorf("recording: %w: %w", ErrRecording, err)
	}
	if info.Size() == 0 {
		return nil, fmt.Errorf("recording: %w: %s is empty", ErrRecording, SerialFile)
	}
	return &r, nil
}

// read reads a small text file.
func read(dir fs.FS, name string) (string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return "", fmt.Errorf("recording: %w: %w", ErrRecording, err)
	}
	defer f.Close()
	// Both files are a few kilobytes: larger ones are others, or mistaken.
	const limit = 64 << 20
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && len(b) > limit {
		err = fmt.Errorf("%w: larger than 64 MiB", ErrRecording)
	}
	if err != nil {
		return "", fmt.Errorf("recording: %s: %w", name, err)
	}
	return string(b), nil
}

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

// ParseKernels reads a CSV with named columns: start and end with their units (start_s, start_ms, start_us or
// start_ns since 1970), and name where there is one; or timestamps.csv's single column. The kernels come in order of
// their starts. What wattmark export --format kernels writes is such a file. Span is from the first time to the last
// in the file.
func ParseKernels(r io.Reader) (list []Kernel, from, to time.Time, err error) {
	t, err := logfile.Open(r, logfile.Options{
		Kind: ErrRecording, Want: "name,start_us,end_us or timestamp", Ragged: true,
	})
	if err != nil {
		return nil, from, to, err
	}
	column := func(name string) logfile.Column {
		return t.First(func(c logfile.Column) bool { return c.Named(name) && c.Unit.Of == logfile.Second })
	}
	// A file with start and end has kernels even if it has a timestamp too.
	name, start, end, stamp := t.Find("name", "kernel"), column("start"), column("end"), t.Find("timestamp")
	if stamp.Is() && !start.Is() {
		events, err := stamps(t, stamp)
		if err != nil {
			return nil, from, to, err
		}
		return Pairs(events), events[0], events[len(events)-1], nil
	}
	if !start.Is() || !end.Is() {
		return nil, from, to, t.Fault("no columns start and end with a unit in %q: "+
			"want name,start_us,end_us (s, ms, us or ns since 1970)", t.Heading.Fields)
	}
	for row, err := range t.Rows() {
		if err != nil {
			return nil, from, to, err
		}
		k := Kernel{Name: cmp.Or(strings.Clone(row.Text(name)), "kernel")}
		if k.Start, err = since1970(row, start); err == nil {
			k.End, err = since1970(row, end)
		}
		switch {
		case err != nil:
		case k.End.Before(k.Start):
			err = row.Fault(end, "it ends %v before it starts: mend or remove the row", k.Start.Sub(k.End))
		case len(list) == mostKernels:
			err = row.Fault(logfile.Column{}, "more than %d kernels: cut the file", mostKernels)
		}
		if err != nil {
			return nil, from, to, err
		}
		list = append(list, k)
	}
	if len(list) == 0 {
		return nil, from, to, t.Fault("no kernels in it: at least one start and end is wanted")
	}
	slices.SortStableFunc(list, func(a, b Kernel) int { return a.Start.Compare(b.Start) })
	to = slices.MaxFunc(list, func(a, b Kernel) int { return a.End.Compare(b.End) }).End
	return list, list[0].Start, to, nil
}

// ParseEvents reads timestamps.csv: a header, then a time in microseconds
// since 1970 a line. Times may repeat and need not be in order; the result is.
// At least two different times are wanted: they bound the integration.
func ParseEvents(text string) ([]time.Time, error) {
	t, err := logfile.Open(strings.NewReader(text), logfile.Options{
		Kind: ErrRecording, Want: "timestamp", Default: "timestamp", Ragged: true,
	})
	if err != nil {
		return nil, err
	}
	return stamps(t, t.Columns[0])
}

// stamps returns the times of a column in µs since 1970, in order and each once.
func stamps(t *logfile.Table, c logfile.Column) (out []time.Time, err error) {
	c.Unit = logfile.Unit{Of: logfile.Second, Exponent: -6}
	for row, err := range t.Rows() {
		if err != nil {
			return nil, err
		}
		if row.Text(c) == "" {
			continue
		}
		at, err := since1970(row, c)
		if err != nil {
			return nil, err
		}
		out = append(out, at)
	}
	slices.SortFunc(out, time.Time.Compare)
	out = slices.CompactFunc(out, time.Time.Equal)
	if len(out) < 2 {
		return nil, t.Fault("%d different times: want a first and a last kernel event", len(out))
	}
	return out, nil
}

// since1970 returns a time of this century or the next, counted in the column's unit.
func since1970(row logfile.Row, c logfile.Column) (time.Time, error) {
	ns, form, err := row.Time(c)
	at := time.Unix(0, ns)
	if err != nil || form != logfile.Counted || at.Year() < 2000 || at.Year() > 2199 {
		return at, row.Fault(c, "%q is no time since 1970 in the column's unit (%v)",
			row.Text(c), measure.Seconds(c.Unit.Scale()).Duration())
	}
	return at, nil
}
