package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/store/exchange/csvfile"
	"wattmark/store/exchange/textin"
)

func (a *app) importCSVCmd() *cobra.Command {
	var f importFlags
	var from, to time.Duration
	var assume, rails []string
	c := &cobra.Command{
		Use: "csv FILE", Short: "Take in a table of volts, amperes or watts as a task", Args: cobra.ExactArgs(1),
		Long: `Take in a CSV file as a task. A heading names the columns with their units:

  time          t_s, time_ms, host_ns, "Time (us)"; or timestamp: a date with a time (UTC
                without a zone), or seconds, ms, µs or ns since 1970
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
			w := givenSpan{from: from, to: to, hasFrom: cmd.Flags().Changed("from"), hasTo: cmd.Flags().Changed("to")}
			return a.importCSV(cmd.Context(), args[0], f, w, assume, rails)
		},
	}
	f.textFlags(c)
	fl := c.Flags()
	fl.DurationVar(&from, "from", 0, "the window's begin, in time since the first row (default: the first row)")
	fl.DurationVar(&to, "to", 0, "the window's end (default: the last row)")
	fl.StringArrayVar(&assume, "assume", nil, "voltage of a rail of which only the current is there, as in eps=12; may be given again")
	fl.StringArrayVar(&rails, "rail", nil, "only this rail; may be given again")
	return a.jsonFlag(c)
}

// givenSpan is a window that may have been said.
type givenSpan struct {
	from, to       time.Duration
	hasFrom, hasTo bool
	by             string // how it came about; empty for by hand
	edges          measure.Edges
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
	switch {
	case !g.hasFrom && !g.hasTo:
		return "all samples"
	case g.by != "":
		return g.by
	}
	return "set by hand"
}

func (a *app) importCSV(ctx context.Context, path string, f importFlags, w givenSpan, assume, rails []string) (err error) {
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
	in, err := csvfile.Open(func() (io.ReadCloser, error) { return os.Open(file) }, textin.Options{Assumed: assumed, Rails: rails})
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
	// Numbers that large count from 1970, unless somebody says when their zero was.
	absolute := in.Absolute || s.First >= since1970 && f.start == ""
	out, err := f.incoming("csv", path, file, in.Plan, s, absolute, in.Meta)
	if err != nil {
		return err
	}
	if m := in.Meta; m != nil {
		f.adopt(out, m.Task.Name, m.Task.GPU)
		out.notes = append(out.notes, fmt.Sprintf("the file is an export of task %d, %s, of calibration %s", m.Task.ID, m.Task.Name, m.Setup.ID))
	}
	kernels, err := f.eventsOf(out, &w)
	if err != nil {
		return err
	}
	out.read(in.Rows, in.Plan, s, kernels)
	out.endBy("CSV", file, w)
	return a.importTask(ctx, out)
}

// since1970 is from which time on, in ns, a clock is taken to count from 1970: 1973, which
// is more than three years for any other.
const since1970 = 100_000_000_000_000_000

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
