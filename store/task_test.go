package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
)

func fullSetup() measure.Setup {
	s := threeRails(measure.Timebase{TickHz: 1e6, UTickHz: 5e-5, TicksPerScan: 50.5, Stamped: true})
	s.Channels[1].MinCount, s.Channels[1].MaxCount, s.Channels[1].Skew = -5, 4095, 1e-6
	s.Rails[2].UShunt = 0.01
	s.Missing = []string{"eps"}
	s.Response = measure.Response{Tau: 0.1, Window: 0.025, Update: 0.1}
	return s
}

func fullOutcome() Outcome {
	nvml := measure.Joule(98.5)
	line := func(s string, u float64) measure.Contribution {
		return measure.Contribution{Source: s, U: measure.Joule(u), Systematic: u > 0.1}
	}
	return Outcome{
		State: Incomplete, Reason: "12 scans were lost", NVML: &nvml,
		Markers: []marker.Found{
			{
				Kind: marker.Start, T: 0.1, U: 1e-6, Begin: 0.09, End: 0.2, Correlation: 0.99, PSLR: 21.5, Step: 140, Tau: 1e-5, Tag: 0xa5, TagOK: true,
				Edges: []marker.Edge{{Chip: 3, T: 0.103, U: 2e-6}, {Chip: 0, T: 0.1, U: 3e-6}},
			},
			{Kind: marker.Stop, T: 3, U: measure.Seconds(math.NaN()), PSLR: measure.Decibel(math.Inf(1)), Fallback: true},
		},
		Clock: &clock.Fit{Origin: 1e9, A: 0.5, B: 1.00002, VarA: 1e-12, VarB: 1e-14, CovAB: -1e-13, RMS: 2e-6, Used: 12, Rejected: 1},
		Result: &measure.Result{
			From: 0.2, To: 2.9, Samples: 500, FirstScan: 100, Gaps: 1, Lost: 12,
			Total: measure.Estimate{Energy: 100, U: 1.5}, Mean: 37, Peak: 240,
			Budget: []measure.Contribution{line("gain", 0.7), line("quantisation", 0.01)},
			Rails: []measure.RailResult{
				{Name: "aux_12v", Role: measure.RolePSU, Energy: measure.Estimate{Energy: 90, U: 1.4}, Mean: 33, Peak: 200, Budget: []measure.Contribution{line("gain psu.i", 0.6)}},
				{Name: "pcie_3v3", Role: measure.RolePCIe3V3, Energy: measure.Estimate{Energy: 10, U: 0.1}},
			},
		},
	}
}

var sameSeconds = cmp.Comparer(func(a, b measure.Seconds) bool { return a == b || a != a && b != b })

// TestTaskComesBackWhole writes everything a task can have and reads it back.
func TestTaskComesBackWhole(t *testing.T) {
	d, ctx := open(t), t.Context()
	want := Task{NewTask: newTask("gemm 4096", "lab@host"), Header: header(fullSetup()), State: Running}
	id := must(d.BeginTask(ctx, want.NewTask))(t)
	want.ID = id
	same := func(when string) {
		t.Helper()
		got := must(d.Task(ctx, id))(t)
		for i := range got.Results {
			if got.Results[i].Computed.IsZero() {
				t.Errorf("%s: it is not told when result %d was computed", when, i+1)
			}
			got.Results[i].Computed = time.Time{}
		}
		if diff := cmp.Diff(want, got, sameSeconds); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", when, diff)
		}
	}
	want.Header = Header{}
	same("begun")
	want.Header = header(fullSetup())
	ok(t, d.PutHeader(ctx, id, want.Header))
	same("with its header")

	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 1000, 4)
	for i := range 1000 {
		b.Ticks = append(b.Ticks, int64(50*i))
	}
	want.Events = []measure.Event{
		{Kind: measure.EventGap, FirstScan: 3, Scans: 12, Channel: -1, Detail: "the link was slow"},
		{Kind: measure.EventOverRange, FirstScan: 9, Scans: 1, Exact: true, Channel: 2},
	}
	ok(t, d.AppendChunks(ctx, id, encode(t, want.Setup.Timebase, b, 300, 5), want.Events))
	want.Chunks, want.Scans = 4, 1000
	same("with chunks")

	o := fullOutcome()
	want.State, want.Reason, want.NVML, want.Markers, want.Clock, want.Result = o.State, o.Reason, o.NVML, o.Markers, o.Clock, o.Result
	want.ResultNumber, want.Results = 1, []ResultInfo{{Number: 1, CalibrationID: "cal", Estimate: o.Result.Total, InUse: true}}
	ok(t, d.Finish(ctx, id, o))
	same("finished")
	ok(t, d.Finish(ctx, id, o))
	same("finished again")
	ok(t, d.Finish(ctx, id, Outcome{State: Untrimmed, Reason: "no marker"}))
	want.State, want.Reason, want.NVML, want.Markers, want.Clock, want.Result = Untrimmed, "no marker", nil, nil, nil, nil
	want.ResultNumber, want.Results = 0, nil
	same("untrimmed after all")
}

