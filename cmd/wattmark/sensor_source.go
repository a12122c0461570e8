package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"wattmark/analysis/recording"
	"wattmark/analysis/sensor"
	"wattmark/analysis/smilog"
	"wattmark/hostagent/measurement"
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
	from, to    measure.Seconds // of the work; both zero for all
	truth       string          // what the load is known from
	gpu, uuid   string
	driver      string
	tasks       []store.TaskID
	origin      time.Time // zero of the clock; zero for one of the file's own
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

// sensorTask reads a stored task: its readings, and its meter's trace, or with
// events the kernels that it recorded.
func (a *app) sensorTask(ctx context.Context, db *store.DB, text string, events bool) (*sensorSource, error) {
	t, err := a.task(ctx, db, text)
	if err != nil {
		return nil, err
	}
	readings, err := db.Readings(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	s := &sensorSource{gpu: t.GPU, driver: t.Driver, uuid: t.GPUUUID, tasks: []store.TaskID{t.ID}, description: fmt.Sprintf("task %d, %s", t.ID, t.Name)}
	var toMeter func(time.Time) measure.Seconds
	if !events && t.Instrument.Kind != "nvml" && t.Scans > 0 && t.Clock != nil {
		s.origin = measurement.HostTime(*t.Clock, 0)
		fit := *t.Clock
		toMeter = func(at time.Time) measure.Seconds {
			m, _ := fit.Meter(measurement.HostSeconds(fit, at))
			return m
		}
	} else {
		s.origin = t.Launched
		toMeter = func(at time.Time) measure.Seconds { return measure.SecondsOf(at.Sub(t.Launched)) }
		events = true
	}
	for _, r := range readings {
		if field, ok := sensorField(r.Method); ok {
			s.add(field, sensor.Poll{At: toMeter(r.At), Power: measure.Watt(r.Value)})
		}
	}
	if len(s.fields) == 0 {
		return nil, fmt.Errorf("task %d holds no readings of the GPU's sensor: measure without --no-nvml, or import them with wattmark import nvidia-smi", t.ID)
	}
	if events {
		return s, a.taskPhases(ctx, db, t, s, toMeter)
	}
	sink, err := newLoadSink(&t.Setup)
	if err != nil {
		return nil, err
	}
	for b, err := range blocks(ctx, db, t) {
		if err := errors.Join(err, sink.Block(b)); err != nil {
			return nil, err
		}
	}
	l, err := sink.trace.Load()
	if err != nil {
		return nil, err
	}
	s.useMeter(l, "the meter's trace ("+t.Instrument.Kind+missingText(t.Setup.Missing)+")")
	return s, nil
}

func missingText(rails []string) string {
	if len(rails) == 0 {
		return ""
	}
	return "; not measured: " + strings.Join(rails, ", ")
}

// taskPhases takes the launches that were recorded as the load, or the kernels.
func (a *app) taskPhases(ctx context.Context, db *store.DB, t *store.Task, s *sensorSource, at func(time.Time) measure.Seconds) error {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil {
		return err
	}
	if len(tables.Names) > 0 {
		for l, err := range db.Launches(ctx, t.ID) {
			if err != nil {
				return err
			}
			s.phases = append(s.phases, sensor.Phase{Name: tables.Names[l.Name], From: at(time.Unix(0, l.Start)), To: at(time.Unix(0, l.End))})
		}
	} else {
		kernels, err := db.Kernels(ctx, t.ID)
		if err != nil {
			return err
		}
		for _, k := range kernels {
			s.phases = append(s.phases, sensor.Phase{Name: k.Name, From: at(k.Start), To: at(k.End)})
		}
	}
	slices.SortStableFunc(s.phases, func(x, y sensor.Phase) int {
		switch {
		case x.From < y.From:
			return -1
		case x.From > y.From:
			return 1
		}
		return 0
	})
	return s.usePhases("the kernels that the task recorded")
}

// sensorField is the sensor's field that a stored method's readings are of.
func sensorField(method string) (string, bool) {
	if f, ok := strings.CutPrefix(method, "nvml."); ok && f != "energy" {
		return f, true
	}
	if f, ok := strings.CutPrefix(method, "nvidia-smi "); ok {
		return f, true
	}
	return "", false
}
