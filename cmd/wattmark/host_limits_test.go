package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/daemon"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// hostAt runs a host of a database, without a socket, and returns its gRPC's address and
// its page's.
func hostAt(t *testing.T, db string, more ...string) (h *process, address, url string) {
	t.Helper()
	h = start(t, append([]string{"host", "--db", db, "--listen", "127.0.0.1:0", "--socket", "none", "--http", "127.0.0.1:0"}, more...)...)
	address = h.await(t, `serving the task database" address=(\S+)`)[1]
	return h, address, h.await(t, `serving JSON over HTTP" address=(http://[0-9.:]+)`)[1]
}

// Those who watch over HTTP do not keep out those who ask, however few calls a
// connection may have: what one address may have open is what counts.
func TestWatchersOfThePageLeaveRoom(t *testing.T) {
	t.Parallel()
	h, _, url := hostAt(t, filepath.Join(t.TempDir(), "power.db"), "--limit-streams", "4", "--limit-peer-calls", "10")
	for range 9 {
		line, _ := watchTasks(t, url)
		line("TASK_EVENT_WATCHING")
	}
	if got := fetch(t, url+"/v1/tasks"); !strings.Contains(got, `"tasks":[]`) {
		t.Errorf("beside nine who watch: %s", got)
	}
	line, _ := watchTasks(t, url)
	line("TASK_EVENT_WATCHING")
	res, err := http.Get(url + "/v1/tasks")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("an eleventh call is answered with %s", res.Status)
	}
	h.stop(t)
}

// dialled is a connection to a host, which counts how often it is made.
func dialled(t *testing.T, address string) (*grpc.ClientConn, *atomic.Int32) {
	t.Helper()
	var dials atomic.Int32
	c, err := grpc.NewClient(address, append(wire.DialOptions(), cli.Plainly(), grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, "tcp", a)
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, &dials
}

// A connection without calls is closed, and made again by the next call. One with a call
// that goes on is not.
func TestIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	_, address, _ := hostAt(t, filepath.Join(t.TempDir(), "power.db"), "--limit-idle", "100ms")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, dials := dialled(t, address)
	tasks := wattmarkv1.NewTaskServiceClient(c)
	ask := func() {
		t.Helper()
		if _, err := tasks.ListUsers(ctx, &wattmarkv1.ListUsersRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
	}
	busy, watched := dialled(t, address)
	w, err := wattmarkv1.NewTaskServiceClient(busy).WatchTasks(ctx, &wattmarkv1.WatchTasksRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	for n := int32(1); n <= 3; n++ {
		ask()
		if got := dials.Load(); got != n {
			t.Fatalf("after %d closed connections %d were made", n-1, got)
		}
		if !c.WaitForStateChange(ctx, connectivity.Ready) {
			t.Fatal("a connection without calls stays open")
		}
	}
	if busy.GetState() != connectivity.Ready || watched.Load() != 1 {
		t.Errorf("a connection with a call was closed: %v after %d", busy.GetState(), watched.Load())
	}
}

// An old connection takes no new calls, and ends with those that it has.
func TestOldConnectionEndsWithItsCalls(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "power.db")
	_, address, _ := hostAt(t, path, "--limit-age", "200ms")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, dials := dialled(t, address)
	tasks := wattmarkv1.NewTaskServiceClient(c)
	w, err := tasks.WatchTasks(ctx, &wattmarkv1.WatchTasksRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "new calls go over a new connection", func() bool {
		if _, err := tasks.ListUsers(ctx, &wattmarkv1.ListUsersRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		return dials.Load() > 1
	})
	db, err := store.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.BeginTask(ctx, store.NewTask{Name: "late", User: "ada"}); err != nil {
		t.Fatal(err)
	}
	if m, err := w.Recv(); err != nil || m.GetTask().GetName() != "late" {
		t.Errorf("the call of the old connection: %v, %v", m, err)
	}
}

// through measures as a program does, through the host's socket.
func (r *rig) through(socket, name string) (store.TaskID, error) {
	r.t.Helper()
	c, err := daemon.Dial(socket)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	card, sensor, err := sim.FindRemote(r.socket, nil)
	if err := errors.Join(err, session.OpenDevice(r.t.Context(), card)); err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = errors.Join(card.Close(), sensor.Close()) }()
	return c.Measurement(true).Measure(r.t.Context(), measurement.Config{Name: name, User: "ada", Holder: "ada@here", Device: card},
		func(ctx context.Context) ([]gpu.Kernel, error) {
			eventually(r.t, "samples are stored while the work runs", func() bool {
				x, ok := onlyTask(r.t, r.db, 1)
				return ok && x.Chunks > 0
			})
			return nil, ctx.Err()
		})
}

// A host whose database has no room takes no new task, and leaves the bench alone; a
// task that it has begun is finished.
func TestDatabaseRoomThroughTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	socket := filepath.Join(t.TempDir(), "s")
	host := func(more ...string) *process {
		h := start(t, append([]string{"host", "--db", r.db, "--listen", "127.0.0.1:0", "--socket", socket, "--monitor", r.address}, more...)...)
		h.await(t, `measuring for programs`)
		return h
	}
	refused := func(h *process, why string) {
		t.Helper()
		_, err := r.through(socket, "refused")
		if err == nil || !strings.Contains(err.Error(), "disk full") || !strings.Contains(err.Error(), why) {
			t.Errorf("want %q: %v", why, err)
		}
		if log := r.monitor.err.String(); strings.Contains(log, "refused") {
			t.Errorf("the bench was taken for what has no room:\n%s", log)
		}
		h.stop(t)
	}
	refused(host("--db-free", "900PB"), "are free beside the database")
	refused(host("--db-quota", "1B", "--db-free", "0"), "its limit is 1 B")
	db := r.stored()
	s, err := db.Stats(t.Context())
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	// One more page, and the first task takes many.
	h := host("--db-quota", strconv.FormatInt(int64(s.Bytes+s.LogBytes)+4096, 10), "--db-free", "0")
	id, err := r.through(socket, "begun")
	if x, ok := onlyTask(t, r.db, id); err != nil || !ok || x.State != store.Complete {
		t.Errorf("the task that was begun: %+v, %v", x.State, err)
	}
	if log := r.monitor.err.String(); !strings.Contains(log, "begun") {
		t.Errorf("the monitor does not say for what the bench was taken:\n%s", log)
	}
	refused(h, "its limit is")
	inside(t, "run", "--gpu", "sim:"+r.socket, "--monitor", r.address, "--db", r.db, "--db-free", "900PB", "--name", "refused", "--benchmark", "half", "--duration", "100ms").
		fails(t, cli.ExitFailed, "disk full", "make room on its disk")
	if log := r.monitor.err.String(); strings.Contains(log, "refused") || len(r.captures()) > 0 {
		t.Errorf("the bench was taken by a run that has no room:\n%s", log)
	}
}
