package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/recording"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	sessioncmd "github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	pmdface "github.com/wattmark/wattmark/monitor/emulator/pmd"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"github.com/wattmark/wattmark/monitor/instrument/pmd"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
)

// ReplayFlags are the flags of replay. Shift is added to the meter's clock, UShift is its
// standard uncertainty, UtcOffset is subtracted from nvidia-smi's times. speed is recorded
// seconds per second, 0 for no pacing.
type ReplayFlags struct {
	Shift, UtcOffset, UShift time.Duration
	speed                    float64
	user, name               string
}

// AddClocks adds the flags that relate the clocks of a recording.
func (f *ReplayFlags) AddClocks(fl *pflag.FlagSet) {
	fl.DurationVar(&f.Shift, "shift", 0, "added to the meter's start time")
	fl.DurationVar(&f.UShift, "u-shift", time.Millisecond, "standard uncertainty of the shift")
	fl.DurationVar(&f.UtcOffset, "utc-offset", 0, "how far nvidia-smi's local time was ahead of UTC")
}

// Read reads the recording in a folder. An error points to the help of command, which lists the files of a recording.
func (f *ReplayFlags) Read(dir, command string) (*recording.Recording, error) {
	rec, err := recording.Read(os.DirFS(dir), recording.Clocks{Shift: f.Shift, UTCOffset: f.UtcOffset})
	if err != nil {
		err = fmt.Errorf("%s: %w\nSee: wattmark %s --help for the files that make a recording", dir, err, command)
	}
	return rec, err
}

// replayCmd returns the command replay, which plays a recording into a task and compares the
// energies. The samples stay stored where no result can be computed.
func replayCmd(a *cli.App) *cobra.Command {
	var f ReplayFlags
	c := cli.Command("replay DIR", "Play a recording of an external meter through the driver", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) (err error) {
			dir := args[0]
			rec, err := f.Read(dir, "replay")
			if err != nil {
				return err
			}
			db, err := store.Open(ctx, a.DB)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			id, err := replayTask(ctx, dir, rec, f, db)
			if err != nil {
				return err
			}
			field, nvml, err := ReplayResult(ctx, rec, f, db, id, "clocks related by hand")
			if err != nil {
				o := store.Outcome{State: store.Untrimmed, Reason: err.Error()}
				return errors.Join(fmt.Errorf("task %d has all samples, but no result: %w", id, err),
					db.Finish(context.WithoutCancel(ctx), id, o))
			}
			t, err := db.Task(ctx, id)
			if err != nil {
				return err
			}
			r := report.NewReport(&t, a.DB)
			r.ErrorPct = cli.Number(100 * (float64(nvml)/float64(t.Result.Total.Energy) - 1))
			if a.JSON {
				return a.PrintJSON(ReplayReport{r, string(field)})
			}
			report.RenderReport(a.Out, r)
			return report.PlotTask(a, ctx, db, &t, r)
		})
	fl := c.Flags()
	f.AddClocks(fl)
	fl.Float64Var(&f.speed, "speed", 0, "recorded seconds a second; 0 for as fast as the driver reads")
	cli.UserFlag(fl, &f.user)
	fl.StringVar(&f.name, "name", "", "name of the task (default: of the directory)")
	return a.JSONFlag(c)
}

// ReplayReport is the JSON of replay: the task, and the column of nvidia-smi that its NVML energy is of.
type ReplayReport struct {
	*report.Report
	Field string `json:"nvml_field"`
}

// replayTask plays the bytes through a pseudo-terminal, the pmd driver and a monitor into a
// task, and returns its number, 0 where none was begun. All parts run in this process and
// have ended when it returns.
func replayTask(ctx context.Context, dir string, rec *recording.Recording, f ReplayFlags, db *store.DB,
) (id store.TaskID, err error) {
	port, err := pty.OpenPort()
	if err != nil {
		return 0, err
	}
	defer port.Close()
	serial := filepath.Join(dir, recording.SerialFile)
	file, err := os.Stat(serial)
	if err != nil {
		return 0, err
	}
	play := func() (io.ReadCloser, error) { return os.Open(serial) }
	// The zero pace sends as fast as the driver reads.
	var p pace.Pace
	if f.speed > 0 {
		p = pace.Pace{Epoch: time.Now(), Speed: f.speed}
	}
	idle, err := board.New(board.Config{}) // read by the device's other commands
	if err != nil {
		return 0, err
	}
	face, err := pmdface.New(idle, p, pmdface.Config{Play: play})
	if err != nil {
		return 0, err
	}
	f.name = cmp.Or(f.name, filepath.Base(filepath.Clean(dir)))
	// A line that has played its recording is silent, for as long as storing takes.
	b, err := bench.Parse("replay", fmt.Appendf(nil,
		"instruments: [{kind: pmd, address: %q, options: {silence: 1h}}]", port.Path()))
	if err != nil {
		return 0, err
	}
	records := sessioncmd.BenchFlags{}.Folder()
	err = withMonitor(ctx, b, records, func(ctx context.Context, address string) (err error) {
		ctx, cancel := context.WithCancel(ctx)
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return face.Run(ctx, port) })
		id, err = capturePlayed(ctx, address, f, rec, db, func(ctx context.Context, stored *measurement.Counters) error {
			return awaitPlayed(ctx, face.Played(), port.Unread, stored, uint64(file.Size()/pmd.RecordBytes))
		})
		cancel()
		return errors.Join(err, g.Wait())
	})
	return id, err
}

