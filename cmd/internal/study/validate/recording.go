package validate

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/clocksync"
	"github.com/wattmark/wattmark/analysis/metercsv"
	"github.com/wattmark/wattmark/analysis/recording"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/monitor/instrument/pmd"
)

// RecordedFlags name the files of a measurement by other tools and relate its clocks.
type RecordedFlags struct {
	Dir                  string // in the layout of arXiv 2312.02741; empty where files are named
	meter, smi, events   string // all three or none
	SmiTime              exchange.SmiFlags
	Offset, uOffset      time.Duration // to add to the meter's times where OffsetGiven, its standard uncertainty
	OffsetGiven, recover bool
	start                string
	uMeter               float64
}

// recordedNames are the flags that apply to recordings only; any of them selects one.
var recordedNames = []string{
	"recording", "meter", "smi", "events", "utc-offset", "zone", "clock-offset",
	"u-clock-offset", "recover", "meter-start", "u-meter",
}

// flags adds the flags of a recording to fl.
func (f *RecordedFlags) flags(fl *pflag.FlagSet) {
	fl.StringVar(&f.Dir, "recording", "", "a folder with PMD_data.bin, PMD_start_ts.txt, gpudata.csv and timestamps.csv")
	fl.StringVar(&f.meter, "meter", "",
		"what the meter logged: CSV with columns of time and power, such as time_s,power_w")
	fl.StringVar(&f.smi, "smi", "", "what nvidia-smi --query-gpu=timestamp,power.draw --format=csv logged")
	fl.StringVar(&f.events, "events", "", "when the GPU worked: CSV with name,start_us,end_us since 1970, or timestamp")
	fl.DurationVar(&f.SmiTime.Offset, "utc-offset", 0,
		"how far nvidia-smi's local time was ahead of UTC, as in 1h or -5h30m")
	fl.StringVar(&f.SmiTime.Zone, "zone", "", "nvidia-smi's time zone, as in Europe/Berlin")
	fl.DurationVar(&f.Offset, "clock-offset", 0,
		"what to add to the meter's times, as in -50ms: then nothing is searched for")
	fl.DurationVar(&f.uOffset, "u-clock-offset", time.Millisecond, "standard uncertainty of --clock-offset")
	fl.BoolVar(&f.recover, "recover", false, "beside a given --clock-offset, find it from the data too")
	fl.StringVar(&f.start, "meter-start", "", "when the relative times of --meter begin, as in 2026-01-02T15:04:05.123Z")
	cli.RelativeFlag(fl, &f.uMeter, "u-meter", 0.01, "relative standard uncertainty of the power in --meter")
}

// checkRecorded returns a usage error for contradictory flags of a recording.
func (f *ValidateFlags) checkRecorded(args []string) error {
	r := &f.recorded
	files := r.meter != "" || r.smi != "" || r.events != ""
	switch {
	case len(args) > 0 || f.user != "" || f.name != "":
		return cli.Usagef("a recording is judged by itself: name either tasks or files")
	case r.Dir == "" && !files:
		return cli.Usagef("name the recording with --recording, or files with --meter, --smi and --events")
	case r.Dir != "" && files:
		return cli.Usagef("give --recording, or --meter, --smi and --events, not both")
	case files && (r.meter == "" || r.smi == "" || r.events == ""):
		return cli.Usagef("--meter, --smi and --events belong together: the power by the meter, by the GPU's sensor, " +
			"and when the GPU worked")
	case r.recover && !r.OffsetGiven:
		return cli.Usagef("--recover goes beside --clock-offset; alone, the offset is found from the data anyway")
	case r.uOffset < 0:
		return cli.Usagef("--u-clock-offset %v: want zero or more", r.uOffset)
	case !(r.uMeter >= 0 && r.uMeter < 1):
		return cli.Usagef("--u-meter %v: want a share such as 0.01", r.uMeter)
	case r.start != "" && r.meter == "":
		return cli.Usagef("--meter-start belongs to --meter: a recording has PMD_start_ts.txt")
	case f.resamples < 100:
		return cli.Usagef("--resamples %d: fewer than 100 tell no interval", f.resamples)
	}
	return r.SmiTime.Check()
}

// validateRecorded reads a recording, corrects its sensor where a profile is named, and
// validates it. Nothing is read from the database but that profile.
func validateRecorded(a *cli.App, ctx context.Context, args []string, f ValidateFlags) error {
	if err := f.checkRecorded(args); err != nil {
		return err
	}
	read := f.recorded.readFiles
	if f.recorded.Dir != "" {
		read = f.recorded.ReadDir
	}
	m, err := read()
	if err != nil {
		return err
	}
	profiles, err := findProfiles(a, ctx, &f, nil, "", "")
	if err != nil {
		return err
	}
	addCorrected(&m.Subject, profiles) // the sensor's times are in place already
	return judgeSubjects(a, ctx, m.subjects(f.recorded), f, nil)
}

