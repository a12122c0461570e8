// Package wire is where the types of measure meet the messages of
// wattmark.v1: conversions both ways, and the options of our connections.
//
//	Setup, Marker, Event, Chunk …            measure type → message; cannot fail
//	ParseSetup, ParseMarker, ParseChunk …    message → measure type; refuses what
//	                                         cannot be, naming the field
//
// A peer may be anyone's program, so every Parse function treats its message as untrusted: a nil message, an
// unspecified enum, a number that is not finite, an index that is out of range, or a list that is absurdly long is an
// error that wraps ErrMessage.
package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/wattmark/wattmark/measure"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

//go:generate go test ../internal/convert -update

const (
	// MaxMessage is the largest message that either side takes, in bytes. The
	// largest chunk (262 144 scans) of eight 16-bit channels is 4 MiB uncoded.
	MaxMessage = 64 << 20
	// PingEvery is how often an idle connection is tried, by either side.
	PingEvery = 20 * time.Second
	// PingTimeout is how long the other side may take to answer before the connection is given up.
	PingTimeout = 10 * time.Second

	// socketBuffer is the size of gRPC's read and write buffers: several of its 16 KiB frames a system call.
	socketBuffer = 256 << 10
	// window is how many bytes of a stream may be on their way unread. It is fixed: gRPC's
	// own estimate starts at 64 KiB, and grows only while data flows.
	window = 8 << 20
)

// The ports that monitors and hosts listen on unless they are configured otherwise.
const (
	MonitorPort = "7551"
	HostPort    = "7552"
)

// WithPort returns the target with a port where it is a host or an IP address without one;
// other gRPC targets (unix:PATH, dns:///HOST) stay.
func WithPort(target, port string) string {
	if _, _, err := net.SplitHostPort(target); err == nil || target == "" || strings.ContainsAny(target, "/ ") ||
		strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return target
	}
	host := strings.TrimSuffix(strings.TrimPrefix(target, "["), "]")
	if strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return target
	}
	return net.JoinHostPort(host, port)
}

// ServerOptions are the options of a server of ours: the message limit, and
// pings, so that a peer that vanished is noticed.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.WriteBufferSize(socketBuffer), grpc.ReadBufferSize(socketBuffer), grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(2 * window),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: PingEvery, Timeout: PingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: PingEvery / 2, PermitWithoutStream: true}),
	}
}

// Lost words gRPC's text of a connection to a service that was not made, and gives the remedy.
func Lost(text, service string) (plain, remedy string) {
	handshake := strings.Contains(text, "handshake failed")
	remedy = "is " + service + " running there?"
	switch {
	case strings.Contains(text, "produced zero addresses"), strings.Contains(text, "no such host"):
		return "unknown host", "look at its name"
	case strings.Contains(text, "looked like an HTTP/1.1 header"):
		return "no gRPC", "it is the port of a web page: name that of " + service + "'s --listen"
	case handshake && strings.Contains(text, "first record does not look like a TLS handshake"):
		remedy = "it does not speak TLS: leave --tls-ca and --tls-cert out (wattmark config says where they were set), " +
			"or start it with --auth"
	case handshake:
		remedy = "it is there, and is not trusted: name the CA that it has its certificate from " +
			"(--tls-ca, WATTMARK_TLS_CA), and dial a name that is in it"
	case strings.Contains(text, "server preface"):
		remedy = "is " + service + " running there, and does it speak TLS? then name its CA (--tls-ca, WATTMARK_TLS_CA)"
	}
	// A dialler's error comes without gRPC's text around it.
	const around = "Error while dialing: "
	if i := strings.LastIndex(text, around); i >= 0 {
		text = strings.TrimSuffix(text[i+len(around):], `"`)
	}
	return text, remedy
}

// DialOptions are the options of a client of ours; they go with ServerOptions. Credentials are the caller's to add.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithWriteBufferSize(socketBuffer), grpc.WithReadBufferSize(socketBuffer),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(2 * window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: PingEvery, Timeout: PingTimeout, PermitWithoutStream: true,
		}),
	}
}

// liveWindow is how many bytes of a live stream may be on their way unread: the least
// that gRPC allows. Updates for a slow viewer wait where they can still be merged.
const liveWindow = 64 << 10

// LiveDialOptions are DialOptions for a connection that carries live streams alone,
// to viewers that may be slow: little of a stream is on its way.
func LiveDialOptions() []grpc.DialOption {
	return append(DialOptions(), grpc.WithInitialWindowSize(liveWindow))
}

// RegisterStandard adds gRPC's health and reflection services to a server whose own services are registered already,
// and reports each of those, and the server as a whole (""), as serving.
func RegisterStandard(server *grpc.Server) *health.Server {
	h := health.NewServer() // "" serves from the start
	for name := range server.GetServiceInfo() {
		h.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(server, h)
	reflection.Register(server)
	return h
}

// VersionHeader is the header in which a server of ours sends its version with every answer.
const VersionHeader = "wattmark-version"

// TellVersion makes a server send its version with every answer.
func TellVersion(version string) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler,
	) (any, error) {
		// A client that has gone does not want it.
		_ = grpc.SetHeader(ctx, metadata.Pairs(VersionHeader, version))
		return handle(ctx, q)
	})
}

