package wire

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wattmark/api/wattmarkv1"
	"wattmark/measure/chunk"
)

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
