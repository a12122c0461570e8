package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		spoil      func(*wattmarkv1.Chunk)
	}{
		{"no scans", "0 scans", 2, func(p *wattmarkv1.Chunk) { p.Scans = 0 }},
		{"too many scans", "want 1 to", 2, func(p *wattmarkv1.Chunk) { p.Scans = chunk.MaxScans + 1 }},
		{"past the largest scan", "largest", 2, func(p *wattmarkv1.Chunk) { p.FirstScan = math.MaxUint64 }},
		{"a column missing", "2 columns", 3, func(*wattmarkv1.Chunk) {}},
		{"a column too many", "2 columns", 1, func(*wattmarkv1.Chunk) {}},
		{"cut short", "chunk 3", 2, func(p *wattmarkv1.Chunk) { p.Payload = p.Payload[:len(p.Payload)-1] }},
		{"no payload", "chunk 3", 2, func(p *wattmarkv1.Chunk) { p.Payload = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Chunk(testChunk(t, 1000))
			c.spoil(p)
			refused(t, c.says, func() error { return ParseChunk(p, c.columns, &got) })
		})
	}
	refused(t, "empty chunk", func() error { return ParseChunk(nil, 1, &got) })
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

// FuzzFrame holds the two readers of a chunk together: whatever the bytes,
// the frame must accept, refuse and read exactly as proto does.
func FuzzFrame(f *testing.F) {
	for _, c := range oddChunks()[:5] {
		b, _ := proto.Marshal(captureChunk(c))
		f.Add(b)
	}
	f.Add([]byte{0x12, 0x00})
	f.Add([]byte{0x12, 0x02, 0x08, 0x01, 0x12, 0x02, 0x10, 0x05})             // two chunks: proto merges them
	f.Add([]byte{0x12, 0x05, 0x18, 0xFF, 0xFF, 0xFF, 0xFF})                   // varint cut short
	f.Add([]byte{0x12, 0x07, 0x18, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01})       // scans of more than 32 bits
	f.Add([]byte{0x12, 0x03, 0x32, 0x01, 0x41, 0x1A, 0x02, 0x08, 0x01})       // chunk, then event: the last wins
	f.Add([]byte{0x12, 0x06, 0x0A, 0x01, 0x00, 0x32, 0x01, 0x42})             // field 1 of another type
	f.Add([]byte{0x12, 0x06, 0x32, 0x01, 0x41, 0x32, 0x01, 0x42, 0xF8, 0x01}) // trailing rubbish
	f.Fuzz(func(t *testing.T, b []byte) {
		var want, got wattmarkv1.ReadCaptureResponse
		wantErr := proto.Unmarshal(b, &want)
		fr, err := receive(t, b, &got, 7)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("frame: %v, proto: %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if !proto.Equal(&got, &want) {
			t.Fatalf("frame read %v, proto %v", &got, &want)
		}
		// And what it read must survive our own writing.
		var again wattmarkv1.ReadCaptureResponse
		if err := proto.Unmarshal(marshal(t, &got), &again); err != nil || !proto.Equal(&again, &want) {
			t.Fatalf("written again: %v %v, want %v", err, &again, &want)
		}
		fr.free()
	})
}

// FuzzParse feeds every Parse function with whatever proto accepts: none may panic.
func FuzzParse(f *testing.F) {
	for _, m := range []proto.Message{
		&wattmarkv1.Header{Setup: Setup(testSetup()), Marker: MarkerSpec(testMarkerSpec())},
		&wattmarkv1.Header{},
	} {
		b, _ := proto.Marshal(m)
		f.Add(b, uint8(2))
	}
	for _, m := range []proto.Message{
		captureChunk(Chunk(testChunk(f, 300))),
		&wattmarkv1.GetTaskResponse{Markers: []*wattmarkv1.Marker{Marker(testMarker())}, Clock: &wattmarkv1.Clock{B: 1}, Window: Window(1, 2)},
	} {
		b, _ := proto.Marshal(m)
		f.Add(b, uint8(2))
	}
	f.Fuzz(func(t *testing.T, b []byte, columns uint8) {
		var header wattmarkv1.Header
		if proto.Unmarshal(b, &header) == nil {
			if s, err := ParseSetup(header.Setup); err == nil && s.Validate() != nil {
				t.Fatalf("accepted a setup that is not valid: %v", s.Validate())
			}
			_, _ = ParseMarkerSpec(header.Marker)
			_, _ = ParseInstrument(header.Instrument)
			_, _ = ParseTime("started", header.Started)
		}
		var task wattmarkv1.GetTaskResponse
		if proto.Unmarshal(b, &task) == nil {
			_, _ = ParseMarkers(task.Markers)
			_, _ = ParseClock(task.Clock)
			_, _, _, _ = ParseWindow(task.Window)
			for _, r := range task.Rails {
				_, _ = ParseRailResult(r)
			}
			for _, e := range task.Events {
				_, _ = ParseEvent(e)
			}
		}
		var item wattmarkv1.ReadCaptureResponse
		var c chunk.Chunk
		if proto.Unmarshal(b, &item) == nil && ParseChunk(item.GetChunk(), int(columns), &c) == nil {
			if !bytes.Equal(Chunk(&c).Payload, item.GetChunk().Payload) {
				t.Fatal("the columns are not the payload")
			}
		}
	})
}
