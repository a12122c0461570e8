package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/cluster"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/store"
)

// findGPUs returns the GPUs that --gpus names, in its order, without contexts on them; the
// caller closes them. NVML resolves the names; the CUDA driver does it only where NVML
// cannot. It fails with ExitUsage for a GPU named twice, also under two names, and for
// simulated GPUs beside real ones.
func findGPUs(list string) (out []*session.FoundGPU, err error) {
	names := strings.Split(list, ",")
	simulated := 0
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if strings.HasPrefix(names[i], sim.Prefix) {
			simulated++
		}
	}
	switch {
	case simulated > 0 && simulated < len(names):
		return nil, cli.Usagef("--gpus %s: simulated and real GPUs cannot be measured together", list)
	case simulated == 0:
		found, ok, err := measurement.LocateGPUs(list)
		if !ok && err == nil {
			found, err = measurement.FindGPUs(list)
		}
		if errors.Is(err, measurement.ErrSelection) {
			err = cli.Usagef("--gpus: %w", err)
		}
		if err != nil {
			return nil, err
		}
		// From here on GPUs go by UUID: an index may count differently in NVML and CUDA.
		names = lists.Map(found, func(g gpu.Info) string { return g.UUID })
	}
	for _, n := range names {
		gpu, err := session.FindGPU(n)
		if err != nil {
			return nil, errors.Join(err, closeGPUs(out))
		}
		uuid := gpu.Info().UUID
		first := slices.IndexFunc(out, func(g *session.FoundGPU) bool { return g.Info().UUID == uuid })
		if out = append(out, gpu); first >= 0 {
			err := cli.Usagef("--gpus: %s and %s are one GPU (%s): name it once", names[first], n, uuid)
			return nil, errors.Join(err, closeGPUs(out))
		}
	}
	return out, nil
}

func closeGPUs(all []*session.FoundGPU) error {
	return errors.Join(lists.Map(all, (*session.FoundGPU).Close)...)
}

// runGroup measures several GPUs at once: a task each, and a group with their total. It
// blocks until all tasks are stored. Order of steps: find the GPUs, build their work, ask
// the monitors for their benches, pair GPU and bench, then measure. Nothing is taken from a
// bench before the pairing has succeeded.
func runGroup(ctx context.Context, a *cli.App, f RunFlags, args []string) (err error) {
	all, err := findGPUs(f.gpus)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeGPUs(all)) }()
	members, common, name, err := members(a, f, args, all)
	if err != nil {
		return err
	}
	benches, clients, closeMonitors, err := askMonitors(ctx, strings.Split(f.Monitor, ","))
	defer closeMonitors()
	if err != nil {
		return err
	}
	cards := lists.Map(members, func(m measurement.Member) gpu.Info { return m.GPU })
	pairs, err := measurement.Assign(cards, benches) // of each GPU with the bench that measures it
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, a.DB)
	if err != nil {
		return err
	}
	defer db.Close()
	session.LeftOvers(ctx, a, db)
	db.SetLimits(f.room.Limits())
	gate := cluster.OpenGate(a, ctx, f.Cluster, db)
	defer gate.Close()
	for i, p := range pairs {
		if members[i].Missing = p.Missing; p.Missing == nil { // MeasureGroup reports the others
			members[i].Monitor = f.hand.monitor(gate.Monitor(clients[p.Monitor]))
		}
	}
	progress := out.NewGroupProgress(a, members)
	progress.Line.Program = len(args) > 0
	each := f.task(a, ctx, name)
	each.Warn = progress.Line.Warn
	var id store.GroupID
	err = withWindows(ctx, db, func(ctx context.Context) (tasks []store.TaskID, err error) {
		each.Rolling.Folder = session.WindowsIn(ctx)
		id, err = measurement.MeasureGroup(ctx, measurement.GroupConfig{
			DB: db, Members: members, Progress: progress.Update, Lost: progress.Lost, Each: each,
		}, common)
		tasks, _ = tasksOf(ctx, db, id)
		return tasks, err
	})
	progress.End()
	if f.hand != nil && id != 0 {
		return errors.Join(err, f.hand.sendGroup(ctx, db, id))
	}
	return groupResult(ctx, a, db, id, err)
}

