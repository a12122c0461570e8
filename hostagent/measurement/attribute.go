package measurement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/attribute"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// ErrNoShares: the energy of a task cannot be shared among its kernels.
var ErrNoShares = errors.New("no energy by kernel")

// Attribute shares the energy of a task's result in use among the kernels that
// were recorded in its program, and stores it by name: the largest first, then
// active idle, then idle. Only kernels on the GPU that was measured count.
// Without a window, a clock fit or recorded kernels it is ErrNoShares. Where only storing
// fails, the shares are returned beside the error (store.ErrReadOnly of a database that
// may only be read).
func Attribute(ctx context.Context, db *store.DB, id store.TaskID) ([]store.NameEnergy, error) {
	t, err := db.Task(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("attribute: %w", err)
	}
	tables, err := db.LaunchTables(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("attribute: %w", err)
	}
	why := ""
	switch {
	case len(tables.Processes) == 0:
		why = "its program was not recorded (run --auto)"
	case t.Result == nil || t.ResultNumber == 0:
		why = "it has no window"
	case t.Clock == nil:
		why = "the kernels' times cannot be carried to the meter's clock: no marker was found by its code"
	}
	if why != "" {
		return nil, fmt.Errorf("task %d: %w: %s", id, ErrNoShares, why)
	}
	if _, err := bent(ctx, db, &t); err != nil {
		return nil, fmt.Errorf("attribute: %w", err)
	}
	s := &sharing{ctx: ctx, db: db, task: &t, tables: &tables}
	s.spans = s.kernels(db)
	r, err := s.run()
	if err != nil {
		return nil, fmt.Errorf("attribute: task %d: %w", id, err)
	}
	out, err := s.lines(r)
	if err != nil {
		return nil, fmt.Errorf("attribute: task %d: %w", id, err)
	}
	if err := db.PutNameEnergies(ctx, id, t.ResultNumber, out); err != nil {
		return out, fmt.Errorf("attribute: %w", err)
	}
	return out, nil
}

// NameTime is how often the kernels of a name were launched within a window, and the sum of their durations there.
type NameTime struct {
	Launches uint64
	Busy     measure.Seconds
}

// NameTimes returns the launches on the measured GPU within the window of t's result, for each of tables.Names. It
// reads every recorded launch. Without a window or a clock fit it is ErrNoShares.
func NameTimes(ctx context.Context, db *store.DB, t *store.Task, tables *store.LaunchTables) ([]NameTime, error) {
	if t.Result == nil || t.Clock == nil {
		return nil, fmt.Errorf("task %d: %w", t.ID, ErrNoShares)
	}
	out := make([]NameTime, len(tables.Names))
	s := &sharing{ctx: ctx, db: db, task: t, tables: tables}
	for k, err := range s.kernels(db) {
		if err != nil {
			return nil, fmt.Errorf("task %d: %w", t.ID, err)
		}
		from, _ := t.Clock.Meter(k.Start)
		to, _ := t.Clock.Meter(k.End)
		if from, to = max(from, t.Result.From), min(to, t.Result.To); from < to {
			out[k.Name].Launches++
			out[k.Name].Busy += to - from
		}
	}
	return out, nil
}

// sharing is one Attribute.
type sharing struct {
	ctx     context.Context
	db      Store
	task    *store.Task
	tables  *store.LaunchTables
	engines []*attribute.Engine
	groups  [][]int // the rails that an engine sees
	// resolution is the span that the instrument cannot look into.
	resolution measure.Seconds
	// spans are those among which the energy is shared, in order of their begin: the task's launches, or others.
	spans iter.Seq2[attribute.Kernel, error]
	// alone has the numbers that long launches get of their own, behind the names'; nil for none.
	alone map[launchKey]int
	// steps sees how smooth the steps of the load are, by the task's markers; nil once that is known.
	steps *measure.Integrator
	// deleted are the spans of device time whose samples were deleted.
	deleted []Window
}

// launchKey finds a launch again.
type launchKey struct {
	start       int64
	correlation uint32
}

// run pushes the stored scans through one engine for each group of rails that are
// read at one instant.
func (s *sharing) run() (attribute.Result, error) {
	if err := s.open(); err != nil {
		return attribute.Result{}, err
	}
	defer func() {
		for _, e := range s.engines {
			e.Close()
		}
	}()
	if err := s.scans(s.push); err != nil {
		return attribute.Result{}, err
	}
	smooth := measure.Joule(s.steps.Smoothness())
	s.steps = nil
	var parts []attribute.Result
	for _, e := range s.engines {
		r, err := e.Result()
		if err != nil {
			return attribute.Result{}, err
		}
		for i := range r.Kernels {
			r.Kernels[i].USampling *= smooth
		}
		r.ActiveIdle.USampling, r.Idle.USampling = r.ActiveIdle.USampling*smooth, r.Idle.USampling*smooth
		parts = append(parts, r)
	}
	return attribute.Merge(parts...), nil
}

