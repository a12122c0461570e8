package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/internal/freeport"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/cluster"
	"github.com/wattmark/wattmark/store/relay"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// alone starts a node without peers, and connects to it.
func alone(t *testing.T, s relay.StreamOptions) *relay.Bus {
	t.Helper()
	return heard(t, s, func(string) {})
}

// lines gets each line of a log.
type lines func(string)

func (f lines) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}

// heard is alone, and hears what the connection logs.
func heard(t *testing.T, s relay.StreamOptions, log lines) *relay.Bus {
	t.Helper()
	n := node(t, s)
	ok(t, n.Ready(t.Context()))
	b := must(relay.Dial(t.Context(), relay.Options{Servers: n.URL(), Name: t.Name(), Log: slog.New(slog.NewTextHandler(log, nil))}))(t)
	t.Cleanup(b.Close)
	return b
}

// node starts a node without peers, which has no streams yet.
func node(t *testing.T, s relay.StreamOptions) *cluster.Node {
	t.Helper()
	s.Replicas, s.Duplicates = 1, time.Minute
	s.Partitions = max(1, s.Partitions)
	n := must(cluster.Start(cluster.Config{
		Name: "n1", Dir: t.TempDir(), Listen: "127.0.0.1:0", Sync: time.Minute, Streams: s,
	}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		ok(t, <-ran)
	})
	return n
}

// Who connects before the nodes have made the streams waits for them.
func TestStreamsAreWaitedFor(t *testing.T) {
	t.Parallel()
	n := node(t, relay.StreamOptions{Partitions: 2})
	log := logged{seen: make(chan string, 1000)}
	dialled := make(chan error, 1)
	go func() {
		b, err := relay.Dial(t.Context(), relay.Options{Servers: n.URL(), Log: slog.New(log)})
		if err == nil {
			b.Close()
		}
		dialled <- err
	}()
	log.await(t, "no streams yet")
	ok(t, n.Ready(t.Context()))
	ok(t, <-dialled)
	ctx, cancel := context.WithCancel(t.Context())
	empty := node(t, relay.StreamOptions{})
	go func() {
		log.await(t, "no streams yet")
		cancel()
	}()
	if b, err := relay.Dial(ctx, relay.Options{Servers: empty.URL(), Log: slog.New(log)}); !errors.Is(err, relay.ErrNoStreams) {
		t.Errorf("%v, %v", b, err)
	}
}

// Who waits for nodes that do not answer says which.
func TestNodesThatDoNotAnswerAreNamed(t *testing.T) {
	t.Parallel()
	servers := "nats://" + must(freeport.Address())(t)
	log := logged{seen: make(chan string, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		log.await(t, "no node of the cluster answers")
		cancel()
	}()
	if _, err := relay.Dial(ctx, relay.Options{Servers: servers, Log: slog.New(log)}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), servers) {
		t.Error(err)
	}
}

// A node whose port is taken fails to start as soon as the server knows it, with the reason.
func TestNodeWithATakenPort(t *testing.T) {
	t.Parallel()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	started := make(chan error, 1)
	go func() {
		_, err := cluster.Start(cluster.Config{Name: "n1", Dir: t.TempDir(), Listen: l.Addr().String(), Sync: time.Minute})
		started <- err
	}()
	select {
	case err := <-started:
		if !errors.Is(err, cluster.ErrStart) || !strings.Contains(err.Error(), "address already in use") {
			t.Error(err)
		}
	case <-time.After(time.Minute): // it waited for two
		t.Fatal("it still waits to listen")
	}
}

func open(t *testing.T, name string) *store.DB {
	t.Helper()
	d := must(store.Open(t.Context(), filepath.Join(t.TempDir(), name)))(t)
	t.Cleanup(func() { ok(t, d.Close()) })
	return d
}

// noRaces passes over a test that does nothing at once which TestFullStreamRefuses does
// not: SQLite takes twenty times as long under the race detector.
func noRaces(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("TestFullStreamRefuses looks for races")
	}
}

var (
	launched = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	setup    = measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10},
		Channels: []measure.Channel{
			{Name: "i", Unit: measure.UnitAmpere, Gain: 1e-3, UGain: 1e-3}, {Name: "v", Unit: measure.UnitVolt, Gain: 1e-3},
		},
		Rails: []measure.Rail{{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}},
	}
)

