package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/measure"
	"wattmark/store"
	"wattmark/store/exchange/ps3dump"
	"wattmark/store/exchange/textin"
)

// dumpFlags are the flags of import powersensor3.
type dumpFlags struct {
	importFlags
	markers bool
	library string
}

func (a *app) importDumpCmd() *cobra.Command {
	var f dumpFlags
	c := &cobra.Command{
		Use: "powersensor3 FILE", Short: "Take in a dump of PowerSensor3's own host programs as a task", Args: cobra.ExactArgs(1),
		Long: `Take in the text that PowerSensor3's host library (0.1 to 1.6.1) dumps while it
measures. The pairs become rails pair0 to pair3, markers become events of the task,
and with --markers the window is what lies between the first marker and the last.

Times are the device's: its time stamps (µs modulo 1024), unwrapped. The host's times,
which USB bunches, only count whole repeats of the stamps in long gaps. A gap is a jump
of the stamps; where only the host tells its length it is marked as an estimate.

From 1.2 to 1.6.1 the library puts pair 0's current beside the other sensors of the
frame before. That is undone. A dump does not name its version: where it cannot be
told (four pairs, no marker within a reading), 1.2 or later is assumed, and ± U allows
for the other; --library states it.

The layout is checked: what is not power = voltage × current is refused.`,
		Example: "  wattmark import powersensor3 dump.txt --name gemm --u-gain 0.01 --markers\n  wattmark import powersensor3 old.txt --library 1.1.0",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.importDump(cmd.Context(), args[0], f) },
	}
	f.textFlags(c)
	c.Flags().BoolVar(&f.markers, "markers", false, "the window lies between the first marker and the last")
	c.Flags().StringVar(&f.library, "library", "", "version of the host library that wrote the dump, as in 1.4.1")
	return a.jsonFlag(c)
}

func (a *app) importDump(ctx context.Context, path string, f dumpFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	file, done, err := importFile(path, a.in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	in, err := ps3dump.Open(func() (io.ReadCloser, error) { return os.Open(file) }, ps3dump.Options{Library: f.library})
	if errors.Is(err, ps3dump.ErrOption) {
		return withCode(exitUsage, fmt.Errorf("%s: --library: %w", path, err))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s, err := textin.Look(in.Rows, in.Columns)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if f.markers && len(in.Markers) < 2 {
		return withCode(exitUsage, fmt.Errorf("%s: --markers: it has %d marker(s): want two at least, or leave it out", path, len(in.Markers)))
	}
	out, err := f.incoming("powersensor3", path, file, in.Plan, s, in.Absolute, nil)
	if err != nil {
		return err
	}
	out.notes = append(out.notes, dumpNotes(in)...)
	w := givenSpan{edges: dumpEdges(in)}
	if f.markers {
		first, last := in.Markers[0].At, in.Markers[0].To
		for _, m := range in.Markers {
			last = max(last, m.To)
		}
		w.from, w.to = time.Duration(first-s.First), time.Duration(last-s.First)
		w.hasFrom, w.hasTo, w.by = true, true, "from the first marker to the last"
	}
	kernels, err := f.eventsOf(out, &w)
	if err != nil {
		return err
	}
	at := func(ns int64) time.Time { return out.header.Started.Add(time.Duration(ns - s.First)) }
	for _, m := range in.Markers {
		kernels = append(kernels, store.Kernel{Name: strings.TrimSpace("marker " + m.Name), Start: at(m.At), End: at(m.To)})
	}
	out.read(in.Rows, in.Plan, s, kernels)
	out.endBy("dump of PowerSensor3", file, w)
	return a.importTask(ctx, out)
}

// dumpEdges are the uncertainties of a dump's times: a frame at both ends where it is
// not known which frame the sensors are of, and what gaps of an estimated length may
// be wrong by.
func dumpEdges(in *ps3dump.Input) (e measure.Edges) {
	if !in.Pairing.Known {
		u := in.Period / measure.Seconds(math.Sqrt(3))
		e = measure.Edges{UFrom: u, UTo: u, Correlation: 1}
	}
	e.Gaps = in.UGap * measure.Seconds(math.Sqrt(float64(in.Guessed)))
	return e
}

// dumpNotes are what import says of a dump.
func dumpNotes(in *ps3dump.Input) (notes []string) {
	if in.Period == 0 {
		notes = append(notes, "the dump has no time stamps of the device: times are the host's, and frames that were lost cannot be counted")
	} else {
		text := fmt.Sprintf("times are the device's stamps, a frame every %v; %s, %s lost", in.Period, plural(in.Gaps, "gap"), plural(int(in.Lost), "frame"))
		if in.Guessed > 0 {
			text += fmt.Sprintf("; the length of %s is an estimate by the host's clock (± %v each, k = 1)", plural(in.Guessed, "gap"), in.UGap)
		}
		notes = append(notes, text)
	}
	if in.Behind > 0.02 {
		notes = append(notes, fmt.Sprintf("at the end the host was %v behind the stamps: it was slow to read, or whole repeats of the stamps were lost unseen", in.Behind))
	}
	switch p := in.Pairing; {
	case p.Late && p.Known:
		notes = append(notes, "written by version 1.2 or later: pair 0's current was brought back to the other sensors of its frame")
	case p.Late:
		notes = append(notes, "taken as written by version 1.2 or later: pair 0's current was brought back to the other sensors of its frame; ± U allows for one frame (--library states the version)")
	case !p.Known:
		notes = append(notes, "readings are taken as whole; before 1.2 a marker put pair 0's current a frame ahead: ± U allows for one frame")
	}
	if in.Repeats > 0 {
		notes = append(notes, fmt.Sprintf("%d readings of a frame that was written before were merged, as version 1.1 and earlier write them", in.Repeats))
	}
	if in.Cut {
		notes = append(notes, "the last line is not whole and was left out")
	}
	if len(in.Markers) > 0 {
		notes = append(notes, fmt.Sprintf("%s at the frame that the device marked: the host asked for it up to some ms before", plural(len(in.Markers), "marker")))
	}
	return notes
}
