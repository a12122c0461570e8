// Package signin asks who is at the other end of HTTP: by a token or a certificate with
// each request, or by a cookie that a page got for a token.
//
//	POST   /v1/session   {"token": "wm_…"} makes a session: a cookie, HttpOnly, SameSite=Strict
//	GET    /v1/session   who is signed in
//	DELETE /v1/session   signs out
//	GET    /signin       a page that asks for a token
//
// A session lasts half a day, and no longer than its token: one that is revoked ends at
// once. Sessions are kept in memory, by a hash of the cookie.
package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/auth"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Handler authenticates callers before it serves a site.
type Handler struct {
	guard    *auth.Guard
	next     http.Handler
	own      *http.ServeMux
	sessions sessions
	now      func() time.Time
}

// New puts the question before a site. Sessions end with ctx at the latest. now is the clock; nil for
// the wall clock.
func New(ctx context.Context, guard *auth.Guard, next http.Handler, now func() time.Time) *Handler {
	if now == nil {
		now = time.Now
	}
	h := &Handler{guard: guard, next: next, own: http.NewServeMux(), now: now}
	h.sessions.ctx, h.sessions.all = ctx, map[[32]byte]session{}
	h.own.HandleFunc("POST /v1/session", h.signIn)
	h.own.HandleFunc("GET /v1/session", h.show)
	h.own.HandleFunc("DELETE /v1/session", h.signOut)
	page(h.own)
	return h
}

// role is the least role that a request needs. gRPC-Web and Connect ask for a call by its name,
// always by POST; JSON calls that are not safe need more by their own row. The calls of a batch only read.
func role(r *http.Request) auth.Role {
	row, call := auth.Rows[r.URL.Path]
	switch {
	case call:
		return max(row.Role, auth.Viewer)
	case strings.HasPrefix(r.URL.Path, "/debug/"):
		return auth.Admin
	case safe(r), r.URL.Path == "/v1/batch":
		return auth.Viewer
	}
	return auth.Measurer
}

// safe reports whether a request changes nothing by its method (RFC 9110, 9.2.1).
func safe(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// ServeHTTP serves authenticated callers, and the sign-in page to others.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; { // these are open to everybody
	case path == "/v1/session" || path == "/signin" || strings.HasPrefix(path, "/signin/"):
		h.own.ServeHTTP(w, r)
		return
	case path == "/healthz":
		h.next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), auth.Identity{})))
		return
	}
	who, s, err := h.who(r)
	ctx := auth.WithFrom(r.Context(), who, r.RemoteAddr)
	if err == nil {
		err = auth.May(ctx, role(r))
	}
	if err != nil {
		h.refuse(w, r, who, err)
		return
	}
	ctx, leave := h.guard.Watch(ctx, who)
	defer leave()
	if s != nil { // requests in a session end with it
		within, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(s.over, func() { cancel(errOver) })()
		ctx = within
	}
	h.next.ServeHTTP(w, r.WithContext(ctx))
}

// errOver: the session of a request has ended, also while the request was being answered.
var errOver = fmt.Errorf("%w: the session is over: sign in again", auth.ErrUnknown)

// errSite: a page of another site may be behind the request.
var errSite = fmt.Errorf("%w: a page of this site says where it comes from; this request does not", auth.ErrDenied)

// who identifies the caller: by a header, else by the cookie of a session, which is nil without one, else by a
// certificate.
func (h *Handler) who(r *http.Request) (i auth.Identity, s *session, err error) {
	if said := r.Header.Values("Authorization"); len(said) > 0 {
		i, err = h.guard.Header(strings.Join(said, ","))
		return i, nil, err
	}
	if c, err := r.Cookie(cookieName(r)); err == nil {
		s, ok := h.sessions.find(c.Value, h.now())
		if !ok {
			return i, nil, errOver
		}
		if err := h.guard.Valid(s.who); err != nil {
			h.sessions.end(c.Value)
			return i, nil, err
		}
		// Every browser sends one of these when a page asks for a change; whether it is this
		// site's was looked at before.
		if !safe(r) && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
			return s.who, &s, errSite
		}
		return s.who, &s, nil
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		i, err = h.guard.Certificate(r.TLS.VerifiedChains)
		return i, nil, err
	}
	return i, nil, fmt.Errorf("%w: send the header Authorization: Bearer wm_…, or sign in at /signin", auth.ErrUnknown)
}

