package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
	"github.com/wattmark/wattmark/store"
)

// said is what a database said to one call: values, or which sentinel.
type said struct {
	Call   string
	Values []any
	Err    string
}

// talk makes calls to a database and writes down what it says.
type talk struct {
	d    *store.DB
	ctx  context.Context
	said []said
}

var sentinels = map[string]error{
	"not found": store.ErrNotFound, "conflict": store.ErrConflict, "no header": store.ErrNoHeader, "corrupt": store.ErrCorrupt,
	"no campaign": store.ErrNoCampaign, "text": measure.ErrText,
}

func (k *talk) say(call string, err error, values ...any) {
	s := said{Call: call, Values: values}
	if err != nil {
		s.Err = "other"
		for name, e := range sentinels {
			if errors.Is(err, e) {
				s.Err = name
			}
		}
		if s.Err == "other" {
			s.Err = err.Error()
		}
	}
	k.said = append(k.said, s)
}

// everything reads all that there is to read of a task.
func (k *talk) everything(id store.TaskID) {
	x, err := k.d.Task(k.ctx, id)
	for i := range x.Results {
		x.Results[i].Computed = time.Time{}
	}
	k.say("task", err, x)
	for no := range 4 {
		x, err := k.d.TaskResult(k.ctx, id, no)
		x.Results = nil
		k.say("result", err, x)
	}
	var chunks []string // a chunk's bytes as text compare fast
	for c, err := range k.d.Chunks(k.ctx, id, 1) {
		if err != nil {
			k.say("chunks", err)
			break
		}
		chunks = append(chunks, fmt.Sprintf("%d %d %d %d %08x", c.No, c.FirstScan, c.Scans, c.FirstTick, c.CRC))
		for _, col := range c.Columns {
			chunks = append(chunks, string(col.Dir), string(col.Data))
		}
	}
	k.say("chunks", nil, chunks)
	var launches []store.Launch
	for l, err := range k.d.Launches(k.ctx, id) {
		if err != nil {
			k.say("launches", err)
			break
		}
		launches = append(launches, l)
	}
	k.say("launches", nil, launches)
	next, some, err := k.d.NextChunk(k.ctx, id)
	k.say("next chunk", err, next, some)
	readings, err := k.d.Readings(k.ctx, id)
	k.say("readings", err, readings)
	traces, err := k.d.Traces(k.ctx, id, nil, 0, 0.2, 20)
	k.say("traces", err, traces)
	kernels, err := k.d.Kernels(k.ctx, id)
	k.say("kernels", err, kernels)
	played, err := k.d.Played(k.ctx, id)
	k.say("played", err, played)
	methods, err := k.d.Methods(k.ctx, id)
	k.say("methods", err, methods)
	tables, err := k.d.LaunchTables(k.ctx, id)
	k.say("launch tables", err, tables)
	energies, err := k.d.NameEnergies(k.ctx, id, 1)
	k.say("name energies", err, energies)
	tiny, err := k.d.Tiny(k.ctx, id)
	k.say("tiny", err, tiny)
	from, to, err := k.d.Extent(k.ctx, id)
	k.say("extent", err, from, to)
	if err == nil && to > from {
		for _, columns := range []int{3, 40} {
			e, err := k.d.Envelope(k.ctx, id, from, to, columns)
			k.say("envelope", err, e)
		}
	}
}

// lists reads all that is not of one task.
func (k *talk) lists() {
	for _, q := range []store.Query{
		{},
		{User: "lab"},
		{Name: "gemm"},
		{Name: "ge*", Limit: 2},
		{Name: "*"},
		{Job: "train 7", Before: 3},
		{Since: epoch.Add(time.Second)},
		{Until: epoch.Add(time.Second), User: "nobody"},
		{Name: "Ä*"},
		{Name: "a%*"},
		{User: "nobody", Order: store.ByName},
		{User: "lab", Verdicts: []quality.Level{quality.Void}},
	} {
		x, err := k.d.Tasks(k.ctx, q)
		k.say(fmt.Sprintf("tasks %+v", q), err, x)
	}
	k.pages()
	x, err := k.d.Unfinished(k.ctx)
	k.say("unfinished", err, x)
	users, err := k.d.Users(k.ctx)
	k.say("users", err, users)
	errs, judged, more, err := k.d.MethodErrors(k.ctx, 5)
	k.say("method errors", err, errs, judged, more)
	of, err := k.d.TaskOfCapture(k.ctx, "c-1")
	k.say("task of capture", err, of)
	cals, err := k.d.Calibrations(k.ctx)
	k.say("calibrations", err, cals)
	for id := range store.GroupID(4) {
		g, err := k.d.Group(k.ctx, id)
		k.say("group", err, g)
	}
	for _, kind := range []string{"", "model"} {
		a, err := k.d.Analyses(k.ctx, kind)
		k.say("analyses", err, a)
	}
	campaigns, err := k.d.InstructionCampaigns(k.ctx)
	k.say("campaigns", err, campaigns)
	for _, c := range campaigns {
		runs, err := k.d.Instructions(k.ctx, c.ID)
		k.say("instructions", err, runs)
	}
}

