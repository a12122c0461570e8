package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// A backup is of one moment, whole, and made while a capture comes in.
func TestBackupWhileACaptureComesIn(t *testing.T) {
	noRaces(t)
	d := open(t)
	begin(t, d, threeRails(evenly))
	store := func(no uint64) error {
		c, events, err := crashChunk(no)
		if err == nil {
			err = d.AppendChunks(context.WithoutCancel(t.Context()), 1, []*chunk.Chunk{c}, events)
		}
		return err
	}
	for no := range uint64(10) {
		ok(t, store(no))
	}
	path := filepath.Join(t.TempDir(), "backup.db")
	stored := uint64(10)
	ok(t, d.Backup(t.Context(), path, func(int, int) { // between two steps of the copy
		ok(t, store(stored))
		stored++
	}))
	copied := must(OpenReadOnly(t.Context(), path))(t)
	defer copied.Close()
	if n := uint64(len(payloads(t, copied, 1, 0))); n != 10 || stored < 11 {
		t.Errorf("%d chunks in the copy of a moment with 10; %d were stored meanwhile", n, stored-10)
	}
	if f := check(t, copied); len(f) > 0 {
		t.Errorf("%+v", f)
	}
	if f := check(t, d); len(f) > 0 {
		t.Errorf("the original: %+v", f)
	}
	if _, err := os.Stat(path + partSuffix); err == nil {
		t.Error("the file that it was made in is left")
	}
	if err := d.Backup(t.Context(), path, nil); !errors.Is(err, ErrExists) {
		t.Errorf("over a file that is there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gone := filepath.Join(t.TempDir(), "gone.db")
	if err := d.Backup(ctx, gone, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if left, _ := filepath.Glob(gone + "*"); len(left) > 0 {
		t.Errorf("a backup that was cancelled left %v", left)
	}
}

func captured(t testing.TB, d *DB, name, user, capture string, seed uint64) TaskID {
	t.Helper()
	n := newTask(name, user)
	n.CaptureID, n.Tags, n.Note = capture, map[string]string{"node": "a3"}, "a remark"
	n.Provenance = &Provenance{Host: "gpu1", Command: []string{"wattmark", "run"}}
	id := must(d.BeginTask(t.Context(), n))(t)
	fillTask(t, d, id, seed)
	return id
}

func fillTask(t testing.TB, d *DB, id TaskID, seed uint64) {
	t.Helper()
	ctx := t.Context()
	ok(t, d.PutHeader(ctx, id, header(threeRails(evenly))))
	ok(t, d.AppendChunks(ctx, id, encode(t, evenly, ripple(rand.New(rand.NewPCG(seed, 3)), 6, 3000, 4), 700, 0), nil))
	ok(t, d.PutKernels(ctx, id, []Kernel{{"k", epoch, epoch.Add(time.Second)}}))
	ok(t, d.PutLaunches(ctx, id, 0, []Launch{{Start: 1, End: 2}, {Start: 3, End: 4}}))
	ok(t, d.PutReadings(ctx, id, []Reading{{"nvml.instant", epoch, 100}}))
	ok(t, d.Finish(ctx, id, Outcome{State: Complete, Result: summed(t, d, id, 0.005, 0.105)}))
	ok(t, d.PutNameEnergies(ctx, id, 1, []NameEnergy{{Class: KernelEnergy, Name: "k", Launches: 2}}))
}

// same compares all that belongs to a task in two databases, but for its numbers.
func same(t *testing.T, a *DB, ida TaskID, b *DB, idb TaskID) {
	t.Helper()
	x, y := must(a.Task(t.Context(), ida))(t), must(b.Task(t.Context(), idb))(t)
	x.ID, y.ID, x.Group.Group, y.Group.Group = 0, 0, 0, 0
	if diff := cmp.Diff(x, y, cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
	if !slices.EqualFunc(payloads(t, a, ida, 0), payloads(t, b, idb, 0), bytes.Equal) {
		t.Error("other samples")
	}
	for _, table := range must(copiedTables(t.Context(), a, nil))(t) {
		var m, n int
		ok(t, a.SQL().QueryRow(`SELECT count(*) FROM `+table.name+` WHERE task_id=?`, int64(ida)).Scan(&m))
		ok(t, b.SQL().QueryRow(`SELECT count(*) FROM `+table.name+` WHERE task_id=?`, int64(idb)).Scan(&n))
		if m != n {
			t.Errorf("table %s: %d rows, %d in the copy", table.name, m, n)
		}
	}
}

func TestImport(t *testing.T) {
	noRaces(t)
	from, to, ctx := open(t), open(t), t.Context()
	group := must(from.BeginGroup(ctx, NewGroup{Name: "train", User: "ada", Launched: epoch, Members: []GroupMember{{GPUUUID: "GPU-1"}, {GPUUUID: "GPU-2"}}}))(t)
	a := captured(t, from, "gemm", "ada", "c-1", 1)
	n := newTask("train", "bob")
	n.CaptureID, n.Group = "c-2", GroupRef{group, 1}
	b := must(from.BeginTask(ctx, n))(t)
	fillTask(t, from, b, 2)
	n.CaptureID, n.Group = "c-3", GroupRef{}
	running := must(from.BeginTask(ctx, n))(t)
	must(from.PutAnalysis(ctx, Analysis{Kind: "work", Name: "gemm", Made: epoch, Content: json.RawMessage(`{}`), Tasks: []TaskID{a}}))(t)
	if _, err := from.writer.Exec(`INSERT INTO instruction_campaign VALUES(5,'g','u','d',7,1,'h','v')`); err != nil {
		t.Fatal(err)
	}
	captured(t, to, "mine", "ada", "c-9", 3) // so that numbers differ
	captured(t, to, "mine", "ada", "c-8", 4)

	in := must(to.Import(ctx, from, ImportOptions{}))(t)
	if len(in.Tasks) != 2 || len(in.Running) != 1 || in.Running[0] != running || in.Analyses != 1 || in.Campaigns != 1 {
		t.Fatalf("%+v", in)
	}
	for i, id := range []TaskID{a, b} {
		same(t, from, id, to, in.Tasks[i].To)
	}
	if x := must(to.Analysis(ctx, "work", "gemm", 0))(t); len(x.Tasks) != 1 || x.Tasks[0] != in.Tasks[0].To {
		t.Errorf("the analysis rests on %v", x.Tasks)
	}
	task := must(to.Task(ctx, in.Tasks[1].To))(t)
	if g := must(to.Group(ctx, task.Group.Group))(t); g.Members[1].Task != task.ID || g.Members[0].Task != 0 {
		t.Errorf("group %+v", g)
	}
	if n := len(must(to.Calibrations(ctx))(t)); n != 1 {
		t.Errorf("%d calibrations of one", n)
	}
	if f := check(t, to); len(f) > 0 {
		t.Errorf("%+v", f)
	}
	if list := must(to.Tasks(ctx, Query{Search: "a3 remark", Tags: map[string]string{"node": "a3"}}))(t); len(list) != 3 {
		t.Errorf("found %d of 3 by their labels", len(list))
	}
	// Again: everything is known, and nothing is added.
	again := must(to.Import(ctx, from, ImportOptions{}))(t)
	if again.Analyses != 0 || again.Campaigns != 0 || !again.Tasks[0].Known || !again.Tasks[1].Known || again.Tasks[0].To != in.Tasks[0].To {
		t.Errorf("again: %+v", again)
	}
	if n := len(must(to.Tasks(ctx, Query{}))(t)); n != 4 {
		t.Errorf("%d tasks of 4", n)
	}
	// As an import that was interrupted leaves it.
	_, err := to.writer.Exec(`UPDATE task SET state=3, reason=?, chunks=0, scans=0 WHERE task_id=?`, importing, int64(in.Tasks[0].To))
	ok(t, err)
	_, err = to.writer.Exec(`DELETE FROM chunk WHERE task_id=? AND chunk_no>1`, int64(in.Tasks[0].To))
	ok(t, err)
	_, err = to.writer.Exec(`DELETE FROM pyramid WHERE task_id=?`, int64(in.Tasks[0].To))
	ok(t, err)
	rest := must(to.Import(ctx, from, ImportOptions{}))(t)
	if x := rest.Tasks[0]; !x.Resumed || x.Chunks != 3 || x.To != in.Tasks[0].To {
		t.Errorf("resumed: %+v", x)
	}
	same(t, from, a, to, in.Tasks[0].To)
}

func TestDetachedFileReadsInTheStockProgram(t *testing.T) {
	noRaces(t)
	d := open(t)
	captured(t, d, "other", "ada", "c-1", 1)
	id := captured(t, d, "gemm", "bob", "c-2", 2)
	path := filepath.Join(t.TempDir(), "trip.db")
	in := must(d.Detach(t.Context(), path, []TaskID{id}, nil))(t)
	if len(in.Tasks) != 1 || in.Tasks[0].To != id {
		t.Fatalf("%+v", in)
	}
	r := must(OpenReadOnly(t.Context(), path))(t)
	same(t, d, id, r, id)
	if f := check(t, r); len(f) > 0 {
		t.Errorf("%+v", f)
	}
	ok(t, r.Close())
	ok(t, os.Chmod(path, 0o444))
	ok(t, os.Chmod(filepath.Dir(path), 0o555)) // where nothing can be made beside it
	defer os.Chmod(filepath.Dir(path), 0o755)
	program, err := exec.LookPath("sqlite3")
	if err != nil {
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatal("the program sqlite3 is not installed")
		}
		t.Skip("the program sqlite3 is not installed: its reading of a detached file is not tested")
	}
	out, err := exec.Command(program, "-readonly", path, `PRAGMA journal_mode; PRAGMA integrity_check; SELECT count(*), count(DISTINCT taskID), min(taskName) FROM data; SELECT count(*) FROM task`).CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || !slices.Equal(got, []string{"delete", "ok", "2001|1|gemm", "1"}) {
		t.Errorf("%v %q", err, out)
	}
}

func TestVacuumGivesRoomBack(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := captured(t, d, "gemm", "ada", "c-1", 1)
	ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, func() measure.Block {
		b := ripple(rand.New(rand.NewPCG(5, 5)), 6, 200000, 40)
		b.FirstScan, b.FirstTick = 3000, 150000
		return b
	}(), 50000, 5), nil))
	ok(t, d.DeleteTask(t.Context(), id))
	before, after, err := d.Vacuum(t.Context())
	ok(t, err)
	if after > before-1000000 {
		t.Errorf("%d bytes, were %d", after, before)
	}
	if f := check(t, d); len(f) > 0 {
		t.Errorf("%+v", f)
	}
}

