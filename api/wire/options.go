package wire

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	// MaxMessage is the largest message that either side takes, in bytes. The
	// largest chunk (262 144 scans) of eight 16-bit channels is 4 MiB uncoded.
	MaxMessage = 64 << 20
	// PingEvery is how often an idle connection is tried, by either side.
	PingEvery = 20 * time.Second
	// PingTimeout is how long the other side may take to answer before the
	// connection is given up.
	PingTimeout = 10 * time.Second

	// socketBuffer is the size of gRPC's read and write buffers: several of its
	// 16 KiB frames a system call.
	socketBuffer = 256 << 10
	// window is what a stream may have on its way unread. It is fixed: gRPC's
	// own estimate starts at 64 KiB, and grows only while data flows.
	window = 8 << 20
)

// ServerOptions are what a server of ours is made with: the codec, the message
// limit, and pings, so that a peer that vanished is noticed.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(Codec),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.WriteBufferSize(socketBuffer),
		grpc.ReadBufferSize(socketBuffer),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(2 * window),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: PingEvery, Timeout: PingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: PingEvery / 2, PermitWithoutStream: true}),
	}
}

// DialOptions are what a client of ours is dialled with; they go with
// ServerOptions. Credentials are the caller's to add.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(Codec),
			grpc.MaxCallRecvMsgSize(MaxMessage),
			grpc.MaxCallSendMsgSize(MaxMessage),
		),
		grpc.WithWriteBufferSize(socketBuffer),
		grpc.WithReadBufferSize(socketBuffer),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(2 * window),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: PingEvery, Timeout: PingTimeout, PermitWithoutStream: true}),
	}
}

// liveWindow is what a live stream may have on its way unread: the least that gRPC
// allows. What a viewer is too slow for is to wait where it can still be merged.
const liveWindow = 64 << 10

// LiveDialOptions are DialOptions for a connection that carries live streams alone,
// to viewers that may be slow: little of a stream is on its way.
func LiveDialOptions() []grpc.DialOption {
	return append(DialOptions(), grpc.WithInitialWindowSize(liveWindow))
}
