package sensor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/analysis/figure"
	"github.com/wattmark/wattmark/analysis/recording"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/monitor/instrument/replay"
	"github.com/wattmark/wattmark/store"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// sensorSource is the input of an identification: the polls of each field and the known
// load, on one clock.
type sensorSource struct {
	Fields []string // in the order of their first poll
	Polls  map[string][]sensor.Poll
	Known  *sensor.Known // from load or Phases
	load   *sensor.Load  // the meter's trace; nil where the load comes from phases
	Phases []sensor.Phase
	truth  string // origin of the load, for the report
	// identity of the GPU; empty where the source does not name it
	gpu, uuid, driver string
	tasks             []store.TaskID
	place             func(time.Time) measure.Seconds // from the host's clock; nil for readings of files
	description       string
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
	s.addChips(marker.Spec(host.Marker), host.Played)
	return s, s.usePhases("the kernels and chips that the host timed")
}

// addChips adds the phases of the chips of markers, which load the GPU; chips count from the start of the code. A chip
// lasts until the next one of the same marker begins.
func (s *sensorSource) addChips(spec marker.Spec, played []store.Played) {
	for i := 0; i+1 < len(played); i++ {
		x, next, chips := played[i], played[i+1], spec.Chips(played[i].Kind)
		if c := x.Chip + spec.CodeStart(); next.Kind == x.Kind && next.Chip == x.Chip+1 && c >= 0 && c < len(chips) {
			name := map[bool]string{true: "marker, high", false: "marker, low"}[chips[c]]
			s.Phases = append(s.Phases, sensor.Phase{Name: name, From: s.place(x.At), To: s.place(next.At)})
		}
	}
}

// parseColumns reads a file by parse, with columns in place of its heading unless empty.
func parseColumns[T any](path, columns string, parse func(io.Reader, string) (T, error)) (T, error) {
	return cli.ReadFile(path, func(r io.Reader, _ string) (T, error) {
		v, err := parse(r, columns)
		if err != nil {
			err = fmt.Errorf("%w\nSee: wattmark sensor identify --help for the columns", logfile.In(path, err))
		}
		return v, err
	})
}

// sourceOf converts a measurement of other tools. With the meter its clocks are related, and
// the load is the meter's whole trace, read into memory; without it the kernels are the load.
func sourceOf(m *validate.Subject, meter bool) (*sensorSource, error) {
	s := &sensorSource{description: m.Name, kind: "pmd", files: []string{
		recording.SerialFile, recording.StartFile, recording.SensorFile, recording.EventsFile,
	}}
	for _, x := range m.Methods {
		_, field, _ := smilog.CutTool(x.Name)
		for _, r := range x.Readings {
			s.add(field, sensor.Poll{At: r.At, Power: r.Power})
		}
	}
	s.Phases = lists.Map(m.Kernels, phaseOf)
	if !meter {
		return s, s.usePhases("kernel events")
	}
	s.measured = m
	how := map[bool]string{true: "by the data", false: "given"}[m.Clock.Found != nil]
	return s, s.useMeter(m.Truth, fmt.Sprintf("the meter's trace (%s, its clock %s %+.1f ms%s)", m.Meter, how,
		1e3*float64(m.Clock.Offset), missingText(m.Missing)))
}

// SensorReport is the result of sensor identify.
type SensorReport struct {
	Source  string              `json:"source"`
	Truth   string              `json:"load_from"`
	Fields  []SensorFieldReport `json:"fields"`
	Refused []string            `json:"refused,omitempty"`
	source  *sensorSource       // to draw
}

// SensorFieldReport is the profile of one field, with the notes of its identification and
// the version and drawing that were stored.
type SensorFieldReport struct {
	sensor.Profile
	Notes   []string           `json:"notes"`
	Version int                `json:"version,omitempty"`
	Picture string             `json:"picture,omitempty"`
	found   *sensor.Identified // with the renewals and both models, to draw
}

