package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
)

// stream makes a task and n chunks of it.
func stream(t testing.TB, d *store.DB, name string, n int) (store.TaskID, []*chunk.Chunk) {
	t.Helper()
	s := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 50},
		Channels: []measure.Channel{{Name: "i", Unit: measure.UnitAmpere, Gain: 0.01}, {Name: "v", Unit: measure.UnitVolt, Gain: 0.01}},
		Rails:    []measure.Rail{{Name: "psu", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}},
	}
	id := must(d.BeginTask(t.Context(), newTask(name, "lab")))(t)
	ok(t, d.PutHeader(t.Context(), id, header(s)))
	rng := rand.New(rand.NewPCG(uint64(id), 1))
	b := measure.Block{Counts: [][]measure.Count{randomCounts(rng, 300*n), randomCounts(rng, 300*n)}}
	return id, encode(t, s.Timebase, b, 300, 0)
}

func numbers(t testing.TB, d *store.DB, id store.TaskID) (out []uint64) {
	t.Helper()
	for c, err := range d.Chunks(t.Context(), id, 0) {
		ok(t, err)
		out = append(out, c.No)
	}
	return out
}

// TestWritersBesideAReader lets two programs write two tasks, and both of them a
// third, while another reads.
func TestWritersBesideAReader(t *testing.T) {
	address := database(t)
	programs := []*store.DB{openAt(t, address), openAt(t, address)}
	reader := must(store.OpenReadOnly(t.Context(), address))(t)
	defer reader.Close()
	const n = 30
	shared, both := stream(t, programs[0], "shared", n)
	var wg sync.WaitGroup
	ids := make([]store.TaskID, 2)
	for i, d := range programs {
		id, own := stream(t, d, fmt.Sprint("own ", i), n)
		ids[i] = id
		wg.Go(func() {
			for k := range own {
				if err := errors.Join(d.AppendChunks(t.Context(), id, own[k:k+1], nil), d.AppendChunks(t.Context(), shared, both[k:k+1], nil)); err != nil {
					t.Errorf("program %d, chunk %d: %v", i, k, err)
				}
			}
			if err := d.Finish(t.Context(), id, store.Outcome{State: store.Complete}); err != nil {
				t.Error(err)
			}
		})
	}
	stop := make(chan struct{})
	var read sync.WaitGroup
	read.Go(func() {
		for {
			x, err := reader.Task(t.Context(), shared)
			if err == nil && x.Scans != 300*x.Chunks {
				err = fmt.Errorf("a task of %d chunks and %d scans", x.Chunks, x.Scans)
			}
			if err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	wg.Wait()
	close(stop)
	read.Wait()
	for _, id := range append(ids, shared) {
		if x := must(reader.Task(t.Context(), id))(t); x.Chunks != n || x.Scans != 300*n || len(numbers(t, reader, id)) != n {
			t.Errorf("task %d has %d chunks and %d scans", id, x.Chunks, x.Scans)
		}
	}
}

// TestKilledServerLosesNothing kills the server again and again under a writer.
// What was acknowledged is there when the server is back, and the writer goes on
// over the same handle.
func TestKilledServerLosesNothing(t *testing.T) {
	c := pgtest.Own(t)
	c.Make(t, "w")
	d := openAt(t, c.URL("w"))
	const n, every = 60, 30
	id, chunks := stream(t, d, "gemm", n)
	acknowledged := make(chan uint64)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(acknowledged)
		for _, x := range chunks {
			// An error may be that of a commit whose answer was lost: the chunk is
			// put again, as a capture's transfer does.
			err := d.AppendChunks(t.Context(), id, []*chunk.Chunk{x}, nil)
			for tries := 0; err != nil && tries < 3; tries++ {
				if !errors.Is(err, store.ErrUnreachable) {
					t.Errorf("chunk %d: %v", x.No, err)
				}
				err = d.AppendChunks(t.Context(), id, []*chunk.Chunk{x}, nil)
			}
			if err != nil {
				t.Errorf("chunk %d for good: %v", x.No, err)
			}
			acknowledged <- x.No
		}
	})
	last := uint64(0)
	for no := range acknowledged {
		last = no
		if no%every != every/2 {
			continue
		}
		c.Kill() // while the next chunk is written
		ok(t, c.Start())
		r := must(store.OpenReadOnly(t.Context(), c.URL("w")))(t)
		if got := numbers(t, r, id); uint64(len(got)) < last+1 {
			t.Fatalf("%d chunks were acknowledged, %d are there", last+1, len(got))
		}
		ok(t, r.Close())
	}
	wg.Wait()
	if got := numbers(t, d, id); len(got) != n || last != n-1 {
		t.Errorf("%d of %d chunks at the end, the last one is %d", len(got), n, last)
	}
	if x := must(d.Task(t.Context(), id))(t); x.Chunks != n || x.Scans != 300*n {
		t.Errorf("the task counts %d chunks and %d scans", x.Chunks, x.Scans)
	}
}

// TestErrorsSayWhatIsWrong opens what cannot be opened.
func TestErrorsSayWhatIsWrong(t *testing.T) {
	c := pgtest.Own(t, "fsync=off")
	for _, name := range []string{"other", "newer", "barred", "empty"} {
		c.Make(t, name)
	}
	run := func(database, q string) {
		t.Helper()
		conn := must(pgx.Connect(t.Context(), c.URL(database)))(t)
		defer conn.Close(t.Context())
		_, err := conn.Exec(t.Context(), q)
		ok(t, err)
	}
	run("other", "CREATE TABLE task(x int)")
	ok(t, openAt(t, c.URL("newer")).Close())
	run("newer", "INSERT INTO wattmark_schema(version, name) VALUES(999, 'x')")
	ok(t, openAt(t, c.URL("barred")).Close())
	run("barred", `CREATE USER guest; GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest`)
	as := func(user, database string) string { return strings.Replace(c.URL(database), "wattmark@", user+"@", 1) }
	for _, x := range []struct {
		address string
		want    error
		says    string
	}{
		{c.URL("other"), store.ErrForeign, "search_path"},
		{c.URL("newer"), store.ErrNewer, "update the program"},
		{as("wattmark:hush", "nowhere"), store.ErrCannotOpen, "user, password and database"},
		{as("guest", "empty"), store.ErrReadOnly, "the right to write"},
		{"postgres://wattmark:hush@/w?host=/nonexistent", store.ErrUnreachable, "server runs"},
		{"postgres://wattmark:hush@host:port/w", store.ErrCannotOpen, "postgres://"},
		{"mysql://root:hush@host/w", store.ErrCannotOpen, "mysql://"},
	} {
		_, err := store.Open(t.Context(), x.address)
		if !errors.Is(err, x.want) || !strings.Contains(fmt.Sprint(err), x.says) || strings.Contains(fmt.Sprint(err), "hush") {
			t.Errorf("%s: %v", x.address, err)
		}
	}
	if _, err := store.OpenReadOnly(t.Context(), c.URL("empty")); !errors.Is(err, store.ErrOlder) || !strings.Contains(err.Error(), "open it once for writing") {
		t.Errorf("an empty database opened to read says %v", err)
	}
	guest := must(store.Open(t.Context(), as("guest", "barred")))(t)
	defer guest.Close()
	if _, err := guest.BeginTask(t.Context(), newTask("a", "b")); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("who may only read begins a task: %v", err)
	}
	reader := must(store.OpenReadOnly(t.Context(), c.URL("barred")))(t)
	defer reader.Close()
	if _, err := reader.BeginTask(t.Context(), newTask("a", "b")); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("a handle to read begins a task: %v", err)
	}
	if _, err := reader.SQL().ExecContext(t.Context(), "DELETE FROM task"); err == nil {
		t.Error("a reader's connection deletes")
	}
	if got := store.Conceal("postgres://a:hush@h/d?password=hush&sslmode=require"); got != "postgres://a@h/d?sslmode=require" {
		t.Errorf("an address is shown as %s", got)
	}
}

// TestManyMakeTheDatabase opens an empty database from many programs at once.
func TestManyMakeTheDatabase(t *testing.T) {
	address := database(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			d, err := store.Open(context.WithoutCancel(t.Context()), address)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := d.BeginTask(t.Context(), newTask("a", "b")); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := psql(t, address, "SELECT count(*) FROM task"); n != "6" {
		t.Errorf("%s tasks, want 6", n)
	}
}
