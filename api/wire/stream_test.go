package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure/chunk"
)

// source is a monitor that sends the same chunk again and again.
type source struct {
	pb.UnimplementedMonitorServiceServer
	chunk    *chunk.Chunk
	n        int
	plain    bool // use the generated Send
	released atomic.Int64
}

func (s *source) ReadCapture(_ *pb.ReadCaptureRequest, stream grpc.ServerStreamingServer[pb.ReadCaptureResponse]) error {
	if err := stream.Send(&pb.ReadCaptureResponse{
		Item: &pb.ReadCaptureResponse_Header{Header: &pb.Header{CaptureId: "c1"}},
	}); err != nil {
		return err
	}
	message := captureChunk(Chunk(s.chunk))
	payload := message.GetChunk().Payload
	for i := range s.n {
		var err error
		if s.plain {
			err = stream.Send(message)
		} else {
			c := *s.chunk
			c.No = uint64(i)
			err = SendPayload(stream, &c, payload, func() { s.released.Add(1) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// serve starts a server on a real socket and returns a client of it.
func serve(t testing.TB, network string, s pb.MonitorServiceServer, so []grpc.ServerOption, do []grpc.DialOption) pb.MonitorServiceClient {
	t.Helper()
	address, target := "127.0.0.1:0", "%s"
	if network == "unix" {
		address, target = filepath.Join(t.TempDir(), "s"), "unix:%s"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(so...)
	pb.RegisterMonitorServiceServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(fmt.Sprintf(target, l.Addr()), append(do, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewMonitorServiceClient(conn)
}

// Either side may be somebody else's program, with the ordinary codec.
func TestStreamBetweenAllKindsOfPeers(t *testing.T) {
	limit := []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage))}
	for _, c := range []struct {
		name  string
		so    []grpc.ServerOption
		do    []grpc.DialOption
		plain bool
	}{
		{"ours to ours", ServerOptions(), DialOptions(), false},
		{"ours to theirs", ServerOptions(), limit, false},
		{"theirs to ours", nil, DialOptions(), false},
		{"theirs to theirs", nil, limit, false},
		{"generated send", ServerOptions(), DialOptions(), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &source{chunk: testChunk(t, 70000), n: 20, plain: c.plain}
			client := serve(t, "tcp", s, c.so, c.do)
			stream, err := client.ReadCapture(t.Context(), &pb.ReadCaptureRequest{})
			if err != nil {
				t.Fatal(err)
			}
			readAll(t, stream, s)
			if !c.plain && s.released.Load() != int64(s.n) {
				t.Errorf("%d of %d chunks were released", s.released.Load(), s.n)
			}
		})
	}
}

// readAll checks what source sends: a header, then n chunks.
func readAll(t *testing.T, stream grpc.ServerStreamingClient[pb.ReadCaptureResponse], s *source) {
	t.Helper()
	want := Chunk(s.chunk).Payload
	r := NewReceiver(stream)
	defer r.Free()
	m, err := r.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if m.GetHeader().GetCaptureId() != "c1" {
		t.Fatalf("first came %v, want the header", m)
	}
	var parsed chunk.Chunk
	for i := range s.n {
		m, err := r.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if err := ParseChunk(m.GetChunk(), len(s.chunk.Columns), &parsed); err != nil {
			t.Fatal(err)
		}
		if !s.plain && parsed.No != uint64(i) {
			t.Fatalf("chunk %d came in place of %d", parsed.No, i)
		}
		if !bytes.Equal(m.GetChunk().Payload, want) {
			t.Fatalf("chunk %d: payload changed on the way", i)
		}
	}
	if _, err := r.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the last chunk: %v, want EOF", err)
	}
}

// A reader that goes away must not make the sender give memory back twice, or
// while it is still on its way: then a buffer would be used for two chunks.
func TestNoLoanEndsTwiceWhenTheReaderLeaves(t *testing.T) {
	done := make(chan int64, 1)
	s := &endless{source: source{chunk: testChunk(t, 70000)}, sent: done}
	client := serve(t, "tcp", s, ServerOptions(), DialOptions())
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.ReadCapture(ctx, &pb.ReadCaptureRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if lent := <-done; lent == 0 {
		t.Error("nothing was lent, or the reader never left")
	}
	for i := range s.loans {
		if n := s.loans[i].Load(); n > 1 {
			t.Errorf("chunk %d was released %d times", i, n)
		}
	}
}

// pooled sends with SendChunk, which must not mix up the buffers it uses again.
type pooled struct{ source }

func (s *pooled) ReadCapture(_ *pb.ReadCaptureRequest, stream grpc.ServerStreamingServer[pb.ReadCaptureResponse]) error {
	for i := range s.n {
		c := s.chunk.Clone()
		c.No = uint64(i)
		c.Columns[0].Data[0] = byte(i)
		if err := SendChunk(stream, c); err != nil {
			return err
		}
		clear(c.Columns[0].Data) // the chunk was only borrowed
	}
	return nil
}

func TestSendChunkBorrows(t *testing.T) {
	s := &pooled{source{chunk: testChunk(t, 70000), n: 100}}
	stream, err := serve(t, "tcp", s, ServerOptions(), DialOptions()).ReadCapture(t.Context(), &pb.ReadCaptureRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r := NewReceiver(stream)
	defer r.Free()
	for i := range s.n {
		m, err := r.Recv()
		if err != nil {
			t.Fatal(err)
		}
		want := s.chunk.Clone()
		want.No = uint64(i)
		want.Columns[0].Data[0] = byte(i)
		if !proto.Equal(m.GetChunk(), Chunk(want)) {
			t.Fatalf("chunk %d changed on the way", i)
		}
	}
}

// endless sends until the stream breaks.
type endless struct {
	source
	sent  chan int64            // how many were lent
	loans [1 << 12]atomic.Int32 // how often each was released
}

func (s *endless) ReadCapture(_ *pb.ReadCaptureRequest, stream grpc.ServerStreamingServer[pb.ReadCaptureResponse]) error {
	payload := Chunk(s.chunk).Payload
	for n := int64(0); n < int64(len(s.loans)); n++ {
		if err := SendPayload(stream, s.chunk, payload, func() { s.loans[n].Add(1) }); err != nil {
			s.sent <- n + 1
			return err
		}
	}
	s.sent <- 0 // nobody left
	return nil
}