// bare makes a file of all of a task but its samples.
func bare(t *testing.T, d *DB, id TaskID) *DB {
	t.Helper()
	out := must(Open(t.Context(), filepath.Join(t.TempDir(), "bare.db")))(t)
	t.Cleanup(func() { ok(t, out.Close()) })
	in := must(out.Import(t.Context(), d, ImportOptions{Tasks: []TaskID{id}, KeepIDs: true, NoSamples: true}))(t)
	if n := len(payloads(t, out, in.Tasks[0].To, 0)); n != 0 {
		t.Fatalf("%d chunks in a file without samples", n)
	}
	return out
}

// arriving hands out a task's chunks, and ends with why after so many of them.
func arriving(t *testing.T, d *DB, id TaskID, most int, why error) Arriving {
	t.Helper()
	var a Arriving
	for c, err := range d.Chunks(t.Context(), id, 0) {
		ok(t, err)
		a.CRCs = append(a.CRCs, c.CRC)
	}
	a.Chunks = func(ctx context.Context, from uint64) iter.Seq2[*chunk.Chunk, error] {
		return func(yield func(*chunk.Chunk, error) bool) {
			n := 0
			for c, err := range d.Chunks(ctx, id, from) {
				if n == most {
					yield(nil, why)
					return
				}
				if n++; !yield(c, err) {
					return
				}
			}
		}
	}
	return a
}

