package series

import (
	"testing"
	"time"
)

// feed counts a device's scans for so long, in reads of 10 ms, and returns what
// was found missing.
func feed(b *Behind, rate float64, seconds float64, scans func(t float64) float64, delay func(i int) (time.Duration, bool)) (missing []int64) {
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
		"a slow crystal": {slow, jitter, 0}, "200 ms missing": {hole, prompt, 400}, "200 ms missing, jitter": {hole, jitter, 400},
	} {
		b := &Behind{Nominal: 2000}
		got := feed(b, 2000, 60, c.scans, c.delay)
		if c.want == 0 && len(got) != 0 || c.want > 0 && (len(got) != 1 || got[0] < c.want-5 || got[0] > c.want+5) {
			t.Errorf("%s: %d found missing, want %d", name, got, c.want)
		}
	}
}
