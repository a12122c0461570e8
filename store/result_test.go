package store

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/quality"
)

// recalibrated is a setup with other numbers and a record of them.
func recalibrated(s measure.Setup, by float64) measure.Setup {
	s.Channels = append([]measure.Channel{}, s.Channels...)
	for i := range s.Channels {
		s.Channels[i].Gain *= by
	}
	s.Records = []measure.CalibrationRecord{{ID: "abc", Text: `{"id":"abc"}`}}
	return s
}

func resultOf(r measure.Result, by float64) *measure.Result {
	r.Total.Energy *= measure.Joule(by)
	r.Rails = append([]measure.RailResult{}, r.Rails...)
	r.Rails[0].Energy.Energy *= measure.Joule(by)
	return &r
}

func TestResultsUnderTwoCalibrations(t *testing.T) {
	d, ctx := open(t), t.Context()
	id := begin(t, d, threeRails(evenly))
	b := ripple(rand.New(rand.NewPCG(1, 1)), 6, 1000, 4)
	ok(t, d.AppendChunks(ctx, id, encode(t, evenly, b, 300, 0), nil))
	o := fullOutcome()
	o.Result.FirstScan, o.Result.Samples = 100, 500
	power := func() (p float64) {
		ok(t, d.SQL().QueryRow("SELECT avg(power) FROM data WHERE taskID=?", int64(id)).Scan(&p))
		return p
	}
	s := recalibrated(threeRails(evenly), 1.1)
	if _, _, err := d.AddResult(ctx, id, s, o.Result); !errors.Is(err, ErrConflict) {
		t.Errorf("a result for a task that runs: %v", err)
	}
	ok(t, d.Finish(ctx, id, o))
	before := must(d.Task(ctx, id))(t)
	was := power()

	no, added, err := d.AddResult(ctx, id, s, resultOf(*o.Result, 1.21))
	if no != 2 || !added || err != nil {
		t.Fatal(no, added, err)
	}
	now := must(d.Task(ctx, id))(t)
	if now.Result.Total.Energy != 1.21*o.Result.Total.Energy || now.ResultNumber != 2 || len(now.Results) != 2 || now.Results[0].InUse || !now.Results[1].InUse {
		t.Errorf("%+v", now)
	}
	if diff := cmp.Diff(s, now.Setup); diff != "" {
		t.Error(diff)
	}
	if p := power(); !(p > 1.05*was) {
		t.Errorf("the view data still follows the old calibration: %v W, then %v W", was, p)
	}
	first := must(d.TaskResult(ctx, id, 1))(t)
	if diff := cmp.Diff(before.Result, first.Result); diff != "" {
		t.Errorf("the original is not what it was: %s", diff)
	}
	if diff := cmp.Diff(before.Setup, first.Setup); diff != "" {
		t.Error(diff)
	}

	// Again changes nothing, whatever is offered; and one can go back.
	for range 2 {
		if no, added, err = d.AddResult(ctx, id, s, resultOf(*o.Result, 7)); no != 2 || added || err != nil {
			t.Error(no, added, err)
		}
	}
	if diff := cmp.Diff(now, must(d.Task(ctx, id))(t), sameSeconds); diff != "" {
		t.Errorf("repeating it changed the task: %s", diff)
	}
	plain := *o.Result
	plain.From++
	if _, _, err := d.AddResult(ctx, id, s, &plain); !errors.Is(err, ErrConflict) {
		t.Errorf("another window: %v", err)
	}
	all := must(d.Calibrations(ctx))(t)
	if len(all) != 2 || len(all[1].Setup.Records) != 1 || all[1].Bench != "bench" || len(all[1].Instruments) != 1 || all[1].Instruments[0].Kind != "emulated" {
		t.Errorf("%+v", all)
	}

	// A task that is finished anew begins again with its own calibration.
	ok(t, d.Finish(ctx, id, o))
	again := must(d.Task(ctx, id))(t)
	if len(again.Results) != 1 || again.CalibrationID != before.CalibrationID || power() != was {
		t.Errorf("%+v", again.Results)
	}
	if program, err := exec.LookPath("sqlite3"); err == nil {
		out, err := exec.Command(program, d.Path(), "PRAGMA integrity_check; PRAGMA foreign_key_check;").CombinedOutput()
		if strings.TrimSpace(string(out)) != "ok" {
			t.Errorf("%s %v", out, err)
		}
	}
}

