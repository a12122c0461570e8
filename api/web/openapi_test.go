package web

import (
	"bufio"
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

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/internal/testdb"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/store"
)

// site is the test database behind HTTP.
type site struct {
	*testing.T
	url     string
	db      *store.DB
	service *api.Service
	router  routers.Router
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
	service := api.New(t.Context(), db, api.Options{Poll: time.Millisecond, Works: api.Works{
		Trim: func(_ context.Context, _ store.TaskID, w measure.Window) error {
			if w.From > 1 {
				return measure.ErrNoData
			}
			return nil
		},
		AddWindows: func(context.Context, store.TaskID, []serving.Window) error { return nil },
		Windows: func(_ context.Context, id store.TaskID) (w []serving.Window, result int, notes []string, err error) {
			if id == 99 {
				return nil, 0, nil, store.ErrNotFound
			}
			w = []serving.Window{{ID: "r1", Class: "chat", Begin: 1, End: 2, Counts: map[string]float64{"tokens": 3}}, {ID: "r2", Begin: 1, End: 2, Share: &measure.Share{Estimate: measure.Estimate{Energy: 5, U: 1}}}}
			return w, 1, nil, nil
		},
		Formats: []string{"csv"},
		Export: func(_ context.Context, w io.Writer, task *store.Task, _ string, span measure.Window) error {
			switch {
			case span.From > 1:
				return api.ErrRequest
			case span.From > 0.5: // what breaks off later
				_, _ = w.Write(bytes.Repeat([]byte("1\n"), 2<<20))
				return store.ErrIO
			}
			_, err := fmt.Fprintf(w, "%s %v", task.Name, span)
			return err
		},
	}})
	service.Register(server)
	registerLive(t, server, db)
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	if o.Live, err = grpc.NewClient(l.Addr().String(), append(wire.LiveDialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...); err != nil {
		t.Fatal(err)
	}
	h, err := Handler(t.Context(), conn, o)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(h)
	front.Config.ConnContext = lean
	front.Start()
	t.Cleanup(func() {
		service.Close()
		front.Close()
		_, _ = conn.Close(), o.Live.Close()
		server.Stop()
		_ = db.Close()
	})
	return &site{T: t, url: front.URL, db: db, service: service, router: router(t)}
}

// router finds operations in the OpenAPI file.
func router(t *testing.T) routers.Router {
	t.Helper()
	var old openapi2.T
	if err := json.Unmarshal(openAPI, &old); err != nil {
		t.Fatal(err)
	}
	doc, err := openapi2conv.ToV3(&old)
	if err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil
	closed(doc)
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// closed makes the file mean that objects have no other fields than those that it
// names.
func closed(doc *openapi3.T) {
	no := false
	for _, x := range doc.Components.Schemas {
		if v := x.Value; v.Type.Is("object") && v.AdditionalProperties.Has == nil && v.AdditionalProperties.Schema == nil {
			v.AdditionalProperties.Has = &no
		}
	}
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

// watch reads the first line of a watch of tasks.
func (s *site) watch() {
	s.Helper()
	s.firstLine("/v1/tasks:watch?user=ada", "TASK_EVENT_WATCHING")
}

// firstLine reads the first line of a stream that does not end.
func (s *site) firstLine(path, says string) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	line, err := bufio.NewReader(res.Body).ReadBytes('\n')
	if err != nil || res.Header.Get("Content-Type") != "application/x-ndjson" || !bytes.Contains(line, []byte(says)) {
		s.Fatalf("%s: %s %v %s", path, line, err, res.Header)
	}
	s.hold(req, "", res, bytes.TrimSpace(line))
}
