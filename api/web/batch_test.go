package web

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
)

// A batch answers each call as it would be answered alone, an error in its place; what streams, changes or leads
// elsewhere is refused.
func TestBatch(t *testing.T) {
	s := newSite(t, Options{Loopback: true})
	post := func(body string) (int, []byte) {
		t.Helper()
		res, err := http.Post(s.url+"/v1/batch", "application/json", bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, got
	}
	message, err := proto.Marshal(&pb.ReadEnvelopeRequest{TaskId: 1, Columns: 10, Floats: true})
	if err != nil {
		t.Fatal(err)
	}
	q, err := json.Marshal(map[string]any{"calls": []call{
		{Path: "/v1/tasks/1/energy?from_s=0.25&to_s=0.5"}, {Path: "/v1/tasks/99"}, {Path: envelopePath, Message: message},
	}})
	if err != nil {
		t.Fatal(err)
	}
	code, got := post(string(q))
	var b struct{ Answers []answer }
	if err := json.Unmarshal(got, &b); err != nil || code != 200 || len(b.Answers) != 3 {
		t.Fatalf("%d %s %v", code, got, err)
	}
	res, err := http.Get(s.url + "/v1/tasks/1/energy?from_s=0.25&to_s=0.5")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	alone, err := io.ReadAll(res.Body)
	var one, other any
	if err != nil || json.Unmarshal(alone, &one) != nil || json.Unmarshal(b.Answers[0].JSON, &other) != nil {
		t.Fatalf("%s %s %v", alone, b.Answers[0].JSON, err)
	}
	if x, y := one.(map[string]any)["energy"], other.(map[string]any)["energy"]; x == nil || x.(map[string]any)["energy_j"] != y.(map[string]any)["energy_j"] {
		t.Errorf("%v in a batch, %v alone", y, x)
	}
	if b.Answers[1].Status != 404 || !bytes.Contains(b.Answers[1].JSON, []byte("no such task")) {
		t.Errorf("%+v", b.Answers[1])
	}
	var e pb.ReadEnvelopeResponse
	if err := proto.Unmarshal(b.Answers[2].Message, &e); err != nil || len(e.Series) == 0 || len(e.Series[0].Values) == 0 {
		t.Errorf("%v %v", err, &e)
	}
	for _, bad := range []string{
		"", `{"calls":[{"path":"/v1/tasks:watch"}]}`, `{"calls":[{"path":"/v1/tasks/1/samples"}]}`, `{"calls":[{"path":"http://elsewhere/v1/tasks"}]}`,
		`{"calls":[{"path":"/wattmark.v1.TaskService/DeleteTasks"}]}`, `{"calls":[{"path":"//elsewhere/v1/tasks"}]}`, `{"calls":[{"path":"/metrics"}]}`, `{"call":[]}`,
	} {
		if code, got := post(bad); code != 400 {
			t.Errorf("%s: %d %s", bad, code, got)
		}
	}
}

// Each call of a batch counts for the caller's limits, the first with the request itself.
func TestBatchIsCharged(t *testing.T) {
	charged, refused := 0, status.Error(codes.ResourceExhausted, "wait a little")
	h := batch(http.NotFoundHandler(), func(_ context.Context, n int) error {
		if charged += n; charged > 3 {
			return refused
		}
		return nil
	})
	for _, c := range []struct {
		calls, charged, status int
	}{{1, 0, 200}, {3, 2, 200}, {3, 4, 429}} {
		body := `{"calls":[` + strings.TrimSuffix(strings.Repeat(`{"path":"/v1/tasks/1"},`, c.calls), ",") + `]}`
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/batch", strings.NewReader(body)))
		if w.Code != c.status || charged != c.charged {
			t.Errorf("%d calls: status %d with %d charged, want %d with %d", c.calls, w.Code, charged, c.status, c.charged)
		}
	}
}