// pages reads lists in all orders, page by page, and adds up what they select.
func (k *talk) pages() {
	for _, f := range []store.Filter{
		{},
		{User: "lab"},
		{Name: "gemm"},
		{Name: "ge*"},
		{Name: "*[emm]*"},
		{Name: "?em*"},
		{Name: "a%*"},
		{Name: `*\\*`},
		{Name: "*%*"},
		{GPU: "h2"},
		{Job: "train 7"},
		{States: []store.State{store.Complete}},
		{States: []store.State{store.Running, store.Incomplete}},
		{Since: epoch.Add(time.Second), Until: epoch.Add(4 * time.Second)},
		{MinEnergy: 1e-9},
		{MaxDuration: 1e6},
		{Group: 1},
	} {
		for order := store.ByID; order <= store.ByName; order++ {
			q := store.ListQuery{Filter: f, Order: order, Ascending: order%2 == 0, Limit: 2}
			for more := true; more; more = q.After != nil {
				p, err := k.d.List(k.ctx, q)
				k.say(fmt.Sprintf("list %+v in order %d", f, order), err, p)
				q.After = p.Next
			}
		}
		all, err := k.d.Totals(k.ctx, f)
		k.say("totals", err, sums(all))
		for by := store.ByUser; by <= store.ByJob; by++ {
			rows, err := k.d.Aggregate(k.ctx, store.AggregateQuery{Filter: f, By: by, Offset: 3600})
			var said []string
			for _, r := range rows {
				said = append(said, fmt.Sprint(r.Key, r.Label, r.Launches, sums(r.Totals)))
			}
			slices.Sort(said) // of those with the same energy either may stand first
			k.say("aggregate", err, said)
		}
	}
}

// sums tells totals without the last digits, in which the order of adding shows.
func sums(t store.Totals) string {
	return fmt.Sprintf("%d %d %.9g %.9g %.9g %d", t.Tasks, t.Measured, float64(t.Energy.Energy), float64(t.Energy.U), float64(t.Duration), t.Samples)
}

// same compares numbers; none is as good as none.
func same[T ~float64]() cmp.Option {
	return cmp.Comparer(func(a, b T) bool { return a == b || a != a && b != b })
}

var nans = []cmp.Option{cmp.Comparer(slices.Equal[[]store.Launch]), same[float64](), same[measure.Seconds](), same[measure.Watt](), same[measure.Joule](), same[measure.Decibel](), same[measure.Hertz]()}

// TestSameAsAFile makes the same calls to a file and to a server, which must say
// the same.
func TestSameAsAFile(t *testing.T) {
	for seed := range uint64(1) {
		file := talk{d: openFile(t), ctx: t.Context()}
		server := talk{d: open(t), ctx: t.Context()}
		life(t, &file, rand.New(rand.NewPCG(seed, 7)))
		life(t, &server, rand.New(rand.NewPCG(seed, 7)))
		for i := range min(len(file.said), len(server.said)) {
			if diff := cmp.Diff(file.said[i], server.said[i], nans...); diff != "" {
				t.Fatalf("seed %d, answer %d, %s: (-file +server)\n%s", seed, i, file.said[i].Call, diff)
			}
		}
		if len(file.said) < 100 || len(server.said) != len(file.said) {
			t.Fatalf("seed %d: %d and %d answers", seed, len(file.said), len(server.said))
		}
	}
}

