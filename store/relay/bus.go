// Package relay carries tasks from the databases of many hosts to any number of
// stores, over NATS JetStream, whose replicated log stands between them:
//
//	host's database ─▶ Publisher ─▶ stream (three replicas) ─▶ Consumer ─▶ store
//	                   chunks, rest, end                       by its end
//	monitor's spool ─▶ Capture ──▶ the same chunks
//
// A task is a handful of subjects in one of the streams, the partitions:
//
//	wattmark.<partition>.<by>.<source>.capture.chunk  coded chunks, in pieces of at most 512 KiB
//	wattmark.<partition>.<by>.<source>.capture.index  which chunks a monitor has published
//	wattmark.<partition>.<by>.<source>.<key>.rest     an index of the chunks, and all rows but samples
//	wattmark.<partition>.<by>.<source>.<key>.end      the pieces of the rest; it comes last
//	wattmark.<partition>.<by>.<source>.<key>.aside    why a store could not take it
//
// by is the publisher, which the nodes enforce: the name in hexadecimal of a user without the
// right to publish for others, or _ for a publisher of any user's tasks. A task is made of its
// user's messages and of those of _ alone.
//
// source is a digest of the capture and its bench. The host and the monitor both know these, so either may
// publish the samples. key is a digest of the task's identity: monitor, capture, launch, GPU, user and
// name; the partition follows from the source. Each message has its source or key, kind and number as its
// id, by which the server drops doubles. The end is published once the stream has acknowledged all other
// messages: a task with an end is whole, and after the end's acknowledgement the capture may be released.
//
// A monitor publishes a capture's samples as they become durable (Capture), and files the
// capture as a task of its own, an orphan, where no host has published one in time.
//
// A consumer receives ends alone. It fetches the pieces by the sequence numbers of
// their acknowledgements, stores the task in transactions, and acknowledges the end
// after the last one. Repeats – of a message, an end, a whole task – change nothing.
package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/wattmark/wattmark/internal/backoff"
)

// ErrNoStreams is wrapped where the cluster answers, and its nodes have not made the streams.
var ErrNoStreams = errors.New("the cluster has no streams of wattmark")

// Options of a connection to the cluster.
type Options struct {
	// Servers are the nodes' addresses, with commas between: nats://a:7561,nats://b:7561.
	Servers string
	// Name of the connection, in the servers' lists.
	Name string
	// Password of the user wattmark; empty for none.
	Password string
	// TLS verifies the nodes, and may hold a client certificate; nil for plain connections.
	TLS *tls.Config
	// Token authenticates this client; empty for none. It is sent over TLS, or to this machine.
	Token string
	// Inside is a node in this process, reached without a network; nil for none.
	Inside nats.InProcessConnProvider
	// Log gets connection losses and recoveries; nil discards them.
	Log *slog.Logger
}

// Bus is a connection to the cluster. It reconnects by itself, without a time limit. Its methods
// may be called at the same time.
type Bus struct {
	nc         *nats.Conn
	js         jetstream.JetStream
	log        *slog.Logger
	partitions int
	by         publisher
}

// metaPartitions is the key of the number of partitions in each stream's metadata.
const metaPartitions = "wattmark-partitions"

const (
	// callWithin bounds one request; the library applies it where the context has no deadline. An election takes 4 to 9
	// seconds, and a request that was lost in it must be repeated after it.
	callWithin = 5 * time.Second
	// askWithin bounds a request that is soon repeated: no node answers while nodes start.
	askWithin = 2 * time.Second
)

// Dial connects, and waits until the cluster answers and has its streams, which its nodes make once most of
// them are up, or until the context ends. Errors wrap ErrRefused, at once, or ErrNoStreams.
func Dial(ctx context.Context, o Options) (*Bus, error) {
	b, err := connect(o)
	if err != nil {
		return nil, err
	}
	for warned := ""; ; {
		if err = b.discover(ctx); err == nil {
			break
		}
		if why := b.refused(); why != nil {
			err = why
			break
		}
		now := fmt.Sprintf("the cluster cannot be used yet: waiting until most of its nodes are up: %v", err)
		if errors.Is(err, ErrNoStreams) {
			now = "the cluster has no streams yet: waiting until its nodes have made them"
		} else if !b.nc.IsConnected() {
			now = "no node of the cluster answers: waiting until one does"
		}
		if now != warned && ctx.Err() == nil {
			warned = now
			b.log.Warn(now, "servers", o.Servers)
		}
		if backoff.Sleep(ctx, time.Second) != nil {
			err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
			if o.TLS == nil && !b.nc.IsConnected() {
				err = fmt.Errorf("%w; no node answers: where they speak TLS, name their CA (--tls-ca)", err)
			}
			break
		}
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("cluster at %s: %w", o.Servers, err)
	}
	return b, nil
}

// ErrRefused is wrapped where the nodes refuse this client, or this client refuses the nodes.
var ErrRefused = errors.New("refused")

