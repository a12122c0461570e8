package api

import (
	"context"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
)

// memory is a task database without a disk. Like the real one it lends its
// chunks only until the next is asked for.
type memory struct {
	Database // what is not answered below is asked of nobody
	mu       sync.Mutex
	tasks    []store.Task // oldest first
	chunks   map[store.TaskID][]*chunk.Chunk
	err      error // what every call returns, when set
	reads    int   // chunks handed out
}

func (m *memory) TaskResult(ctx context.Context, id store.TaskID, number int) (store.Task, error) {
	t, err := m.Task(ctx, id)
	if err == nil && number > 1 {
		err = store.ErrNotFound
	}
	return t, err
}

// Extent leaves out what no test here looks at.
func (m *memory) Extent(context.Context, store.TaskID) (from, to measure.Seconds, err error) {
	return 0, 0, nil
}

func (m *memory) Task(_ context.Context, id store.TaskID) (store.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tasks {
		if t.ID == id && m.err == nil {
			return t, nil
		}
	}
	if m.err != nil {
		return store.Task{}, m.err
	}
	return store.Task{}, fmt.Errorf("task %d: %w", id, store.ErrNotFound)
}

func (m *memory) List(_ context.Context, q store.ListQuery) (p store.Page, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.tasks) - 1; i >= 0; i-- {
		t := m.tasks[i]
		prefix, byPrefix := strings.CutSuffix(q.Name, "*")
		switch {
		case q.User != "" && t.User != q.User,
			q.Job != "" && t.Job != q.Job,
			q.After != nil && t.ID >= q.After.ID,
			byPrefix && !strings.HasPrefix(t.Name, prefix),
			!byPrefix && q.Name != "" && t.Name != q.Name,
			!q.Since.IsZero() && t.Launched.Before(q.Since),
			!q.Until.IsZero() && !t.Launched.Before(q.Until):
		case len(p.Tasks) == q.Limit:
			p.Next = &store.Position{ID: p.Tasks[q.Limit-1].ID}
			return p, m.err
		default:
			p.Tasks = append(p.Tasks, t.Brief())
		}
	}
	return p, m.err
}

func (m *memory) Totals(context.Context, store.Filter) (store.Totals, error) {
	return store.Totals{Tasks: uint64(len(m.tasks))}, m.err
}

func (m *memory) Users(context.Context) ([]store.UserTasks, error) {
	return []store.UserTasks{{User: "ada", Tasks: 3}, {User: "bob", Tasks: 2}}, m.err
}

func (m *memory) Relabel(ctx context.Context, id store.TaskID, _ store.Relabelling) error {
	_, err := m.Task(ctx, id)
	return err
}

func (m *memory) DeleteTasks(ctx context.Context, ids []store.TaskID, o store.DeleteOptions) error {
	for _, id := range ids {
		t, err := m.Task(ctx, id)
		if err != nil {
			return err
		}
		if t.Pinned && !o.Pinned {
			return store.ErrPinned
		}
	}
	_, err := m.drop(func(t store.Task) bool { return slices.Contains(ids, t.ID) }, store.DeleteOptions{Pinned: true})
	return err
}

func (m *memory) DeleteByName(_ context.Context, name string, o store.DeleteOptions) (store.Deleted, error) {
	return m.drop(func(t store.Task) bool { return t.Name == name }, o)
}

func (m *memory) DeleteByUser(_ context.Context, user string, o store.DeleteOptions) (store.Deleted, error) {
	return m.drop(func(t store.Task) bool { return t.User == user }, o)
}

func (m *memory) drop(which func(store.Task) bool, o store.DeleteOptions) (out store.Deleted, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var kept []store.Task
	for _, t := range m.tasks {
		switch {
		case !which(t):
			kept = append(kept, t)
		case t.Pinned && !o.Pinned:
			kept, out.Pinned = append(kept, t), append(out.Pinned, t.ID)
		default:
			out.Tasks++
		}
	}
	m.tasks = kept
	return out, m.err
}

func (m *memory) ChunkAt(_ context.Context, id store.TaskID, scan uint64) (no, firstScan uint64, err error) {
	for i, c := range m.chunks[id] {
		if i == 0 || c.FirstScan <= scan {
			no, firstScan = c.No, c.FirstScan
		}
	}
	return no, firstScan, m.err
}

func (m *memory) Chunks(_ context.Context, id store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) {
		if m.err != nil {
			yield(nil, m.err)
			return
		}
		for _, c := range m.chunks[id] {
			if c.No < from {
				continue
			}
			m.mu.Lock()
			m.reads++
			m.mu.Unlock()
			lent := c.Clone()
			more := yield(lent, nil)
			for i := range lent.Columns {
				clear(lent.Columns[i].Data)
			}
			*lent = chunk.Chunk{}
			if !more {
				return
			}
		}
	}
}

// fakeSetup has a shunt rail and a rail that reads watts.
func fakeSetup(stamped bool) measure.Setup {
	return measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 100, Stamped: stamped},
		Channels: []measure.Channel{
			{Name: "s", Unit: measure.UnitVolt, Gain: 1e-3, Offset: 0.5},
			{Name: "g", Unit: measure.UnitVolt, Gain: 1e-3},
			{Name: "w", Unit: measure.UnitWatt, Gain: 0.25, Offset: 1},
		},
		Rails: []measure.Rail{
			{Name: "pcie_12v", Role: measure.RolePCIe12V, Wiring: measure.WiringShunt, X: 0, Y: 1, Shunt: 5e-3},
			{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 2, Y: -1},
		},
	}
}

