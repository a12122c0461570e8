package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"wattmark/analysis/recording"
	"wattmark/analysis/smilog"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/monitor"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/pace"
	"wattmark/monitor/emulator/pmdface"
	"wattmark/monitor/emulator/pty"
	"wattmark/store"
)

// defaultUShift is how well a shift is known that was read off a plot.
const defaultUShift = time.Millisecond

// replayFlags are the flags of replay.
type replayFlags struct {
	shift, utcOffset, uShift time.Duration
	speed                    float64
	user, name               string
}

func (a *app) replayCmd() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use: "replay DIR", Short: "Play a recording of an external meter through the driver", Args: cobra.ExactArgs(1),
		Long: `Play a recording of an ElmorLabs PMD-USB back as serial bytes, through a
pseudo-terminal, into the pmd driver, a monitor and the task database, and
compare it with the GPU's own readings between the first and the last kernel
event. DIR holds PMD_data.bin, PMD_start_ts.txt, gpudata.csv and timestamps.csv,
as the public data of arXiv 2312.02741 do.

The files do not say how their clocks relate: --shift is added to the meter's
start time, --utc-offset is how far nvidia-smi's local time was ahead of UTC.`,
		Example: "  wattmark replay --shift -50ms --utc-offset 1h recordings/3090-square",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.replay(cmd.Context(), args[0], f) },
	}
	fl := c.Flags()
	fl.DurationVar(&f.shift, "shift", 0, "added to the meter's start time")
	fl.DurationVar(&f.uShift, "u-shift", defaultUShift, "standard uncertainty of the shift")
	fl.DurationVar(&f.utcOffset, "utc-offset", 0, "how far nvidia-smi's local time was ahead of UTC")
	fl.Float64Var(&f.speed, "speed", 0, "recorded seconds a second; 0 for as fast as the driver reads")
	fl.StringVar(&f.user, "user", "", "user of the task (default: the login name)")
	fl.StringVar(&f.name, "name", "", "name of the task (default: of the directory)")
	return a.jsonFlag(c)
}

// replayReport is what replay prints: the task, and the comparison.
type replayReport struct {
	*report
	MeterJ float64 `json:"meter_j"`
	Field  string  `json:"nvml_field"`
}

