package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/amdsmi"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/monitorclient"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/capture"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/spool"
	"github.com/wattmark/wattmark/store"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/test/bufconn"
)

const (
	// spoolGrace is for how long a spool in use is tried again where no wait is asked for: a command that
	// looks for left-over tasks locks it for a moment. spoolPause is the pause between two tries.
	spoolGrace = 5 * time.Second
	spoolPause = 50 * time.Millisecond
)

// Within is a monitor within this process: its bench, and the folder of its spool, whose lock
// keeps a second process from the meter. Wait is how long to wait for that lock: spoolGrace with 0;
// negative for no wait. App shows the wait; nil shows none.
type Within struct {
	App   *cli.App
	Bench monitor.Bench
	Spool string
	Wait  time.Duration
}

// Do runs the monitor and calls do with its address, which cli.DialMeter connects to in the
// context of do alone: nothing listens. The context of do ends with ctx, or where the monitor
// fails. The monitor ends after do: a measurement that is cancelled still gets its samples. A
// spool in use is ExitBusy.
func (w Within) Do(ctx context.Context, do func(ctx context.Context, address string) error) error {
	inside, stop, err := w.start(ctx)
	if err != nil {
		return err
	}
	err = do(inside, spoolAddress(w.Spool))
	return errors.Join(err, stop())
}

