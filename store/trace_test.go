package store

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/pyramid"
	"github.com/wattmark/wattmark/store/internal/fold"
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
	cols := make([][]measure.Watt, fold.Series(&s))
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
			d.folds.Delete(id) // as a new process has it
		}
		ok(t, d.AppendChunks(ctx, id, []*chunk.Chunk{c}, nil))
		if at%9 == 2 { // what is sent twice counts once
			ok(t, d.AppendChunks(ctx, id, chunks[max(0, at-1):at+1], nil))
		}
	}
	d.folds.Delete(id)
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
		err := d.write(ctx, "look", func(s *session) { f.inUse(s, 1) })
		if !errors.Is(err, ErrConflict) {
			t.Errorf("another calibration in use: %v", err)
		}
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
		c := measure.Columns{P: cols[r]}
		m.Rail(r, b, &c)
		cols[r] = c.P
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
	f, err := fold.New(&s)
	if err != nil {
		b.Fatal(err)
	}
	c := chunks[0]
	b.ReportAllocs()
	for i := range b.N {
		c.FirstScan = uint64(i) * 16384
		if err := f.Take(c); err != nil {
			b.Fatal(err)
		}
		f.HandOver()
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
	coverage.Long(t)
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

// The energy of a span is what an integrator makes of all blocks, whatever chunks
// it is read from; and spans add up.
func TestSpanEnergyIsTheIntegral(t *testing.T) {
	d, ctx := open(t), t.Context()
	s := threeRails(evenly)
	for i := range s.Channels {
		s.Channels[i].Skew = measure.Seconds(float64(i) * 7e-6)
	}
	id := begin(t, d, s)
	b := ripple(rand.New(rand.NewPCG(8, 8)), len(s.Channels), 40_000, 30)
	chunks := encode(t, evenly, b, 1500, 3)
	ok(t, d.AppendChunks(ctx, id, append(chunks[:10:10], chunks[13:]...), nil)) // chunks 10 to 12 are lost
	rng := rand.New(rand.NewPCG(9, 9))
	var last measure.Joule
	for i := range 40 {
		from := measure.Seconds(0.1 + 1.7*rng.Float64())
		to := min(from+measure.Seconds(rng.Float64()*0.2+1e-3), 1.95)
		want := must(measure.NewIntegrator(&s, from, to))(t)
		ok(t, feed(want, b, 15_000, 19_500))
		w := must(want.Result(measure.Edges{}))(t)
		got := must(d.SpanEnergy(ctx, id, from, to))(t)
		if d := math.Abs(float64(got.Total.Energy - w.Total.Energy)); d > 1e-9*float64(w.Total.Energy) || got.Samples != w.Samples || got.Gaps != w.Gaps {
			t.Errorf("span %d, %v to %v: %v in %d samples, %d gaps, want %v in %d, %d", i, from, to, got.Total, got.Samples, got.Gaps, w.Total, w.Samples, w.Gaps)
		}
		last = got.Total.Energy
	}
	if last <= 0 {
		t.Errorf("%v", last)
	}
	whole, one, two := must(d.SpanEnergy(ctx, id, 0.2, 0.6))(t), must(d.SpanEnergy(ctx, id, 0.2, 0.4321))(t), must(d.SpanEnergy(ctx, id, 0.4321, 0.6))(t)
	if a, b := float64(whole.Total.Energy), float64(one.Total.Energy+two.Total.Energy); math.Abs(a-b) > 1e-9*a {
		t.Errorf("%v J in one, %v J in two parts", a, b)
	}
}

// feed gives an integrator the block without the scans from lost to end.
func feed(g *measure.Integrator, b measure.Block, lost, end int) error {
	one, two := b.Slice(evenly, 0, lost), b.Slice(evenly, end, b.Scans())
	return errors.Join(g.Add(&one), g.Add(&two))
}

func TestSpanEnergyRefuses(t *testing.T) {
	d, ctx := open(t), t.Context()
	s := threeRails(evenly)
	id := begin(t, d, s)
	b := ripple(rand.New(rand.NewPCG(8, 8)), len(s.Channels), 2000, 30)
	ok(t, d.AppendChunks(ctx, id, encode(t, evenly, b, 1500, 0), nil))
	bare := must(d.BeginTask(ctx, newTask("x", "y")))(t)
	for _, c := range []struct {
		id       TaskID
		from, to measure.Seconds
		want     error
	}{
		{id, 0.05, 0.01, measure.ErrWindow},
		{id, measure.Seconds(math.NaN()), 1, measure.ErrWindow},
		{id, 5, 6, measure.ErrNoData},
		{bare, 0.01, 0.05, ErrNoHeader},
		{99, 0.01, 0.05, ErrNotFound},
	} {
		if _, err := d.SpanEnergy(ctx, c.id, c.from, c.to); !errors.Is(err, c.want) {
			t.Errorf("task %d, %v to %v: %v, want %v", c.id, c.from, c.to, err, c.want)
		}
	}
	if _, err := d.SpanEnergy(ctx, id, 5, 6); err == nil || !strings.Contains(err.Error(), "from 0 s to 100 ms") {
		t.Errorf("beyond the samples: %v", err)
	}
	if _, _, windowed, err := d.Window(ctx, id); windowed || err != nil {
		t.Errorf("a window without a result: %v", err)
	}
	if _, _, _, err := d.Window(ctx, 99); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no task: %v", err)
	}
	// A span of more samples than are integrated at once, between two far chunks.
	tb := evenly.TicksPerScan
	_, err := d.writer.Exec(`UPDATE chunk SET first_scan=first_scan+?1, first_tick=first_tick+?2 WHERE chunk_no=1`, MaxSpanScans+10, float64(MaxSpanScans+10)*tb)
	if err == nil {
		_, err = d.writer.Exec(`UPDATE chunk SET first_tick=cast(first_tick as integer)`)
	}
	ok(t, err)
	if _, err := d.SpanEnergy(ctx, id, 0.01, evenly.Seconds(float64(MaxSpanScans+1000)*tb)); !errors.Is(err, ErrSpan) {
		t.Errorf("a span without end: %v", err)
	}
}

