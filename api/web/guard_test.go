package web

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// do sends a request with headers and returns the status and the body.
func (s *site) do(method, path, body string, set map[string]string) (int, string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for name, value := range set {
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	return res.StatusCode, string(got)
}

// A page of another site can neither delete nor read through a browser here.
func TestOtherSitesAreRefused(t *testing.T) {
	s := newSite(t, Options{Loopback: true, Metrics: http.NotFoundHandler()})
	const all = `{"user":"ada"}`
	for _, c := range []struct {
		method, path, body string
		headers            map[string]string
		status             int
	}{
		{"GET", "/v1/users", "", map[string]string{"Host": "evil.example:7553"}, 421},
		{"GET", "/v1/users", "", map[string]string{"Host": "127.0.0.1.evil.example"}, 421},
		{"GET", "/v1/users", "", map[string]string{"Host": "localhost:7553"}, 200},
		{"GET", "/v1/users", "", map[string]string{"Host": "[::1]:7553"}, 200},
		{"DELETE", "/v1/tasks/1", "", map[string]string{"Origin": "https://evil.example"}, 403},
		{"DELETE", "/v1/tasks/1", "", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"POST", "/v1/tasks:delete", all, map[string]string{"Content-Type": "text/plain"}, 415},
		{"POST", "/v1/tasks:delete", "user=ada", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		{"POST", "/v1/tasks:delete", all, map[string]string{"Content-Type": "application/json", "Origin": "https://evil.example"}, 403},
		// A form cannot ask for another method in a header.
		{"POST", "/v1/tasks/1", "{}", map[string]string{"Content-Type": "application/json", "X-HTTP-Method-Override": "DELETE"}, 405},
		{"GET", "/debug/pprof/", "", nil, 404},
	} {
		if status, got := s.do(c.method, c.path, c.body, c.headers); status != c.status {
			t.Errorf("%s %s %v: %d %s, want %d", c.method, c.path, c.headers, status, got, c.status)
		}
	}
	if tasks := s.ask("GET", "/v1/tasks", "", 200)["tasks"].([]any); len(tasks) != 3 {
		t.Errorf("%d tasks are left", len(tasks))
	}
}

// A browser that was here by TLS comes by nothing else for a while.
func TestStrictTransport(t *testing.T) {
	for url, want := range map[string]bool{"http://localhost/": false, "https://localhost/": true} {
		w := httptest.NewRecorder()
		guard(http.NotFoundHandler(), Options{}).ServeHTTP(w, httptest.NewRequest("GET", url, nil))
		if got := w.Header().Get("Strict-Transport-Security"); (got != "") != want {
			t.Errorf("%s: %q", url, got)
		}
	}
}

func TestWhatElseIsServed(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1") })
	s := newSite(t, Options{Metrics: metrics, Profiles: true})
	for path, says := range map[string]string{
		"/openapi.json": `"swagger": "2.0"`, "/healthz": `"SERVING"`, "/metrics": "up 1", "/debug/pprof/": "goroutine", "/debug/pprof/cmdline": "web.test",
	} {
		if status, got := s.do("GET", path, "", map[string]string{"Host": "gpu-host.lab"}); status != 200 || !strings.Contains(got, says) {
			t.Errorf("%s: %d %.200s", path, status, got)
		}
	}
	if status, _ := s.do("POST", "/openapi.json", "", nil); status != 404 {
		t.Errorf("POST /openapi.json: %d", status)
	}
}

// A server that stops ends what goes on, and is gone.
func TestServerStops(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan bool)
	s := NewServer(l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done() // would never end by itself
	}), nil)
	served, asked := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve() }()
	go func() {
		res, err := http.Get("http://" + l.Addr().String())
		if err == nil {
			res.Body.Close()
		}
		asked <- err
	}()
	<-begun
	s.Stop(t.Context(), time.Millisecond)
	if err := <-served; err != nil {
		t.Error(err)
	}
	if <-asked == nil {
		t.Error("a request that never ends was answered")
	}
}

// curl, which we did not write, reads lists, a stream and errors.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		const reason = "curl is not installed (apt-get install curl)"
		if os.Getenv("WATTMARK_REQUIRE_TOOLS") == "1" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	s := newSite(t, Options{Loopback: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, curl, append([]string{"-sS", "--fail-with-body"}, args...)...).CombinedOutput()
		if err != nil && !strings.Contains(string(out), `"code"`) {
			t.Fatalf("curl %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	var list struct {
		Tasks []struct {
			ID     string `json:"task_id"`
			Energy struct {
				J float64 `json:"energy_j"`
			} `json:"energy"`
		} `json:"tasks"`
	}
	got := run("-G", s.url+"/v1/tasks", "--data-urlencode", "name=g*m", "--data-urlencode", "order=TASK_ORDER_ENERGY")
	if err := json.Unmarshal([]byte(got), &list); err != nil || len(list.Tasks) != 2 || list.Tasks[0].ID != "3" || list.Tasks[0].Energy.J < 100 {
		t.Errorf("%v %s", err, got)
	}
	lines := strings.Split(strings.TrimSpace(run("-N", s.url+"/v1/tasks/1/samples")), "\n")
	n := 0
	for _, line := range lines {
		var item struct {
			Result struct {
				Samples struct {
					PowerW []float64 `json:"power_w"`
				} `json:"samples"`
			} `json:"result"`
		}
		if err := json.Unmarshal([]byte(line), &item); err != nil {
			t.Fatalf("%v in %.200s", err, line)
		}
		n += len(item.Result.Samples.PowerW)
	}
	if n != 7901 {
		t.Errorf("%d samples in %d lines, want 7901", n, len(lines))
	}
	if got := run(s.url + "/v1/tasks/99"); !strings.Contains(got, "no such task") {
		t.Error(got)
	}
	body := []string{"-H", "Content-Type: application/json"}
	run(append(body, "-X", "PATCH", s.url+"/v1/tasks/2", "-d", `{"tags":{"node":"a 3"},"pinned":true}`)...)
	run(append(body, s.url+"/v1/tasks/2/notes", "-d", `{"text":"fan stands"}`)...)
	if got := run("-G", s.url+"/v1/tasks", "--data-urlencode", "tags=node=a 3", "--data-urlencode", "search=fan"); !strings.Contains(got, `"task_id":"2"`) || strings.Contains(got, `"task_id":"1"`) {
		t.Error(got)
	}
	if got := run("-X", "DELETE", s.url+"/v1/tasks/2/notes/1"); got != "{}" {
		t.Error(got)
	}
	if got := run("-X", "DELETE", s.url+"/v1/tasks/1"); !strings.Contains(got, `"deleted":"1"`) {
		t.Error(got)
	}
}

// Text is compressed for those who accept it; a live stream is not, and no other type.
func TestCompression(t *testing.T) {
	s := newSite(t, Options{Loopback: true})
	client := http.Client{Transport: &http.Transport{DisableCompression: true}}
	for path, want := range map[string]string{"/v1/tasks/1/envelope": "gzip", "/": "gzip", "/openapi.json": "gzip", "/v1/tasks:watch": "", "/healthz": ""} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", "gzip")
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Header.Get("Content-Encoding"); res.StatusCode != 200 || got != want {
			t.Errorf("%s: %s, encoded as %q, want %q", path, res.Status, got, want)
		}
		if want != "" {
			z, err := gzip.NewReader(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(z); err != nil || len(b) < 1000 {
				t.Errorf("%s: %d bytes, %v", path, len(b), err)
			}
		}
		cancel()
		_ = res.Body.Close()
	}
}
