package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// IsLoopback reports whether an address to listen on can be reached from this
// machine alone.
func IsLoopback(address string) bool {
	h, _, err := net.SplitHostPort(address)
	return err == nil && local(h)
}

// Server is an HTTP server with its limits.
type Server struct {
	server *http.Server
	listen net.Listener
}

// NewServer makes a server of a handler on a listener. Trouble with connections
// goes to log; nil for silence.
func NewServer(l net.Listener, h http.Handler, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Server{listen: l, server: &http.Server{
		Handler: h, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ConnContext: lean,
	}}
}

// lean makes a new connection keep little that is not on its way.
func lean(ctx context.Context, c net.Conn) context.Context {
	keepLittle(c)
	return ctx
}

// Serve serves until Stop; it closes the listener.
func (s *Server) Serve() error {
	if err := s.server.Serve(s.listen); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.listen.Addr(), err)
	}
	return nil
}

// Stop takes no new requests, and gives those that go on a while to end.
func (s *Server) Stop(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
}