// kernels are n launches of three names, a microsecond each, every 10 µs from the
// epoch on, on device time that began 2 s before and runs 1.001 times as fast.
func kernels(t *testing.T, d *DB, n int) TaskID {
	t.Helper()
	ctx := t.Context()
	id := begin(t, d, threeRails(evenly))
	var l []Launch
	for i := range n {
		at := epoch.UnixNano() + int64(i)*10_000
		l = append(l, Launch{Start: at, End: at + 1000 + int64(i%3)*1000, Name: i % 3, Device: i % 2, Stream: uint32(i % 5)})
	}
	ok(t, d.PutLaunches(ctx, id, 0, l))
	ok(t, d.PutLaunchTables(ctx, id, LaunchTables{Names: []string{"a", "b", "c"}}))
	ok(t, d.Finish(ctx, id, Outcome{State: Untrimmed, Clock: &clock.Fit{Origin: measure.Seconds(float64(epoch.UnixNano()) / 1e9), A: 2, B: 1.001, Used: 4}}))
	return id
}

func TestTimeline(t *testing.T) {
	d, ctx := open(t), t.Context()
	const n = 5000
	id := kernels(t, d, n)
	at := func(i float64) measure.Seconds { return measure.Seconds(2 + 1.001*i*1e-5) }
	all := must(d.Timeline(ctx, id, 0, 10, n))(t)
	if len(all.Slices) != n || all.Kernels != n || all.Merged || !all.Recorded || all.Unfitted {
		t.Fatalf("%d slices of %d kernels, %+v", len(all.Slices), all.Kernels, all.Merged)
	}
	for i, s := range all.Slices {
		// 1970's count in seconds as a float64 is good to a quarter of a microsecond.
		if math.Abs(float64(s.From-at(float64(i)))) > 3e-7 || s.Name != string(rune('a'+i%3)) || s.Device != uint32(i%2) || s.Stream != uint32(i%5) ||
			math.Abs(float64(s.Busy)-1.001e-6*float64(1+i%3)) > 1e-9 {
			t.Fatalf("slice %d: %+v, want it at %v", i, s, at(float64(i)))
		}
	}
	part := must(d.Timeline(ctx, id, at(100.15), at(200.5), n))(t)
	if part.Kernels != 100 || len(part.Slices) != 101 { // 100 reaches into it
		t.Errorf("%d kernels in %d slices of a part", part.Kernels, len(part.Slices))
	}
	few := must(d.Timeline(ctx, id, at(-0.5), at(n), 50))(t)
	var kernels uint64
	var busy measure.Seconds
	streams := map[[2]uint32]bool{} // none is drawn over another
	for i, s := range few.Slices {
		streams[[2]uint32{s.Device, s.Stream}] = true
		kernels += s.Kernels
		busy += s.Busy
		if s.Name != "c" || i > 0 && s.From < few.Slices[i-1].From {
			t.Errorf("slice %d: %+v: c is busy the longest", i, s)
		}
	}
	if len(streams) != 10 {
		t.Errorf("slices of %d streams, of 10", len(streams))
	}
	if !few.Merged || kernels != n || few.Kernels != n || len(few.Slices) > 50 || math.Abs(float64(busy)-9999*1.001e-6) > 1e-9 {
		t.Errorf("%d kernels, busy for %v, in %d slices", kernels, busy, len(few.Slices))
	}
}

