package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"wattmark/measure/calib"
)

// calibrateFlags are the flags that the subcommands of calibrate share.
type calibrateFlags struct {
	bench     benchFlags
	monitor   string
	by        string
	remark    string
	reference string
	valid     string
	celsius   float64
	length    time.Duration
	yes       bool

	hasCelsius bool
}

func (a *app) calibrateCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "calibrate", Short: "Calibrate the meter's channels, and show their calibration",
		Long: `Calibrate the meter, on the monitor's machine. Each calibration is a dated record:
a file in the folder calibration/ beside the bench file, or in --calibration DIR,
to which files are only added. The monitor follows the newest record of each
channel from its next capture on, without a restart; every task keeps the records
that it was measured with. docs/calibration.md tells the whole way.

With --monitor the readings come through a monitor that runs; its bench must be
free. With --bench the instrument is opened here.`,
	}
	c.AddCommand(a.calibrateZeroCmd(), a.calibrateGainCmd(), a.calibrateImportCmd(), a.calibrateShuntCmd(), a.calibrateNoteCmd(), a.calibrateShowCmd())
	return c
}

// flags gives a command the flags that all records have.
func (f *calibrateFlags) flags(a *app, c *cobra.Command, measures bool) {
	f.where(c)
	fl := c.Flags()
	login, _ := whoami()
	fl.StringVar(&f.by, "by", login, "who calibrates")
	fl.StringVar(&f.remark, "remark", "", "something to remember: the clamp's position, the cable")
	fl.StringVar(&f.valid, "valid", "", "for how long, such as 365d; after that the monitor reminds of it")
	fl.Float64Var(&f.celsius, "temperature", 0, "of the room, in °C")
	fl.BoolVar(&f.yes, "yes", false, "write the record without asking")
	a.jsonFlag(c)
	if measures {
		fl.DurationVar(&f.length, "for", 10*time.Second, "how long to measure")
	}
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		f.hasCelsius = c.Flags().Changed("temperature")
		if a.json && !f.yes {
			return withCode(exitUsage, errors.New("--json prints the record and asks nothing: add --yes"))
		}
		return nil
	}
}

// where gives a command the flags that say which bench.
func (f *calibrateFlags) where(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.bench.file, "bench", "", "bench file")
	fl.StringVar(&f.bench.instrument, "instrument", "", "meter without a bench file")
	fl.StringVar(&f.bench.port, "port", "", "where the meter is")
	fl.StringVar(&f.monitor, "monitor", "", "address of a monitor that runs here, to measure through it")
	fl.StringVar(&f.bench.records, "calibration", "", "folder of the records (default: calibration/ beside the bench file)")
}

// record begins a record of what the flags say.
func (f *calibrateFlags) record(done calib.Act, r *calRig) (*calib.Record, error) {
	rec := &calib.Record{
		Done: done, At: time.Now(), By: f.by, Remark: f.remark,
		Instrument: calib.Instrument{Kind: r.bench.Instrument.Kind, Serial: r.bench.Instrument.Serial},
		Conditions: calib.Conditions{Reference: f.reference},
	}
	if f.hasCelsius {
		rec.Conditions.TemperatureC = &f.celsius
	}
	if f.valid == "" {
		return rec, nil
	}
	d, err := parseDays(f.valid)
	if err != nil {
		return nil, withCode(exitUsage, fmt.Errorf("--valid %q: want a time such as 365d or 720h", f.valid))
	}
	rec.ValidUntil = rec.At.Add(d)
	return rec, nil
}

// parseDays reads a positive duration, in days too.
func parseDays(s string) (time.Duration, error) {
	var d time.Duration
	var err error
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n float64
		n, err = strconv.ParseFloat(days, 64)
		d = time.Duration(n * 24 * float64(time.Hour))
	} else {
		d, err = time.ParseDuration(s)
	}
	if err == nil && d <= 0 {
		err = errors.New("not positive")
	}
	return d, err
}

// write shows a record, asks, and adds it to the folder.
func (a *app) writeRecord(ctx context.Context, f *calibrateFlags, r *calRig, rec *calib.Record) error {
	if !a.json {
		a.showChange(r, rec)
	}
	if !f.yes {
		ok, err := a.ask("Write this record to " + string(r.folder) + "? [y/N] ")
		if err != nil {
			return err
		}
		if !ok {
			fmt.Fprintln(a.out, "Nothing was written.")
			return nil
		}
	}
	var ids []string
	written := calib.History{}
	for _, part := range r.owners().Split(&r.setup, *rec) { // a record is of one instrument
		path, err := r.folder.Add(&part)
		if err != nil {
			return err
		}
		if !a.json {
			fmt.Fprintf(a.out, "Record %s: %s\n", part.ID, path)
		}
		written = append(written, part)
		ids = append(ids, part.ID)
	}
	if f.monitor != "" {
		if err := r.follows(ctx, ids); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"records": written})
	}
	return nil
}

