package relay

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrNoStreams: the cluster answers, and has no streams of ours.
var ErrNoStreams = errors.New("the cluster has no streams of wattmark")

// Options of a connection to the cluster.
type Options struct {
	// Servers are the nodes' addresses, with commas between: nats://a:7561,nats://b:7561.
	Servers string
	// Name is shown by the servers.
	Name string
	// Password of the user wattmark; empty for none.
	Password string
	// TLS is how the nodes are known, and perhaps who this is; nil for not speaking it.
	TLS *tls.Config
	// Token says who this is; empty for none. It is sent over TLS, or to this machine.
	Token string
	// Inside is a node in this process, which is spoken to without a network; nil for none.
	Inside nats.InProcessConnProvider
	// Log is told what goes wrong and right again; nil for silence.
	Log *slog.Logger
}

// Bus is a connection to the cluster. It comes back by itself, for as long as it takes.
type Bus struct {
	nc         *nats.Conn
	js         jetstream.JetStream
	log        *slog.Logger
	partitions int
	by         publisher
}

// metaPartitions is where each stream says of how many it is one.
const metaPartitions = "wattmark-partitions"

// callWithin is how long one request may take. An election takes 4 to 9 seconds, and a
// request that was lost in it must be asked anew behind it.
const callWithin = 5 * time.Second

// askWithin is how long a question may take that is soon asked again: nobody answers it
// while nodes start.
const askWithin = 2 * time.Second

// Dial connects, and waits until the cluster answers and has its streams, which its nodes
// make once most of them are up, or until the context ends. Errors wrap ErrRefused,
// at once, or ErrNoStreams.
func Dial(ctx context.Context, o Options) (*Bus, error) {
	b, err := connect(o)
	if err != nil {
		return nil, err
	}
	for told := ""; ; {
		if err = b.discover(ctx); err == nil {
			break
		}
		if why := b.refused(); why != nil {
			err = why
			break
		}
		if now := b.awaited(err); now != told && ctx.Err() == nil {
			told = now
			b.log.Warn(now, "servers", o.Servers)
		}
		if pause(ctx, time.Second) != nil {
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

// awaited says for what Dial waits after an error.
func (b *Bus) awaited(err error) string {
	switch {
	case errors.Is(err, ErrNoStreams):
		return "the cluster has no streams yet: waiting until its nodes have made them"
	case !b.nc.IsConnected():
		return "no node of the cluster answers: waiting until one does"
	}
	return fmt.Sprintf("the cluster cannot be used yet: waiting until most of its nodes are up: %v", err)
}

// ErrRefused: the cluster does not let this program in, or is not the one that it should be.
var ErrRefused = errors.New("refused")

// refused says why no node will ever be connected to; nil where one may be.
func (b *Bus) refused() error {
	err := b.nc.LastError()
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case b.nc.IsConnected():
		return nil
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Errorf("%w: %w: give a token (--token-file, WATTMARK_TOKEN) or a client certificate (--tls-cert, --tls-key), or the password (--password-file) where there is one", ErrRefused, err)
	case errors.As(err, &certificate):
		return fmt.Errorf("%w: %w: name the CA that the nodes' certificates are of (--tls-ca)", ErrRefused, err)
	case errors.As(err, &alert) && alert.Op == "remote error": // what TLS says where the other end refuses
		return fmt.Errorf("%w: %w: the nodes do not take this certificate (--tls-cert)", ErrRefused, err)
	case errors.As(err, &record):
		return fmt.Errorf("%w: %w: the cluster does not speak TLS", ErrRefused, err)
	}
	return nil
}

// connect makes the connection without asking anything.
func connect(o Options) (*Bus, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.RetryOnFailedConnect(true),
		nats.Timeout(2 * time.Second),
		// A server that was cut off keeps its side of the connection open.
		nats.PingInterval(time.Second),
		nats.MaxPingsOutstanding(2),
		// What cannot be sent now is refused rather than kept: whoever sends tries again.
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				o.Log.Warn("lost the connection to the cluster", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { o.Log.Info("connected to the cluster again", "node", nc.ConnectedServerName()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				err = fmt.Errorf("%w: its user has too much in the streams (--max-user of the nodes; a store makes room by taking it), or its role does not allow it", err)
			}
			o.Log.Warn("cluster", "error", err)
		}),
	}
	if o.Password != "" {
		opts = append(opts, nats.UserInfo(User, o.Password))
	}
	if o.Token != "" {
		opts = append(opts, nats.Token(o.Token))
	}
	if o.TLS != nil {
		opts = append(opts, nats.Secure(o.TLS), nats.TLSHandshakeFirst())
	}
	if o.Inside != nil {
		opts = append(opts, nats.InProcessServer(o.Inside))
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

// User is who clients are, where the cluster asks for a password.
const User = "wattmark"

// Close ends the connection.
func (b *Bus) Close() { b.nc.Close() }

// Partitions is how many streams there are.
func (b *Bus) Partitions() int { return b.partitions }

// discover learns how many partitions there are.
func (b *Bus) discover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, StreamName(0))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return ErrNoStreams
	} else if err != nil {
		return err
	}
	n, err := strconv.Atoi(s.CachedInfo().Config.Metadata[metaPartitions])
	if err != nil || n < 1 || n > MaxPartitions {
		return fmt.Errorf("stream %s does not say how many partitions there are: was it made by wattmark cluster?", StreamName(0))
	}
	b.by, err = b.whoami(ctx)
	b.partitions = n
	return err
}