// fill adds a task of so many chunks of noise.
func fill(t *testing.T, d *store.DB, capture string, chunks, scans int, seed uint64) store.TaskID {
	t.Helper()
	ctx := t.Context()
	id := must(d.BeginTask(ctx, store.NewTask{
		Name: "gemm", User: "ada", Launched: launched.Add(time.Duration(seed) * time.Second), Monitor: "lab:7551", CaptureID: capture, GPU: "H200", GPUUUID: "GPU-1",
		Tags: map[string]string{"node": "a3"},
	}))(t)
	ok(t, d.PutHeader(ctx, id, store.Header{Bench: "desk", Setup: setup, CalibrationID: "c1", Started: launched, Instrument: store.Instrument{Kind: "emulated"}}))
	rng := rand.New(rand.NewPCG(seed, 1))
	e := must(chunk.NewEncoder(setup.Timebase, 2, scans))(t)
	for no := range chunks {
		first := no * scans
		b := measure.Block{FirstScan: uint64(first), FirstTick: int64(10 * first), Counts: make([][]measure.Count, 2)}
		for c := range b.Counts {
			for range scans {
				b.Counts[c] = append(b.Counts[c], rng.Int32N(1<<16))
			}
		}
		must(e.Append(&b))(t)
		ok(t, d.AppendChunks(ctx, id, []*chunk.Chunk{e.Flush(uint64(no))}, nil))
	}
	if strings.HasPrefix(capture, "thinned") {
		must(d.Thin(ctx, id, 1, 1e9, nil))(t)
	}
	ok(t, d.PutKernels(ctx, id, []store.Kernel{{Name: "k", Start: launched, End: launched.Add(time.Second)}}))
	ok(t, d.Finish(ctx, id, store.Outcome{State: store.Complete, Reason: "as it was", Result: &measure.Result{
		Samples: uint64(chunks * scans), To: 1, Total: measure.Estimate{Energy: 12, U: 1},
		Rails: []measure.RailResult{{Name: "aux_12v", Role: measure.RolePSU}},
	}}))
	return id
}

// crcs are the checksums of a task's chunks, each read and checked.
func crcs(t *testing.T, d *store.DB, id store.TaskID) (out []uint32) {
	t.Helper()
	for c, err := range d.Chunks(t.Context(), id, 0) {
		ok(t, err)
		out = append(out, c.CRC)
	}
	return out
}

// consume runs a store until it has taken so many tasks.
func consume(t *testing.T, c *relay.Consumer, tasks int) (got []relay.Taken) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan relay.Taken, 64)
	c.Taken = func(x relay.Taken) { taken <- x }
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	for range tasks {
		got = append(got, <-taken)
	}
	cancel()
	ok(t, <-ran)
	return got
}

// sameTasks compares what two databases hold of a task.
func sameTask(t *testing.T, a *store.DB, ida store.TaskID, b *store.DB, idb store.TaskID) {
	t.Helper()
	x, y := must(a.Task(t.Context(), ida))(t), must(b.Task(t.Context(), idb))(t)
	if x.Name != y.Name || x.User != y.User || x.CaptureID != y.CaptureID || x.State != y.State || x.Reason != y.Reason || x.Chunks != y.Chunks || x.Scans != y.Scans || y.Tags["node"] != "a3" {
		t.Errorf("task %d is %+v\nhere %+v", ida, x, y)
	}
	if y.Tags[relay.TagReplicated]+y.Tags[relay.TagHeld] != "" {
		t.Errorf("what concerns the host alone came along: %v", y.Tags)
	}
	if !slices.Equal(crcs(t, a, ida), crcs(t, b, idb)) {
		t.Errorf("task %d has other samples", ida)
	}
	if k := must(b.Kernels(t.Context(), idb))(t); len(k) != 1 {
		t.Errorf("%d kernels", len(k))
	}
}