func (a *app) replay(ctx context.Context, dir string, f replayFlags) (err error) {
	rec, err := recording.Read(os.DirFS(dir), recording.Clocks{Shift: f.shift, UTCOffset: f.utcOffset})
	if err != nil {
		return fmt.Errorf("%s: %w\nSee: wattmark replay --help for the files that make a recording", dir, err)
	}
	db, err := store.Open(ctx, a.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	id, err := a.replayTask(ctx, dir, rec, f, db)
	if err != nil {
		return err
	}
	field, nvml, err := a.replayResult(ctx, rec, f, db, id, "clocks related by hand")
	if err != nil {
		o := store.Outcome{State: store.Untrimmed, Reason: err.Error()}
		return errors.Join(fmt.Errorf("task %d has all samples, but no result: %w", id, err), db.Finish(context.WithoutCancel(ctx), id, o))
	}
	t, err := db.Task(ctx, id)
	if err != nil {
		return err
	}
	r := newReport(&t, a.db)
	r.ErrorPct = number(100 * (float64(nvml)/float64(t.Result.Total.Energy) - 1))
	if a.json {
		return a.printJSON(replayReport{r, float64(t.Result.Total.Energy), string(field)})
	}
	renderReport(a.out, r)
	return a.plotTask(ctx, db, &t, r)
}

// replayTask plays the bytes into a task.
func (a *app) replayTask(ctx context.Context, dir string, rec *recording.Recording, f replayFlags, db *store.DB) (id store.TaskID, err error) {
	port, err := pty.OpenPort()
	if err != nil {
		return 0, err
	}
	defer port.Close()
	play := func() (io.ReadCloser, error) { return os.Open(filepath.Join(dir, recording.SerialFile)) }
	var p pace.Pace
	if f.speed > 0 {
		p = pace.Pace{Epoch: time.Now(), Speed: f.speed}
	}
	idle, err := board.New(board.Config{}) // what the device's other commands read
	if err != nil {
		return 0, err
	}
	face, err := pmdface.New(idle, p, pmdface.Config{Play: play})
	if err != nil {
		return 0, err
	}
	spool, err := store.TempDir()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(spool)) }()
	bench, closeBench, err := openBench(benchFlags{instrument: "pmd", port: port.Path()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeBench()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	address, err := startMonitor(ctx, g, monitor.Config{Bench: bench, Dir: spool, Version: version()}, "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	g.Go(func() error { return face.Run(ctx, port) })
	id, err = a.capturePlayed(ctx, address, firstOf(f.name, filepath.Base(filepath.Clean(dir))), f, rec, db, face, port)
	cancel()
	return id, errors.Join(err, g.Wait())
}

// capturePlayed captures until the recording has been played and read.
func (a *app) capturePlayed(ctx context.Context, address, name string, f replayFlags, rec *recording.Recording, db *store.DB, face *pmdface.Face, port *pty.Port) (id store.TaskID, err error) {
	client, err := monitorclient.Dial(address, monitorclient.Options{Version: version()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	login, holder := whoami()
	started, err := client.Start(ctx, monitorclient.StartRequest{Holder: holder, TaskName: name})
	if err != nil {
		return 0, err
	}
	id, err = db.BeginTask(ctx, store.NewTask{
		Name: name, User: firstOf(f.user, login), Launched: rec.Events[0], Monitor: address, CaptureID: started.CaptureID, GPU: "recorded",
	})
	if err != nil {
		return 0, err
	}
	if err := putRecorded(ctx, db, id, rec); err != nil {
		return id, err
	}
	var stored measurement.Counters
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := measurement.Transfer(gctx, db, client, id, monitorclient.ReadOptions{CaptureID: started.CaptureID, Follow: true}, &stored)
		return err
	})
	g.Go(func() error {
		if err := awaitPlayed(gctx, face, port, &stored); err != nil {
			return err
		}
		s, err := client.Stop(gctx, started.CaptureID)
		if err == nil && s.State == monitorclient.Incomplete {
			err = fmt.Errorf("the capture ended early: %s", s.Reason)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return id, errors.Join(err, db.Finish(context.WithoutCancel(ctx), id, store.Outcome{State: store.Incomplete, Reason: err.Error()}))
	}
	return id, client.Release(ctx, started.CaptureID)
}

// quiet is how long nothing new must have arrived before a recording counts as
// read to its end: longer than the driver and the capture hold samples back.
const quiet = 600 * time.Millisecond

// awaitPlayed waits until the last byte of the recording has been read, and
// what was read has been stored.
func awaitPlayed(ctx context.Context, face *pmdface.Face, port *pty.Port, stored *measurement.Counters) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-face.Played():
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last, since := uint64(0), time.Now()
	for {
		n, err := port.Unread()
		if err != nil {
			return err
		}
		if scans := stored.Scans.Load(); n > 0 || scans != last {
			last, since = scans, time.Now()
		}
		if time.Since(since) > quiet {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// putRecorded stores the GPU's own readings and the kernel events.
func putRecorded(ctx context.Context, db *store.DB, id store.TaskID, rec *recording.Recording) error {
	var rs []store.Reading
	for field, column := range rec.Sensor.Columns {
		for _, r := range column {
			rs = append(rs, store.Reading{Method: smiPrefix + string(field), At: r.At, Value: float64(r.Power)})
		}
	}
	if err := db.PutReadings(ctx, id, rs); err != nil {
		return err
	}
	var ks []store.Kernel
	for i, e := range rec.Events {
		ks = append(ks, store.Kernel{Name: fmt.Sprintf("event %d", i+1), Start: e, End: e})
	}
	return db.PutKernels(ctx, id, ks)
}

// replayResult integrates meter and sensor between the first and the last
// kernel event and ends the task, with the reason given.
func (a *app) replayResult(ctx context.Context, rec *recording.Recording, f replayFlags, db *store.DB, id store.TaskID, reason string) (smilog.Field, measure.Joule, error) {
	first, last := rec.Events[0], rec.Events[len(rec.Events)-1]
	field, rs := rec.Sensor.Best()
	nvml, err := smilog.Energy(rs, first, last)
	if err != nil {
		return "", 0, fmt.Errorf("%w: is --utc-offset right?", err)
	}
	t, err := db.Task(ctx, id)
	if err != nil {
		return "", 0, err
	}
	from, to := measure.SecondsOf(first.Sub(rec.Start)), measure.SecondsOf(last.Sub(rec.Start))
	g, err := measure.NewIntegrator(&t.Setup, from, to)
	if err != nil {
		return "", 0, err
	}
	for b, err := range blocks(ctx, db, &t) {
		if err == nil {
			err = g.Add(b)
		}
		if err != nil {
			return "", 0, err
		}
	}
	u := seconds(f.uShift)
	res, err := g.Result(measure.Edges{UFrom: u, UTo: u, Correlation: 1})
	if err != nil {
		return "", 0, fmt.Errorf("%w: is --shift right?", err)
	}
	// The clocks are related by hand: t_meter = t_host − start.
	origin := first.Truncate(time.Second)
	fit := &clock.Fit{
		Origin: measure.Seconds(origin.Unix()), A: measure.SecondsOf(origin.Sub(rec.Start)), B: 1, VarA: float64(u * u),
	}
	err = db.Finish(ctx, id, store.Outcome{State: store.Complete, Reason: reason, Clock: fit, Result: &res, NVML: &nvml, NVMLMethod: smiPrefix + string(field)})
	return field, nvml, err
}