// groupResult prints the group of a measurement and returns its error for the shell. An
// interruption names the tasks kept; a busy bench, with which nothing was begun, has ExitBusy.
func groupResult(ctx context.Context, a *cli.App, db *store.DB, id store.GroupID, err error) error {
	if i := cli.Interrupted(ctx, keptGroup(ctx, db, id)); i != nil {
		return i
	}
	if id != 0 {
		return errors.Join(err, task.ShowGroup(ctx, a, db, id, true))
	}
	if errors.Is(err, monitorclient.ErrBusy) {
		err = cli.WithCode(cli.ExitBusy, fmt.Errorf("%w\nWait for them with --wait 10m", err))
	}
	return err
}

// keptGroup describes the tasks kept of an interrupted measurement of several GPUs.
func keptGroup(ctx context.Context, db *store.DB, id store.GroupID) string {
	if id == 0 {
		return "no task was begun"
	}
	tasks, err := tasksOf(ctx, db, id)
	if err != nil {
		return fmt.Sprintf("group %d: %v", id, err)
	}
	states := lists.Map(tasks, func(t store.TaskID) string { return strings.TrimPrefix(kept(ctx, db, t), "kept as ") })
	return fmt.Sprintf("kept as group %d: %s", id, strings.Join(states, ", "))
}

// tasksOf returns the tasks of a group's members, of those that have one; also when ctx has ended.
func tasksOf(ctx context.Context, db *store.DB, id store.GroupID) ([]store.TaskID, error) {
	g, err := db.Group(context.WithoutCancel(ctx), id)
	tasks := lists.Map(g.Members, func(m store.GroupMember) store.TaskID { return m.Task })
	return slices.DeleteFunc(tasks, func(t store.TaskID) bool { return t == 0 }), err
}

// members returns a member for each GPU, and the work. A program runs once, on behalf of
// all, and is returned as common; benchmarks and PTX kernels become the work of each
// member. A member's GPU is opened, with its own sensor, once its bench is held.
func members(a *cli.App, f RunFlags, args []string, all []*session.FoundGPU,
) (out []measurement.Member, common measurement.Work, name string, err error) {
	for _, g := range all {
		m := measurement.Member{
			GPU: g.Info(), Device: g.Device, Open: func(ctx context.Context) (gpu.PowerSensor, error) {
				return g.OpenToMeasure(ctx, a, f.NoSensor, "the own sensor of "+g.Info().UUID)
			},
		}
		if common == nil {
			var w measurement.Work
			if w, name, err = Work(a, g.Device, f, args); err != nil {
				return nil, nil, "", err
			}
			if len(args) > 0 {
				common = w
			} else {
				m.Work = w
			}
		}
		out = append(out, m)
	}
	return out, common, name, nil
}

// askMonitors dials all addresses and asks their benches concurrently. A monitor that does
// not answer is reported in its bench's Err, not as an error: its GPU may not be wanted.
// done closes all connections; call it also after an error.
func askMonitors(ctx context.Context, addresses []string) (
	benches []measurement.MonitorBench, clients []*monitorclient.Client, done func(), err error,
) {
	done = func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}
	for _, address := range addresses {
		if address = strings.TrimSpace(address); address == "" {
			err = cli.Usagef("--monitor has an empty entry: want host:port, or several with commas between them")
			return nil, clients, done, err
		}
		c, err := cli.DialMeter(ctx, address, monitorclient.Options{Version: cli.Version()})
		if err != nil {
			return nil, clients, done, err
		}
		benches, clients = append(benches, measurement.MonitorBench{Address: address}), append(clients, c)
	}
	var wg sync.WaitGroup
	for i := range benches {
		wg.Go(func() { benches[i].Bench, benches[i].Err = clients[i].GetBench(ctx) })
	}
	wg.Wait()
	return benches, clients, done, ctx.Err()
}

// meterFlags choose the meter of a measurement: a bench that this process reads within itself,
// or a monitor. all has them and --monitor; nil for a command without them.
type meterFlags struct {
	session.BenchFlags
	all *pflag.FlagSet
}

// AddMeter adds the flags that name a meter which this process reads within itself, or a monitor, by default the one
// given; empty for no meter.
func (f *RunFlags) AddMeter(fl *pflag.FlagSet, monitor, usage string) {
	f.meter.all = fl
	cli.Section(fl, "The meter", func() {
		f.meter.AddTo(fl)
		if fl.StringVar(&f.Monitor, "monitor", monitor, usage); monitor != "" {
			cli.Configured(fl, "monitor")
		}
	})
}

// chosen reports whether the flags name a bench that this process reads.
func (f *meterFlags) chosen() bool { return f.File != "" || f.Instrument != "" }

