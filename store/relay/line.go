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
	Stream  string
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

// newLine returns the line to a stream. tell is called on each change of state; it may be nil.
func newLine(js jetstream.JetStream, stream string, log *slog.Logger, tell func(State)) *line {
	return &line{
		js: js, stream: stream, log: log, tell: tell, state: State{Stream: stream}, probing: make(chan struct{}, 1),
	}
}

// place is a message's sequence number, and whether the stream had it before.
type place struct {
	seq   uint64
	known bool
}

// publish blocks until the stream has acknowledged a message, and returns its place; a
// message that was there already keeps its place. Errors are the context's, or
// of a message that cannot be sent at all.
// The loop ends with an acknowledgement, the context, or an error that no other try would change.
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
		at, err := l.once(ctx, try, subject, id, content)
		if err == nil {
			l.well()
			done()
			return at, nil
		}
		if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrConnectionClosed) {
			done()
			return place{}, fmt.Errorf("stream %s: %w", l.stream, err)
		}
		// The lock of the gate is held during the pause: one try in a pause, for all callers together.
		l.ill(err)
		err = wait.Wait(ctx)
		done()
		if err != nil {
			return place{}, l.ended(err)
		}
	}
}

// once tries a message. The server remembers the ids of messages beyond their removal:
// sending.lost checks for that.
func (l *line) once(ctx context.Context, within time.Duration, subject, id string, content []byte) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// No retries in the library: each try passes the gate.
	ack, err := l.js.Publish(ctx, subject, content,
		jetstream.WithExpectStream(l.stream), jetstream.WithRetryAttempts(0), jetstream.WithMsgID(id))
	if err != nil {
		return place{}, err
	}
	return place{ack.Sequence, ack.Duplicate}, nil
}

// there reports whether the stream has a message.
func (l *line) there(ctx context.Context, seq uint64) (bool, error) {
	s, err := l.js.Stream(ctx, l.stream)
	if err == nil {
		_, err = s.GetMsg(ctx, seq)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, err
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

// ill notes a failed try. The first one stops all callers but one.
func (l *line) ill(why error) {
	l.mu.Lock()
	fresh := l.clear == nil
	if fresh {
		l.clear = make(chan struct{})
		l.state.Waiting, l.state.Since = true, time.Now()
	}
	l.state.Why = why
	s := l.state
	l.mu.Unlock()
	if fresh {
		l.log.Warn("the cluster does not acknowledge: waiting", "stream", l.stream, "error", explained(why))
		l.notify(s)
	}
}

// well notes an acknowledgement: all callers go on.
func (l *line) well() {
	l.mu.Lock()
	if l.clear == nil {
		l.mu.Unlock()
		return
	}
	waited := time.Since(l.state.Since)
	close(l.clear)
	l.clear, l.state = nil, State{Stream: l.stream}
	s := l.state
	l.mu.Unlock()
	l.log.Info("the cluster acknowledges again", "stream", l.stream, "waited", waited.Round(time.Millisecond))
	l.notify(s)
}

// notify passes a change of state on. It must be called without the lock.
func (l *line) notify(s State) {
	if l.tell != nil {
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
