package limits

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
)

// idle opens connections that say nothing.
func (s *tester) idle(t *testing.T, n int) (open []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		open = append(open, c)
	}
	return open
}

// fromHere returns the number of connections that are a stranger's, and their origins.
func (s *tester) fromHere() (n int, origins map[string]int) {
	s.guard.mu.Lock()
	defer s.guard.mu.Unlock()
	origins = map[string]int{}
	for _, c := range s.listener.strangers {
		origins[c.from]++
	}
	return len(s.listener.strangers), origins
}

// A crowd of idle connections keeps nobody out, of the same account as it may be.
func TestIdleCrowd(t *testing.T) {
	cfg := Default()
	cfg.Handshake = time.Hour
	s := serve(t, cfg)
	known := s.dial(t)
	want(t, check(t, known), codes.OK)
	crowd := s.idle(t, 400)
	for range 3 {
		want(t, check(t, s.dial(t)), codes.OK)
		want(t, check(t, known), codes.OK)
	}
	closed(t, crowd[0])
	if n, _ := s.fromHere(); n > cfg.Strangers/2 {
		t.Errorf("%d of one origin are open, want %d at most", n, cfg.Strangers/2)
	}
	if s.count(strangers) == 0 {
		t.Error("nothing was counted")
	}
}

// Half of the strangers' room is for one origin; where all of it is taken, the
// greatest crowd makes room.
func TestStrangersByOrigin(t *testing.T) {
	l := New(Config{Strangers: 8}).Listen(nil).(*listener)
	come := func(from string) (gone string) {
		if old := l.admit(&conn{listener: l, from: from}); old != nil {
			return old.from
		}
		return ""
	}
	for i, c := range []struct{ from, gone string }{
		{"a", ""},
		{"a", ""},
		{"a", ""},
		{"a", ""},
		{"a", "a"},
		{"b", ""},
		{"b", ""},
		{"c", ""},
		{"d", ""},
		{"e", "a"},
		{"f", "a"},
		{"b", "a"},
		{"g", "b"},
	} {
		if got := come(c.from); got != c.gone {
			t.Errorf("%d: for %s %q made room, want %q", i, c.from, got, c.gone)
		}
		if len(l.strangers) > 8 {
			t.Fatalf("%d strangers", len(l.strangers))
		}
	}
}

// A caller has so many connections; each counts from its first call on.
func TestConnectionsOfOne(t *testing.T) {
	cfg := Default()
	cfg.PeerConnections = 2
	s := serve(t, cfg)
	s.idle(t, 5)
	a, b, c := s.dial(t), s.dial(t), s.dial(t)
	want(t, check(t, a), codes.OK)
	want(t, check(t, b), codes.OK)
	want(t, check(t, c), codes.ResourceExhausted)
	want(t, check(t, a), codes.OK)
	if s.count(peerConnections) == 0 {
		t.Error("nothing was counted")
	}
	_ = a.Close()
	eventually(t, "a place is free", func() bool { return check(t, c) == nil })
}

// Connections from this machine get through when others have taken all.
func TestConnectionsOfAll(t *testing.T) {
	g := New(Config{Connections: 2})
	l := g.Listen(nil).(*listener)
	come := func(from string, local bool) (*conn, error) {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		c := &conn{Conn: near, listener: l, from: from, local: local}
		l.admit(c)
		return c, g.meet(c.LocalAddr(), peerName{name: from})
	}
	first, err := come("192.0.2.1", false)
	if err != nil {
		t.Error(err)
	}
	for i, c := range []struct {
		from  string
		local bool
		ok    bool
	}{{"192.0.2.2", false, true}, {"192.0.2.3", false, false}, {"127.0.0.1", true, true}, {"uid 7", true, true}} {
		if _, err := come(c.from, c.local); (err == nil) != c.ok {
			t.Errorf("%d: %s: %v", i, c.from, err)
		}
	}
	_ = first.Close()
	_ = first.Close() // counts once
	if _, err := come("192.0.2.9", false); err != nil {
		t.Error(err)
	}
	if _, err := come("192.0.2.10", false); err == nil {
		t.Error("one too many came in")
	}
}

