package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/clock"
)

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
	for i, s := range few.Slices {
		kernels += s.Kernels
		busy += s.Busy
		if s.Name != "c" || i > 0 && s.From < few.Slices[i-1].From {
			t.Errorf("slice %d: %+v: c is busy the longest", i, s)
		}
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
