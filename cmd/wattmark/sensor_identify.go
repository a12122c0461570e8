package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/recording"
	"wattmark/analysis/sensor"
	"wattmark/measure"
	"wattmark/store"
)

// sensorIdentifyFlags are the flags of sensor identify.
type sensorIdentifyFlags struct {
	task                         string
	readings, events             string
	readingColumns, eventColumns string
	recording                    string
	shift, utcOffset, uClock     time.Duration
	shiftGiven, utcGiven         bool
	noMeter                      bool
	field                        string
	gpu, name, driver            string
	svg                          string
	from, to                     time.Duration
	save                         bool
	plot                         bool
	identified                   []*sensor.Identified
	source                       *sensorSource
	refused                      []string
	versions                     map[string]int
	pictures                     map[string]string
}

func (a *app) sensorIdentifyCmd() *cobra.Command {
	var f sensorIdentifyFlags
	c := &cobra.Command{
		Use: "identify", Short: "Find a sensor's period, window or lag, delay, gain and offset", Args: cobra.NoArgs,
		Long: `Find out what a built-in power sensor did, from its readings and a load that is
known. The load is one of:

  --task N          a stored task: its meter's trace; with --no-meter, or where the
                    meter is the sensor itself, the kernels that it recorded
  --recording DIR   a meter's serial bytes beside nvidia-smi's log, in the layout of
                    arXiv 2312.02741 (see wattmark replay), whose clocks are
                    related by the data unless --shift is given; with --no-meter
                    the kernel events alone
  --readings FILE   CSV files: readings, and what ran when (--events FILE)

A file's heading names its columns with their units. Readings: time_us (or _s, _ms,
_ns), power columns such as instant_mw, average_w, and perhaps stamp_us, the
register's own time. Events: time_us,event with NAME-begin and NAME-end, or
begin_s,end_s,name; the name gap is for nothing running. Without a heading the
columns are ` + sensor.DefaultReadings + `
and ` + sensor.DefaultEvents + `, or as --reading-columns and --event-columns say.

Two models are fitted to every renewal of the register: the mean over a window, and
a first-order lag. Both are told with their intervals (95 %); where the evidence does
not tell them apart, that is said. --save keeps the profile for the GPU and field.`,
		Example: `  wattmark sensor identify --task 12 --save
  wattmark sensor identify --readings nvml-power.csv --events kernel-events.csv
  wattmark sensor identify --recording recordings/3090-square --utc-offset 1h`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.shiftGiven, f.utcGiven = cmd.Flags().Changed("shift"), cmd.Flags().Changed("utc-offset")
			return a.sensorIdentify(cmd.Context(), &f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.task, "task", "", "number of a stored task")
	fl.StringVar(&f.readings, "readings", "", "CSV file of the sensor's readings")
	fl.StringVar(&f.events, "events", "", "CSV file of what ran when")
	fl.StringVar(&f.readingColumns, "reading-columns", "", "columns of --readings, in place of its heading")
	fl.StringVar(&f.eventColumns, "event-columns", "", "columns of --events, in place of its heading")
	fl.StringVar(&f.recording, "recording", "", "directory of a meter's recording")
	fl.DurationVar(&f.shift, "shift", 0, "of a recording: added to the meter's start time (default: the clocks are related by the data)")
	fl.DurationVar(&f.utcOffset, "utc-offset", 0, "of a recording: how far nvidia-smi's local time was ahead of UTC")
	fl.DurationVar(&f.uClock, "u-clock", 0, "standard uncertainty between the clocks of readings and load (default: 2ms; of a recording 3ms, with what the clocks leave to doubt)")
	fl.BoolVar(&f.noMeter, "no-meter", false, "take the load from kernel events, although there is a meter")
	fl.StringVar(&f.field, "field", "", "field to look at, such as instant or average (default: all)")
	fl.DurationVar(&f.from, "from", 0, "leave out readings before this time of the recording")
	fl.DurationVar(&f.to, "to", 0, "leave out readings after it")
	fl.BoolVar(&f.save, "save", false, "keep the profiles in the database")
	fl.StringVar(&f.gpu, "gpu-uuid", "", "UUID of the GPU, for --save (default: the task's)")
	fl.StringVar(&f.name, "gpu-name", "", "name of the GPU (default: the task's)")
	fl.StringVar(&f.driver, "driver", "", "driver version (default: the task's)")
	svgFlag(fl, &f.svg, "file to draw readings and models into; with several fields, one file each: NAME-FIELD.svg")
	fl.BoolVar(&f.plot, "plot", false, "draw readings and the model in the terminal")
	return a.jsonFlag(c)
}

func (f *sensorIdentifyFlags) validate() error {
	if countTrue(f.task != "", f.recording != "", f.readings != "") != 1 {
		return withCode(exitUsage, errors.New("name one source: --task, --recording, or --readings with --events"))
	}
	if f.readings != "" && f.events == "" || f.readings == "" && f.events != "" {
		return withCode(exitUsage, errors.New("--readings and --events go together: the load must be known"))
	}
	if f.to != 0 && f.to <= f.from || f.from < 0 || f.uClock < 0 {
		return withCode(exitUsage, errors.New("--to lies behind --from, and neither these nor --u-clock are negative"))
	}
	return nil
}

func (a *app) sensorIdentify(ctx context.Context, f *sensorIdentifyFlags) (err error) {
	if err := f.validate(); err != nil {
		return err
	}
	var db *store.DB
	switch {
	case f.task != "" && !f.save:
		db, err = a.openDB(ctx)
	case f.task != "":
		db, err = a.openToChange(ctx)
	case f.save:
		db, err = store.Open(ctx, a.db)
	}
	if err != nil {
		return err
	}
	if db != nil {
		defer func() { err = errors.Join(err, db.Close()) }()
	}
	switch {
	case f.task != "":
		f.source, err = a.sensorTask(ctx, db, f.task, f.noMeter)
	case f.recording != "":
		f.source, err = f.recordingSource()
	default:
		f.source, err = sensorFiles(f.readings, f.events, f.readingColumns, f.eventColumns)
	}
	if err != nil {
		return err
	}
	return a.identifySource(ctx, db, f)
}

// recordingSource reads a recording. Without a shift the meter's clock is related to
// the host's by the edges of the power.
func (f *sensorIdentifyFlags) recordingSource() (*sensorSource, error) {
	const stamped = 3 * time.Millisecond // what nvidia-smi's times of its readings are good for
	if f.shiftGiven || f.noMeter {
		if f.uClock == 0 {
			f.uClock = stamped
		}
		return sensorRecording(f.recording, recording.Clocks{Shift: f.shift, UTCOffset: f.utcOffset}, f.noMeter)
	}
	r := recordedFlags{dir: f.recording, smiTime: smiFlags{offset: f.utcOffset, given: f.utcGiven}}
	m, err := r.readDir()
	if err != nil {
		return nil, err
	}
	s, err := m.found()
	if err != nil {
		return nil, fmt.Errorf("%w (here: --shift)", err)
	}
	if f.uClock == 0 {
		f.uClock = measure.Seconds(math.Hypot(float64(s.Clock.OffsetU)/2, stamped.Seconds())).Duration()
	}
	return sourceOf(&s)
}

// identifySource identifies the fields of a source, and draws, keeps and prints what
// they do.
func (a *app) identifySource(ctx context.Context, db *store.DB, f *sensorIdentifyFlags) error {
	s := f.source
	fields := s.fields
	if f.field != "" {
		if !slices.Contains(fields, f.field) {
			return withCode(exitUsage, fmt.Errorf("--field %q: the readings have %s", f.field, strings.Join(fields, ", ")))
		}
		fields = []string{f.field}
	}
	var errs []error
	for _, field := range fields {
		x, err := sensor.Identify(field, s.polls[field], s.known, sensor.Options{From: seconds(f.from), To: seconds(f.to), UClock: seconds(f.uClock)})
		if err != nil {
			f.refused = append(f.refused, fmt.Sprintf("%s: %v", field, err))
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
			continue
		}
		x.Profile.GPU, x.Profile.UUID, x.Profile.Driver = firstOf(f.name, s.gpu), firstOf(f.gpu, s.uuid), firstOf(f.driver, s.driver)
		f.identified = append(f.identified, x)
	}
	if len(f.identified) == 0 {
		return errors.Join(errs...)
	}
	if err := f.draw(); err != nil {
		return err
	}
	if f.save {
		if err := f.keep(ctx, db); err != nil {
			return err
		}
	}
	return a.printIdentified(f)
}

// draw draws each field into a file of its own.
func (f *sensorIdentifyFlags) draw() error {
	f.pictures = map[string]string{}
	if f.svg == "" {
		return nil
	}
	for _, x := range f.identified {
		path := f.svg
		if len(f.identified) > 1 {
			ext := filepath.Ext(path)
			path = strings.TrimSuffix(path, ext) + "-" + x.Profile.Field + firstOf(ext, ".svg")
		}
		if err := writeFile(path, sensorPicture(x, f.source).writeSVG); err != nil {
			return err
		}
		f.pictures[x.Profile.Field] = path
	}
	return nil
}

// profileName is what a profile is stored as.
func profileName(uuid, field string) string { return uuid + " " + field }

// keep stores the profiles.
func (f *sensorIdentifyFlags) keep(ctx context.Context, db *store.DB) error {
	f.versions = map[string]int{}
	for _, x := range f.identified {
		p := &x.Profile
		if p.UUID == "" {
			return withCode(exitUsage, errors.New("--save: whose sensor is it? Name the GPU with --gpu-uuid (nvidia-smi -L tells it)"))
		}
		content, err := json.Marshal(p)
		if err != nil {
			return err
		}
		v, err := db.PutAnalysis(ctx, store.Analysis{
			Kind: sensor.Kind, Name: profileName(p.UUID, p.Field), Made: time.Now(), Maker: "wattmark " + version(), Content: content, Tasks: f.source.tasks,
		})
		if err != nil {
			return err
		}
		f.versions[p.Field] = v
	}
	return nil
}