// User returns the name of a request's caller, for limits; empty for one that is not authenticated.
func (h *Handler) User(r *http.Request) string {
	who, _, err := h.who(r)
	if err != nil {
		return ""
	}
	return who.Name
}

// refuse answers with a status and logs it; a browser that opens a page is sent to
// /signin instead.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, who auth.Identity, err error) {
	if errors.Is(err, auth.ErrUnknown) && safe(r) && strings.Contains(r.Header.Get("Accept"), "text/html") &&
		!strings.HasPrefix(r.URL.Path, "/v1/") {
		http.Redirect(w, r, "/signin", http.StatusSeeOther)
		return
	}
	s := status.Convert(auth.Status(err))
	h.guard.Audit().Keep(r.Context(), auth.Entry{
		Who: who, From: r.RemoteAddr, What: r.Method + " " + r.URL.Path, Code: s.Code().String(), Why: s.Message(),
	})
	answerError(w, s)
}

// answerError answers with a gRPC status as the gateway does: 401, 403, 400, and 503 for
// all others.
func answerError(w http.ResponseWriter, s *status.Status) {
	code := http.StatusServiceUnavailable
	switch s.Code() {
	case codes.Unauthenticated:
		w.Header().Set("WWW-Authenticate", `Bearer realm="wattmark"`)
		code = http.StatusUnauthorized
	case codes.PermissionDenied:
		code = http.StatusForbidden
	case codes.InvalidArgument:
		code = http.StatusBadRequest
	}
	answer(w, code, map[string]any{"code": int(s.Code()), "message": s.Message(), "details": []any{}})
}

