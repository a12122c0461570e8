package measurement

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/measure/group"
	"github.com/wattmark/wattmark/store"
)

// GroupStore is the part of the task database that MeasureGroup writes beside Store.
type GroupStore interface {
	Store
	BeginGroup(ctx context.Context, g store.NewGroup) (store.GroupID, error)
	FailMember(ctx context.Context, r store.GroupRef, reason string) error
	DropGroup(ctx context.Context, id store.GroupID) error
}

// Member is one GPU of a measurement of several.
type Member struct {
	GPU     gpu.Info
	Monitor Monitor
	Device  gpu.Device
	Sensor  gpu.PowerSensor // nil for none
	// Open is as in Config.
	Open func(ctx context.Context) (gpu.PowerSensor, error)
	// Work is done on this GPU, beside that of the others; nil for none.
	Work Work
	// Missing is the reason for which the GPU is not measured; Monitor and Device are then
	// ignored.
	Missing error
}

// GroupConfig is a measurement of several GPUs to make.
type GroupConfig struct {
	DB      GroupStore
	Members []Member
	// Each is common to all members: names, times, marker. DB, Monitor, Device, Sensor and
	// Progress in it are ignored, and Tag: each member draws its own.
	Each Config
	// Progress receives the steps of each member, Lost the members that are not measured, with
	// the reason. Both are called from several goroutines; nil for none.
	Progress func(member int, p Progress)
	Lost     func(member int, err error)
}

// MeasureGroup measures several GPUs at once: a task for each, with its own capture,
// markers, clock fit and window, and a group that ties them. The work begins when all start
// markers have been played, and the stop markers follow when all work has ended. common
// runs once, on behalf of all; nil for none. It blocks until all tasks have ended.
//
// A member that fails does not hold up the others: the reason is in its task, or in the
// group where it has none, and Lost is called. Where no member can be measured, the work is
// not done and there is no group. An error of the work is returned once.
func MeasureGroup(ctx context.Context, cfg GroupConfig, common Work) (store.GroupID, error) {
	if cfg.DB == nil || len(cfg.Members) == 0 {
		return 0, errors.New("measure group: a database and GPUs are needed")
	}
	record := store.NewGroup{Name: cfg.Each.Name, User: cfg.Each.User, Launched: time.Now()}
	var missing []error
	for i, m := range cfg.Members {
		row := store.GroupMember{GPU: m.GPU.Name, GPUUUID: m.GPU.UUID}
		switch {
		case m.Missing != nil:
			row.Reason = m.Missing.Error()
			missing = append(missing, m.Missing)
		case m.Monitor == nil || m.Device == nil:
			return 0, fmt.Errorf("measure group: GPU %d has no monitor, or no device", i)
		default:
			row.Monitor = m.Monitor.Address()
		}
		record.Members = append(record.Members, row)
	}
	n := len(cfg.Members) - len(missing)
	if n == 0 {
		return 0, fmt.Errorf("measure group: no GPU can be measured: %w", errors.Join(missing...))
	}
	g := &joint{
		cfg: cfg, common: common, tasks: make([]store.TaskID, len(cfg.Members)),
		errs: make([]error, len(cfg.Members)),
	}
	g.ready.Add(n)
	g.done.Add(n + 1) // the common work is one more at the end
	g.cfg.Each.line = newTimeline(cfg.Each.Now)
	var err error
	if g.id, err = cfg.DB.BeginGroup(ctx, record); err != nil {
		return 0, fmt.Errorf("measure group: %w", err)
	}
	g.run(ctx)
	return g.conclude(context.WithoutCancel(ctx))
}

// joint is one MeasureGroup.
type joint struct {
	cfg    GroupConfig
	id     store.GroupID
	common Work
	// ready waits until each member has played its start marker, or will not; done until all work has ended.
	ready, done sync.WaitGroup
	working     atomic.Int64 // members that have played their start markers; final once ready is over
	// kernels and workErr are of the common work; read once done is over.
	kernels []gpu.Kernel
	workErr error
	tasks   []store.TaskID
	errs    []error
}

// run measures all members and does the common work.
func (g *joint) run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range g.cfg.Members {
		if err := g.cfg.Members[i].Missing; err != nil {
			g.lose(i, err)
			continue
		}
		wg.Go(func() { g.measure(ctx, i) })
	}
	g.ready.Wait()
	if g.common != nil && g.working.Load() > 0 && ctx.Err() == nil {
		g.kernels, g.workErr = g.common(ctx)
	}
	g.done.Done()
	wg.Wait()
}