// Saying what is spoken is not enough: a call must come.
func TestNoCallInTime(t *testing.T) {
	cfg := Default()
	cfg.Handshake = 50 * time.Millisecond
	s := serve(t, cfg)
	c := s.idle(t, 1)[0]
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	if s.count(silent) == 0 {
		t.Error("nothing was counted")
	}
	known := s.dial(t)
	want(t, check(t, known), codes.OK)
	eventually(t, "no stranger is left", func() bool { n, _ := s.fromHere(); return n == 0 })
	want(t, check(t, known), codes.OK)
}

// Those that are asked who they are have other limits than strangers at their origin.
func TestStrangersRate(t *testing.T) {
	g := New(Config{PeerRate: 100, PeerBurst: 100})
	stranger, user := peerName{"192.0.2.1", true}, peerName{}
	user.name, user.stranger = Named("ada", "192.0.2.1")
	let := 0
	for range 100 {
		if g.begin(stranger) == nil {
			let++
		}
	}
	if let > 20 {
		t.Errorf("a stranger made %d calls at once", let)
	}
	for i := range 100 {
		if err := g.begin(user); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}

// pipes is a listener of connections within this process.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// An answer to a stranger is not cut off, however slow the handler is and whether the reader
// takes it at once: the handshake's limit counts again from the end of the handler.
func TestSlowAnswerToStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Config{Handshake: time.Second, Strangers: 4})
		l := make(pipes)
		s := &http.Server{Handler: g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5500 * time.Millisecond)
			_, _ = io.WriteString(w, "sign in")
		}), func(*http.Request) string { return "" })}
		go func() { _ = s.Serve(g.Listen(l)) }()
		defer s.Close()
		near, far := net.Pipe()
		l <- far
		if _, err := io.WriteString(near, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6400 * time.Millisecond)
		r, err := http.ReadResponse(bufio.NewReader(near), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r.Body); err != nil || string(b) != "sign in" {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a stranger who asks no more is kept: %v", err)
		}
	})
}

// The handshake's limit and a request's begin exclude each other: no handler runs for a
// connection that the limit has closed.
func TestRequestAfterHandshake(t *testing.T) {
	g := New(Config{Handshake: time.Hour})
	near, far := net.Pipe()
	defer far.Close()
	c := &conn{Conn: near, listener: g.Listen(nil).(*listener)}
	c.listener.admit(c)
	done, ok := g.busy(c.LocalAddr())
	if c.late(); !ok || c.closed {
		t.Fatal("closed while a request is answered")
	}
	done()
	c.late()
	if _, ok := g.busy(c.LocalAddr()); ok {
		t.Error("a request begins on a closed connection")
	}
	if g.all != 0 {
		t.Errorf("%d connections are counted", g.all)
	}
}

// The kernel says whose a connection within this machine is.
func TestAccounts(t *testing.T) {
	s := serve(t, Default())
	s.idle(t, 1)
	me := "uid " + strconv.Itoa(os.Getuid())
	eventually(t, "it is ours", func() bool { _, from := s.fromHere(); return from[me] == 1 })
	if os.Getuid() != 0 {
		t.Skip("connections of another account need root")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, port, _ := net.SplitHostPort(s.address)
	c := exec.CommandContext(ctx, bash, "-c", fmt.Sprintf("for i in $(seq 200); do exec {fd}<>/dev/tcp/127.0.0.1/%s; done; read", port))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c.Dir = "/"
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = c.Wait() }()
	eventually(t, "the other account's crowd is there", func() bool { _, from := s.fromHere(); return from["uid 65534"] == Default().Strangers/2 })
	if _, from := s.fromHere(); from[me] != 1 {
		t.Errorf("of %s %d are open", me, from[me])
	}
	want(t, check(t, s.dial(t)), codes.OK)
}
