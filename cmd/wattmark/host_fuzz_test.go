package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc"
	rpc "google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// rawCodec sends bytes as they are: what any client might.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*[]byte) = b.Materialize()
	return nil
}

// fuzzedCall is a call of a host, by its full name.
type fuzzedCall struct {
	name   string
	stream *grpc.StreamDesc // nil for a call of one answer
}

func callsOf(services ...*grpc.ServiceDesc) (out []fuzzedCall) {
	for _, s := range services {
		for _, m := range s.Methods {
			out = append(out, fuzzedCall{name: "/" + s.ServiceName + "/" + m.MethodName})
		}
		for i := range s.Streams {
			out = append(out, fuzzedCall{"/" + s.ServiceName + "/" + s.Streams[i].StreamName, &s.Streams[i]})
		}
	}
	return out
}

// besieged is a host in this process, with a task in its database, and its doors.
type besieged struct {
	grpc, socket *grpc.ClientConn
	url          string
	db, spare    *store.DB
	client       http.Client
}

// besiege runs a host for a fuzz target. A task of spare is put back where a call has
// deleted those that were there.
func besiege(f *testing.F) *besieged {
	f.Helper()
	dir := f.TempDir()
	path, spare, socket := filepath.Join(dir, "power.db"), filepath.Join(dir, "spare.db"), filepath.Join(dir, "s")
	quiet := cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
	if err := execute(f.Context(), []string{"demo", "--db", spare, "--duration", "50ms"}, quiet); err != nil {
		f.Fatal(err)
	}
	var said tail
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- execute(ctx, []string{
			"host", "--db", path, "--listen", "127.0.0.1:0", "--socket", socket, "--http", "127.0.0.1:0", "--monitor", "127.0.0.1:1",
			"--limit-peer-rate", "0", "--limit-peer-calls", "0", "--limit-peer-connections", "0", "--db-free", "0", "--log-level", "info",
		}, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: &said})
	}()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Errorf("the host ended with %v", err)
		}
	})
	find := func(pattern string) string {
		for {
			text, more := said.read()
			if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
				return m[1]
			}
			select {
			case <-more:
			case err := <-ended:
				f.Fatalf("the host ended with %v\n%s", err, text)
			}
		}
	}
	b := &besieged{grpc: connect(f, find(`serving the task database" address=(\S+)`), "tcp"), url: find(`serving JSON over HTTP" address=(http://[0-9.:]+)`)}
	find(`(measuring for programs)`)
	b.socket = connect(f, socket, "unix")
	for at, to := range map[string]**store.DB{path: &b.db, spare: &b.spare} {
		db, err := store.Open(f.Context(), at)
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = db.Close() })
		*to = db
	}
	return b
}

func connect(f *testing.F, address, network string) *grpc.ClientConn {
	f.Helper()
	c, err := grpc.NewClient("passthrough:///host", cli.Plainly(), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	return c
}

// overGRPC makes a call with any bytes, and takes some of its answers.
func overGRPC(ctx context.Context, c *grpc.ClientConn, call fuzzedCall, b []byte) error {
	if call.stream == nil {
		var answer []byte
		return c.Invoke(ctx, call.name, b, &answer, grpc.ForceCodecV2(rawCodec{}))
	}
	s, err := c.NewStream(ctx, call.stream, call.name, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}
	if s.SendMsg(b) == nil && len(b)%2 == 0 { // half of them say nothing more, and do not say so
		_ = s.CloseSend()
	}
	for range 3 {
		var answer []byte
		if err := s.RecvMsg(&answer); err != nil {
			return err
		}
	}
	return nil
}

// overHTTP sends any bytes in a form that the page's server takes. It returns what the
// answer began with.
func (x *besieged) overHTTP(ctx context.Context, method, path, kind string, b []byte) (code int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, x.url+path, bytes.NewReader(b))
	if err != nil {
		return 0, "", nil // no such request can be made
	}
	r.Header.Set("Content-Type", kind)
	res, err := x.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	return res.StatusCode, string(said) + res.Header.Get("Grpc-Message"), nil
}

