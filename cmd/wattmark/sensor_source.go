package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"wattmark/analysis/recording"
	"wattmark/analysis/sensor"
	"wattmark/analysis/smilog"
	"wattmark/analysis/validate"
	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/pmd"
	"wattmark/store"
)

// sensorSource is what a sensor can be identified from: the polls of its fields
// and the load, on one clock.
type sensorSource struct {
	fields      []string
	polls       map[string][]sensor.Poll
	known       *sensor.Known
	load        *sensor.Load // of a meter; nil where the load is known from events
	phases      []sensor.Phase
	truth       string // what the load is known from
	gpu, uuid   string
	driver      string
	tasks       []store.TaskID
	origin      time.Time                       // zero of the clock; zero for one of the file's own
	place       func(time.Time) measure.Seconds // of a task: from the host's clock
	description string
}

func (s *sensorSource) add(field string, p sensor.Poll) {
	if s.polls == nil {
		s.polls = map[string][]sensor.Poll{}
	}
	if _, ok := s.polls[field]; !ok {
		s.fields = append(s.fields, field)
	}
	s.polls[field] = append(s.polls[field], p)
}

// useMeter takes a meter's trace as the load.
func (s *sensorSource) useMeter(l *sensor.Load, what string) {
	s.load, s.known, s.truth = l, sensor.FromMeter(l), what
}

// usePhases takes what ran when as the load.
func (s *sensorSource) usePhases(what string) (err error) {
	s.known, err = sensor.FromPhases(s.phases)
	s.truth = what
	return err
}

// sensorFiles reads readings and events from CSV files.
func sensorFiles(readings, events, readingColumns, eventColumns string) (*sensorSource, error) {
	f, err := os.Open(readings)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := sensor.ParseReadings(f, readingColumns)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nSee: wattmark sensor identify --help for the columns", readings, err)
	}
	e, err := os.Open(events)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	s := &sensorSource{fields: t.Fields, polls: t.Polls, description: filepath.Base(readings)}
	if s.phases, err = sensor.ParsePhases(e, eventColumns); err != nil {
		return nil, fmt.Errorf("%s: %w\nSee: wattmark sensor identify --help for the columns", events, err)
	}
	return s, s.usePhases("kernel events in " + filepath.Base(events))
}

// sensorRecording reads a directory in the layout of arXiv 2312.02741. With nvmlOnly the
// meter's bytes are not looked at.
func sensorRecording(dir string, c recording.Clocks, nvmlOnly bool) (*sensorSource, error) {
	rec, err := recording.Read(os.DirFS(dir), c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nSee: wattmark replay --help for the files that make a recording", dir, err)
	}
	s := &sensorSource{origin: rec.Start, description: filepath.Base(filepath.Clean(dir))}
	at := func(t time.Time) measure.Seconds { return measure.SecondsOf(t.Sub(rec.Start)) }
	for _, field := range []smilog.Field{smilog.Instant, smilog.Average, smilog.Draw} {
		for _, r := range rec.Sensor.Columns[field] {
			s.add(string(field), sensor.Poll{At: at(r.At), Power: r.Power})
		}
	}
	// Kernel events alternate: one begins, and ends.
	for i := 0; i+1 < len(rec.Events); i += 2 {
		s.phases = append(s.phases, sensor.Phase{Name: "kernel", From: at(rec.Events[i]), To: at(rec.Events[i+1])})
	}
	if nvmlOnly {
		return s, s.usePhases("kernel events")
	}
	l, err := pmdLoad(filepath.Join(dir, recording.SerialFile))
	if err != nil {
		return nil, err
	}
	s.useMeter(l, "the meter's trace (ElmorLabs PMD-USB; the slot's 3.3 V is not measured)")
	return s, nil
}

// sourceOf takes over a measurement of other tools whose clocks are related.
func sourceOf(m *validate.Subject) (*sensorSource, error) {
	s := &sensorSource{origin: m.Origin, description: m.Name}
	for _, x := range m.Methods {
		for _, r := range x.Readings {
			s.add(strings.TrimPrefix(x.Name, smiPrefix), sensor.Poll{At: r.At, Power: r.Power})
		}
	}
	for _, k := range m.Kernels {
		s.phases = append(s.phases, sensor.Phase{Name: k.Name, From: k.From, To: k.To})
	}
	var trace sensor.Trace
	for x, err := range m.Truth {
		if err != nil {
			return nil, err
		}
		trace.Add(x.At, x.Power)
	}
	l, err := trace.Load()
	if err != nil {
		return nil, err
	}
	missing := ""
	if len(m.Missing) > 0 {
		missing = "; not measured: " + strings.Join(m.Missing, ", ")
	}
	s.useMeter(l, fmt.Sprintf("the meter's trace (%s, its clock by the data %+.1f ms%s)", m.Meter, 1e3*float64(m.Clock.Offset), missing))
	return s, nil
}

// pmdLoad decodes a meter's serial bytes into a load from zero on.
func pmdLoad(path string) (*sensor.Load, error) {
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
	if err := pmd.ReadRecording(f, o, sink); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return sink.trace.Load()
}

// loadSink turns blocks into a load.
type loadSink struct {
	meter *measure.PowerMeter
	tb    measure.Timebase
	watts []measure.Watt
	trace sensor.Trace
}

var _ instrument.Sink = (*loadSink)(nil)

func newLoadSink(s *measure.Setup) (*loadSink, error) {
	m, err := measure.NewPowerMeter(s)
	return &loadSink{meter: m, tb: s.Timebase}, err
}

func (s *loadSink) Event(measure.Event) error { return nil }

func (s *loadSink) Block(b *measure.Block) error {
	s.watts = s.meter.Total(b, s.watts)
	for i, w := range s.watts {
		s.trace.Add(s.tb.Seconds(b.TickAt(s.tb, i)), w)
	}
	return nil
}
