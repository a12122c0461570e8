package exchange_test

import (
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/arrowfile"
	"github.com/wattmark/wattmark/store/exchange/csvfile"
	"github.com/wattmark/wattmark/store/exchange/perfetto"
)

// Writers keep nothing of what they wrote, whatever its length.
func TestMemoryIsFlat(t *testing.T) {
	power := exchange.Choice{Rails: []string{"pcie_3v3"}}
	for _, c := range []struct {
		name  string
		write func(s *madeFull) error
	}{
		{"csv", func(s *madeFull) error { return csvfile.Write(io.Discard, peaking(t, s, exchange.Choice{Raw: true})) }},
		{"arrow stream", func(s *madeFull) error { return arrowfile.WriteStream(io.Discard, peaking(t, s, power)) }},
		{"arrow file", func(s *madeFull) error { return arrowfile.WriteFile(io.Discard, peaking(t, s, power)) }},
		{"perfetto", func(s *madeFull) error {
			w := perfetto.New(io.Discard)
			return errors.Join(w.Add(line(t, s, power)), w.Close())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := func(scans int) uint64 {
				s, _ := newMadeFull(scans)
				s.Repeat = true
				least = math.MaxUint64
				if err := c.write(s); err != nil {
					t.Fatal(err)
				}
				return least
			}
			small, large := held(1<<17), held(1<<19)
			t.Logf("heap at the end of 128 Ki scans %d KiB, of 512 Ki %d KiB", small>>10, large>>10)
			if large > small+4<<20 {
				t.Errorf("the heap grew from %d to %d bytes with four times the scans", small, large)
			}
		})
	}
}

// least is the smallest heap that peaking saw near the end.
var least uint64

// peaking is a table that looks at the heap before its last batches.
func peaking(t *testing.T, s *madeFull, c exchange.Choice) *exchange.Table {
	t.Helper()
	tab, err := exchange.NewTable(t.Context(), s, s.Task(), "test", c)
	if err != nil {
		t.Fatal(err)
	}
	watch(tab, s.Scans)
	return tab
}

func watch(tab *exchange.Table, scans int) {
	batches, left := tab.Batches, scans
	tab.Batches = func(yield func(*exchange.Batch, error) bool) {
		for b, err := range batches {
			if left -= exchange.BatchRows; left <= exchange.BatchRows {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				least = min(least, m.HeapAlloc)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func line(t *testing.T, s *madeFull, c exchange.Choice) *exchange.Timeline {
	t.Helper()
	l, err := exchange.NewTimeline(t.Context(), s, s.Task(), "test", c, func(n string) string { return n })
	if err != nil {
		t.Fatal(err)
	}
	watch(l.Power, s.Scans)
	return l
}

// scans reads the numbers and times of a table's rows.
func scans(t *testing.T, s *madeSource, c exchange.Choice) (n []int64, at []float64) {
	t.Helper()
	tab, err := exchange.NewTable(t.Context(), s, s.Task(), "test", c)
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range tab.Batches {
		if err != nil {
			t.Fatal(err)
		}
		n = append(n, b.Columns[0].I64...)
		if !c.Raw {
			at = append(at, b.Columns[1].F64...)
		}
	}
	return n, at
}

// A window has both its ends, wherever chunks and gaps lie, also where a rail's
// readings are brought to one instant.
func TestWindow(t *testing.T) {
	for _, stamped := range []bool{false, true} {
		for _, skew := range []measure.Seconds{0, 3e-6} {
			s := &madeSource{Setup: madeSetup(stamped), Scans: 3 * madeScans, Gap: 1000}
			for i := range s.Setup.Channels {
				s.Setup.Channels[i].Skew = measure.Seconds(i%2) * skew
			}
			all, at := scans(t, s, exchange.Choice{})
			for _, w := range []measure.Window{{From: 0.1, To: 0.2}, {From: 0.3, To: 0.5}, {From: 0.7, To: 0.9}, {From: 0.327, To: 0.34}} {
				var want []int64
				for i, x := range at {
					if x >= float64(w.From) && x <= float64(w.To) {
						want = append(want, all[i])
					}
				}
				for _, raw := range []bool{false, true} {
					got, _ := scans(t, s, exchange.Choice{Window: &w, Raw: raw})
					if len(got) != len(want) || len(want) == 0 || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] {
						t.Errorf("stamped %v, skew %v, raw %v, %v: %d scans, want %d", stamped, skew, raw, w, len(got), len(want))
					}
				}
			}
		}
	}
}

// A reader that stops early is not called again, and a cancelled export ends.
func TestStopping(t *testing.T) {
	s := &madeSource{Setup: madeSetup(false), Scans: 4 * madeScans}
	tab, err := exchange.NewTable(t.Context(), s, s.Task(), "test", exchange.Choice{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for range tab.Batches {
		if n++; n == 2 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if tab, err = exchange.NewTable(ctx, s, s.Task(), "test", exchange.Choice{Raw: true}); err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, err = range tab.Batches {
		if err != nil {
			break
		}
	}
	if n != 2 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d batches, %v", n, err)
	}
}

func TestNames(t *testing.T) {
	s := &madeSource{Setup: madeSetup(false), Scans: 10}
	s.Setup.Channels[1].Name = "aux_current" // as aux.current is written
	tab, err := exchange.NewTable(t.Context(), s, s.Task(), "test", exchange.Choice{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := tab.Columns[2], tab.Columns[3]; a.Name != "aux_current_count" || b.Name != "aux_current_count_2" || b.Channel != "aux_current" {
		t.Errorf("%+v, %+v", a, b)
	}
	if _, err := exchange.NewTable(t.Context(), s, s.Task(), "test", exchange.Choice{Rails: []string{"eps"}}); !errors.Is(err, exchange.ErrNoRail) {
		t.Errorf("a rail that is not there: %v", err)
	}
}
