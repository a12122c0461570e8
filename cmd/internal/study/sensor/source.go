package sensor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/recording"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/monitor/instrument/replay"
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
	// The files that it was read from, and how, for a certificate; none of a task.
	folder, kind string
	files        []string
	// measured is the source as validate takes it, where a meter was read beside.
	measured *validate.Subject
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
	slices.SortStableFunc(s.Phases, func(x, y sensor.Phase) int { return cmp.Compare(x.From, y.From) })
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
	if readingColumns == "" && eventColumns == "" && filepath.Dir(readings) == filepath.Dir(events) {
		s.folder, s.kind = filepath.Dir(readings), "csv"
		s.files = []string{filepath.Base(readings), filepath.Base(events)}
	}
	if s.load, err = parseColumns(events, eventColumns, sensor.ParseLoad); s.load != nil || err != nil {
		s.Known, s.truth = sensor.FromMeter(s.load), "a meter's power in "+filepath.Base(events)
		return s, err
	}
	if s.Phases, err = parseColumns(events, eventColumns, sensor.ParsePhases); err != nil {
		return nil, err
	}
	return s, s.usePhases("kernel events in " + filepath.Base(events))
}

// ownRecording reads a recording that wattmark made of the GPU's own sensor (the meter
// nvml): its scans are the readings, the load is what host.json has of kernels and chips,
// both on the host's clock.
func ownRecording(ctx context.Context, dir string) (*sensorSource, error) {
	var host exchange.HostSide
	b, err := os.ReadFile(filepath.Join(dir, exchange.HostFile))
	if err == nil {
		err = logfile.In(filepath.Join(dir, exchange.HostFile), json.Unmarshal(b, &host))
	}
	if err != nil {
		return nil, err
	}
	d, err := replay.New(dir, replay.Options{AtEnd: "stop"})
	if err == nil {
		err = errors.Join(d.Open(ctx), d.Close())
	}
	if err != nil {
		return nil, err
	}
	in, id := d.Inputs(), d.Identity()
	model, own := strings.CutPrefix(id.Model, nvml.Kind+" ")
	if !own || len(in.Channels) != 1 || in.Timebase.TickHz != 1e9 || in.Channels[0].Value(1000) != 1 {
		return nil, fmt.Errorf("%s: a recording by %s: only one by the GPU's own sensor (nvml), in ns and mW, is read here",
			dir, id.Model)
	}
	// The registers differ by their window: that of average is a second. The scans are read
	// as they stand in the file, since a replay counts its ticks from the first one on.
	columns := map[bool]string{true: "scan,time_ns,average_mw", false: "scan,time_ns,instant_mw"}
	t, err := parseColumns(filepath.Join(dir, replay.ScansFile), columns[in.Response.Window > 0.5], sensor.ParseReadings)
	if err != nil {
		return nil, err
	}
	s := &sensorSource{
		Fields: t.Fields, Polls: t.Polls, description: "recording " + filepath.Base(dir),
		gpu: model, uuid: id.Serial, driver: id.Firmware,
		folder: dir, kind: "recording", files: []string{replay.MetaFile, replay.ScansFile, exchange.HostFile},
		place: func(t time.Time) measure.Seconds { return measure.SecondsOf(t.Sub(host.Started)) },
	}
	for _, k := range host.Kernels {
		s.Phases = append(s.Phases, sensor.Phase{Name: k.Name, From: s.place(k.Start), To: s.place(k.End)})
	}
	spec := host.Marker.Spec()
	for i := 0; i+1 < len(host.Played); i++ {
		x, next := host.Played[i], host.Played[i+1]
		if x.Kind == next.Kind && next.Chip == x.Chip+1 {
			s.addChip(spec, marker.Kind(x.Kind), x.Chip, x.At, next.At)
		}
	}
	return s, s.usePhases("the kernels and chips that the host timed")
}

// addChip adds the phase of one chip of a marker, which loads the GPU; chips count from
// the start of the code.
func (s *sensorSource) addChip(spec marker.Spec, kind marker.Kind, chip int, from, to time.Time) {
	chips := spec.Chips(kind)
	if c := chip + spec.CodeStart(); c >= 0 && c < len(chips) {
		name := map[bool]string{true: "marker, high", false: "marker, low"}[chips[c]]
		s.Phases = append(s.Phases, sensor.Phase{Name: name, From: s.place(from), To: s.place(to)})
	}
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
	s := &sensorSource{description: m.Name, kind: "pmd", files: []string{
		recording.SerialFile, recording.StartFile, recording.SensorFile, recording.EventsFile,
	}}
	for _, x := range m.Methods {
		for _, r := range x.Readings {
			_, field, _ := smilog.CutTool(x.Name)
			s.add(field, sensor.Poll{At: r.At, Power: r.Power})
		}
	}
	for _, k := range m.Kernels {
		s.Phases = append(s.Phases, sensor.Phase{Name: k.Name, From: k.From, To: k.To})
	}
	if !meter {
		return s, s.usePhases("kernel events")
	}
	s.measured = m
	how := "given"
	if m.Clock.Found != nil {
		how = "by the data"
	}
	return s, s.useMeter(m.Truth, fmt.Sprintf("the meter's trace (%s, its clock %s %+.1f ms%s)", m.Meter, how,
		1e3*float64(m.Clock.Offset), missingText(m.Missing)))
}
