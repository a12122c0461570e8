package monitor

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"wattmark/api/wattmarkv1"
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

// FuzzCalls throws bytes at every method of a running monitor, over the wire:
// each is answered or refused with a code, and the monitor still measures.
func FuzzCalls(f *testing.F) {
	f.Add(byte(0), []byte{})
	f.Add(byte(1), []byte("\x0a\x07ada@lab"))
	f.Add(byte(1), []byte("\x0a\x07ada@lab\x1a\x04\x08\x01\x10\x05\x22\x02\x08\x01\x2a\x00"))
	f.Add(byte(4), []byte("\x0a\x01x\x10\x01"))
	f.Add(byte(7), []byte("\x0a\x02\x10\x01\x10\x01"))
	f.Add(byte(7), []byte("\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Add(byte(2), []byte{0xff, 0xff, 0xff})
	l, m := overWire(f)
	methods := wattmarkv1.MonitorService_ServiceDesc
	f.Fuzz(func(t *testing.T, method byte, b []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		n := int(method) % (len(methods.Methods) + len(methods.Streams))
		var err error
		var answer []byte
		if n < len(methods.Methods) {
			err = l.Invoke(ctx, "/"+methods.ServiceName+"/"+methods.Methods[n].MethodName, b, &answer, grpc.ForceCodecV2(rawCodec{}))
		} else {
			desc := methods.Streams[n-len(methods.Methods)]
			err = stream(ctx, l, &desc, "/"+methods.ServiceName+"/"+desc.StreamName, b)
		}
		if code := status.Code(err); code == codes.Unknown {
			t.Fatalf("%v", err)
		}
		for _, c := range m.owner.List() { // what was begun is ended, so that the next may begin
			if held, err := m.owner.Get(c.CaptureID); err == nil {
				_, _ = held.Stop(t.Context())
				_ = m.owner.Release(c.CaptureID)
			}
		}
		if _, err := wattmarkv1.NewMonitorServiceClient(l).GetBench(t.Context(), &wattmarkv1.GetBenchRequest{}); err != nil {
			t.Fatalf("the monitor is gone: %v", err)
		}
	})
}

// stream takes a few messages of a stream.
func stream(ctx context.Context, c *grpc.ClientConn, desc *grpc.StreamDesc, method string, b []byte) error {
	s, err := c.NewStream(ctx, desc, method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}
	if err := s.SendMsg(b); err != nil {
		return nil // the answer tells
	}
	_ = s.CloseSend()
	for range 3 {
		var answer []byte
		if err := s.RecvMsg(&answer); err != nil {
			return err
		}
	}
	return nil
}

// overWire runs a monitor on a real socket for a fuzz target.
func overWire(f *testing.F) (*grpc.ClientConn, *Monitor) {
	f.Helper()
	address, m := start(f, rampConfig(f.TempDir()))
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	return c, m
}
