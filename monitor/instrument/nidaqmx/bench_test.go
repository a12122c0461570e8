package nidaqmx

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"wattmark/measure"
	"wattmark/monitor/instrument/nidaqmx/nipb"
	"wattmark/monitor/instrument/series"
)

// discard is a sink that keeps nothing.
type discard struct{}

func (discard) Block(*measure.Block) error { return nil }
func (discard) Event(measure.Event) error  { return nil }

// benchStream is a stream that delivers to nobody.
func benchStream(inputs int) *stream {
	o := Defaults()
	o.Inputs = make([]Input, inputs)
	o.Rate = 1.25e6 / float64(inputs)
	s := &stream{d: &Device{opts: o}, counts: make([]measure.Count, inputs), asked: o.perRead(), rate: series.Rate{Nominal: o.Rate}}
	s.out = series.New(series.Config{Channels: inputs, Timebase: timebase(o.Rate), Flush: maxBlock}, discard{})
	return s
}

// canned answers every read with the same samples at once, so that what is
// measured is the line and not an emulated converter.
type canned struct {
	nipb.UnimplementedNiDAQmxServer
	reply nipb.ReadRawResponse
	pos   uint64
}

func (c *canned) ReadRaw(context.Context, *nipb.ReadRawRequest) (*nipb.ReadRawResponse, error) {
	c.pos += uint64(c.reply.SampsRead)
	return &c.reply, nil
}

func (c *canned) GetReadAttributeUInt64(context.Context, *nipb.GetReadAttributeUInt64Request) (*nipb.GetReadAttributeUInt64Response, error) {
	return &nipb.GetReadAttributeUInt64Response{Value: c.pos}, nil
}

// BenchmarkDecodeThroughGRPC reads a tenth of a second of 1.25 million samples a
// second at a time through a real socket, both ends in this process. core-% is
// the share of one core that client and server together take at that rate.
func BenchmarkDecodeThroughGRPC(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	c := &canned{}
	c.reply.ReadArray = make([]byte, perBench*benchInputs*bytesCode)
	for i := range c.reply.ReadArray {
		c.reply.ReadArray[i] = byte(rand.Uint32())
	}
	c.reply.SampsRead, c.reply.NumBytesPerSamp = perBench, bytesCode
	server := grpc.NewServer()
	nipb.RegisterNiDAQmxServer(server, c)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	s := benchStream(benchInputs)
	s.d.api, s.d.task = nipb.NewNiDAQmxClient(conn), session
	if err := s.read(b.Context()); err != nil { // connects
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	busy := processTime(b)
	b.ResetTimer()
	for b.Loop() {
		if err := s.read(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	busy = processTime(b) - busy
	runtime.ReadMemStats(&after)
	total := float64(b.N) * perBench * benchInputs
	b.ReportMetric(total/b.Elapsed().Seconds(), "samples/s")
	b.ReportMetric(100*busy.Seconds()/total*1.25e6, "core-%-at-1.25MS/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/total, "allocs/sample")
}

// processTime is the processor time of this process.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	t, err := cpuTime()
	if err != nil {
		b.Skip("no processor times on this system: ", err)
	}
	return t
}