// foreignRun is a measurement of other tools before its clocks are related. It is not
// safe for concurrent use: each pass over trace collects lost and skipped anew.
type foreignRun struct {
	validate.Subject        // complete but for the truth and the clock
	path             string // of the meter's file
	// trace reads the meter's file from its beginning, on the meter's clock, whose zero
	// is the subject's origin.
	trace   clocksync.Trace
	lost    []validate.Span // gaps on the meter's clock, at most mostGaps
	skipped uint64          // bytes that belong to no record
	placed  bool            // an absolute start of the meter is known, however inaccurate
}

// ReadDir reads a folder in the layout of the public data of arXiv 2312.02741. The
// meter's serial file is opened later, on each pass over the trace.
func (f *RecordedFlags) ReadDir() (*foreignRun, error) {
	rec, err := new(bench.ReplayFlags).Read(f.Dir, "validate")
	if err != nil {
		return nil, err
	}
	m := &foreignRun{path: filepath.Join(f.Dir, recording.SerialFile), placed: true}
	m.Name, m.Meter, m.Origin = filepath.Base(filepath.Clean(f.Dir)), pmd.Kind, rec.Start
	_, m.Missing = pmd.NaturalRails(pmd.Inputs(pmd.Defaults()))
	m.Systematic, m.Offset = pmd.SystematicOf()
	m.trace = m.reread(m.totals)
	m.setWork(recording.Pairs(rec.Events), rec.Events[0], rec.Events[len(rec.Events)-1])
	return m, logfile.In(filepath.Join(f.Dir, recording.SensorFile), m.setSensor(rec.Sensor, f.SmiTime))
}

// setWork sets the kernels and the span of the work, relative to the origin.
func (m *foreignRun) setWork(kernels []recording.Kernel, from, to time.Time) {
	since := func(t time.Time) measure.Seconds { return measure.SecondsOf(t.Sub(m.Origin)) }
	for _, k := range kernels {
		m.Kernels = append(m.Kernels,
			validate.Kernel{Name: measure.Printable(k.Name), Span: validate.Span{From: since(k.Start), To: since(k.End)}})
	}
	m.Work = validate.Span{From: since(from), To: since(to)}
}

// setSensor adds the sensor's columns as methods, the one nearest to the true power
// first. The times in log are local; they are moved to UTC in place.
func (m *foreignRun) setSensor(log *smilog.Log, f exchange.SmiFlags) error {
	// Order and repeats are mended first: the search for the zone wants times in order.
	tidied, err := log.Tidy()
	if err != nil {
		return err
	}
	zone, err := m.placeSensor(log, f)
	if err != nil {
		return err
	}
	m.Cautions = append(m.Cautions, log.Tool+"'s time was taken as "+zone+" ahead of UTC")
	if tidied.Repeated+tidied.Unsorted > 0 {
		m.Cautions = append(m.Cautions, fmt.Sprintf("%s's log: %d repeated lines left out, %d out of order "+
			"put in place", log.Tool, tidied.Repeated, tidied.Unsorted))
	}
	// A gap counts from 20 usual intervals and 1 s on: shorter ones are jitter.
	if tidied.Gap > 20*tidied.Interval && tidied.Gap > time.Second {
		m.Cautions = append(m.Cautions,
			fmt.Sprintf("%s's log has no reading for %v behind line %d", log.Tool, tidied.Gap, tidied.GapLine))
	}
	for _, field := range log.Fields() {
		x := validate.Method{Name: log.Method(field), Energy: measure.Joule(math.NaN())}
		x.Readings = lists.Map(log.Columns[field], func(r smilog.Reading) validate.Reading {
			return validate.Reading{At: measure.SecondsOf(r.At.Sub(m.Origin)), Power: r.Power}
		})
		m.Methods = append(m.Methods, x)
	}
	return nil
}

// placeSensor moves log to UTC by the given offset or zone, else by the offset at which
// its readings follow the work. It returns a description of the zone. Where a given
// offset does not fit, the error suggests the one that does.
func (m *foreignRun) placeSensor(log *smilog.Log, f exchange.SmiFlags) (string, error) {
	at := func(s measure.Seconds) time.Time { return m.Origin.Add(s.Duration()) }
	from, to := at(m.Work.From), at(m.Work.To)
	spans := lists.Map(m.Kernels, func(k validate.Kernel) smilog.Span {
		return smilog.Span{From: at(k.From), To: at(k.To)}
	})
	_, rs := log.Best()
	if f.Given || f.Zone != "" || log.Absolute {
		zone, err := f.Place(log, from, to)
		if err != nil && f.Given {
			log.Shift(f.Offset) // undo the shift of Place
			if r, other := smilog.Recover(rs, spans); other == nil && r.Offset != f.Offset {
				err = fmt.Errorf("%w\nIts readings follow the work at --utc-offset %v", err, hours(r.Offset))
			}
		}
		return zone, err
	}
	r, err := smilog.Recover(rs, spans)
	if err != nil {
		return "", fmt.Errorf(
			"%w\nSay how far its local time was ahead of UTC with --utc-offset, or its zone with --zone", err)
	}
	log.Shift(-r.Offset)
	return fmt.Sprintf("%s (found: there its readings follow the work, correlation %.2f)", hours(r.Offset),
		r.Correlation), nil
}

