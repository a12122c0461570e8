// Package backoff waits: between the attempts of an operation that may fail for a while, and from
// one round of a loop to the next.
//
//	Sleep    one pause that a context can end
//	Every    equal pauses; Rounds also begins with a round
//	Backoff  pauses that double up to a bound: Wait, try again, Reset after progress
//	Nudge    wakes a loop that waits
package backoff

import (
	"cmp"
	"context"
	"iter"
	"time"
)

// Sleep waits for d, or returns ctx's error if ctx ends first. It returns at once for a
// d of zero or less, with ctx's error if ctx has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Every yields the time at the end of each period until done is closed. A round that takes longer
// than a period leaves periods out.
func Every(done <-chan struct{}, period time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case at := <-tick.C:
				if !yield(at) {
					return
				}
			}
		}
	}
}

// Rounds is Every with a first round at once.
func Rounds(done <-chan struct{}, period time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		if yield(time.Now()) {
			Every(done, period)(yield)
		}
	}
}

// Nudge fills a channel that is buffered by one, for a loop that reads it. It never blocks.
func Nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Backoff is a sequence of pauses: First, then twice as long each time, up to Max. Zero
// values mean 100 ms and 5 s. It belongs to one goroutine.
type Backoff struct {
	First, Max time.Duration
	next       time.Duration
}

// Next returns the length of the next pause.
func (b *Backoff) Next() time.Duration {
	return cmp.Or(max(b.next, 0), max(b.First, 0), 100*time.Millisecond)
}

// Wait sleeps for the next pause and doubles it. It returns ctx's error if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error {
	d := b.Next()
	b.next = min(2*d, cmp.Or(max(b.Max, 0), 5*time.Second))
	return Sleep(ctx, d)
}

// Reset begins the sequence again, after an attempt that made progress.
func (b *Backoff) Reset() { b.next = 0 }
