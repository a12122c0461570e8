package store

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/pyramid"
)

// long is a task of n scans in chunks of 3000, with a gap, and what its series drew.
func long(t *testing.T, d *DB, n int) (TaskID, [][]measure.Watt, []*chunk.Chunk) {
	t.Helper()
	s := threeRails(evenly)
	id := begin(t, d, s)
	b := ripple(rand.New(rand.NewPCG(4, 4)), len(s.Channels), n, 40)
	chunks := encode(t, evenly, b, 3000, 0)
	meter, err := measure.NewPowerMeter(&s)
	ok(t, err)
	cols := make([][]measure.Watt, seriesOf(&s))
	powers(meter, len(s.Rails), &b, cols)
	return id, cols, chunks
}

// An envelope holds what the scans hold, from the pyramid of a task that is whole or
// still grows, or without one.
func TestEnvelopeIsTheScans(t *testing.T) {
	const n = 300_000
	d, ctx := open(t), t.Context()
	id, cols, chunks := long(t, d, n)
	hole := [2]uint64{120_000, 210_000} // chunks 40 to 69 are lost
	chunks = append(chunks[:40:40], chunks[70:]...)
	for at := 0; at < len(chunks); at += 7 {
		ok(t, d.AppendChunks(ctx, id, chunks[at:min(at+7, len(chunks))], nil))
	}
	check := func(what string) {
		t.Helper()
		for _, span := range [][2]uint64{{0, n}, {1000, 1500}, {23_456, 254_321}, {110_000, 130_000}, {299_000, n}} {
			for _, columns := range []int{1, 300} {
				checkEnvelope(t, what, d, id, cols, hole, span, columns)
			}
		}
	}
	check("while it grows")
	ok(t, d.Finish(ctx, id, fullOutcome()))
	var whole bool
	ok(t, d.reader.QueryRow(`SELECT count(*) FROM pyramid_whole w JOIN task t USING(task_id) WHERE w.scans=t.scans`).Scan(&whole))
	if !whole {
		t.Error("the pyramid of a finished task is not whole")
	}
	check("finished")
	_, err := d.writer.Exec(`DELETE FROM pyramid; DELETE FROM pyramid_whole`)
	ok(t, err)
	check("without a pyramid")
	ok(t, d.BuildPyramid(ctx, id))
	check("built anew")
}

func checkEnvelope(t *testing.T, what string, d *DB, id TaskID, cols [][]measure.Watt, hole, span [2]uint64, columns int) {
	t.Helper()
	at := func(scan uint64) measure.Seconds { return evenly.Seconds(float64(scan) * evenly.TicksPerScan) }
	e, err := d.Envelope(t.Context(), id, at(span[0]), at(span[1]), columns)
	ok(t, err)
	// A time that was computed may round to the scan behind it.
	near := func(a, b uint64) bool { return a-b+1 <= 2 }
	if len(e.Series) != len(cols) || e.Series[len(e.Series)-1] != Total || !near(e.First, span[0]) || !near(e.First+e.Scans, span[1]) {
		t.Fatalf("%s: series %q, scans %d from %d on, want %d from %d on", what, e.Series, e.Scans, e.First, span[1]-span[0], span[0])
	}
	for s, col := range cols {
		all := over(col, hole, 0, uint64(len(col)))
		fine := 3 * (all.Max - all.Min) / math.MaxUint16 // the steps of a page
		tiny := (all.Max - all.Min) / 1e6                // what is rounded on the way to them
		for c, got := range e.Columns[s] {
			// The column's bins reach at most a bin beyond it on either side.
			n := uint64(columns)
			from, end := e.First+(e.Scans*uint64(c)+n-1)/n, e.First+(e.Scans*uint64(c+1)+n-1)/n
			inner := over(col, hole, from+e.BinScans-1, max(end, e.BinScans)-e.BinScans+1)
			outer := over(col, hole, max(from, e.BinScans)-e.BinScans, end+e.BinScans)
			if inner.N > 0 && (got.N == 0 || got.Min > inner.Min+tiny || got.Max < inner.Max-tiny) ||
				got.N > 0 && (got.Min < outer.Min-fine || got.Max > outer.Max+fine || got.Mean() < outer.Min-fine || got.Mean() > outer.Max+fine) {
				t.Fatalf("%s, scans %v, series %d, column %d of %d: %+v, want within %+v and %+v", what, span, s, c, columns, got, inner, outer)
			}
		}
	}
	if span[1]-span[0] == 300_000 && columns == 1 {
		var sum float64
		for _, b := range e.Columns[0] {
			sum += b.Sum / float64(b.N)
		}
		if want := over(cols[0], hole, 0, 300_000); math.Abs(sum-float64(want.Mean())) > 0.01 {
			t.Errorf("%s: mean %v, want %v", what, sum, want.Mean())
		}
	}
}

func over(col []measure.Watt, hole [2]uint64, from, end uint64) (b pyramid.Bin) {
	for i := from; i < min(end, uint64(len(col))); i++ {
		if i < hole[0] || i >= hole[1] {
			b.Join(pyramid.Bin{Min: col[i], Max: col[i], Sum: float64(col[i]), N: 1})
		}
	}
	return b
}

