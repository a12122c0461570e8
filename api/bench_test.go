package api

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"testing"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
)

// shelf lends the same chunks without copying them, so that a benchmark
// measures the service and not the database.
type shelf struct {
	*memory
	chunks []*chunk.Chunk
}

func (s *shelf) Chunks(_ context.Context, _ store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) {
		for _, c := range s.chunks[min(from, uint64(len(s.chunks))):] {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// benchSetup is three clamps: six channels.
func benchSetup() measure.Setup {
	s := measure.Setup{Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 10}}
	for i, name := range []string{"pcie_3v3", "pcie_12v", "aux_12v"} {
		s.Channels = append(s.Channels,
			measure.Channel{Name: name + ".i", Unit: measure.UnitAmpere, Gain: 1e-3},
			measure.Channel{Name: name + ".v", Unit: measure.UnitVolt, Gain: 1e-3})
		s.Rails = append(s.Rails, measure.Rail{Name: name, Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 2 * i, Y: 2*i + 1})
	}
	return s
}

const benchScans = 1 << 20

func benchDB(b *testing.B) *shelf {
	b.Helper()
	s := benchSetup()
	r := rand.New(rand.NewPCG(1, 2))
	e, err := chunk.NewEncoder(s.Timebase, 6, 1<<16)
	if err != nil {
		b.Fatal(err)
	}
	db := &shelf{memory: fakeDB(b)}
	for at := 0; at < benchScans; at += 1 << 16 {
		block := measure.Block{FirstScan: uint64(at), FirstTick: int64(10 * at), Counts: make([][]measure.Count, 6)}
		for c := range block.Counts {
			for range 1 << 16 {
				block.Counts[c] = append(block.Counts[c], measure.Count(12000+4*r.NormFloat64()))
			}
		}
		if _, err := e.Append(&block); err != nil {
			b.Fatal(err)
		}
		db.chunks = append(db.chunks, e.Flush(uint64(len(db.chunks))).Clone())
	}
	t := &db.tasks[0]
	t.Setup, t.Events, t.Result, t.Chunks = s, nil, nil, uint64(len(db.chunks))
	return db
}

// BenchmarkReadSamples reads a million samples of three rails over loopback:
// calibrated as they come, and raw with the decoding and the power left to the
// reader. Both end with the same watts in memory.
func BenchmarkReadSamples(b *testing.B) {
	db := benchDB(b)
	client := serve(b, db)
	for _, way := range []struct {
		name string
		read func(*testing.B, pb.TaskServiceClient) int
	}{{"calibrated", readCalibrated}, {"raw", readRaw}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n := way.read(b, client); n != benchScans {
					b.Fatalf("%d samples, want %d", n, benchScans)
				}
			}
			b.ReportMetric(float64(b.N)*benchScans/b.Elapsed().Seconds()/1e6, "MS/s")
		})
	}
}

func readCalibrated(b *testing.B, client pb.TaskServiceClient) (n int) {
	stream, err := client.ReadSamples(b.Context(), &pb.ReadSamplesRequest{TaskId: 1})
	if err != nil {
		b.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
		n += len(m.GetSamples().GetPowerW())
	}
}

func readRaw(b *testing.B, client pb.TaskServiceClient) (n int) {
	stream, err := client.ReadSamples(b.Context(), &pb.ReadSamplesRequest{TaskId: 1, Raw: true})
	if err != nil {
		b.Fatal(err)
	}
	s := benchSetup()
	meter, err := measure.NewPowerMeter(&s)
	if err != nil {
		b.Fatal(err)
	}
	var c chunk.Chunk
	var block measure.Block
	var total []measure.Watt
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
		if err := wire.ParseChunk(m.GetChunk(), 6, &c); err != nil {
			b.Fatal(err)
		}
		if err := chunk.Decode(&c, s.Timebase, 6, &block); err != nil {
			b.Fatal(err)
		}
		total = meter.Total(&block, total)
		n += len(total)
	}
}