// measure makes one member's task.
func (g *joint) measure(ctx context.Context, i int) {
	m, cfg := g.cfg.Members[i], g.cfg.Each
	cfg.DB, cfg.Monitor, cfg.Device, cfg.Sensor, cfg.Tag = g.cfg.DB, m.Monitor, m.Device, m.Sensor, 0
	cfg.Open = m.Open
	cfg.Group = store.GroupRef{Group: g.id, Member: i}
	cfg.MustSayGPU = len(g.cfg.Members) > 1
	// A member is ready when it comes to its work, and is neither waited for when it will not.
	var once sync.Once
	leave := func() { once.Do(func() { g.ready.Done(); g.done.Done() }) }
	cfg.Progress = func(p Progress) {
		if p.Phase == PhaseStop {
			leave() // a member that has not come to its work by now will not
		}
		if g.cfg.Progress != nil {
			g.cfg.Progress(i, p)
		}
	}
	work := func(ctx context.Context) (kernels []gpu.Kernel, err error) {
		once.Do(func() {
			g.working.Add(1)
			g.ready.Done()
		})
		// The stop marker follows when all members' work has ended, and the common work: each
		// task then holds the same piece of work.
		defer func() {
			g.done.Done()
			g.done.Wait()
			kernels, err = append(kernels, g.kernels...), errors.Join(err, g.workErr)
		}()
		g.ready.Wait() // a cancelled member ends, too
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if m.Work == nil {
			return nil, nil
		}
		return m.Work(ctx)
	}
	id, err := Measure(ctx, cfg, work)
	leave()
	if g.tasks[i] = id; id == 0 {
		g.lose(i, err)
		return
	}
	g.errs[i] = err
}

// lose keeps why a member has no task.
func (g *joint) lose(i int, err error) {
	g.errs[i] = err
	if g.cfg.Lost != nil {
		g.cfg.Lost(i, err)
	}
}

// conclude notes which members are missing, and collects the errors: that of
// the common work once, which every member has.
func (g *joint) conclude(ctx context.Context) (store.GroupID, error) {
	var errs []error
	some := false
	for i, err := range g.errs {
		some = some || g.tasks[i] != 0
		if err == nil {
			continue
		}
		if g.tasks[i] == 0 {
			errs = append(errs, g.cfg.DB.FailMember(ctx, store.GroupRef{Group: g.id, Member: i}, err.Error()))
		}
		if g.workErr == nil || !errors.Is(err, g.workErr) {
			errs = append(errs, fmt.Errorf("GPU %s: %w", g.cfg.Members[i].GPU.UUID, err))
		}
	}
	errs = append(errs, g.workErr)
	if !some {
		return 0, errors.Join(append(errs, g.cfg.DB.DropGroup(ctx, g.id))...)
	}
	return g.id, errors.Join(errs...)
}

// GroupResult is a group with its tasks as they stand now.
type GroupResult struct {
	store.Group
	// Tasks has one entry a member, nil where it has no task.
	Tasks []*store.Task
	// State is Complete where all members are measured completely, Running while
	// one runs, Failed where the work of one failed, else Incomplete.
	State store.State
	// Summed are the members that Sum holds: those with a result.
	Summed []int
	Sum    group.Sum
}

// ReadGroup reads a group with its tasks, and adds up the results in use.
func ReadGroup(ctx context.Context, db *store.DB, id store.GroupID) (GroupResult, error) {
	g, err := db.Group(ctx, id)
	if err != nil {
		return GroupResult{}, err
	}
	r := GroupResult{Group: g, Tasks: make([]*store.Task, len(g.Members)), State: store.Complete}
	// That a member still runs, or that its work failed, is not hidden.
	worsen := func(s store.State) {
		if r.State != store.Running && r.State != store.Failed {
			r.State = s
		}
	}
	var parts []group.Part
	for i, m := range g.Members {
		var t store.Task
		if m.Task != 0 {
			t, err = db.Task(ctx, m.Task)
		}
		if m.Task == 0 || errors.Is(err, store.ErrNotFound) { // deleted just now
			worsen(store.Incomplete)
			continue
		}
		if err != nil {
			return GroupResult{}, err
		}
		r.Tasks[i] = &t
		switch t.State {
		case store.Complete:
		case store.Running:
			r.State = store.Running
		case store.Failed:
			worsen(store.Failed)
		default:
			worsen(store.Incomplete)
		}
		if t.Result != nil {
			r.Summed = append(r.Summed, i)
			parts = append(parts, group.Part{Instrument: t.Instrument, Setup: &t.Setup, Result: t.Result})
		}
	}
	r.Sum = group.Of(parts)
	return r, nil
}
