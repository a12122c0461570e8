package measurement

import (
	"slices"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

// What the monitor's disk lost after it had come is no hole here.
func TestNoGapIsToldOfSamplesThatAreHere(t *testing.T) {
	in := &ingest{ctx: t.Context(), items: make(chan item, 8), here: []stretch{{0, 300}, {400, 1000}}}
	gap := func(first, scans uint64) measure.Event {
		return measure.Event{Kind: measure.EventGap, FirstScan: first, Scans: scans, Exact: true}
	}
	note := measure.Event{Kind: measure.EventNote, FirstScan: 500}
	for _, e := range []measure.Event{gap(600, 400), gap(900, 300), gap(1000, 50), gap(300, 100), gap(350, 100), note} {
		if err := in.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	close(in.items)
	var got []measure.Event
	for i := range in.items {
		got = append(got, i.event)
	}
	if want := []measure.Event{gap(1000, 200), gap(1000, 50), gap(300, 100), gap(350, 50), note}; !slices.Equal(got,
		want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
