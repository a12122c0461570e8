package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/recording"
	"wattmark/analysis/smilog"
	"wattmark/analysis/validate"
	"wattmark/measure"
	"wattmark/monitor/instrument/pmd"
)

// recordedFlags say where a measurement of other tools lies and how its clocks
// relate.
type recordedFlags struct {
	dir                string
	meter, smi, events string
	smiTime            smiFlags
	offset             time.Duration
	uOffset            time.Duration
	offsetGiven        bool
	recover            bool
	start              string
	uMeter             float64
}

// recordedNames are the flags that only belong to recordings.
var recordedNames = []string{"recording", "meter", "smi", "events", "utc-offset", "zone", "clock-offset", "u-clock-offset", "recover", "meter-start", "u-meter"}

func (f *recordedFlags) flags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.dir, "recording", "", "a folder with PMD_data.bin, PMD_start_ts.txt, gpudata.csv and timestamps.csv")
	fl.StringVar(&f.meter, "meter", "", "what the meter logged: CSV with columns of time and power, such as time_s,power_w")
	fl.StringVar(&f.smi, "smi", "", "what nvidia-smi --query-gpu=timestamp,power.draw --format=csv logged")
	fl.StringVar(&f.events, "events", "", "when the GPU worked: CSV with name,start_us,end_us since 1970, or timestamp")
	fl.DurationVar(&f.smiTime.offset, "utc-offset", 0, "how far nvidia-smi's local time was ahead of UTC, as in 1h or -5h30m")
	fl.StringVar(&f.smiTime.zone, "zone", "", "nvidia-smi's time zone, as in Europe/Berlin")
	fl.DurationVar(&f.offset, "clock-offset", 0, "what to add to the meter's times, as in -50ms: then nothing is searched for")
	fl.DurationVar(&f.uOffset, "u-clock-offset", time.Millisecond, "standard uncertainty of --clock-offset")
	fl.BoolVar(&f.recover, "recover", false, "beside a given --clock-offset, find it from the data too")
	fl.StringVar(&f.start, "meter-start", "", "when the relative times of --meter begin, as in 2026-01-02T15:04:05.123Z")
	fl.Float64Var(&f.uMeter, "u-meter", 0.01, "relative standard uncertainty of the power in --meter")
}

// asked reports whether a recording is meant, and which flags were given.
func (f *recordedFlags) asked(c *cobra.Command) bool {
	f.smiTime.given, f.offsetGiven = c.Flags().Changed("utc-offset"), c.Flags().Changed("clock-offset")
	return slices.ContainsFunc(recordedNames, c.Flags().Changed)
}

// check refuses what goes against itself.
func (f *validateFlags) checkRecorded(args []string) error {
	r := &f.recorded
	files := r.meter != "" || r.smi != "" || r.events != ""
	var why string
	switch {
	case len(args) > 0 || f.user != "" || f.name != "":
		why = "a recording is judged by itself: name either tasks or files"
	case r.dir == "" && !files:
		why = "name the recording with --recording, or files with --meter, --smi and --events"
	case r.dir != "" && files:
		why = "give --recording, or --meter, --smi and --events, not both"
	case files && (r.meter == "" || r.smi == "" || r.events == ""):
		why = "--meter, --smi and --events belong together: the power by the meter, by the GPU's sensor, and when the GPU worked"
	case r.smiTime.given && r.smiTime.zone != "":
		why = "give --utc-offset or --zone, not both"
	case r.smiTime.offset > 14*time.Hour || r.smiTime.offset < -14*time.Hour:
		why = fmt.Sprintf("--utc-offset %v: no place on earth is so far from UTC", r.smiTime.offset)
	case r.recover && !r.offsetGiven:
		why = "--recover goes beside --clock-offset; alone, the offset is found from the data anyway"
	case r.uOffset < 0:
		why = fmt.Sprintf("--u-clock-offset %v: want zero or more", r.uOffset)
	case !(r.uMeter >= 0 && r.uMeter < 1):
		why = fmt.Sprintf("--u-meter %v: want a share such as 0.01", r.uMeter)
	case r.start != "" && r.meter == "":
		why = "--meter-start belongs to --meter: a recording has PMD_start_ts.txt"
	case f.resamples < 100:
		why = fmt.Sprintf("--resamples %d: fewer than 100 tell no interval", f.resamples)
	}
	if why != "" {
		return withCode(exitUsage, errors.New(why))
	}
	return nil
}

func (a *app) validateRecorded(ctx context.Context, args []string, f validateFlags) error {
	if err := f.checkRecorded(args); err != nil {
		return err
	}
	m, err := f.recorded.read()
	if err != nil {
		return err
	}
	profiles, err := a.profiles(ctx, &f, nil, "")
	if err != nil {
		return err
	}
	addCorrected(&m.Subject, profiles) // the sensor's times are in place already
	return a.judgeSubjects(ctx, m.subjects(f.recorded), f, nil)
}

// foreignRun is a measurement of other tools before its clocks are related.
type foreignRun struct {
	validate.Subject // without truth, work in place
	// trace reads the meter's file from its beginning, on its own clock, which is
	// taken to begin at the subject's origin.
	trace  func() iter.Seq2[validate.Sample, error]
	gaps   func() []validate.Span // on the meter's clock, once the trace has been read
	notes  func() []string        // alike
	placed bool                   // the meter's start is known, be it badly
}

// read makes a measurement of the files that were named.
func (f *recordedFlags) read() (*foreignRun, error) {
	if f.dir != "" {
		return f.readDir()
	}
	return f.readFiles()
}

