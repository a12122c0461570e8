package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"wattmark/analysis/recording"
	"wattmark/measure"
	"wattmark/monitor/instrument/pmd"
	"wattmark/store"
	"wattmark/store/exchange/textin"
)

// pmdFlags are the flags of import pmd.
type pmdFlags struct {
	importFlags
	replayFlags
	tickHz, uTick float64
}

func (a *app) importPMDCmd() *cobra.Command {
	var f pmdFlags
	d := pmd.Defaults()
	c := &cobra.Command{
		Use: "pmd DIR", Short: "Take in a recording of an ElmorLabs PMD-USB as a task", Args: cobra.ExactArgs(1),
		Long: `Take in the serial bytes of an ElmorLabs PMD-USB in continuous mode, recorded beside the
GPU's own readings, as a task: what wattmark replay does, without playing anything. DIR
holds PMD_data.bin, PMD_start_ts.txt, gpudata.csv and timestamps.csv, as the public data of
arXiv 2312.02741 do. The window lies between the first kernel event and the last.

The files do not say how their clocks relate: --shift is added to the meter's start time,
--utc-offset is how far nvidia-smi's local time was ahead of UTC.`,
		Example: "  wattmark import pmd --shift -50ms --utc-offset 1h recordings/3090-square",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.importPMD(cmd.Context(), args[0], f) },
	}
	f.register(c)
	fl := c.Flags()
	fl.DurationVar(&f.shift, "shift", 0, "added to the meter's start time")
	fl.DurationVar(&f.uShift, "u-shift", defaultUShift, "standard uncertainty of the shift")
	fl.DurationVar(&f.utcOffset, "utc-offset", 0, "how far nvidia-smi's local time was ahead of UTC")
	fl.Float64Var(&f.tickHz, "tick-hz", d.TickHz, "rate of the meter's time stamps")
	fl.Float64Var(&f.uTick, "u-tick", d.UTick, "its relative standard uncertainty")
	return a.jsonFlag(c)
}

func (a *app) importPMD(ctx context.Context, dir string, f pmdFlags) error {
	opts := pmd.Defaults()
	opts.TickHz, opts.UTick = f.tickHz, f.uTick
	if err := opts.Validate(); err != nil {
		return withCode(exitUsage, err)
	}
	rec, err := recording.Read(os.DirFS(dir), recording.Clocks{Shift: f.shift, UTCOffset: f.utcOffset})
	if err != nil {
		return fmt.Errorf("%s: %w\nSee: wattmark import pmd --help for the files that make a recording", dir, err)
	}
	serial := filepath.Join(dir, recording.SerialFile)
	inputs := pmd.Inputs(opts)
	setup := measure.Setup{Timebase: inputs.Timebase, Response: inputs.Response, Channels: inputs.Channels}
	setup.Rails, setup.Missing = pmd.NaturalRails(inputs)
	login, _ := whoami()
	in := &incoming{format: pmd.Kind, path: dir}
	in.task = store.NewTask{
		Name: firstOf(f.importFlags.name, filepath.Base(filepath.Clean(dir))), User: firstOf(f.importFlags.user, login),
		Launched: rec.Events[0], GPU: firstOf(f.gpu, "recorded"),
	}
	in.header = store.Header{
		Bench: "import", Instrument: store.Instrument{Kind: pmd.Kind, Model: "PMD-USB, imported file", Address: recording.SerialFile},
		Setup: setup, CalibrationID: setup.CalibrationID(), Started: rec.Start,
	}
	in.before = func(ctx context.Context, db *store.DB, id store.TaskID) error { return putRecorded(ctx, db, id, rec) }
	in.stream = func(sink textin.Sink) error {
		r, err := os.Open(serial)
		if err != nil {
			return err
		}
		return errors.Join(pmd.ReadRecording(r, opts, pmdSink{sink}), r.Close())
	}
	in.finish = func(ctx context.Context, db *store.DB, id store.TaskID, _ measure.Window) error {
		reason, err := provenance("ElmorLabs PMD-USB, serial bytes", serial, recording.SerialFile, "from the first kernel event to the last; clocks related by hand")
		if err != nil {
			return err
		}
		_, _, err = a.replayResult(ctx, rec, f.replayFlags, db, id, reason)
		return err
	}
	return a.importTask(ctx, in)
}

// pmdSink hands on what the driver's parser finds.
type pmdSink struct{ to textin.Sink }

func (s pmdSink) Block(b *measure.Block) error { return s.to.Block(b) }
func (s pmdSink) Event(e measure.Event) error  { return s.to.Event(e) }
