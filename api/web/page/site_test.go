package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/api/internal/testdb"
	"github.com/wattmark/wattmark/api/web"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/store"
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
	must(testdb.Record(ctx, db, 100))
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
	// Of a context that ends behind the tabs: a service that stops is a complaint of theirs.
	service := api.New(context.WithoutCancel(t.Context()), db, api.Options{Poll: 10 * time.Millisecond})
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
	mux := http.NewServeMux()
	mux.Handle("/", h)
	// The modules that page.js is made of, for what calls a function of one.
	mux.Handle("GET /assets/js/", http.StripPrefix("/assets/", http.FileServer(http.Dir("static"))))
	front := httptest.NewServer(mux)
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

// energyAnswer is what ReadEnergy says.
type energyAnswer struct {
	Energy struct {
		EnergyJ float64 `json:"energy_j"`
		U       float64 `json:"energy_u_j"`
	} `json:"energy"`
}

// params are those of the address behind #.
func (b *tab) params() url.Values {
	b.Helper()
	_, query, _ := strings.Cut(is[string](b, `location.hash`), "?")
	v, err := url.ParseQuery(query)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// box is where the panels of the plot lie.
func (b *tab) box() (x, y, w float64) {
	b.Helper()
	b.do(chromedp.ScrollIntoView(chromedp.CSS(".plot")))
	r := is[[]float64](b, `(() => { const r = document.querySelector('.plot').getBoundingClientRect(); return [r.x, r.y, r.width] })()`)
	return r[0] + 58, r[1] + 100, r[2] - 68
}

// joules holds what is written between the cursors against the API's answer.
func (b *tab) joules(task int) {
	b.Helper()
	p := b.params()
	lo, hi := number(b.T, p.Get("a")), number(b.T, p.Get("b"))
	var want energyAnswer
	b.site.ask(b.T, fmt.Sprintf("/v1/tasks/%d/energy?from_s=%v&to_s=%v", task, min(lo, hi), max(lo, hi)), &want)
	if got := number(b.T, is[string](b, `document.querySelector('#between data').value`)); got != want.Energy.EnergyJ {
		b.Errorf("the page has %v J between %v and %v s, the API %v", got, lo, hi, want.Energy.EnergyJ)
	}
	// What is written is that, rounded as its uncertainty calls for.
	shown := is[string](b, `document.querySelector('#between data').textContent`)
	e, u, _ := strings.Cut(strings.TrimSuffix(shown, " J"), " ± ")
	_, decimals, _ := strings.Cut(u, ".")
	unit := math.Pow(10, -float64(len(decimals)))
	if math.Abs(number(b.T, e)-want.Energy.EnergyJ) > unit/2*1.0001 || math.Abs(number(b.T, u)-want.Energy.U) > unit/2*1.0001 {
		b.Errorf("written is %q for %v ± %v J", shown, want.Energy.EnergyJ, want.Energy.U)
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	if text == "" {
		return math.NaN()
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, "\u202f", ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// touches are two fingers that move apart, and one that moves aside.
func touches(t *testing.T, chrome context.Context) {
	b := open(t, chrome, filled(t), "#/task/1?from=0.3&to=0.7", 400)
	b.until(drawn + " && " + rests)
	if _, err := chromedp.Call(b.ctx, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	x, y, w := b.box()
	at := func(shares ...float64) (points []*input.TouchPoint) {
		for i, s := range shares {
			id := float64(i)
			points = append(points, &input.TouchPoint{X: x + s*w, Y: y, ID: &id})
		}
		return points
	}
	touch := func(kind input.DispatchTouchEventType, points []*input.TouchPoint) {
		t.Helper()
		if points == nil {
			points = []*input.TouchPoint{}
		}
		if _, err := chromedp.Call(b.ctx, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: points}); err != nil {
			t.Fatal(err)
		}
	}
	// Fingers at a quarter apart about the middle, then at a half: half of the span.
	touch(input.DispatchTouchEventTypeTouchStart, at(0.375, 0.625))
	touch(input.DispatchTouchEventTypeTouchMove, at(0.3, 0.7))
	touch(input.DispatchTouchEventTypeTouchMove, at(0.25, 0.75))
	touch(input.DispatchTouchEventTypeTouchEnd, nil)
	b.until(`!location.hash.includes('from=0.3&') && ` + rests)
	p := b.params()
	from, to := number(t, p.Get("from")), number(t, p.Get("to"))
	if math.Abs(to-from-0.2) > 0.01 || math.Abs(from+to-1) > 0.01 {
		t.Errorf("two fingers made 0.3 to 0.7 s %v to %v s", from, to)
	}
	// One finger from the middle to the left: later times.
	touch(input.DispatchTouchEventTypeTouchStart, at(0.5))
	touch(input.DispatchTouchEventTypeTouchMove, at(0.4))
	touch(input.DispatchTouchEventTypeTouchMove, at(0.25))
	touch(input.DispatchTouchEventTypeTouchEnd, nil)
	b.until(fmt.Sprintf(`!location.hash.includes('from=%s&') && %s`, p.Get("from"), rests))
	if moved := number(t, b.params().Get("from")) - from; math.Abs(moved-0.05) > 0.01 {
		t.Errorf("one finger over a quarter of 0.2 s moved by %v s", moved)
	}
}