func TestTakeTask(t *testing.T) {
	noRaces(t)
	from, to := open(t), open(t)
	captured(t, to, "other", "ada", "c-9", 9) // numbers differ
	id := captured(t, from, "gemm", "ada", "c-1", 1)
	meta := bare(t, from, id)
	gone := errors.New("the line broke")
	_, err := to.TakeTask(t.Context(), meta, id, arriving(t, from, id, 2, gone))
	if !errors.Is(err, gone) {
		t.Fatalf("%v", err)
	}
	if _, err := to.Task(t.Context(), 2); !errors.Is(err, ErrNotFound) {
		t.Errorf("a task half taken is shown: %v", err)
	}
	got := must(to.TakeTask(t.Context(), meta, id, arriving(t, from, id, -1, nil)))(t)
	if !got.Resumed || got.To != 2 || got.Chunks != 5 || got.Scans != 3000 {
		t.Errorf("%+v", got)
	}
	same(t, from, id, to, got.To)
	if f := check(t, to); len(f) > 0 {
		t.Errorf("%+v", f)
	}
	again := must(to.TakeTask(t.Context(), meta, id, arriving(t, from, id, 0, errors.New("nothing is read"))))(t)
	if !again.Known || again.To != 2 {
		t.Errorf("taken again: %+v", again)
	}
}

