package perf

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// What the benchmarks measure, at full size by default:
//
//	go test ./cmd/internal/perf -run '^$' -bench Store -tasks 100000 -length 1m -v
//
// Each prints its report to the standard error and gives its goals' results as metrics named for them.
// One iteration is one whole benchmark: -benchtime 1x.
var (
	dirFlag  = flag.String("dir", "", "folder of the databases, on the disk to measure (default: a temporary one)")
	tasks    = flag.Int("tasks", 1_000_000, "tasks to list; 0 leaves the lists out")
	calls    = flag.Int("calls", 1000, "calls of each page")
	samples  = flag.Int("samples", 1_000_000, "samples to keep in each way; 0 leaves the comparison out")
	length   = flag.Duration("length", time.Hour, "length of a capture at 100 kS/s; 0 leaves it out")
	server   = flag.String("postgres", "", "empty database on a PostgreSQL server, for the same")
	rounds   = flag.Int("rounds", 5, "pairs of runs with and without TLS, and the pyramid")
	minutes  = flag.Float64("minutes", 10, "length of the capture whose memory is watched")
	scanRate = flag.Float64("rate", 1e6, "its scans a second")
	size     = flag.Int("megabytes", 128, "coded samples of the relayed task")
	scans    = flag.Int("chunk", 16384, "scans of its chunks")
)

// flags returns the flags that all benchmarks share.
func flags(b *testing.B) benchFlagsShared {
	b.Helper()
	f := benchFlagsShared{dir: *dirFlag, transport: "unix"}
	if f.dir == "" {
		f.dir = b.TempDir()
	}
	return f
}

// once runs a benchmark and reports its goals.
func once(b *testing.B, run func(log io.Writer) ([]goal, error)) {
	b.Helper()
	for b.Loop() {
		goals, err := run(os.Stderr)
		if err != nil {
			b.Fatal(err)
		}
		for _, g := range goals {
			b.ReportMetric(g.Result, strings.Join(strings.Fields(g.Name), "-"))
		}
	}
}

// BenchmarkStore measures the lists of many tasks, a long capture, and other ways to
// keep the same samples.
func BenchmarkStore(b *testing.B) {
	once(b, func(log io.Writer) ([]goal, error) {
		r, err := benchStore(b.Context(), log, storeFlags{flags(b), *tasks, *calls, *samples, *length, *server})
		if err != nil {
			return nil, err
		}
		return r.Goals, nil
	})
}

// BenchmarkInstruments measures every driver's decoder, and whole drivers at full rate.
func BenchmarkInstruments(b *testing.B) {
	once(b, func(log io.Writer) ([]goal, error) {
		r, err := benchInstruments(b.Context(), log, instrumentsFlags{each: 0.5, record: 0.5, drive: 5})
		if err != nil {
			return nil, err
		}
		return r.Goals, nil
	})
}

// BenchmarkSecure measures the cost of TLS and tokens between monitor and database.
func BenchmarkSecure(b *testing.B) {
	once(b, func(log io.Writer) ([]goal, error) {
		r, err := benchSecure(b.Context(), log, ingestFlags{benchFlagsShared: flags(b), seconds: 4}, *rounds)
		if err != nil {
			return nil, err
		}
		return r.Goals, nil
	})
}

// BenchmarkPyramid measures the cost of the plot pyramid between monitor and database.
func BenchmarkPyramid(b *testing.B) {
	once(b, func(log io.Writer) ([]goal, error) {
		return benchPyramid(b.Context(), log, ingestFlags{benchFlagsShared: flags(b), seconds: 4}, *rounds)
	})
}

// BenchmarkMemory watches the monitor's memory over a long capture.
func BenchmarkMemory(b *testing.B) {
	once(b, func(log io.Writer) ([]goal, error) {
		r, err := benchMemory(b.Context(), log, memoryFlags{flags(b), *minutes, *scanRate, 60})
		if err != nil {
			return nil, err
		}
		return r.Goals, nil
	})
}

// BenchmarkRelay carries one task over gRPC alone and over clusters on this machine.
func BenchmarkRelay(b *testing.B) {
	once(b, func(log io.Writer) ([]goal, error) {
		dir, remove, err := benchFlagsShared{dir: flags(b).dir, transport: "tcp"}.scratch()
		if err != nil {
			return nil, err
		}
		defer remove()
		r, err := benchRelay(b.Context(), log, dir, *size<<20, *scans)
		if err != nil {
			return nil, err
		}
		r.render(log)
		b.ReportMetric(r.Direct.StoredBytesPS/1e6, "direct-MB/s")
		for _, w := range r.Cluster {
			b.ReportMetric(w.PublishedBytesPS/1e6, fmt.Sprintf("%d-nodes-%s-MB/s", w.Nodes, w.Sync))
		}
		return nil, nil
	})
}