func TestTasksArriveOnce(t *testing.T) {
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{Partitions: 4})
	host := open(t, "host.db")
	p := &relay.Publisher{DB: host, Bus: bus, Program: "test"}
	const tasks = 6
	for i := range tasks {
		// The last has chunks of more than one message.
		scans := 1000
		if i == tasks-1 {
			scans = 262144
		}
		id := fill(t, host, fmt.Sprint("c-", i), 3, scans, uint64(i))
		first := must(p.Replicate(t.Context(), id))(t)
		again := must(p.Replicate(t.Context(), id))(t)
		if first.Known || first.Chunks != 3 || !again.Known {
			t.Errorf("published as %+v, again as %+v", first, again)
		}
	}
	if left := must(host.Untagged(t.Context(), relay.TagReplicated, 10))(t); len(left) > 0 {
		t.Errorf("not replicated: %v", left)
	}
	// Two shards have a half each, a third store has all.
	shards := []*store.DB{open(t, "a.db"), open(t, "b.db"), open(t, "all.db")}
	n := 0
	for i, parts := range [][]int{{0, 1}, {2, 3}, nil} {
		c := &relay.Consumer{Bus: bus, DB: shards[i], Name: fmt.Sprint("store", i), Partitions: parts}
		want := tasks
		if parts != nil {
			want = 0
			for id := range store.TaskID(tasks) {
				x := must(host.Task(t.Context(), id+1))(t)
				if slices.Contains(parts, relay.IdentityOf(&x).Key().Partition(4)) {
					want++
				}
			}
			n += want
		}
		for _, got := range consume(t, c, want) {
			id := must(host.OfCapture(t.Context(), got.Monitor, got.Capture))(t)
			sameTask(t, host, id, shards[i], got.To)
		}
		if ids := must(shards[i].TaskIDs(t.Context()))(t); len(ids) != want {
			t.Errorf("store %d has %d tasks, want %d", i, len(ids), want)
		}
	}
	if n != tasks {
		t.Errorf("the shards have %d tasks", n)
	}
	// What all have is freed; the stores know what comes again.
	freed := 0
	for part := range 4 {
		freed += must(bus.Free(t.Context(), part, relay.Unclaimed))(t)
	}
	if freed != tasks {
		t.Errorf("freed %d tasks, want %d", freed, tasks)
	}
	must(p.Replicate(t.Context(), 1))(t)
	if got := consume(t, &relay.Consumer{Bus: bus, DB: shards[2], Name: "store2"}, 1); !got[0].Known || got[0].To == 0 {
		t.Errorf("published again: %+v", got[0])
	}
}

// A task whose samples were thinned while it ran arrives as it is, sums included.
func TestThinnedTasksArrive(t *testing.T) {
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{})
	host, there := open(t, "host.db"), open(t, "there.db")
	id := fill(t, host, "thinned", 20, 1<<14, 1)
	if x := must(host.Task(t.Context(), id))(t); x.Chunks != 14 || !x.Cold {
		t.Fatalf("%d chunks, packed %v", x.Chunks, x.Cold)
	}
	must((&relay.Publisher{DB: host, Bus: bus, Program: "test"}).Replicate(t.Context(), id))(t)
	got := consume(t, &relay.Consumer{Bus: bus, DB: there, Name: "there"}, 1)
	sameTask(t, host, id, there, got[0].To)
	if x := must(there.Task(t.Context(), got[0].To))(t); !x.Cold {
		t.Error("it counts as a task with all samples")
	}
	// Beside the sums the task of this test has a result that nothing measured.
	for _, f := range must(there.Check(t.Context(), store.CheckOptions{}))(t).Findings {
		if f.Kind != store.BadResult {
			t.Errorf("%+v", f)
		}
	}
}

func TestPoisonIsSetAside(t *testing.T) {
	coverage.Long(t)
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{})
	host, there := open(t, "host.db"), open(t, "there.db")
	p := &relay.Publisher{DB: host, Bus: bus}
	bad := must(p.Replicate(t.Context(), fill(t, host, "c-1", 2, 500, 1)))(t)
	ok(t, bus.Spoil(t.Context(), bad.Key))
	good := fill(t, host, "c-2", 2, 500, 2)
	must(p.Replicate(t.Context(), good))(t)
	c := &relay.Consumer{Bus: bus, DB: there, Name: "lab", Retry: time.Millisecond}
	got := consume(t, c, 1)
	if got[0].Capture != "c-2" {
		t.Errorf("%+v", got)
	}
	list := aside(t, bus, c)
	if len(list) != 1 || list[0].Key != bad.Key || list[0].Store != "lab" {
		t.Fatalf("set aside: %+v", list)
	}
	t.Log(list[0].Why)
	if n := must(bus.Free(t.Context(), 0, relay.Unclaimed))(t); n != 1 {
		t.Errorf("freed %d tasks, want the good one alone", n)
	}
	ok(t, bus.Again(t.Context(), bad.Key, true))
	if list := must(bus.Asides(t.Context()))(t); len(list) != 0 {
		t.Errorf("still aside: %+v", list)
	}
	if err := bus.Again(t.Context(), bad.Key, false); !errors.Is(err, relay.ErrNotAside) {
		t.Errorf("%v", err)
	}
	// Published anew, it arrives.
	if again := must(p.Replicate(t.Context(), 1))(t); again.Known {
		t.Error("the stream still had it")
	}
	consume(t, c, 1)
	sameTask(t, host, 1, there, 1) // the number that it had when its chunks were missed
}

// aside has a store run until it has set tasks aside.
func aside(t *testing.T, bus *relay.Bus, c *relay.Consumer) (list []relay.Aside) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	for len(list) == 0 {
		ok(t, backoff.Sleep(ctx, 20*time.Millisecond))
		list = must(bus.Asides(ctx))(t)
	}
	cancel()
	ok(t, <-ran)
	return list
}

