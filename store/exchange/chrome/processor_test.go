package chrome_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"wattmark/store/exchange/chrome"
	"wattmark/store/exchange/internal/made"
	"wattmark/store/exchange/internal/processor"
)

// Perfetto's page opens this form too: its trace processor finds each slice with its
// length, and each value of each counter.
func TestTraceProcessor(t *testing.T) {
	f, _ := made.NewFull(5000)
	var out bytes.Buffer
	tl := timeline(t, f)
	w := chrome.New(&out, tl.Begin())
	if err := errors.Join(w.Add(tl), w.Close()); err != nil {
		t.Fatal(err)
	}
	answers := processor.Ask(
		t,
		out.Bytes(),
		processor.Faults,
		`SELECT name, dur FROM slice WHERE dur > 0`,
		`SELECT process_counter_track.name, count(*) AS n, sum(value) AS total FROM counter JOIN process_counter_track ON track_id = process_counter_track.id GROUP BY 1`,
	)
	if len(answers[0]) > 0 {
		t.Errorf("found wrong: %v", answers[0])
	}
	tl = timeline(t, f)
	slices := map[string]int{}
	for _, r := range answers[1] {
		slices[fmt.Sprint(r["name"], "/", r["dur"])]++
	}
	for s, err := range tl.Slices {
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint(s.Name, "/", s.End-s.Start)
		if slices[key]--; slices[key] < 0 {
			t.Errorf("there is no slice %s", key)
		}
	}
	counters := map[string]string{}
	totals := map[string]float64{}
	for _, r := range answers[2] {
		counters[fmt.Sprint(r["name"])] = fmt.Sprint(r["n"])
		totals[fmt.Sprint(r["name"])] = r["total"].(float64)
	}
	n, want := 0, 0.0
	for b, err := range tl.Power.Batches {
		if err != nil {
			t.Fatal(err)
		}
		n += b.Rows
		for _, v := range b.Columns[tl.Counters[0]].F64[:b.Rows] {
			want += v
		}
	}
	name := tl.Power.Columns[tl.Counters[0]].Name + " W" // the page's name of a series of a counter
	for found, total := range totals {
		if found == name && math.Abs(total-want) > 1e-6*want {
			t.Errorf("%s adds up to %v, want %v", name, total, want)
		}
	}
	if counters[name] != fmt.Sprint(n) || len(counters) != len(tl.Counters)+len(tl.Readings) {
		t.Errorf("counters %v, want %d of %d values each", counters, len(tl.Counters)+len(tl.Readings), n)
	}
}
