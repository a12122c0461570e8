package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/db"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
)

// demoFlags are the flags of demo. imperfect draws the emulated meter's errors from seed.
type demoFlags struct {
	imperfect       bool
	benchmark       string
	duration, pulse time.Duration
	seed            uint64
	user, name      string
}

// demoCmd returns demo, which needs no hardware; its task stays in the database.
func demoCmd(a *cli.App) *cobra.Command {
	var f demoFlags
	c := cli.Command("demo", "Measure one task on a whole bench in software", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return demo(ctx, a, f) })
	fl := c.Flags()
	fl.StringVar(&f.benchmark, "benchmark", "half", "kernel to measure: half, compute or memory")
	fl.DurationVar(&f.duration, "duration", time.Second, "length of the kernel")
	fl.DurationVar(&f.pulse, "pulse", 0, "alternate the kernel with rest, each for this long")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the emulated card and meter")
	fl.BoolVar(&f.imperfect, "imperfect", false,
		"give the emulated meter gain, offset and clock errors within its stated uncertainty")
	cli.UserFlag(fl, &f.user)
	fl.StringVar(&f.name, "name", "demo", "name of the task")
	return a.JSONFlag(c)
}

// demo runs a board, a monitor, a host and their database in this process and measures one
// task. Monitor and board stop when the task is shown.
func demo(ctx context.Context, a *cli.App, f demoFlags) (err error) {
	if err := errors.Join(session.CheckBenchmark("--benchmark", f.benchmark),
		session.Positive("--duration", f.duration), session.NotNegative("--pulse", f.pulse)); err != nil {
		return err
	}
	bench, err := session.NewSoftBench(f.seed, f.imperfect)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bench.Close()) }()
	db, err := store.Open(ctx, a.DB)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	playing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.Go(func() error { return bench.Run(playing) })
	err = session.Within{Bench: bench.Bench}.DoBriefly(ctx, func(ctx context.Context, address string) error {
		id, err := demoTask(ctx, a, f, bench, db, address)
		if id != 0 && ctx.Err() == nil {
			err = errors.Join(err, demoResult(ctx, a, f, bench, db, id))
		}
		return err
	})
	stop()
	return errors.Join(err, g.Wait())
}

// demoTask measures through the monitor at address and returns the task's number, 0 where
// none was begun.
func demoTask(ctx context.Context, a *cli.App, f demoFlags, b *session.SoftBench, db *store.DB, address string,
) (id store.TaskID, err error) {
	client, err := cli.DialMeter(ctx, address, monitorclient.Options{Version: cli.Version()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	work, _, err := Work(a, b.Device, RunFlags{Benchmark: f.benchmark, Duration: f.duration, pulse: f.pulse}, nil)
	if err != nil {
		return 0, err
	}
	cfg := (&RunFlags{User: f.user, WarmUp: 200 * time.Millisecond}).task(a, ctx, f.name)
	cfg.DB, cfg.Monitor, cfg.Device, cfg.Sensor = db, client, b.Device, b.Sensor
	cfg.Progress = out.NewProgress(a).Update
	cfg.Open = func(ctx context.Context) (gpu.PowerSensor, error) { return nil, session.OpenDevice(ctx, b.Device) }
	return Measure(a, ctx, cfg, work)
}

// demoResult prints the task with the true energy, which the board integrates over the kernels'
// time, and then suggests further commands.
func demoResult(ctx context.Context, a *cli.App, f demoFlags, b *session.SoftBench, db *store.DB, id store.TaskID,
) error {
	ks, err := db.Kernels(ctx, id)
	if err != nil {
		return err
	}
	var extra func(*report.Report)
	if len(ks) > 0 {
		truth, err := b.Truth(ks[0].Start, ks[len(ks)-1].End)
		if err != nil {
			return err
		}
		extra = func(r *report.Report) { r.SetTruth(truth, f.imperfect) }
	}
	if err := report.ShowTask(a, ctx, db, id, extra); err != nil || a.JSON {
		return err
	}
	whatNext(a, f, id)
	return nil
}

// self returns the command line that starts this program, with its --db. Under go run the
// executable has no useful name.
func self(a *cli.App) string {
	self := "wattmark"
	if strings.Contains(os.Args[0], "go-build") {
		self = "go run ./cmd/wattmark"
	}
	switch {
	case store.OnServer(a.DB):
		self += " --db '" + a.DB + "'" // a shell would read the signs in it
	case a.DB != cli.DefaultDB:
		self += " --db " + a.DB
	}
	return self
}

// whatNext prints commands to try next.
func whatNext(a *cli.App, f demoFlags, id store.TaskID) {
	self := self(a)
	next := [][2]string{
		{fmt.Sprintf("%s show %d --budget", self, id), "this task again, with its uncertainties"},
		{fmt.Sprintf("%s validate %d --html report.html", self, id), "is what software says true? a report"},
		{self + " tasks", "all tasks"},
		db.SamplesBySQL(a, id),
	}
	if f.pulse > 0 {
		next = append(next, [2]string{
			fmt.Sprintf("%s show %d --svg pulse.svg", self, id), "draw what each way to read the GPU's sensor says",
		})
	} else {
		next = append(next, [2]string{self + " demo --pulse 50ms", "what the GPU's own sensor gets wrong"})
	}
	next = append(next, [2]string{self + " run -- ./program", "a program on a real GPU, by its own sensor"})
	a.Hintf("\nNext:\n%s", inColumns(next, out.Room(a.Out)))
}

// inColumns returns commands with what they show beside them, or below them where a terminal's columns do not do.
func inColumns(next [][2]string, columns int) string {
	width, most := 0, 0
	for _, n := range next {
		width, most = max(width, len(n[0])), max(most, len(n[1]))
	}
	format := fmt.Sprintf("  %%-%ds   %%s\n", width)
	if columns > 0 && 2+width+3+most > columns {
		format = "  %s\n    %s\n"
	}
	var b strings.Builder
	for _, n := range next {
		fmt.Fprintf(&b, format, n[0], n[1])
	}
	return b.String()
}
