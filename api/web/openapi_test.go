package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"wattmark/api"
	"wattmark/api/internal/testdb"
	"wattmark/api/wire"
	"wattmark/store"
)

// site is the test database behind HTTP.
type site struct {
	*testing.T
	url     string
	db      *store.DB
	service *api.Service
	router  routers.Router
	seen    map[string]bool // operations that were answered
}

func newSite(t *testing.T, o Options) *site {
	t.Helper()
	db, err := testdb.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	service := api.NewWith(db, api.Options{Poll: time.Millisecond})
	service.Register(server)
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Handler(t.Context(), conn, o)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(h)
	t.Cleanup(func() {
		service.Close()
		front.Close()
		_ = conn.Close()
		server.Stop()
		_ = db.Close()
	})
	return &site{T: t, url: front.URL, db: db, service: service, router: router(t), seen: map[string]bool{}}
}

// router finds operations in the OpenAPI file.
func router(t *testing.T) routers.Router {
	t.Helper()
	var old openapi2.T
	if err := json.Unmarshal(OpenAPI(), &old); err != nil {
		t.Fatal(err)
	}
	doc, err := openapi2conv.ToV3(&old)
	if err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask sends a request, and holds it and its answer to the OpenAPI file. The file
// need not allow a request that is to be refused.
func (s *site) ask(method, path, body string, status int) map[string]any {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
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
	if res.StatusCode != status {
		s.Fatalf("%s %s: %s, want %d: %s", method, path, res.Status, status, got)
	}
	for name, value := range headers {
		if res.Header.Get(name) != value {
			s.Errorf("%s %s: header %s is %q", method, path, name, res.Header.Get(name))
		}
	}
	s.hold(req, body, res, got)
	var out map[string]any
	if err := json.Unmarshal(got[:lineEnd(got)], &out); err != nil {
		s.Fatalf("%s %s: %v in %s", method, path, err, got)
	}
	return out
}

func lineEnd(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i
	}
	return len(b)
}

// hold validates a request and each line of its answer.
func (s *site) hold(req *http.Request, body string, res *http.Response, got []byte) {
	s.Helper()
	route, params, err := s.router.FindRoute(req)
	if err != nil {
		if res.StatusCode == http.StatusOK {
			s.Errorf("%s: not in the OpenAPI file: %v", req.URL, err)
		}
		return
	}
	again := req.Clone(context.Background())
	again.Body = io.NopCloser(strings.NewReader(body))
	in := &openapi3filter.RequestValidationInput{Request: again, PathParams: params, Route: route}
	if res.StatusCode == http.StatusOK {
		s.seen[route.Operation.OperationID] = true
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			s.Errorf("%s: the request is not as the OpenAPI file says: %v", req.URL, err)
		}
	}
	for line := range bytes.Lines(got) {
		err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: in, Status: res.StatusCode, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(line)), Options: &openapi3filter.Options{IncludeResponseStatus: true},
		})
		if err != nil {
			s.Errorf("%s: the answer is not as the OpenAPI file says: %v", req.URL, err)
		}
	}
}

