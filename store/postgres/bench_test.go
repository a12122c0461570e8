package postgres_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres/pgtest"
)

// sixChannels is three rails of a clamp and a voltage each.
func sixChannels() measure.Setup {
	s := measure.Setup{Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 1}}
	for i := range 3 {
		s.Channels = append(s.Channels,
			measure.Channel{Name: fmt.Sprintf("i%d", i), Unit: measure.UnitAmpere, Gain: 0.01},
			measure.Channel{Name: fmt.Sprintf("v%d", i), Unit: measure.UnitVolt, Gain: 0.01})
		s.Rails = append(s.Rails, measure.Rail{Name: fmt.Sprintf("rail%d", i), Role: measure.Role(1 + i), Wiring: measure.WiringClamp, X: 2 * i, Y: 2*i + 1})
	}
	return s
}

// ripple is what six channels look like: noise, and a ripple beneath.
func ripple(scans int) measure.Block {
	rng := rand.New(rand.NewPCG(1, 1))
	b := measure.Block{Counts: make([][]measure.Count, 6)}
	for c := range b.Counts {
		b.Counts[c] = make([]measure.Count, scans)
		for i := range b.Counts[c] {
			b.Counts[c][i] = int32(8000 + 30*math.Sin(float64(i)/4000) + 4*rng.NormFloat64())
		}
	}
	return b
}

// both runs a benchmark on a file and on a server of its own, on the same disk and
// with all syncs.
func both(b *testing.B, f func(*testing.B, *store.DB)) {
	b.Run("file", func(b *testing.B) { f(b, openFile(b)) })
	b.Run("server", func(b *testing.B) {
		c := pgtest.Own(b)
		c.Make(b, "w")
		f(b, openAt(b, c.URL("w")))
	})
}

// BenchmarkAppendChunks stores four chunks of 262 144 six-channel scans a
// transaction, and begins a new task every 64 so that the database stays small.
func BenchmarkAppendChunks(b *testing.B) {
	s := sixChannels()
	one := encode(b, s.Timebase, ripple(chunk.MaxScans), chunk.MaxScans, 0)[0]
	both(b, func(b *testing.B, d *store.DB) {
		batch := make([]*chunk.Chunk, 4)
		for i := range batch {
			batch[i] = one.Clone()
		}
		id, no := store.TaskID(0), uint64(64)
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			if no == 64 {
				if id != 0 {
					ok(b, d.DeleteTask(b.Context(), id))
				}
				id, no = must(d.BeginTask(b.Context(), newTask("gemm", "lab")))(b), 0
				ok(b, d.PutHeader(b.Context(), id, header(s)))
			}
			for _, c := range batch {
				c.No, c.FirstScan, c.FirstTick = no, no*chunk.MaxScans, int64(no*chunk.MaxScans)
				c.CRC = chunk.Checksum(c)
				no++
			}
			b.StartTimer()
			ok(b, d.AppendChunks(b.Context(), id, batch, nil))
		}
		size := 4 * chunk.PayloadSize(one)
		b.SetBytes(int64(size))
		b.ReportMetric(4*chunk.MaxScans*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mscans/s")
	})
}

// BenchmarkSmallChunks stores one chunk of 20 000 scans a transaction: a second of
// a meter that is slow against the disk.
func BenchmarkSmallChunks(b *testing.B) {
	s := sixChannels()
	one := encode(b, s.Timebase, ripple(20000), 20000, 0)[0]
	both(b, func(b *testing.B, d *store.DB) {
		id, no := must(d.BeginTask(b.Context(), newTask("gemm", "lab")))(b), uint64(0)
		ok(b, d.PutHeader(b.Context(), id, header(s)))
		for b.Loop() {
			one.No, one.FirstScan, one.FirstTick = no, no*20000, int64(no*20000)
			one.CRC = chunk.Checksum(one)
			no++
			ok(b, d.AppendChunks(b.Context(), id, []*chunk.Chunk{one}, nil))
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	})
}

// BenchmarkLaunches stores 20 000 kernels a transaction.
func BenchmarkLaunches(b *testing.B) {
	l := make([]store.Launch, 20000)
	both(b, func(b *testing.B, d *store.DB) {
		id, from := must(d.BeginTask(b.Context(), newTask("gemm", "lab")))(b), int64(0)
		for b.Loop() {
			for i := range l {
				l[i] = store.Launch{Start: from, End: from + 500, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{128, 1, 1}}
				from += 1000
			}
			ok(b, d.PutLaunches(b.Context(), id, uint64(from), l))
		}
		b.ReportMetric(float64(len(l)*b.N)/b.Elapsed().Seconds(), "launches/s")
	})
}

// BenchmarkRead reads a million scans of three rails: as chunks, and as rows.
func BenchmarkRead(b *testing.B) {
	const scans = 1_000_000
	s := sixChannels()
	chunks := encode(b, s.Timebase, ripple(scans), chunk.MaxScans, 0)
	both(b, func(b *testing.B, d *store.DB) {
		id := must(d.BeginTask(b.Context(), newTask("gemm", "lab")))(b)
		ok(b, d.PutHeader(b.Context(), id, header(s)))
		ok(b, d.AppendChunks(b.Context(), id, chunks, nil))
		b.Run("chunks", func(b *testing.B) {
			for b.Loop() {
				for _, err := range d.Chunks(b.Context(), id, 0) {
					ok(b, err)
				}
			}
			b.ReportMetric(scans*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mscans/s")
		})
		b.Run("data", func(b *testing.B) {
			for b.Loop() {
				var p float64
				ok(b, d.SQL().QueryRow("SELECT avg(power) FROM data WHERE taskID=?", int64(id)).Scan(&p))
			}
			b.ReportMetric(scans*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	})
}

// BenchmarkListTasks lists pages of 50 tasks of a million.
func BenchmarkListTasks(b *testing.B) {
	c := pgtest.Own(b)
	for _, n := range []int{100_000, 1_000_000} {
		name := fmt.Sprintf("w%d", n)
		c.Make(b, name)
		d := openAt(b, c.URL(name))
		makeTasks(b, c.URL(name), n)
		for _, page := range []string{"newest", "user", "user and name", "name", "prefix", "job"} {
			q := pages[page]
			q.Limit = 50
			b.Run(fmt.Sprintf("%d/%s", n, page), func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					begin := time.Now()
					if list := must(d.Tasks(b.Context(), q))(b); len(list) == 0 {
						b.Fatal("no tasks")
					}
					took = append(took, time.Since(begin))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
			})
		}
	}
}