// readDir reads a folder in the layout of the public data of arXiv 2312.02741.
func (f *recordedFlags) readDir() (*foreignRun, error) {
	rec, err := recording.Read(os.DirFS(f.dir), recording.Clocks{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w\nSee: wattmark validate --help for the files that make a recording", f.dir, err)
	}
	m := &foreignRun{placed: true}
	m.Name, m.Meter, m.Origin = filepath.Base(filepath.Clean(f.dir)), pmd.Kind, rec.Start
	_, m.Missing = pmd.NaturalRails(pmd.Inputs(pmd.Defaults()))
	m.Systematic, m.Offset = pmd.SystematicOf()
	m.tracePMD(filepath.Join(f.dir, recording.SerialFile))
	m.setWork(recording.Pairs(rec.Events), rec.Events[0], rec.Events[len(rec.Events)-1])
	path := filepath.Join(f.dir, recording.SensorFile)
	if err := m.setSensor(rec.Sensor, f.smiTime); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// setWork takes over when the GPU worked.
func (m *foreignRun) setWork(kernels []recording.Kernel, from, to time.Time) {
	since := func(t time.Time) measure.Seconds { return measure.SecondsOf(t.Sub(m.Origin)) }
	for _, k := range kernels {
		m.Kernels = append(m.Kernels, validate.Kernel{Name: measure.Printable(k.Name), Span: validate.Span{From: since(k.Start), To: since(k.End)}})
	}
	m.Work = validate.Span{From: since(from), To: since(to)}
}

// setSensor takes over the sensor's columns, the one nearest to the truth first.
// The log's times are local ones as they stand there.
func (m *foreignRun) setSensor(log *smilog.Log, f smiFlags) error {
	tidied, err := log.Tidy()
	if err != nil {
		return err
	}
	zone, err := m.placeSensor(log, f)
	if err != nil {
		return err
	}
	m.Cautions = append(m.Cautions, "nvidia-smi's time was taken as "+zone+" ahead of UTC")
	if tidied.Repeated+tidied.Unsorted > 0 {
		m.Cautions = append(m.Cautions, fmt.Sprintf("nvidia-smi's log: %d repeated lines left out, %d out of order put in place", tidied.Repeated, tidied.Unsorted))
	}
	if tidied.Gap > 20*tidied.Interval && tidied.Gap > time.Second {
		m.Cautions = append(m.Cautions, fmt.Sprintf("nvidia-smi's log has no reading for %v behind line %d", tidied.Gap, tidied.GapLine))
	}
	best, _ := log.Best()
	fields := slices.DeleteFunc([]smilog.Field{best, smilog.Instant, smilog.Draw, smilog.Average}, func(x smilog.Field) bool { return len(log.Columns[x]) == 0 })
	for i, field := range fields {
		if i > 0 && field == best {
			continue
		}
		x := validate.Method{Name: smiPrefix + string(field), Energy: measure.Joule(nan())}
		for _, r := range log.Columns[field] {
			x.Readings = append(x.Readings, validate.Reading{At: measure.SecondsOf(r.At.Sub(m.Origin)), Power: r.Power})
		}
		m.Methods = append(m.Methods, x)
	}
	return nil
}

// placeSensor moves the log to UTC by what was given, or by where its readings
// follow the work, and says how.
func (m *foreignRun) placeSensor(log *smilog.Log, f smiFlags) (string, error) {
	at := func(s measure.Seconds) time.Time { return m.Origin.Add(s.Duration()) }
	from, to := at(m.Work.From), at(m.Work.To)
	spans := make([]smilog.Span, len(m.Kernels))
	for i, k := range m.Kernels {
		spans[i] = smilog.Span{From: at(k.From), To: at(k.To)}
	}
	_, rs := log.Best()
	if f.given || f.zone != "" || log.Absolute {
		zone, err := f.place(log, from, to)
		if err != nil && f.given {
			log.Shift(f.offset) // as it stood
			if r, other := smilog.Recover(rs, spans); other == nil && r.Offset != f.offset {
				err = fmt.Errorf("%w\nIts readings follow the work at --utc-offset %v", err, hours(r.Offset))
			}
		}
		return zone, err
	}
	r, err := smilog.Recover(rs, spans)
	if err != nil {
		return "", fmt.Errorf("%w\nSay how far its local time was ahead of UTC with --utc-offset, or its zone with --zone", err)
	}
	log.Shift(-r.Offset)
	return fmt.Sprintf("%s (found: there its readings follow the work, correlation %.2f)", hours(r.Offset), r.Correlation), nil
}

// hours writes whole quarters of an hour without their zeros.
func hours(d time.Duration) string {
	s := d.String()
	if d != 0 {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// tracePMD makes the trace of a PMD's serial bytes.
func (m *foreignRun) tracePMD(path string) {
	var gaps []validate.Span
	var skipped uint64
	m.trace = func() iter.Seq2[validate.Sample, error] {
		return func(yield func(validate.Sample, error) bool) {
			file, err := os.Open(path)
			if err != nil {
				yield(validate.Sample{}, err)
				return
			}
			defer file.Close()
			gaps, skipped = gaps[:0], 0
			for s, err := range pmd.Totals(file, pmd.Defaults()) {
				if err != nil {
					err = fmt.Errorf("%s: %w", path, err)
				}
				if s.Lost > 0 && len(gaps) < mostGaps {
					gaps = append(gaps, validate.Span{From: s.At - s.Lost, To: s.At})
				}
				skipped += s.Skipped
				if !yield(validate.Sample{At: s.At, Power: s.Power}, err) {
					return
				}
			}
		}
	}
	m.gaps = func() []validate.Span { return slices.Clone(gaps) }
	m.notes = func() (out []string) {
		if skipped > 0 {
			out = append(out, fmt.Sprintf("%d bytes of %s belong to no record and were left out", skipped, path))
		}
		return out
	}
}

// mostGaps bounds what is held of a bad line.
const mostGaps = 1 << 16
