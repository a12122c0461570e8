package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	"github.com/wattmark/wattmark/api/auth"
)

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
