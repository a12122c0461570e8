package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/calib"
	"wattmark/measure/chunk"
	"wattmark/monitor"
	"wattmark/monitor/calibration"
	"wattmark/store"
)

// calRig is a bench that is calibrated: a monitor that has it, and the folder of
// its records.
type calRig struct {
	client *monitorclient.Client
	folder calibration.Folder

	// What the newest measurement saw.
	bench monitorclient.Bench
	setup measure.Setup // in force
	meter *calib.Meter
	block measure.Block
}

// withRig runs f on the bench that the flags name, through a monitor that runs
// or one that lives as long as the call.
func (a *app) withRig(ctx context.Context, f *calibrateFlags, do func(context.Context, *calRig) error) error {
	folder := f.bench.folder()
	if folder == "" {
		return withCode(exitUsage, errors.New("say where the records are: --bench FILE (they lie in calibration/ beside it), or --calibration DIR"))
	}
	if f.monitor != "" {
		return atMonitor(ctx, f.monitor, folder, do)
	}
	if (f.bench.file == "") == (f.bench.instrument == "") {
		return withCode(exitUsage, errors.New("say what to calibrate: a bench file with --bench, a meter with --instrument and --port, or a monitor that runs with --monitor"))
	}
	spool, err := store.TempDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(spool)
	b, closeBench, err := openBench(f.bench)
	if err != nil {
		return err
	}
	defer closeBench()
	serving, stop := context.WithCancel(ctx)
	g, serving := errgroup.WithContext(serving)
	address, err := startMonitor(serving, g, monitor.Config{Bench: b, Dir: spool, Version: version()}, "127.0.0.1:0")
	if err == nil {
		err = atMonitor(serving, address, folder, do)
	}
	stop()
	return errors.Join(err, g.Wait())
}

func atMonitor(ctx context.Context, address string, folder calibration.Folder, do func(context.Context, *calRig) error) error {
	client, err := dialMeter(ctx, address, monitorclient.Options{Version: version()})
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, &calRig{client: client, folder: folder}), client.Close())
}

// measureFor takes a capture of a length through the monitor.
func (a *app) measureFor(ctx context.Context, r *calRig, what string, d time.Duration) error {
	if d < 100*time.Millisecond {
		return withCode(exitUsage, fmt.Errorf("--for %v: want 100ms or more", d))
	}
	fmt.Fprintf(a.err, "Measuring for %v …\n", d)
	err := r.measure(ctx, what, d)
	if errors.Is(err, monitorclient.ErrBusy) {
		return withCode(exitBusy, err)
	}
	if err == nil && len(r.bench.Nominal.Channels) == 0 {
		err = errors.New("this monitor does not tell what the instrument itself says of its channels: bring it up to date")
	}
	for _, n := range r.bench.Notes {
		fmt.Fprintln(a.err, "Note:", n)
	}
	return err
}

// measure takes a capture without markers, and drops it.
func (r *calRig) measure(ctx context.Context, what string, d time.Duration) error {
	_, holder := whoami()
	s, err := r.client.Start(ctx, monitorclient.StartRequest{Holder: holder, TaskName: "calibrate " + what, Lease: d + time.Minute})
	if err != nil {
		return err
	}
	r.meter = nil
	read, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := r.client.Read(read, monitorclient.ReadOptions{CaptureID: s.CaptureID, Follow: true, Untrimmed: true}, r)
		done <- err
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	var early error
	select {
	case <-timer.C:
	case <-ctx.Done():
	case early = <-done: // it ended by itself: a cable was pulled, the monitor stopped
		done <- early
	}
	// The bench is given back also to one who gave up.
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer stop()
	sum, err := r.client.Stop(last, s.CaptureID)
	if ctx.Err() != nil {
		cancel()
	}
	err = errors.Join(ctx.Err(), <-done, err, r.client.Release(last, s.CaptureID))
	if err == nil && sum.State == monitorclient.Incomplete {
		err = fmt.Errorf("the capture ended early: %s", sum.Reason)
	}
	if err == nil && r.meter == nil {
		err = errors.New("no samples came")
	}
	if err != nil {
		return err
	}
	r.bench, err = r.client.GetBench(ctx)
	return err
}

// Header begins the stream: it says what is in force.
func (r *calRig) Header(h store.Header, _ uint64) error {
	if r.meter == nil {
		r.setup = h.Setup
		r.meter = calib.NewMeter(&r.setup)
	}
	return nil
}

// Chunk adds a chunk's readings.
func (r *calRig) Chunk(c *chunk.Chunk) error {
	if err := chunk.Decode(c, r.setup.Timebase, len(r.setup.Channels), &r.block); err != nil {
		return err
	}
	r.meter.Add(&r.block)
	return nil
}

// Event does not matter here: what is lost is not needed.
func (r *calRig) Event(measure.Event) error { return nil }

// index finds a channel.
func (r *calRig) index(name string) (int, error) {
	i := slices.IndexFunc(r.setup.Channels, func(c measure.Channel) bool { return c.Name == name })
	if i < 0 {
		var names []string
		for _, c := range r.setup.Channels {
			names = append(names, c.Name)
		}
		return 0, withCode(exitUsage, fmt.Errorf("no channel %q: this bench has %s", name, strings.Join(names, ", ")))
	}
	return i, nil
}

// basis is the record that a channel follows now; empty for none.
func (r *calRig) basis(name string) string {
	h, err := calib.HistoryOf(&r.setup)
	if err != nil {
		return ""
	}
	i, err := r.index(name)
	if err != nil {
		return ""
	}
	own := r.owners()
	for _, called := range []string{own.Name(&r.setup, i), name} {
		if rec := h.InForce(own.Device(i), called); rec != nil {
			return rec.ID
		}
	}
	return ""
}

// owners tells whose the channels are.
func (r *calRig) owners() calib.Owners {
	return calib.OwnersOf(&r.setup, measure.Identity(r.bench.Instrument))
}

// channel returns a channel as it is in force; it must be there.
func (r *calRig) channel(name string) *measure.Channel {
	i, _ := r.index(name)
	return &r.setup.Channels[i]
}

// look learns the bench without using its readings.
func (r *calRig) look(ctx context.Context) error {
	if err := r.measure(ctx, "look", 100*time.Millisecond); err != nil {
		return err
	}
	if len(r.bench.Nominal.Channels) == 0 {
		return errors.New("this monitor does not tell what the instrument itself says of its channels: bring it up to date")
	}
	return nil
}

// follows checks that the monitor follows records that were just written.
func (r *calRig) follows(ctx context.Context, ids []string) error {
	if err := r.look(ctx); err != nil {
		return fmt.Errorf("the record is written; whether the monitor follows it could not be seen: %w", err)
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		return slices.ContainsFunc(r.setup.Records, func(c measure.CalibrationRecord) bool { return c.ID == id })
	})
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("the record is written, but the monitor does not follow it: does it look at %s? start it with --calibration %s", r.folder, r.folder)
}