// life is a database's: tasks of all kinds, from their begin to their end.
func life(t *testing.T, k *talk, rng *rand.Rand) {
	k.lists()
	group, err := k.d.BeginGroup(k.ctx, store.NewGroup{
		Name: "two", User: "lab", Launched: epoch,
		Members: []store.GroupMember{{GPU: "H200", GPUUUID: "GPU-1", Monitor: "a:1"}, {GPU: "H200", GPUUUID: "GPU-2", Reason: "no monitor"}},
	})
	k.say("begin group", err, group)
	for i, name := range []string{"gemm", "gemv", "Äther", "a%b", "with \\ and ' and \"", "gemm"} {
		n := newTask(name, []string{"lab", "Lab", "user", "lab"}[i%4])
		n.Launched = epoch.Add(time.Duration(i) * time.Second)
		if i == 1 {
			n.Group = store.GroupRef{Group: group, Member: 0}
			n.Job = ""
		}
		id, err := k.d.BeginTask(k.ctx, n)
		k.say("begin", err, id)
		if i < 4 {
			k.measured(t, id, rng)
		}
	}
	_, err = k.d.BeginTask(k.ctx, newTask("bad\x00name", "lab"))
	k.say("begin", err)
	k.say("fail member", k.d.FailMember(k.ctx, store.GroupRef{Group: group, Member: 1}, "broke"))
	k.analyses()
	k.instructions()
	k.lists()
	k.say("delete", k.d.DeleteTask(k.ctx, 2))
	k.say("delete again", k.d.DeleteTask(k.ctx, 2))
	k.say("pin", k.d.Pin(k.ctx, 1, true), k.d.Pin(k.ctx, 3, true))
	k.say("delete pinned", k.d.DeleteTasks(k.ctx, []store.TaskID{3, 4}, store.DeleteOptions{}))
	gone, err := k.d.DeleteByName(k.ctx, "gemm", store.DeleteOptions{})
	k.say("delete by name", err, gone)
	gone, err = k.d.DeleteByUser(k.ctx, "user", store.DeleteOptions{})
	k.say("delete by user", err, gone)
	k.say("delete by force", k.d.DeleteTasks(k.ctx, []store.TaskID{3, 4}, store.DeleteOptions{Pinned: true}))
	cold, err := k.d.Cold(k.ctx, epoch.AddDate(20, 0, 0))
	k.say("cold", err, cold)
	cold, err = k.d.Cold(k.ctx, epoch)
	k.say("cold before", err, cold)
	k.lists()
	for id := range store.TaskID(5) {
		k.everything(id)
	}
	id, err := k.d.BeginTask(k.ctx, newTask("next", "new"))
	k.say("begin", err, id) // ids are never used again
}

// measured is a task's life.
func (k *talk) measured(t *testing.T, id store.TaskID, rng *rand.Rand) {
	k.say("no header yet", k.d.AppendChunks(k.ctx, id, nil, nil))
	tb := measure.Timebase{TickHz: 1e6, UTickHz: 5e-5, TicksPerScan: 50, Stamped: rng.IntN(2) == 0}
	s := randomSetup(rng, tb)
	s.Missing, s.Response = []string{"eps"}, measure.Response{Tau: 0.1, Window: 0.025}
	s.Records = []measure.CalibrationRecord{{ID: "r-1", Text: `{"a": "é"}`}}
	k.say("header", k.d.PutHeader(k.ctx, id, header(s)))
	k.say("header again", k.d.PutHeader(k.ctx, id, header(s)))
	chunks, scans := randomChunks(t, rng, s)
	events := []measure.Event{
		{Kind: measure.EventGap, FirstScan: 3, Scans: 12, Channel: -1, Detail: "the link was \x00 slow \xff"},
		{Kind: measure.EventOverRange, FirstScan: 9, Scans: 1, Exact: true, Channel: 2},
	}
	half := len(chunks) / 2
	k.say("append", k.d.AppendChunks(k.ctx, id, chunks[:half], events))
	k.say("append rest", k.d.AppendChunks(k.ctx, id, chunks, events))
	other := chunks[0].Clone()
	other.CRC++
	k.say("append damaged", k.d.AppendChunks(k.ctx, id, []*chunk.Chunk{other}, nil))
	moved := chunks[0].Clone()
	moved.No += 100
	k.say("append elsewhere", k.d.AppendChunks(k.ctx, id, []*chunk.Chunk{moved}, nil))
	k.side(id)
	k.everything(id)
	r := &measure.Result{FirstScan: chunks[0].FirstScan + 7, Samples: scans / 2, From: 0.2, To: 2.9, Gaps: 1, Lost: 12, Total: measure.Estimate{Energy: 100, U: measure.Joule(math.NaN())}, Mean: 37, Peak: 240}
	for i := range s.Rails {
		r.Rails = append(r.Rails, measure.RailResult{
			Name: s.Rails[i].Name, Role: s.Rails[i].Role, Energy: measure.Estimate{Energy: 1.0 / 3, U: 1e-300},
			Budget: []measure.Contribution{{Source: "gain", U: 0.6, Systematic: true}},
		})
	}
	r.Budget = []measure.Contribution{{Source: "gain", U: 0.7, Systematic: true}, {Source: "quantisation", U: 0.01}}
	nvml := measure.Joule(98.5)
	o := store.Outcome{
		State: store.Complete, Reason: "é", Result: r, NVML: &nvml,
		Markers: []marker.Found{
			{Kind: marker.Start, T: 0.1, PSLR: measure.Decibel(math.Inf(1)), Tag: 0xffffffff, TagOK: true, Edges: []marker.Edge{{Chip: 3, T: 0.103}, {Chip: 0, U: measure.Seconds(math.NaN())}}},
			{Kind: marker.Stop, T: 3, Fallback: true},
		},
		Clock: &clock.Fit{Origin: 1.7e9, A: 0.5, B: 1.00002, VarA: 1e-12, CovAB: -1e-13, Used: 12, Rejected: 1},
	}
	k.say("finish", k.d.Finish(k.ctx, id, o))
	k.say("finish again", k.d.Finish(k.ctx, id, o))
	k.say("name energies", k.d.PutNameEnergies(k.ctx, id, 1, []store.NameEnergy{{Class: store.KernelEnergy, Name: "k", Launches: 3, Busy: 0.1, Energy: measure.Estimate{Energy: 3, U: 1}}}))
	k.say("no such result", k.d.PutNameEnergies(k.ctx, id, 9, nil))
	k.recalculated(id, s, r)
	k.everything(id)
	if x, err := k.d.Task(k.ctx, id); err != nil || x.Scans != scans || len(x.Results) != 2 || x.State != store.Complete {
		t.Fatalf("task %d has %d of %d scans and %d results: %v", id, x.Scans, scans, len(x.Results), err)
	}
}

