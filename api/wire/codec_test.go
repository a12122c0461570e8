package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"wattmark/api/wattmarkv1"
	"wattmark/measure"
	"wattmark/measure/chunk"
)

func captureChunk(c *wattmarkv1.Chunk) *wattmarkv1.ReadCaptureResponse {
	return &wattmarkv1.ReadCaptureResponse{Item: &wattmarkv1.ReadCaptureResponse_Chunk{Chunk: c}}
}

func samplesChunk(c *wattmarkv1.Chunk) *wattmarkv1.ReadSamplesResponse {
	return &wattmarkv1.ReadSamplesResponse{Item: &wattmarkv1.ReadSamplesResponse_Chunk{Chunk: c}}
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
func oddChunks() []*wattmarkv1.Chunk {
	return []*wattmarkv1.Chunk{
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
	unknown := captureChunk(&wattmarkv1.Chunk{ChunkNo: 1, Payload: []byte("x")})
	unknown.GetChunk().ProtoReflect().SetUnknown([]byte{0xF8, 0x01, 0x07}) // field 31 of a later version
	outer := samplesChunk(&wattmarkv1.Chunk{ChunkNo: 1})
	outer.ProtoReflect().SetUnknown([]byte{0xF8, 0x01, 0x07})
	for _, m := range []proto.Message{
		&wattmarkv1.GetBenchResponse{Name: "bench", Setup: Setup(testSetup())},
		&wattmarkv1.ReadCaptureResponse{},
		&wattmarkv1.ReadCaptureResponse{Item: &wattmarkv1.ReadCaptureResponse_Event{Event: &wattmarkv1.Event{Kind: 1}}},
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
			var m wattmarkv1.ReadSamplesResponse
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
		var got wattmarkv1.ReadCaptureResponse
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
	p := &dirtyPool{}
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
