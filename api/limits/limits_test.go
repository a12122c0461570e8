package limits

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestOpenCalls(t *testing.T) {
	cfg := Default()
	cfg.PeerCalls = 2
	s := serve(t, cfg)
	c := s.dial(t)
	watch := grpc_health_v1.NewHealthClient(c)
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		w, err := watch.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil {
			_, err = w.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want(t, check(t, c), codes.ResourceExhausted)
	cancel()
	eventually(t, "calls end", func() bool { return check(t, c) == nil })
	if s.count(peerCalls) == 0 {
		t.Error("nothing was counted")
	}
}

func TestRate(t *testing.T) {
	cfg := Default()
	cfg.PeerRate, cfg.PeerBurst = 1, 3
	s := serve(t, cfg)
	now := time.Unix(1e9, 0)
	s.guard.mu.Lock() // it serves already
	s.guard.now = func() time.Time { return now }
	s.guard.mu.Unlock()
	c := s.dial(t)
	for range 3 {
		want(t, check(t, c), codes.OK)
	}
	want(t, check(t, c), codes.ResourceExhausted)
	s.guard.mu.Lock()
	now = now.Add(time.Second)
	s.guard.mu.Unlock()
	want(t, check(t, c), codes.OK)
	want(t, check(t, c), codes.ResourceExhausted)
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(s.guard); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil || len(families) != 4 {
		t.Errorf("%d metrics, %v", len(families), err)
	}
}

// Who has come from a million addresses is forgotten.
func TestManyPeers(t *testing.T) {
	g := New(Default())
	now := time.Unix(1e9, 0)
	g.now = func() time.Time { return now }
	for i := range 1000 {
		name := peerName{name: strconv.Itoa(i)}
		if err := g.begin(name); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			g.end(name)
		}
	}
	now = now.Add(2 * sweepEvery)
	_ = g.begin(peerName{name: "new"})
	if _, kept := g.peers[peerName{name: "0"}]; len(g.peers) != 2 || !kept {
		t.Errorf("%d peers are remembered", len(g.peers))
	}
}

func TestSilentConnection(t *testing.T) {
	cfg := Default()
	cfg.Handshake = time.Second // which the last call must not take, either
	s := serve(t, cfg)
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	closed(t, c)
	want(t, check(t, s.dial(t)), codes.OK)
}

// slowly begins a call and never sends all of its request; it returns the status.
func slowly(t *testing.T, address, method string) (code string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	// A message of 1000 bytes, of which three come.
	if err := f.WriteData(1, false, []byte{0, 0, 0, 3, 232, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			for _, field := range h.Fields {
				if field.Name == "grpc-status" {
					return field.Value
				}
			}
		}
	}
}

func TestSlowRequest(t *testing.T) {
	cfg := Default()
	cfg.RequestTime = 20 * time.Millisecond
	s := serve(t, cfg)
	for i, method := range []string{"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/test/Flood"} {
		if code := slowly(t, s.address, method); code != strconv.Itoa(int(codes.DeadlineExceeded)) {
			t.Errorf("%s ended with %s", method, code)
		}
		if n := s.count(slowRequest); n != uint64(i+1) {
			t.Errorf("%d counted", n)
		}
	}
	// One that came in time may take as long as it likes.
	w, err := grpc_health_v1.NewHealthClient(s.dial(t)).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() {
		_, err := w.Recv()
		gone <- err
	}()
	select {
	case err := <-gone:
		t.Errorf("a call that waits was ended: %v", err)
	case <-time.After(5 * cfg.RequestTime):
	}
}

