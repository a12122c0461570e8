package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// TestCopyThereAndBack copies a file's tasks to a server and from there to a new
// file, where they must be what they were.
func TestCopyThereAndBack(t *testing.T) {
	coverage.Long(t)
	ctx := t.Context()
	first, server, last := openFile(t), open(t), openFile(t)
	rng := rand.New(rand.NewPCG(5, 5))
	k := talk{d: first, ctx: ctx}
	group := must(first.BeginGroup(ctx, store.NewGroup{Name: "two", User: "lab", Launched: epoch, Members: []store.GroupMember{{GPU: "H200"}, {GPU: "H200", Reason: "none"}}}))(t)
	for i := range 4 {
		n := newTask("gemm", []string{"lab", "Lab"}[i%2])
		n.CaptureID = string(rune('a' + i))
		if i == 2 {
			n.Group = store.GroupRef{Group: group}
		}
		id := must(first.BeginTask(ctx, n))(t)
		if i > 0 {
			k.measured(t, id, rng)
		}
	}
	k.analyses()
	k.instructions()
	copyAll(t, first, server)
	copyAll(t, server, last)
	for id := store.TaskID(2); id <= 4; id++ {
		was, is := talk{d: first, ctx: ctx}, talk{d: last, ctx: ctx}
		was.everything(id)
		is.everything(id - 1) // the first still ran, and was left out
		for i := range was.said {
			for _, s := range []*said{&was.said[i], &is.said[i]} {
				if x, isTask := firstOf(s.Values).(store.Task); isTask {
					x.ID = 0
					s.Values[0] = x
				}
			}
			if diff := cmp.Diff(was.said[i], is.said[i], nans...); diff != "" {
				t.Fatalf("task %d, %s: (-first file +last file)\n%s", id, was.said[i].Call, diff)
			}
		}
	}
	for _, d := range []*store.DB{server, last} {
		if got := must(d.Group(ctx, 1))(t); got.Members[0].Task != 2 || got.Members[1].Reason != "none" {
			t.Errorf("the group is %+v", got)
		}
		if n := len(must(d.Analyses(ctx, ""))(t)); n != 2 {
			t.Errorf("%d analyses, want 2", n)
		}
	}
}

// A seal that a server made holds in a file, and the other way round.
func TestSealsHoldInEveryDatabase(t *testing.T) {
	file, server, last := openFile(t), open(t), openFile(t)
	for i, d := range []*store.DB{file, server} {
		n := newTask("gemm", "lab")
		n.CaptureID = string(rune('a' + i))
		k := talk{d: d, ctx: t.Context()}
		k.measured(t, must(d.BeginTask(t.Context(), n))(t), rand.New(rand.NewPCG(uint64(i), 5)))
	}
	for _, way := range [][2]*store.DB{{file, server}, {server, last}} {
		for _, x := range must(way[0].Tasks(t.Context(), store.Query{}))(t) {
			must(way[0].CopyTask(t.Context(), way[1], x.ID, store.CopyOptions{}))(t)
		}
	}
	for _, d := range []*store.DB{file, last} {
		var tasks, sealed int
		ok(t, d.SQL().QueryRow(`SELECT count(*), count(seal) FROM task`).Scan(&tasks, &sealed))
		if sealed != tasks || d == last && tasks != 2 {
			t.Errorf("%d of %d tasks are sealed", sealed, tasks)
		}
		for _, f := range must(d.Check(t.Context(), store.CheckOptions{}))(t).Findings {
			if f.Kind == store.BadSeal || f.Kind == store.BadCalibration {
				t.Errorf("%+v", f)
			}
		}
	}
}

func firstOf(v []any) any {
	if len(v) == 0 {
		return nil
	}
	return v[0]
}

