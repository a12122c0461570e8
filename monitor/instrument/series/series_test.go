package series

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"wattmark/measure"
	"wattmark/monitor/instrument/insttest"
)

func TestBlocksGapsAndReports(t *testing.T) {
	for _, stamped := range []bool{false, true} {
		tb := measure.Timebase{TickHz: 1e6, TicksPerScan: 1000, Stamped: stamped}
		out := &insttest.Collector{Timebase: tb, Channels: 2}
		b := New(Config{Channels: 2, Timebase: tb, Flush: 7}, out)
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
		if err := b.Flush(); err != nil {
			t.Fatal(err)
		}
		scans, ticks := out.Scans(), out.Ticks()
		if len(scans) != 50 || scans[49] != 53 || out.Lost() != 4 || out.Counts(0)[49] != 49 || ticks[20] != 24_000 {
			t.Errorf("scans %v, ticks %v, lost %d", scans, ticks, out.Lost())
		}
		if len(out.Events(measure.EventResync)) != 1 || len(out.Events(measure.EventNote)) != 1 {
			t.Errorf("%+v", out.Events(0))
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
