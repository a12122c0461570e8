package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"wattmark/measure/chunk"
)

// A packed task reads as before everywhere here, to the byte; the plain view shows
// one row without values instead of wrong ones.
func TestColdTasksReadAsBefore(t *testing.T) {
	t.Parallel()
	noRaces(t)
	d := open(t)
	for seed := range uint64(4) {
		s := randomTask(t, d, rand.New(rand.NewPCG(seed, 15)), seed%2 == 0)
		ok(t, d.Finish(t.Context(), s.id, Outcome{State: Incomplete, Reason: "a test"}))
		data := fmt.Sprintf("data WHERE taskID=%d", s.id)
		rows, raw := readRows(t, d, everything+data), payloads(t, d, s.id, 0)
		p := must(d.Compact(t.Context(), s.id))(t)
		if p.After > p.Before || p.Chunks != uint64(len(raw)) {
			t.Errorf("seed %d: %+v", seed, p)
		}
		if !slices.EqualFunc(raw, payloads(t, d, s.id, 0), bytes.Equal) {
			t.Errorf("seed %d: other bytes", seed)
		}
		compare(t, fmt.Sprintf("seed %d, packed", seed), rows, readRows(t, d, everything+data))
		var n, values int
		ok(t, d.SQL().QueryRow(`SELECT count(*), count(power)+count(seqNum)+count(current1)+count(voltage2) FROM main.`+data).Scan(&n, &values))
		if n != 1 || values != 0 {
			t.Errorf("seed %d: the view shows %d rows and %d values", seed, n, values)
		}
		var message string
		ok(t, d.SQL().QueryRow(`SELECT message FROM cold WHERE taskID=?`, int64(s.id)).Scan(&message))
		if task := must(d.Task(t.Context(), s.id))(t); !task.Cold || !strings.Contains(message, fmt.Sprintf("wattmark db expand %d", s.id)) {
			t.Errorf("seed %d: cold %v, %q", seed, task.Cold, message)
		}
		again := must(d.Compact(t.Context(), s.id))(t)
		back := must(d.Expand(t.Context(), s.id))(t)
		if again.Chunks != p.Chunks || back.Before != p.After || back.After != p.Before {
			t.Errorf("seed %d: packed %+v, again %+v, back %+v", seed, p, again, back)
		}
		if !slices.EqualFunc(raw, payloads(t, d, s.id, 0), bytes.Equal) {
			t.Errorf("seed %d: other bytes after the way back", seed)
		}
		compare(t, fmt.Sprintf("seed %d, the view after the way back", seed), rows, readRows(t, d, everything+"main."+data))
	}
}

func TestPackingRefuses(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 9000, 4)
	ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, b, 300, 0), nil))
	if _, err := d.Compact(t.Context(), id); !errors.Is(err, ErrConflict) {
		t.Errorf("a task that runs: %v", err)
	}
	if _, err := d.Compact(t.Context(), 99); !errors.Is(err, ErrNotFound) {
		t.Errorf("a task that is not there: %v", err)
	}
	ok(t, d.Finish(t.Context(), id, Outcome{State: Incomplete}))
	// It stops at a damaged chunk, with what came before packed and all else readable.
	harm(t, d, `UPDATE chunk SET crc=crc+1 WHERE chunk_no=20`)
	if _, err := d.Compact(t.Context(), id); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged chunk: %v", err)
	}
	harm(t, d, `UPDATE chunk SET crc=crc-1 WHERE chunk_no=20`)
	if n := len(payloads(t, d, id, 0)); n != 30 {
		t.Errorf("%d chunks of 30", n)
	}
	// Damage to what is packed is found, and set aside as any other.
	must(d.Compact(t.Context(), id))(t)
	harm(t, d, `UPDATE chunk_cold SET data=CAST(substr(data,1,20) AS BLOB) WHERE chunk_no=7`)
	found := check(t, d)
	if len(found) != 1 || found[0].Kind != BadChunk || found[0].Chunk != 7 {
		t.Errorf("%+v", found)
	}
	must(d.Repair(t.Context(), found))(t)
	if left := check(t, d); len(left) > 0 {
		t.Errorf("after the repair: %+v", left)
	}
}

// A disk that is full while a task is packed, or unpacked, costs nothing.
func TestPackingOnAFullDisk(t *testing.T) {
	t.Parallel()
	noRaces(t)
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 300000, 4)
	ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, b, 5000, 0), nil))
	ok(t, d.Finish(t.Context(), id, Outcome{State: Incomplete}))
	want := payloads(t, d, id, 0)
	must(d.Compact(t.Context(), id))(t)
	var pages int
	_, _, err := d.Vacuum(t.Context())
	ok(t, err)
	ok(t, d.writer.QueryRow("PRAGMA page_count").Scan(&pages))
	_, err = d.writer.Exec(fmt.Sprintf("PRAGMA max_page_count=%d", pages))
	ok(t, err)
	if _, err := d.Expand(t.Context(), id); !errors.Is(err, ErrFull) {
		t.Errorf("without room: %v", err)
	}
	if !slices.EqualFunc(want, payloads(t, d, id, 0), bytes.Equal) {
		t.Error("other bytes after it failed")
	}
	_, err = d.writer.Exec("PRAGMA max_page_count=1000000")
	ok(t, err)
	must(d.Expand(t.Context(), id))(t)
	if f := check(t, d); len(f) > 0 || !slices.EqualFunc(want, payloads(t, d, id, 0), bytes.Equal) {
		t.Errorf("in the end: %+v", f)
	}
}