// hours formats a multiple of a quarter hour without trailing zero units, as in 1h or
// 5h30m.
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

// reread returns a trace that opens the meter's file anew on each pass. Errors name it.
func (m *foreignRun) reread(samples func(io.Reader) (iter.Seq2[validate.Sample, error], error)) clocksync.Trace {
	return func() iter.Seq2[validate.Sample, error] {
		return func(yield func(validate.Sample, error) bool) {
			file, err := os.Open(m.path)
			if err != nil {
				yield(validate.Sample{}, err)
				return
			}
			defer file.Close()
			list, err := samples(file)
			if err != nil {
				yield(validate.Sample{}, logfile.In(m.path, err))
				return
			}
			for s, err := range list {
				if !yield(s, logfile.In(m.path, err)) {
					return
				}
			}
		}
	}
}

// mostGaps bounds the gaps kept in memory for a bad serial line.
const mostGaps = 1 << 16

// totals yields the samples in the serial bytes of an ElmorLabs PMD.
func (m *foreignRun) totals(r io.Reader) (iter.Seq2[validate.Sample, error], error) {
	m.lost, m.skipped = nil, 0
	return func(yield func(validate.Sample, error) bool) {
		for s, err := range pmd.Totals(r, pmd.Defaults()) {
			if s.Lost > 0 && len(m.lost) < mostGaps {
				m.lost = append(m.lost, validate.Span{From: s.At - s.Lost, To: s.At})
			}
			m.skipped += s.Skipped
			if !yield(validate.Sample{At: s.At, Power: s.Power}, err) {
				return
			}
		}
	}, nil
}

// rows yields the samples of a CSV file. Relative times count from the subject's origin;
// absolute ones are moved to it.
func (m *foreignRun) rows(r io.Reader) (iter.Seq2[validate.Sample, error], error) {
	h, samples, err := metercsv.Read(r)
	if err != nil || h.Origin.IsZero() {
		return samples, err
	}
	shift := measure.SecondsOf(h.Origin.Sub(m.Origin))
	return func(yield func(validate.Sample, error) bool) {
		for s, err := range samples {
			s.At += shift
			if !yield(s, err) {
				return
			}
		}
	}, nil
}

// readFiles reads a meter's CSV, a log of nvidia-smi and a CSV of kernels. The zero of
// the meter's times comes from the file, else from --meter-start; without either the
// first event stands in for it, and only a recovered offset is meaningful.
func (f *RecordedFlags) readFiles() (*foreignRun, error) {
	var from, to time.Time // the first and the last time of the kernels
	kernels, err := cli.ReadFile(f.events, func(r io.Reader, name string) (k []recording.Kernel, err error) {
		k, from, to, err = recording.ParseKernels(r)
		return k, logfile.In(name, err)
	})
	if err != nil {
		return nil, err
	}
	header, err := cli.ReadFile(f.meter, func(r io.Reader, name string) (*metercsv.Header, error) {
		h, _, err := metercsv.Read(r)
		return h, logfile.In(name, err)
	})
	if err != nil {
		return nil, err
	}
	m := &foreignRun{path: f.meter, placed: true}
	m.Name, m.Meter = filepath.Base(f.meter), "CSV"
	m.Missing, m.Systematic = header.Missing, f.uMeter
	m.Cautions = append(m.Cautions,
		fmt.Sprintf("the meter's power was taken to be right within %.3g %% (k = 1, --u-meter)", 100*f.uMeter))
	switch {
	case !header.Origin.IsZero() && f.start != "":
		return nil, cli.Usagef("%s has absolute times: leave --meter-start out", f.meter)
	case !header.Origin.IsZero():
		m.Origin = header.Origin
	case f.start != "":
		if m.Origin, err = time.Parse(time.RFC3339Nano, f.start); err != nil {
			return nil, cli.Usagef("--meter-start %q: want a time such as 2026-01-02T15:04:05.123Z", f.start)
		}
	case f.OffsetGiven && !f.recover:
		return nil, cli.Usagef("%s has relative times: --clock-offset says nothing without --meter-start", f.meter)
	default: // the start is found from the data
		m.Origin, m.placed = from, false
	}
	m.trace = m.reread(m.rows)
	m.setWork(kernels, from, to)
	log, err := exchange.ReadSmi(f.smi)
	if err != nil {
		return nil, err
	}
	return m, logfile.In(f.smi, m.setSensor(log, f.SmiTime))
}
