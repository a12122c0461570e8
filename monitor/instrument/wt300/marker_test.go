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

// Both markers of the sensor profile are found in ten readings a second, where
// they were played, and the energy of the work between them is right: a reading's
// tick is the middle of its average.
func TestMarkersAndTheWorkBetween(t *testing.T) {
	for seed := range uint64(6) {
		virtual(t, wt300face.Config{Seed: seed}, options("WT310"), func(t *testing.T, r *rig) {
			in := r.dev.Inputs()
			setup := measure.Setup{Timebase: in.Timebase, Channels: in.Channels, Response: in.Response}
			setup.Rails, _ = NaturalRails(in)
			spec := marker.ProfileFor(setup, uint32(seed))
			if want := marker.SensorProfile(measure.SecondsOf(r.dev.opts.Rate), uint32(seed)); spec.Chip != want.Chip || spec.TagBits != want.TagBits {
				t.Fatalf("%+v is not the sensor profile %+v", spec, want)
			}
			r.board.Cancel(0)
			begin := 3*time.Second + time.Duration(seed)*17*time.Millisecond
			played := map[marker.Kind]map[int]measure.Seconds{}
			var from, to, end time.Duration
			played[marker.Start], from = lay(t, r.board, spec, marker.Start, begin)
			from += 310 * time.Millisecond
			to = from + 7*time.Second
			for at, l := range map[time.Duration]board.Load{from: board.Compute, to: board.ActiveIdle} {
				if _, err := r.board.SetLoad(at, l); err != nil {
					t.Fatal(err)
				}
			}
			played[marker.Stop], end = lay(t, r.board, spec, marker.Stop, to+310*time.Millisecond)
			out, reads, err := r.stream(t, int((end+3*time.Second)/r.dev.opts.Rate), nil)
			if err != nil {
				t.Fatal(err)
			}
			blk := measure.Block{Ticks: out.Ticks()}
			for c := range in.Channels {
				blk.Counts = append(blk.Counts, out.Counts(c))
			}
			d, err := marker.NewDetector(spec, &setup)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Push(&blk); err != nil {
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
			zero := reads[0].End - r.dev.opts.Rate/2 // the tick of a reading is its middle
			m0, _ := fit.Meter(measure.SecondsOf(from))
			m1, _ := fit.Meter(measure.SecondsOf(to))
			off := time.Duration(math.Round((float64(m0) - (from - zero).Seconds()) * 1e9))
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
			want := truth.Rails[2]
			t.Logf("the work's begin is placed %v off; %v ± %v, injected %v", off, res.Total.Energy, res.Total.U, want)
			if off.Abs() > 5*time.Millisecond || math.Abs(float64(res.Total.Energy-want)) > float64(res.Total.U) {
				t.Error("off")
			}
			if rel := math.Abs(float64(res.Total.Energy/want) - 1); rel > 1e-2 {
				t.Errorf("%+.2f %% off", 100*rel)
			}
		})
	}
}
