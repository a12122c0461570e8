package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/wattmark/wattmark/internal/coverage"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
)

// thinned is a task of n scans with a gap, stored and thinned by turns but for the windows, and its twin with all samples.
func thinned(t *testing.T, d *DB, n int, keep ...measure.Window) (thin, full TaskID) {
	t.Helper()
	ctx := t.Context()
	thin, _, chunks := long(t, d, n)
	full = begin(t, d, threeRails(evenly))
	lost := chunks[30]
	chunks = append(chunks[:30:30], chunks[31:]...)
	gap := []measure.Event{{Kind: measure.EventGap, FirstScan: lost.FirstScan, Scans: uint64(lost.Scans), Exact: true, Channel: -1}}
	next := uint64(5)
	for at := 0; at < len(chunks); at += 7 {
		part := chunks[at:min(at+7, len(chunks))]
		ok(t, d.AppendChunks(ctx, thin, part, gap))
		ok(t, d.AppendChunks(ctx, full, part, gap))
		var err error
		last := part[len(part)-1]
		next, err = d.Thin(ctx, thin, next, evenly.Seconds(float64(last.FirstTick)-30_000*evenly.TicksPerScan), keep)
		ok(t, err)
	}
	from, to := span(1000), span(float64(n)-1000)
	for _, id := range []TaskID{thin, full} {
		r, err := d.SpanEnergy(ctx, id, from, to)
		ok(t, err)
		o := fullOutcome()
		o.Result, o.State, o.Reason = &r, Incomplete, "a gap"
		ok(t, d.Finish(ctx, id, o))
	}
	return thin, full
}

// span is the device time of a scan.
func span(scan float64) measure.Seconds { return evenly.Seconds(scan * evenly.TicksPerScan) }

func sameEnergy(t *testing.T, a, b *measure.Result) {
	t.Helper()
	figures := func(r *measure.Result) (out []float64) {
		for _, f := range figures(r) {
			out = append(out, f.value)
		}
		return out
	}
	x, y := figures(a), figures(b)
	if !slices.EqualFunc(x, y, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }) {
		t.Errorf("%v, want %v", x, y)
	}
}

func TestThinnedTaskHasTheEnergyOfAll(t *testing.T) {
	coverage.Long(t)
	const n = 2_400_000
	d, ctx := open(t), t.Context()
	window := measure.Window{From: span(500_000), To: span(520_000)}
	thin, full := thinned(t, d, n, window)
	a, err := d.Task(ctx, thin)
	ok(t, err)
	b, err := d.Task(ctx, full)
	ok(t, err)
	sameEnergy(t, a.Result, b.Result)
	if a.Scans != b.Scans || a.Chunks*3 > b.Chunks || a.Result.Gaps != 1 {
		t.Errorf("%d scans of %d in %d chunks of %d, %d gaps", a.Scans, b.Scans, a.Chunks, b.Chunks, a.Result.Gaps)
	}
	stretches := 0
	for _, e := range a.Events {
		if e.Kind == measure.EventThinned {
			stretches++
		}
	}
	if stretches != 3 { // the gap and the window part them
		t.Errorf("%d thinned stretches: %+v", stretches, a.Events)
	}
	for _, w := range []measure.Window{window, {From: span(100), To: span(n - 100)}, {From: span(505_000), To: span(n - 3000)}} {
		x, err := d.SpanEnergy(ctx, thin, w.From, w.To)
		ok(t, err)
		y, err := d.SpanEnergy(ctx, full, w.From, w.To)
		ok(t, err)
		sameEnergy(t, &x, &y)
	}
	if _, err := d.SpanEnergy(ctx, thin, span(300_000), span(510_000)); !errors.Is(err, measure.ErrThinned) {
		t.Errorf("from amid deleted samples: %v", err)
	}
	for _, columns := range []int{1, 50, 1000} {
		x, err := d.Envelope(ctx, thin, 0, span(n), columns)
		ok(t, err)
		y, err := d.Envelope(ctx, full, 0, span(n), columns)
		ok(t, err)
		if fmt.Sprint(x.Columns) != fmt.Sprint(y.Columns) {
			t.Errorf("the envelope of %d columns differs", columns)
		}
	}
	fine := one[int](d.reading(ctx), `SELECT count(*) FROM pyramid WHERE task_id=? AND level=0`, thin)
	if all := one[int](d.reading(ctx), `SELECT count(*) FROM pyramid WHERE task_id=? AND level=0`, full); all-fine < 4 {
		t.Errorf("%d pages of the finest bins, %d of all samples", fine, all)
	}
	if e, err := d.Envelope(ctx, thin, span(300_000), span(300_500), 100); err != nil || e.BinScans != 1024 {
		t.Errorf("zoomed in: %+v, %v", e, err)
	}
	for _, err := range chunk.DecodeAll(d.Chunks(ctx, thin, 0), &a.Setup) {
		if err != nil && !errors.Is(err, measure.ErrThinned) {
			t.Error(err)
		}
	}
	_, err = d.Expand(ctx, thin)
	again := d.BuildPyramid(ctx, thin)
	if !errors.Is(err, measure.ErrThinned) || !errors.Is(again, measure.ErrThinned) {
		t.Errorf("expanded %v, a new pyramid %v", err, again)
	}
	if _, err := d.Compact(ctx, thin); err != nil {
		t.Error(err)
	}
	if f := check(t, d); len(f) > 0 {
		t.Errorf("%+v", f)
	}
	other := open(t)
	c, err := d.CopyTask(ctx, other, thin, CopyOptions{})
	ok(t, err)
	if f := check(t, other); len(f) > 0 {
		t.Errorf("copied: %+v", f)
	}
	x, err := other.SpanEnergy(ctx, c.To, a.Result.From, a.Result.To)
	ok(t, err)
	sameEnergy(t, &x, b.Result)
}

func TestChangedSumsAreFound(t *testing.T) {
	coverage.Long(t)
	for _, change := range []string{
		`UPDATE chunk_cold SET data=CAST(substr(data,1,900)||x'00'||substr(data,902) AS BLOB) WHERE length(data)>1000`,
		`UPDATE event SET scans=scans+1 WHERE kind=9`,
		`DELETE FROM event WHERE kind=9`,
		`UPDATE chunk SET n=n-1 WHERE n>100000`,
		`UPDATE chunk SET crc=crc+1 WHERE n>100000`,
	} {
		d := open(t)
		thin, _ := thinned(t, d, 700_000)
		harm(t, d, change)
		if f := check(t, d); !slices.ContainsFunc(f, func(f Finding) bool { return f.Task == thin }) {
			t.Errorf("%s: %+v", change, f)
		}
	}
}
