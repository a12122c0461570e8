package signin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/wattmark/wattmark/api/auth"
	"github.com/wattmark/wattmark/internal/chromium"
)

// browser opens a tab of Chromium, which believes our server's certificate.
func browser(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), chromium.Patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium.Path(t)), chromedp.NoSandbox,
		chromedp.UserDataDir(t.TempDir()), chromedp.DisableGPU, chromedp.Flag("ignore-certificate-errors", true))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// awaited is a script that waits until an expression is true, and returns its value.
func awaited(expression string) string {
	return `new Promise(done => { const look = () => { const v = ` + expression + `; v ? done(v) : setTimeout(look, 20) }; look() })`
}

func (s *site) script(ctx context.Context, script string) string {
	s.Helper()
	got, err := chromedp.Run(ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	if err != nil {
		s.Fatalf("%s: %v", script, err)
	}
	return got
}

// Who comes to the page signs in and is known from then on; the page's scripts cannot
// read the cookie, and another site's page cannot use it.
func TestSignInWithChromium(t *testing.T) {
	s := newSite(t, true)
	var arrived, changed, read, scripts atomic.Int64
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/tasks" {
			defer arrived.Add(1) // what it did was counted by then
		}
		if r.URL.Path == "/signin/signin.js" && scripts.Add(1) == 1 {
			http.Error(w, "not now", http.StatusServiceUnavailable) // the page is there, and does nothing
			return
		}
		s.handler.ServeHTTP(w, r)
	})
	s.handler.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := auth.From(r.Context())
		if !safe(r) {
			changed.Add(1)
		}
		if r.URL.Path == "/v1/tasks" {
			read.Add(1)
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>site</title><p id=who>%s is %v</p>", who.Name, who.Role)
	})
	token := s.token("ada", auth.Measurer, time.Hour)
	ctx := browser(t)
	// While it starts, the browser may say that the network has changed. A page is whole with its script.
	eventually(t, func() bool {
		if chromedp.Do(ctx, chromedp.Navigate(s.URL+"/")) != nil {
			return false
		}
		whole, err := chromedp.Run(ctx, chromedp.Evaluate[bool](
			`performance.getEntriesByType("resource").some(e => e.name.endsWith("/signin.js") && e.responseStatus == 200)`))
		return err == nil && whole
	})
	if n := scripts.Load(); n < 2 {
		t.Errorf("the page was taken for whole after %d loads of its script, of which the first fails", n)
	}
	sign := func(token string) string {
		return `(() => { document.getElementById("token").value = "` + token + `"; document.querySelector("button").click(); return "" })()`
	}
	if at := s.script(ctx, "location.pathname"); at != "/signin" {
		t.Fatalf("a stranger is at %s", at)
	}
	s.script(ctx, sign(token[:len(token)-1]))
	if said := s.script(ctx, awaited(`document.getElementById("said").textContent`)); !strings.Contains(said, "not known here") {
		t.Errorf("a wrong token: %s", said)
	}
	s.script(ctx, sign(token))
	eventually(t, func() bool {
		got, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.title == "site" ? document.getElementById("who").textContent : ""`))
		return err == nil && got == "ada is measurer"
	})
	if got := s.script(ctx, "document.cookie + JSON.stringify(localStorage)"); got != "{}" {
		t.Errorf("a script can read %s", got)
	}
	if got := s.script(ctx, `fetch("/v1/tasks/1", {method: "DELETE"}).then(r => "" + r.status)`); got != "200" || changed.Load() != 1 {
		t.Errorf("the page's own request: %s", got)
	}
	changed.Store(0)
	read.Store(0)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<title>evil</title><body><p>Win a prize") }))
	defer evil.Close()
	visit := func() {
		eventually(t, func() bool {
			if chromedp.Do(ctx, chromedp.Navigate(strings.Replace(evil.URL, "127.0.0.1", "localhost", 1))) != nil {
				return false
			}
			there, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.title == "evil" && document.body != null`))
			return err == nil && there
		})
	}
	visit()
	for _, attack := range []string{
		`{method: "POST", mode: "no-cors", credentials: "include", headers: {"Content-Type": "text/plain"}, body: "{}"}`,
		`{method: "DELETE", credentials: "include"}`,
		`{mode: "no-cors", credentials: "include"}`,
		`{credentials: "include"}`,
	} {
		s.script(ctx, `fetch("`+s.URL+`/v1/tasks", `+attack+`).then(r => "answered", e => "refused")`)
	}
	came := arrived.Load()
	if came < 3 {
		t.Errorf("only %d requests of another site's page arrived", came)
	}
	// A link, and a form, which take the whole tab along.
	for _, leave := range []string{
		`location.href = "` + s.URL + `/v1/tasks"`,
		`(() => { const f = document.createElement("form"); f.method = "POST"; f.action = "` + s.URL + `/v1/tasks"; document.body.append(f); f.submit(); return "" })()`,
	} {
		visit()
		came = arrived.Load()
		s.script(ctx, leave)
		eventually(t, func() bool { return arrived.Load() > came })
	}
	if changed.Load()+read.Load() != 0 {
		t.Errorf("another site's page: %d changes, %d reads", changed.Load(), read.Load())
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	tick, over := time.NewTicker(20*time.Millisecond), time.NewTimer(time.Minute)
	defer tick.Stop()
	defer over.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-over.C:
			t.Fatal("waited in vain")
		}
	}
}
