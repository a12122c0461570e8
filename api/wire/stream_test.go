package wire

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

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
