package perfetto_test

import (
	"fmt"
	"strconv"
	"testing"

	"wattmark/store/exchange"
	"wattmark/store/exchange/internal/made"
	"wattmark/store/exchange/internal/processor"
)

// Perfetto's trace processor opens a trace of two tasks without a complaint, and finds in
// it the tracks, the kernels with their times and arguments, and every value of every
// counter that went in.
func TestTraceProcessor(t *testing.T) {
	f, _ := made.NewFull(10_000)
	raw := written(t, timeline(t, f, exchange.Choice{}), timeline(t, f, exchange.Choice{}))
	const tracks = `WITH named AS (SELECT track.id, track.name, parent.name AS task FROM track LEFT JOIN track AS parent ON track.parent_id = parent.id) `
	answers := processor.Ask(
		t,
		raw,
		processor.Faults,
		tracks+`SELECT named.name AS track, named.task, slice.name, ts, dur FROM slice JOIN named ON track_id = named.id ORDER BY slice.id`,
		`SELECT counter_track.name, unit, count(*) AS n, sum(value) AS total, min(ts) AS first FROM counter JOIN counter_track ON track_id = counter_track.id GROUP BY 1, 2 ORDER BY 1`,
		`SELECT slice.name, key, display_value FROM slice JOIN args USING (arg_set_id) WHERE slice.name = 'FIRST' AND key LIKE '%grid%' LIMIT 1`,
		`SELECT start_ts, end_ts FROM trace_bounds`,
		`SELECT DISTINCT clock_id FROM clock_snapshot ORDER BY 1`,
	)
	faults, slices, counters, args, bounds, clocks := answers[0], answers[1], answers[2], answers[3], answers[4], answers[5]
	if len(faults) > 0 {
		t.Errorf("found wrong: %v", faults)
	}
	checkSlices(t, f, slices)
	checkCounters(t, f, counters)
	if len(args) != 1 || args[0]["display_value"] != "4,1,1" {
		t.Errorf("a kernel's arguments: %v", args)
	}
	if first := number(t, bounds[0]["start_ts"]); first < made.Started.UnixNano()-1e9 || first > made.Started.UnixNano()+1e9 {
		t.Errorf("the trace begins at %d, the task at %d", first, made.Started.UnixNano())
	}
	if len(clocks) != 3 || number(t, clocks[0]["clock_id"]) != 1 {
		t.Errorf("clocks: %v", clocks)
	}
}

func number(t *testing.T, v any) int64 {
	t.Helper()
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkSlices holds the slices against the timeline that they were made of.
func checkSlices(t *testing.T, f *made.Full, rows []processor.Row) {
	t.Helper()
	found := map[string]int{}
	for _, r := range rows {
		found[fmt.Sprint(r["task"], "/", r["track"], "/", r["name"], "/", r["ts"], "/", r["dur"])]++
	}
	tl := timeline(t, f, exchange.Choice{})
	task := fmt.Sprintf("task %d: %s", tl.Meta.Task.ID, tl.Meta.Task.Name)
	n := 0
	want := func(track int, name string, at, dur int64) {
		key := fmt.Sprint(task, "/", tl.Tracks[track], "/", name, "/", at, "/", dur)
		if found[key] != 2 { // one a task
			t.Errorf("%s is there %d times, want twice", key, found[key])
		}
		n++
	}
	for s, err := range tl.Slices {
		if err != nil {
			t.Fatal(err)
		}
		want(s.Track, s.Name, s.Start, s.End-s.Start)
	}
	for _, i := range tl.Instants {
		want(i.Track, i.Name, i.At, 0)
	}
	if len(rows) != 2*(n+1) { // and one that tells of the trace
		t.Errorf("%d slices and instants, want twice %d\n%v", len(rows), n+1, found)
	}
}

// checkCounters holds the counters against the samples.
func checkCounters(t *testing.T, f *made.Full, rows []processor.Row) {
	t.Helper()
	got := map[string]processor.Row{}
	for _, r := range rows {
		got[fmt.Sprint(r["name"])] = r
	}
	tl := timeline(t, f, exchange.Choice{})
	check := func(name, unit string, n int, total float64, first int64) {
		r := got[name]
		if r == nil || r["unit"] != unit || number(t, r["n"]) != int64(2*n) || number(t, r["first"]) != first {
			t.Errorf("%s is %v, want twice %d values in %s from %d on", name, r, n, unit, first)
			return
		}
		if d := r["total"].(float64) - 2*total; d > 1e-9*total || d < -1e-9*total {
			t.Errorf("%s adds up to %v, want twice %v", name, r["total"], total)
		}
		delete(got, name)
	}
	for _, c := range tl.Readings {
		total := 0.0
		for _, v := range c.Values {
			total += v
		}
		check(c.Name, c.Unit, len(c.At), total, c.At[0])
	}
	n, totals, first := 0, make([]float64, len(tl.Power.Columns)), int64(0)
	for b, err := range tl.Power.Batches {
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = b.Columns[len(b.Columns)-1].I64[0]
		}
		for _, c := range tl.Counters {
			for _, v := range b.Columns[c].F64[:b.Rows] {
				totals[c] += v
			}
		}
		n += b.Rows
	}
	for _, c := range tl.Counters {
		check(tl.Power.Columns[c].Name, tl.Power.Columns[c].Unit, n, totals[c], first)
	}
	if len(got) > 0 {
		t.Errorf("counters that nobody wrote: %v", got)
	}
}
