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
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store/internal/data"
)

// payloads are the stored chunks as they travel.
func payloads(t testing.TB, d *DB, id TaskID, from uint64) (out [][]byte) {
	t.Helper()
	for c, err := range d.Chunks(t.Context(), id, from) {
		ok(t, err)
		out = append(out, chunk.AppendPayload(nil, c))
	}
	return out
}

func TestChunksComeBackByteForByte(t *testing.T) {
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 10000, 40)
	chunks := encode(t, evenly, b, 1500, 20)
	if no, any, err := d.NextChunk(t.Context(), id); no != 0 || any || err != nil {
		t.Fatal(no, any, err)
	}
	var want [][]byte
	for _, c := range chunks {
		want = append(want, chunk.AppendPayload(nil, c))
	}
	ok(t, d.AppendChunks(t.Context(), id, chunks[:3], nil))
	ok(t, d.AppendChunks(t.Context(), id, chunks[2:], nil)) // one of them again
	if no, any, err := d.NextChunk(t.Context(), id); no != 27 || !any || err != nil {
		t.Fatal(no, any, err)
	}
	if got := payloads(t, d, id, 0); !slices.EqualFunc(got, want, slices.Equal) {
		t.Error("chunks differ")
	}
	if got := payloads(t, d, id, 25); !slices.EqualFunc(got, want[5:], slices.Equal) {
		t.Error("chunks from 25 on differ")
	}
	if got := payloads(t, d, id, 27); got != nil {
		t.Error("there are chunks after the last")
	}
	if task := must(d.Task(t.Context(), id))(t); task.Chunks != 7 || task.Scans != 10000 {
		t.Errorf("%d chunks, %d scans", task.Chunks, task.Scans)
	}
	for range d.Chunks(t.Context(), id, 0) {
		break // a reader that stops early leaves nothing behind
	}
}

func TestConflictsStoreNothing(t *testing.T) {
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 900, 4)
	chunks := encode(t, evenly, b, 300, 10)
	ok(t, d.AppendChunks(t.Context(), id, chunks[1:2], nil))
	other := ripple(rand.New(rand.NewPCG(2, 2)), 6, 900, 4)
	changed := func(f func(*chunk.Chunk)) *chunk.Chunk {
		c := encode(t, evenly, other, 300, 10)[2]
		f(c)
		c.CRC = chunk.Checksum(c)
		return c
	}
	damaged := chunks[2].Clone()
	damaged.Columns[1].Data[5] ^= 1
	narrow := encode(t, evenly, measure.Block{FirstScan: 600, FirstTick: 30000, Counts: other.Counts[:5]}, 900, 12)
	for name, c := range map[string]struct {
		bad  *chunk.Chunk
		want error
	}{
		"another checksum":     {changed(func(c *chunk.Chunk) { c.No, c.FirstScan, c.FirstTick = 11, 300, 15000 }), ErrConflict},
		"overlaps before":      {changed(func(c *chunk.Chunk) { c.FirstScan = 599 }), ErrConflict},
		"overlaps after":       {changed(func(c *chunk.Chunk) { c.No, c.FirstScan = 9, 1 }), ErrConflict},
		"damaged":              {damaged, ErrCorrupt},
		"a column is missing":  {narrow[0], ErrCorrupt},
		"stands before itself": {changed(func(c *chunk.Chunk) { c.No, c.FirstScan = 12, 0 }), ErrConflict},
	} {
		err := d.AppendChunks(t.Context(), id, []*chunk.Chunk{chunks[0], c.bad}, []measure.Event{{Kind: measure.EventNote, Detail: name}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if task := must(d.Task(t.Context(), id))(t); task.Chunks != 1 || len(task.Events) != 0 {
			t.Fatalf("%s: %d chunks, %d events are stored", name, task.Chunks, len(task.Events))
		}
	}
	ok(t, d.AppendChunks(t.Context(), id, []*chunk.Chunk{chunks[2], chunks[0]}, nil))
	if got := payloads(t, d, id, 0); len(got) != 3 {
		t.Errorf("%d chunks", len(got))
	}
}

func TestEventsAreStoredOnce(t *testing.T) {
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	e := []measure.Event{{Kind: measure.EventGap, FirstScan: 5, Scans: 2, Channel: -1, Detail: "a"}, {Kind: measure.EventNote, FirstScan: 5, Channel: -1, Detail: "b"}}
	for range 2 {
		ok(t, d.AppendChunks(t.Context(), id, nil, e))
	}
	if got := must(d.Task(t.Context(), id))(t).Events; !slices.Equal(got, e) {
		t.Errorf("%+v", got)
	}
}

// TestDamageOnDiskIsSeen changes a stored byte behind the program's back.
func TestDamageOnDiskIsSeen(t *testing.T) {
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 600, 4)
	ok(t, d.AppendChunks(t.Context(), id, encode(t, evenly, b, 300, 0), nil))
	_, err := d.writer.Exec(`UPDATE chunk_column SET data=CAST(substr(data,1,9)||x'ff'||substr(data,11) AS BLOB) WHERE chunk_no=1 AND col=3`)
	ok(t, err)
	var errs []error
	n := 0
	for _, err := range d.Chunks(t.Context(), id, 0) {
		if n++; err != nil {
			errs = append(errs, err)
		}
	}
	if n != 2 || len(errs) != 1 || !errors.Is(errs[0], ErrCorrupt) {
		t.Errorf("%d chunks, errors %v", n, errs)
	}
}