// answer writes v as JSON under an HTTP status.
func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// signIn makes a session of a token.
func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Token string `json:"token"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096))
	var large *http.MaxBytesError
	if err := d.Decode(&q); errors.As(err, &large) {
		answerError(w, status.New(codes.InvalidArgument, "this is longer than any token: copy the token again"))
		return
	} else if err != nil {
		answerError(w, status.New(codes.InvalidArgument, `want {"token": "wm_…"}`))
		return
	}
	who, err := h.guard.Header("Bearer " + strings.TrimSpace(q.Token))
	s := status.Convert(auth.Status(err))
	h.guard.Audit().Keep(r.Context(), auth.Entry{
		Who: who, From: r.RemoteAddr, What: "sign in", Code: s.Code().String(), Why: s.Message(),
	})
	if err != nil {
		answerError(w, s)
		return
	}
	if old, err := r.Cookie(cookieName(r)); err == nil {
		h.sessions.end(old.Value)
	}
	value, until := h.sessions.begin(who, h.now())
	http.SetCookie(w, cookie(r, value, until))
	answer(w, http.StatusOK, shown(who, until))
}

// show answers with the identity of the session.
func (h *Handler) show(w http.ResponseWriter, r *http.Request) {
	who, s, err := h.who(r)
	if err != nil {
		answerError(w, status.Convert(auth.Status(err)))
		return
	}
	until := who.Expires
	if s != nil {
		until = s.until
	}
	answer(w, http.StatusOK, shown(who, until))
}

// shown returns the fields of a session that its owner sees.
func shown(who auth.Identity, until time.Time) map[string]any {
	m := map[string]any{"name": who.Name, "role": who.Role}
	if !until.IsZero() {
		m["expires"] = until.UTC().Format(time.RFC3339)
	}
	return m
}

// signOut ends the session, if there is one.
func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName(r)); err == nil {
		if s, ok := h.sessions.find(c.Value, h.now()); ok {
			h.sessions.end(c.Value)
			h.guard.Audit().Keep(r.Context(), auth.Entry{
				Who: s.who, From: r.RemoteAddr, What: "sign out", Code: codes.OK.String(), On: []slog.Attr{},
			})
		}
	}
	http.SetCookie(w, cookie(r, "", time.Time{}))
	w.WriteHeader(http.StatusNoContent)
}

//go:embed page
var files embed.FS

// strict is the policy of the page: nothing but its own three files and one request.
const strict = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; " +
	"frame-ancestors 'none'; base-uri 'none'"

// page serves the page that asks for a token: three files by their names, and no others.
func page(mux *http.ServeMux) {
	for path, f := range map[string]struct{ name, kind string }{
		"GET /signin":           {"page/signin.html", "text/html; charset=utf-8"},
		"GET /signin/signin.js": {"page/signin.js", "text/javascript; charset=utf-8"},
		"GET /signin/style.css": {"page/style.css", "text/css; charset=utf-8"},
	} {
		b, err := files.ReadFile(f.name)
		if err != nil {
			panic(err) // it is built in
		}
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", f.kind)
			w.Header().Set("Content-Security-Policy", strict)
			_, _ = w.Write(b)
		})
	}
}

const (
	// lasts is how long a session does at most.
	lasts = 12 * time.Hour
	// most sessions a user has at once; the one that ends first makes room. Users are as
	// many as tokens were made for.
	most = 64
)

// sessions holds the identities that are signed in, by the hash of their cookie.
type sessions struct {
	ctx context.Context // of the service
	mu  sync.Mutex
	all map[[sha256.Size]byte]session
}

// session is one sign-in: its user, its end, and a context that ends with it.
type session struct {
	who   auth.Identity
	until time.Time
	over  context.Context // ends with the session
	end   context.CancelFunc
}

// begin makes a session and returns its cookie's value and end.
func (s *sessions) begin(who auth.Identity, now time.Time) (value string, until time.Time) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	value = base64.RawURLEncoding.EncodeToString(b[:])
	until = now.Add(lasts)
	if !who.Expires.IsZero() && who.Expires.Before(until) {
		until = who.Expires
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidy(who.Name, now)
	over, end := context.WithTimeout(s.ctx, until.Sub(now))
	s.all[sha256.Sum256([]byte(value))] = session{who, until, over, end}
	return value, until
}

// tidy drops ended sessions, and makes room for one more of a user. The lock is held.
func (s *sessions) tidy(user string, now time.Time) {
	var first [sha256.Size]byte // of the user's, the one that ends first
	n := 0
	for k, v := range s.all {
		switch {
		case !now.Before(v.until):
			s.drop(k)
		case v.who.Name == user:
			if n++; n == 1 || v.until.Before(s.all[first].until) {
				first = k
			}
		}
	}
	if n >= most {
		s.drop(first)
	}
}

// drop ends a session with the requests in it. The lock is held.
func (s *sessions) drop(k [sha256.Size]byte) {
	if v, there := s.all[k]; there {
		v.end()
		delete(s.all, k)
	}
}

// find returns the identity of a cookie.
func (s *sessions) find(value string, now time.Time) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.all[sha256.Sum256([]byte(value))]
	return v, ok && now.Before(v.until)
}

// end ends the session of a cookie, with the requests in it.
func (s *sessions) end(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(sha256.Sum256([]byte(value)))
}

// The cookie's names: browsers take the first over TLS alone, and from this host alone.
const (
	overTLS = "__Host-wattmark"
	locally = "wattmark"
)

// cookieName returns the name of the cookie for a connection with or without TLS.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return overTLS
	}
	return locally
}

// cookie makes the cookie of a session: HttpOnly, SameSite=Strict, Secure over TLS. An
// empty value deletes it in the browser.
func cookie(r *http.Request, value string, until time.Time) *http.Cookie {
	c := &http.Cookie{ // #nosec G124 -- Secure wherever TLS is spoken; without TLS only this machine is served
		Name: cookieName(r), Value: value, Path: "/", Expires: until,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}
