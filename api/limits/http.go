package limits

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc/status"
)

// Handler holds the peers of an HTTP server to the same limits: of calls, of a
// request's size and time, and of a reader that takes nothing. user names who makes a
// request, and is empty for a stranger; nil where nobody is asked who they are.
func (g *Guard) Handler(next http.Handler, user func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		by := peerName{name: originOf(at, r)}
		if user != nil {
			by.name, by.stranger = Named(user(r), by.name)
		}
		var err error
		if !by.stranger {
			err = g.meet(at, by)
		}
		if err == nil {
			err = g.begin(by)
		}
		if err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, status.Convert(err).Message(), http.StatusTooManyRequests)
			return
		}
		defer g.end(by)
		defer g.busy(at)()
		control := http.NewResponseController(w)
		if r.ContentLength != 0 {
			r.Body = g.body(control, http.MaxBytesReader(w, r.Body, int64(g.cfg.Request)))
		}
		if g.cfg.Stall > 0 {
			w = &writer{ResponseWriter: w, control: control, stall: g.cfg.Stall}
		}
		next.ServeHTTP(w, r)
	})
}

// originOf is [Origin] of a request.
func originOf(at net.Addr, r *http.Request) string {
	if p, ok := at.(place); ok {
		return p.conn.from
	}
	if name, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return name
	}
	return r.RemoteAddr
}

// body gives a request's body its time.
func (g *Guard) body(control *http.ResponseController, b io.ReadCloser) io.ReadCloser {
	if g.cfg.RequestTime <= 0 || control.SetReadDeadline(g.now().Add(g.cfg.RequestTime)) != nil {
		return b
	}
	return &body{b, control}
}

type body struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read takes the deadline away at the end: an answer may take longer.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// writer gives each write its time.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

// Unwrap lets http.ResponseController find what is below.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) Write(p []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stall))
	return w.ResponseWriter.Write(p)
}

// Flush is part of http.Flusher.
func (w *writer) Flush() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stall))
	_ = w.control.Flush()
}