// counts are the readings of channels s, g and w at a scan.
func counts(scan uint64) [3]measure.Count {
	return [3]measure.Count{measure.Count(12000 + scan%37), measure.Count(11900 + scan%11), measure.Count(scan % 1000)}
}

// stretch is a run of scans without a gap.
type stretch struct{ from, to uint64 }

// encode makes chunks of at most size scans, numbered from first on. Scan n
// lies at tick 100·n, and 3 ticks later when it is odd and the timebase stamped.
func encode(t testing.TB, s measure.Setup, first uint64, size int, runs ...stretch) []*chunk.Chunk {
	t.Helper()
	var out []*chunk.Chunk
	for _, run := range runs {
		for at := run.from; at < run.to; at += uint64(size) {
			b := measure.Block{FirstScan: at, FirstTick: int64(100 * at), Counts: make([][]measure.Count, 3)}
			for scan := at; scan < min(run.to, at+uint64(size)); scan++ {
				for i, v := range counts(scan) {
					b.Counts[i] = append(b.Counts[i], v)
				}
				if s.Timebase.Stamped {
					b.Ticks = append(b.Ticks, tickOf(s, scan))
				}
			}
			if b.Ticks != nil {
				b.FirstTick = b.Ticks[0]
			}
			e, err := chunk.NewEncoder(s.Timebase, 3, chunk.MaxScans)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := e.Append(&b); n != b.Scans() || err != nil {
				t.Fatalf("took %d of %d scans: %v", n, b.Scans(), err)
			}
			out = append(out, e.Flush(first+uint64(len(out))).Clone())
		}
	}
	return out
}

func tickOf(s measure.Setup, scan uint64) int64 {
	tick := int64(100 * scan)
	if s.Timebase.Stamped && scan%2 == 1 {
		tick += 3
	}
	return tick
}

var launched = time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)

// fakeDB has five tasks: 1 to 5, of ada (odd) and bob (even). Task 1 has a
// window from scan 1000 to 10999, a gap of 500 scans from scan 5000 on and an
// over-range at 3000; 2 is the same, stamped and without a window; 3 has no
// header yet; 4 and 5 are empty and complete.
func fakeDB(t testing.TB) *memory {
	t.Helper()
	m := &memory{chunks: map[store.TaskID][]*chunk.Chunk{}}
	for id := store.TaskID(1); id <= 5; id++ {
		user := "bob"
		if id%2 == 1 {
			user = "ada"
		}
		task := store.Task{ID: id, State: store.Complete}
		task.NewTask = store.NewTask{Name: fmt.Sprintf("gemm-%d", id), User: user, Launched: launched.Add(time.Duration(id) * time.Hour), GPU: "H200"}
		m.tasks = append(m.tasks, task)
	}
	events := []measure.Event{
		{Kind: measure.EventGap, FirstScan: 5000, Scans: 500, Exact: true, Channel: -1, Detail: "cable"},
		{Kind: measure.EventOverRange, FirstScan: 3000, Scans: 2, Channel: 1},
		{Kind: measure.EventNote, FirstScan: 20, Scans: 1, Channel: -1, Detail: "before the window"},
		{Kind: measure.EventNote, FirstScan: 11500, Scans: 1, Channel: -1, Detail: "after the window"},
	}
	nvml := measure.Joule(99)
	one, two := &m.tasks[0], &m.tasks[1]
	for i, task := range []*store.Task{one, two} {
		task.Setup, task.Events = fakeSetup(i == 1), events
		task.Instrument = store.Instrument{Kind: "pmd", Model: "PMD-USB"}
		m.chunks[task.ID] = encode(t, task.Setup, 3, 1500, stretch{900, 5000}, stretch{5500, 12000})
		task.Chunks, task.Scans = uint64(len(m.chunks[task.ID])), 10600
	}
	one.NVML = &nvml
	one.Markers = []marker.Found{{Kind: marker.Start, T: 0.09, End: 0.1}, {Kind: marker.Stop, T: 1.1, Begin: 1.0999, End: 1.2}}
	one.Clock = &clock.Fit{A: 1, B: 1, VarA: 1e-12}
	one.Result = &measure.Result{
		From: 0.1, To: 1.0999, FirstScan: 1000, Samples: 9500, Gaps: 1, Lost: 500, Mean: 100, Peak: 300,
		Total: measure.Estimate{Energy: 100, U: 2},
		Rails: []measure.RailResult{{Name: "pcie_12v", Energy: measure.Estimate{Energy: 60, U: 1}}, {Name: "gpu"}},
	}
	two.State, two.Reason = store.Untrimmed, "no stop marker"
	m.tasks[2].State = store.Running
	return m
}

// serve runs the service on a real socket and returns a client of it.
func serve(t testing.TB, db Database) pb.TaskServiceClient {
	t.Helper()
	conn := dial(t, db)
	return pb.NewTaskServiceClient(conn)
}

func dial(t testing.TB, db Database) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	New(t.Context(), db, Options{}).Register(server)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
