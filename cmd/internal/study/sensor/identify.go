// Package sensor implements wattmark sensor: it identifies a GPU's built-in power sensor
// and measures with that sensor alone.
//
//	source (polls, load) → analysis/sensor.Identify → profile → database, text, JSON, SVG
//	profile → plan → trials of repetitions → estimate of the energy of one repetition
//
// A source holds the polled readings of each field of the sensor and the known load on one
// clock: the trace of a meter, or the times at which kernels ran (phases). Sources are
// stored tasks, recordings, CSV files, and the designed loads of sensor load.
//
// A profile describes one field of one GPU: the period at which its register is renewed,
// the window or the time constant of its mean, the delay, and the static gain and offset.
// Profiles are stored as analyses under the name "UUID FIELD", in versions.
//
// All times are in seconds since the source's origin, powers in watts.
package sensor

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/study/correct"
	study "github.com/wattmark/wattmark/cmd/internal/study/validate"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument/replay"
	"github.com/wattmark/wattmark/store"
)

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	c := &cobra.Command{Use: "sensor", Short: "Find out what a GPU's own sensor does, and measure with it"}
	c.AddCommand(sensorIdentifyCmd(a), sensorLoadCmd(a), sensorPlanCmd(a), sensorRunCmd(a), sensorShowCmd(a),
		sensorListCmd(a), sensorDeleteCmd(a))
	return cli.In(cli.Learn, help, c, certificateCmd(a))
}

// sensorIdentifyFlags are the flags of sensor identify. sensor load sets those of the
// output alone.
type sensorIdentifyFlags struct {
	task, recording, readings, events string // one of three sources: a task, a recording, or two files
	readingColumns, eventColumns      string
	shift, utcOffset, uClock          time.Duration
	given                             func(flag string) bool // whether the command line gives it: zero is a valid value
	noMeter                           bool
	field                             string
	gpu, name, driver, svg            string
	from, to                          time.Duration
	save, plot                        bool
}

func sensorIdentifyCmd(a *cli.App) *cobra.Command {
	var f sensorIdentifyFlags
	c := cli.Command("identify", "Find a sensor's period, window or lag, delay, gain and offset", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return sensorIdentify(a, ctx, &f) })
	fl := c.Flags()
	cli.Section(fl, "The readings and what ran", func() { f.sourceFlags(fl) })
	fl.BoolVar(&f.save, "save", false, "keep the profiles in the database")
	cli.SVGFlag(fl, &f.svg, "file to draw readings and models into; with several fields, one file each: NAME-FIELD.svg")
	fl.BoolVar(&f.plot, "plot", false, "draw readings and the model in the terminal")
	return a.HostFlag(a.JSONFlag(c))
}

// sourceFlags adds the flags of the source to fl.
func (f *sensorIdentifyFlags) sourceFlags(fl *pflag.FlagSet) {
	f.given = fl.Changed
	fl.StringVar(&f.task, "task", "", "number of a stored task")
	fl.StringVar(&f.readings, "readings", "", "CSV file of the sensor's readings")
	fl.StringVar(&f.events, "events", "", "CSV file of what ran when")
	fl.StringVar(&f.readingColumns, "reading-columns", "", "columns of --readings, in place of its heading")
	fl.StringVar(&f.eventColumns, "event-columns", "", "columns of --events, in place of its heading")
	fl.StringVar(&f.recording, "recording", "", "directory of a meter's recording")
	fl.DurationVar(&f.shift, "shift", 0,
		"of a recording: added to the meter's start time (default: the clocks are related by the data)")
	fl.DurationVar(&f.utcOffset, "utc-offset", 0, "of a recording: how far nvidia-smi's local time was ahead of UTC")
	fl.DurationVar(&f.uClock, "u-clock", 0, "standard uncertainty between the clocks of readings and load "+
		"(default: 2ms; of a recording 3ms, with what the clocks leave to doubt)")
	fl.BoolVar(&f.noMeter, "no-meter", false, "take the load from kernel events, although there is a meter")
	fl.StringVar(&f.field, "field", "", "field to look at, such as instant or average (default: all)")
	fl.DurationVar(&f.from, "from", 0, "leave out readings before this time of the recording")
	fl.DurationVar(&f.to, "to", 0, "leave out readings after it")
	fl.StringVar(&f.gpu, "gpu", "", "UUID of the GPU, (default: the task's)")
	fl.StringVar(&f.name, "gpu-name", "", "name of the GPU (default: the task's)")
	fl.StringVar(&f.driver, "driver", "", "driver version (default: the task's)")
}