// dialog is where questions are printed: beside the JSON object, not into it.
func (a *app) dialog() io.Writer {
	if a.json {
		return a.err
	}
	return a.out
}

// ask asks a question that is answered by y or n.
func (a *app) ask(question string) (bool, error) {
	fmt.Fprint(a.dialog(), question)
	line, err := a.line()
	if err != nil {
		fmt.Fprintln(a.dialog())
		return false, withCode(exitUsage, errors.New("nobody answers, and nothing was written: answer y, or give --yes"))
	}
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes", nil
}

// line reads a line of the standard input.
func (a *app) line() (string, error) {
	if a.in == nil {
		return "", errors.New("there is no input")
	}
	if a.lines == nil {
		a.lines = bufio.NewReader(a.in)
	}
	line, err := a.lines.ReadString('\n')
	if f, ok := a.in.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		fmt.Fprintln(a.dialog()) // no Enter was echoed
	}
	if line != "" {
		err = nil
	}
	return line, err
}

// showChange shows what a record changes, channel by channel.
func (a *app) showChange(r *calRig, rec *calib.Record) {
	t := newTable(a.out)
	if len(rec.Channels) > 0 && rec.Done != calib.Note {
		t.AppendHeader([]any{"channel", "", "gain (a count)", "u, relative", "zero (at count 0)", "u of zero", "noise"})
		for _, c := range rec.Channels {
			now := calib.ScaleOf(*r.channel(c.Name))
			for _, s := range []struct {
				name, when string
				calib.Scale
			}{{c.Name, "before", now}, {"", "after", *c.Scale}} {
				t.AppendRow([]any{
					s.name, s.when, fmt.Sprintf("%.7g %s", s.Gain, c.Unit), fmt.Sprintf("%.2g %%", 100*s.UGain),
					fmt.Sprintf("%.6g %s", s.Offset, c.Unit), fmt.Sprintf("%.2g %s", s.UOffset, c.Unit), fmt.Sprintf("%.2g %s", s.Noise, c.Unit),
				})
			}
		}
		t.Render()
	}
	for _, c := range rec.Channels {
		for _, p := range c.Points {
			at := fmt.Sprintf("%.6g %s", p.Value, c.Unit)
			if p.U > 0 {
				at += fmt.Sprintf(" (u %.2g)", p.U)
			}
			fmt.Fprintf(a.out, "  %s at %s: read %.6g %s (u %.2g)", c.Name, at, p.Reading, c.Unit, p.UReading)
			if p.Samples > 0 {
				fmt.Fprintf(a.out, ": %.3f counts, σ %.2f, %d readings", p.MeanCount, p.StdCount, p.Samples)
			}
			fmt.Fprintln(a.out)
		}
	}
	for _, x := range rec.Rails {
		fmt.Fprintf(a.out, "  shunt of %s: %.6g Ω (u %.2g %%), was %.6g Ω (u %.2g %%)\n", x.Name, x.Ohm, 100*x.URel, x.NominalOhm, 100*x.NominalURel)
	}
}

func (a *app) calibrateZeroCmd() *cobra.Command {
	var f calibrateFlags
	var channels []string
	c := &cobra.Command{
		Use: "zero", Short: "Measure the zeros, with nothing at the inputs", Args: cobra.NoArgs,
		Long: `Measure what the channels read of nothing, and record it as their zero. Take the
card's supply away, the wires out of the clamps, or short the inputs first. A
channel that does not rest, or reads more than its zero can be off by, is refused,
and nothing is written.

The uncertainty of the zero holds the scatter of the readings (by the Allan
deviation where they wander), their drift, and the converter's steps.`,
		Example: `  wattmark calibrate zero --bench bench.yaml
  wattmark calibrate zero --monitor 127.0.0.1:7551 --bench bench.yaml --for 30s --channel eps1.current --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withRig(cmd.Context(), &f, func(ctx context.Context, r *calRig) error { return a.zero(ctx, &f, r, channels) })
		},
	}
	f.flags(a, c, true)
	c.Flags().StringSliceVar(&channels, "channel", nil, "only these channels (repeatable; default: all)")
	return c
}

func (a *app) zero(ctx context.Context, f *calibrateFlags, r *calRig, names []string) error {
	if err := a.measureFor(ctx, r, "zero", f.length); err != nil {
		return err
	}
	if len(names) == 0 {
		for _, c := range r.setup.Channels {
			names = append(names, c.Name)
		}
	}
	rec, err := f.record(calib.Zero, r)
	if err != nil {
		return err
	}
	var faults []error
	for _, name := range names {
		i, err := r.index(name)
		if err != nil {
			return err
		}
		c, err := calib.ZeroOf(r.setup.Channels[i], r.bench.Nominal.Channels[i], r.basis(name), r.meter.Stat(i))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		rec.Channels = append(rec.Channels, c)
	}
	if len(faults) > 0 {
		return fmt.Errorf("nothing was written:\n%w", errors.Join(faults...))
	}
	return a.writeRecord(ctx, f, r, rec)
}
