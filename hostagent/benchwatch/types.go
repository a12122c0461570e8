package benchwatch

import (
	"context"
	"errors"
	"time"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/store"
)

// Sentinel errors.
var (
	// ErrUnknown: the host was told of no such bench.
	ErrUnknown = errors.New("no such bench")
	// ErrStopped: the host is being stopped.
	ErrStopped = errors.New("the host is being stopped")
)

// Monitor is what a relay needs of a monitor. *monitorclient.Client is one. Its
// methods are called from many goroutines; they return when ctx ends.
type Monitor interface {
	// Address is what the monitor is known by.
	Address() string
	GetBench(ctx context.Context) (monitorclient.Bench, error)
	// AskBench is GetBench after the monitor has asked its instrument.
	AskBench(ctx context.Context) (monitorclient.Bench, error)
	Captures(ctx context.Context) ([]monitorclient.Capture, error)
	// Watch hands moments to see until ctx ends (nil), see fails, or the line breaks.
	Watch(ctx context.Context, o monitorclient.WatchOptions, see func(monitorclient.Moment) error) error
}

// Config says what a relay watches, and how. Zero durations are good ones.
type Config struct {
	Monitors []Monitor
	// TaskOf finds the task that a capture is for; 0 where the host's database has
	// none. Nil where there is no database.
	TaskOf func(ctx context.Context, captureID string) (store.TaskID, error)
	// Poll is how often a bench is asked who holds it, and how soon a stream that
	// broke is tried again; 1 s when zero.
	Poll time.Duration
	// Every is the distance of the moments; 100 ms when zero.
	Every time.Duration
	// Keep is how long moments are kept for who comes later; a minute when zero.
	Keep time.Duration
	// Linger is how long a stream outlives its last viewer, who may only have
	// loaded a page anew; 2 s when zero.
	Linger time.Duration
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		of   *time.Duration
		good time.Duration
	}{{&c.Poll, time.Second}, {&c.Every, 100 * time.Millisecond}, {&c.Keep, time.Minute}, {&c.Linger, 2 * time.Second}} {
		if *d.of <= 0 {
			*d.of = d.good
		}
	}
	return c
}

// Reach says whether a monitor answers.
type Reach uint8

// The reaches. The numbers are those of the protocol.
const (
	Unasked Reach = 0
	Present Reach = 1
	Away    Reach = 2
)

// State is a bench as the host knows it.
type State struct {
	Address string
	Reach   Reach
	Since   time.Time // of Reach
	Why     string    // it is away; empty when it is not
	// Unwatched says why the rails cannot be watched though the monitor answers;
	// empty when they can, or nobody wants to.
	Unwatched string
	// Bench and Captures are what the monitor said last; zero before it first answered.
	Bench    monitorclient.Bench
	Captures []Capture
	// Last is the newest capture that no longer holds the bench, as far as anybody
	// watched; its ID is empty for none. Of a short one no more may be known.
	Last Capture
}

// Capture is a capture that a monitor holds, with the task that it is for; 0 for none.
type Capture struct {
	monitorclient.Capture
	Task store.TaskID
}

// Holding returns the capture that holds the bench; ok is false where the monitor
// has not told of it.
func (s *State) Holding() (c Capture, ok bool) { return s.capture(s.Bench.CaptureID) }

func (s *State) capture(id string) (c Capture, ok bool) {
	for _, c := range append([]Capture{s.Last}, s.Captures...) {
		if c.ID != "" && c.ID == id {
			return c, true
		}
	}
	return c, false
}

// Moment is one average, or the mean of several that a viewer was too slow for.
type Moment struct {
	monitorclient.Moment
	At     time.Time    // when it arrived here
	Peak   measure.Watt // greatest total among the averages
	Merged int          // averages it is made of
}

// News is what a viewer is told of one bench. What is not new is nil.
type News struct {
	Address string
	State   *State
	Moment  *Moment
	// History are the last moments, oldest first: with a viewer's first news of a bench.
	History []Moment
}

// Options say what a viewer wants to see.
type Options struct {
	// Every is the least distance of news of moments; 0 for all.
	Every time.Duration
	// Idle also samples benches that nobody holds.
	Idle bool
}
