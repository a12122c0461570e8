package measurement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"wattmark/hostagent"
	"wattmark/hostagent/launchlog"
	"wattmark/measure"
	"wattmark/store"
)

// launchBatch is how many launches one transaction takes.
const launchBatch = 1 << 15

// LaunchSink is what takes a program's recorded kernels. *store.DB is one.
type LaunchSink interface {
	PutLaunches(ctx context.Context, id store.TaskID, first uint64, l []store.Launch) error
	PutLaunchTables(ctx context.Context, id store.TaskID, t store.LaunchTables) error
}

// StoreLaunches reads the logs that the processes of a program left and stores
// their kernels. gpu tells which of the devices was measured: the one of its UUID,
// or, where the driver did not tell, the only one that a process used. A log that
// is damaged is stored as far as it goes, and says so in its Trouble.
func StoreLaunches(ctx context.Context, db LaunchSink, id store.TaskID, logs []string, gpu hostagent.Info) (store.LaunchTables, error) {
	in := &launches{ctx: ctx, db: db, id: id, gpu: gpu, names: map[string]int{}}
	for _, path := range logs {
		if err := in.log(path); err != nil {
			return in.tables, fmt.Errorf("store the launches of %s: %w", path, err)
		}
	}
	if err := in.flush(); err != nil {
		return in.tables, err
	}
	return in.tables, db.PutLaunchTables(ctx, id, in.tables)
}

// launches is one StoreLaunches.
type launches struct {
	ctx    context.Context
	db     LaunchSink
	id     store.TaskID
	gpu    hostagent.Info
	tables store.LaunchTables
	names  map[string]int
	rows   []store.Launch
	stored uint64
}

func (in *launches) flush() error {
	if err := in.db.PutLaunches(in.ctx, in.id, in.stored, in.rows); err != nil {
		return err
	}
	in.stored += uint64(len(in.rows))
	in.rows = in.rows[:0]
	return nil
}

// log reads one process's log.
func (in *launches) log(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	process := len(in.tables.Processes)
	l, err := launchlog.Open(f)
	if err != nil {
		in.tables.Processes = append(in.tables.Processes, store.LaunchProcess{Trouble: err.Error()})
		return nil
	}
	devices := map[uint32]int{}
	var names []int // by the log's index
	var k launchlog.Kernel
	for err == nil {
		if err = l.Next(&k); err != nil {
			break
		}
		for _, n := range l.Process.Names[len(names):] {
			names = append(names, in.name(n))
		}
		if _, some := devices[k.Device]; !some {
			devices[k.Device] = len(in.tables.Devices)
			in.tables.Devices = append(in.tables.Devices, store.LaunchDevice{Process: process, Ordinal: k.Device})
		}
		in.rows = append(in.rows, store.Launch{
			Start: k.Start, End: k.End, Name: names[k.Name], Device: devices[k.Device],
			Stream: k.Stream, Correlation: k.Correlation, Graph: k.Graph, Grid: k.Grid, Block: k.Block,
		})
		if len(in.rows) == launchBatch {
			if err := in.flush(); err != nil {
				return err
			}
		}
	}
	in.end(process, l, devices, err)
	return nil
}

// name is the number of a name among those of all processes.
func (in *launches) name(n string) int {
	n = measure.Printable(n)
	i, ok := in.names[n]
	if !ok {
		i = len(in.tables.Names)
		in.names[n], in.tables.Names = i, append(in.tables.Names, n)
	}
	return i
}

// end notes what a log came to, and which of its devices was measured.
func (in *launches) end(process int, l *launchlog.Reader, devices map[uint32]int, err error) {
	p := &l.Process
	trouble := slices.Clone(p.Trouble)
	if !errors.Is(err, io.EOF) {
		trouble = append(trouble, err.Error())
	}
	if p.Yielded != 0 {
		trouble = append(trouble, fmt.Sprintf(
			"%.3f s after it had initialised CUDA its own profiler (torch.profiler, for instance) took CUPTI over: kernels from then on are not recorded, their energy is in the lines without kernels",
			float64(p.Yielded-p.Started)/1e9))
	}
	in.tables.Processes = append(in.tables.Processes, store.LaunchProcess{
		PID: p.PID, CUPTI: p.CUPTI, Kernels: p.Kernels, Reported: p.Reported, Dropped: p.Dropped,
		Whole: p.Whole && errors.Is(err, io.EOF), Trouble: measure.Printable(strings.Join(trouble, "; ")),
	})
	for ordinal, no := range devices {
		d := &in.tables.Devices[no]
		if u, told := p.Devices[ordinal]; told {
			d.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
			d.Measured = d.UUID == in.gpu.UUID
		} else {
			d.Measured = len(devices) == 1
		}
	}
}
