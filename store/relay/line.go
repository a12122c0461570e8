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

// State is how publishing goes.
type State struct {
	// Waiting: the stream does not acknowledge. Nothing is lost; one message is tried
	// again and again, and all others wait for it.
	Waiting bool
	Since   time.Time
	Stream  string
	Why     error
}

// line is the way to one stream. When a message is not acknowledged, all stop but one,
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
	probing chan struct{} // holds one: who tries
}

const (
	firstPause  = 250 * time.Millisecond
	longestStep = 2 * time.Second
)

// How long one try may take: an answer that is not there by then was lost, or is that of
// a server that was cut off. Who tries alone soon asks again, and waits longer each time,
// should the server be that slow.
const (
	firstTry   = 2 * time.Second
	longestTry = 15 * time.Second
)

func newLine(js jetstream.JetStream, stream string, log *slog.Logger, tell func(State)) *line {
	return &line{js: js, stream: stream, log: log, tell: tell, state: State{Stream: stream}, probing: make(chan struct{}, 1)}
}

// place is where the stream has a message, and whether it had it before.
type place struct {
	seq   uint64
	known bool
}

// publish returns when the stream has acknowledged a message, and its place there; a
// message that was there already has the place that it had. Errors are the context's, or
// of a message that cannot be sent at all.
func (l *line) publish(ctx context.Context, subject, id string, content []byte) (at place, err error) {
	probed := false
	for wait, try := firstPause, callWithin; ; wait, try = min(2*wait, longestStep), min(try+time.Second, longestTry) {
		done, alone, err := l.enter(ctx)
		if err != nil {
			return place{}, l.ended(err)
		}
		if alone && !probed {
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
		l.ill(err)
		err = pause(ctx, wait)
		done()
		if err != nil {
			return place{}, l.ended(err)
		}
	}
}

// once tries a message. The server remembers the ids of messages longer than the
// messages where somebody removed them: sending.lost looks for that.
func (l *line) once(ctx context.Context, within time.Duration, subject, id string, content []byte) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	m := &nats.Msg{Subject: subject, Data: content}
	opts := []jetstream.PublishOpt{jetstream.WithExpectStream(l.stream), jetstream.WithRetryAttempts(0)}
	ack, err := l.js.PublishMsg(ctx, m, append(opts, jetstream.WithMsgID(id))...)
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

// enter waits until all goes well, or until it is this one's turn to try.
func (l *line) enter(ctx context.Context) (done func(), alone bool, err error) {
	for {
		l.mu.Lock()
		clear := l.clear
		l.mu.Unlock()
		if clear == nil {
			return func() {}, false, ctx.Err()
		}
		select {
		case l.probing <- struct{}{}:
			return func() { <-l.probing }, true, nil
		case <-clear:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

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
		l.told(s)
	}
}

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
	l.told(s)
}

func (l *line) told(s State) {
	if l.tell != nil {
		l.tell(s)
	}
}

// ended says what was waited for when the caller gave up.
func (l *line) ended(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.state.Waiting {
		return err
	}
	return fmt.Errorf("stream %s has not acknowledged for %s: %w (%w)", l.stream, time.Since(l.state.Since).Round(time.Second), explained(l.state.Why), err)
}

// Codes of the server's errors that have a meaning here.
const codeFull = 10077 // maximum bytes exceeded

// explained adds what to do to what the server says.
func explained(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == codeFull:
		return fmt.Errorf("%w: the stream is full: start the stores that lag (wattmark cluster status), or raise --max-bytes", err)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: the stream has no leader, or too few of its nodes are up", err)
	}
	return err
}