func (k *talk) recalculated(id store.TaskID, s measure.Setup, r *measure.Result) {
	better := s
	better.Records = append(better.Records, measure.CalibrationRecord{ID: "r-2", Text: "{}"})
	for range 2 {
		no, added, err := k.d.AddResult(k.ctx, id, better, r)
		k.say("add result", err, no, added)
	}
	shifted := *r
	shifted.To++
	_, _, err := k.d.AddResult(k.ctx, id, s, &shifted)
	k.say("another window", err)
}

// side stores what goes beside the samples, in few rows and in many.
func (k *talk) side(id store.TaskID) {
	var readings []store.Reading
	for i := range 300 {
		readings = append(readings, store.Reading{Method: []string{"nvml.instant", "nvml.energy"}[i%2], At: epoch.Add(time.Duration(i%250) * time.Millisecond), Value: float64(i)})
	}
	readings[7].Value = math.NaN()
	k.say("readings", k.d.PutReadings(k.ctx, id, readings))
	k.say("readings again", k.d.PutReadings(k.ctx, id, readings[:3]))
	k.say("readings of none", k.d.PutReadings(k.ctx, 999, readings[:3]))
	kernels := []store.Kernel{{Name: "k<float, 3>", Start: epoch, End: epoch.Add(time.Second)}, {Name: strings.Repeat("z\x00", 4500), Start: epoch, End: epoch.Add(time.Second)}}
	k.say("kernels", k.d.PutKernels(k.ctx, id, kernels))
	k.say("kernels again", k.d.PutKernels(k.ctx, id, append(kernels, kernels...)))
	k.say("played", k.d.PutPlayed(k.ctx, id, []store.Played{{Kind: marker.Start, Number: 1, Chip: 2, At: epoch}, {Kind: marker.Start, Chip: 2, At: epoch}, {Kind: marker.Start, Chip: 2, At: epoch.Add(1)}}))
	k.say("tables", k.d.PutLaunchTables(k.ctx, id, store.LaunchTables{
		Processes: []store.LaunchProcess{{PID: 0xffffffff, CUPTI: 26, Kernels: 9, Whole: true, Trouble: "none"}},
		Names:     []string{"a", "b"}, Devices: []store.LaunchDevice{{Ordinal: 1, UUID: "GPU-1", Measured: true}},
	}))
	var launches []store.Launch
	for i := range 5000 {
		launches = append(launches, store.Launch{Start: int64(i / 2), End: int64(i), Name: i % 2, Stream: 0xffffffff, Correlation: uint32(i), Grid: [3]uint32{1, 2, 3}, Block: [3]uint32{0xffffffff, 1, 1}})
	}
	k.say("launches", k.d.PutLaunches(k.ctx, id, 0, launches))
	k.say("launches again", k.d.PutLaunches(k.ctx, id, 4000, launches[4000:]))
	nan := measure.Seconds(math.NaN())
	m := store.MethodResult{Method: "sma", From: epoch, To: epoch.Add(1), Energy: 3, Mean: measure.Watt(math.NaN()), Readings: 4, Call: store.Timing{N: 4, P50: 1, P99: nan, Max: 3}, Note: "n"}
	m2 := m
	m2.Method, m2.Note, m2.Mean = "papi", "", 7
	k.say("methods", k.d.PutMethods(k.ctx, id, []store.MethodResult{m, m2, m}))
	k.say("methods again", k.d.PutMethods(k.ctx, id, []store.MethodResult{m}))
	k.say("tiny", k.d.PutTiny(k.ctx, id, store.Tiny{
		Method: "fold", Kernel: "k", Launches: 3, Energy: measure.Estimate{Energy: 1e-3, U: 1e-5}, Carrier: measure.Watt(math.NaN()),
		Budget: []measure.Contribution{{Source: "noise", U: 1}}, Plan: json.RawMessage(`{"a":1}`), Warnings: []string{"w"},
		Profile: []store.TinyBin{{At: 1, Power: 2, U: 3, Readings: 4}, {At: 2}},
	}))
}

