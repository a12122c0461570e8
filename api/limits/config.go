package limits

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Config says how much is enough. Zero is no limit, but for those that gRPC always
// has; Default has what a lab needs.
type Config struct {
	// Connections is how many there may be at once that made a call which was let in;
	// those from this machine do not count.
	Connections int
	// Strangers is how many connections of one listener may be open that made no such
	// call yet; half of them of one origin. The oldest is closed for the newest.
	Strangers int
	// PeerConnections is how many one peer may have at once.
	PeerConnections int
	// Streams is how many calls may be open on one connection.
	Streams uint32
	// PeerCalls is how many calls one peer may have open at once, long ones as a
	// followed capture among them.
	PeerCalls int
	// PeerRate is how many calls a second one peer may begin in the long run, and
	// PeerBurst how many at once.
	PeerRate  float64
	PeerBurst int
	// Request is the largest request, in bytes, after any decompression. No
	// message to a monitor or a host is a tenth of the default.
	Request int
	// Handshake is how long a new connection may take to its first call that is let in.
	Handshake time.Duration
	// RequestTime is how long a request may take from its first byte to its last.
	RequestTime time.Duration
	// Stall is how long a reader of a stream may take nothing.
	Stall time.Duration
	// Idle ends connections that had no call for so long.
	Idle time.Duration
	// Age ends connections that are older once their calls have ended; clients
	// connect anew by themselves.
	Age time.Duration

	// Peer names who makes a call, and tells a stranger, who was let in to what is open to
	// everybody; [Origin], and no stranger, when nil. A server that knows its users names
	// them here. An empty name has no limits of its own.
	Peer func(ctx context.Context) (name string, stranger bool)
}

// Default is what a lab's benches need, many times over.
func Default() Config {
	return Config{
		Connections: 256, Strangers: 256, PeerConnections: 32, Streams: 64, PeerCalls: 128, PeerRate: 500, PeerBurst: 1000, Request: 4 << 20,
		Handshake: 5 * time.Second, RequestTime: 10 * time.Second, Stall: 5 * time.Minute, Idle: 30 * time.Minute,
	}
}

// leastRequest is what the largest request of a well-behaved client needs.
const leastRequest = 64 << 10

// Check refuses what cannot be meant.
func (c *Config) Check() error {
	var errs []error
	for _, n := range []struct {
		name  string
		value int
	}{{"connections", c.Connections}, {"strangers", c.Strangers}, {"connections of a peer", c.PeerConnections}, {"calls of a peer", c.PeerCalls}, {"burst of a peer", c.PeerBurst}} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("limit of %s: %d: want 0, for none, or more", n.name, n.value))
		}
	}
	if c.PeerRate < 0 || c.PeerRate > 0 && c.PeerBurst == 0 {
		errs = append(errs, fmt.Errorf("limit of %g calls a second with a burst of %d: want 0 for none, or both above 0", c.PeerRate, c.PeerBurst))
	}
	if c.Request < leastRequest || c.Request > 1<<30 {
		errs = append(errs, fmt.Errorf("limit of a request: %d bytes: want %d to %d", c.Request, leastRequest, 1<<30))
	}
	for _, d := range []time.Duration{c.Handshake, c.RequestTime, c.Stall, c.Idle, c.Age} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("a time limit of %v: want 0, for none, or more", d))
		}
	}
	return errors.Join(errs...)
}
