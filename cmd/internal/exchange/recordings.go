package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/recording"
	"github.com/wattmark/wattmark/cmd/internal/bench"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/logfile"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/pmd"
	"github.com/wattmark/wattmark/monitor/instrument/replay"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/exchange/ps3dump"
	"github.com/wattmark/wattmark/store/exchange/textin"
)

// dumpFlags are the flags of import powersensor3.
type dumpFlags struct {
	importFlags
	markers bool
	library string
}

func importDumpCmd(a *cli.App) *cobra.Command {
	var f dumpFlags
	c := cli.Command("powersensor3 FILE", "Take in a dump of PowerSensor2's or 3's own host programs as a task",
		cobra.ExactArgs(1), func(ctx context.Context, args []string) error { return importDump(ctx, a, args[0], f) })
	f.textFlags(c)
	c.Flags().BoolVar(&f.markers, "markers", false, "the window lies between the first marker and the last")
	c.Flags().StringVar(&f.library, "library-version", "", "version of the host library that wrote the dump, as in 1.4.1")
	return a.JSONFlag(c)
}

// importDump stores a dump as a task. Markers become kernels named "marker X"; with
// --markers the window runs from the first one to the end of the last. The file is read
// twice: once to find ranges and gaps (Look), once to store.
func importDump(ctx context.Context, a *cli.App, path string, f dumpFlags) (err error) {
	from, done, err := f.source(ctx, path, a.In)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	in, err := ps3dump.Open(from.open, ps3dump.Options{Library: f.library})
	if errors.Is(err, ps3dump.ErrOption) {
		return cli.Usagef("%s: --library-version: %w", path, err)
	}
	if err != nil {
		return logfile.In(path, err)
	}
	s, err := from.look(a, path, in.Rows, in.Columns)
	if err != nil {
		return logfile.In(path, err)
	}
	if f.markers && len(in.Markers) < 2 {
		return cli.Usagef("%s: --markers: it has %s: want two at least, or leave it out", path,
			measure.Plural(len(in.Markers), "marker"))
	}
	out, err := f.incoming("powersensor3", path, from.file, in.Plan, s, in.Absolute, nil)
	if err != nil {
		return err
	}
	out.notes = append(out.notes, dumpNotes(in)...)
	if h := &out.Header; in.Turns > 1 {
		h.Setup.Response.Update = measure.Seconds(float64(in.Turns) * s.Step / 1e9)
		h.CalibrationID = h.Setup.CalibrationID()
	}
	// Offsets in the window are from the first row; times in the dump are in ns.
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
	at := func(ns int64) time.Time { return out.Header.Started.Add(time.Duration(ns - s.First)) }
	for _, m := range in.Markers {
		kernels = append(kernels, store.Kernel{Name: strings.TrimSpace("marker " + m.Name), Start: at(m.At), End: at(m.To)})
	}
	by := map[bool]string{true: "dump of PowerSensor2", false: "dump of PowerSensor3"}
	out.steps(by[in.Turns > 0], from, in.Rows, in.Plan, s, kernels, w)
	return ImportTask(ctx, a, out)
}

// dumpEdges returns the uncertainties of a dump's times. Where the pairing of pair 0's
// current with its frame is unknown, both ends of the window may be off by one frame, taken
// as uniform: u = period/√3, fully correlated. n gaps of estimated length add u_gap·√n.
func dumpEdges(in *ps3dump.Input) (e measure.Edges) {
	if !in.Pairing.Known {
		u := in.Period / measure.Seconds(math.Sqrt(3))
		e = measure.Edges{UFrom: u, UTo: u, Correlation: 1}
	}
	e.Gaps = in.UGap * measure.Seconds(math.Sqrt(float64(in.Guessed)))
	return e
}

