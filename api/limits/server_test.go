package limits

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/wattmark/wattmark/api/wire"
)

// tester is a server on a real socket, with a health service and a stream without
// end.
type tester struct {
	guard    *Guard
	listener *listener
	address  string
	ended    chan error // how the endless stream's handler ended
}

// flood sends until it cannot.
func (s *tester) flood(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	m := wrapperspb.Bytes(make([]byte, 1<<20))
	for {
		if err := stream.SendMsg(m); err != nil {
			s.ended <- err
			return err
		}
	}
}

func serve(t *testing.T, cfg Config) *tester {
	t.Helper()
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &tester{guard: New(cfg), address: l.Addr().String(), ended: make(chan error, 1)}
	server := grpc.NewServer(append(wire.ServerOptions(), s.guard.ServerOptions()...)...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Flood", ServerStreams: true, Handler: s.flood}},
	}, s)
	s.listener = s.guard.Listen(l).(*listener)
	done := make(chan error, 1)
	go func() { done <- server.Serve(s.listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *tester) dial(t *testing.T, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(s.address, append(append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials())), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// check makes one small call.
func check(t *testing.T, c *grpc.ClientConn, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := grpc_health_v1.NewHealthClient(c).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, options...)
	return err
}

func want(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%v: want %v", err, code)
	}
}

// eventually waits for something that another goroutine does.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
		<-time.After(time.Millisecond)
	}
}

// count returns how often a limit refused.
func (s *tester) count(r reason) uint64 {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	return s.guard.refused[r]
}

// closed tells that the other end closed a connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Error("the connection stays open")
		}
	}
}