// clipSetup has a converter that reads either sign, one that does not, and one without
// a range.
func clipSetup() measure.Setup {
	return measure.Setup{
		Timebase: evenly,
		Channels: []measure.Channel{
			{Name: "i", Unit: measure.UnitAmpere, Gain: 1e-3, UGain: 0.01, MinCount: -2048, MaxCount: 2047},
			{Name: "u", Unit: measure.UnitVolt, Gain: 1e-3, UGain: 0.01, MinCount: 0, MaxCount: 4095},
			{Name: "spare", Unit: measure.UnitVolt, Gain: 1},
		},
		Rails: []measure.Rail{{Name: "aux", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 0, Y: 1}},
	}
}

// clipTask stores blocks of random length with gaps, which clip in bursts and here and
// there, with the events that a monitor makes of them, a window and two markers.
func clipTask(t *testing.T, d *DB, rng *rand.Rand) (id TaskID, blocks []measure.Block) {
	s := clipSetup()
	id = begin(t, d, s)
	scan, no := uint64(rng.IntN(2000)), uint64(rng.IntN(3))
	from := scan
	for range 1 + rng.IntN(4) {
		n := 1 + rng.IntN(3000)
		b := measure.Block{FirstScan: scan, FirstTick: int64(scan) * 50, Counts: [][]measure.Count{make([]measure.Count, n), make([]measure.Count, n), make([]measure.Count, n)}}
		for c, ends := range [][]measure.Count{{-2048, 2047}, {0, 4095}} {
			burst, often := 0, 0.02*rng.Float64()*float64(rng.IntN(2))
			for i := range n {
				b.Counts[c][i] = 1000
				if rng.Float64() < 0.002 {
					burst = rng.IntN(700)
				}
				if burst--; burst > 0 || rng.Float64() < often {
					b.Counts[c][i] = ends[rng.IntN(2)]
				}
			}
		}
		chunks := encode(t, evenly, b, 1+rng.IntN(1200), no)
		ok(t, d.AppendChunks(t.Context(), id, chunks, clipEvents(t, s.Channels, chunks)))
		no += uint64(len(chunks))
		blocks = append(blocks, b)
		scan += uint64(n)
		if lost := uint64(rng.IntN(2) * rng.IntN(2000)); lost > 0 {
			ok(t, d.PutEvents(t.Context(), id, []measure.Event{{Kind: measure.EventGap, FirstScan: scan, Scans: lost, Exact: true, Channel: -1}}))
			scan += lost
		}
	}
	at := func() measure.Seconds { return evenly.Seconds(50 * float64(from+rng.Uint64N(scan-from))) }
	var ends []measure.Seconds
	for range 4 {
		ends = append(ends, at())
	}
	slices.Sort(ends)
	b := blocks[rng.IntN(len(blocks))]
	r := &measure.Result{FirstScan: b.FirstScan + uint64(rng.IntN(b.Scans()))}
	for _, x := range blocks {
		if end := x.FirstScan + uint64(x.Scans()); end > r.FirstScan {
			r.Samples += end - max(x.FirstScan, r.FirstScan)
		}
	}
	r.Samples = 1 + rng.Uint64N(r.Samples)
	left, end := r.Samples, r.FirstScan
	for _, x := range blocks {
		if begins, ends := max(x.FirstScan, r.FirstScan), x.FirstScan+uint64(x.Scans()); begins < ends && left > 0 {
			n := min(left, ends-begins)
			end, left = begins+n, left-n
		}
	}
	r.Lost = end - r.FirstScan - r.Samples
	ok(t, d.Finish(t.Context(), id, Outcome{State: Complete, Result: r, Markers: []marker.Found{
		{Kind: marker.Start, TagOK: true, Begin: ends[0], End: ends[1]}, {Kind: marker.Stop, TagOK: true, Begin: ends[2], End: ends[3]},
	}}))
	return id, blocks
}

// clipEvents are the events of new chunks, as monitors and imports make them.
func clipEvents(t *testing.T, channels []measure.Channel, chunks []*chunk.Chunk) (out []measure.Event) {
	for _, c := range chunks {
		ok(t, c.OverRangeEvents(channels, func(e measure.Event) error { out = append(out, e); return nil }))
	}
	return out
}

// byHand counts a task's clipped readings one by one.
func byHand(x *Task, blocks []measure.Block) []quality.Clipping {
	n := make([]quality.Clipping, 3)
	within := func(m *marker.Found, scan uint64) bool {
		at := evenly.Seconds(50 * float64(scan))
		return at >= m.Begin && at < m.End
	}
	samples := uint64(0)
	for _, b := range blocks {
		for i := range b.Scans() {
			scan := b.FirstScan + uint64(i)
			inside := scan >= x.Result.FirstScan && samples < x.Result.Samples
			if inside {
				samples++
			}
			for c := range n {
				n[c].Channel = c
				switch {
				case !x.Setup.Channels[c].OverRange(b.Counts[c][i]):
				case inside:
					n[c].Inside++
				case within(&x.Markers[0], scan) || within(&x.Markers[1], scan):
					n[c].Markers++
				default:
					n[c].Outside++
				}
			}
		}
	}
	return slices.DeleteFunc(n, func(c quality.Clipping) bool { return c == quality.Clipping{Channel: c.Channel} })
}

