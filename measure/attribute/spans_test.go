package attribute

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/measure"
)

// Nested spans each have their kernels; launches of other threads go where they belong, or nowhere.
func TestSpans(t *testing.T) {
	spans := []Span{
		{Thread: 1, From: 0, To: 100},                 // 0: step
		{Thread: 1, From: 10, To: 40},                 // 1: forward
		{Thread: 1, From: 41, To: 90},                 // 2: backward, launched by thread 9
		{Thread: 2, From: 60, To: 80},                 // 3: another thread's
		{Thread: 1, From: 30, To: 70, Process: true},  // 4: begun here, ended elsewhere
		{Thread: 1, From: 200, To: 300},               // 5: nothing in it
		{Thread: 3, From: 95, To: 500, Process: true}, // 6: spans of a process adopt nothing of threads
	}
	var launches []Started
	for _, k := range []struct {
		thread int
		at     int64
	}{{1, 5}, {1, 20}, {1, 35}, {9, 50}, {9, 65}, {2, 70}, {9, 150}, {1, 100}, {9, 250}} {
		launches = append(launches, Started{Thread: k.thread, At: k.at, Busy: 1, Share: measure.Share{Estimate: measure.Estimate{Energy: 2, U: 1}}})
	}
	n := func(k uint64) SpanUse {
		return SpanUse{Launches: k, Busy: measure.Seconds(k), Share: measure.Share{Estimate: measure.Estimate{Energy: measure.Joule(2 * k), U: measure.Joule(k)}}}
	}
	// Thread 9's at 65 has two threads with spans open: it is no one's, but the process's.
	want := []SpanUse{n(5), n(2), n(1), n(1), n(4), n(1), n(3)}
	if diff := cmp.Diff(want, Spans(spans, launches, true)); diff != "" {
		t.Error(diff)
	}
	want = []SpanUse{n(4), n(2), {}, n(1), n(4), {}, n(3)}
	if diff := cmp.Diff(want, Spans(spans, launches, false)); diff != "" {
		t.Error(diff)
	}
}