// render writes the profiles as text, with a plot of each where plot is set.
func (r *SensorReport) render(w io.Writer, plot bool) {
	fmt.Fprintf(w, "%s; the load is known from %s\n", r.Source, r.Truth)
	for _, x := range r.Fields {
		fmt.Fprintln(w)
		renderProfile(w, &x.Profile)
		out.Each(w, "  note     %s\n", x.Notes)
		if x.Version > 0 {
			fmt.Fprintf(w, "  stored   version %d of %s\n", x.Version, profileName(x.UUID, x.Field))
		}
		if x.Picture != "" {
			fmt.Fprintf(w, "  drawn    into %s\n", x.Picture)
		}
		if plot {
			out.Sketch(w, &sensorPicture(x.found, r.source).Chart)
		}
	}
	out.Each(w, "\n%s\n", r.Refused)
}

// renderProfile writes a profile as text. The static line appears only where a meter
// calibrated it. Every ± is an expanded uncertainty.
func renderProfile(w io.Writer, p *sensor.Profile) {
	fmt.Fprintln(w, out.JoinNonEmpty(" of ", p.Field, out.JoinNonEmpty(", ", p.GPU, p.UUID, p.Driver)))
	fmt.Fprintf(w, "  period   %v ± %v (jitter %v)\n", p.Period, p.UPeriod, p.Jitter)
	model := fmt.Sprintf("mean over a window of %v ± %v", p.Window, p.UWindow)
	if p.Model == sensor.FirstOrder {
		model = fmt.Sprintf("first-order lag, τ = %v ± %v", p.Tau, p.UTau)
	}
	switch {
	case p.Undecided:
		model += "; undecided between the two models, see below"
	case p.Weak:
		model += "; the load hardly tells it"
	}
	fmt.Fprintf(w, "  model    %s\n", model)
	fmt.Fprintf(w, "  delay    %v ± %v; polled readings lie %v ± %v behind the power\n", p.Delay, p.UDelay, p.Lag,
		p.ULag)
	if p.DelayLow < p.DelayHigh {
		fmt.Fprintf(w, "  wander   delay %v to %v over the run\n", p.DelayLow, p.DelayHigh)
	}
	fmt.Fprintf(w, "  sees     %s of the time\n", shareText(p.Seen, p.USeen))
	if p.Calibrated {
		fmt.Fprintf(w, "  static   reading = (%.4f ± %.4f) · power %+.2f W ± %.2f W\n", p.Gain, p.UGain,
			float64(p.Offset), float64(p.UOffset))
	} else {
		fmt.Fprintf(w, "  static   not known: no meter\n")
	}
	fmt.Fprintf(w, "  steps    of %v; noise of a value at rest %v\n", p.Quantum, p.Noise)
	if e := p.Evidence; e != nil && e.Boxcar != nil && e.FirstOrder != nil {
		renderEvidence(w, e)
	}
}