// However readings clip, and wherever window and markers cut the chunks, those in each
// are counted to the last one: as captured, with events that came twice, and packed.
func TestClippedAreCountedByScan(t *testing.T) {
	noRaces(t)
	d := open(t)
	rng := rand.New(rand.NewPCG(14, 2))
	for round := range 120 {
		id, blocks := clipTask(t, d, rng)
		x := must(d.Task(t.Context(), id))(t)
		want := byHand(&x, blocks)
		if !slices.Equal(x.Clipped, want) {
			t.Fatalf("round %d: %+v, counted by hand %+v", round, x.Clipped, want)
		}
		if len(x.Events) > 0 && round%3 == 0 { // a recording that was replayed by an older version tells them again
			again := slices.Clone(x.Events)
			for i := range again {
				again[i].Detail = "again"
			}
			ok(t, d.PutEvents(t.Context(), id, again))
			if x = must(d.Task(t.Context(), id))(t); !slices.Equal(x.Clipped, want) {
				t.Fatalf("round %d, told twice: %+v, counted by hand %+v", round, x.Clipped, want)
			}
		}
		checkUnplaced(t, d, &x, want)
	}
}

// checkUnplaced takes the samples away: without them no clipped reading of the window
// may be missed.
func checkUnplaced(t *testing.T, d *DB, x *Task, want []quality.Clipping) {
	t.Helper()
	before, _ := x.Verdict()
	_, err := d.writer.ExecContext(t.Context(), `DELETE FROM chunk WHERE task_id=?`, int64(x.ID))
	ok(t, err)
	y := must(d.Task(t.Context(), x.ID))(t)
	after, _ := y.Verdict()
	clipped := func(v quality.Verdict, ch string) (level quality.Level) {
		for _, r := range v.Reasons {
			if r.Cause == quality.Clipped && r.Subject == ch {
				level = max(level, r.Level)
			}
		}
		return level
	}
	for _, w := range want {
		if ch := x.Setup.Channels[w.Channel].Name; w.Inside > 0 && clipped(after, ch) < clipped(before, ch) {
			t.Fatalf("%+v: judged %v with samples, %v without", w, before, after)
		}
	}
}

// A task whose chunks have counts that no program writes is read all the same.
func TestClippedBesideDamagedChunks(t *testing.T) {
	d := open(t)
	rng := rand.New(rand.NewPCG(15, 2))
	for range 20 {
		id, _ := clipTask(t, d, rng)
		_, err := d.writer.ExecContext(t.Context(), `UPDATE chunk SET n = -n - 100000 WHERE task_id=?`, int64(id))
		ok(t, err)
		must(d.Task(t.Context(), id))(t)
	}
}

// More clipping never makes a verdict better: readings at rest before the window do not
// hide those within it.
func TestClippingAtRestHidesNone(t *testing.T) {
	s := clipSetup()
	for name, rest := range map[string]int{"in the window alone": 0, "at rest too": 1500} {
		d := open(t)
		id := begin(t, d, s)
		b := measure.Block{Counts: [][]measure.Count{make([]measure.Count, 50_000), make([]measure.Count, 50_000), make([]measure.Count, 50_000)}}
		for i := range 50_000 {
			b.Counts[0][i], b.Counts[1][i] = 100, 1000
			if i < rest || i >= 20_000 && i < 23_000 {
				b.Counts[0][i] = 2047
			}
		}
		chunks := encode(t, evenly, b, chunk.MaxScans, 0)
		ok(t, d.AppendChunks(t.Context(), id, chunks, clipEvents(t, s.Channels, chunks)))
		ok(t, d.Finish(t.Context(), id, Outcome{State: Complete, Result: &measure.Result{
			From: 0.5, To: 2, FirstScan: 10_000, Samples: 30_000, Total: measure.Estimate{Energy: 100, U: 1},
		}}))
		x := must(d.Task(t.Context(), id))(t)
		v, ended := x.Verdict()
		if !ended || v.Level != quality.Void || v.Reasons[0].Cause != quality.Clipped || v.Reasons[0].Count != 3000 {
			t.Errorf("%s: %v", name, v)
		}
	}
}
