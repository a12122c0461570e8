// Package recording reads directories in which others kept a meter's serial
// bytes beside the GPU's own readings, in the layout of the public data of
// arXiv 2312.02741 (GPU_Power_Benchmark): PMD_data.bin, PMD_start_ts.txt,
// gpudata.csv and timestamps.csv.
package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"wattmark/analysis/smilog"
)

// The files of a recording.
const (
	SerialFile = "PMD_data.bin"     // the meter's serial bytes
	StartFile  = "PMD_start_ts.txt" // host time at the first of them, µs since 1970
	SensorFile = "gpudata.csv"      // nvidia-smi, local time
	EventsFile = "timestamps.csv"   // kernel events, µs since 1970
)

// Clocks says how the recording's clocks relate, which its files do not.
type Clocks struct {
	// Shift is added to the meter's start time.
	Shift time.Duration
	// UTCOffset is how far nvidia-smi's local time was ahead of UTC.
	UTCOffset time.Duration
}

// Recording is what the small files of a directory say.
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
	if r.Start, err = parseMicros(strings.TrimSpace(start)); err != nil {
		return nil, fmt.Errorf("recording: %s: %w", StartFile, err)
	}
	r.Start = r.Start.Add(clocks.Shift)
	events, err := read(dir, EventsFile)
	if err != nil {
		return nil, err
	}
	if r.Events, err = ParseEvents(events); err != nil {
		return nil, err
	}
	f, err := dir.Open(SensorFile)
	if err != nil {
		return nil, fmt.Errorf("recording: %w: %w", ErrRecording, err)
	}
	defer f.Close()
	if r.Sensor, err = smilog.Parse(f, clocks.UTCOffset); err != nil {
		return nil, fmt.Errorf("recording: %s: %w", SensorFile, err)
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

// ParseEvents reads timestamps.csv: a header, then a time in microseconds
// since 1970 a line. Times may repeat and need not be in order; the result is.
// At least two different times are wanted: they bound the integration.
func ParseEvents(text string) ([]time.Time, error) {
	var out []time.Time
	for i, line := range strings.Split(text, "\n") {
		line = strings.Trim(strings.TrimSpace(line), ",")
		if line == "" || (i == 0 && strings.HasPrefix(line, "timestamp")) {
			continue
		}
		t, err := parseMicros(line)
		if err != nil {
			return nil, fmt.Errorf("recording: %s: line %d: %w", EventsFile, i+1, err)
		}
		out = append(out, t)
	}
	slices.SortFunc(out, time.Time.Compare)
	out = slices.CompactFunc(out, time.Time.Equal)
	if len(out) < 2 {
		return nil, fmt.Errorf("recording: %s: %d different times: want a first and a last kernel event", EventsFile, len(out))
	}
	return out, nil
}

// parseMicros reads microseconds since 1970 of this century.
func parseMicros(s string) (time.Time, error) {
	us, err := strconv.ParseInt(s, 10, 64)
	t := time.UnixMicro(us)
	if err != nil || t.Year() < 2000 || t.Year() > 2199 {
		return time.Time{}, fmt.Errorf("%w: %q is no time in microseconds since 1970", ErrRecording, s)
	}
	return t, nil
}
