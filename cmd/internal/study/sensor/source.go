package sensor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/recording"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/pmd"
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
func (s *sensorSource) useMeter(t *sensor.Trace, origin string) (err error) {
	if s.load, err = t.Load(); err == nil {
		s.Known, s.truth = sensor.FromMeter(s.load), origin
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

// sensorRecording reads a folder in the layout of arXiv 2312.02741, with the clocks
// related by c. With nvmlOnly the load comes from the kernel events and the meter's file
// is not opened.
func sensorRecording(dir string, c recording.Clocks, nvmlOnly bool) (*sensorSource, error) {
	rec, err := recording.Read(os.DirFS(dir), c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nSee: wattmark replay --help for the files that make a recording", dir, err)
	}
	s := &sensorSource{description: filepath.Base(filepath.Clean(dir))}
	at := func(t time.Time) measure.Seconds { return measure.SecondsOf(t.Sub(rec.Start)) }
	for _, field := range []smilog.Field{smilog.Instant, smilog.Average, smilog.Draw} {
		for _, r := range rec.Sensor.Columns[field] {
			s.add(string(field), sensor.Poll{At: at(r.At), Power: r.Power})
		}
	}
	// Kernel events alternate between begin and end.
	for i := 0; i+1 < len(rec.Events); i += 2 {
		s.Phases = append(s.Phases, sensor.Phase{Name: "kernel", From: at(rec.Events[i]), To: at(rec.Events[i+1])})
	}
	if nvmlOnly {
		return s, s.usePhases("kernel events")
	}
	// The serial bytes of the meter: their times start at zero.
	path := filepath.Join(dir, recording.SerialFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := pmd.Defaults()
	in := pmd.Inputs(o)
	setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels}
	setup.Rails, setup.Missing = pmd.NaturalRails(in)
	sink, err := newLoadSink(&setup)
	if err != nil {
		return nil, err
	}
	if err := pmd.ReadRecording(f, o, instrument.SinkOf(sink)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, s.useMeter(&sink.trace, "the meter's trace (ElmorLabs PMD-USB; the slot's 3.3 V is not measured)")
}

// sourceOf converts a measurement of other tools whose clocks are related. It reads the
// whole trace of the meter into memory.
func sourceOf(m *validate.Subject) (*sensorSource, error) {
	s := &sensorSource{description: m.Name}
	for _, x := range m.Methods {
		for _, r := range x.Readings {
			s.add(strings.TrimPrefix(x.Name, cli.SmiPrefix), sensor.Poll{At: r.At, Power: r.Power})
		}
	}
	for _, k := range m.Kernels {
		s.Phases = append(s.Phases, sensor.Phase{Name: k.Name, From: k.From, To: k.To})
	}
	var trace sensor.Trace
	for x, err := range m.Truth {
		if err != nil {
			return nil, err
		}
		trace.Add(x.At, x.Power)
	}
	return s, s.useMeter(&trace, fmt.Sprintf("the meter's trace (%s, its clock by the data %+.1f ms%s)", m.Meter,
		1e3*float64(m.Clock.Offset), missingText(m.Missing)))
}

// loadSink sums the rails of blocks into a load. It implements the sink of an instrument.
type loadSink struct {
	// converts counts of the rails to watts
	meter *measure.PowerMeter
	tb    measure.Timebase
	// buffer reused between blocks
	watts []measure.Watt
	trace sensor.Trace
}

// newLoadSink returns a sink for blocks of the setup s, or an error where its rails are
// invalid.
func newLoadSink(s *measure.Setup) (*loadSink, error) {
	m, err := measure.NewPowerMeter(s)
	return &loadSink{meter: m, tb: s.Timebase}, err
}

// Event ignores events: they carry no power.
func (s *loadSink) Event(measure.Event) error { return nil }

// Block appends the total power of each scan of b; it does not keep b.
func (s *loadSink) Block(b *measure.Block) error {
	s.watts = s.meter.Total(b, s.watts)
	for i, w := range s.watts {
		s.trace.Add(s.tb.Seconds(b.TickAt(s.tb, i)), w)
	}
	return nil
}