func TestTimelineWithoutARecord(t *testing.T) {
	d, ctx := open(t), t.Context()
	id := begin(t, d, threeRails(evenly)) // began at the epoch, by the monitor's clock
	ok(t, d.PutKernels(ctx, id, []Kernel{{Name: "work", Start: epoch.Add(1e9), End: epoch.Add(3e9)}}))
	for _, span := range [][2]measure.Seconds{{0, 10}, {2, 2.5}} {
		l := must(d.Timeline(ctx, id, span[0], span[1], 10))(t)
		if len(l.Slices) != 1 || l.Slices[0].From != 1 || l.Slices[0].To != 3 || l.Slices[0].Name != "work" || !l.Unfitted || l.Recorded {
			t.Errorf("%v: %+v", span, l)
		}
	}
	if l := must(d.Timeline(ctx, id, 4, 5, 10))(t); len(l.Slices) != 0 {
		t.Errorf("behind it: %+v", l)
	}
	bare := must(d.BeginTask(ctx, newTask("x", "y")))(t)
	if _, err := d.Timeline(ctx, bare, 0, 1, 10); !errors.Is(err, ErrNoClock) {
		t.Errorf("before the capture began: %v", err)
	}
	if _, err := d.Timeline(ctx, 99, 0, 1, 10); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no task: %v", err)
	}
	for _, bad := range []measure.Seconds{0, measure.Seconds(math.NaN())} {
		if _, err := d.Timeline(ctx, id, 0, bad, 10); err == nil {
			t.Errorf("to %v: taken", bad)
		}
	}
}

// BenchmarkSpanEnergy integrates spans of a task of two million six-channel scans.
func BenchmarkSpanEnergy(b *testing.B) {
	d := open(b)
	s := threeRails(evenly)
	id := begin(b, d, s)
	const size, n = 16384, 128
	blk := ripple(rand.New(rand.NewPCG(1, 1)), 6, size, 4)
	one := encode(b, evenly, blk, size, 0)[0]
	for no := range uint64(n) {
		c := one.Clone()
		c.No, c.FirstScan, c.FirstTick = no, no*size, int64(float64(no*size)*evenly.TicksPerScan)
		c.CRC = chunk.Checksum(c)
		ok(b, d.AppendChunks(b.Context(), id, []*chunk.Chunk{c}, nil))
	}
	for _, scans := range []float64{100, 20_000, 2_000_000} {
		b.Run(fmt.Sprintf("%.0f", scans), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(d.SpanEnergy(b.Context(), id, evenly.Seconds(40_000*evenly.TicksPerScan), evenly.Seconds((40_000+scans)*evenly.TicksPerScan)))(b)
			}
		})
	}
}

// A span that reaches beyond what is stored has its columns where the samples are.
func TestEnvelopeBeyondTheSamples(t *testing.T) {
	noRaces(t)
	d, ctx := open(t), t.Context()
	s := threeRails(evenly)
	id := begin(t, d, s)
	b := ripple(rand.New(rand.NewPCG(4, 4)), len(s.Channels), 40_000, 30)
	ok(t, d.AppendChunks(ctx, id, encode(t, evenly, b, 1500, 0), nil))
	within := must(d.Envelope(ctx, id, 0, 2, 50))(t)
	for _, span := range [][2]measure.Seconds{{-1, 2}, {0, 7}, {-3, 100}} {
		e := must(d.Envelope(ctx, id, span[0], span[1], 50))(t)
		if e.From != 0 || math.Abs(float64(e.To)-2) > 1e-9 {
			t.Errorf("%v: from %v to %v", span, e.From, e.To)
		}
		for c := range e.Columns[0] {
			if e.Columns[0][c] != within.Columns[0][c] {
				t.Errorf("%v, column %d: %+v, want %+v", span, c, e.Columns[0][c], within.Columns[0][c])
			}
		}
	}
	if e := must(d.Envelope(ctx, id, 5, 6, 50))(t); e.From != 5 || e.To != 6 {
		t.Errorf("behind all samples: from %v to %v", e.From, e.To)
	}
}

