package wire

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure/chunk"
)

// BenchmarkStream compares this codec with gRPC's default one over real
// sockets, in one run. "default" is a server and a client with message limits
// and nothing else; "tuned" has our windows and buffers, and the default codec.
func BenchmarkStream(b *testing.B) {
	limit := []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage))}
	tuned := append(DialOptions(), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(Codec.(codec).plain)))
	for _, network := range []string{"tcp", "unix"} {
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20} {
			for _, way := range []struct {
				name string
				so   []grpc.ServerOption
				do   []grpc.DialOption
				ours bool
			}{
				{"default", nil, limit, false},
				{"tuned", append(ServerOptions(), grpc.ForceServerCodecV2(Codec.(codec).plain)), tuned, false},
				{"wattmark", ServerOptions(), DialOptions(), true},
			} {
				b.Run(fmt.Sprintf("%s/%dKiB/%s", network, size>>10, way.name), func(b *testing.B) {
					s := &source{chunk: rawChunk(size), n: b.N, plain: !way.ours}
					client := serve(b, network, s, way.so, way.do)
					b.SetBytes(int64(size))
					b.ReportAllocs()
					b.ResetTimer()
					stream, err := client.ReadCapture(b.Context(), &pb.ReadCaptureRequest{})
					if err != nil {
						b.Fatal(err)
					}
					drain(b, stream, way.ours)
				})
			}
		}
	}
}

// rawChunk has a payload of about size bytes; only its bytes matter here.
func rawChunk(size int) *chunk.Chunk {
	return &chunk.Chunk{Scans: size / 2, Columns: []chunk.Column{{Dir: make([]byte, 2048), Data: make([]byte, size-2048)}}}
}

func drain(b *testing.B, stream grpc.ServerStreamingClient[pb.ReadCaptureResponse], ours bool) {
	recv := stream.Recv
	if ours {
		r := NewReceiver(stream)
		defer r.Free()
		recv = r.Recv
	}
	for n := -1; ; n++ { // the header is not counted
		m, err := recv()
		if errors.Is(err, io.EOF) {
			if n != b.N {
				b.Fatalf("%d chunks came, %d were sent", n, b.N)
			}
			return
		}
		if err != nil {
			b.Fatal(err)
		}
		if c := m.GetChunk(); c != nil && len(c.Payload) == 0 {
			b.Fatal("an empty payload")
		}
	}
}