// refused returns the reason for which no later attempt to connect will succeed; nil where one may.
func (b *Bus) refused() error {
	err := b.nc.LastError()
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case b.nc.IsConnected():
		return nil
	case isAny(err, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked):
		return fmt.Errorf("%w: %w: give a token (--token-file, WATTMARK_TOKEN) or a client certificate "+
			"(--tls-cert, --tls-key), or the password (--password-file) where there is one", ErrRefused, err)
	case errors.As(err, &certificate):
		return fmt.Errorf("%w: %w: name the CA that the nodes' certificates are of (--tls-ca)", ErrRefused, err)
	case errors.As(err, &alert) && alert.Op == "remote error": // of TLS, where the other end refuses
		return fmt.Errorf("%w: %w: the nodes do not take this certificate (--tls-cert)", ErrRefused, err)
	case errors.As(err, &record):
		return fmt.Errorf("%w: %w: the cluster does not speak TLS: leave --tls-ca and --tls-cert out; "+
			"wattmark config says where they were set, and --tls-ca '' takes one back", ErrRefused, err)
	}
	return nil
}

// connect makes the connection and sends no request.
func connect(o Options) (*Bus, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	opts := []nats.Option{
		nats.Name(o.Name), nats.Token(o.Token), nats.InProcessServer(o.Inside),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.RetryOnFailedConnect(true),
		nats.Timeout(2 * time.Second),
		// A server that was cut off keeps its side of the connection open.
		nats.PingInterval(time.Second),
		nats.MaxPingsOutstanding(2),
		// Messages that cannot be sent now are refused rather than kept: the caller repeats them.
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				o.Log.Warn("lost the connection to the cluster", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			o.Log.Info("connected to the cluster again", "node", nc.ConnectedServerName())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				err = fmt.Errorf("%w: its user has too much in the streams (--max-user of the nodes; "+
					"a store makes room by taking it), or its role does not allow it", err)
			}
			o.Log.Warn("cluster", "error", err)
		}),
	}
	if o.Password != "" {
		opts = append(opts, nats.UserInfo(User, o.Password))
	}
	if o.TLS != nil {
		opts = append(opts, nats.Secure(o.TLS), nats.TLSHandshakeFirst())
	}
	nc, err := nats.Connect(o.Servers, opts...)
	if err != nil {
		return nil, fmt.Errorf("cluster at %s: %w", o.Servers, err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(callWithin))
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &Bus{nc: nc, js: js, log: o.Log}, nil
}

// User is the user name of all clients of a cluster with a password.
const User = "wattmark"

// Close ends the connection.
func (b *Bus) Close() { b.nc.Close() }

// Partitions returns the number of streams.
func (b *Bus) Partitions() int { return b.partitions }