// read stores so many readings of a method, one a millisecond from the epoch on: the
// time in milliseconds, and every hundredth none.
func read(t *testing.T, d *DB, id TaskID, method string, n int) {
	t.Helper()
	list := make([]Reading, n)
	for i := range list {
		list[i] = Reading{Method: method, At: epoch.Add(time.Duration(i) * time.Millisecond), Value: float64(i)}
		if i%100 == 50 {
			list[i].Value = math.NaN()
		}
	}
	ok(t, d.PutReadings(t.Context(), id, list))
}

func TestTraces(t *testing.T) {
	noRaces(t)
	d, ctx := open(t), t.Context()
	id := begin(t, d, threeRails(evenly)) // device time begins at the epoch
	read(t, d, id, "nvml.instant", 3000)
	read(t, d, id, "nvml.average", 10)
	got := must(d.Traces(ctx, id, []string{"nvml.instant", "none"}, 1.0005, 1.0995, 200))(t)
	if !slices.Equal(got.Methods, []string{"nvml.average", "nvml.instant"}) || !got.Unfitted || len(got.Traces) != 1 {
		t.Fatalf("%+v", got)
	}
	// The reading of 1.000 s still holds at the begin.
	r := got.Traces[0]
	if r.Method != "nvml.instant" || r.Thinned || len(r.At) != 100 || r.At[0] != 1 || r.Value[0] != 1000 || r.Value[99] != 1099 || !math.IsNaN(r.Value[50]) || math.Abs(float64(r.Until-1.1)) > 1e-9 {
		t.Errorf("%+v", r)
	}
	if all := must(d.Traces(ctx, id, nil, 0, 10, 5000))(t); len(all.Traces) != 2 || len(all.Traces[0].At) != 10 || len(all.Traces[1].At) != 3000 {
		t.Errorf("all: %d traces", len(all.Traces))
	}
	// Nothing is read after the last one, and how long it holds is not known.
	if late := must(d.Traces(ctx, id, nil, 5, 6, 10))(t); len(late.Traces) != 2 || late.Traces[1].Value[0] != 2999 || late.Traces[1].Until != late.Traces[1].At[0] {
		t.Errorf("behind: %+v", late)
	}
}

// Of too many readings the extremes of each stretch are left, in order.
func TestTracesAreThinned(t *testing.T) {
	noRaces(t)
	d := open(t)
	id := begin(t, d, threeRails(evenly))
	read(t, d, id, "nvml.instant", 3000)
	r := must(d.Traces(t.Context(), id, nil, -0.0005, 2.9995, 60))(t).Traces[0]
	if !r.Thinned || r.Until != 2.999 || len(r.At) != 60 || !slices.IsSorted(r.At) {
		t.Fatalf("%d readings, thinned %v: %v", len(r.At), r.Thinned, r.At)
	}
	for i := range 30 {
		if r.Value[2*i] != float64(100*i) || r.Value[2*i+1] != float64(100*i+99) {
			t.Errorf("stretch %d: %v to %v", i, r.Value[2*i], r.Value[2*i+1])
		}
	}
}

func TestTracesRefuses(t *testing.T) {
	d, ctx := open(t), t.Context()
	if _, err := d.Traces(ctx, 99, nil, 0, 1, 10); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no task: %v", err)
	}
	bare := must(d.BeginTask(ctx, newTask("x", "y")))(t)
	if _, err := d.Traces(ctx, bare, nil, 0, 1, 10); !errors.Is(err, ErrNoClock) {
		t.Errorf("before the capture began: %v", err)
	}
	for _, bad := range []measure.Seconds{0, measure.Seconds(math.NaN())} {
		if _, err := d.Traces(ctx, bare, nil, 0, bad, 10); err == nil {
			t.Errorf("to %v: taken", bad)
		}
	}
}