// Account is what a node knows a client by, beside its name, and tells it.
type Account string

// The accounts of those who may read, publish under the own name, and publish for all. Full is
// that of who could publish under the own name, and has too much in the streams already.
const (
	Reader   Account = "wattmark-reader-"
	Measurer Account = "wattmark-measurer-"
	Full     Account = "wattmark-full-"
	Operator Account = "wattmark-operator-"
)

// Of is the name of a user's account.
func (a Account) Of(user string) string { return string(a) + string(publisherOf(user)) }

// WhoAmI is the subject on which a node tells a client its account.
const WhoAmI = "$SYS.REQ.USER.INFO"

// whoami asks the node as whom it knows this client.
func (b *Bus) whoami(ctx context.Context) (publisher, error) {
	m, err := b.nc.RequestWithContext(ctx, WhoAmI, nil)
	if err != nil {
		return "", fmt.Errorf("ask a node who this is: %w", err)
	}
	var answer struct {
		Data *struct {
			Account string `json:"account"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Data == nil {
		return "", fmt.Errorf("a node does not say who this is: %q (%w)", m.Data, err)
	}
	for _, a := range []Account{Measurer, Full} {
		if name, some := strings.CutPrefix(answer.Data.Account, string(a)); some {
			return publisher(name), nil
		}
	}
	if strings.HasPrefix(answer.Data.Account, string(Reader)) {
		return nobody, nil
	}
	return anyone, nil
}

// StreamOptions say how the streams are made.
type StreamOptions struct {
	Partitions, Replicas int
	// MaxBytes is how large one stream may grow; one that is full refuses. 0 is no limit
	// but the disk.
	MaxBytes int64
	// Duplicates is for how long the servers remember message ids; stores know what they
	// have without it.
	Duplicates time.Duration
}

// EnsureStreams makes the streams that are not there, and gives the others their limit.
// The number of partitions cannot change: a task would have another stream.
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
		if pause(ctx, 500*time.Millisecond) != nil {
			return fmt.Errorf("make the streams: %w (%w)", err, context.Cause(ctx))
		}
	}
}

var errPartitions = errors.New("the number of partitions cannot change")

func (b *Bus) ensure(ctx context.Context, s StreamOptions) error {
	err := b.discover(ctx)
	if err == nil && b.partitions != s.Partitions {
		return fmt.Errorf("%w: the cluster has %d, not %d", errPartitions, b.partitions, s.Partitions)
	} else if err != nil && !errors.Is(err, ErrNoStreams) {
		return err
	}
	for p := s.Partitions - 1; p >= 0; p-- { // 0 last: who finds it finds all
		if err := b.ensureStream(ctx, p, s); err != nil {
			return fmt.Errorf("stream %s: %w", StreamName(p), err)
		}
	}
	return nil
}

func (b *Bus) ensureStream(ctx context.Context, p int, s StreamOptions) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	limit := int64(-1)
	if s.MaxBytes > 0 {
		limit = s.MaxBytes
	}
	_, err := b.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: StreamName(p), Subjects: []string{subject(p, "*", "*", "*", "*")},
		Description: "wattmark tasks on their way to stores",
		Storage:     jetstream.FileStorage, Replicas: s.Replicas,
		// A stream that is full refuses: what was acknowledged is never pushed out.
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: limit,
		Duplicates: s.Duplicates, AllowDirect: true,
		Metadata: map[string]string{metaPartitions: strconv.Itoa(s.Partitions)},
	})
	return err
}

// pause waits, and returns the context's error when that ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
