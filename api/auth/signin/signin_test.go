package signin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/api/auth"
)

// site is a site behind the question who is there.
type site struct {
	*testing.T
	*httptest.Server
	tokens, audit string
	handler       *Handler
	now           time.Time
}

func newSite(t *testing.T, overTLS bool) *site {
	t.Helper()
	s := &site{T: t, tokens: filepath.Join(t.TempDir(), "tokens.json"), audit: filepath.Join(t.TempDir(), "audit"), now: time.Now()}
	err := auth.Change(s.tokens, func(*auth.List) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	r, err := auth.OpenRegistry(s.tokens, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := auth.OpenAudit(s.audit, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	clock := func() time.Time { return s.now }
	s.handler = New(t.Context(), auth.New(auth.Config{Registry: r, Audit: a, Now: clock}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, known := auth.From(r.Context())
		fmt.Fprintf(w, "%s %v %v", who.Name, who.Role, known)
	}), clock)
	s.Server = httptest.NewUnstartedServer(s.handler)
	if overTLS {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *site) token(name string, role auth.Role, life time.Duration) string {
	s.Helper()
	text, kept, err := auth.NewToken(name, role, s.now, life)
	if err == nil {
		err = auth.Change(s.tokens, func(l *auth.List) error {
			l.Tokens = append(l.Tokens, kept)
			return nil
		})
	}
	if err != nil {
		s.Fatal(err)
	}
	return text
}

// do asks, and returns the status, the answer and its body.
func (s *site) do(method, path, body string, set map[string]string) (*http.Response, string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for k, v := range set {
		req.Header.Set(k, v)
	}
	c := s.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := c.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	return res, string(b)
}

func (s *site) wants(status int, method, path string, set map[string]string, says ...string) {
	s.Helper()
	res, body := s.do(method, path, "", set)
	if res.StatusCode != status {
		s.Errorf("%s %s %v: %d %s, want %d", method, path, set, res.StatusCode, body, status)
	}
	for _, w := range says {
		if !strings.Contains(body, w) {
			s.Errorf("%s %s: %s lacks %q", method, path, body, w)
		}
	}
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

func TestRoles(t *testing.T) {
	s := newSite(t, false)
	viewer, measurer, admin := s.token("eve", auth.Viewer, time.Hour), s.token("ada", auth.Measurer, time.Hour), s.token("root", auth.Admin, time.Hour)
	s.wants(401, "GET", "/v1/tasks", nil, `"code":16`, "/signin")
	s.wants(401, "GET", "/metrics", nil)
	s.wants(401, "GET", "/v1/tasks", map[string]string{"Accept": "text/html"}) // a call is no page
	s.wants(303, "GET", "/tasks/7", map[string]string{"Accept": "text/html"})
	s.wants(200, "GET", "/healthz", nil, " nobody true")
	s.wants(200, "GET", "/v1/tasks", bearer(viewer), "eve viewer")
	s.wants(200, "HEAD", "/v1/tasks", bearer(viewer))
	s.wants(403, "DELETE", "/v1/tasks/1", bearer(viewer), `"code":7`, "eve is viewer")
	s.wants(403, "PURGE", "/v1/tasks/1", bearer(viewer))
	s.wants(200, "POST", "/wattmark.v1.TaskService/ListTasks", bearer(viewer), "eve viewer") // a call's row says, not the verb
	s.wants(200, "POST", "/v1/batch", bearer(viewer), "eve viewer")                          // it only reads
	s.wants(403, "POST", "/v1/tasks:batch", bearer(viewer))
	s.wants(403, "POST", "/wattmark.v1.TaskService/DeleteTasks", bearer(viewer), "measurer")
	s.wants(403, "GET", "/wattmark.v1.TaskService/DeleteTasks", bearer(viewer), "measurer")
	s.wants(401, "POST", "/grpc.health.v1.Health/Check", nil)
	s.wants(403, "POST", "/wattmark.v1.TaskService/Else", bearer(viewer))
	s.wants(200, "DELETE", "/v1/tasks/1", bearer(measurer), "ada measurer")
	s.wants(403, "GET", "/debug/pprof/", bearer(measurer), "admin")
	s.wants(200, "GET", "/debug/pprof/", bearer(admin))
	s.wants(401, "GET", "/v1/tasks", bearer(viewer+"x"))
	s.wants(401, "GET", "/v1/tasks", map[string]string{"Authorization": "Basic " + viewer})
	s.wants(307, "GET", "/signin/../v1/tasks", nil) // to where it leads, and no further
	s.wants(404, "GET", "/signin/page.go", nil)
	s.wants(404, "GET", "/signin/%2e%2e/%2e%2e/tokens.json", nil)
	s.now = s.now.Add(time.Hour)
	s.wants(401, "GET", "/v1/tasks", bearer(viewer), "expired")
}

func (s *site) signIn(token string) (*http.Cookie, int) {
	s.Helper()
	res, body := s.do("POST", "/v1/session", `{"token":"`+token+`"}`, nil)
	if res.StatusCode != 200 {
		return nil, res.StatusCode
	}
	if strings.Contains(body, token) || len(res.Cookies()) != 1 {
		s.Fatalf("%s %v", body, res.Cookies())
	}
	return res.Cookies()[0], 200
}

func TestSession(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		s := newSite(t, overTLS)
		token := s.token("ada", auth.Measurer, 48*time.Hour)
		if _, code := s.signIn(token[:len(token)-1]); code != 401 {
			t.Errorf("half a token: %d", code)
		}
		if res, _ := s.do("POST", "/v1/session", "{", nil); res.StatusCode != 400 {
			t.Errorf("half a body: %d", res.StatusCode)
		}
		c, _ := s.signIn(token)
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure != overTLS || c.Path != "/" || c.Domain != "" || len(c.Value) < 43 ||
			strings.HasPrefix(c.Name, "__Host-") != overTLS {
			t.Errorf("%+v", c)
		}
		if kept := s.handler.sessions.all; len(kept) != 1 || strings.Contains(fmt.Sprintf("%v", kept), c.Value) {
			t.Errorf("the cookie itself is kept: %v", kept)
		}
		with := map[string]string{"Cookie": c.Name + "=" + c.Value}
		page := map[string]string{"Cookie": c.Name + "=" + c.Value, "Origin": s.URL}
		s.wants(200, "GET", "/v1/session", with, `"name":"ada"`, `"role":"measurer"`, s.now.Add(lasts).UTC().Format(time.RFC3339))
		s.wants(200, "GET", "/v1/tasks", with, "ada measurer")
		s.wants(200, "DELETE", "/v1/tasks/1", page, "ada")
		s.wants(403, "DELETE", "/v1/tasks/1", with, "where it comes from") // no browser leaves it out
		s.wants(401, "GET", "/v1/tasks", map[string]string{"Cookie": c.Name + "=" + c.Value + "x"})
		s.wants(401, "GET", "/v1/tasks", map[string]string{"Cookie": c.Name + "=" + token})
		s.wants(204, "DELETE", "/v1/session", page)
		s.wants(401, "GET", "/v1/tasks", with, "sign in again")

		c, _ = s.signIn(token)
		with["Cookie"] = c.Name + "=" + c.Value
		s.now = s.now.Add(lasts - time.Second)
		s.wants(200, "GET", "/v1/tasks", with)
		s.now = s.now.Add(time.Second)
		s.wants(401, "GET", "/v1/tasks", with)

		c, _ = s.signIn(token)
		with["Cookie"] = c.Name + "=" + c.Value
		if err := auth.Change(s.tokens, func(l *auth.List) error {
			l.Revoke("ada", s.now)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		s.wants(401, "GET", "/v1/tasks", with, "revoked")
		s.wants(401, "GET", "/v1/tasks", with, "sign in again") // and was forgotten
		b, err := os.ReadFile(s.audit)
		if err != nil || strings.Contains(string(b), strings.Split(token, "_")[2]) || strings.Contains(string(b), c.Value) || !strings.Contains(string(b), `"what":"sign out"`) {
			t.Errorf("%v %s", err, b)
		}
	}
}

// There is an end to how many sessions a user has; their own that ends first makes room.
func TestSessionsAreBounded(t *testing.T) {
	s := sessions{ctx: t.Context(), all: map[[32]byte]session{}}
	now := time.Now()
	ada, _ := s.begin(auth.Identity{Name: "ada"}, now)
	eve, _ := s.begin(auth.Identity{Name: "eve"}, now)
	for i := range 1005 {
		s.begin(auth.Identity{Name: "eve"}, now.Add(time.Duration(i+1)))
	}
	_, here := s.find(ada, now)
	if _, there := s.find(eve, now); there || !here || len(s.all) != most+1 {
		t.Errorf("%d sessions", len(s.all))
	}
	late := now.Add(2 * lasts)
	s.begin(auth.Identity{Name: "ada"}, late)
	if len(s.all) != 1 {
		t.Errorf("%d are kept that have ended", len(s.all)-1)
	}
}

// What goes on in a session ends with it, in all tabs.
func TestSessionEndsItsStreams(t *testing.T) {
	s := newSite(t, false)
	began, over := make(chan struct{}), make(chan struct{})
	s.Config.Handler = New(t.Context(), s.handler.guard, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		if cause := context.Cause(r.Context()); !errors.Is(cause, auth.ErrUnknown) {
			t.Errorf("the request ends with %v", cause)
		}
		close(over)
	}), s.handler.now)
	c, _ := s.signIn(s.token("ada", auth.Measurer, time.Hour))
	with := map[string]string{"Cookie": c.Name + "=" + c.Value, "Origin": s.URL}
	var signOut sync.WaitGroup
	signOut.Go(func() {
		<-began
		s.do("DELETE", "/v1/session", "", with)
	})
	s.do("GET", "/v1/tasks:watch", "", with)
	<-over
	signOut.Wait() // the stream may end before the answer is here, and the test's end would cancel the request
}

// The page runs nothing but its own script, and has nothing inline.
func TestPage(t *testing.T) {
	s := newSite(t, false)
	for path, says := range map[string]string{"/signin": "<form", "/signin/signin.js": "/v1/session", "/signin/style.css": "input"} {
		res, body := s.do("GET", path, "", nil)
		csp := res.Header.Get("Content-Security-Policy")
		if res.StatusCode != 200 || !strings.Contains(body, says) || !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %d %s", path, res.StatusCode, csp)
		}
		if path == "/signin" {
			for _, inline := range []string{"<style", "style=", "onclick", "onsubmit", "javascript:", "<script>"} {
				if strings.Contains(body, inline) {
					t.Errorf("the page has %s", inline)
				}
			}
		}
	}
}

// A list that cannot be read is not the caller's fault.
func TestBrokenList(t *testing.T) {
	s := newSite(t, false)
	token := s.token("ada", auth.Viewer, time.Hour)
	if err := os.Remove(s.tokens); err != nil {
		t.Fatal(err)
	}
	s.wants(503, "GET", "/v1/tasks", bearer(token), "log")
}
