package store

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"wattmark/measure"
	"wattmark/measure/chunk"
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
	_, err = d.writer.Exec(`UPDATE chunk_column SET data=x'00' WHERE chunk_no=1`)
	ok(t, err)
	var p float64
	if err := d.SQL().QueryRow("SELECT sum(power) FROM data").Scan(&p); err == nil {
		t.Errorf("a column of one byte was read as %v W", p)
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