// dumpNotes returns the notes printed after the import: time stamps, losses, pairing,
// repeats, and a cut last line.
func dumpNotes(in *ps3dump.Input) (notes []string) {
	if in.Period == 0 {
		notes = append(notes, "the dump has no time stamps of the device: times are the host's, and frames that "+
			"were lost cannot be counted")
	} else {
		text := fmt.Sprintf("times are the device's stamps, a frame every %v; %s, %s lost", in.Period,
			measure.Plural(in.Gaps, "gap"), measure.Plural(int(in.Lost), "frame"))
		if in.Guessed > 0 {
			text += fmt.Sprintf("; the length of %s is an estimate by the host's clock (± %v each, k = 1)",
				measure.Plural(in.Guessed, "gap"), in.UGap)
		}
		notes = append(notes, text)
	}
	if in.Turns > 0 {
		notes = append(notes, fmt.Sprintf("written by PowerSensor or PowerSensor2: a row renews one of %s",
			measure.Plural(in.Turns, "sensor")))
	}
	if in.Behind > 0.02 {
		notes = append(notes, fmt.Sprintf("at the end the host was %v behind the stamps: it was slow to read, or "+
			"whole repeats of the stamps were lost unseen", in.Behind))
	}
	switch p := in.Pairing; {
	case p.Late && p.Known:
		notes = append(notes,
			"written by version 1.2 or later: pair 0's current was brought back to the other sensors of its frame")
	case p.Late:
		notes = append(notes, "taken as written by version 1.2 or later: pair 0's current was brought back to the "+
			"other sensors of its frame; ± U allows for one frame (--library-version states the version)")
	case !p.Known:
		notes = append(notes, "readings are taken as whole; before 1.2 a marker put pair 0's current a frame ahead: "+
			"± U allows for one frame")
	}
	if in.Repeats > 0 {
		notes = append(notes, fmt.Sprintf("%d readings of a frame that was written before were merged, as version "+
			"1.1 and earlier write them", in.Repeats))
	}
	if in.Cut {
		notes = append(notes, "the last line is not whole and was left out")
	}
	if len(in.Markers) > 0 {
		notes = append(notes, fmt.Sprintf("%s at the frame that the device marked: the host asked for it up to some "+
			"ms before", measure.Plural(len(in.Markers), "marker")))
	}
	return notes
}

// pmdFlags are the flags of import pmd. tickHz is the rate of the meter's stamps in Hz,
// uTick its relative standard uncertainty.
type pmdFlags struct {
	importFlags
	bench.ReplayFlags
	tickHz, uTick float64
}

func importPMDCmd(a *cli.App) *cobra.Command {
	var f pmdFlags
	d := pmd.Defaults()
	c := cli.Command("pmd DIR", "Take in a recording of an ElmorLabs PMD-USB as a task", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error { return importPMD(ctx, a, args[0], f) })
	f.register(c)
	fl := c.Flags()
	f.AddClocks(fl)
	fl.Float64Var(&f.tickHz, "tick-hz", d.TickHz, "rate of the meter's time stamps")
	cli.RelativeFlag(fl, &f.uTick, "u-tick", d.UTick, "its relative standard uncertainty")
	return a.JSONFlag(c)
}

// importPMD stores a recording of a PMD-USB as a task: the serial bytes through the
// driver's parser, the GPU's own readings, and the kernel events. The result is computed as
// by replay, between the first event and the last.
func importPMD(ctx context.Context, a *cli.App, dir string, f pmdFlags) error {
	opts := pmd.Defaults()
	opts.TickHz, opts.UTick = f.tickHz, f.uTick
	if err := opts.Validate(); err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	rec, err := f.Read(dir, "import pmd")
	if err != nil {
		return err
	}
	serial := filepath.Join(dir, recording.SerialFile)
	inputs := pmd.Inputs(opts)
	setup := measure.Setup{Timebase: inputs.Timebase, Response: inputs.Response, Channels: inputs.Channels}
	setup.Rails, setup.Missing = pmd.NaturalRails(inputs)
	in := &Incoming{Format: pmd.Kind, Path: dir}
	in.heads(&f.importFlags, filepath.Base(filepath.Clean(dir)), "recorded",
		store.Instrument{Kind: pmd.Kind, Model: "PMD-USB, imported file", Address: recording.SerialFile}, setup, rec.Start)
	in.Task.Launched = rec.Events[0]
	in.before = func(ctx context.Context, db *store.DB, id store.TaskID) error {
		return bench.PutRecorded(ctx, db, id, rec)
	}
	in.Stream = func(sink textin.Sink) error {
		r, err := (&source{ctx: ctx, file: serial}).open()
		if err != nil {
			return err
		}
		return errors.Join(pmd.ReadRecording(r, opts, instrument.Sink{Block: sink.Block, Event: sink.Event}), r.Close())
	}
	in.finish = func(ctx context.Context, db *store.DB, id store.TaskID, _ measure.Window) error {
		reason, err := provenance("ElmorLabs PMD-USB, serial bytes", serial, recording.SerialFile,
			"from the first kernel event to the last; clocks related by hand")
		if err != nil {
			return err
		}
		_, _, err = bench.ReplayResult(ctx, rec, f.ReplayFlags, db, id, reason)
		return err
	}
	return ImportTask(ctx, a, in)
}