func TestReaderThatDoesNotRead(t *testing.T) {
	for _, requestTime := range []time.Duration{0, 10 * time.Second} {
		cfg := Default()
		cfg.Stall, cfg.RequestTime = 20*time.Millisecond, requestTime
		s := serve(t, cfg)
		stream, err := s.dial(t).NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test/Flood")
		if err == nil {
			err = stream.SendMsg(&emptypb.Empty{})
		}
		if err == nil {
			err = stream.CloseSend()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := <-s.ended; err == nil {
			t.Error("the stream goes on")
		}
		for err == nil {
			err = stream.RecvMsg(&wrapperspb.BytesValue{})
		}
		want(t, err, codes.DeadlineExceeded)
		if s.count(stalled) != 1 {
			t.Errorf("%d counted", s.count(stalled))
		}
	}
}

func TestOversize(t *testing.T) {
	cfg := Default()
	cfg.Request = leastRequest
	s := serve(t, cfg)
	c := s.dial(t)
	call := func(size int, options ...grpc.CallOption) error {
		q := &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", size)}
		_, err := grpc_health_v1.NewHealthClient(c).Check(t.Context(), q, options...)
		return err
	}
	want(t, call(leastRequest/2), codes.NotFound)
	want(t, call(leastRequest+1), codes.ResourceExhausted)
	// Ten megabytes of one letter are ten kilobytes on the way.
	want(t, call(10<<20, grpc.UseCompressor(gzip.Name)), codes.ResourceExhausted)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("y", 64<<10))
	if _, err := grpc_health_v1.NewHealthClient(c).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err == nil {
		t.Error("64 KiB of headers are taken")
	}
	want(t, check(t, c), codes.OK)
}

func TestCheckRefuses(t *testing.T) {
	if err := New(Default()).cfg.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"connections": func(c *Config) { c.Connections = -1 },
		"burst":       func(c *Config) { c.PeerBurst = 0 },
		"request":     func(c *Config) { c.Request = 10 },
		"time":        func(c *Config) { c.Stall = -1 },
	} {
		c := Default()
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHTTP(t *testing.T) {
	cfg := Default()
	cfg.PeerRate, cfg.PeerBurst, cfg.Request, cfg.RequestTime = 1, 2, leastRequest, 20*time.Millisecond
	g := New(cfg)
	now := time.Unix(1e9, 0)
	g.now = func() time.Time { return now }
	read := make(chan error, 1)
	s := httptest.NewServer(g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	}), nil))
	defer s.Close()
	post := func(body io.Reader) int {
		r, err := http.Post(s.URL, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		return r.StatusCode
	}
	g.now = time.Now // deadlines are the kernel's
	if post(strings.NewReader("x")); <-read != nil {
		t.Error("a small body is refused")
	}
	if post(bytes.NewReader(make([]byte, leastRequest+1))); <-read == nil {
		t.Error("a large body is taken")
	}
	g.now = func() time.Time { return now.Add(-time.Hour) }
	if code := post(strings.NewReader("x")); code != http.StatusTooManyRequests {
		t.Errorf("answered %d", code)
	}
}

func TestSlowBody(t *testing.T) {
	cfg := Default()
	cfg.RequestTime = 20 * time.Millisecond
	read := make(chan error, 1)
	s := httptest.NewServer(New(cfg).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	}), nil))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx"); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err == nil {
		t.Error("a body that does not come is waited for")
	}
}

// What a request charges is taken from its caller's rate, and a request that did not come through Handler has no limit.
func TestChargeTakesFromTheRate(t *testing.T) {
	cfg := Default()
	cfg.PeerRate, cfg.PeerBurst = 1e-9, 10
	h := New(cfg).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Charge(r.Context(), 6); err != nil {
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		}
	}), nil)
	ask := func(from string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i, want := range []int{200, 429} {
		if got := ask("192.0.2.1:1000"); got != want {
			t.Errorf("request %d of one caller: %d, want %d", i, got, want)
		}
	}
	if got := ask("192.0.2.2:1000"); got != 200 {
		t.Errorf("another caller: %d", got)
	}
	if err := Charge(t.Context(), 1000); err != nil {
		t.Errorf("without a guard: %v", err)
	}
}