// Every call, in many ways, is as the file says; and the file has no other.
func TestAnswersAreAsTheOpenAPIFileSays(t *testing.T) {
	s := newSite(t, Options{Loopback: true})
	if err := s.db.PutKernels(t.Context(), 1, []store.Kernel{{Name: "gemm", Start: testdb.Launched.Add(3e8), End: testdb.Launched.Add(4e8)}}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/v1/tasks":                 "[3 2 1]",
		"/v1/tasks?page_size=1":     "[3]",
		"/v1/tasks?name=*x*":        "[2]",
		"/v1/tasks?name=%E6%A0%B8*": "[]",
		"/v1/tasks?user=ada&order=TASK_ORDER_LAUNCHED&ascending=true":              "[1 2]",
		"/v1/tasks?states=TASK_STATE_COMPLETE&states=TASK_STATE_RUNNING":           "[3 2 1]",
		"/v1/tasks?verdicts=VERDICT_VOID":                                          "[]",
		"/v1/tasks?since=2026-03-04T06:00:00Z&until=2026-03-04T06:30:00Z":          "[2]",
		"/v1/tasks?min_energy_j=1&max_duration_s=0.9&with_totals=true":             "[3 2 1]",
		"/v1/tasks?read_mask=task_id,energy&gpu=h200":                              "[3 2 1]",
		"/v1/tasks?name=" + "'%3BDROP%20TABLE%20task--":                            "[]",
		"/v1/tasks?user=bob&job=&group_id=0&min_duration_s=0.001&max_energy_j=1e9": "[3]",
	} {
		out := []any{}
		for _, x := range s.ask("GET", path, "", 200)["tasks"].([]any) {
			out = append(out, x.(map[string]any)["task_id"])
		}
		if got := fmt.Sprint(out); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	for _, path := range []string{
		"/v1/tasks/1", "/v1/tasks/1?result=1", "/v1/users", "/v1/tasks/1/samples?limit=2000", "/v1/tasks/1/samples?raw=true&limit=1", "/v1/tasks/1/energy",
		"/v1/tasks/1/energy?from_s=0.2&to_s=0.3", "/v1/tasks/1/envelope", "/v1/tasks/1/envelope?columns=3&rails=slot&rails=total&from_s=0.1&to_s=0.5", "/v1/tasks/1/timeline?max_slices=5",
		"/v1/aggregate?by=AGGREGATE_BY_USER", "/v1/aggregate?by=AGGREGATE_BY_DAY&utc_offset_min=-60&limit=1", "/v1/aggregate?by=AGGREGATE_BY_GPU", "/v1/aggregate?by=AGGREGATE_BY_KERNEL", "/v1/aggregate?by=AGGREGATE_BY_JOB",
	} {
		s.ask("GET", path, "", 200)
	}
	s.watch()
	s.ask("DELETE", "/v1/tasks/2", "", 200)
	if n := s.ask("POST", "/v1/tasks:delete", `{"user":"ada"}`, 200)["deleted"]; n != "1" {
		t.Errorf("deleted %v", n)
	}
	s.everySeen()
}

// watch reads the first line of a watch.
func (s *site) watch() {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+"/v1/tasks:watch?user=ada", nil)
	if err != nil {
		s.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	b := make([]byte, 4096)
	n, err := res.Body.Read(b)
	if err != nil || res.Header.Get("Content-Type") != "application/x-ndjson" || !strings.Contains(string(b[:n]), "TASK_EVENT_WATCHING") {
		s.Fatalf("%s %v %s", b[:n], err, res.Header)
	}
	s.hold(req, "", res, bytes.TrimSpace(b[:n]))
}

// everySeen checks that no operation was left out.
func (s *site) everySeen() {
	s.Helper()
	var doc openapi3.T
	if err := json.Unmarshal(OpenAPI(), &doc); err != nil {
		s.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			if !s.seen[o.OperationID] {
				s.Errorf("%s %s is in the OpenAPI file, and was not tried", method, path)
			}
		}
	}
}

// What cannot be is refused, as the file says of errors.
func TestRefusals(t *testing.T) {
	s := newSite(t, Options{Loopback: true})
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/v1/tasks?nmae=x", "", 400, "nmae"},
		{"GET", "/v1/tasks?energy.bogus=1", "", 400, "energy.bogus"},
		{"GET", "/v1/tasks?page_size=many", "", 400, "page_size"},
		{"GET", "/v1/tasks?page_size=99999999999", "", 400, "page_size"},
		{"GET", "/v1/tasks?page_token=x", "", 400, "page_token"},
		{"GET", "/v1/tasks?since=yesterday", "", 400, "since"},
		{"GET", "/v1/tasks?states=BUSY", "", 400, "states"},
		{"GET", "/v1/tasks?name=" + strings.Repeat("*a", 30), "", 400, "name"},
		{"GET", "/v1/tasks?name=" + strings.Repeat("a", 40_000), "", 414, "query"},
		{"GET", "/v1/tasks?name=%ff", "", 400, "UTF-8"},
		{"GET", "/v1/tasks?read_mask=task_id,nope", "", 400, "nope"},
		{"GET", "/v1/tasks?min_energy_j=NaN", "", 400, "min_energy_j"},
		{"GET", "/v1/tasks/x", "", 400, "task_id"},
		{"GET", "/v1/tasks/0", "", 400, "task_id"},
		{"GET", "/v1/tasks/99", "", 404, "no such task"},
		{"GET", "/v1/tasks/99999999999999999999", "", 400, "task_id"},
		{"GET", "/v1/tasks/1/energy?from_s=1&to_s=0", "", 400, "to_s"},
		{"GET", "/v1/tasks/1/envelope?columns=-1", "", 400, "columns"},
		{"GET", "/v1/tasks/1/samples?result=7", "", 404, "no such"},
		{"GET", "/v1/aggregate", "", 400, "by"},
		{"GET", "/v2/tasks", "", 404, ""},
		{"PUT", "/v1/tasks/1", "{}", 405, "PUT"},
		{"POST", "/v1/tasks:delete", `{"usr":"ada"}`, 400, "usr"},
		{"POST", "/v1/tasks:delete", `{"user":`, 400, ""},
		{"POST", "/v1/tasks:delete", `{"user":"ada","name":"x"}`, 400, ""},
		{"POST", "/v1/tasks:delete", `{}`, 400, "by"},
		{"POST", "/v1/tasks:delete", `{"user":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "1 MiB"},
		{"DELETE", "/v1/tasks/99", "", 404, "no such task"},
	} {
		out := s.ask(c.method, c.path, c.body, c.status)
		if e, ok := out["error"].(map[string]any); ok { // a stream's
			out = e
		}
		if m, _ := out["message"].(string); !strings.Contains(m, c.says) {
			t.Errorf("%s %.80s: %q does not say %q", c.method, c.path, m, c.says)
		}
	}
}
