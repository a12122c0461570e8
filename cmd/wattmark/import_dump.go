package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/store"
	"wattmark/store/exchange/ps3dump"
	"wattmark/store/exchange/textin"
)

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
		w = givenSpan{time.Duration(first.At - s.First), time.Duration(last.At - s.First), true, true, "from the first marker to the last"}
	}
	kernels, err := f.eventsOf(out, &w)
	if err != nil {
		return err
	}
	for _, m := range in.Markers {
		at := out.header.Started.Add(time.Duration(m.At - s.First))
		kernels = append(kernels, store.Kernel{Name: strings.TrimSpace("marker " + m.Name), Start: at, End: at})
	}
	out.read(in.Rows, in.Plan, s, kernels)
	out.endBy("dump of PowerSensor3", file, w)
	return a.importTask(ctx, out)
}
