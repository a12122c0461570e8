package page_test

import (
	"context"
	"encoding/json"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"wattmark/api"
	"wattmark/api/internal/testdb"
	"wattmark/api/web"
	"wattmark/api/wire"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// Names that somebody may give a task.
const (
	nasty = `<img src=x onerror=alert(1)> "&amp;' gemm`
	long  = "transformer_block_forward_with_flash_attention_and_everything_else_that_fits_into_one_name_" + "0123456789"
	other = "矩阵乘法 ضرب المصفوفات умножение 🔥"
)

// site is a database behind the real services and the page.
type site struct {
	url  string
	db   *store.DB
	stop func() // the server is gone then
}

// filled opens the database of testdb – tasks 1 to 3 – with readings and kernels, and
// tasks of every other kind: 4 and 5 of odd names run, 6 is incomplete, 7 untrimmed.
func filled(t *testing.T) *site {
	t.Helper()
	db, err := testdb.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	at := func(s float64) time.Time { return testdb.Launched.Add(time.Duration(s * 1e9)) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(db.PutReadings(ctx, 1, []store.Reading{
		{Method: "nvml.instant", At: at(0.05), Value: 120},
		{Method: "nvml.instant", At: at(0.3), Value: math.NaN()},
		{Method: "nvml.instant", At: at(0.5), Value: 150},
		{Method: "nvml.average", At: at(0.2), Value: 100},
	}))
	must(db.PutKernels(ctx, 1, []store.Kernel{{Name: nasty, Start: at(0.2), End: at(0.35)}, {Name: "gemm", Start: at(0.45), End: at(0.8)}}))
	for _, name := range []string{nasty, long, other, "untrimmed"} {
		id, err := db.BeginTask(ctx, store.NewTask{Name: name, User: nasty, Launched: testdb.Launched, GPU: "H200"})
		must(err)
		switch name {
		case other:
			must(db.Finish(ctx, id, store.Outcome{State: store.Incomplete, Reason: strings.Repeat("the meter was unplugged ", 10)}))
		case "untrimmed":
			must(db.PutHeader(ctx, id, store.Header{Bench: "lab", Setup: testdb.Setup(), CalibrationID: "c1", Started: testdb.Launched}))
			for c, err := range db.Chunks(ctx, 1, 0) {
				must(err)
				must(db.AppendChunks(ctx, id, []*chunk.Chunk{c.Clone()}, nil))
			}
			must(db.Finish(ctx, id, store.Outcome{State: store.Untrimmed, Reason: "no markers were found"}))
		}
	}
	return serve(t, db)
}

// empty has no tasks.
func empty(t *testing.T) *site {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "power.db"))
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, db)
}

func serve(t *testing.T, db *store.DB) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	service := api.NewWith(db, api.Options{Poll: 10 * time.Millisecond})
	service.Register(server)
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	h, err := web.Handler(context.WithoutCancel(t.Context()), conn, web.Options{Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(h)
	s := &site{url: front.URL, db: db, stop: func() {
		service.Close()
		front.CloseClientConnections()
		front.Close()
	}}
	t.Cleanup(func() {
		service.Close()
		front.CloseClientConnections()
		front.Close()
		_ = conn.Close()
		server.Stop()
		_ = db.Close()
	})
	return s
}

// ask reads an answer of the API as any client would.
func (s *site) ask(t *testing.T, path string, into any) {
	t.Helper()
	res, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != 200 {
		t.Fatalf("%s: %s %v", path, res.Status, err)
	}
}
