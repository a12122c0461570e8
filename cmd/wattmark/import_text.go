package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/store"
	"wattmark/store/exchange"
	"wattmark/store/exchange/csvfile"
	"wattmark/store/exchange/ps3dump"
	"wattmark/store/exchange/textin"
)

func (a *app) importCSVCmd() *cobra.Command {
	var f importFlags
	var from, to time.Duration
	var assume []string
	c := &cobra.Command{
		Use: "csv FILE", Short: "Take in a table of volts, amperes or watts as a task", Args: cobra.ExactArgs(1),
		Long: `Take in a CSV file as a task. A heading names the columns with their units:

  time          t_s, time_ms, host_ns, "Time (us)"; or timestamp: a date with a time (UTC
                without a zone)
  a rail        RAIL_current_a with RAIL_voltage_v, or RAIL_power_w; also in mA, mV, mW,
                and as "RAIL current [mA]". A power beside both is left: it follows
  power_w       the total, where nothing else is there
  scan          the number of the reading: where it jumps, readings were lost

Other columns are left. Values are stored as counts: the file's own last decimal place
is one count where 31 bits hold the largest value, else a finer step than the file can
matter by; what it is is told. A file of wattmark export comes back this way. - reads
the standard input.

The file does not know how good its meter was: state it with --u-gain, or ± U holds the
rounding, the noise and the time scale only.`,
		Example: "  wattmark import csv scope.csv --name gemm --u-gain 0.01\n  wattmark import csv log.csv --assume eps=12 --from 1s --to 4s",
		RunE: func(cmd *cobra.Command, args []string) error {
			w := givenSpan{from, to, cmd.Flags().Changed("from"), cmd.Flags().Changed("to")}
			return a.importCSV(cmd.Context(), args[0], f, w, assume)
		},
	}
	f.textFlags(c)
	fl := c.Flags()
	fl.DurationVar(&from, "from", 0, "the window's begin, in time since the first row (default: the first row)")
	fl.DurationVar(&to, "to", 0, "the window's end (default: the last row)")
	fl.StringArrayVar(&assume, "assume", nil, "voltage of a rail of which only the current is there, as in eps=12; may be given again")
	return a.jsonFlag(c)
}

// givenSpan is a window that may have been said.
type givenSpan struct {
	from, to       time.Duration
	hasFrom, hasTo bool
}

// of is the window of samples.
func (g givenSpan) of(samples measure.Window) (measure.Window, error) {
	w := samples
	if g.hasFrom {
		w.From = seconds(g.from)
	}
	if g.hasTo {
		w.To = seconds(g.to)
	}
	if w.From < samples.From || w.To > samples.To || w.From >= w.To {
		return w, withCode(exitUsage, fmt.Errorf("window from %v to %v: the samples lie from %v to %v: choose --from and --to within them", w.From, w.To, samples.From, samples.To))
	}
	return w, nil
}

func (g givenSpan) String() string {
	if !g.hasFrom && !g.hasTo {
		return "all samples"
	}
	return "set by hand"
}

func (a *app) importCSV(ctx context.Context, path string, f importFlags, w givenSpan, assume []string) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	assumed, err := assumedVolts(assume)
	if err != nil {
		return err
	}
	file, done, err := importFile(path, a.in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	in, err := csvfile.Open(func() (io.ReadCloser, error) { return os.Open(file) }, assumed)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s, err := textin.Look(in.Rows, in.Columns)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if in.Meta != nil && f.start == "" {
		f.start = in.Meta.Task.Started.Format(time.RFC3339Nano)
	}
	out, err := f.incoming("csv", path, file, in.Plan, s, in.Absolute, in.Meta)
	if err != nil {
		return err
	}
	if m := in.Meta; m != nil {
		f.adopt(out, m.Task.Name, m.Task.GPU)
		out.notes = append(out.notes, fmt.Sprintf("the file is an export of task %d, %s, of calibration %s", m.Task.ID, m.Task.Name, m.Setup.ID))
	}
	out.stream = func(sink textin.Sink) error { return textin.Read(in.Rows, in.Columns, s, sink) }
	out.finish = func(ctx context.Context, db *store.DB, id store.TaskID, samples measure.Window) error {
		window, err := w.of(samples)
		if err != nil {
			return err
		}
		reason, err := provenance("CSV", file, w.String())
		if err != nil {
			return err
		}
		return finishWindow(ctx, db, id, window, strings.Replace(reason, filepath.Base(file), nameOf(path), 1))
	}
	return a.importTask(ctx, out)
}

// adopt takes over what an export says of itself, where nobody said otherwise.
func (f *importFlags) adopt(in *incoming, name, gpu string) {
	if f.name == "" && name != "" {
		in.task.Name = measure.Printable(name)
	}
	if f.gpu == "" && gpu != "" {
		in.task.GPU = measure.Printable(gpu)
	}
}

// adoptUncertainties takes over what an export says of its channels, for rails whose
// columns are of single channels: a shunt's current is of two, and of the shunt. It
// reports whether all of the rails' uncertainties are known now.
func adoptUncertainties(s *measure.Setup, m *exchange.Meta) (all bool) {
	if m == nil {
		return false
	}
	all = true
	for _, r := range s.Rails {
		i := slices.IndexFunc(m.Setup.Rails, func(x exchange.RailMeta) bool { return x.Name == r.Name && x.Wiring == r.Wiring.String() })
		if i < 0 {
			all = false
			continue
		}
		from := m.Setup.Rails[i]
		for _, c := range m.Setup.Channels {
			for to, name := range map[int]string{r.X: from.X, r.Y: from.Y} {
				if to >= 0 && c.Name == name {
					s.Channels[to].UGain, s.Channels[to].UOffset, s.Channels[to].Noise = c.UGainRel, c.UOffset, c.Noise
				}
			}
		}
	}
	return all
}

