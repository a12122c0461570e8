package series

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/internal/montest"
)

func TestBlocksGapsAndReports(t *testing.T) {
	for _, stamped := range []bool{false, true} {
		tb := measure.Timebase{TickHz: 1e6, TicksPerScan: 1000, Stamped: stamped}
		out := &montest.Collector{Timebase: tb, Channels: 2}
		b := New(instrument.Inputs{Timebase: tb, Channels: make([]measure.Channel, 2)}, 7, instrument.SinkOf(out))
		b.Skipped(5) // before the first scan nothing is lost
		if err := b.Gap(3, true, "early"); err != nil {
			t.Fatal(err)
		}
		for i := range int64(50) {
			if i == 20 {
				b.Skipped(9)
				if err := b.Gap(4, true, "lost"); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Scan(77_000+1000*i+4000*(i/20), []measure.Count{measure.Count(i), 1}); err != nil {
				t.Fatal(err)
			}
		}
		b.Repeated()
		b.Malformed(1)
		if err := b.Flush(); err != nil {
			t.Fatal(err)
		}
		scans, ticks := out.Scans(), out.Ticks()
		if len(scans) != 50 || scans[49] != 53 || out.Lost() != 4 || out.Counts(0)[49] != 49 || ticks[20] != 24_000 {
			t.Errorf("scans %v, ticks %v, lost %d", scans, ticks, out.Lost())
		}
		damage := lists.Map(out.Events(measure.EventResync), func(e measure.Event) string { return e.Detail })
		if diff := cmp.Diff([]string{"9 bytes skipped to find the next scan", "1 line could not be read"}, damage); diff != "" ||
			len(out.Events(measure.EventNote)) != 1 {
			t.Errorf("%s\n%+v", diff, out.Events(0))
		}
	}
}

// The rate is found through delays that only ever make scans late.
func TestRateThroughJitter(t *testing.T) {
	r := Rate{Nominal: 1000}
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(0, 0)
	for n := range int64(60_000) {
		exact := float64(n) / 998.5
		r.Seen(start.Add(time.Duration((exact+0.02*rng.ExpFloat64())*1e9)), n)
	}
	rate, span := r.Measured()
	if math.Abs(rate-998.5) > 0.05 || span < 55 {
		t.Errorf("%v scans a second over %v s", rate, span)
	}
	if n, ok := r.At(start.Add(70 * time.Second)); !ok || math.Abs(n-70*998.5) > 100 {
		t.Errorf("after 70 s %v scans are expected", n)
	}
}

// feed counts a device's scans for so long, in reads of 10 ms, and returns what
// was found missing.
func feed(b *Behind, rate float64, seconds float64, scans func(t float64) float64,
	delay func(i int) (time.Duration, bool),
) (missing []int64) {
	start := time.Unix(1e9, 0)
	found := int64(0)
	for i := range int(seconds * 100) {
		t := float64(i) / 100
		late, full := delay(i)
		if n := b.Seen(start.Add(time.Duration(t*1e9)+late), int64(scans(t)*rate)+found, full); n > 0 {
			missing = append(missing, n)
			found += n
		}
	}
	return missing
}

func TestBehind(t *testing.T) {
	prompt := func(int) (time.Duration, bool) { return 0, false }
	jitter := func(i int) (time.Duration, bool) { return time.Duration(i*7919%40) * time.Millisecond, false }
	held := func(i int) (time.Duration, bool) { // 300 ms now and then, and then all at once
		if i%700 < 30 && i > 700 {
			return time.Duration(30-i%700) * 10 * time.Millisecond, true
		}
		return 0, false
	}
	steady := func(t float64) float64 { return t }
	slow := func(t float64) float64 { return t * 0.9998 }
	hole := func(t float64) float64 {
		if t > 10 {
			return t - 0.2
		}
		return t
	}
	for name, c := range map[string]struct {
		scans func(float64) float64
		delay func(int) (time.Duration, bool)
		want  int64
	}{
		"steady": {steady, prompt, 0}, "jitter": {steady, jitter, 0}, "a reader kept waiting": {steady, held, 0},
		"a slow crystal": {slow, jitter, 0}, "200 ms missing": {hole, prompt, 400},
		"200 ms missing, jitter": {hole, jitter, 400},
	} {
		b := &Behind{Nominal: 2000}
		got := feed(b, 2000, 60, c.scans, c.delay)
		if c.want == 0 && len(got) != 0 || c.want > 0 && (len(got) != 1 || got[0] < c.want-5 || got[0] > c.want+5) {
			t.Errorf("%s: %d found missing, want %d", name, got, c.want)
		}
	}
}

// A late call leaves out what is overdue and comes back to the grid.
func TestGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		ctx, cancel := context.WithTimeout(t.Context(), 105*time.Millisecond)
		defer cancel()
		err := Grid(ctx, 10*time.Millisecond, func() error {
			at = append(at, time.Since(begin))
			if len(at) == 3 {
				time.Sleep(34 * time.Millisecond)
			}
			return nil
		})
		want := []time.Duration{0, 10, 20, 60, 70, 80, 90, 100}
		if err != nil || len(at) != len(want) {
			t.Fatalf("%v, %v", at, err)
		}
		for i := range want {
			if at[i] != want[i]*time.Millisecond {
				t.Errorf("%v, want %v", at, want)
			}
		}
	})
	enough := errors.New("enough")
	if err := Grid(t.Context(), time.Hour, func() error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}