// shareText formats a share in percent, with its uncertainty from 0.5 % on.
func shareText(share, u float64) string {
	if u < 0.005 || math.IsNaN(u) {
		return fmt.Sprintf("%.0f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %% ± %.0f %%", 100*share, 100*min(u, 1))
}

// renderEvidence writes both models beside each other, the preferred one with an
// asterisk. The difference of the AIC and Vuong's z compare them; |z| > 1.96 decides at
// 95 %.
func renderEvidence(w io.Writer, e *sensor.Evidence) {
	head := out.Row{"model", "constant", "95 %", "delay", "95 %", "residual", "AIC"}
	out.Table(w, head, []*sensor.Fit{e.Boxcar, e.FirstOrder}, func(f *sensor.Fit) out.Row {
		return out.Row{
			string(f.Model) + map[bool]string{true: " *"}[f.Model == e.Preferred], f.Constant,
			fmt.Sprintf("%v to %v", f.ConstantLow, f.ConstantHigh), f.Delay,
			fmt.Sprintf("%v to %v", f.DelayLow, f.DelayHigh), f.Residual, fmt.Sprintf("%.1f", f.AIC),
		}
	})
	fmt.Fprintf(w, "  evidence %d renewals, worth %d independent ones; ΔAIC %.1f, Vuong z %.1f (1.96 decides)\n",
		e.Updates, e.Effective, e.DeltaAIC, e.Vuong)
	// The levels of kinds of kernels; none where a meter gave the load.
	for _, l := range bestFit(e).Levels {
		fmt.Fprintf(w, "  level    %s: %.1f W ± %.1f W\n", l.Name, float64(l.Power), float64(l.U))
	}
}

// bestFit returns the fit of the preferred model.
func bestFit(e *sensor.Evidence) *sensor.Fit {
	return map[bool]*sensor.Fit{true: e.FirstOrder, false: e.Boxcar}[e.Preferred == sensor.FirstOrder]
}

// sensorPicture draws the register of a field, the prediction of both models and the
// load.
func sensorPicture(x *sensor.Identified, s *sensorSource) *report.Picture {
	u := x.Updates
	from, to := u[0].At, u[len(u)-1].At
	title := fmt.Sprintf("%s, %s: the register and the models", cmp.Or(x.Profile.GPU, s.description), x.Profile.Field)
	p := report.NewPicture(title, to-from)
	if xy := loadLine(x, s, from, to); len(xy) > 0 {
		p.Line("load: "+strings.SplitN(s.truth, " (", 2)[0], report.Looks["truth"], xy)
	}
	// A register holds a value until its next renewal. A terminal shows the preferred model.
	line := func(name string, c color.Color, width vg.Length, m sensor.Model, w func(i int) measure.Watt) {
		var xy plotter.XYs
		for i := range u {
			t := float64(u[i].At - from)
			if i > 0 {
				xy = append(xy, plotter.XY{X: t, Y: float64(w(i - 1))})
			}
			xy = append(xy, plotter.XY{X: t, Y: float64(w(i))})
		}
		sketch := m == "" || m == x.Profile.Model
		p.Line(name, figure.Style{Color: c, Width: width, Dashed: m != "", Sketch: sketch}, xy)
	}
	box, lag := x.Profile.Evidence.Boxcar, x.Profile.Evidence.FirstOrder
	line("register, "+x.Profile.Field, figure.Vermillion, 1.6, "", func(i int) measure.Watt { return u[i].Power })
	line(fmt.Sprintf("boxcar of %v, residual %v", box.Constant, box.Residual), figure.Blue, 1.4, sensor.Boxcar,
		func(i int) measure.Watt { return x.Boxcar[i] })
	line(fmt.Sprintf("first order of %v, residual %v", lag.Constant, lag.Residual), figure.Green, 1.4, sensor.FirstOrder,
		func(i int) measure.Watt { return x.FirstOrder[i] })
	return p
}

// loadLine returns the load between from and to, with times relative to from: the mean of
// the meter's trace in each column, or for phases the power levels that the fit assigned
// to them.
func loadLine(x *sensor.Identified, s *sensorSource, from, to measure.Seconds) (xy plotter.XYs) {
	if s.load != nil {
		d := (to - from) / report.PictureColumns
		for t := from; t < to; t += d {
			xy = append(xy, plotter.XY{X: float64(t - from), Y: float64(s.load.Mean(t, t+d))})
		}
		return xy
	}
	// The first level of a fit is that of rest.
	level, rest := map[string]float64{}, 0.0
	for i, l := range bestFit(x.Profile.Evidence).Levels {
		if level[l.Name] = float64(l.Power); i == 0 {
			rest = float64(l.Power)
		}
	}
	add := func(t measure.Seconds, w float64) {
		if t >= from && t <= to {
			xy = append(xy, plotter.XY{X: float64(t - from), Y: w})
		}
	}
	for i, p := range s.Phases {
		w, ok := level[p.Name]
		if !ok {
			w = level["other kernels"]
		}
		// A pause between two phases falls to the level of rest.
		if i == 0 || p.From > s.Phases[i-1].To {
			add(p.From, rest)
		}
		add(p.From, w)
		add(p.To, w)
		if i+1 == len(s.Phases) || s.Phases[i+1].From > p.To {
			add(p.To, rest)
		}
	}
	return xy
}
