package sensor

import (
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/store"
)

// sensorSource is the input of an identification: the polls of each field and the known
// load, on one clock.
type sensorSource struct {
	// in the order of their first poll
	Fields []string
	Polls  map[string][]sensor.Poll
	// the load in the form that Identify takes, from load or Phases
	Known  *sensor.Known
	load   *sensor.Load // the meter's trace; nil where the load comes from phases
	Phases []sensor.Phase
	truth  string // origin of the load, for the report
	// identity of the GPU; empty where the source does not name it
	gpu, uuid string
	driver    string
	// inputs of the stored profile
	tasks       []store.TaskID
	place       func(time.Time) measure.Seconds // from the host's clock; nil for readings of files
	description string
}

// add appends a poll of a field; polls of one field must come in order of time.
func (s *sensorSource) add(field string, p sensor.Poll) {
	if s.Polls == nil {
		s.Polls = map[string][]sensor.Poll{}
	}
	if _, ok := s.Polls[field]; !ok {
		s.Fields = append(s.Fields, field)
	}
	s.Polls[field] = append(s.Polls[field], p)
}

// useMeter sets the load to a meter's trace; origin describes it in the report. It
// returns an error for a trace without samples.
func (s *sensorSource) useMeter(samples iter.Seq2[validate.Sample, error], origin string) error {
	var trace sensor.Trace
	for x, err := range samples {
		if err != nil {
			return err
		}
		trace.Add(x.At, x.Power)
	}
	load, err := trace.Load()
	if err == nil {
		s.load, s.Known, s.truth = load, sensor.FromMeter(load), origin
	}
	return err
}

// usePhases sets the load to the phases; origin describes them in the report. It returns
// an error where the phases leave the load undetermined.
func (s *sensorSource) usePhases(origin string) (err error) {
	s.Known, err = sensor.FromPhases(s.Phases)
	s.truth = origin
	return err
}

// SensorFiles reads readings and events from CSV files. The column arguments replace the
// files' headings; empty ones keep them.
func SensorFiles(readings, events, readingColumns, eventColumns string) (*sensorSource, error) {
	t, err := parseColumns(readings, readingColumns, sensor.ParseReadings)
	if err != nil {
		return nil, err
	}
	s := &sensorSource{Fields: t.Fields, Polls: t.Polls, description: filepath.Base(readings)}
	if s.Phases, err = parseColumns(events, eventColumns, sensor.ParsePhases); err != nil {
		return nil, err
	}
	return s, s.usePhases("kernel events in " + filepath.Base(events))
}

// parseColumns reads a file by parse, with columns in place of its heading unless empty.
func parseColumns[T any](path, columns string, parse func(io.Reader, string) (T, error)) (v T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return v, err
	}
	defer f.Close()
	if v, err = parse(f, columns); err != nil {
		err = fmt.Errorf("%w\nSee: wattmark sensor identify --help for the columns", logfile.In(path, err))
	}
	return v, err
}

// sourceOf converts a measurement of other tools. With the meter its clocks are related, and
// the load is the meter's whole trace, read into memory; without it the kernels are the load.
func sourceOf(m *validate.Subject, meter bool) (*sensorSource, error) {
	s := &sensorSource{description: m.Name}
	for _, x := range m.Methods {
		for _, r := range x.Readings {
			s.add(strings.TrimPrefix(x.Name, cli.SmiPrefix), sensor.Poll{At: r.At, Power: r.Power})
		}
	}
	for _, k := range m.Kernels {
		s.Phases = append(s.Phases, sensor.Phase{Name: k.Name, From: k.From, To: k.To})
	}
	if !meter {
		return s, s.usePhases("kernel events")
	}
	how := "given"
	if m.Clock.Found != nil {
		how = "by the data"
	}
	return s, s.useMeter(m.Truth, fmt.Sprintf("the meter's trace (%s, its clock %s %+.1f ms%s)", m.Meter, how,
		1e3*float64(m.Clock.Offset), missingText(m.Missing)))
}
