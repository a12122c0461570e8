package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/postgres"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openAt(t testing.TB, address string) *store.DB {
	t.Helper()
	d := must(store.Open(t.Context(), address))(t)
	t.Cleanup(func() { ok(t, d.Close()) })
	return d
}

func openFile(t testing.TB) *store.DB {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "power.db"))
}

func open(t testing.TB) *store.DB {
	t.Helper()
	return openAt(t, database(t))
}

var epoch = time.Date(2026, 3, 4, 5, 6, 7, 123456000, time.UTC)

func newTask(name, user string) store.NewTask {
	return store.NewTask{
		Name: name, User: user, Job: "train 7", Launched: epoch, Monitor: "bench:7000", CaptureID: "c-1",
		GPU: "H200", GPUUUID: "GPU-1", Driver: "570.1",
		Marker: marker.Spec{Code: marker.M15, Chip: 0.002, Guard: 4, TagBits: 8, Tag: 0xa5},
	}
}

func header(s measure.Setup) store.Header {
	return store.Header{
		Bench: "lab-1", BenchGPU: "GPU-1", CalibrationID: "cal", Setup: s, Started: epoch.Add(-time.Second),
		Instrument: store.Instrument{Kind: "powersensor", Model: "PS3", Serial: "42", Firmware: "1", Address: "/dev/ttyACM0"},
	}
}

// randomSetup draws any number of rails of any wiring and role.
func randomSetup(rng *rand.Rand, tb measure.Timebase) measure.Setup {
	s := measure.Setup{Timebase: tb}
	channel := func(unit measure.Unit) int {
		s.Channels = append(s.Channels, measure.Channel{
			Name: fmt.Sprintf("c%d", len(s.Channels)), Unit: unit,
			Gain: (rng.Float64() + 0.1) * 1e-3, Offset: rng.NormFloat64() * float64(rng.IntN(2)),
		})
		return len(s.Channels) - 1
	}
	for n := 1 + rng.IntN(6); len(s.Rails) < n; {
		r := measure.Rail{
			Name: fmt.Sprintf("rail%d", len(s.Rails)), Role: measure.Role(1 + rng.IntN(4)),
			Wiring: measure.Wiring(1 + rng.IntN(4)), Y: -1,
		}
		switch r.Wiring {
		case measure.WiringShunt:
			r.Y, r.X, r.Shunt = channel(measure.UnitVolt), channel(measure.UnitVolt), measure.Ohm(0.001+rng.Float64())
		case measure.WiringClamp:
			r.X, r.Y = channel(measure.UnitAmpere), channel(measure.UnitVolt)
		case measure.WiringAssumed:
			r.X, r.Assumed = channel(measure.UnitAmpere), 12
		case measure.WiringPower:
			r.X = channel(measure.UnitWatt)
		}
		s.Rails = append(s.Rails, r)
	}
	channel(measure.UnitVolt) // one that no rail uses
	return s
}

// randomCounts makes counts of any width, of which each 256 may have another.
func randomCounts(rng *rand.Rand, n int) []measure.Count {
	out := make([]measure.Count, n)
	var width, base int32
	for i := range out {
		if i%200 == 0 {
			width, base = int32(rng.IntN(33)), int32(rng.Uint32())>>rng.IntN(20)
		}
		out[i] = base + int32(rng.Uint64()&(1<<width-1))
	}
	return out
}

// randomChunks makes chunks of blocks with gaps between them.
func randomChunks(t testing.TB, rng *rand.Rand, s measure.Setup) (out []*chunk.Chunk, scans uint64) {
	t.Helper()
	scan, no := uint64(rng.IntN(3)*1000), uint64(rng.IntN(4))
	for range 1 + rng.IntN(4) {
		n := 1 + rng.IntN(1500)
		b := measure.Block{FirstScan: scan, FirstTick: int64(scan) * 50}
		for range s.Channels {
			b.Counts = append(b.Counts, randomCounts(rng, n))
		}
		for i := 0; s.Timebase.Stamped && i < n; i++ {
			b.Ticks = append(b.Ticks, b.FirstTick+int64(50*i+rng.IntN(5)))
		}
		chunks := encode(t, s.Timebase, b, 1+rng.IntN(1000), no)
		out, no = append(out, chunks...), no+uint64(len(chunks))
		scan += uint64(n + rng.IntN(2)*rng.IntN(3000))
		scans += uint64(n)
	}
	return out, scans
}

func encode(t testing.TB, tb measure.Timebase, b measure.Block, size int, no uint64) (out []*chunk.Chunk) {
	t.Helper()
	e := must(chunk.NewEncoder(tb, len(b.Counts), size))(t)
	for done, rest := 0, b; ; {
		n := must(e.Append(&rest))(t)
		done += n
		if c := e.Flush(no); c != nil {
			out = append(out, c.Clone())
			no++
		}
		if done == b.Scans() {
			return out
		}
		rest = b.Slice(tb, done, b.Scans())
	}
}

// waits is what users are told.
var waits told

type told struct {
	mu   sync.Mutex
	text string
}

func (s *told) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text += text + "\n"
}

// take returns what was said since it was last called.
func (s *told) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.text = "" }()
	return s.text
}

func TestMain(m *testing.M) {
	postgres.Register(waits.add)
	os.Exit(runShared(m))
}