// assumedVolts reads --assume.
func assumedVolts(assume []string) (map[string]measure.Volt, error) {
	out := map[string]measure.Volt{}
	for _, s := range assume {
		rail, text, _ := strings.Cut(s, "=")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v > 0 && v < 1e4) || rail == "" {
			return nil, withCode(exitUsage, fmt.Errorf("--assume %q: want a rail and its volts, as in eps=12", s))
		}
		out[rail] = measure.Volt(v)
	}
	return out, nil
}

func nameOf(path string) string {
	if path == "-" {
		return "standard input"
	}
	return measure.Printable(filepath.Base(path))
}

// incoming describes the task that a text file becomes. file is where it lies,
// path what it is called, meta what an export of ours says of itself.
func (f *importFlags) incoming(format, path, file string, p *textin.Plan, s *textin.Survey, absolute bool, meta *exchange.Meta) (*incoming, error) {
	out := &incoming{format: format, path: path}
	start := time.Unix(0, s.First)
	if !absolute {
		at, note, err := f.startOf(file, time.Duration(s.Last))
		if err != nil {
			return nil, err
		}
		if start = at.Add(time.Duration(s.First)); note != "" {
			out.notes = append(out.notes, note)
		}
	}
	setup := p.Setup(s, f.uGain, f.uClock)
	stated := f.uGain > 0 || adoptUncertainties(&setup, meta)
	for i := range setup.Rails {
		if r := &setup.Rails[i]; r.Role == 0 {
			r.Role = instrument.RoleOf(r.Name)
		}
	}
	if err := setup.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, textin.ErrInput, err)
	}
	login, _ := whoami()
	name := nameOf(path)
	out.task = store.NewTask{Name: firstOf(f.name, strings.TrimSuffix(name, filepath.Ext(name))), User: firstOf(f.user, login), Launched: start, GPU: firstOf(f.gpu, "not told")}
	out.header = store.Header{
		Bench: "import", Instrument: store.Instrument{Kind: "import-" + format, Model: "imported file", Address: name},
		Setup: setup, CalibrationID: setup.CalibrationID(), Started: start,
	}
	out.notes = append(out.notes, fmt.Sprintf("%d rows over %v, every %v", s.Rows, measure.Seconds(float64(s.Last-s.First)/1e9), measure.Seconds(s.Step/1e9)))
	for i, c := range setup.Channels {
		how := "as the file has more digits than a count holds"
		if s.Exact[i] {
			how = "the file's last decimal place"
		}
		out.notes = append(out.notes, fmt.Sprintf("%s: one count is %g %s, %s", c.Name, c.Gain, c.Unit, how))
	}
	for _, l := range p.Left {
		out.notes = append(out.notes, "left out: "+l)
	}
	if !stated {
		out.notes = append(out.notes, "no uncertainty of the scales was stated (--u-gain): ± U holds rounding, noise and the time scale only")
	}
	return out, nil
}

func (a *app) importDumpCmd() *cobra.Command {
	var f importFlags
	var markers bool
	c := &cobra.Command{
		Use: "powersensor3 FILE", Short: "Take in a dump of PowerSensor3's own host programs as a task", Args: cobra.ExactArgs(1),
		Long: `Take in the text that PowerSensor3's host library dumps while it measures: lines of S with
time, and current, voltage and power of each pair, and of M with markers. The layout is
told by the number of values and checked: what is not power = voltage × current is refused.
The pairs become rails pair0 to pair3. With --markers the window is what lies between the
first marker and the last, else all samples. Values are stored as wattmark import csv does.`,
		Example: "  wattmark import powersensor3 dump.txt --name gemm --u-gain 0.01 --markers",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.importDump(cmd.Context(), args[0], f, markers) },
	}
	f.textFlags(c)
	c.Flags().BoolVar(&markers, "markers", false, "the window lies between the first marker and the last")
	return a.jsonFlag(c)
}

func (a *app) importDump(ctx context.Context, path string, f importFlags, markers bool) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	file, done, err := importFile(path, a.in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	in, err := ps3dump.Open(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s, err := textin.Look(in.Rows, in.Columns)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if markers && len(in.Markers) < 2 {
		return withCode(exitUsage, fmt.Errorf("%s: --markers: it has %d marker(s): want two at least, or leave it out", path, len(in.Markers)))
	}
	out, err := f.incoming("powersensor3", path, file, in.Plan, s, false, nil)
	if err != nil {
		return err
	}
	w := givenSpan{}
	if markers {
		first, last := in.Markers[0], in.Markers[len(in.Markers)-1]
		w = givenSpan{time.Duration(first.At - s.First), time.Duration(last.At - s.First), true, true}
	}
	out.before = func(ctx context.Context, db *store.DB, id store.TaskID) error {
		var ks []store.Kernel
		for _, m := range in.Markers {
			at := out.header.Started.Add(time.Duration(m.At - s.First))
			ks = append(ks, store.Kernel{Name: strings.TrimSpace("marker " + m.Name), Start: at, End: at})
		}
		return db.PutKernels(ctx, id, ks)
	}
	out.stream = func(sink textin.Sink) error { return textin.Read(in.Rows, in.Columns, s, sink) }
	out.finish = func(ctx context.Context, db *store.DB, id store.TaskID, samples measure.Window) error {
		window, err := w.of(samples)
		if err != nil {
			return err
		}
		text := w.String()
		if markers {
			text = "from the first marker to the last"
		}
		reason, err := provenance("dump of PowerSensor3", file, text)
		if err != nil {
			return err
		}
		return finishWindow(ctx, db, id, window, strings.Replace(reason, filepath.Base(file), nameOf(path), 1))
	}
	return a.importTask(ctx, out)
}
