package wt300

import (
	"math"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/measure/clock"
	"wattmark/measure/marker"
	"wattmark/monitor/emulator/board"
	"wattmark/monitor/emulator/wt300face"
)

// lay puts a marker on the board and returns its end and its chips' edges.
func lay(t *testing.T, b *board.Board, spec marker.Spec, kind marker.Kind, begin time.Duration) (edges map[int]measure.Seconds, end time.Duration) {
	t.Helper()
	edges = map[int]measure.Seconds{}
	chips := spec.Chips(kind)
	for i := 0; i <= len(chips); i++ {
		l := board.ActiveIdle
		if i < len(chips) {
			l = board.Sleep
			if chips[i] {
				l = board.Full
			}
		}
		end = begin + measure.Seconds(float64(i)*float64(spec.Chip)).Duration()
		if _, err := b.SetLoad(end, l); err != nil {
			t.Fatal(err)
		}
		edges[i-spec.CodeStart()] = measure.SecondsOf(end)
	}
	return edges, end
}

// play lays two markers and 7 s of work between them on an idle board.
func play(t *testing.T, b *board.Board, spec marker.Spec, begin time.Duration) (edges map[marker.Kind]map[int]measure.Seconds, from, to, end time.Duration) {
	t.Helper()
	b.Cancel(0)
	edges = map[marker.Kind]map[int]measure.Seconds{}
	edges[marker.Start], from = lay(t, b, spec, marker.Start, begin)
	from += 310 * time.Millisecond
	to = from + 7*time.Second
	for at, l := range map[time.Duration]board.Load{from: board.Compute, to: board.ActiveIdle} {
		if _, err := b.SetLoad(at, l); err != nil {
			t.Fatal(err)
		}
	}
	edges[marker.Stop], end = lay(t, b, spec, marker.Stop, to+310*time.Millisecond)
	return edges, from, to, end
}

// fitted finds the markers and fits the clocks.
func fitted(t *testing.T, setup *measure.Setup, spec marker.Spec, blk *measure.Block, played map[marker.Kind]map[int]measure.Seconds) clock.Fit {
	t.Helper()
	d, err := marker.NewDetector(spec, setup)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Push(blk); err != nil {
		t.Fatal(err)
	}
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	found := d.Found()
	if len(found) != 2 || !found[0].TagOK || found[0].Tag != spec.Tag || !found[1].TagOK {
		t.Fatalf("found %+v", found)
	}
	var obs []clock.Obs
	for _, f := range found {
		for _, e := range f.Edges {
			if at, ok := played[f.Kind][e.Chip]; ok {
				obs = append(obs, clock.Obs{Host: at, Meter: e.T, U: e.U})
			}
		}
	}
	fit, err := clock.FitClock(obs, clock.Prior{})
	if err != nil {
		t.Fatal(err)
	}
	return fit
}

// Both markers of the sensor profile are found in ten readings a second, where
// they were played, and the energy of the work between them is right: a reading's
// tick is the middle of its average.
func TestMarkersAndTheWorkBetween(t *testing.T) {
	for seed := range uint64(6) {
		virtual(t, wt300face.Config{Seed: seed}, options("WT310"), func(t *testing.T, r *rig) { r.between(t, uint32(seed)) })
	}
}

func (r *rig) between(t *testing.T, tag uint32) {
	t.Helper()
	in := r.dev.Inputs()
	setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Response: in.Response}
	setup.Rails, _ = NaturalRails(in)
	spec := marker.ProfileFor(setup, tag)
	if want := marker.SensorProfile(measure.SecondsOf(r.dev.opts.Rate), tag); spec.Chip != want.Chip || spec.TagBits != want.TagBits {
		t.Fatalf("%+v is not the sensor profile %+v", spec, want)
	}
	played, from, to, end := play(t, r.board, spec, 3*time.Second+time.Duration(tag)*17*time.Millisecond)
	out, reads, err := r.stream(t, int((end+3*time.Second)/r.dev.opts.Rate), nil)
	if err != nil {
		t.Fatal(err)
	}
	blk := measure.Block{Ticks: out.Ticks()}
	for c := range in.Channels {
		blk.Counts = append(blk.Counts, out.Counts(c))
	}
	fit := fitted(t, &setup, spec, &blk, played)
	m0, _ := fit.Meter(measure.SecondsOf(from))
	m1, _ := fit.Meter(measure.SecondsOf(to))
	g, err := measure.NewIntegrator(&setup, m0, m1)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Add(&blk); err != nil {
		t.Fatal(err)
	}
	res, err := g.Result(fit.Edges(measure.SecondsOf(from), measure.SecondsOf(to)))
	if err != nil {
		t.Fatal(err)
	}
	truth, err := r.board.Energy(from, to)
	if err != nil {
		t.Fatal(err)
	}
	zero := reads[0].End - r.dev.opts.Rate/2 // the tick of a reading is its middle
	off, want := (m0 - measure.SecondsOf(from-zero)).Duration(), truth.Rails[2]
	t.Logf("the work's begin is placed %v off; %v ± %v, injected %v", off, res.Total.Energy, res.Total.U, want)
	if off.Abs() > 5*time.Millisecond {
		t.Errorf("the work's begin is placed %v off", off)
	}
	if miss := math.Abs(float64(res.Total.Energy - want)); miss > float64(res.Total.U) || miss > 0.01*float64(want) {
		t.Errorf("%v ± %v, injected %v", res.Total.Energy, res.Total.U, want)
	}
}
