package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	sessioncmd "github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/calibration"
	"github.com/wattmark/wattmark/store"
)

// calRig is a bench under calibration: a client of its monitor, the folder of records, and
// the statistics of the newest capture. It implements monitorclient's receiver (Header,
// Chunk, Event). It is not safe for concurrent use.
type calRig struct {
	client *monitorclient.Client
	folder calibration.Folder

	// What the newest measurement saw.
	bench session.Bench
	setup measure.Setup // in force
	meter *calib.Meter
	block measure.Block
}

// withRig calls do with the bench that the flags choose: that of a running monitor, or of a
// monitor that runs in this process until do returns. It fails with ExitUsage without a
// folder for the records, or without a bench.
func withRig(ctx context.Context, a *cli.App, f *calibrateFlags, do func(context.Context, *calRig) error) error {
	folder := f.bench.Folder()
	if folder == "" {
		return cli.Usagef("say where the records are: --bench FILE (they lie in " +
			"calibration/ beside it), or --calibration DIR")
	}
	at := func(ctx context.Context, address string) error {
		client, err := cli.DialMeter(ctx, address, monitorclient.Options{Version: cli.Version()})
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, &calRig{client: client, folder: folder}), client.Close())
	}
	switch {
	case f.monitor != "":
		return at(ctx, f.monitor)
	case (f.bench.File == "") == (f.bench.Instrument == ""):
		return cli.Usagef("say what to calibrate: a bench file with --bench, a meter " +
			"with --instrument and --port, or a monitor that runs with --monitor")
	}
	b, err := f.bench.Load()
	if err != nil {
		return err
	}
	return withMonitor(ctx, b, folder, at)
}

// withMonitor calls do with the address of a monitor of the bench within this process, with a spool of
// its own, until do returns.
func withMonitor(ctx context.Context, b *bench.Bench, records calibration.Folder,
	do func(context.Context, string) error,
) error {
	made, closeBench, err := sessioncmd.MakeBench(b, records)
	if err != nil {
		return err
	}
	return errors.Join(sessioncmd.Within{Bench: made}.DoBriefly(ctx, do), closeBench())
}

// measureFor captures for d and prints the monitor's notes. It blocks for d and a little
// more. It fails with ExitUsage for less than 100 ms, and with ExitBusy for a busy bench.
func measureFor(ctx context.Context, a *cli.App, r *calRig, what string, d time.Duration) error {
	if d < 100*time.Millisecond {
		return cli.Usagef("--for %v: want 100ms or more", d)
	}
	fmt.Fprintf(a.Err, "Measuring for %v …\n", d)
	err := r.measure(ctx, what, d)
	if errors.Is(err, monitorclient.ErrBusy) {
		return cli.WithCode(cli.ExitBusy, err)
	}
	for _, n := range r.bench.Notes {
		fmt.Fprintln(a.Err, "Note:", n)
	}
	return err
}

// measure captures for d without markers, adds the readings to r.meter, and discards the
// capture. The lease outlasts d by a minute. Cancelling ctx stops the capture and frees the
// bench before measure returns.
func (r *calRig) measure(ctx context.Context, what string, d time.Duration) error {
	_, holder := cli.Whoami()
	s, err := r.client.Start(ctx, session.Request{Holder: holder, TaskName: "calibrate " + what, Lease: d + time.Minute})
	if err != nil {
		return err
	}
	r.meter = nil
	// The reader runs beside the timer; it ends with the capture, or with cancel.
	read, cancel := context.WithCancel(ctx)
	defer cancel()
	var readErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		o := monitorclient.ReadOptions{CaptureID: s.CaptureID, Follow: true, Untrimmed: true}
		_, readErr = r.client.Read(read, o, r)
	}()
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-done: // the stream ended early: a cable was pulled, the monitor stopped
	}
	// Free the bench also after a cancellation: stop and release with a context of their own.
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer stop()
	// Stop seals the capture, so that the reader gets the rest and returns.
	sum, err := r.client.Stop(last, s.CaptureID)
	if ctx.Err() != nil {
		cancel()
	}
	<-done
	err = errors.Join(ctx.Err(), readErr, err, r.client.Release(last, s.CaptureID))
	if err == nil && sum.State == session.Incomplete {
		err = fmt.Errorf("the capture ended early: %s", sum.Reason)
	}
	if err == nil && r.meter == nil {
		err = errors.New("no samples came")
	}
	if err != nil {
		return err
	}
	if r.bench, err = r.client.GetBench(ctx); err == nil && len(r.bench.Nominal.Channels) == 0 {
		err = errors.New("this monitor does not tell what the instrument itself says of its channels: bring it up " +
			"to date")
	}
	return err
}

// Header begins the statistics with the setup in force. The stream repeats it on reconnect.
func (r *calRig) Header(h store.Header, _ uint64) error {
	if r.meter == nil {
		r.setup = calib.Aged(h.Setup, time.Now())
		r.meter = calib.NewMeter(&r.setup)
	}
	return nil
}

func (r *calRig) Chunk(c *chunk.Chunk) error {
	if err := chunk.Decode(c, r.setup.Timebase, len(r.setup.Channels), &r.block); err != nil {
		return err
	}
	r.meter.Add(&r.block)
	return nil
}

// Event ignores losses: means do not need every scan.
func (r *calRig) Event(measure.Event) error { return nil }

// index returns a channel's index, or an error with ExitUsage that lists the channels.
func (r *calRig) index(name string) (int, error) {
	i := slices.IndexFunc(r.setup.Channels, func(c measure.Channel) bool { return c.Name == name })
	if i < 0 {
		names := lists.Map(r.setup.Channels, func(c measure.Channel) string { return c.Name })
		return 0, cli.Usagef("no channel %q: this bench has %s", name, strings.Join(names, ", "))
	}
	return i, nil
}

// check refuses channels that the bench lacks, and values that are none of theirs, before anything is measured. Where
// the monitor has not read its instrument yet, nothing is refused: the measurement fails then.
func (r *calRig) check(ctx context.Context, list []known) error {
	b, err := r.client.GetBench(ctx)
	if err != nil || len(b.Setup.Channels) == 0 {
		return err
	}
	r.setup = b.Setup
	for _, k := range list {
		if _, err = r.index(k.channel); err == nil && k.value != "" {
			_, _, _, err = r.applied(k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// basis returns the id of the record that a channel follows now; empty without one. A
// composite bench names a channel otherwise than its instrument does: both are tried.
func (r *calRig) basis(name string) string {
	h, err := calib.HistoryOf(&r.setup)
	i, unknown := r.index(name)
	if err != nil || unknown != nil {
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

// owners returns the instrument that each channel belongs to.
func (r *calRig) owners() calib.Owners { return calib.OwnersOf(&r.setup, r.bench.Instrument) }

// briefly is a measurement that learns the setup and the nominal scale; it ignores the readings.
const briefly = 100 * time.Millisecond

// follows captures again and checks that the setup in force holds the records ids. The
// error names the folder that the monitor must be started with.
func (r *calRig) follows(ctx context.Context, ids []string) error {
	if err := r.measure(ctx, "look", briefly); err != nil {
		return fmt.Errorf("the record is written; whether the monitor follows it could not be seen: %w", err)
	}
	held := r.setup.RecordIDs()
	if !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(held, id) }) {
		return nil
	}
	return fmt.Errorf("the record is written, but the monitor does not follow it: does it look at %s? start it with "+
		"--calibration %s", r.folder, r.folder)
}
