package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
)

// template is a new database, made once: writing the look-up table takes a
// while under the race detector.
var template = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "wattmark-store")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "power.db")
	d, err := Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func open(t testing.TB) *DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "power.db")
	ok(t, os.WriteFile(path, must(template())(t), 0o644))
	d := must(Open(t.Context(), path))(t)
	t.Cleanup(func() { ok(t, d.Close()) })
	return d
}

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

var epoch = time.Date(2026, 3, 4, 5, 6, 7, 123456000, time.UTC)

func newTask(name, user string) NewTask {
	return NewTask{
		Name: name, User: user, Job: "train 7", Launched: epoch, Monitor: "bench:7000", CaptureID: "c-1",
		GPU: "H200", GPUUUID: "GPU-1", Driver: "570.1",
		Marker: marker.Spec{Code: marker.M15, Chip: 0.002, Guard: 4, TagBits: 8, Tag: 0xa5},
	}
}

// threeRails is the classical wiring: a clamp at the PSU cable, two shunts in the slot.
func threeRails(tb measure.Timebase) measure.Setup {
	v := func(name string, gain, offset float64) measure.Channel {
		return measure.Channel{Name: name, Unit: measure.UnitVolt, Gain: gain, Offset: offset, UGain: 1e-3}
	}
	return measure.Setup{
		Timebase: tb,
		Channels: []measure.Channel{
			{Name: "psu.i", Unit: measure.UnitAmpere, Gain: 1e-3, Offset: -0.02, UGain: 2e-3},
			v("psu.v", 5e-4, 0.01), v("3v3.s", 1.1e-4, 0), v("3v3.g", 1.1e-4, 0.002), v("12v.s", 5e-4, 0), v("12v.g", 5e-4, 0),
		},
		Rails: []measure.Rail{
			{Name: "aux_12v", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1},
			{Name: "pcie_3v3", Role: measure.RolePCIe3V3, Wiring: measure.WiringShunt, X: 2, Y: 3, Shunt: 0.005},
			{Name: "pcie_12v", Role: measure.RolePCIe12V, Wiring: measure.WiringShunt, X: 4, Y: 5, Shunt: 0.005},
		},
	}
}

func header(s measure.Setup) Header {
	return Header{Bench: "bench", Instrument: Instrument{Kind: "emulated", Serial: "1"}, Setup: s, CalibrationID: "cal", Started: epoch}
}

var evenly = measure.Timebase{TickHz: 1e6, UTickHz: 1e-4, TicksPerScan: 50}

// ripple fills a block with plausible counts: levels, noise of sigma, ripple.
func ripple(rng *rand.Rand, channels, n int, sigma float64) measure.Block {
	b := measure.Block{Counts: make([][]measure.Count, channels)}
	for c := range b.Counts {
		b.Counts[c] = make([]measure.Count, n)
		level := 0.0
		for i := range n {
			if i%20000 == 0 {
				level = 2000 + 20000*rng.Float64()
			}
			b.Counts[c][i] = int32(level + 30*math.Sin(float64(i)/4000) + sigma*rng.NormFloat64())
		}
	}
	return b
}

// encode cuts the block into chunks of the given size, numbered from no on.
func encode(t testing.TB, tb measure.Timebase, b measure.Block, size int, no uint64) []*chunk.Chunk {
	t.Helper()
	e := must(chunk.NewEncoder(tb, len(b.Counts), size))(t)
	var out []*chunk.Chunk
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

// begin makes a task with a header.
func begin(t testing.TB, d *DB, s measure.Setup) TaskID {
	t.Helper()
	id := must(d.BeginTask(t.Context(), newTask("gemm", "lab")))(t)
	ok(t, d.PutHeader(t.Context(), id, header(s)))
	return id
}

// noRaces passes over a test that calls the database from one goroutine: SQLite takes
// twenty times as long under the race detector, and what is called at once has tests
// of its own.
func noRaces(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine: nothing can race")
	}
}

// programEnv makes a copy of the test program another program that uses a database:
//
//	look PATH      prints how many tasks it reads there
//	add PATH N     opens it, adds a task and closes it, N times
const programEnv = "WATTMARK_STORE_PROGRAM"

func program(words []string) {
	ctx := context.Background()
	var err error
	switch words[0] {
	case "look":
		var d *DB
		if d, err = OpenReadOnly(ctx, words[1]); err == nil {
			var list []TaskID
			list, err = d.TaskIDs(ctx)
			fmt.Print(len(list))
			err = errors.Join(err, d.Close())
		}
	case "add":
		n, _ := strconv.Atoi(words[2])
		for i := 0; i < n && err == nil; i++ {
			var d *DB
			if d, err = Open(ctx, words[1]); err == nil {
				_, err = d.BeginTask(ctx, newTask("a", "b"))
				err = errors.Join(err, d.Close())
			}
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func namesOf(t *testing.T, db *sql.DB, query string, args ...any) (names []string) {
	t.Helper()
	rows := must(db.Query(query, args...))(t)
	defer rows.Close()
	for rows.Next() {
		var n string
		ok(t, rows.Scan(&n))
		names = append(names, n)
	}
	ok(t, rows.Err())
	return names
}
