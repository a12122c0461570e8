package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	// maxBody is the longest request's body, in bytes.
	maxBody = 1 << 20
	// maxQuery is the longest query, in bytes.
	maxQuery = 32 << 10
	// bodyTime is how long a body may take to come.
	bodyTime = 10 * time.Second
	// writeTime is how long the reader may leave written bytes unread.
	writeTime = 30 * time.Second
)

// headers are those of every answer: nothing of it is to be run, framed, guessed
// at or kept.
var headers = map[string]string{
	"Content-Security-Policy":      "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cache-Control":                "no-store",
}

// guard sets the headers, keeps the limits, and refuses a browser's requests for
// another site's page.
func guard(next http.Handler, o Options) http.Handler {
	next = http.NewCrossOriginProtection().Handler(limit(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if r.TLS != nil {
			w.Header().Set("Strict-Transport-Security", "max-age=2592000")
		}
		if hasBody(r) { // also of a request that is refused: the rest of it is read to its end
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
		}
		if o.Loopback && !local(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, "this server is localhost: it does not answer to "+host(r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// host is a Host header's name, without its port.
func host(header string) string {
	if h, _, err := net.SplitHostPort(header); err == nil {
		return h
	}
	return strings.Trim(header, "[]")
}

// local reports whether a Host header names this machine by a name that no other machine's
// owner can make point here.
func local(header string) bool {
	h := host(header)
	ip := net.ParseIP(h)
	return strings.EqualFold(h, "localhost") || ip != nil && ip.IsLoopback()
}

// limit reads the body, of which there is little or none, and gives every write
// its time: streams may last, but not stand still.
func limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.RawQuery) > maxQuery {
			refuse(w, http.StatusRequestURITooLong, "the query is too long")
			return
		}
		control := http.NewResponseController(w)
		if hasBody(r) {
			t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			if err != nil || !slices.Contains(calls, t) {
				refuse(w, http.StatusUnsupportedMediaType,
					"a body must be application/json or application/grpc-web+proto")
				return
			}
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
			switch _, large := errors.AsType[*http.MaxBytesError](err); {
			case large:
				refuse(w, http.StatusRequestEntityTooLarge, "the body is larger than 1 MiB")
				return
			case err != nil:
				refuse(w, http.StatusBadRequest, "the body did not come whole")
				return
			}
			_ = control.SetReadDeadline(time.Time{}) // it is whole; the answer may take its time
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(&timedWriter{w, control}, r)
	})
}

// hasBody reports whether a request has a body; HTTP/2 has an empty one instead of none.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// calls are the types of a body. No form can have one of them, and no page
// of another site without a browser asking first.
var calls = []string{
	"application/json", "application/grpc-web", "application/grpc-web+proto", "application/grpc-web+json",
	"application/proto", "application/connect+proto", "application/connect+json",
}

// timedWriter sets a deadline for every write.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write writes b, which must leave within writeTime.
func (t *timedWriter) Write(b []byte) (int, error) {
	_ = t.control.SetWriteDeadline(time.Now().Add(writeTime))
	return t.ResponseWriter.Write(b)
}

// Flush sends the written bytes.
func (t *timedWriter) Flush() {
	_ = t.control.SetWriteDeadline(time.Now().Add(writeTime))
	_ = t.control.Flush()
}

// Unwrap is for http.ResponseController.
func (t *timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// refuse answers as the gateway does.
func refuse(w http.ResponseWriter, status int, why string) {
	refuseAs(w, status, codes.InvalidArgument, why)
}

// refuseAs answers with another code of gRPC.
func refuseAs(w http.ResponseWriter, status int, code codes.Code, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "message": why, "details": []any{}})
}