// A host that dies and comes back goes on with the pyramid as with the chunks.
func TestPyramidSurvivesAnotherHandle(t *testing.T) {
	const n = 300_000
	d, ctx := open(t), t.Context()
	id, cols, chunks := long(t, d, n)
	for at, c := range chunks {
		if at%17 == 5 {
			d.keepFolding(id, nil) // as a new process has it
		}
		ok(t, d.AppendChunks(ctx, id, []*chunk.Chunk{c}, nil))
		if at%9 == 2 { // what is sent twice counts once
			ok(t, d.AppendChunks(ctx, id, chunks[max(0, at-1):at+1], nil))
		}
	}
	d.keepFolding(id, nil)
	ok(t, d.Finish(ctx, id, fullOutcome()))
	checkEnvelope(t, "resumed", d, id, cols, [2]uint64{n, n}, [2]uint64{0, n}, 300)
	e, err := d.Envelope(ctx, id, 0, evenly.Seconds(n*evenly.TicksPerScan), 1)
	ok(t, err)
	if e.Columns[0][0].N != n {
		t.Errorf("%d scans are in the pyramid, want %d", e.Columns[0][0].N, n)
	}
}

// Tasks without a whole pyramid of the calibration in use get one; those that cannot are
// told of, and those that still run are let be.
func TestBuildPyramids(t *testing.T) {
	const n = 200_000
	d, ctx := open(t), t.Context()
	var ids []TaskID
	for range 4 {
		id, _, chunks := long(t, d, n)
		ok(t, d.AppendChunks(ctx, id, chunks, nil))
		ids = append(ids, id)
	}
	for _, id := range ids[:3] {
		ok(t, d.Finish(ctx, id, fullOutcome()))
	}
	for _, q := range []string{"DELETE FROM pyramid WHERE task_id<>2", "DELETE FROM pyramid_whole WHERE task_id<>2", "UPDATE chunk_column SET data=x'' WHERE task_id=3 AND chunk_no=1"} {
		_, err := d.writer.Exec(q)
		ok(t, err)
	}
	var told []string
	tell := func(id TaskID, err error) {
		told = append(told, fmt.Sprint(id, errors.Is(err, ErrCorrupt), err == nil))
	}
	ok(t, d.BuildPyramids(ctx, tell))
	if want := []string{"3 true false", "1 false true"}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
	var whole int
	ok(t, d.reader.QueryRow(`SELECT count(*) FROM pyramid_whole w JOIN task t USING(task_id) WHERE w.scans=t.scans AND w.scans=?`, n).Scan(&whole))
	if whole != 2 {
		t.Errorf("%d are whole, want 2", whole)
	}
	if f := must(d.newFolding(ctx, 1))(t); f != nil {
		f.calibration++
		ok(t, d.write(ctx, "look", func(tx *sql.Tx) error {
			if err := f.inUse(ctx, tx, 1); !errors.Is(err, ErrConflict) {
				t.Errorf("another calibration in use: %v", err)
			}
			return nil
		}))
	}
}

// A batch that is refused leaves nothing in the pyramid.
func TestPyramidOfABatchThatFails(t *testing.T) {
	d, ctx := open(t), t.Context()
	id, _, chunks := long(t, d, 200_000)
	ok(t, d.AppendChunks(ctx, id, chunks[:10], nil))
	bad := chunks[40].Clone()
	bad.CRC++
	if err := d.AppendChunks(ctx, id, append(chunks[10:40:40], bad), nil); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
	s := threeRails(evenly)
	other := ripple(rand.New(rand.NewPCG(5, 5)), len(s.Channels), 200_000, 40)
	clash := encode(t, evenly, other, 3000, 0)[4]
	if err := d.AppendChunks(ctx, id, append(chunks[10:40:40], clash), nil); !errors.Is(err, ErrConflict) {
		t.Fatalf("got %v", err)
	}
	ok(t, d.AppendChunks(ctx, id, chunks[10:], nil))
	ok(t, d.Finish(ctx, id, fullOutcome()))
	e, err := d.Envelope(ctx, id, 0, evenly.Seconds(200_000*evenly.TicksPerScan), 1)
	ok(t, err)
	if got := e.Columns[0][0].N; got != 200_000 {
		t.Errorf("%d scans are in the pyramid", got)
	}
	if _, err := d.Envelope(ctx, id, 1, 1, 10); err == nil {
		t.Error("an empty stretch was read")
	}
	if _, err := d.Envelope(ctx, 99, 0, 1, 10); !errors.Is(err, ErrNotFound) {
		t.Errorf("a task that is not there: %v", err)
	}
}

// powers fills a column a series with a block's power, and returns the first scan.
func powers(m *measure.PowerMeter, rails int, b *measure.Block, cols [][]measure.Watt) uint64 {
	for r := range rails {
		cols[r] = m.RailPower(r, b, cols[r])
	}
	if len(cols) > rails {
		cols[rails] = m.Total(b, cols[rails])
	}
	return b.FirstScan
}