// capturePlayed captures until await returns, stores the rest and releases the capture. await blocks until the
// recording has been played and read. After a failure the task is incomplete.
func capturePlayed(ctx context.Context, address string, f ReplayFlags, rec *recording.Recording, db *store.DB,
	await func(context.Context, *measurement.Counters) error,
) (id store.TaskID, err error) {
	client, err := cli.DialMeter(ctx, address, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	login, holder := cli.Whoami()
	started, err := client.Start(ctx, session.Request{Holder: holder, TaskName: f.name})
	if err != nil {
		return 0, err
	}
	id, err = db.BeginTask(ctx, store.NewTask{
		Name: f.name, User: cmp.Or(f.user, login), Launched: rec.Events[0], Monitor: address,
		CaptureID: started.CaptureID, GPU: "recorded",
	})
	if err != nil {
		return 0, err
	}
	if err := PutRecorded(ctx, db, id, rec); err != nil {
		return id, err
	}
	// Transfer ends by itself once the capture is stopped and read to its end.
	var stored measurement.Counters
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		_, err := measurement.Transfer(gctx, db, client, id,
			monitorclient.ReadOptions{CaptureID: started.CaptureID, Follow: true}, &stored)
		return err
	})
	g.Go(func() error {
		if err := await(gctx, &stored); err != nil {
			return err
		}
		s, err := client.Stop(gctx, started.CaptureID)
		if err == nil && s.State == session.Incomplete {
			err = fmt.Errorf("the capture ended early: %s", s.Reason)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return id, errors.Join(err, db.Finish(context.WithoutCancel(ctx), id,
			store.Outcome{State: store.Incomplete, Reason: err.Error()}))
	}
	return id, client.Release(ctx, started.CaptureID)
}

// quiet is the time without a new scan after which a recording with fewer scans than its
// bytes have room for counts as read to its end.
const quiet = 2 * time.Second

// awaitPlayed blocks until all scans of the recording are stored or, where some of its bytes make none, until the last
// byte was read and no scan has been stored for quiet. It polls every 20 ms: neither side signals its last sample.
func awaitPlayed(ctx context.Context, played <-chan struct{}, unread func() (int, error), stored *measurement.Counters,
	scans uint64,
) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-played:
	}
	last, since := uint64(0), time.Now()
	for range backoff.Every(ctx.Done(), 20*time.Millisecond) {
		n, err := unread()
		if err != nil {
			return err
		}
		now := stored.Scans.Load()
		if n > 0 || now != last {
			last, since = now, time.Now()
		}
		if now >= scans || time.Since(since) > quiet {
			return nil
		}
	}
	return context.Cause(ctx)
}

// PutRecorded stores the readings of nvidia-smi, one method for each column, and the kernel
// events as kernels of length zero.
func PutRecorded(ctx context.Context, db *store.DB, id store.TaskID, rec *recording.Recording) error {
	var rs []store.Reading
	for field, column := range rec.Sensor.Columns {
		for _, r := range column {
			rs = append(rs, store.Reading{Method: cli.SmiPrefix + string(field), At: r.At, Value: float64(r.Power)})
		}
	}
	if err := db.PutReadings(ctx, id, rs); err != nil {
		return err
	}
	return db.PutKernels(ctx, id, EventKernels(rec.Events))
}

// EventKernels returns events as kernels of length zero.
func EventKernels(events []time.Time) (ks []store.Kernel) {
	for i, e := range events {
		ks = append(ks, store.Kernel{Name: fmt.Sprintf("event %d", i+1), Start: e, End: e})
	}
	return ks
}

// ReplayResult integrates meter and sensor between the first and the last kernel event, and
// completes the task with the reason given. It returns nvidia-smi's best column and energy.
// The shift moves both ends of the window alike, hence correlation 1.
func ReplayResult(ctx context.Context, rec *recording.Recording, f ReplayFlags, db *store.DB,
	id store.TaskID, reason string,
) (smilog.Field, measure.Joule, error) {
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
	w := measure.Window{From: measure.SecondsOf(first.Sub(rec.Start)), To: measure.SecondsOf(last.Sub(rec.Start))}
	// The window's ends are uncertain by the shift between the two clocks.
	u := measure.SecondsOf(f.UShift)
	e := measure.Edges{UFrom: u, UTo: u, Correlation: 1}
	res, err := measurement.Integrate(ctx, db, &t, w, e)
	if err != nil {
		return "", 0, fmt.Errorf("%w: is --shift right?", err)
	}
	// The clocks are related by hand: t_meter = t_host − start.
	origin := first.Truncate(time.Second)
	fit := &clock.Fit{
		Origin: measure.Seconds(origin.Unix()), A: measure.SecondsOf(origin.Sub(rec.Start)), B: 1, VarA: float64(u * u),
	}
	err = db.Finish(ctx, id, store.Outcome{
		State: store.Complete, Reason: reason, Clock: fit, Result: res, NVML: &nvml,
		NVMLMethod: cli.SmiPrefix + string(field),
	})
	return field, nvml, err
}