// ErrMessage is wrapped by every error about a message that contradicts itself or
// breaks a bound. gRPC services answer it with INVALID_ARGUMENT.
var ErrMessage = errors.New("bad message")

// Bounds on lists, so that a message cannot make its reader allocate without end. They are far above any bench.
const (
	// MaxChannels is the largest number of channels in a setup.
	MaxChannels = 256
	// MaxRails is the largest number of rails, and of missing rails, in a setup.
	MaxRails = 128
	// MaxEdges is the largest number of chip edges in a marker.
	MaxEdges = 4096
	// MaxText is the longest name or sentence, in bytes.
	MaxText = 4096
)

// refuse returns an error that wraps ErrMessage.
func refuse(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMessage, fmt.Sprintf(format, a...))
}

// field is a number with the name that its error gives.
type field struct {
	name string
	v    float64
}

// finite refuses a NaN or an infinity, naming the message and the field.
func finite(message string, fields ...field) error {
	for _, f := range fields {
		if math.IsNaN(f.v) || math.IsInf(f.v, 0) {
			return refuse("%s: %s is %v: must be a finite number", message, f.name, f.v)
		}
	}
	return nil
}

// text refuses strings that are too long to be a name or a sentence.
func text(message string, values ...string) error {
	for _, s := range values {
		if len(s) > MaxText {
			return refuse("%s: a text of %d bytes: at most %d", message, len(s), MaxText)
		}
	}
	return nil
}

// Text makes a string fit for a message: protobuf refuses to send bytes that are not UTF-8, and a name typed in
// another encoding, or read from a device with a worn memory, must not make everything around it unreadable, nor a
// terminal at the other end obey it.
func Text(s string) string { return measure.Printable(s) }

// ParseEach reads a list, and refuses it where one item is refused.
func ParseEach[A, B any](list []A, parse func(A) (B, error)) (out []B, err error) {
	for _, a := range list {
		b, err := parse(a)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// Time converts a time; the zero time becomes an unset field.
func Time(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// ParseTime converts a timestamp; an unset field becomes the zero time.
func ParseTime(name string, p *timestamppb.Timestamp) (time.Time, error) {
	if p == nil {
		return time.Time{}, nil
	}
	if err := p.CheckValid(); err != nil {
		return time.Time{}, refuse("%s: %v", name, err)
	}
	return p.AsTime(), nil
}

// toInt32 and toUint32 clamp small numbers (indices, chips, counts) that would
// be absurd long before the clamp changes them.
func toInt32(v int) int32 { return int32(max(math.MinInt32, min(math.MaxInt32, v))) }

func toUint32(v int) uint32 { return uint32(max(0, min(math.MaxUint32, v))) }

// Fields reads the fields of a message one after another and keeps the first error in Err;
// fields after it stay zero. Its use is for one goroutine.
type Fields struct{ Err error }

// Field reads one field of a message by its Parse function.
func Field[A, B any](f *Fields, parse func(A) (B, error), p A) (b B) {
	if f.Err == nil {
		b, f.Err = parse(p)
	}
	return b
}

// Each reads a field that is a list by the Parse function of its items.
func Each[A, B any](f *Fields, parse func(A) (B, error), list []A) []B {
	return Field(f, func(list []A) ([]B, error) { return ParseEach(list, parse) }, list)
}

// Time reads a field that is a time.
func (f *Fields) Time(name string, p *timestamppb.Timestamp) time.Time {
	return Field(f, func(p *timestamppb.Timestamp) (time.Time, error) { return ParseTime(name, p) }, p)
}

// Duration reads a field that is a length of time; one that is not set is zero. Whether it makes sense is for others to
// check.
func (f *Fields) Duration(name string, p *durationpb.Duration) time.Duration {
	if err := p.CheckValid(); p != nil && err != nil && f.Err == nil {
		f.Err = refuse("%s: %v", name, err)
	}
	return p.AsDuration()
}

// notNegative refuses a negative number, a NaN or an infinity.
func notNegative(message string, fields ...field) error {
	err := finite(message, fields...)
	for _, f := range fields {
		if err == nil && f.v < 0 {
			err = refuse("%s: %s is %v: must not be negative", message, f.name, f.v)
		}
	}
	return err
}

// Outcome is the gRPC code of the errors that wrap a sentinel, and the remedy for the caller; empty for none.
type Outcome = struct {
	Sentinel error
	Code     codes.Code
	Remedy   string
}

// Status turns an error into a status that names the operation, the cause and the remedy, by the first row of a table
// that the error wraps; INTERNAL without one. A status stays as it is, nil stays nil.
func Status(operation string, err error, table []Outcome) error {
	if _, is := status.FromError(err); is { // nil is OK
		return err
	}
	o := Outcome{Code: codes.Internal}
	if i := slices.IndexFunc(table, func(o Outcome) bool { return errors.Is(err, o.Sentinel) }); i >= 0 {
		o = table[i]
	}
	if o.Remedy != "" {
		o.Remedy = "; " + o.Remedy
	}
	return status.Errorf(o.Code, "%s: %v%s", operation, err, o.Remedy)
}