// check returns a usage error for flags that contradict each other.
func (f *sensorIdentifyFlags) check() error {
	switch {
	case session.CountTrue(f.task != "", f.recording != "", f.readings != "") != 1:
		return cli.Usagef("name one source: --task, --recording, or --readings with --events")
	case (f.readings == "") != (f.events == ""):
		return cli.Usagef("--readings and --events go together: the load must be known")
	case f.to != 0 && f.to <= f.from || f.from < 0 || f.uClock < 0:
		return cli.Usagef("--to lies behind --from, and neither these nor --u-clock are negative")
	}
	return nil
}

// sensorIdentify reads the source and identifies its fields. The database is opened for
// writing only where profiles are stored, and not at all for files without --save.
func sensorIdentify(a *cli.App, ctx context.Context, f *sensorIdentifyFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	var db *store.DB
	switch {
	case f.task != "" && !f.save:
		db, err = a.OpenDB(ctx, f.task)
	case f.task != "":
		db, err = a.OpenToChange(ctx)
	case f.save:
		db, err = store.Open(ctx, a.DB)
	}
	if err != nil {
		return err
	}
	if db != nil {
		defer func() { err = errors.Join(err, db.Close()) }()
	}
	s, err := f.open(a, ctx, db)
	if err != nil {
		return err
	}
	return identifySource(a, ctx, db, s, f)
}

// open reads the source that the flags name; db is that of a task.
func (f *sensorIdentifyFlags) open(a *cli.App, ctx context.Context, db *store.DB) (*sensorSource, error) {
	switch {
	case f.task != "":
		return sensorTask(a, ctx, db, f.task, f.noMeter)
	case f.recording == "":
		return SensorFiles(f.readings, f.events, f.readingColumns, f.eventColumns)
	}
	if _, err := os.Stat(filepath.Join(f.recording, replay.MetaFile)); err == nil {
		return ownRecording(ctx, f.recording)
	}
	s, err := f.recordingSource()
	if err == nil {
		s.folder = f.recording
	}
	return s, err
}

// recordingSource reads a recording and sets uClock where the user did not. Without
// --shift the meter's clock is related to the host's by the edges of the power.
//
// The standard uncertainty of the clocks combines that of the offset (U/2) with the
// accuracy of nvidia-smi's time stamps.
func (f *sensorIdentifyFlags) recordingSource() (*sensorSource, error) {
	const stamped = 3 * time.Millisecond // standard uncertainty of nvidia-smi's time stamps
	r := study.RecordedFlags{
		Dir: f.recording, SmiTime: exchange.SmiFlags{Offset: f.utcOffset, Given: f.given("utc-offset")}, Offset: f.shift,
		OffsetGiven: f.given("shift"),
	}
	m, err := r.ReadDir()
	if err != nil {
		return nil, err
	}
	if f.noMeter {
		f.uClock = cmp.Or(f.uClock, stamped)
		return sourceOf(&m.Subject, false)
	}
	s, err := m.Related(r)
	if err != nil {
		return nil, fmt.Errorf("%w (here: --shift)", err)
	}
	f.uClock = cmp.Or(f.uClock, measure.Seconds(math.Hypot(float64(s.Clock.OffsetU)/2, stamped.Seconds())).Duration())
	return sourceOf(&s, true)
}

