package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"wattmark/api/auth"
)

// Handler asks who is there before a site is served.
type Handler struct {
	guard    *auth.Guard
	next     http.Handler
	own      *http.ServeMux
	sessions sessions
	now      func() time.Time
}

// New puts the question before a site. now is the clock; nil for the wall clock.
func New(guard *auth.Guard, next http.Handler, now func() time.Time) *Handler {
	if now == nil {
		now = time.Now
	}
	h := &Handler{guard: guard, next: next, own: http.NewServeMux(), now: now}
	h.sessions.all = map[[32]byte]session{}
	h.own.HandleFunc("POST /v1/session", h.signIn)
	h.own.HandleFunc("GET /v1/session", h.show)
	h.own.HandleFunc("DELETE /v1/session", h.signOut)
	page(h.own)
	return h
}

// ours are the paths that are answered here, and open to everybody.
func ours(path string) bool {
	return path == "/v1/session" || path == "/signin" || strings.HasPrefix(path, "/signin/")
}

// open are the paths of the site that are open to everybody.
func open(path string) bool { return path == "/healthz" }

// role is what a request needs at least. gRPC-Web and Connect ask for a call by its name,
// always by POST; JSON calls that are not safe need more by their own row.
func role(r *http.Request) auth.Role {
	row, call := auth.Rows[r.URL.Path]
	switch {
	case call:
		return max(row.Role, auth.Viewer)
	case strings.HasPrefix(r.URL.Path, "/debug/"):
		return auth.Admin
	case safe(r):
		return auth.Viewer
	}
	return auth.Measurer
}

func safe(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// ServeHTTP lets in who may come.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if ours(r.URL.Path) {
		h.own.ServeHTTP(w, r)
		return
	}
	if open(r.URL.Path) {
		h.next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), auth.Identity{})))
		return
	}
	who, err := h.who(r)
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
	if s, ok := h.session(r); ok { // what goes on in a session ends with it
		within, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.over, cancel)()
		ctx = within
	}
	h.next.ServeHTTP(w, r.WithContext(ctx))
}

// errSite: a page of another site may be behind the request.
var errSite = fmt.Errorf("%w: a page of this site says where it comes from; this request does not", auth.ErrDenied)

// who says who asks: by a header, else by a cookie, else by a certificate.
func (h *Handler) who(r *http.Request) (auth.Identity, error) {
	if said := r.Header.Values("Authorization"); len(said) > 0 {
		return h.guard.Header(strings.Join(said, ","))
	}
	if c, err := r.Cookie(cookieName(r)); err == nil {
		s, ok := h.session(r)
		if !ok {
			return auth.Identity{}, fmt.Errorf("%w: the session is over: sign in again", auth.ErrUnknown)
		}
		if err := h.guard.Valid(s.who); err != nil {
			h.sessions.end(c.Value)
			return auth.Identity{}, err
		}
		// Every browser says one of these when a page asks for a change; whether it is this
		// site's was looked at before.
		if !safe(r) && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
			return s.who, errSite
		}
		return s.who, nil
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return h.guard.Certificate(r.TLS.VerifiedChains)
	}
	return auth.Identity{}, fmt.Errorf("%w: send the header Authorization: Bearer wm_…, or sign in at /signin", auth.ErrUnknown)
}

// User names who makes a request, for limits; empty for who is not let in.
func (h *Handler) User(r *http.Request) string {
	who, err := h.who(r)
	if err != nil {
		return ""
	}
	return who.Name
}

// session is the one that a request is made in; a header goes before it.
func (h *Handler) session(r *http.Request) (session, bool) {
	c, err := r.Cookie(cookieName(r))
	if err != nil || len(r.Header.Values("Authorization")) > 0 {
		return session{}, false
	}
	return h.sessions.find(c.Value, h.now())
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, who auth.Identity, err error) {
	if errors.Is(err, auth.ErrUnknown) && safe(r) && strings.Contains(r.Header.Get("Accept"), "text/html") && !strings.HasPrefix(r.URL.Path, "/v1/") {
		http.Redirect(w, r, "/signin", http.StatusSeeOther)
		return
	}
	s := status.Convert(auth.Status(err))
	h.guard.Audit().Keep(auth.Entry{Who: who, From: r.RemoteAddr, What: r.Method + " " + r.URL.Path, Code: s.Code().String(), Why: s.Message()})
	answerError(w, s)
}

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
	h.guard.Audit().Keep(auth.Entry{Who: who, From: r.RemoteAddr, What: "sign in", Code: s.Code().String(), Why: s.Message()})
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

// show tells who is signed in.
func (h *Handler) show(w http.ResponseWriter, r *http.Request) {
	who, err := h.who(r)
	if err != nil {
		answerError(w, status.Convert(auth.Status(err)))
		return
	}
	until := who.Expires
	if s, ok := h.session(r); ok {
		until = s.until
	}
	answer(w, http.StatusOK, shown(who, until))
}

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
			h.guard.Audit().Keep(auth.Entry{Who: s.who, From: r.RemoteAddr, What: "sign out", Code: codes.OK.String(), On: []slog.Attr{}})
		}
	}
	http.SetCookie(w, cookie(r, "", time.Time{}))
	w.WriteHeader(http.StatusNoContent)
}