func (k *talk) analyses() {
	for i, name := range []string{"m", "m", "n"} {
		v, err := k.d.PutAnalysis(k.ctx, store.Analysis{Kind: "model", Name: name, Made: epoch, Maker: "test", Content: json.RawMessage(fmt.Sprintf(`{"é": %d}`, i)), Tasks: []store.TaskID{1, 2, 1}})
		k.say("put analysis", err, v)
	}
	for v := range 4 {
		a, err := k.d.Analysis(k.ctx, "model", "m", v)
		k.say("analysis", err, a)
	}
	n, err := k.d.DeleteAnalysis(k.ctx, "model", "m", 1)
	k.say("delete analysis", err, n)
	_, err = k.d.DeleteAnalysis(k.ctx, "model", "x", 0)
	k.say("delete analysis", err)
}

func (k *talk) instructions() {
	c := store.InstructionCampaign{GPU: "H200", GPUUUID: "GPU-1", Driver: "570", Started: epoch, Seed: 1<<64 - 1, Host: "h", Version: "v"}
	id, err := k.d.BeginInstructions(k.ctx, c)
	k.say("begin campaign", err, id)
	_, err = k.d.BeginInstructions(k.ctx, c)
	k.say("begin campaign again", err)
	for i := range 3 {
		n, err := k.d.AddInstruction(k.ctx, id, store.InstructionRun{
			Pass: i, Instruction: "FFMA", Layout: "l", Level: 1, Steps: 2, ProgramRun: store.ProgramRun{
				Block: i == 1, Turns: 1<<64 - 1, Time: 0.1, Checked: true, Reads: 100, SM: measure.Hertz(float64(i) * 1.9876543219e9),
				Celsius: 40.5 * float64(i), Power: map[string]measure.Watt{"a": 1, "b": 2.5},
			},
		})
		k.say("add run", err, n)
	}
	k.say("powers", k.d.AddInstructionPowers(k.ctx, id, "a", map[int]measure.Watt{1: 7}))
	_, err = k.d.AddInstruction(k.ctx, 99, store.InstructionRun{})
	k.say("no campaign", err)
	k.lists()
	k.say("delete campaign", k.d.DeleteInstructions(k.ctx, id))
}

// TestLabelsAsInAFile tags, notes, pins, searches and packs tasks in a file and on
// a server, which must say the same.
func TestLabelsAsInAFile(t *testing.T) {
	file, server := talk{d: openFile(t), ctx: t.Context()}, talk{d: open(t), ctx: t.Context()}
	for _, k := range []*talk{&file, &server} {
		labelled(t, k)
	}
	for i := range file.said {
		if diff := cmp.Diff(file.said[i], server.said[i], nans...); diff != "" {
			t.Fatalf("answer %d, %s: (-file +server)\n%s", i, file.said[i].Call, diff)
		}
	}
	if len(server.said) != len(file.said) {
		t.Fatalf("%d and %d answers", len(file.said), len(server.said))
	}
}