// discover asks for the number of partitions and for this client's account, by which the nodes know whom
// it publishes for.
func (b *Bus) discover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, StreamName(0))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return ErrNoStreams
	} else if err != nil {
		return err
	}
	b.partitions, err = strconv.Atoi(s.CachedInfo().Config.Metadata[metaPartitions])
	if err != nil || b.partitions < 1 || b.partitions > MaxPartitions {
		return fmt.Errorf("stream %s does not say how many partitions there are: was it made by wattmark cluster?",
			StreamName(0))
	}
	m, err := b.nc.RequestWithContext(ctx, WhoAmI, nil)
	if err != nil {
		return fmt.Errorf("ask a node who this is: %w", err)
	}
	var answer struct {
		Data *struct {
			Account string `json:"account"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Data == nil {
		return fmt.Errorf("a node does not say who this is: %q (%w)", m.Data, err)
	}
	b.by = anyone
	for _, a := range []Account{Measurer, Full} {
		if name, some := strings.CutPrefix(answer.Data.Account, string(a)); some {
			b.by = publisher(name)
		}
	}
	if strings.HasPrefix(answer.Data.Account, string(Reader)) {
		b.by = nobody
	}
	return nil
}

// Account is the prefix of the name of a client's account at the nodes; its right. A client
// learns it by WhoAmI.
type Account string

// The accounts of clients with the right to read, to publish under their own name, and to publish
// for all. Full is that of a measurer with too much in the streams to publish more.
const (
	Reader   Account = "wattmark-reader-"
	Measurer Account = "wattmark-measurer-"
	Full     Account = "wattmark-full-"
	Operator Account = "wattmark-operator-"
)

// Of returns the name of a user's account.
func (a Account) Of(user string) string { return string(a) + string(publisherOf(user)) }

// WhoAmI is the subject of requests for the client's own account.
const WhoAmI = "$SYS.REQ.USER.INFO"

// StreamOptions of streams to be made.
type StreamOptions struct {
	Partitions, Replicas int
	// MaxBytes bounds each stream; a full one refuses messages. 0 is no limit but the disk.
	MaxBytes int64
	// Duplicates is the time for which the servers remember message ids. Without it stores
	// still recognise repeats.
	Duplicates time.Duration
}

// EnsureStreams makes the streams that are missing, and sets the limit of the others. It blocks
// until enough nodes are up, or the context ends. The number of partitions cannot change: a
// task would have another stream.
func EnsureStreams(ctx context.Context, o Options, s StreamOptions) error {
	b, err := connect(o)
	if err != nil {
		return err
	}
	defer b.Close()
	for {
		if err = b.ensure(ctx, s); err == nil || errors.Is(err, errPartitions) {
			return err
		}
		b.log.Debug("the streams are not there yet", "error", err)
		if backoff.Sleep(ctx, 500*time.Millisecond) != nil {
			return fmt.Errorf("make the streams: %w (%w)", err, context.Cause(ctx))
		}
	}
}

var errPartitions = errors.New("the number of partitions cannot change")

// ensure makes or updates all streams, once.
func (b *Bus) ensure(ctx context.Context, s StreamOptions) error {
	err := b.discover(ctx)
	if err == nil && b.partitions != s.Partitions {
		return fmt.Errorf("%w: the cluster has %d, not %d", errPartitions, b.partitions, s.Partitions)
	} else if err != nil && !errors.Is(err, ErrNoStreams) {
		return err
	}
	limit := cmp.Or(max(s.MaxBytes, 0), -1)
	// Stream 0 comes last: discover looks for it alone, and must find all others then.
	for p := s.Partitions - 1; p >= 0; p-- {
		asking, cancel := context.WithTimeout(ctx, askWithin)
		_, err := b.js.CreateOrUpdateStream(asking, jetstream.StreamConfig{
			Name: StreamName(p), Subjects: []string{subject(p, "*", "*", "*", "*")},
			Description: "wattmark tasks on their way to stores",
			Storage:     jetstream.FileStorage, Replicas: s.Replicas,
			// A stream that is full refuses: acknowledged messages are never pushed out.
			Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: limit,
			Duplicates: s.Duplicates, AllowDirect: true,
			Metadata: map[string]string{metaPartitions: strconv.Itoa(s.Partitions)},
		})
		cancel()
		if err != nil {
			return fmt.Errorf("stream %s: %w", StreamName(p), err)
		}
	}
	return nil
}

const (
	firstPause  = 250 * time.Millisecond
	longestStep = 2 * time.Second
)

// pauses returns those between the tries of one operation.
func pauses() *backoff.Backoff { return &backoff.Backoff{First: firstPause, Max: longestStep} }

// line publishes to one stream. While the stream does not acknowledge, one message at a time is tried, with
// growing pauses, and all others wait for it: a server whose replicas must catch up falls ever further behind
// while more comes in (nats-server issue 8519).
type line struct {
	js     jetstream.JetStream
	stream string
	log    *slog.Logger
	turn   chan struct{} // holds one: the caller that tries while there is trouble

	mu    sync.Mutex
	why   error // of the last try; nil while the stream acknowledges
	since time.Time
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
func (l *line) publish(ctx context.Context, subject, id string, content []byte) (place, error) {
	if !l.stuck() {
		if at, err := l.try(ctx, callWithin, subject, id, content); err == nil || hopeless(err) {
			return at, err
		}
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return place{}, l.ended(ctx.Err())
	}
	wait := pauses()
	for within := firstTry; ; within = min(within+time.Second, longestTry) {
		at, err := l.try(ctx, within, subject, id, content)
		if err == nil || hopeless(err) {
			return at, err
		}
		if err := wait.Wait(ctx); err != nil {
			return place{}, l.ended(err)
		}
	}
}

// try sends a message once, and notes whether the stream acknowledges.
func (l *line) try(
	ctx context.Context, within time.Duration, subject, id string, content []byte,
) (place, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// No retries in the library. The server remembers the ids of messages beyond their removal: sending.lost
	// checks for that.
	ack, err := l.js.Publish(ctx, subject, content,
		jetstream.WithExpectStream(l.stream), jetstream.WithRetryAttempts(0), jetstream.WithMsgID(id))
	if hopeless(err) {
		return place{}, fmt.Errorf("stream %s: %w", l.stream, err)
	}
	l.note(err)
	if err != nil {
		return place{}, err
	}
	return place{ack.Sequence, ack.Duplicate}, nil
}

// hopeless reports whether no other try would change an error.
func hopeless(err error) bool { return isAny(err, nats.ErrMaxPayload, nats.ErrConnectionClosed) }

// note takes the outcome of a try.
func (l *line) note(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case why == nil && l.why != nil:
		waited := time.Since(l.since).Round(time.Millisecond)
		l.log.Info("the cluster acknowledges again", "stream", l.stream, "waited", waited)
	case why != nil && l.why == nil:
		l.since = time.Now()
		l.log.Warn("the cluster does not acknowledge: waiting", "stream", l.stream, "error", explained(why))
	}
	l.why = why
}

// stuck reports whether the last try failed.
func (l *line) stuck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why != nil
}

// ended adds the stream's trouble to the error with which the caller gave up.
func (l *line) ended(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		return err
	}
	return fmt.Errorf("stream %s has not acknowledged for %s: %w (%w)",
		l.stream, time.Since(l.since).Round(time.Second), explained(l.why), err)
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
