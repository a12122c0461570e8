package exchange_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/chrome"
)

func chromeTimeline(t *testing.T, f *madeFull) *exchange.Timeline {
	t.Helper()
	_, task := newMadeFull(f.Scans)
	task.Name = "a \"name\"\n<b>"
	tl, err := exchange.NewTimeline(t.Context(), f, task, "test", exchange.Choice{}, strings.ToUpper)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// chromeEvent is one line of a trace.
type chromeEvent struct {
	Ph, Name string
	Pid, Tid int
	Ts, Dur  json.Number
	Args     map[string]any
}

func TestChromeTrace(t *testing.T) {
	f, _ := newMadeFull(5000)
	base := madeStart.UnixNano()
	var out bytes.Buffer
	w := chrome.New(&out, base)
	tl := chromeTimeline(t, f)
	if err := errors.Join(w.Add(tl), w.Close()); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []chromeEvent
		OtherData   struct {
			Clock    string
			BaseNs   string `json:"base_ns"`
			Wattmark []exchange.Meta
		}
	}
	if err := json.Unmarshal(out.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	if o := trace.OtherData; o.Clock != "CLOCK_REALTIME" || o.BaseNs != "1772600767123456789" || len(o.Wattmark) != 1 || o.Wattmark[0].Task.Name != "a \"name\"\n<b>" {
		t.Errorf("%+v", o)
	}
	threads := map[int]string{}
	count := map[string]int{}
	for _, e := range trace.TraceEvents {
		count[e.Ph]++
		if e.Ph == "M" && e.Name == "thread_name" {
			threads[e.Tid] = e.Args["name"].(string)
		}
		if e.Ph == "X" && e.Name == "SECOND" && threads[e.Tid] == "GPU 0, stream 7, process 99" {
			count["second"]++
			if e.Dur != "0.900" || !strings.HasPrefix(string(e.Ts), "3000") || e.Args["grid"] != "4,1,1" {
				t.Errorf("a kernel: %+v", e)
			}
		}
	}
	if count["X"] != 13 || count["i"] != 3 || count["second"] != 5 || count["C"] != 3+4*5000 {
		t.Errorf("%v", count)
	}
	checkChromeCounters(t, f, trace.TraceEvents)
}

// checkChromeCounters holds the total's counter against the table.
func checkChromeCounters(t *testing.T, f *madeFull, events []chromeEvent) {
	t.Helper()
	var got []chromeEvent
	for _, e := range events {
		if e.Ph == "C" && e.Name == "power_w" {
			got = append(got, e)
		}
	}
	_, task := newMadeFull(f.Scans)
	tab, err := exchange.NewTable(t.Context(), f, task, "test", exchange.Choice{HostTime: true})
	if err != nil {
		t.Fatal(err)
	}
	row := 0
	for b, err := range tab.Batches {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows {
			ts, err := got[row].Ts.Float64()
			want := float64(b.Columns[len(tab.Columns)-1].I64[i]-madeStart.UnixNano()) / 1000
			if err != nil || math.Abs(ts-want) > 1e-6 || got[row].Args["W"] != b.Columns[2].F64[i] {
				t.Fatalf("row %d: %+v, want %v W at %v µs", row, got[row], b.Columns[2].F64[i], want)
			}
			row++
		}
	}
}

func TestChromeFullDisk(t *testing.T) {
	f, _ := newMadeFull(50_000)
	full := errors.New("disk full")
	w := chrome.New(failing{full}, 0)
	if err := w.Add(chromeTimeline(t, f)); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

// Perfetto's page opens this form too: its trace processor finds each slice with its
// length, and each value of each counter.
func TestChromeInTraceProcessor(t *testing.T) {
	f, _ := newMadeFull(5000)
	var out bytes.Buffer
	tl := chromeTimeline(t, f)
	w := chrome.New(&out, tl.Begin())
	if err := errors.Join(w.Add(tl), w.Close()); err != nil {
		t.Fatal(err)
	}
	answers := askProcessor(
		t,
		out.Bytes(),
		traceFaults,
		`SELECT name, dur FROM slice WHERE dur > 0`,
		`SELECT process_counter_track.name, count(*) AS n, sum(value) AS total FROM counter JOIN process_counter_track ON track_id = process_counter_track.id GROUP BY 1`,
	)
	if len(answers[0]) > 0 {
		t.Errorf("found wrong: %v", answers[0])
	}
	tl = chromeTimeline(t, f)
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