func labelled(t *testing.T, k *talk) {
	n := newTask("gemm 4096 fp16", "lab")
	n.Tags = map[string]string{"node": "n-17", "sweep": "a/b"}
	n.Provenance = &store.Provenance{Host: "h", OS: "linux", Command: []string{"./gemm", "é"}, GitCommit: "abc", GitDirty: true}
	id, err := k.d.BeginTask(k.ctx, n)
	k.say("begin", err, id)
	no, err := k.d.AddNote(k.ctx, id, epoch, "first light; fan at 30 %")
	k.say("note", err, no)
	second, err := k.d.BeginTask(k.ctx, newTask("gemv", "lab"))
	k.say("begin", err, second)
	k.say("tags", k.d.SetTags(k.ctx, id, map[string]string{"node": "n-18", "new": ""}, []string{"sweep"}))
	k.say("tags of none", k.d.SetTags(k.ctx, 99, map[string]string{"a": "b"}, nil))
	for _, text := range []string{"the fan stood still", "it runs again"} {
		no, err := k.d.AddNote(k.ctx, second, epoch, text)
		k.say("note", err, no)
	}
	k.say("remove note", k.d.RemoveNote(k.ctx, second, 1))
	k.say("pin", k.d.Pin(k.ctx, second, true))
	for _, q := range []store.Query{
		{Search: "gemm"},
		{Search: "fan 30"},
		{Search: "runs ag"},
		{Search: "n-18"},
		{Search: "n-17"},
		{Search: "stood"},
		{Search: `"; DROP`},
		{Tags: map[string]string{"node": "n-18"}},
		{Tags: map[string]string{"new": ""}},
		{Name: "gem*"},
	} {
		list, err := k.d.Tasks(k.ctx, q)
		k.say("search "+q.Search, err, list)
	}
	yes := true
	k.say("relabel", k.d.Relabel(k.ctx, id, store.Relabelling{Set: map[string]string{"узел": "a'b"}, Only: true, Pinned: &yes}))
	k.say("relabel none", k.d.Relabel(k.ctx, 99, store.Relabelling{Only: true}))
	k.say("tags", k.d.SetTags(k.ctx, id, map[string]string{"node": "n-18"}, nil))
	k.say("tags", k.d.SetTags(k.ctx, second, map[string]string{"node": "n-19"}, nil))
	for _, f := range []store.Filter{
		{Tags: []store.Tag{{Key: "node"}}, Without: []store.Tag{{Key: "node", Value: "n-19"}}},
		{Tags: []store.Tag{{Key: "узел", Value: "a'b"}}},
		{Without: []store.Tag{{Key: "узел"}}, Search: "gem runs"},
		{Search: "A'B n"},
		{Search: "- gemm"},
		{Search: "-"},
	} {
		page, err := k.d.List(k.ctx, store.ListQuery{Filter: f})
		k.say(fmt.Sprintf("list %+v", f), err, page)
		rows, err := k.d.Aggregate(k.ctx, store.AggregateQuery{Filter: f, By: store.ByTag, Tag: "node"})
		k.say(fmt.Sprintf("by tag %+v", f), err, rows)
	}
	for by := store.ByUser; by <= store.ByTag; by++ {
		rows, err := k.d.Aggregate(k.ctx, store.AggregateQuery{By: by, Tag: "node", Offset: 3600})
		k.say(fmt.Sprintf("by %d", by), err, rows)
	}
	for _, f := range []store.Filter{{Name: "*m*v"}, {Name: "*[x]*"}, {Name: `g?m? \\*`}, {Name: "%*%"}, {Name: "???v*?"}, {Name: "*_*"}, {GPU: "H2"}} {
		page, err := k.d.List(k.ctx, store.ListQuery{Filter: f, Order: store.ByName})
		k.say(fmt.Sprintf("list %+v", f), err, page)
	}
	sum, err := k.d.Totals(k.ctx, store.Filter{Name: "g*[x]*", GPU: "h", MinDuration: 1})
	k.say("totals", err, sum)
	list, err := k.d.Tasks(k.ctx, store.Query{Without: []store.Tag{{Key: "node", Value: "n-19"}}})
	k.say("without", err, len(list))
	marks, err := k.d.Marks(k.ctx, 1, nil)
	k.say("marks", err, len(marks)) // their sums count within one database
	ids, err := k.d.TaskIDs(k.ctx)
	k.say("ids", err, ids)
	k.measured(t, id, rand.New(rand.NewPCG(9, 9)))
	k.say("delete", k.d.DeleteTask(k.ctx, id))
	list, err = k.d.Tasks(k.ctx, store.Query{Search: "gemm"})
	k.say("search", err, list)
}
