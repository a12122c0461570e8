// Package limits keeps one peer of a service from taking the resources of all:
// connections, calls, calls a second, the size of a request, and time. Monitor and
// host are served with the same.
//
// A peer is all callers that share an address, without the port, or on this machine an account,
// unless Config.Peer names it otherwise. A connection belongs to a stranger until its first
// call that is let in; strangers have a small budget of their own, and little time. What
// is refused is refused before its request was read, with
// RESOURCE_EXHAUSTED; a peer that is too slow, a request or the reader of a stream, ends
// with DEADLINE_EXCEEDED.
package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is the limits. Zero is no limit, but for those that gRPC always
// has; Default suits a lab.
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

	// Peer names the caller of a call, and reports a stranger, let in to calls open to
	// everybody; [Origin], and no stranger, when nil. A server that knows its users names
	// them here. An empty name has no limits of its own.
	Peer func(ctx context.Context) (name string, stranger bool)
}

// Default is the need of a lab's benches, many times over.
func Default() Config {
	return Config{
		Connections: 256, Strangers: 256, PeerConnections: 32, Streams: 64, PeerCalls: 128, PeerRate: 500,
		PeerBurst: 1000, Request: 4 << 20,
		Handshake: 5 * time.Second, RequestTime: 10 * time.Second, Stall: 5 * time.Minute, Idle: 30 * time.Minute,
	}
}

// leastRequest is the size of the largest request of a well-behaved client, in bytes.
const leastRequest = 64 << 10

// Check refuses limits that cannot be meant.
func (c *Config) Check() error {
	var errs []error
	names := []string{"connections", "strangers", "connections of a peer", "calls of a peer", "burst of a peer"}
	for i, n := range []int{c.Connections, c.Strangers, c.PeerConnections, c.PeerCalls, c.PeerBurst} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("limit of %s: %d: want 0, for none, or more", names[i], n))
		}
	}
	if c.PeerRate < 0 || c.PeerRate > 0 && c.PeerBurst == 0 {
		errs = append(errs, fmt.Errorf(
			"limit of %g calls a second with a burst of %d: want 0 for none, or both above 0", c.PeerRate, c.PeerBurst))
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

var (
	descRefused = prometheus.NewDesc("wattmark_limit_refused_total",
		"Connections, calls and streams that were refused or ended, by the limit.", []string{"limit"}, nil)
	descConnections = prometheus.NewDesc("wattmark_connections", "Connections that are open.", nil, nil)
	descCalls       = prometheus.NewDesc("wattmark_calls_open", "Calls that are open.", nil, nil)
	descPeers       = prometheus.NewDesc("wattmark_peers",
		"Peers that are known: those with something open, and those that were there a moment ago.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (g *Guard) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect is part of prometheus.Collector.
func (g *Guard) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range reasons {
		ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(g.refused[r]), string(r))
	}
	ch <- prometheus.MustNewConstMetric(descConnections, prometheus.GaugeValue, float64(g.all))
	ch <- prometheus.MustNewConstMetric(descCalls, prometheus.GaugeValue, float64(g.calls))
	ch <- prometheus.MustNewConstMetric(descPeers, prometheus.GaugeValue, float64(len(g.peers)))
}