// TestReadersBesideTheWriter reads all the time while chunks come in: every
// reader sees whole transactions and is never told that the file is busy.
func TestReadersBesideTheWriter(t *testing.T) {
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 8000, 4)
	chunks := encode(t, evenly, b, 200, 0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for last := 0; ; {
				var n int
				if err := d.SQL().QueryRow("SELECT count(*) FROM data WHERE taskID=?", int64(id)).Scan(&n); err != nil {
					t.Error(err)
					return
				}
				if n%400 != 0 || n < last {
					t.Errorf("%d scans after %d: a transaction was seen by halves", n, last)
					return
				}
				last = n
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for len(chunks) > 0 {
		ok(t, d.AppendChunks(t.Context(), id, chunks[:2], nil))
		chunks = chunks[2:]
	}
	close(stop)
	wg.Wait()
}

// Events of the host's side may come before the header, and again.
func TestEventsBeforeTheHeader(t *testing.T) {
	d := open(t)
	id := must(d.BeginTask(t.Context(), newTask("early", "lab")))(t)
	e := measure.Event{Kind: measure.EventClock, Channel: -1, Detail: "the host's clock was set"}
	for range 2 {
		ok(t, d.PutEvents(t.Context(), id, []measure.Event{e}))
	}
	if task := must(d.Task(t.Context(), id))(t); len(task.Events) != 1 || task.Events[0] != e {
		t.Errorf("events %v, want %v", task.Events, e)
	}
	if err := d.PutEvents(t.Context(), id+1, []measure.Event{e}); err == nil {
		t.Error("events of a task that is not there were stored")
	}
}

// A chunk whose first column is gone is damaged: the others do not take its place.
func TestLostColumn(t *testing.T) {
	d, ctx := open(t), t.Context()
	id, _, chunks := long(t, d, 20_000)
	ok(t, d.AppendChunks(ctx, id, chunks, nil))
	_, err := d.writer.Exec("DELETE FROM chunk_column WHERE task_id=? AND chunk_no=1 AND col=0", id)
	ok(t, err)
	for _, err = range d.Chunks(ctx, id, 1) {
	}
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("a chunk without its first column: %v", err)
	}
}

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
		var n, values int
		ok(t, d.SQL().QueryRow(`SELECT count(*), count(power)+count(seqNum)+count(current1)+count(voltage2) FROM `+data).Scan(&n, &values))
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
		compare(t, fmt.Sprintf("seed %d, the view after the way back", seed), rows, readRows(t, d, everything+data))
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
	coverage.Long(t)
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
	for name, packed := range map[string][]byte{"one frame": bomb(64<<20, 1), "many": bomb(1<<20, 64), "without a size": streamed.Bytes()} {
		for _, scans := range []int{700, 0, 1 << 30} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := data.Unpack(&chunk.Chunk{Scans: scans}, 6, packed)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrCorrupt) || got > 16<<20 {
				t.Errorf("%s, %d scans: %d bytes allocated, %v", name, scans, got, err)
			}
		}
	}
}