// A program that is killed while it packs leaves a task that reads as before.
func TestKilledWhilePacking(t *testing.T) {
	t.Parallel()
	noRaces(t)
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	for no := range uint64(40) {
		c, events, err := crashChunk(no)
		ok(t, err)
		ok(t, d.AppendChunks(t.Context(), id, []*chunk.Chunk{c}, events))
	}
	ok(t, d.Finish(t.Context(), id, Outcome{State: Incomplete}))
	want := payloads(t, d, id, 0)
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		runAndKill(t, d.path+packSuffix, 1+round)
		if !slices.EqualFunc(want, payloads(t, d, id, 0), bytes.Equal) {
			t.Fatalf("round %d: other bytes", round)
		}
		if f := check(t, d); len(f) > 0 {
			t.Fatalf("round %d: %+v", round, f)
		}
	}
}

// packSuffix behind the path makes the child of the crash tests pack and unpack.
const packSuffix = "|pack"

func packUntilKilled(path string) error {
	ctx := context.Background()
	d, err := Open(ctx, strings.TrimSuffix(path, packSuffix))
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		if _, err := d.Compact(ctx, 1); err != nil {
			return err
		}
		fmt.Println("stored", n)
		if _, err := d.Expand(ctx, 1); err != nil {
			return err
		}
	}
}

// The view of 0013 is that of 0002, but for cold tasks.
func TestViewOfColdTasksIsTheOldView(t *testing.T) {
	noRaces(t)
	old, now := string(must(migrationFiles.ReadFile("migrations/0002_data.sql"))(t)), string(must(migrationFiles.ReadFile("migrations/0013_care.sql"))(t))
	_, old, _ = strings.Cut(old, "CREATE VIEW data AS")
	_, now, _ = strings.Cut(now, "CREATE VIEW data AS")
	old = strings.TrimSuffix(strings.TrimSpace(old), ";")
	now = strings.ReplaceAll(now, " AND t.cold=0\n", "\n")
	rest, same := strings.CutPrefix(strings.TrimSpace(now), old)
	if !same || !strings.HasPrefix(strings.TrimSpace(rest), "UNION ALL\nSELECT t.task_id, t.name, u.login, NULL") {
		t.Error("it is another")
	}
}

func BenchmarkCompact(b *testing.B) {
	d := open(b)
	id := begin(b, d, threeRails(evenly))
	const scans = 4 * chunk.MaxScans
	ok(b, d.AppendChunks(b.Context(), id, encode(b, evenly, ripple(rand.New(rand.NewPCG(1, 1)), 6, scans, 4), chunk.MaxScans, 0), nil))
	ok(b, d.Finish(b.Context(), id, Outcome{State: Incomplete}))
	var p Packed
	rate := func(b *testing.B) {
		b.ReportMetric(scans*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mscans/s")
		b.ReportMetric(float64(p.After)/scans, "B/scan")
	}
	b.Run("compact", func(b *testing.B) {
		for b.Loop() {
			p = must(d.Compact(b.Context(), id))(b)
			b.StopTimer()
			must(d.Expand(b.Context(), id))(b)
			b.StartTimer()
		}
		rate(b)
	})
	b.Run("expand", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			must(d.Compact(b.Context(), id))(b)
			b.StartTimer()
			p = must(d.Expand(b.Context(), id))(b)
		}
		rate(b)
	})
	must(d.Compact(b.Context(), id))(b)
	for _, kind := range []string{"read packed", "read as it came"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				for _, err := range d.Chunks(b.Context(), id, 0) {
					ok(b, err)
				}
			}
			b.ReportMetric(scans*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mscans/s")
		})
		must(d.Expand(b.Context(), id))(b)
	}
	if st, err := os.Stat(d.path); err == nil {
		b.Logf("file: %d bytes", st.Size())
	}
}

// A packed chunk is not unpacked beyond what its head allows.
func TestPackedBombs(t *testing.T) {
	bomb := func(n int, frames int) (out []byte) {
		w := must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression)))(t)
		for range frames {
			out = w.EncodeAll(make([]byte, n), out)
		}
		return out
	}
	var streamed bytes.Buffer // states no size
	w := must(zstd.NewWriter(&streamed))(t)
	must(w.Write(make([]byte, 64<<20)))(t)
	ok(t, w.Close())
	for name, data := range map[string][]byte{"one frame": bomb(64<<20, 1), "many": bomb(1<<20, 64), "without a size": streamed.Bytes()} {
		for _, scans := range []int{700, 0, 1 << 30} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := unpackChunk(&chunk.Chunk{Scans: scans}, 6, data)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrCorrupt) || got > 16<<20 {
				t.Errorf("%s, %d scans: %d bytes allocated, %v", name, scans, got, err)
			}
		}
	}
}