// copyAll copies what does not run any more, twice: the second time all is known.
func copyAll(t *testing.T, from, to *store.DB) {
	t.Helper()
	ids := map[store.TaskID]store.TaskID{}
	for round := range 2 {
		list := must(from.Tasks(t.Context(), store.Query{}))(t)
		for i := range list {
			x := must(from.Task(t.Context(), list[len(list)-1-i].ID))(t)
			done, err := from.CopyTask(t.Context(), to, x.ID, store.CopyOptions{})
			if x.State == store.Running {
				if !errors.Is(err, store.ErrRunning) {
					t.Fatalf("a task that runs: %v", err)
				}
				continue
			}
			ok(t, err)
			if done.Known != (round == 1) || len(done.Differs) > 0 || round == 0 && (done.Chunks != x.Chunks || done.Scans != x.Scans || done.Rows == 0) {
				t.Fatalf("round %d: %+v of %d chunks and %d scans", round, done, x.Chunks, x.Scans)
			}
			ids[x.ID] = done.To
		}
		if n := must(from.CopyAnalyses(t.Context(), to, ids))(t); (n == 0) != (round == 1) {
			t.Fatalf("round %d: %d analyses were copied", round, n)
		}
	}
}

// TestCopyGoesOnWhereItWasInterrupted breaks a copy off behind its samples.
func TestCopyGoesOnWhereItWasInterrupted(t *testing.T) {
	from, to := openFile(t), open(t)
	k := talk{d: from, ctx: t.Context()}
	id := must(from.BeginTask(t.Context(), newTask("gemm", "lab")))(t)
	k.measured(t, id, rand.New(rand.NewPCG(5, 6)))
	ctx, stop := context.WithCancel(t.Context())
	_, err := from.CopyTask(ctx, to, id, store.CopyOptions{Samples: func(uint64) { stop() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("an interrupted copy says %v", err)
	}
	if _, err := to.Task(t.Context(), 1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("half a copy is shown: %v", err)
	}
	if ids := must(to.TaskIDs(t.Context()))(t); len(ids) != 0 {
		t.Errorf("half a copy is listed: %v", ids)
	}
	if n := must(to.Sweep(t.Context()))(t); n != 0 {
		t.Errorf("half a copy of a process that runs was swept")
	}
	done := must(from.CopyTask(t.Context(), to, id, store.CopyOptions{}))(t)
	if !done.Resumed || done.Known || done.To != 1 {
		t.Errorf("the second copy says %+v", done)
	}
	if got := must(to.Task(t.Context(), 1))(t); got.State != store.Complete || got.Scans == 0 {
		t.Errorf("the copy is in state %d with %d scans", got.State, got.Scans)
	}
}

// TestCopyTellsAndUpdatesWhatDiffers changes tasks behind a copy's back, on a server
// and in a file.
func TestCopyTellsAndUpdatesWhatDiffers(t *testing.T) {
	coverage.Long(t)
	ctx := t.Context()
	first, server, last := openFile(t), open(t), openFile(t)
	for i, pair := range [][2]*store.DB{{first, server}, {server, last}} {
		from, to := pair[0], pair[1]
		if i == 0 {
			n := newTask("gemm", "lab")
			n.Tags, n.Note, n.Provenance = map[string]string{"node": "a"}, "first", &store.Provenance{Host: "h"}
			id := must(from.BeginTask(ctx, n))(t)
			k := talk{d: from, ctx: ctx}
			k.measured(t, id, rand.New(rand.NewPCG(6, 6)))
		}
		done := must(from.CopyTask(ctx, to, 1, store.CopyOptions{}))(t)
		differs := func(o store.CopyOptions, want ...string) {
			t.Helper()
			x := must(from.CopyTask(ctx, to, 1, o))(t)
			if d := cmp.Diff(want, x.Differs); d != "" || !x.Known || x.Updated != (o.Update && len(want) > 0) || x.To != done.To {
				t.Fatalf("%d: %s in %+v", i, d, x)
			}
		}
		differs(store.CopyOptions{Update: true})
		ok(t, to.SetTags(ctx, done.To, map[string]string{"own": "x"}, nil))
		differs(store.CopyOptions{}, "tags")
		differs(store.CopyOptions{Update: true}, "tags")
		ok(t, from.SetTags(ctx, 1, map[string]string{"node": []string{"b", "c"}[i]}, nil))
		must(from.AddNote(ctx, 1, epoch, "second"))(t)
		ok(t, from.Pin(ctx, 1, i == 0))
		ok(t, from.PutProvenance(ctx, 1, store.Provenance{Host: []string{"other", "third"}[i]}))
		differs(store.CopyOptions{}, "notes", "pin", "provenance", "tags")
		before := must(to.Task(ctx, done.To))(t)
		if before.Provenance.Host == []string{"other", "third"}[i] || len(before.Notes) != 1+i {
			t.Errorf("%d: it was touched: %+v", i, before.Notes)
		}
		x := must(from.Task(ctx, 1))(t)
		x.Setup.Channels[0].Gain *= 1.01
		x.Result.Total.Energy *= 1.01
		if _, _, err := from.AddResult(ctx, 1, x.Setup, x.Result); err != nil {
			t.Fatal(err)
		}
		differs(store.CopyOptions{}, "notes", "pin", "provenance", "results", "tags")
		differs(store.CopyOptions{Update: true}, "notes", "pin", "provenance", "results", "tags")
		differs(store.CopyOptions{Update: true})
		was, is := talk{d: from, ctx: ctx}, talk{d: to, ctx: ctx}
		was.everything(1)
		is.everything(done.To)
		if d := cmp.Diff(was.said, is.said, nans...); d != "" {
			t.Fatalf("%d: (-from +to)\n%s", i, d)
		}
	}
}

// Several programs that take the same task at once store it once.
func TestTakenOnceBySeveral(t *testing.T) {
	ctx := t.Context()
	host, bare, server := openFile(t), openFile(t), open(t)
	k := talk{d: host, ctx: ctx}
	id := must(host.BeginTask(ctx, newTask("gemm", "lab")))(t)
	k.measured(t, id, rand.New(rand.NewPCG(5, 6)))
	must(bare.Import(ctx, host, store.ImportOptions{Tasks: []store.TaskID{id}, KeepIDs: true, NoSamples: true}))(t)
	a := store.Arriving{Chunks: func(ctx context.Context, from uint64) iter.Seq2[*chunk.Chunk, error] {
		return host.Chunks(ctx, id, from)
	}}
	for c, err := range host.Chunks(ctx, id, 0) {
		ok(t, err)
		a.CRCs = append(a.CRCs, c.CRC)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := server.TakeTask(ctx, bare, id, a); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ids := must(server.TaskIDs(ctx))(t); len(ids) != 1 {
		t.Fatalf("it is there %d times", len(ids))
	}
	x, want := must(server.Task(ctx, 1))(t), must(host.Task(ctx, id))(t)
	if x.State != want.State || x.Chunks != want.Chunks || x.Scans != want.Scans {
		t.Errorf("%v, %d chunks, %d scans; want %v, %d, %d", x.State, x.Chunks, x.Scans, want.State, want.Chunks, want.Scans)
	}
}

// sampleRow is a row of the view data.
type sampleRow struct {
	task, seq        int64
	name, user, when string
	v                [7]float64 // power, currents, voltages; NaN for NULL
}

const sampleQuery = `SELECT taskID, taskName, "user", taskTime, seqNum,
	power, current1, current2, current3, voltage1, voltage2, voltage3 FROM data `

func samples(t testing.TB, d *store.DB, tail string) (out []sampleRow) {
	t.Helper()
	rows := must(d.SQL().QueryContext(t.Context(), sampleQuery+tail))(t)
	defer rows.Close()
	for rows.Next() {
		var r sampleRow
		var v [7]sql.NullFloat64
		ok(t, rows.Scan(&r.task, &r.name, &r.user, &r.when, &r.seq, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6]))
		for i := range v {
			if r.v[i] = v[i].Float64; !v[i].Valid {
				r.v[i] = math.NaN()
			}
		}
		out = append(out, r)
	}
	ok(t, rows.Err())
	return out
}

// windowed stores a random task whose window, if it has one, cuts chunks.
func windowed(t testing.TB, d *store.DB, rng *rand.Rand) {
	tb := measure.Timebase{TickHz: 1e6, TicksPerScan: 50, Stamped: rng.IntN(2) == 0}
	s := randomSetup(rng, tb)
	id := must(d.BeginTask(t.Context(), newTask("gemm", "lab")))(t)
	ok(t, d.PutHeader(t.Context(), id, header(s)))
	chunks, scans := randomChunks(t, rng, s)
	ok(t, d.AppendChunks(t.Context(), id, chunks, nil))
	if rng.IntN(3) > 0 {
		r := &measure.Result{FirstScan: chunks[0].FirstScan + rng.Uint64N(1+scans/2), Samples: rng.Uint64N(scans)}
		ok(t, d.Finish(t.Context(), id, store.Outcome{State: store.Complete, Result: r}))
	}
}

// TestDataIsWhatOurDecoderSays holds the server's view against the decoder in Go
// that serves a file's.
func TestDataIsWhatOurDecoderSays(t *testing.T) {
	coverage.Long(t)
	file, address := openFile(t), database(t)
	server := openAt(t, address)
	const tasks = 24
	for _, d := range []*store.DB{file, server} {
		rng := rand.New(rand.NewPCG(3, 3))
		for range tasks {
			windowed(t, d, rng)
		}
	}
	total := 0
	for id := 1; id <= tasks; id++ {
		tail := fmt.Sprintf("WHERE taskID=%d ORDER BY seqNum", id)
		want, got := samples(t, file, tail), samples(t, server, tail)
		if len(want) != len(got) {
			t.Fatalf("task %d: %d rows on the server, %d in the file", id, len(got), len(want))
		}
		for i := range want {
			sameSample(t, want[i], got[i])
		}
		total += len(want)
	}
	if total < 5000 {
		t.Fatalf("only %d samples were compared", total)
	}
	if n := psql(t, address, "SELECT count(power) FROM data"); n != strconv.Itoa(total) {
		t.Errorf("psql counts %s samples, there are %d", n, total)
	}
	first := strings.Split(psql(t, address, `SELECT * FROM data WHERE taskID=1 ORDER BY seqNum LIMIT 1`), "|")
	if len(first) != 12 || first[0] != "1" || first[1] != "gemm" || first[2] != "lab" {
		t.Errorf("psql shows %q", first)
	}
	if n := psql(t, address, `SELECT count(*) FROM data WHERE "user"='nobody'`); n != "0" {
		t.Errorf("psql finds %s samples of nobody", n)
	}
}

func sameSample(t *testing.T, want, got sampleRow) {
	t.Helper()
	w, g := want, got
	w.v, g.v = [7]float64{}, [7]float64{}
	if w != g {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	scale := 1.0
	for _, v := range want.v {
		if !math.IsNaN(v) {
			scale = max(scale, math.Abs(v))
		}
	}
	for i := range want.v {
		a, b := want.v[i], got.v[i]
		if math.IsNaN(a) != math.IsNaN(b) || math.Abs(a-b) > 1e-9*scale*(1+math.Abs(a)) {
			t.Fatalf("task %d, sample %d, value %d: got %v, want %v", want.task, want.seq, i, b, a)
		}
	}
}

// Tasks of an older version get the pyramid that they would have had, once.
func TestBuildPyramids(t *testing.T) {
	ctx := t.Context()
	address := database(t)
	d := openAt(t, address)
	for i := range 3 {
		id, chunks := stream(t, d, "gemm", 60)
		ok(t, d.AppendChunks(ctx, id, chunks, nil))
		if i < 2 { // the last one still runs
			ok(t, d.Finish(ctx, id, store.Outcome{State: store.Untrimmed, Reason: "no marker"}))
		}
	}
	c := must(pgx.Connect(ctx, address))(t)
	defer c.Close(ctx)
	stored := func() (out []string) {
		t.Helper()
		for _, table := range []string{"pyramid", "pyramid_whole"} {
			rows := must(c.Query(ctx, "SELECT x::text FROM "+table+" x WHERE task_id<3 ORDER BY 1"))(t)
			out = append(out, must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)...)
		}
		return out
	}
	want := stored()
	if len(want) < 4 {
		t.Fatalf("two tasks have %d rows of pyramids", len(want))
	}
	for _, table := range []string{"pyramid", "pyramid_whole"} {
		must(c.Exec(ctx, "DELETE FROM "+table))(t)
	}
	var told []string
	tell := func(id store.TaskID, err error) { told = append(told, fmt.Sprint(id, " ", err)) }
	for range 2 { // the second time nothing is left to do
		ok(t, openAt(t, address).BuildPyramids(ctx, tell))
	}
	if made := []string{"2 <nil>", "1 <nil>"}; !slices.Equal(told, made) {
		t.Errorf("made %q, want %q", told, made)
	}
	if got := stored(); !slices.Equal(got, want) {
		t.Errorf("%d rows instead of %d, or others", len(got), len(want))
	}
}
