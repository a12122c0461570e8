package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wattmark/wattmark/api/internal/testdb"
	"github.com/wattmark/wattmark/store"
)

type stream struct {
	grpc.ServerStream
	fails bool
}

func (s *stream) SendMsg(any) error {
	if s.fails {
		return errors.New("gone")
	}
	return nil
}

func page(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestCallsAreCounted(t *testing.T) {
	m := New()
	call := func(err error) {
		_, got := m.unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/wattmark.v1.TaskService/GetTask"}, func(context.Context, any) (any, error) {
			if !strings.Contains(page(t, m), `wattmark_rpc_active{method="TaskService/GetTask"} 1`) {
				t.Error("a call that goes on is not counted")
			}
			return nil, err
		})
		if !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
	call(nil)
	call(nil)
	call(status.Error(codes.NotFound, "x"))
	s := &stream{}
	_ = m.stream(nil, s, &grpc.StreamServerInfo{FullMethod: "/wattmark.v1.TaskService/WatchTasks"}, func(_ any, s grpc.ServerStream) error {
		return errors.Join(s.SendMsg(nil), s.SendMsg(nil))
	})
	s.fails = true
	_ = m.stream(nil, s, &grpc.StreamServerInfo{FullMethod: "/wattmark.v1.TaskService/WatchTasks"}, func(_ any, s grpc.ServerStream) error {
		return s.SendMsg(nil)
	})
	got := page(t, m)
	for _, line := range []string{
		`wattmark_rpc_requests_total{code="OK",method="TaskService/GetTask"} 2`,
		`wattmark_rpc_requests_total{code="NotFound",method="TaskService/GetTask"} 1`,
		`wattmark_rpc_requests_total{code="Unknown",method="TaskService/WatchTasks"} 1`,
		`wattmark_rpc_duration_seconds_count{method="TaskService/GetTask"} 3`,
		`wattmark_rpc_active{method="TaskService/GetTask"} 0`,
		`wattmark_rpc_stream_messages_total{method="TaskService/WatchTasks"} 2`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

func TestDatabaseTellsItsSize(t *testing.T) {
	db, err := testdb.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.BeginTask(t.Context(), store.NewTask{Name: "a", User: "b"}); err != nil {
		t.Fatal(err)
	}
	m := New()
	if err := m.Register(&Database{Context: t.Context(), Stats: db.Stats, Tasks: db.Tasks}); err != nil {
		t.Fatal(err)
	}
	got := page(t, m)
	for _, line := range []string{"wattmark_tasks 4", "wattmark_tasks_running 1", "wattmark_users 3", "wattmark_database_up 1", `wattmark_database_bytes{file="wal"} `, "go_goroutines "} {
		if !strings.Contains(got, line) {
			t.Errorf("no line %s", line)
		}
	}
	bad := New()
	if err := bad.Register(&Database{Context: t.Context(), Stats: func(context.Context) (store.Stats, error) { return store.Stats{}, errors.New("locked") }}); err != nil {
		t.Fatal(err)
	}
	if got := page(t, bad); !strings.Contains(got, "wattmark_database_up 0\n") || strings.Contains(got, "wattmark_tasks ") {
		t.Error("a database that cannot be read is not told as such")
	}
}