// start starts the monitor, and returns the context in which it is reached. The function
// returned ends it.
func (w Within) start(ctx context.Context) (inside context.Context, stop func() error, err error) {
	pipe := bufconn.Listen(256 << 10)
	m, err := w.monitor(ctx, pipe)
	if err != nil {
		return nil, nil, errors.Join(err, pipe.Close())
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	g, failed := errgroup.WithContext(serving)
	g.Go(func() error { return m.Run(failed) })
	inside, cancel := context.WithCancelCause(cli.WithMonitor(ctx, spoolAddress(w.Spool), pipe.DialContext))
	context.AfterFunc(failed, func() { cancel(context.Cause(failed)) })
	return inside, func() error {
		end()
		return g.Wait()
	}, nil
}

// monitor makes the monitor, and waits for its spool.
func (w Within) monitor(ctx context.Context, l net.Listener) (*monitor.Monitor, error) {
	cfg := monitor.Config{
		Bench: w.Bench, Dir: w.Spool, Listeners: []net.Listener{l}, Version: cli.Version(),
		Quota: capture.Quota{Free: DefaultFree},
	}
	wait := cmp.Or(w.Wait, spoolGrace)
	var shown *cli.Progress
	defer func() { shown.End() }()
	for until := time.Now().Add(wait); ; {
		m, err := monitor.New(cfg)
		if !errors.Is(err, spool.ErrLocked) {
			return m, err
		}
		if !time.Now().Before(until) {
			return nil, cli.WithCode(cli.ExitBusy, fmt.Errorf("another measurement has the meter%s: waited %v for its spool "+
				"%s; --wait 10m waits longer", spool.Holder(w.Spool), max(wait, 0), w.Spool))
		}
		if shown == nil && w.App != nil {
			shown = w.App.Progress("waiting for the meter" + spool.Holder(w.Spool))
		}
		if !cli.SleepUntil(ctx, time.Now().Add(min(spoolPause, time.Until(until)))) {
			return nil, context.Cause(ctx)
		}
	}
}

// DoBriefly is Do with a spool that is removed afterwards.
func (w Within) DoBriefly(ctx context.Context, do func(ctx context.Context, address string) error) (err error) {
	if w.Spool, err = store.TempDir(); err != nil {
		return err
	}
	return errors.Join(w.Do(ctx, do), os.RemoveAll(w.Spool))
}

// spoolAddress returns the address of a monitor within a process, by which its spool is found
// when that process is gone.
func spoolAddress(dir string) string {
	host, _ := os.Hostname()
	return cli.SpoolScheme + host + dir
}

// SpoolFolder returns the folder of the spool of a bench that is read within a process: one for
// each meter of a user, in the user's state folder, so that it outlives the process.
func (f BenchFlags) SpoolFolder() (string, error) {
	what := f.File
	if what == "" {
		what = strings.Join(strings.Fields(f.Instrument+" "+f.Port+" "+f.GPU), "-")
	} else if abs, err := filepath.Abs(what); err == nil {
		what = abs
	}
	return StateFolder("spool", fileName(what))
}

// fileName returns a text as the name of a file: separators become _, and its end stays where it is too long.
func fileName(what string) string {
	name := strings.NewReplacer("/", "_", ":", "_", `\`, "_").Replace(what)
	const longest = 200 // of a file's name, and a suffix
	return name[max(0, len(name)-longest):]
}

// StateFolder makes the folder of StatePath, and returns its path.
func StateFolder(below ...string) (string, error) {
	dir, err := StatePath(below...)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		err = fmt.Errorf("no folder for samples: %w\nSet XDG_STATE_HOME to one that you may write to", err)
	}
	return dir, err
}

// Outbox returns the database for tasks on their way to a host, whose default port may be left out, and makes its
// folder.
func Outbox(address string) (string, error) {
	dir, err := StateFolder()
	name := strings.NewReplacer("/", "_", ":", "_").Replace(strings.TrimSuffix(address, ":"+wire.HostPort))
	return filepath.Join(dir, "outbox-"+name+".db"), err
}

// StatePath returns the path of a folder below that of the user's state.
func StatePath(below ...string) (string, error) {
	home, err := os.UserHomeDir()
	state := cmp.Or(os.Getenv("XDG_STATE_HOME"), filepath.Join(home, ".local", "state"))
	if err != nil && !filepath.IsAbs(state) {
		return "", err
	}
	return filepath.Join(append([]string{state, "wattmark"}, below...)...), nil
}

// DeletedCopies returns the path, less a number at its end, of the copies that delete leaves of a database's tasks:
// beside a file; of a server or a host below the user's state.
func DeletedCopies(db string) (string, error) {
	if !store.OnServer(db) {
		return db + deletedSuffix, nil
	}
	u, err := url.Parse(db)
	if err != nil {
		return "", errors.New("the database's address is no URL") // which may hold a password
	}
	dir, err := StateFolder("deleted")
	return filepath.Join(dir, fileName(u.Host+u.Path)) + deletedSuffix, err
}

const deletedSuffix = "-deleted-"

// dialKept is cli.DialMeter that also reaches the captures of a monitor within a process that is
// gone: it serves their spool while the connection is open. A spool of another machine, or in
// use, is monitorclient.ErrUnreachable. So is one that is missing, unless its process is known
// to be gone: then it has no captures.
func dialKept(ctx context.Context, address string, o monitorclient.Options, gone bool,
) (*monitorclient.Client, func() error, error) {
	place, kept := strings.CutPrefix(address, cli.SpoolScheme)
	if !kept || cli.HasMonitor(ctx, address) {
		c, err := cli.DialMeter(ctx, address, o)
		if err != nil {
			return nil, nil, err
		}
		return c, c.Close, nil
	}
	unreachable := func(err error) error { return fmt.Errorf("%w: %s: %w", monitorclient.ErrUnreachable, address, err) }
	host, _ := os.Hostname()
	dir, here := strings.CutPrefix(place, host)
	if !here || !filepath.IsAbs(dir) {
		return nil, nil, unreachable(errors.New("it is the spool of another machine"))
	}
	remove := func() error { return nil }
	if _, err := os.Stat(dir); err != nil {
		if !gone {
			return nil, nil, unreachable(err)
		}
		if dir, err = store.TempDir(); err != nil {
			return nil, nil, err
		}
		remove = func() error { return os.RemoveAll(dir) }
	}
	w := Within{Bench: monitor.Bench{Instrument: absent{}, Setup: noSetup}, Spool: dir, Wait: -1}
	inside, stop, err := w.start(ctx)
	if err != nil {
		return nil, nil, errors.Join(unreachable(err), remove())
	}
	end := func() error { return errors.Join(stop(), remove()) }
	c, err := cli.DialMeter(inside, spoolAddress(dir), o)
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return c, func() error { return errors.Join(c.Close(), end()) }, nil
}

// absent is the instrument of a monitor that serves stored captures alone.
type absent struct{}

func (absent) Open(context.Context) error                    { return instrument.ErrDisconnected }
func (absent) Identity() measure.Identity                    { return measure.Identity{} }
func (absent) Inputs() instrument.Inputs                     { return instrument.Inputs{} }
func (absent) Stream(context.Context, instrument.Sink) error { return instrument.ErrDisconnected }
func (absent) Close() error                                  { return nil }

// noSetup makes no rails: absent has no inputs.
func noSetup(instrument.Inputs) (measure.Setup, error) {
	return measure.Setup{}, instrument.ErrDisconnected
}

// LeftOvers finishes the tasks of processes of this machine that no longer exist, as after
// kill -9 or a power cut, and releases their benches. It reports on standard error the tasks
// finished and those that it cannot finish. Without unfinished tasks, which is usual, the
// cost is one query. db may be read-only: changes go through a connection of their own.
func LeftOvers(ctx context.Context, a *cli.App, db *store.DB) {
	var gone []string
	open, err := db.Unfinished(ctx)
	for i := range open {
		if t, err := db.Task(ctx, open[i].ID); err == nil {
			if state, _ := store.Lives(t.Owner); state == store.Gone {
				gone = append(gone, fmt.Sprintf("task %d", t.ID))
			}
		}
	}
	if err != nil || len(gone) == 0 {
		return // the command itself reports a database that cannot be read
	}
	w, err := store.Open(ctx, a.DB)
	if err != nil {
		fmt.Fprintf(a.Err, "wattmark: unfinished: %s, whose process is gone: %v\n", strings.Join(gone, ", "), err)
		return
	}
	defer w.Close()
	// With a cluster the capture is held instead of released: the publisher of the task releases it.
	dial := func(ctx context.Context, address string) (measurement.Monitor, func() error, error) {
		o := monitorclient.Options{Version: cli.Version(), Patience: 2 * time.Second}
		c, end, err := dialKept(ctx, address, o, true)
		if err != nil {
			return nil, nil, err
		}
		if cluster := os.Getenv("WATTMARK_CLUSTER"); cluster != "" && cluster != "none" {
			return measurement.Held{Monitor: c, DB: w}, end, nil
		}
		return c, end, nil
	}
	done, err := measurement.RecoverGone(ctx, w, dial)
	for _, id := range done {
		if t, err := w.Task(ctx, id); err == nil {
			fmt.Fprintf(a.Err, "wattmark: task %d was left by a process that is gone: finished (%s)\n", id, t.State.String())
		}
	}
	if err != nil {
		fmt.Fprintf(a.Err, "wattmark: not finished, though its process is gone: %v\nwattmark host finishes such "+
			"tasks once their monitors answer\n", err)
	}
}

// Unfinished returns, for a running task, the state of its process and the way to finish it;
// empty for an ended task.
func Unfinished(t *store.Task) string {
	const remedy = "wattmark host finishes it once the monitor at %s answers"
	switch life, pid := store.Lives(t.Owner); {
	case t.State != store.Running:
		return ""
	case life == store.Alive:
		return fmt.Sprintf("process %d measures it", pid)
	case life == store.Gone:
		return fmt.Sprintf("its process is gone: "+remedy, t.Monitor)
	}
	return fmt.Sprintf("this machine does not know who measures it; if nobody does, "+remedy, t.Monitor)
}

// DialMonitor connects to a monitor; one of an incompatible version is an error. A monitor
// that does not answer is none: the client connects again on each call.
func DialMonitor(ctx context.Context, address string) (measurement.Monitor, func() error, error) {
	c, end, err := dialKept(ctx, address, monitorclient.Options{Version: cli.Version()}, false)
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.GetBench(ctx); errors.Is(err, monitorclient.ErrVersion) {
		return nil, nil, errors.Join(err, end())
	}
	return c, end, nil
}

// DefaultFree is the free disk space in bytes below which no task or capture begins; wattmark
// doctor calls such a disk full.
const DefaultFree = 200_000_000

// DatabaseFlags are the flags for the disk space of a task database.
type DatabaseFlags struct {
	quota, free cli.Size
	offered     bool // the command has these flags; else Limits returns the default
}

// AddTo adds the flags to fl.
func (f *DatabaseFlags) AddTo(fl *pflag.FlagSet) {
	f.free, f.offered = DefaultFree, true
	fl.Var(&f.quota, "db-quota", "size of the database from which it takes no new tasks; 0 for no limit")
	fl.Var(&f.free, "db-free", "what must be free on the database's disk for a new task")
}

// Limits returns the limits beyond which the database refuses new tasks.
func (f *DatabaseFlags) Limits() store.Limits {
	if !f.offered {
		return store.Limits{Free: DefaultFree}
	}
	return store.Limits{Bytes: int64(f.quota), Free: int64(f.free)}
}

// GPUSensor is a GPU's own power sensor; the caller closes it.
type GPUSensor interface {
	gpu.PowerSensor
	Close() error
}

// FoundGPU is a GPU without a context on it. Open it once its bench is held: a context would
// disturb another measurement of the card.
type FoundGPU struct {
	gpu.Device
	OpenSensor func() (GPUSensor, error)
	Unmarked   bool      // it plays no markers
	sensor     GPUSensor // nil until Sensor has opened it
}

// Sensor returns the GPU's own sensor, which it opens at the first call and Close closes.
func (g *FoundGPU) Sensor() (gpu.PowerSensor, error) {
	if g.sensor == nil {
		s, err := g.OpenSensor()
		if err != nil {
			return nil, err // s may hold a nil pointer
		}
		g.sensor = s
	}
	return g.sensor, nil
}

// OpenToMeasure creates the context and opens the GPU's own sensor, unless without it. The
// meter measures all the same where the sensor fails: that is a warning, which calls it called.
func (g *FoundGPU) OpenToMeasure(ctx context.Context, a *cli.App, without bool, called string) (gpu.PowerSensor, error) {
	if err := g.Open(ctx); err != nil || without {
		return nil, err
	}
	s, err := g.Sensor()
	if err != nil {
		fmt.Fprintf(a.Err, "wattmark: %s is left out: %v\n", called, err)
	}
	return s, nil
}

// Close closes the sensor, if it was opened, and the GPU.
func (g *FoundGPU) Close() error {
	if g.sensor == nil {
		return g.Device.Close()
	}
	return errors.Join(g.sensor.Close(), g.Device.Close())
}

// FindGPU returns the GPU of a selector, not yet opened: "sim:SOCKET", else a real one
// (FindCUDA).
func FindGPU(selector string) (*FoundGPU, error) {
	if socket, ok := strings.CutPrefix(selector, sim.Prefix); ok {
		dev, sensor, err := sim.FindRemote(socket, nil)
		if err != nil {
			return nil, err
		}
		return &FoundGPU{Device: dev, OpenSensor: func() (GPUSensor, error) { return sensor, nil }}, nil
	}
	dev, err := FindCUDA(selector)
	if err != nil {
		return nil, err
	}
	open := func() (GPUSensor, error) { return nvml.Open(dev.Info().PCIBusID) }
	return &FoundGPU{Device: dev, OpenSensor: open}, nil
}

// FindForProgram is FindGPU for programs that this one only starts: where CUDA is missing, an AMD GPU does, without
// markers.
func FindForProgram(selector string) (*FoundGPU, error) {
	g, err := FindGPU(selector)
	if !errors.Is(err, cuda.ErrNoDriver) {
		return g, err
	}
	card, amdErr := amdsmi.Open(selector)
	if errors.Is(amdErr, amdsmi.ErrNoLibrary) {
		return nil, err
	} else if amdErr != nil {
		return nil, errors.Join(err, amdErr)
	}
	open := func() (GPUSensor, error) { return card, nil }
	return &FoundGPU{Device: measurement.Onlooker(card.Info), OpenSensor: open, Unmarked: true}, nil
}

// FindCUDA returns a real GPU, not yet opened. If NVML does not identify the GPU of the
// selector, its identity is known only after it is opened.
func FindCUDA(selector string) (*cuda.Device, error) {
	i, err := os.Stat(selector)
	if filepath.IsAbs(selector) || err == nil && i.Mode().Type() == os.ModeSocket { // a MIG's name may have slashes
		return nil, cli.Usagef("--gpu %s is no index, UUID or PCI bus id; the simulated GPU of a socket is sim:%s", selector,
			selector)
	}
	info := gpu.Info{}
	found, ok, err := measurement.LocateGPUs(cmp.Or(selector, "0"))
	if err != nil {
		return nil, cli.Usagef("--gpu: %w", err)
	}
	if ok && len(found) == 1 {
		info, selector = found[0], found[0].UUID
	}
	if err := cuda.Loads(); err != nil {
		if cards, _ := amdsmi.List(); len(cards) > 0 {
			return nil, fmt.Errorf("%w\nMarkers and kernels need CUDA so far, and here is %s: wattmark run measures programs on "+
				"it (docs/instruments.md#amdsmi)", err, cards[0].Name)
		}
		return nil, fmt.Errorf("%w\nWithout a GPU, wattmark demo shows the whole job in software", err)
	}
	return cuda.Find(selector, info), nil
}

// Open creates the context. A real card in MIG mode is an error: its power is not one user's.
func (g *FoundGPU) Open(ctx context.Context) error {
	if err := OpenDevice(ctx, g.Device); err != nil {
		return err
	}
	if g.Info().Simulated || g.Unmarked {
		return nil
	}
	return measurement.WholeGPU(g.Info())
}

// OpenDevice creates the context of a device that was found only; nothing for other devices.
func OpenDevice(ctx context.Context, d gpu.Device) error {
	if o, ok := d.(gpu.Opener); ok {
		return o.Open(ctx)
	}
	return nil
}