// fuzzedPaths are those of the JSON API; %s stands for any bytes.
var fuzzedPaths = []string{
	"GET /v1/tasks?%s", "GET /v1/tasks/%s", "PATCH /v1/tasks/1", "DELETE /v1/tasks/%s", "POST /v1/tasks/1/notes", "DELETE /v1/tasks/1/notes/%s",
	"GET /v1/tasks/1/samples?%s", "GET /v1/tasks/1/envelope?%s", "GET /v1/tasks/1/energy?%s", "GET /v1/tasks/1/readings?%s", "GET /v1/tasks/1/timeline?%s",
	"GET /v1/tasks/%s/validation", "GET /v1/aggregate?%s", "GET /v1/benches/%s", "GET /v1/benches:watch?%s", "GET /v1/tasks:watch?%s", "GET /v1/sensors?%s",
	"GET /v1/sensors:errors?%s", "GET /v1/users?%s", "GET /v1/validations?%s", "POST /v1/tasks:delete", "POST /v1/session", "GET /%s", "GET /assets/%s",
}

func (x *besieged) knock(ctx context.Context, t *testing.T, door, n byte, b []byte) {
	var err error
	host := callsOf(&wattmarkv1.TaskService_ServiceDesc, &wattmarkv1.BenchService_ServiceDesc, &wattmarkv1.ReportService_ServiceDesc)
	switch door % 5 {
	case 0:
		err = overGRPC(ctx, x.grpc, host[int(n)%len(host)], b)
	case 1:
		programs := callsOf(&wattmarkv1.HostService_ServiceDesc, &wattmarkv1.TaskService_ServiceDesc)
		err = overGRPC(ctx, x.socket, programs[int(n)%len(programs)], b)
	default:
		method, path, kind := "POST", host[int(n)%len(host)].name, []string{"application/proto", "application/json"}[n&1]
		switch door % 5 {
		case 3:
			kind = "application/grpc-web+proto"
			b = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
		case 4:
			method, path, _ = strings.Cut(fuzzedPaths[int(n)%len(fuzzedPaths)], " ")
			if strings.Contains(path, "?") {
				path = strings.Replace(path, "%s", url.PathEscape(string(b)), 1)
			}
			path, kind = strings.Replace(path, "%s", url.PathEscape(string(b)), 1), "application/json"
		}
		code, text, herr := x.overHTTP(ctx, method, path, kind, b)
		if herr != nil && ctx.Err() == nil {
			t.Fatalf("%s %s: %v", method, path, herr)
		}
		if code == http.StatusInternalServerError || strings.Contains(text, "panic") {
			t.Fatalf("%s %s: %d %s", method, path, code, text)
		}
	}
	if errors.Is(err, io.EOF) {
		return // a stream's good end
	}
	s := status.Convert(err)
	if s.Code() == rpc.Unknown || s.Code() == rpc.Internal && !strings.HasPrefix(s.Message(), "grpc: ") {
		t.Fatalf("a request alone caused %v", err)
	}
}

// FuzzHostCalls throws bytes at every call of a running host, at all of its doors: gRPC,
// the unix socket, Connect, gRPC-Web and JSON. Each is answered or refused with a code,
// and the host still serves.
func FuzzHostCalls(f *testing.F) {
	for door := range byte(5) {
		for n := range byte(24) {
			f.Add(door, n, []byte{})
			f.Add(door, n, []byte("\x08\x01\x12\x02\x08\x01\x18\x01"))
		}
	}
	f.Add(byte(1), byte(1), []byte("\x0a\x10\x0a\x01x\x12\x01a\x1a\x01b\x22\x05\x0a\x03GPU\x2a\x02\x08\x01"))
	f.Add(byte(2), byte(1), []byte(`{"taskId":"1","pageSize":-1}`))
	f.Add(byte(4), byte(0), []byte(`user=ada&order=TASK_ORDER_ENERGY&read_mask=energy`))
	f.Add(byte(4), byte(2), []byte(`{"tags":{"a":"b"},"pinned":true}`))
	f.Add(byte(4), byte(20), []byte(`{"user":"`+"\u202e"+`"}`))
	f.Add(byte(4), byte(7), []byte(`points=18446744073709551615&from=NaN`))
	x := besiege(f)
	f.Fuzz(func(t *testing.T, door, n byte, b []byte) {
		if tasks, err := x.db.Tasks(t.Context(), store.Query{Limit: 1}); err == nil && len(tasks) == 0 {
			if _, err := x.spare.CopyTask(t.Context(), x.db, 1, store.CopyOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		x.knock(ctx, t, door, n, b)
		if _, err := wattmarkv1.NewTaskServiceClient(x.grpc).ListUsers(t.Context(), &wattmarkv1.ListUsersRequest{}); err != nil {
			t.Fatalf("the host is gone: %v", err)
		}
	})
}
