package smilog

import (
	"fmt"
	"math"
	"slices"
	"time"

	"wattmark/measure"
)

// Span is a stretch of time in which the GPU worked.
type Span struct{ From, To time.Time }

// Recovered is a time zone's offset that was found by the readings.
type Recovered struct {
	Offset      time.Duration
	Correlation float64 // of the readings with the work
	Next        float64 // at the next best offset; 0 where no other fits at all
}

const (
	// farthest is how far local time lies from UTC.
	farthest = 14 * time.Hour
	// memory is how long a sensor may average.
	memory = 250 * time.Millisecond
	// The correlation must be believable, and better than any other.
	leastCorrelation = 0.4
	rivalry          = 0.8
	mostReadings     = 20000
)

// lags are how far readings may trail the work.
var lags = []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}

// Recover finds how far a log that was parsed with an offset of zero was ahead of
// UTC: at which whole quarter of an hour its readings follow the work. The spans are
// in order. It fails with ErrZone where none does, or several do.
func Recover(rs []Reading, spans []Span) (Recovered, error) {
	if len(spans) == 0 || len(rs) < 8 {
		return Recovered{}, fmt.Errorf("smilog: %w: %d readings and %d stretches of work are too few to tell it by", ErrZone, len(rs), len(spans))
	}
	from, to := spans[0].From, spans[len(spans)-1].To
	type fit struct {
		off time.Duration
		r   float64
	}
	var fits []fit
	for off := -farthest; off <= farthest; off += quarter {
		if rs[0].At.After(from.Add(off)) || rs[len(rs)-1].At.Before(to.Add(off)) {
			continue
		}
		best := math.Inf(-1)
		for _, lag := range lags {
			best = max(best, follow(rs, spans, off+lag))
		}
		fits = append(fits, fit{off, best})
	}
	slices.SortStableFunc(fits, func(a, b fit) int {
		if a.r > b.r {
			return -1
		}
		return 1
	})
	var out Recovered
	if len(fits) > 0 {
		out.Offset, out.Correlation = fits[0].off, fits[0].r
	}
	if len(fits) > 1 {
		out.Next = fits[1].r
	}
	switch {
	case len(fits) == 0:
		return out, fmt.Errorf("smilog: %w: at no whole quarter of an hour does it cover the work, %s to %s UTC: is it the log of this run?", ErrZone, stamp(from), stamp(to))
	case !(out.Correlation >= leastCorrelation):
		return out, fmt.Errorf("smilog: %w: at no whole quarter of an hour do its readings follow the work (best %v, correlation %.2f)", ErrZone, out.Offset, out.Correlation)
	case out.Next > rivalry*out.Correlation:
		return out, fmt.Errorf("smilog: %w: its readings follow the work at %v and at %v ahead of UTC alike (correlation %.2f and %.2f)", ErrZone, out.Offset, fits[1].off, out.Correlation, out.Next)
	}
	return out, nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// follow correlates readings, moved back by a time, with the work just before them.
func follow(rs []Reading, spans []Span, by time.Duration) float64 {
	every := (len(rs) + mostReadings - 1) / mostReadings
	var n, sx, sy, sxx, syy, sxy float64
	first := 0
	for i := 0; i < len(rs); i += every {
		to := rs[i].At.Add(-by)
		from := to.Add(-memory)
		for first < len(spans) && spans[first].To.Before(from) {
			first++
		}
		busy := 0.0
		for _, s := range spans[first:] {
			if !s.From.Before(to) {
				break
			}
			a, b := s.From, s.To
			if a.Before(from) {
				a = from
			}
			if b.After(to) {
				b = to
			}
			busy += float64(measure.SecondsOf(b.Sub(a))) / memory.Seconds()
		}
		p := float64(rs[i].Power)
		n, sx, sy, sxx, syy, sxy = n+1, sx+busy, sy+p, sxx+busy*busy, syy+p*p, sxy+busy*p
	}
	vx, vy := sxx-sx*sx/n, syy-sy*sy/n
	if vx <= 1e-12 || vy <= 1e-12 {
		return 0
	}
	return (sxy - sx*sy/n) / math.Sqrt(vx*vy)
}