// A stream that is full refuses, and the publisher goes on when there is room.
func TestFullStreamRefuses(t *testing.T) {
	t.Parallel()
	said := make(chan string, 100)
	bus := heard(t, relay.StreamOptions{MaxBytes: 160 << 10}, func(s string) { said <- s })
	host, there := open(t, "host.db"), open(t, "there.db")
	p := &relay.Publisher{DB: host, Bus: bus}
	for i := range 3 {
		fill(t, host, fmt.Sprint("c-", i), 5, 5000, uint64(i))
	}
	published := make(chan error, 1)
	go func() {
		for id := range store.TaskID(3) {
			if _, err := p.Replicate(t.Context(), id+1); err != nil {
				published <- err
				return
			}
		}
		published <- nil
	}()
	if s := <-said; !strings.Contains(s, "does not acknowledge: waiting") || !strings.Contains(s, "the stream is full") {
		t.Fatal(s)
	}
	select {
	case err := <-published:
		t.Fatalf("all went into a stream that is too small: %v", err)
	default:
	}
	consume(t, &relay.Consumer{Bus: bus, DB: there, Name: "lab", Free: time.Millisecond}, 3)
	ok(t, <-published)
	if s := <-said; !strings.Contains(s, "acknowledges again") {
		t.Error(s)
	}
	for id := range store.TaskID(3) {
		sameTask(t, host, id+1, there, id+1)
	}
}

// A publisher that gives up says what it waited for.
func TestPublisherGivesUp(t *testing.T) {
	t.Parallel()
	noRaces(t)
	ctx, cancel := context.WithCancel(t.Context())
	bus := heard(t, relay.StreamOptions{MaxBytes: 1 << 10}, func(string) { cancel() })
	host := open(t, "host.db")
	id := fill(t, host, "c-1", 1, 5000, 1)
	_, err := (&relay.Publisher{DB: host, Bus: bus}).Replicate(ctx, id)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "has not acknowledged for") {
		t.Errorf("%v", err)
	}
	t.Log(err)
	if left := must(host.Untagged(t.Context(), relay.TagReplicated, 10))(t); len(left) != 1 {
		t.Error("it counts as replicated")
	}
}

// A task that could not be published is so soon after its trouble is over.
func TestShipperTriesAgainSoon(t *testing.T) {
	t.Parallel()
	noRaces(t)
	host := open(t, "host.db")
	id := fill(t, host, "a", 1, 500, 1)
	s := &relay.Shipper{Publisher: &relay.Publisher{DB: host, Bus: alone(t, relay.StreamOptions{})}}
	other := must(sql.Open("sqlite", host.Path()))(t)
	defer other.Close()
	must(other.ExecContext(t.Context(), `ALTER TABLE chunk RENAME TO hidden`))(t)
	if err := s.All(t.Context()); err == nil {
		t.Fatal("published without samples")
	}
	must(other.ExecContext(t.Context(), `ALTER TABLE hidden RENAME TO chunk`))(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		ok(t, s.All(ctx))
		if x := must(host.Task(ctx, id))(t); x.Tags[relay.TagReplicated] != "" {
			return
		}
		ok(t, backoff.Sleep(ctx, 50*time.Millisecond))
	}
}

// Captures are released once their tasks are published, and kept where their monitor
// does not answer.
func TestShipperReleases(t *testing.T) {
	t.Parallel()
	noRaces(t)
	bus := alone(t, relay.StreamOptions{})
	host := open(t, "host.db")
	p := &relay.Publisher{DB: host, Bus: bus}
	for i, monitor := range []string{"", "lab:7551", "away:7551"} {
		id := fill(t, host, string(rune('a'+i)), 1, 500, uint64(i))
		if monitor != "" {
			ok(t, p.DB.SetTags(t.Context(), id, map[string]string{relay.TagHeld: monitor}, nil))
		}
	}
	away := errors.New("it is away")
	var released []string
	s := &relay.Shipper{Publisher: p, Release: func(_ context.Context, monitor, capture string) error {
		if monitor == "away:7551" {
			return away
		}
		released = append(released, monitor+" "+capture)
		return nil
	}}
	if err := s.All(t.Context()); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	if len(released) != 1 || released[0] != "lab:7551 b" {
		t.Errorf("released: %v", released)
	}
	if left := must(host.Untagged(t.Context(), relay.TagReplicated, 10))(t); len(left) != 0 {
		t.Errorf("not published: %v", left)
	}
	if held := must(host.Tagged(t.Context(), relay.TagHeld))(t); len(held) != 1 || held[3] != "away:7551" {
		t.Errorf("held: %v", held)
	}
	ok(t, s.All(t.Context())) // the monitor that is away is left alone for a while
}