// identify identifies the fields of s, or the one of the flags. A field that fails is
// listed as refused; the call fails where none succeeds.
func (s *sensorSource) identify(f *sensorIdentifyFlags) (*SensorReport, error) {
	fields := s.Fields
	if f.field != "" {
		if !slices.Contains(fields, f.field) {
			return nil, cli.Usagef("--field %q: the readings have %s", f.field, strings.Join(fields, ", "))
		}
		fields = []string{f.field}
	}
	r := &SensorReport{Source: s.description, Truth: s.truth, source: s}
	var errs []error
	for _, field := range fields {
		x, err := sensor.Identify(field, s.Polls[field], s.Known, sensor.Options{
			From: measure.SecondsOf(f.from), To: measure.SecondsOf(f.to), UClock: measure.SecondsOf(f.uClock),
		})
		if err != nil {
			err = fmt.Errorf("%s: %w", field, err)
			r.Refused, errs = append(r.Refused, err.Error()), append(errs, err)
			continue
		}
		x.Profile.GPU, x.Profile.UUID, x.Profile.Driver = cmp.Or(f.name, s.gpu), cmp.Or(f.gpu, s.uuid),
			cmp.Or(f.driver, s.driver)
		notes := append([]string{}, x.Notes...) // never null in JSON
		r.Fields = append(r.Fields, SensorFieldReport{Profile: x.Profile, Notes: notes, found: x})
	}
	if len(r.Fields) == 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// identifySource identifies the fields of s, then draws, stores and prints the
// profiles. db may be nil unless f.save is set.
func identifySource(a *cli.App, ctx context.Context, db *store.DB, s *sensorSource, f *sensorIdentifyFlags) error {
	r, err := s.identify(f)
	if err != nil {
		return err
	}
	// Each field has a file of its own. With several fields their names are inserted before the extension.
	for i := range r.Fields {
		x := &r.Fields[i]
		x.Picture = f.svg
		if ext := filepath.Ext(f.svg); f.svg != "" && len(r.Fields) > 1 {
			x.Picture = strings.TrimSuffix(f.svg, ext) + "-" + x.Field + cmp.Or(ext, ".svg")
		}
		draw := func(w io.Writer) error { return sensorPicture(x.found, r.source).WriteSVG(w) }
		if err := out.ToFile(x.Picture, draw); err != nil {
			return err
		}
	}
	for i := range r.Fields {
		if !f.save {
			break
		}
		p := &r.Fields[i].Profile
		if p.UUID == "" {
			return cli.Usagef("--save: whose sensor is it? Name the GPU with --gpu (nvidia-smi -L lists UUIDs)")
		}
		v, err := correct.Profiles.Put(ctx, db, profileName(p.UUID, p.Field), p, s.tasks)
		if err != nil {
			return err
		}
		r.Fields[i].Version = v.Version
	}
	return a.Print(r, func(w io.Writer) { r.render(w, f.plot) })
}

// profileName returns the name under which a profile is stored.
func profileName(uuid, field string) string { return uuid + " " + field }

// sensorTask reads a stored task as a source: its readings, and as the load its meter's
// trace. With events set, or where there is no independent meter on a related clock, the
// load is the kernels that the task recorded.
func sensorTask(a *cli.App, ctx context.Context, db *store.DB, text string, events bool) (*sensorSource, error) {
	t, err := a.Task(ctx, db, text)
	if err != nil {
		return nil, err
	}
	readings, err := db.Readings(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	s := &sensorSource{
		gpu: t.GPU, driver: t.Driver, uuid: t.GPUUUID, tasks: []store.TaskID{t.ID},
		description: fmt.Sprintf("task %d, %s", t.ID, t.Name),
	}
	// The nvml meter is the sensor itself, and a trace without a clock fit cannot be
	// placed: the kernels are the only known load.
	events = events || t.OwnSensor() || t.Scans == 0 || t.Clock == nil
	s.place = func(at time.Time) measure.Seconds {
		if events {
			return measure.SecondsOf(at.Sub(t.Launched))
		}
		m, _ := t.Clock.Meter(measurement.HostSeconds(*t.Clock, at))
		return m
	}
	for _, r := range readings {
		field, ok := strings.CutPrefix(r.Method, "nvml.")
		if !ok {
			_, field, ok = smilog.CutTool(r.Method)
		}
		if ok && r.Method != "nvml.energy" { // that is the counter, in joules
			s.add(field, sensor.Poll{At: s.place(r.At), Power: measure.Watt(r.Value)})
		}
	}
	if len(s.Fields) == 0 {
		return nil, fmt.Errorf("task %d holds no readings of the GPU's sensor: measure without --no-nvml, or "+
			"import them with wattmark import nvidia-smi", t.ID)
	}
	if events {
		return s, taskPhases(ctx, db, t, s)
	}
	origin := "the meter's trace (" + t.Instrument.Kind + missingText(t.Setup.Missing) + ")"
	return s, s.useMeter(report.TaskTruth(ctx, db, t, nil), origin)
}

// missingText lists the rails without a sensor, for a description of the meter.
func missingText(rails []string) string {
	if len(rails) == 0 {
		return ""
	}
	return "; not measured: " + strings.Join(rails, ", ")
}

// phaseOf returns the load of a kernel.
func phaseOf(k validate.Kernel) sensor.Phase {
	return sensor.Phase{Name: k.Name, From: k.From, To: k.To}
}

// taskPhases sets the load to the launches recorded in the program, else to the kernels
// that the benchmark noted, with the chips of the markers: those load the GPU, so that the
// sensor's readings show them.
func taskPhases(ctx context.Context, db *store.DB, t *store.Task, s *sensorSource) error {
	kernels, _, err := report.TaskKernels(ctx, db, t, s.place)
	if err != nil {
		return err
	}
	s.Phases = lists.Map(kernels, phaseOf)
	played, err := db.Played(ctx, t.ID)
	if err != nil {
		return err
	}
	s.addChips(t.Marker, played)
	return s.usePhases("the kernels that the task recorded")
}
