package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// State of the publishing to one stream.
type State struct {
	// Waiting: the stream does not acknowledge. No message is lost; one is tried
	// again and again, and all others wait for it.
	Waiting bool
	Since   time.Time
	Why     error
}

// line publishes to one stream. When a message is not acknowledged, all stop but one,
// which is tried with growing pauses: a server whose replicas must catch up falls ever
// further behind while more comes in (nats-server issue 8519).
type line struct {
	js     jetstream.JetStream
	stream string
	log    *slog.Logger
	tell   func(State)

	mu      sync.Mutex
	state   State
	clear   chan struct{} // closed when the trouble is over
	probing chan struct{} // holds one: the caller that tries
}

// Bounds of one try: an answer that is late was lost, or the server was cut off. A caller that
// tries alone begins with the short one and waits longer each time, as the server may be slow.
const (
	firstTry   = 2 * time.Second
	longestTry = 15 * time.Second
)

// place is a message's sequence number, and whether the stream had it before.
type place struct {
	seq   uint64
	known bool
}

// publish blocks until the stream has acknowledged a message, and returns its place; a message that was
// there already keeps its place. Errors are the context's, or of a message that cannot be sent at all. The
// loop ends with an acknowledgement, the context, or an error that no other try would change.
func (l *line) publish(ctx context.Context, subject, id string, content []byte) (at place, err error) {
	probed := false
	wait := pauses()
	for try := callWithin; ; try = min(try+time.Second, longestTry) {
		done, alone, err := l.enter(ctx)
		if err != nil {
			return place{}, l.ended(err)
		}
		if alone && !probed { // a short first try: the trouble may be over
			try, probed = firstTry, true
		}
		// No retries in the library: each try passes the gate. The server remembers the ids of messages beyond
		// their removal: sending.lost checks for that.
		within, cancel := context.WithTimeout(ctx, try)
		ack, err := l.js.Publish(within, subject, content,
			jetstream.WithExpectStream(l.stream), jetstream.WithRetryAttempts(0), jetstream.WithMsgID(id))
		cancel()
		if err == nil {
			l.note(nil)
			done()
			return place{ack.Sequence, ack.Duplicate}, nil
		}
		if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrConnectionClosed) {
			done()
			return place{}, fmt.Errorf("stream %s: %w", l.stream, err)
		}
		// The lock of the gate is held during the pause: one try in a pause, for all callers together.
		l.note(err)
		err = wait.Wait(ctx)
		done()
		if err != nil {
			return place{}, l.ended(err)
		}
	}
}

// enter is the gate of the line: open while the stream acknowledges, and one caller wide while
// it does not. Which caller is next is left to chance: all of them wait for the same stream.
//
// enter blocks while another caller tries alone. alone reports that the stream is in trouble and
// this caller is the one to try; done must be called after the try.
func (l *line) enter(ctx context.Context) (done func(), alone bool, err error) {
	for {
		l.mu.Lock()
		// clear is nil while all is well: no caller waits.
		clear := l.clear
		l.mu.Unlock()
		if clear == nil {
			return func() {}, false, ctx.Err()
		}
		select {
		case l.probing <- struct{}{}:
			return func() { <-l.probing }, true, nil
		// The trouble is over: all that wait pass through the open gate.
		case <-clear:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// note takes the outcome of a try. The first that fails stops all callers but one; after one that was
// acknowledged all go on.
func (l *line) note(why error) {
	l.mu.Lock()
	waiting, since := l.clear != nil, l.state.Since
	switch {
	case why == nil && waiting:
		close(l.clear)
		l.clear, l.state = nil, State{}
	case why != nil && !waiting:
		l.clear = make(chan struct{})
		l.state.Waiting, l.state.Since = true, time.Now()
	}
	l.state.Why = why
	s := l.state
	l.mu.Unlock()
	if s.Waiting == waiting {
		return
	}
	if waiting {
		waited := time.Since(since).Round(time.Millisecond)
		l.log.Info("the cluster acknowledges again", "stream", l.stream, "waited", waited)
	} else {
		l.log.Warn("the cluster does not acknowledge: waiting", "stream", l.stream, "error", explained(why))
	}
	if l.tell != nil { // called without the lock
		l.tell(s)
	}
}

// ended adds the stream's trouble to the error with which the caller gave up.
func (l *line) ended(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.state.Waiting {
		return err
	}
	return fmt.Errorf("stream %s has not acknowledged for %s: %w (%w)",
		l.stream, time.Since(l.state.Since).Round(time.Second), explained(l.state.Why), err)
}

// codeFull is the server's error code for a stream at its limit of bytes.
const codeFull = 10077

// explained adds the remedy to a server's error.
func explained(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == codeFull:
		return fmt.Errorf("%w: the stream is full: start the stores that lag (wattmark cluster status), "+
			"or raise --max-bytes", err)
	case isAny(err, jetstream.ErrNoStreamResponse, nats.ErrNoResponders, context.DeadlineExceeded):
		return fmt.Errorf("%w: the stream has no leader, or too few of its nodes are up", err)
	}
	return err
}
