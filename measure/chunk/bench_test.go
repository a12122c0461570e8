package chunk

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// benchBlock is what six int16 channels look like: noise of sigma counts, a
// step every 20 000 scans, and a ripple of 30 counts.
func benchBlock(channels, scans int, sigma float64) measure.Block {
	rng := rand.New(rand.NewPCG(9, 9))
	b := measure.Block{Counts: make([][]measure.Count, channels)}
	for c := range b.Counts {
		b.Counts[c] = make([]measure.Count, scans)
		level := 8000.0
		for i := range b.Counts[c] {
			if i%20000 == 0 {
				level = 2000 + 20000*rng.Float64()
			}
			b.Counts[c][i] = int32(level + 30*math.Sin(float64(i)/4000) + sigma*rng.NormFloat64())
		}
	}
	return b
}

func report(b *testing.B, scans, channels int, t time.Duration) {
	rate := float64(scans) * float64(b.N) / t.Seconds()
	b.ReportMetric(rate/1e6, "Mscans/s")
	b.ReportMetric(rate*float64(channels)*2/1e6, "MB/s(int16)")
}

func BenchmarkEncode(b *testing.B) {
	for _, sigma := range []float64{4, 400} {
		b.Run(fmt.Sprintf("channels=6/sigma=%v", sigma), func(b *testing.B) {
			blk := benchBlock(6, 65536, sigma)
			e, _ := NewEncoder(even, 6, MaxScans)
			var out *Chunk
			scans, bytes := 0, 0
			for b.Loop() {
				blk.FirstScan, blk.FirstTick = uint64(scans), 50*int64(scans)
				n, err := e.Append(&blk)
				if n != 65536 || err != nil {
					b.Fatal(n, err)
				}
				scans += n
				if e.Full() {
					out = e.Flush(0)
					bytes = PayloadSize(out)
				}
			}
			if out != nil {
				b.ReportMetric(float64(bytes)/MaxScans, "B/scan")
			}
			report(b, 65536, 6, b.Elapsed())
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, sigma := range []float64{4, 400, 1e6} {
		b.Run(fmt.Sprintf("channels=6/sigma=%v", sigma), func(b *testing.B) {
			blk := benchBlock(6, 65536, sigma)
			e, _ := NewEncoder(even, 6, 65536)
			if _, err := e.Append(&blk); err != nil {
				b.Fatal(err)
			}
			c := e.Flush(0)
			var dst measure.Block
			for b.Loop() {
				if err := Decode(c, even, 6, &dst); err != nil {
					b.Fatal(err)
				}
			}
			report(b, 65536, 6, b.Elapsed())
		})
	}
}

func BenchmarkChecksum(b *testing.B) {
	blk := benchBlock(6, 65536, 4)
	e, _ := NewEncoder(even, 6, 65536)
	if _, err := e.Append(&blk); err != nil {
		b.Fatal(err)
	}
	c := e.Flush(0)
	b.SetBytes(int64(PayloadSize(c)))
	for b.Loop() {
		Checksum(c)
	}
}