func importRecordingCmd(a *cli.App) *cobra.Command {
	var f importFlags
	c := cli.Command("recording DIR", "Take in what wattmark export --format recording wrote, as a task", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error { return importRecording(ctx, a, args[0], f) })
	f.register(c)
	return a.JSONFlag(c)
}

// importRecording stores a recording as a task. Markers are searched for anew, and the window follows from them and
// from the host's times as after a measurement.
func importRecording(ctx context.Context, a *cli.App, dir string, f importFlags) error {
	path := filepath.Join(dir, HostFile)
	host, err := cli.ReadFile(path, readHostSide)
	if err != nil {
		return fmt.Errorf("%s: %w\nSee: wattmark export --help, --format recording", path, err)
	}
	d, err := replay.New(dir, replay.Options{AtEnd: "stop"})
	if err == nil {
		err = d.Open(ctx)
	}
	if err != nil {
		return err
	}
	defer d.Close()
	inputs := d.Inputs()
	setup := measure.Setup{
		Timebase: inputs.Timebase, Response: inputs.Response, Channels: inputs.Channels, Rails: instrument.PairRails(inputs.Channels),
	}
	det, err := marker.NewDetector(marker.Spec(host.Marker), &setup)
	if err != nil {
		return fmt.Errorf("%s: marker: %w", path, err)
	}
	in := &Incoming{Format: "recording", Path: dir, before: host.put}
	in.heads(&f, host.Task, host.GPU, d.Identity(), setup, host.Started)
	in.Task.Driver, in.Task.Marker = host.Driver, marker.Spec(host.Marker)
	in.Stream = func(sink textin.Sink) error {
		err := d.Stream(ctx, instrument.Sink{Event: sink.Event, Block: func(b *measure.Block) error {
			return errors.Join(det.Push(b), sink.Block(b))
		}})
		if !errors.Is(err, replay.ErrEnd) {
			return err
		}
		return det.Finish()
	}
	in.finish = func(ctx context.Context, db *store.DB, id store.TaskID, _ measure.Window) error {
		o, err := measurement.Conclude(ctx, db, id, &session.Summary{State: session.Complete, Markers: det.Found()})
		if err != nil {
			return err
		}
		from, err := provenance("recording of wattmark", filepath.Join(dir, "scans.csv"),
			filepath.Base(filepath.Clean(dir)), "by its markers")
		if err != nil {
			return err
		}
		o.Reason = strings.TrimPrefix(o.Reason+"; "+from, "; ")
		return db.Finish(ctx, id, o)
	}
	return ImportTask(ctx, a, in)
}

// put stores the edges played and the kernels of a task.
func (h *HostSide) put(ctx context.Context, db *store.DB, id store.TaskID) error {
	return errors.Join(db.PutPlayed(ctx, id, h.Played), db.PutKernels(ctx, id, h.Kernels))
}

// readHostSide reads and checks host.json. Errors name the field.
func readHostSide(in io.Reader, _ string) (*HostSide, error) {
	b, err := io.ReadAll(in)
	var h HostSide
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	switch {
	case err != nil:
		return nil, err
	case h.Started.IsZero():
		return nil, errors.New("started: no time: the meter's time zero is unknown")
	case len(h.Kernels) == 0:
		return nil, errors.New("kernels: none: the window is that of the work")
	}
	for i, p := range h.Played {
		if p.Kind < marker.Start || p.Kind > marker.Mark || p.Number < 0 || p.At.IsZero() {
			return nil, fmt.Errorf("played[%d]: kind %d, number %d at %v: want kind 1 to 3 and a time", i, p.Kind, p.Number, p.At)
		}
	}
	for i, k := range h.Kernels {
		if k.Start.IsZero() || k.End.Before(k.Start) {
			return nil, fmt.Errorf("kernels[%d]: from %v to %v", i, k.Start, k.End)
		}
	}
	return &h, nil
}