// A cold task travels as it was before it was packed.
func TestTakeColdTask(t *testing.T) {
	noRaces(t)
	from, to := open(t), open(t)
	id := captured(t, from, "gemm", "ada", "c-1", 1)
	must(from.Compact(t.Context(), id))(t)
	got := must(to.TakeTask(t.Context(), bare(t, from, id), id, arriving(t, from, id, -1, nil)))(t)
	must(from.Expand(t.Context(), id))(t)
	same(t, from, id, to, got.To)
}

// Of a task whose samples are not those that were told, nothing stays.
func TestTakeTaskChecksItsSamples(t *testing.T) {
	noRaces(t)
	from, to := open(t), open(t)
	id := captured(t, from, "gemm", "ada", "c-1", 1)
	meta := bare(t, from, id)
	for name, spoil := range map[string]func(*Arriving){
		"another checksum": func(a *Arriving) { a.CRCs[4]++ },
		"one too few":      func(a *Arriving) { a.CRCs = append(a.CRCs, 1) },
	} {
		a := arriving(t, from, id, -1, nil)
		spoil(&a)
		if _, err := to.TakeTask(t.Context(), meta, id, a); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if s := must(to.Stats(t.Context()))(t); s.Tasks != 0 {
			t.Errorf("%s: %d tasks", name, s.Tasks)
		}
		var n int
		if ok(t, to.writer.QueryRow(`SELECT (SELECT count(*) FROM task)+(SELECT count(*) FROM chunk)`).Scan(&n)); n != 0 {
			t.Errorf("%s: %d rows are left", name, n)
		}
	}
}

func TestTagsFindTasks(t *testing.T) {
	noRaces(t)
	d := open(t)
	a, b := captured(t, d, "one", "ada", "c-1", 1), captured(t, d, "two", "ada", "c-2", 2)
	begin(t, d, threeRails(evenly)) // still runs
	ok(t, d.SetTags(t.Context(), a, map[string]string{"replicated": "now"}, nil))
	if ids := must(d.Untagged(t.Context(), "replicated", 10))(t); len(ids) != 1 || ids[0] != b {
		t.Errorf("without the tag: %v", ids)
	}
	if m := must(d.Tagged(t.Context(), "replicated"))(t); len(m) != 1 || m[a] != "now" {
		t.Errorf("with the tag: %v", m)
	}
	if id := must(d.OfCapture(t.Context(), "bench:7000", "c-2"))(t); id != b {
		t.Errorf("capture c-2 is of task %d", id)
	}
	if _, err := d.OfCapture(t.Context(), "elsewhere", "c-2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}
