package faults

import (
	"context"
	"errors"
	"net"
	"sync"
)

// gate lets through while it is open.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil while open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) isShut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// wait returns when the gate is open, or ctx has ended.
func (g *gate) wait(ctx context.Context) {
	for c := g.isShut(); c != nil; c = g.isShut() {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
}

var errCut = errors.New("campaign: the network is cut")

// line is the network between host and monitor. The host's connections go
// through it.
type line struct {
	up, down gate // requests, answers

	mu      sync.Mutex
	address string // of the monitor; empty while it is down
	refuse  bool
	corrupt int // frames of samples whose bytes are still to be changed
	samples int // streams of which samples are to come
	conns   map[*conn]struct{}
}

func (l *line) setAddress(a string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.address = a
}

// Dial connects the host to where the monitor is now.
func (l *line) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	address, refuse := l.address, l.refuse
	l.mu.Unlock()
	if refuse || address == "" {
		return nil, errCut
	}
	var d net.Dialer
	inner, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, line: l, gone: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse || l.address != address {
		_ = inner.Close()
		return nil, errCut
	}
	if l.conns == nil {
		l.conns = map[*conn]struct{}{}
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// cut breaks all connections; data on the way is lost. With refuse no new
// ones come about.
func (l *line) cut(refuse bool) {
	l.mu.Lock()
	all := l.conns
	l.conns = nil
	l.refuse = l.refuse || refuse
	l.mu.Unlock()
	for c := range all {
		_ = c.Close()
	}
}

// heal lets connections come about again.
func (l *line) heal() {
	l.up.open()
	l.down.open()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = false
}

func (l *line) corruptOne() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.corrupt++
}

// sampled counts the streams whose next messages are samples.
func (l *line) sampled(by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples += by
}

func (l *line) takeCorruption() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.corrupt == 0 || l.samples == 0 {
		return false
	}
	l.corrupt--
	return true
}

// conn is one connection of the host's.
type conn struct {
	net.Conn
	line   *line
	once   sync.Once
	gone   chan struct{}
	frames frames
}

func (c *conn) pass(g *gate) error {
	for {
		shut := g.isShut()
		select {
		case <-c.gone:
			return errCut
		default:
		}
		if shut == nil {
			return nil
		}
		select {
		case <-shut:
		case <-c.gone:
		}
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if e := c.pass(&c.line.down); e != nil {
		return 0, e
	}
	if at := c.frames.samples(b[:n]); at >= 0 && c.line.takeCorruption() {
		b[at] ^= 0x10
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.pass(&c.line.up); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.gone)
		c.line.mu.Lock()
		delete(c.line.conns, c)
		c.line.mu.Unlock()
	})
	return c.Conn.Close()
}

// frames follows the HTTP/2 frames of a connection, to find bytes that belong to
// samples: other messages have no checksum of ours (docs/reliability.md).
type frames struct {
	head []byte // of a frame header that is not whole yet
	left int    // bytes of the frame that are to come
	at   int    // where in the frame the next byte lies
	data bool
	long bool
}

const (
	frameHead = 9
	// Only chunks make frames this long; a byte this deep in one is payload.
	samplesFrame, samplesDepth = 900, 600
)

// samples returns the index of a byte of samples in b, −1 without.
func (f *frames) samples(b []byte) int {
	found := -1
	for i := 0; i < len(b); {
		if f.left == 0 {
			n := min(frameHead-len(f.head), len(b)-i)
			f.head = append(f.head, b[i:i+n]...)
			i += n
			if len(f.head) < frameHead {
				break
			}
			f.left = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
			f.data, f.long, f.at = f.head[3] == 0, f.left >= samplesFrame, 0
			f.head = f.head[:0]
			continue
		}
		n := min(f.left, len(b)-i)
		if f.data && f.long && found < 0 && f.at <= samplesDepth && samplesDepth < f.at+n {
			found = i + samplesDepth - f.at
		}
		f.left, f.at, i = f.left-n, f.at+n, i+n
	}
	return found
}