func BenchmarkFold(b *testing.B) {
	s := threeRails(evenly)
	data := ripple(rand.New(rand.NewPCG(4, 4)), len(s.Channels), 16384, 4)
	chunks := encode(b, evenly, data, 16384, 0)
	f, err := newFolding(&s)
	if err != nil {
		b.Fatal(err)
	}
	c := chunks[0]
	b.ReportAllocs()
	for i := range b.N {
		c.FirstScan = uint64(i) * 16384
		if err := f.take(c); err != nil {
			b.Fatal(err)
		}
		f.rows = f.rows[:0]
	}
	b.ReportMetric(float64(b.N)*16384/b.Elapsed().Seconds()/1e6, "Mscans/s")
}

// BenchmarkEnvelope draws 2000 columns of 17 million scans at the zooms that take
// longest: just before a coarser level, or none, is fine enough.
func BenchmarkEnvelope(b *testing.B) {
	const columns, chunks = 2000, 64
	d, ctx := open(b), b.Context()
	s := threeRails(evenly)
	id := begin(b, d, s)
	blk := ripple(rand.New(rand.NewPCG(1, 1)), len(s.Channels), chunk.MaxScans, 4)
	for no := range uint64(chunks) {
		c := encode(b, evenly, blk, chunk.MaxScans, 0)[0].Clone()
		c.No, c.FirstScan, c.FirstTick = no, no*chunk.MaxScans, int64(float64(no*chunk.MaxScans)*s.Timebase.TicksPerScan)
		c.CRC = chunk.Checksum(c)
		ok(b, d.AppendChunks(ctx, id, []*chunk.Chunk{c}, nil))
	}
	ok(b, d.Finish(ctx, id, Outcome{State: Incomplete}))
	lo, hi, err := d.Extent(ctx, id)
	ok(b, err)
	for _, scans := range []float64{1, 10, pyramid.Base - 1, pyramid.Base, pyramid.Ratio*pyramid.Base - 1, pyramid.Ratio * pyramid.Base} {
		b.Run(fmt.Sprintf("%v scans a column", scans), func(b *testing.B) {
			b.ReportAllocs()
			half := (hi - lo) * measure.Seconds(scans*columns/chunks/chunk.MaxScans/2)
			for b.Loop() {
				_, err := d.Envelope(ctx, id, (lo+hi)/2-half, (lo+hi)/2+half, columns)
				ok(b, err)
			}
		})
	}
}

// pagesOf are the stored pages of a level, one behind the other.
func pagesOf(t *testing.T, d *DB, id TaskID, level int) (out []byte) {
	t.Helper()
	ok(t, d.eachPage(t.Context(), id, level, 0, 1<<20, func(_ uint64, data []byte) error {
		out = append(out, data...)
		return nil
	}))
	return out
}

// A transfer that stops behind any chunk and is gone on with, by this process or by
// another, leaves the pyramid of one that did not stop; so do chunks out of their order,
// and one that an older program closed in the middle.
func TestPyramidOfAResumedTransfer(t *testing.T) {
	t.Parallel()
	noRaces(t)
	d, ctx := open(t), t.Context()
	other := must(Open(ctx, d.path))(t)
	defer other.Close()
	id, _, chunks := long(t, d, 150_000) // a page and a bit
	ok(t, d.AppendChunks(ctx, id, chunks, nil))
	ok(t, d.Finish(ctx, id, fullOutcome()))
	want := pagesOf(t, d, id, 0)
	for cut := 1; cut < len(chunks); cut++ {
		for how, stop := range map[string]func(TaskID) *DB{
			"postponed": func(id TaskID) *DB {
				ok(t, d.Finish(ctx, id, Outcome{State: Running, Reason: "the transfer stopped"}))
				return d
			},
			"another process": func(id TaskID) *DB {
				ok(t, d.Finish(ctx, id, Outcome{State: Running, Reason: "the transfer stopped"}))
				return other
			},
			"an older program": func(id TaskID) *DB {
				ok(t, d.finishPyramid(ctx, id))
				return d
			},
		} {
			if how != "postponed" && cut%7 != 0 {
				continue
			}
			id := begin(t, d, threeRails(evenly))
			ok(t, d.AppendChunks(ctx, id, chunks[:cut], nil))
			on := stop(id)
			ok(t, on.AppendChunks(ctx, id, chunks[cut:], nil))
			ok(t, on.Finish(ctx, id, fullOutcome()))
			if !bytes.Equal(pagesOf(t, d, id, 0), want) {
				t.Errorf("%s behind chunk %d: other pages", how, cut)
			}
			for _, f := range must(d.Check(ctx, CheckOptions{Task: id}))(t).Findings {
				if f.Kind == BadPyramid {
					t.Errorf("%s behind chunk %d: %s", how, cut, f.What)
				}
			}
		}
	}
	late := begin(t, d, threeRails(evenly))
	ok(t, d.AppendChunks(ctx, late, chunks[1:], nil))
	ok(t, d.AppendChunks(ctx, late, chunks[:1], nil))
	ok(t, d.Finish(ctx, late, fullOutcome()))
	if !bytes.Equal(pagesOf(t, d, late, 0), want) {
		t.Error("the first chunk last: other pages")
	}
}