// scans hands the stored scans on, up to one second behind the window: more than any edge looks ahead.
func (s *sharing) scans(push func(*measure.Powers) error) error {
	t := s.task
	// Powers are computed for runs of scans, and each engine gets the sum of its rails.
	stream, err := measure.NewPowerStream(&t.Setup, push)
	if err != nil {
		return err
	}
	tb := t.Setup.Timebase
	if err := eachBlock(s.ctx, s.db, t, func(b *measure.Block) (bool, error) {
		if sums := b.Thinned(); sums != nil {
			s.deleted = append(s.deleted, sums.Span())
			return false, sums.Steady(push)
		}
		if s.steps != nil {
			if err := s.steps.Add(b); err != nil {
				return false, err
			}
		}
		return b.Scans() > 0 && tb.Seconds(b.TickAt(tb, 0)) > t.Result.To+1, stream.Add(b)
	}); err != nil {
		return err
	}
	return stream.Close()
}

// known returns whether the power from one device time to another is known: no samples were deleted there, or no end of
// a span lies among those of a run, so that their sum alone counts. It sorts the ends.
func (s *sharing) known(ends []measure.Seconds) func(from, to measure.Seconds) bool {
	slices.Sort(ends)
	cut := lists.Filter(s.deleted, func(w *Window) bool {
		i := sort.Search(len(ends), func(i int) bool { return ends[i] > w.From })
		return i < len(ends) && ends[i] < w.To
	})
	return func(from, to measure.Seconds) bool {
		i := sort.Search(len(cut), func(i int) bool { return cut[i].To > from })
		return i == len(cut) || cut[i].From >= to
	}
}

// open makes the engines.
//
// Resolution is the span that the instrument cannot look into. Spill is how long a step of
// power leaks over an edge on the average: the trapezoid rule's ramp, cut at the edge, a sixth
// of its length; an average an eighth of its own, half of which lies on either side; a first-order lag all of it.
func (s *sharing) open() error {
	t := s.task
	r := t.Setup.Response
	scan := t.Setup.Timebase.Seconds(t.Setup.Timebase.TicksPerScan)
	s.resolution = max(scan, r.Update, r.Window, 2*r.Tau)
	var err error
	if s.steps, err = measure.NewIntegrator(&t.Setup, t.Result.From, t.Result.From+scan); err != nil {
		return err
	}
	if r.Window == 0 && r.Tau == 0 { // else the markers show the meter's response, which spills all the same
		marker.Inform(s.steps, t.Marker, t.Markers)
	}
	// A multiplexed meter reads its rails one after another. An edge lies at another scan's
	// time on each, so rails of one skew share an engine, and the results are merged.
	bySkew := map[measure.Seconds]int{}
	for n, rail := range t.Setup.Rails {
		skew := t.Setup.Instant(rail.X)
		g, ok := bySkew[skew]
		if !ok {
			e, err := attribute.New(attribute.Config{
				Window: measure.Window{From: t.Result.From, To: t.Result.To}, Clock: *t.Clock, Delay: skew,
				Resolution: s.resolution, Brief: few * s.blind(), Spill: max(scan, r.Update)/6 + r.Window/8 + r.Tau,
			}, s.spans)
			if err != nil {
				return err
			}
			g = len(s.engines)
			bySkew[skew], s.engines, s.groups = g, append(s.engines, e), append(s.groups, nil)
		}
		s.groups[g] = append(s.groups[g], n)
	}
	return nil
}

// push hands a run of scans to the engines.
func (s *sharing) push(p *measure.Powers) error {
	tb := s.task.Setup.Timebase
	for g, e := range s.engines {
		for i := range p.Scans() {
			var w measure.Watt
			for _, r := range s.groups[g] {
				w += p.Rails[r].P[i]
			}
			if err := e.Add(float64(tb.Seconds(p.Tick(i))), float64(w)); err != nil {
				return err
			}
		}
	}
	return nil
}

