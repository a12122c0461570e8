package monitor

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
)

// answers serves an instrument that answers every question alike.
func answers(t *testing.T, line string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewScanner(c)
				for in.Scan() {
					if strings.Contains(in.Text(), "?") {
						_, _ = io.WriteString(c, line+"\n")
					}
				}
			}()
		}
	}()
	return "tcp:" + l.Addr().String()
}

// A meter that says what is no text takes neither GetBench nor its explanation away.
func TestWhatAMeterSays(t *testing.T) {
	tried := 0
	for _, k := range registry.Kinds() {
		if k.Accept == nil || !strings.Contains(k.Address, "tcp") {
			continue
		}
		tried++
		for name, line := range map[string]string{
			"no text": "EVIL\xff\x1b[2J,MOD\xfeEL,S\x00N,1.0", "long": strings.Repeat("EVIL", 25000) + ",MODEL,SN,1.0",
		} {
			t.Run(k.Name+" "+name, func(t *testing.T) {
				ins, err := k.New(registry.Env{}, answers(t, line), k.Options())
				if err != nil {
					t.Fatal(err)
				}
				cfg := rampConfig(t.TempDir())
				cfg.Bench.Instrument = ins
				client, _, stop := serve(t, cfg)
				defer stop()
				b, err := client.GetBench(t.Context(), &pb.GetBenchRequest{Ask: true})
				if err != nil {
					t.Fatal(err)
				}
				if b.Trouble == "" || !utf8.ValidString(b.Trouble) || strings.ContainsAny(b.Trouble, "\x1b\x00") || len(b.Trouble) > 2048 || proto.Size(b) > 8192 {
					t.Errorf("%d bytes: %.300q", proto.Size(b), b.Trouble)
				}
				if err := ins.Open(t.Context()); err == nil || len(err.Error()) > 1024 || !utf8.ValidString(err.Error()) {
					t.Errorf("%.200q", errors.Unwrap(err))
				}
			})
		}
	}
	if tried < 4 {
		t.Errorf("%d kinds were tried", tried)
	}
}

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
	methods := pb.MonitorService_ServiceDesc
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
		for _, c := range m.Owner.List() { // what was begun is ended, so that the next may begin
			if held, err := m.Owner.Get(c.ID); err == nil {
				_, _ = held.Stop(t.Context())
				_ = m.Owner.Release(c.ID)
			}
		}
		if _, err := pb.NewMonitorServiceClient(l).GetBench(t.Context(), &pb.GetBenchRequest{}); err != nil {
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