// checkMeter refuses flags that name two meters, or one that cannot measure what it should.
func (f *RunFlags) checkMeter() error {
	switch {
	case !f.meter.chosen():
		return cli.GoesWith(f.meter.all, false, "--instrument or --bench", "port calibration")
	case cli.Given(f.meter.all, "monitor"):
		return cli.Usagef("--monitor names a meter, and so does --instrument or --bench: keep one of them")
	case f.meter.Instrument == nvml.Kind && f.meter.Port != "":
		return cli.Usagef("--instrument nvml has no --port: name the GPU with --gpu")
	case f.gpus != "" && f.meter.Instrument != nvml.Kind:
		return cli.Usagef("--bench and --instrument read one meter, of one GPU: measure several GPUs with a monitor for " +
			"each (--monitor), or by their own sensors (--instrument nvml)")
	}
	return f.meter.Check()
}

// withMeter calls do with flags whose Monitor is the meter's: where a bench is named, or no
// monitor is and none answers at the default address, one within this process. The latter
// reads the GPU's own sensor, with a caution.
func (f RunFlags) withMeter(ctx context.Context, a *cli.App, do func(context.Context, RunFlags) error) error {
	if f.meter.chosen() || f.meter.all.Changed("monitor") || listens(ctx, f.Monitor) {
		return f.Metered(ctx, a, func(ctx context.Context) error { return do(ctx, f) })
	}
	f.meter.Instrument = nvml.Kind
	cards, err := f.sensors()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "wattmark: caution: the GPU's own sensor measures; it may be off beyond ± U:\n"+
		"  no monitor is named, and none answers at %s. Name a meter with\n"+
		"  --instrument and --port, or with --monitor; --instrument nvml for this one\n", f.Monitor)
	return f.within(ctx, a, cards, do)
}

// Metered calls do once Monitor is the address of the meter that the flags name: of a monitor within this process
// where that is a bench. Flags that name two meters are ExitUsage.
func (f *RunFlags) Metered(ctx context.Context, a *cli.App, do func(context.Context) error) (err error) {
	if err := f.checkMeter(); err != nil {
		return err
	}
	if !f.meter.chosen() {
		return do(ctx)
	}
	var cards []ownSensor
	if f.meter.Instrument == nvml.Kind {
		cards, err = f.sensors()
	}
	if err != nil {
		return err
	}
	return f.within(ctx, a, cards, func(ctx context.Context, met RunFlags) error {
		f.Monitor = met.Monitor
		return do(ctx)
	})
}

// ownSensor is a GPU whose own sensor is a meter. selector finds it for --instrument nvml; uuid is
// empty where it is not known before the sensor is open.
type ownSensor struct{ selector, uuid string }

// sensors returns the GPUs whose own sensors are the meters.
func (f *RunFlags) sensors() (list []ownSensor, err error) {
	all := make([]*session.FoundGPU, 1)
	if f.gpus != "" {
		all, err = findGPUs(f.gpus)
	} else {
		all[0], err = session.FindGPU(f.GPU)
	}
	if err != nil {
		return nil, err
	}
	asked := strings.Split(cmp.Or(f.gpus, f.GPU), ",")
	for i, g := range all {
		s := ownSensor{uuid: g.Info().UUID}
		if s.selector = s.uuid; s.uuid == "" || g.Info().Simulated {
			s.selector = strings.TrimSpace(asked[i])
		}
		list = append(list, s)
	}
	return list, closeGPUs(all)
}

// within calls do with a monitor within this process: of the bench of the flags, or one for
// each of the sensors.
func (f RunFlags) within(ctx context.Context, a *cli.App, sensors []ownSensor,
	do func(context.Context, RunFlags) error,
) error {
	gpu := ""
	if len(sensors) > 0 {
		f.meter.GPU, gpu, sensors = sensors[0].selector, sensors[0].uuid, sensors[1:]
	}
	b, closeBench, err := session.OpenBench(f.meter.BenchFlags)
	if err != nil {
		return err
	}
	b.GPU = cmp.Or(b.GPU, gpu)
	w := session.Within{App: a, Bench: b, Wait: f.Wait}
	if w.Spool, err = f.meter.SpoolFolder(); err == nil {
		err = w.Do(ctx, func(ctx context.Context, address string) error {
			if len(sensors) == 0 {
				f.Monitor = address
				return do(ctx, f)
			}
			return f.within(ctx, a, sensors, func(ctx context.Context, others RunFlags) error {
				others.Monitor = address + "," + others.Monitor
				return do(ctx, others)
			})
		})
	}
	return errors.Join(err, closeBench())
}

// listens reports whether something listens at the address of a monitor; it waits a second at most.
func listens(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", wire.WithPort(address, wire.MonitorPort))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