// kernels are the launches on the GPU that was measured.
func (s *sharing) kernels(db *store.DB) iter.Seq2[attribute.Kernel, error] {
	return func(yield func(attribute.Kernel, error) bool) {
		for l, err := range db.Launches(s.ctx, s.task.ID) {
			if err == nil && (l.Device >= len(s.tables.Devices) || l.Name >= len(s.tables.Names)) {
				err = fmt.Errorf("a launch of name %d on device %d: %w", l.Name, l.Device, store.ErrCorrupt)
			}
			if err == nil && !s.tables.Devices[l.Device].Measured {
				continue
			}
			k := attribute.Kernel{
				Name: l.Name, Start: HostSeconds(*s.task.Clock, time.Unix(0, l.Start)),
				End: HostSeconds(*s.task.Clock, time.Unix(0, l.End)),
			}
			if s.alone != nil && k.End-k.Start >= few*s.blind() {
				key := launchKey{l.Start, l.Correlation}
				if _, some := s.alone[key]; !some {
					s.alone[key] = len(s.tables.Names) + len(s.alone)
				}
				k.Name = s.alone[key]
			}
			if !yield(k, err) || err != nil {
				return
			}
		}
	}
}

// part returns the energy of one line. Its U is twice the root of the sum of squares of
//
//	u(edges), u(sampling)   of the attribution itself
//	k·u(source)             of each source in the window's budget
//
//	k = p      systematic sources: a gain acts on the energy, an offset on the time, and p is
//	           the larger of the line's two shares, of the energy and of the time
//	k = √p     sources that average out
//	k = 1      gaps: all may lie in this line
//	k = 0      the window's own edges and sampling, which the first row replaces; not so of a
//	           fitted line, whose first row is of the division of the window's energy alone
//
// Own has the sources that average out, and gaps. U is at most the larger of E and what the window has beside it.
func (s *sharing) part(u *attribute.Use, fitted bool) measure.Share {
	r := s.task.Result
	p := float64(u.Share) / float64(r.To-r.From)
	if e := float64(r.Total.Energy); e > 0 {
		p = max(p, float64(u.Energy)/e)
	}
	p = min(p, 1)
	common, apart := float64(u.UEdges)*float64(u.UEdges)+float64(u.USampling)*float64(u.USampling), 0.0
	for _, c := range r.Budget {
		k, to := p, &common
		switch {
		case c.Source == "window edges" || c.Source == "window sampling":
			if !fitted {
				k = 0
			}
		case c.Source == "gaps":
			k, to = 1, &apart // they may all lie here
		case !c.Systematic && !fitted:
			k, to = math.Sqrt(p), &apart
		}
		if u.Share == 0 {
			k = 0
		}
		*to += k * k * float64(c.U) * float64(c.U)
	}
	whole := r.Total.Energy + max(r.Total.U, 0)
	wide := math.Sqrt(common + apart)
	out := measure.Share{Estimate: measure.Estimate{Energy: u.Energy}}
	out.U = attribute.Bound(u.Energy, 2*measure.Joule(wide), whole)
	if wide > 0 {
		out.Own = out.U * measure.Joule(math.Sqrt(apart)/wide)
	}
	return out
}

// launchBatch is how many launches one transaction takes.
const launchBatch = 1 << 15

// StoreLaunches reads the logs that the processes of a program left and stores their
// kernels. A device counts as measured when its UUID is card's, or, where the driver
// reported no UUID, when it is the only one that a process used. A damaged log is stored as
// far as it goes, with the damage in its Trouble.
func StoreLaunches(
	ctx context.Context, db *store.DB, id store.TaskID, logs []string, card gpu.Info,
) (store.LaunchTables, error) {
	in := &launches{ctx: ctx, db: db, id: id, gpu: card, names: map[string]int{}}
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
	db     *store.DB
	id     store.TaskID
	gpu    gpu.Info
	tables store.LaunchTables
	names  map[string]int
	rows   []store.Launch
	stored uint64
}

// flush stores the rows read so far in one transaction.
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
	// A log has its own numbers for names and devices; the tables' are common to all.
	devices := map[uint32]int{}
	var names []int // by the log's index
	var k launchlog.Kernel
	for err = l.Next(&k); err == nil; err = l.Next(&k) {
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
	in.end(l, devices, err)
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

// end appends a log's process to the tables, and marks its devices that were measured.
func (in *launches) end(l *launchlog.Reader, devices map[uint32]int, err error) {
	p := &l.Process
	trouble := slices.Clone(p.Trouble)
	if !errors.Is(err, io.EOF) {
		trouble = append(trouble, err.Error())
	}
	if p.Yielded != 0 {
		trouble = append(trouble, fmt.Sprintf(
			"%.3f s after it had initialised CUDA the program ended CUPTI's work: kernels from then on are not recorded "+
				"unless its profiler began again, their energy is in the lines without kernels",
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
