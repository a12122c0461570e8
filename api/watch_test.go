package api_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/internal/testdb"
	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/store"
)

// lab is the test database behind a real socket.
type lab struct {
	*testing.T
	db      *store.DB
	service *api.Service
	stub    pb.TaskServiceClient
}

func newLab(t *testing.T) *lab {
	t.Helper()
	db, err := testdb.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	service := api.New(t.Context(), db, api.Options{Poll: time.Millisecond})
	service.Register(server)
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		service.Close()
		server.Stop()
		_ = db.Close()
	})
	return &lab{t, db, service, pb.NewTaskServiceClient(conn)}
}

// event is what is compared of a response.
type event struct {
	event pb.TaskEvent
	id    int64
	state pb.TaskState
}

const (
	watching = pb.TaskEvent_TASK_EVENT_WATCHING
	added    = pb.TaskEvent_TASK_EVENT_ADDED
	changed  = pb.TaskEvent_TASK_EVENT_CHANGED
	deleted  = pb.TaskEvent_TASK_EVENT_DELETED
	anew     = pb.TaskEvent_TASK_EVENT_LIST_ANEW

	running    = pb.TaskState_TASK_STATE_RUNNING
	incomplete = pb.TaskState_TASK_STATE_INCOMPLETE
	none       = pb.TaskState_TASK_STATE_UNSPECIFIED
)

// watch begins a watch; next compares its next event and returns the token.
func (l *lab) watch(req *pb.WatchTasksRequest) (next func(want event) string, stop func()) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 20*time.Second)
	l.Cleanup(cancel)
	stream, err := l.stub.WatchTasks(ctx, req)
	if err != nil {
		l.Fatal(err)
	}
	return func(want event) string {
		l.Helper()
		m, err := stream.Recv()
		if err != nil {
			l.Fatal(err)
		}
		if got := (event{m.Event, m.GetTask().GetTaskId(), m.GetTask().GetState()}); got != want {
			l.Fatalf("got %+v, want %+v", got, want)
		}
		return m.ResumeToken
	}, cancel
}

func (l *lab) begin(name, user string) store.TaskID {
	l.Helper()
	id, err := l.db.BeginTask(l.Context(), store.NewTask{Name: name, User: user})
	if err != nil {
		l.Fatal(err)
	}
	return id
}

func (l *lab) end(id store.TaskID) {
	l.Helper()
	if err := l.db.Finish(l.Context(), id, store.Outcome{State: store.Incomplete, Reason: "cable"}); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) remove(id store.TaskID) {
	l.Helper()
	if err := l.db.DeleteTask(l.Context(), id); err != nil {
		l.Fatal(err)
	}
}

func TestWatchTasks(t *testing.T) {
	l := newLab(t)
	all, stopAll := l.watch(&pb.WatchTasksRequest{})
	bobs, _ := l.watch(&pb.WatchTasksRequest{User: "bob", Name: "g*"})
	all(event{watching, 0, none})
	bobs(event{watching, 0, none})
	four := l.begin("gemm", "ada")
	token := all(event{added, 4, running})
	l.end(four)
	all(event{changed, 4, incomplete})
	l.begin("gemm", "bob")
	all(event{added, 5, running})
	bobs(event{added, 5, running}) // nothing of task 4
	l.remove(2)                    // an old one, found by a sweep
	last := all(event{deleted, 2, none})
	bobs(event{deleted, 2, none})
	stopAll()

	// What happened since task 4 began, in short.
	since, stop := l.watch(&pb.WatchTasksRequest{ResumeToken: token})
	since(event{watching, 0, none})
	since(event{anew, 0, none}) // task 2 had ended: that it is gone shows, but not what
	since(event{changed, 4, incomplete})
	since(event{added, 5, running})
	stop()

	l.end(5)
	since, stop = l.watch(&pb.WatchTasksRequest{ResumeToken: last})
	if got := since(event{watching, 0, none}); got != last {
		t.Error("the token goes on before anything was told")
	}
	token = since(event{changed, 5, incomplete})
	stop()

	since, _ = l.watch(&pb.WatchTasksRequest{ResumeToken: token})
	since(event{watching, 0, none})
	six := l.begin("x", "ada")
	since(event{added, int64(six), running})
}

// One who does not read holds nobody up.
func TestASlowWatcherIsAlone(t *testing.T) {
	l := newLab(t)
	slow, _ := l.watch(&pb.WatchTasksRequest{})
	quick, _ := l.watch(&pb.WatchTasksRequest{})
	slow(event{watching, 0, none})
	quick(event{watching, 0, none})
	for range 20 {
		id := l.begin("gemm", "ada")
		quick(event{added, int64(id), running})
		l.remove(id)
		quick(event{deleted, int64(id), none})
	}
	last := l.begin("gemm", "ada")
	quick(event{added, int64(last), running})
}

func TestWatchEndsWithTheService(t *testing.T) {
	l := newLab(t)
	stream, err := l.stub.WatchTasks(l.Context(), &pb.WatchTasksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	l.service.Close()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a watch while the service stops: %v", err)
	}
	stream, err = l.stub.WatchTasks(l.Context(), &pb.WatchTasksRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a new watch after it: %v", err)
	}
	if _, err := l.stub.ListTasks(l.Context(), &pb.ListTasksRequest{}); err != nil {
		t.Errorf("other calls: %v", err)
	}
}

func TestWatchRefuses(t *testing.T) {
	l := newLab(t)
	next, stop := l.watch(&pb.WatchTasksRequest{})
	token := next(event{watching, 0, none})
	stop()
	for _, req := range []*pb.WatchTasksRequest{
		{ResumeToken: "x"},
		{ResumeToken: "AAAA"},
		{ResumeToken: token[:len(token)-1]},
		{ResumeToken: "B" + token[1:]},
		{ResumeToken: token[:20] + "AAAA" + token[24:]},
		{Name: "********a*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*"},
		{User: string(make([]byte, 100_000))},
	} {
		stream, err := l.stub.WatchTasks(l.Context(), req)
		if err == nil {
			_, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) || status.Code(err) != codes.InvalidArgument {
			t.Errorf("%.60v: %v", req, err)
		}
	}
}
