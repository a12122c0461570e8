package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
)

// caller makes clients of a call that we did not write, in one of its protocols.
func caller[Q, A any](s *site, method string, o ...connect.ClientOption) *connect.Client[Q, A] {
	return connect.NewClient[Q, A](http.DefaultClient, s.url+method, o...)
}

// Calls, streams and errors come through gRPC-Web and Connect as they are.
func TestWebCalls(t *testing.T) {
	for name, o := range map[string][]connect.ClientOption{
		"gRPC-Web": {connect.WithGRPCWeb()}, "gRPC-Web, packed": {connect.WithGRPCWeb(), connect.WithSendGzip()},
		"Connect": nil, "Connect, JSON": {connect.WithProtoJSON()},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, Options{Loopback: true})
			ctx := t.Context()
			list := caller[pb.ListTasksRequest, pb.ListTasksResponse](s, pb.TaskService_ListTasks_FullMethodName, o...)
			res, err := list.CallUnary(ctx, connect.NewRequest(&pb.ListTasksRequest{User: "ada", PageSize: 1}))
			if err != nil || len(res.Msg.Tasks) != 1 || res.Msg.Tasks[0].Name != "axpy" || res.Msg.NextPageToken == "" {
				t.Fatalf("%v %v", res, err)
			}
			if res.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers: %v", res.Header())
			}
			_, err = list.CallUnary(ctx, connect.NewRequest(&pb.ListTasksRequest{PageSize: -1}))
			var refused *connect.Error
			if !errors.As(err, &refused) || refused.Code() != connect.CodeInvalidArgument || !strings.HasPrefix(refused.Message(), "page_size: ") || len(refused.Details()) != 1 {
				t.Fatalf("%v", err)
			}
			detail, err := refused.Details()[0].Value()
			if bad, ok := detail.(*errdetails.BadRequest); err != nil || !ok || bad.FieldViolations[0].Field != "page_size" {
				t.Errorf("detail %v %v", detail, err)
			}
			samples(t, s, o)
			watched(t, s, o)
		})
	}
}

// samples reads all of a task, and of one that there is not.
func samples(t *testing.T, s *site, o []connect.ClientOption) {
	read := caller[pb.ReadSamplesRequest, pb.ReadSamplesResponse](s, pb.TaskService_ReadSamples_FullMethodName, o...)
	stream, err := read.CallServerStream(t.Context(), connect.NewRequest(&pb.ReadSamplesRequest{TaskId: 1}))
	if err != nil {
		t.Fatal(err)
	}
	n, gaps := 0, 0
	for stream.Receive() {
		n += len(stream.Msg().GetSamples().GetPowerW())
		if stream.Msg().GetEvent() != nil {
			gaps++
		}
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil || n != 7901 || gaps != 1 {
		t.Errorf("%d samples, %d gaps: %v", n, gaps, err)
	}
	stream, err = read.CallServerStream(t.Context(), connect.NewRequest(&pb.ReadSamplesRequest{TaskId: 99}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeNotFound {
		t.Errorf("a task that is not there: %v", stream.Err())
	}
}

// watched reads the begin of a stream that does not end by itself, and leaves it.
func watched(t *testing.T, s *site, o []connect.ClientOption) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := caller[pb.WatchTasksRequest, pb.WatchTasksResponse](s, pb.TaskService_WatchTasks_FullMethodName, o...)
	stream, err := watch.CallServerStream(ctx, connect.NewRequest(&pb.WatchTasksRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().Event != pb.TaskEvent_TASK_EVENT_WATCHING {
		t.Fatalf("%v %v", stream.Msg(), stream.Err())
	}
	if err := s.db.SetTags(ctx, 1, map[string]string{"a": "b"}, nil); err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() || stream.Msg().GetTask().GetTags()["a"] != "b" {
		t.Errorf("%v %v", stream.Msg(), stream.Err())
	}
	cancel()
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeCanceled {
		t.Errorf("after it was left: %v", stream.Err())
	}
}

// Every call of the service is served, to those who ask as they should.
func TestEveryCallIsServed(t *testing.T) {
	s := newSite(t, Options{Loopback: true})
	web := map[string]string{"Content-Type": "application/grpc-web+proto"}
	methods := pb.File_wattmark_v1_task_proto.Services().ByName("TaskService").Methods()
	for i := range methods.Len() {
		if methods.Get(i).IsStreamingClient() {
			continue // which gRPC-Web cannot
		}
		path := "/wattmark.v1.TaskService/" + string(methods.Get(i).Name())
		// A message cut short is refused by who knows the call, without doing anything.
		res, err := http.Post(s.url+path, "application/grpc-web+proto", strings.NewReader("\x00\x00\x00\x00\x01\x08"))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := res.Header.Get("Grpc-Status"); res.StatusCode != 200 || got != "3" {
			t.Errorf("%s: %s, gRPC's code %q", path, res.Status, got)
		}
	}
	const del = "/wattmark.v1.TaskService/DeleteTasks"
	const all = "\x00\x00\x00\x00\x05\x1a\x03ada" // user: "ada"
	for _, c := range []struct {
		method, path, body string
		headers            map[string]string
		status             int
	}{
		{"POST", del, all, map[string]string{"Content-Type": "text/plain"}, 415},
		{"POST", del, all, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		{"POST", del, all, map[string]string{"Content-Type": "application/grpc-web+proto", "Origin": "https://evil.example"}, 403},
		{"POST", del, all, map[string]string{"Content-Type": "application/grpc-web+proto", "Sec-Fetch-Site": "cross-site"}, 403},
		{"POST", del, all, map[string]string{"Content-Type": "application/grpc-web+proto", "Host": "evil.example"}, 421},
		{"POST", del, strings.Repeat("x", 2<<20), web, 413},
		{"GET", del, "", nil, 404},
		{"POST", "/wattmark.v1.TaskService/Nope", all, web, 404},
	} {
		if status, got := s.do(c.method, c.path, c.body, c.headers); status != c.status {
			t.Errorf("%s %s %v: %d %q, want %d", c.method, c.path, c.headers, status, got, c.status)
		}
	}
	if tasks := s.ask("GET", "/v1/tasks", "", 200)["tasks"].([]any); len(tasks) != 3 {
		t.Errorf("%d tasks are left", len(tasks))
	}
}