func TestTasksOfAJob(t *testing.T) {
	d, ctx := open(t), t.Context()
	for _, job := range []string{"a", "", "b", "a"} {
		n := newTask("gemm", "lab")
		n.Job = job
		must(d.BeginTask(ctx, n))(t)
	}
	for job, want := range map[string][]TaskID{"a": {4, 1}, "b": {3}, "": {4, 3, 2, 1}, "c": nil} {
		var got []TaskID
		for _, x := range must(d.Tasks(ctx, Query{Job: job}))(t) {
			got = append(got, x.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("job %q: %v, want %v", job, got, want)
		}
	}
	n := newTask("gemm", "lab")
	n.Job = "a\x1b[2J"
	if _, err := d.BeginTask(ctx, n); !errors.Is(err, measure.ErrText) {
		t.Errorf("a job that is no text: %v", err)
	}
}

func TestSideSeries(t *testing.T) {
	d, ctx := open(t), t.Context()
	id := must(d.BeginTask(ctx, newTask("a", "b")))(t)
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	readings := []Reading{{"nvml.average", at(1), 99.5}, {"nvml.average", at(2), math.NaN()}, {"nvml.instant", at(0), 101}}
	kernels := []Kernel{{"gemm", at(1), at(2)}, {"gemm", at(1), at(3)}, {"axpy", at(4), at(5)}}
	played := []Played{{marker.Start, 0, 0, at(0)}, {marker.Start, 0, 1, at(2)}, {marker.Start, 1, 0, at(4)}, {marker.Stop, 0, 0, at(9)}}
	for range 2 { // a batch that is put again changes nothing
		ok(t, d.PutReadings(ctx, id, readings))
		ok(t, d.PutKernels(ctx, id, kernels))
		ok(t, d.PutPlayed(ctx, id, played))
	}
	if diff := cmp.Diff(readings, must(d.Readings(ctx, id))(t), cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(kernels, must(d.Kernels(ctx, id))(t)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(played, must(d.Played(ctx, id))(t)); diff != "" {
		t.Error(diff)
	}
}

func TestCallsOnTasksThatAreNotThere(t *testing.T) {
	d, ctx := open(t), t.Context()
	for name, f := range map[string]func() error{
		"PutHeader":    func() error { return d.PutHeader(ctx, 7, header(threeRails(evenly))) },
		"AppendChunks": func() error { return d.AppendChunks(ctx, 7, nil, nil) },
		"NextChunk":    func() error { _, _, err := d.NextChunk(ctx, 7); return err },
		"PutReadings":  func() error { return d.PutReadings(ctx, 7, []Reading{{}}) },
		"PutKernels":   func() error { return d.PutKernels(ctx, 7, nil) },
		"PutPlayed":    func() error { return d.PutPlayed(ctx, 7, nil) },
		"Readings":     func() error { _, err := d.Readings(ctx, 7); return err },
		"Kernels":      func() error { _, err := d.Kernels(ctx, 7); return err },
		"Played":       func() error { _, err := d.Played(ctx, 7); return err },
		"Finish":       func() error { return d.Finish(ctx, 7, fullOutcome()) },
		"Task":         func() error { _, err := d.Task(ctx, 7); return err },
		"DeleteTask":   func() error { return d.DeleteTask(ctx, 7) },
		"Chunks": func() error {
			for _, err := range d.Chunks(ctx, 7, 0) {
				return err
			}
			return nil
		},
	} {
		if err := f(); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []NewTask{{User: "u"}, {Name: "n"}} {
		if _, err := d.BeginTask(ctx, n); err == nil {
			t.Errorf("%+v was begun", n)
		}
	}
}

func TestHeaderIsKept(t *testing.T) {
	d, ctx := open(t), t.Context()
	s := threeRails(evenly)
	one, two := begin(t, d, s), begin(t, d, s)
	var records int
	ok(t, d.SQL().QueryRow("SELECT count(*) FROM calibration").Scan(&records))
	if records != 1 {
		t.Errorf("%d records of one calibration", records)
	}
	other := threeRails(evenly)
	other.Channels[0].Gain *= 1.001
	ok(t, d.PutHeader(ctx, two, header(other))) // nothing is stored under it yet
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 100, 4)
	ok(t, d.AppendChunks(ctx, one, encode(t, evenly, b, 100, 0), nil))
	ok(t, d.PutHeader(ctx, one, header(s)))
	if err := d.PutHeader(ctx, one, header(other)); !errors.Is(err, ErrConflict) {
		t.Errorf("another setup under stored chunks: %v", err)
	}
	other.Channels[0].Gain = math.NaN()
	if err := d.PutHeader(ctx, two, header(other)); err == nil {
		t.Error("a gain that is no number was stored")
	}
	three := must(d.BeginTask(ctx, newTask("c", "d")))(t)
	if err := d.AppendChunks(ctx, three, encode(t, evenly, b, 100, 0), nil); !errors.Is(err, ErrNoHeader) {
		t.Errorf("chunks without a header: %v", err)
	}
}

func TestQueriesAndDeletes(t *testing.T) {
	d, ctx := open(t), t.Context()
	for i := range 30 {
		n := newTask([]string{"gemm", "gemm_large", "axpy", "Gemm", "gé"}[i%5], fmt.Sprintf("user%d", i%3))
		n.Launched = epoch.Add(time.Duration(i) * time.Hour)
		must(d.BeginTask(ctx, n))(t)
	}
	ids := func(q Query) (out []TaskID) {
		t.Helper()
		for _, x := range must(d.Tasks(ctx, q))(t) {
			out = append(out, x.ID)
		}
		return out
	}
	hour := func(i int) time.Time { return epoch.Add(time.Duration(i) * time.Hour) }
	for name, c := range map[string]struct {
		q    Query
		want []TaskID
	}{
		"newest":         {Query{Limit: 3}, []TaskID{30, 29, 28}},
		"page":           {Query{Limit: 2, Before: 28}, []TaskID{27, 26}},
		"user":           {Query{User: "user1", Limit: 2}, []TaskID{29, 26}},
		"name":           {Query{Name: "gemm", Limit: 2}, []TaskID{26, 21}},
		"prefix":         {Query{Name: "gemm*", Limit: 3}, []TaskID{27, 26, 22}},
		"prefix g":       {Query{Name: "g*", Limit: 3}, []TaskID{30, 27, 26}},
		"prefix é":       {Query{Name: "gé*", Limit: 1}, []TaskID{30}},
		"any name":       {Query{Name: "*", Limit: 1}, []TaskID{30}},
		"user and name":  {Query{User: "user0", Name: "gemm"}, []TaskID{16, 1}},
		"since, until":   {Query{Since: hour(4), Until: hour(6)}, []TaskID{6, 5}},
		"nobody":         {Query{User: "nobody"}, nil},
		"no such name":   {Query{Name: "gem"}, nil},
		"star in middle": {Query{Name: "g*m"}, nil},
		"oldest":         {Query{Limit: 2, Ascending: true}, []TaskID{1, 2}},
		"by name":        {Query{Order: ByName, Ascending: true, Limit: 2}, []TaskID{4, 9}},
		"by launch":      {Query{Order: ByLaunched, User: "user1", Limit: 2}, []TaskID{29, 26}},
	} {
		if got := ids(c.q); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := must(d.Users(ctx))(t); !slices.Equal(got, []UserTasks{{"user0", 10}, {"user1", 10}, {"user2", 10}}) {
		t.Errorf("users: %v", got)
	}
	ok(t, d.Finish(ctx, 1, Outcome{State: Complete}))
	if got := must(d.Unfinished(ctx))(t); len(got) != 29 || got[0].ID != 2 {
		t.Errorf("%d unfinished from %d", len(got), got[0].ID)
	}
	if n := must(d.DeleteByName(ctx, "gemm", DeleteOptions{}))(t).Tasks; n != 6 {
		t.Errorf("%d deleted by name", n)
	}
	if n := must(d.DeleteByUser(ctx, "user1", DeleteOptions{}))(t).Tasks; n != 8 {
		t.Errorf("%d deleted by user", n)
	}
	if n := must(d.DeleteByUser(ctx, "nobody", DeleteOptions{}))(t).Tasks; n != 0 {
		t.Errorf("%d of nobody's deleted", n)
	}
	if got := must(d.Users(ctx))(t); !slices.Equal(got, []UserTasks{{"user0", 8}, {"user2", 8}}) {
		t.Errorf("users left: %v", got)
	}
	if id := must(d.BeginTask(ctx, newTask("x", "y")))(t); id != 31 {
		t.Errorf("task %d: ids must not be used again", id)
	}
}

// TestDeleteLeavesPinned: a pinned task goes by force alone, and of several numbers all go
// or none.
func TestDeleteLeavesPinned(t *testing.T) {
	d, ctx := open(t), t.Context()
	for _, name := range []string{"a", "b", "b", "b"} {
		must(d.BeginTask(ctx, newTask(name, "lab")))(t)
	}
	ok(t, d.Pin(ctx, 2, true))
	left := func(want ...TaskID) {
		t.Helper()
		if got := must(d.TaskIDs(ctx))(t); !slices.Equal(got, want) {
			t.Errorf("left: %v, want %v", got, want)
		}
	}
	for _, c := range []struct {
		ids  []TaskID
		want error
		text string
	}{
		{[]TaskID{2}, ErrPinned, "delete task 2: pinned"},
		{[]TaskID{1, 2, 3}, ErrPinned, "task 2: pinned"},
		{[]TaskID{1, 7, 8}, ErrNotFound, "tasks 7, 8: no such task"},
		{[]TaskID{7}, ErrNotFound, "delete task 7: no such task"},
	} {
		if err := d.DeleteTasks(ctx, c.ids, DeleteOptions{}); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("delete %v: %v", c.ids, err)
		}
	}
	left(1, 2, 3, 4)
	if gone := must(d.DeleteByName(ctx, "b", DeleteOptions{}))(t); gone.Tasks != 2 || !slices.Equal(gone.Pinned, []TaskID{2}) {
		t.Errorf("by name: %+v", gone)
	}
	left(1, 2)
	if gone := must(d.DeleteByUser(ctx, "lab", DeleteOptions{}))(t); gone.Tasks != 1 || !slices.Equal(gone.Pinned, []TaskID{2}) {
		t.Errorf("by user: %+v", gone)
	}
	left(2)
	ok(t, d.DeleteTasks(ctx, []TaskID{2}, DeleteOptions{Pinned: true}))
	left()
	must(d.BeginTask(ctx, newTask("c", "lab")))(t)
	ok(t, d.Pin(ctx, 5, true))
	if gone := must(d.DeleteByUser(ctx, "lab", DeleteOptions{Pinned: true}))(t); gone.Tasks != 1 || gone.Pinned != nil {
		t.Errorf("by user, forced: %+v", gone)
	}
	left()
}

// TestDeleteLeavesNothing looks into every table after a full task is deleted.
func TestDeleteLeavesNothing(t *testing.T) {
	d, ctx := open(t), t.Context()
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 1000, 4)
	ok(t, d.AppendChunks(ctx, id, encode(t, evenly, b, 300, 0), []measure.Event{{Kind: measure.EventNote}}))
	ok(t, d.PutReadings(ctx, id, []Reading{{"m", epoch, 1}}))
	ok(t, d.PutKernels(ctx, id, []Kernel{{"k", epoch, epoch}}))
	ok(t, d.PutPlayed(ctx, id, []Played{{marker.Start, 0, 0, epoch}}))
	ok(t, d.Finish(ctx, id, fullOutcome()))
	tables := []string{"user", "task", "chunk", "chunk_column", "event", "marker", "marker_edge", "played", "kernel", "reading", "rail_result", "budget"}
	count := func(table string) (n int) {
		ok(t, d.SQL().QueryRow("SELECT count(*) FROM main."+table).Scan(&n))
		return n
	}
	for _, table := range tables {
		if count(table) == 0 {
			t.Errorf("%s: the test put nothing there", table)
		}
	}
	ok(t, d.DeleteTask(ctx, id))
	for _, table := range tables {
		if n := count(table); n != 0 {
			t.Errorf("%s: %d rows left", table, n)
		}
	}
}

// A task is ended once; what is looked at anew may change it, and it never runs again.
func TestATaskEndsOnce(t *testing.T) {
	d := open(t)
	begin(t, d, threeRails(evenly))
	finish := func(o Outcome) error { return d.Finish(t.Context(), 1, o) }
	ok(t, finish(Outcome{State: Running, Reason: "the transfer stopped"}))
	ok(t, finish(Outcome{State: Complete, Once: true}))
	for _, o := range []Outcome{{State: Incomplete, Reason: "gone", Once: true}, {State: Complete, Once: true}, {State: Running}} {
		if err := finish(o); !errors.Is(err, ErrEnded) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if x := must(d.Task(t.Context(), 1))(t); x.State != Complete || x.Reason != "" {
		t.Errorf("state %d: %s", x.State, x.Reason)
	}
	ok(t, finish(Outcome{State: Incomplete, Reason: "window set by hand"}))
	if x := must(d.Task(t.Context(), 1))(t); x.State != Incomplete {
		t.Errorf("state %d", x.State)
	}
	if err := finish(Outcome{State: 9}); err == nil {
		t.Error("state 9 was taken")
	}
}

// A database is tried without leaving anything in it.
func TestTryTask(t *testing.T) {
	d := open(t)
	if err := d.TryTask(t.Context()); err != nil {
		t.Fatal(err)
	}
	var tasks, users int
	if err := d.reader.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM task), (SELECT count(*) FROM user)`).Scan(&tasks, &users); err != nil || tasks+users != 0 {
		t.Errorf("%d tasks and %d users are left (%v)", tasks, users, err)
	}
	if _, err := d.writer.ExecContext(t.Context(), `ALTER TABLE task RENAME TO gone`); err != nil {
		t.Fatal(err)
	}
	if err := d.TryTask(t.Context()); err == nil {
		t.Error("a database without tasks takes them")
	}
}

// An end that was made in place of the process that measured gives way to that process's
// own, once; one that was made by hand, or by another process, does not.
func TestOwnersEndReplacesARecoveredOne(t *testing.T) {
	d := open(t)
	n := newTask("gemm", "lab")
	n.Owner = "pid=1"
	id := must(d.BeginTask(t.Context(), n))(t)
	finish := func(o Outcome) error { return d.Finish(t.Context(), id, o) }
	ok(t, finish(Outcome{State: Incomplete, Reason: "the end of the work is not known", Once: true, Recovered: true}))
	for _, o := range []Outcome{{State: Complete, Once: true}, {State: Complete, Once: true, Owner: "pid=2"}, {State: Running, Once: true, Owner: "pid=1"}} {
		if err := finish(o); !errors.Is(err, ErrEnded) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	ok(t, finish(Outcome{State: Failed, Reason: "the work failed", Once: true, Owner: "pid=1"}))
	if x := must(d.Task(t.Context(), id))(t); x.State != Failed || x.Reason != "the work failed" || x.Owner != "" {
		t.Errorf("state %d: %s; owner %q", x.State, x.Reason, x.Owner)
	}
	if err := finish(Outcome{State: Complete, Once: true, Owner: "pid=1"}); !errors.Is(err, ErrEnded) {
		t.Errorf("a second end by the owner: %v", err)
	}
}

func beginGroup(t *testing.T, d *DB) (GroupID, []GroupMember) {
	t.Helper()
	members := []GroupMember{
		{GPU: "H200", GPUUUID: "GPU-1", Monitor: "a:1"}, {GPU: "H200", GPUUUID: "GPU-2", Monitor: "b:1"}, {GPU: "A100", GPUUUID: "GPU-3", Reason: "no monitor answers"},
	}
	return must(d.BeginGroup(t.Context(), NewGroup{Name: "train", User: "lab", Launched: epoch, Members: members}))(t), members
}

func TestGroupTiesTasks(t *testing.T) {
	d, ctx := open(t), t.Context()
	id, members := beginGroup(t, d)
	for i := range 2 {
		n := newTask("train", "lab")
		n.Group = GroupRef{id, i}
		members[i].Task = must(d.BeginTask(ctx, n))(t)
	}
	alone := must(d.BeginTask(ctx, newTask("alone", "lab")))(t)
	g := must(d.Group(ctx, id))(t)
	if diff := cmp.Diff(Group{id, NewGroup{"train", "lab", epoch, members}}, g); diff != "" {
		t.Error(diff)
	}
	for task, want := range map[TaskID]GroupRef{members[0].Task: {id, 0}, members[1].Task: {id, 1}, alone: {}} {
		if got := must(d.Task(ctx, task))(t).Group; got != want {
			t.Errorf("task %d: %+v, want %+v", task, got, want)
		}
	}
	if list := must(d.Tasks(ctx, Query{}))(t); len(list) != 3 || list[2].Group != id || list[0].Group != 0 {
		t.Errorf("list %+v", list)
	}
	// A member is measured once, and a task may not claim what is not there.
	for _, r := range []GroupRef{{id, 0}, {id, 7}, {id + 1, 0}} {
		n := newTask("again", "lab")
		n.Group = r
		if got, err := d.BeginTask(ctx, n); !errors.Is(err, ErrNotFound) {
			t.Errorf("%+v: task %d, %v", r, got, err)
		}
	}
	ok(t, d.FailMember(ctx, GroupRef{id, 0}, "late news")) // it has a task that tells more
	ok(t, d.FailMember(ctx, GroupRef{id, 2}, "monitor\x1b[31m is away"))
	g = must(d.Group(ctx, id))(t)
	if g.Members[0].Reason != "" || g.Members[2].Reason == "no monitor answers" || g.Members[2].Reason == "monitor\x1b[31m is away" {
		t.Errorf("members %+v", g.Members)
	}
}

// A group remembers a deleted task, and goes with its last one.
func TestDeletedTasksOfAGroup(t *testing.T) {
	d, ctx := open(t), t.Context()
	id, _ := beginGroup(t, d)
	var tasks []TaskID
	for i := range 2 {
		n := newTask("train", "lab")
		n.Group = GroupRef{id, i}
		tasks = append(tasks, must(d.BeginTask(ctx, n))(t))
	}
	ok(t, d.DeleteTask(ctx, tasks[0]))
	g := must(d.Group(ctx, id))(t)
	if m := g.Members[0]; m.Task != 0 || m.Reason != "task 1 was deleted" || g.Members[1].Task != tasks[1] {
		t.Errorf("members %+v", g.Members)
	}
	ok(t, d.DropGroup(ctx, id)) // it has a task
	must(d.Group(ctx, id))(t)
	must(d.DeleteByUser(ctx, "lab", DeleteOptions{}))(t)
	if _, err := d.Group(ctx, id); !errors.Is(err, ErrNotFound) {
		t.Errorf("a group without tasks: %v", err)
	}
	// A group that has no task yet is nobody's business but its host's.
	fresh, _ := beginGroup(t, d)
	other := must(d.BeginTask(ctx, newTask("x", "lab")))(t)
	ok(t, d.DeleteTask(ctx, other))
	must(d.Group(ctx, fresh))(t)
	if fresh == id {
		t.Error("a group's number was used again")
	}
	ok(t, d.DropGroup(ctx, fresh))
	if _, err := d.Group(ctx, fresh); !errors.Is(err, ErrNotFound) {
		t.Errorf("a dropped group: %v", err)
	}
}

func TestBeginGroupRefuses(t *testing.T) {
	d := open(t)
	for name, g := range map[string]NewGroup{
		"no name": {User: "u", Members: make([]GroupMember, 1)}, "no user": {Name: "n", Members: make([]GroupMember, 1)},
		"no GPUs": {Name: "n", User: "u"}, "no text": {Name: "\x1b", User: "u", Members: make([]GroupMember, 1)},
	} {
		if id, err := d.BeginGroup(t.Context(), g); err == nil {
			t.Errorf("%s: group %d", name, id)
		}
	}
}

func TestBenchGPUIsKept(t *testing.T) {
	d, ctx := open(t), t.Context()
	id := must(d.BeginTask(ctx, newTask("x", "lab")))(t)
	h := header(threeRails(evenly))
	h.BenchGPU = "GPU-1"
	ok(t, d.PutHeader(ctx, id, h))
	if got := must(d.Task(ctx, id))(t).BenchGPU; got != "GPU-1" {
		t.Errorf("got %q", got)
	}
	h.BenchGPU = ""
	ok(t, d.PutHeader(ctx, id, h))
	if got := must(d.Task(ctx, id))(t).BenchGPU; got != "" {
		t.Errorf("got %q", got)
	}
}

// What a terminal would obey is refused where a person gives it, and made
// harmless where a device, another program or an older version wrote it.
func TestNoEscapeCodesComeOutOfTheDatabase(t *testing.T) {
	d, ctx := open(t), t.Context()
	for _, bad := range []string{"\x1b[2J", "caf\xe9", "a\nb", "\u202e"} {
		for _, n := range []NewTask{newTask(bad, "ann"), newTask("gemm", bad)} {
			if _, err := d.BeginTask(ctx, n); !errors.Is(err, measure.ErrText) || strings.Contains(err.Error(), bad) {
				t.Errorf("name %q, user %q: %v", n.Name, n.User, err)
			}
		}
	}
	const evil = "\x1b]0;evil\a"
	n := newTask("gemm", "ann")
	n.GPU, n.Driver = evil, evil
	id := must(d.BeginTask(ctx, n))(t)
	h := header(threeRails(measure.Timebase{TickHz: 1e6, TicksPerScan: 50}))
	h.Instrument.Model, h.Bench = evil, evil
	ok(t, d.PutHeader(ctx, id, h))
	ok(t, d.AppendChunks(ctx, id, nil, []measure.Event{{Kind: measure.EventNote, Channel: -1, Detail: evil}}))
	ok(t, d.PutKernels(ctx, id, []Kernel{{Name: evil, Start: epoch, End: epoch}}))
	ok(t, d.Finish(ctx, id, Outcome{State: Incomplete, Reason: "one\ntwo " + evil}))
	if _, err := d.writer.Exec(`UPDATE user SET login=?`, evil); err != nil {
		t.Fatal(err)
	}
	task := must(d.Task(ctx, id))(t)
	kernels, users := must(d.Kernels(ctx, id))(t), must(d.Users(ctx))(t)
	texts := []string{
		task.User, task.GPU, task.Driver, task.Instrument.Model, task.Bench, task.Reason, task.Events[0].Detail,
		kernels[0].Name, users[0].User,
	}
	for i, s := range texts {
		if s == "" || s != measure.Printable(s) {
			t.Errorf("text %d: %q", i, s)
		}
	}
	if !strings.HasPrefix(task.Reason, "one two ") {
		t.Errorf("reason %q", task.Reason)
	}
}
