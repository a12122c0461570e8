package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

func captureChunk(c *pb.Chunk) *pb.ReadCaptureResponse {
	return &pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Chunk{Chunk: c}}
}

func samplesChunk(c *pb.Chunk) *pb.ReadSamplesResponse {
	return &pb.ReadSamplesResponse{Item: &pb.ReadSamplesResponse_Chunk{Chunk: c}}
}

// testChunk is a well-formed chunk of two columns, one noisy and one constant.
func testChunk(t testing.TB, scans int) *chunk.Chunk {
	t.Helper()
	tb := measure.Timebase{TickHz: 1e6, TicksPerScan: 10}
	block := measure.Block{FirstScan: 1000, FirstTick: -5, Counts: make([][]measure.Count, 2)}
	r := rand.New(rand.NewPCG(1, 2))
	for range scans {
		block.Counts[0] = append(block.Counts[0], measure.Count(r.IntN(1<<12)))
		block.Counts[1] = append(block.Counts[1], -7)
	}
	e, err := chunk.NewEncoder(tb, 2, chunk.MaxScans)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := e.Append(&block); n != scans || err != nil {
		t.Fatalf("took %d of %d scans: %v", n, scans, err)
	}
	return e.Flush(3).Clone()
}

// oddChunks are chunks at the edges of their fields.
func oddChunks() []*pb.Chunk {
	return []*pb.Chunk{
		{},
		{ChunkNo: 1, FirstScan: 2, Scans: 3, FirstTick: 4, Crc32C: 5, Payload: []byte("payload")},
		{ChunkNo: math.MaxUint64, FirstScan: math.MaxUint64, Scans: math.MaxUint32, FirstTick: math.MinInt64, Crc32C: math.MaxUint32},
		{FirstTick: math.MaxInt64, Payload: bytes.Repeat([]byte{0xA5}, copyBelow)},
		{FirstTick: -1, Payload: bytes.Repeat([]byte{0x5A}, copyBelow+1)},
		{Payload: bytes.Repeat([]byte{7}, 300<<10)},
	}
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := Codec.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	return data.Materialize()
}

// receive reads b with a frame, cut into buffers as the network would.
func receive(t testing.TB, b []byte, into proto.Message, cut int) (*frame, error) {
	t.Helper()
	var data mem.BufferSlice
	for part := range bytesChunks(b, cut) {
		data = append(data, mem.Copy(part, pool))
	}
	f := newFrame(into)
	err := Codec.Unmarshal(data, f)
	data.Free()
	return f, err
}

func bytesChunks(b []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			k := min(n, len(b))
			if !yield(b[:k]) {
				return
			}
			b = b[k:]
		}
	}
}

func TestCodecWritesWhatProtoWrites(t *testing.T) {
	for i, c := range oddChunks() {
		for _, m := range []proto.Message{captureChunk(c), samplesChunk(c)} {
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if got := marshal(t, m); !bytes.Equal(got, want) {
				t.Errorf("chunk %d as %T: %d bytes differ from proto's %d", i, m, len(got), len(want))
			}
		}
	}
}

func TestCodecLeavesOtherMessagesToProto(t *testing.T) {
	unknown := captureChunk(&pb.Chunk{ChunkNo: 1, Payload: []byte("x")})
	unknown.GetChunk().ProtoReflect().SetUnknown([]byte{0xF8, 0x01, 0x07}) // field 31 of a later version
	outer := samplesChunk(&pb.Chunk{ChunkNo: 1})
	outer.ProtoReflect().SetUnknown([]byte{0xF8, 0x01, 0x07})
	for _, m := range []proto.Message{
		&pb.GetBenchResponse{Name: "bench", Setup: Setup(testSetup())},
		&pb.ReadCaptureResponse{},
		&pb.ReadCaptureResponse{Item: &pb.ReadCaptureResponse_Event{Event: &pb.Event{Kind: 1}}},
		captureChunk(nil), unknown, outer,
	} {
		b := marshal(t, m)
		got := m.ProtoReflect().New().Interface()
		if err := Codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got); err != nil {
			t.Fatal(err)
		}
		want := m.ProtoReflect().New().Interface()
		plain, _ := proto.Marshal(m)
		if err := proto.Unmarshal(plain, want); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("%T: got %v, want %v", m, got, want)
		}
	}
	if _, err := Codec.Marshal(42); err == nil {
		t.Error("an int was marshalled")
	}
	if err := Codec.Unmarshal(nil, 42); err == nil {
		t.Error("an int was unmarshalled")
	}
}

