package sensor

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
)

// Runs must say what the single readings say.
func TestTraceIsWhatWasRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var tr trace
	type reading struct {
		at int64
		v  float64
	}
	var all []reading
	at, v := time.Unix(1000, 0), 100.0
	for range 5000 {
		at = at.Add(time.Millisecond)
		switch rng.IntN(40) {
		case 0:
			v = float64(rng.IntN(300))
		case 1:
			at = at.Add(200 * time.Millisecond) // readings failed
		}
		tr.add(at, v)
		tr.add(at, math.NaN())          // no reading
		tr.add(at.Add(-time.Hour), 1e9) // the clock went back
		all = append(all, reading{at.UnixNano(), v})
	}
	if len(tr.runs) > len(all)/10 {
		t.Errorf("%d runs of %d readings", len(tr.runs), len(all))
	}
	for range 200 {
		a, b := all[rng.IntN(len(all))].at+rng.Int64N(2e6)-1e6, all[rng.IntN(len(all))].at+rng.Int64N(2e6)-1e6
		s := span{min(a, b), max(a, b)}
		var sum float64
		var n uint64
		for _, r := range all {
			if r.at >= s.from && r.at <= s.to {
				sum, n = sum+r.v, n+1
			}
		}
		gotSum, gotN := tr.sum(s)
		// A span's end within a run may take or leave the reading on it.
		if d := int64(gotN) - int64(n); d < -2 || d > 2 || math.Abs(gotSum-sum) > 600 {
			t.Fatalf("%v: got %v of %d, want %v of %d", s, gotSum, gotN, sum, n)
		}
	}
}

func TestTraceIsBounded(t *testing.T) {
	tr, count := trace{bound: 64}, trace{bound: 64, steps: true}
	want, at := 0.0, time.Unix(1000, 0)
	for i := range 10000 {
		v := float64(i * i % 97)
		want += v
		tr.add(at, v)
		count.add(at, float64(i))
		at = at.Add(time.Millisecond)
	}
	if len(tr.runs) > 64 || len(count.runs) > 64 {
		t.Fatalf("%d and %d runs, want at most 64", len(tr.runs), len(count.runs))
	}
	all := span{0, at.UnixNano()}
	if sum, n := tr.sum(all); n != 10000 || math.Abs(sum-want) > 1e-6 {
		t.Errorf("got %v of %d readings, want %v of 10000", sum, n, want)
	}
	if p := float64(answerSlope(&count, all).energy) / all.seconds(); math.Abs(p-1000) > 1 {
		t.Errorf("a counter that grows by one a millisecond: %v W", p)
	}
}

func TestHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var h histogram
	if got := h.timing(); got.N != 0 || !math.IsNaN(float64(got.P50)) || !math.IsNaN(float64(got.Max)) {
		t.Errorf("of nothing: %+v", got)
	}
	var all []time.Duration
	for range 20000 {
		d := time.Duration(math.Exp(rng.Float64()*20) * 10) // 10 ns to 5 s
		all = append(all, d)
		h.add(d)
	}
	slices.Sort(all)
	got := h.timing()
	for _, c := range []struct {
		got measure.Seconds
		q   float64
	}{{got.P50, 0.5}, {got.P99, 0.99}, {got.Max, 1}} {
		want := float64(all[int(math.Ceil(c.q*float64(len(all))))-1]) / 1e9
		if math.Abs(float64(c.got)/want-1) > 0.04 {
			t.Errorf("quantile %v: got %v, want %v s", c.q, c.got, want)
		}
	}
	for ns := range uint64(100000) {
		b := bucket(ns)
		if m := middle(b); math.Abs(m-float64(ns)) > max(0.5, float64(ns)/30) {
			t.Fatalf("%d ns lie in bucket %d, whose middle is %v", ns, b, m)
		}
	}
	if b := bucket(math.MaxInt64); b >= len(h.buckets) {
		t.Errorf("the longest duration lies in bucket %d of %d", b, len(h.buckets))
	}
}

func BenchmarkAdd(b *testing.B) {
	w := NewWatcher(nil, MethodOptions{})
	c := &w.sma
	at := time.Unix(1000, 0)
	b.ReportAllocs()
	for range b.N {
		_, _ = w.ask(c, func() error { return nil })
		c.add(at, 100)
		at = at.Add(time.Microsecond)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}