func TestFrameReadsWhatProtoWrites(t *testing.T) {
	for i, c := range oddChunks() {
		for _, cut := range []int{3, 16 << 10, 1 << 30} {
			b, err := proto.Marshal(samplesChunk(c))
			if err != nil {
				t.Fatal(err)
			}
			var m pb.ReadSamplesResponse
			f, err := receive(t, b, &m, cut)
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(m.GetChunk(), c) {
				t.Errorf("chunk %d in pieces of %d: changed on the way", i, cut)
			}
			if f.buf == nil {
				t.Errorf("chunk %d: took the slow way", i)
			}
			f.free()
		}
	}
}

func TestPayloadIsReleasedOnceAndNotBefore(t *testing.T) {
	for _, scans := range []int{1, 256, 70000} {
		c := testChunk(t, scans)
		want := Chunk(c)
		released := 0
		o := &outgoing{head: chunkHead(c), payload: want.Payload, release: func() { released++ }}
		data, err := Codec.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if early := released != 0; early != (len(want.Payload) <= copyBelow) {
			t.Errorf("%d scans: released %d times while %d bytes are on loan", scans, released, len(want.Payload))
		}
		var got pb.ReadCaptureResponse
		if err := proto.Unmarshal(data.Materialize(), &got); err != nil {
			t.Fatal(err)
		}
		data.Ref()
		data.Free()
		data.Free()
		if released != 1 {
			t.Errorf("%d scans: released %d times, want once", scans, released)
		}
		if !proto.Equal(got.GetChunk(), want) {
			t.Errorf("%d scans: chunk changed on the way", scans)
		}
		if !proto.Equal(o.ProtoReflect().Interface(), &got) {
			t.Errorf("%d scans: as a message it differs", scans)
		}
	}
}

func TestPoolReusesOnlyItsOwnSizes(t *testing.T) {
	p := pool
	for _, n := range []int{0, 1, 4096, 4097, 1 << 24, 1<<24 + 1} {
		b := p.Get(n)
		if len(*b) != n {
			t.Errorf("asked for %d bytes, got %d", n, len(*b))
		}
		p.Put(b)
	}
	odd := make([]byte, 5000)
	p.Put(&odd) // not a power of two: must not come back for a larger request
	if b := p.Get(8192); cap(*b) < 8192 {
		t.Errorf("a buffer of %d bytes for 8192", cap(*b))
	}
}

func TestParseChunkRoundTripAndRefusals(t *testing.T) {
	var got chunk.Chunk
	for _, scans := range []int{1, 256, 257, 70000} {
		want := testChunk(t, scans)
		if err := ParseChunk(Chunk(want), 2, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, &got); d != "" {
			t.Errorf("%d scans: chunk changed on the way: %s", scans, d)
		}
	}
	p := Chunk(testChunk(t, 1000))
	if n := testing.AllocsPerRun(10, func() { _ = ParseChunk(p, 2, &got) }); n != 0 {
		t.Errorf("%v allocations a chunk, want none", n)
	}
	for _, c := range []struct {
		name, says string
		columns    int
		spoil      func(*pb.Chunk)
	}{
		{"no scans", "0 scans", 2, func(p *pb.Chunk) { p.Scans = 0 }},
		{"too many scans", "want 1 to", 2, func(p *pb.Chunk) { p.Scans = chunk.MaxScans + 1 }},
		{"past the largest scan", "largest", 2, func(p *pb.Chunk) { p.FirstScan = math.MaxUint64 }},
		{"a column missing", "2 columns", 3, func(*pb.Chunk) {}},
		{"a column too many", "2 columns", 1, func(*pb.Chunk) {}},
		{"cut short", "chunk 3", 2, func(p *pb.Chunk) { p.Payload = p.Payload[:len(p.Payload)-1] }},
		{"no payload", "chunk 3", 2, func(p *pb.Chunk) { p.Payload = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Chunk(testChunk(t, 1000))
			c.spoil(p)
			refused(t, c.says, func() error { return ParseChunk(p, c.columns, &got) })
		})
	}
	refused(t, "empty chunk", func() error { return ParseChunk(nil, 1, &got) })
}
