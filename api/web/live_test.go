package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/api/internal/testdb"
	"github.com/wattmark/wattmark/api/reports"
	"github.com/wattmark/wattmark/hostagent/live"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/store"
)

// meter is a monitor of a bench that ada holds; one without a name does not answer.
type meter struct {
	name  string
	rails int
}

func (m meter) Address() string { return "lab:7551" + m.name }

func (m meter) AskBench(ctx context.Context) (session.Bench, error) { return m.GetBench(ctx) }

func (m meter) GetBench(context.Context) (session.Bench, error) {
	if m.name == "" {
		return session.Bench{}, errors.New("nobody answers")
	}
	return session.Bench{
		Name: m.name, Setup: testdb.Setup(), Holder: "ada@lab", HeldSince: testdb.Launched, CaptureID: "c1",
		Waiting: []session.Waiting{{Holder: "bob@lab", Since: testdb.Launched}},
	}, nil
}

func (m meter) Captures(context.Context) ([]session.Capture, error) {
	return []session.Capture{{ID: "c1", Holder: "ada@lab", TaskName: "gemm", State: session.Running, Started: testdb.Launched, SpoolBytes: 7}}, nil
}

func (m meter) Watch(ctx context.Context, o session.WatchOptions, see func(session.Moment) error) error {
	if m.name == "" {
		return errors.New("nobody answers")
	}
	var rails []session.RailValue
	for i := range m.rails {
		rails = append(rails, session.RailValue{Rail: fmt.Sprintf("rail_%d", i), Power: 10.0 / 3})
	}
	for n := uint64(1); ; n++ {
		err := see(session.Moment{CaptureID: "c1", T: measure.Seconds(n), Total: 10, Rails: rails, Scans: n})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.Every):
		}
	}
}

// taped records one bench, as task 3.
type taped struct{ on bool }

// Start implements live.Recorder.
func (r *taped) Start(_ context.Context, _, _ string) (store.TaskID, error) {
	if r.on {
		return 0, live.ErrRefused
	}
	r.on = true
	return 3, nil
}

// Stop implements live.Recorder.
func (r *taped) Stop(context.Context, string) (store.TaskID, error) {
	if !r.on {
		return 0, live.ErrRefused
	}
	r.on = false
	return 3, nil
}

// Recording implements live.Recorder; no test here looks at it.
func (*taped) Recording(string) bool { return false }

// registerLive adds the services beside TaskService to a site's server.
func registerLive(t *testing.T, server *grpc.Server, db *store.DB) {
	t.Helper()
	relay := live.New(live.Config{Monitors: []live.Monitor{meter{name: "a", rails: 1}, meter{name: "wide", rails: 100}, meter{}}, Every: time.Millisecond, TaskOf: db.TaskOfCapture, Recorder: &taped{}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	relay.Register(server)
	compare := func(_ context.Context, a, b []store.TaskID, work []string) ([]byte, error) {
		if slices.Equal(a, b) {
			return nil, fmt.Errorf("%w: task %d is on both sides", reports.ErrRequest, a[0])
		}
		return json.Marshal(map[string]string{"verdict": strings.Trim(fmt.Sprint(a), "[]") + " against " + strings.Trim(fmt.Sprint(b), "[]") + ", " + strings.Join(work, " ")})
	}
	swings := func(_ context.Context, id store.TaskID, step string) ([]byte, error) {
		if step != "" {
			return nil, fmt.Errorf("%w: task %d has no kernel with it in the name", reports.ErrRequest, id)
		}
		return json.Marshal(map[string]any{"mean_w": 100, "notes": []string{"no spectrum"}})
	}
	r := reports.New(t.Context(), reports.Config{DB: db, ValidationKind: "validation", Subject: subject, Compare: compare, Swings: swings})
	r.Register(server)
	t.Cleanup(func() {
		cancel()
		r.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// subject is a second of 100 W that a method read as 110 W.
func subject(context.Context, store.TaskID) (validate.Subject, error) {
	s := validate.Subject{Name: "task 1", GPU: "H200", Work: validate.Span{To: 1}, Origin: testdb.Launched, Missing: []string{"pcie_3v3"}}
	s.Truth = func(yield func(validate.Sample, error) bool) {
		for i := -500; i < 1500 && yield(validate.Sample{At: measure.Seconds(i) / 1000, Power: 100}, nil); i++ {
		}
	}
	s.Methods = []validate.Method{{Name: "instant", Energy: measure.Joule(math.NaN())}}
	for i := range 20 {
		s.Methods[0].Readings = append(s.Methods[0].Readings, validate.Reading{At: measure.Seconds(i) / 20, Power: 110})
	}
	return s, nil
}

// live asks the calls about benches, sensors and reports.
func (s *site) live() {
	s.Helper()
	profile, err := json.Marshal(sensor.Profile{Field: "instant", UUID: "GPU-1", Model: sensor.Boxcar, Period: 0.1, Window: 0.025, Gain: 1})
	if err != nil {
		s.Fatal(err)
	}
	for kind, content := range map[string]json.RawMessage{sensor.Kind: profile, "validation": json.RawMessage(`{"name":"task 1","verdict":"high"}`)} {
		if _, err := s.db.PutAnalysis(s.Context(), store.Analysis{Kind: kind, Name: "GPU-1 instant", Made: testdb.Launched, Maker: "test", Content: content, Tasks: []store.TaskID{1}}); err != nil {
			s.Fatal(err)
		}
	}
	said := store.MethodResult{Method: "sma", From: testdb.Launched, To: testdb.Launched, Mean: 100}
	if err := s.db.PutMethods(s.Context(), 1, []store.MethodResult{said}); err != nil {
		s.Fatal(err)
	}
	for path, list := range map[string]string{
		"/v1/benches": "benches", "/v1/sensors": "sensors", "/v1/sensors?all_versions=true&gpu_uuid=GPU-1": "sensors",
		"/v1/sensors:errors": "errors", "/v1/validations?page_size=5": "validations", "/v1/tasks/1/validation": "methods",
	} {
		if got, ok := s.ask("GET", path, "", 200)[list].([]any); !ok || len(got) == 0 {
			s.Errorf("%s: no %s", path, list)
		}
	}
	for _, bench := range []string{"lab:7551a", "a"} { // an address, with its colon, and a name
		if got := s.ask("GET", "/v1/benches/"+bench, "", 200)["state"].(map[string]any); got["holder"] != "ada@lab" || got["name"] != "a" {
			s.Errorf("%s: %v", bench, got)
		}
	}
	for path, says := range map[string]string{
		"/v1/benches:watch?idle=true&every=0.001s": "BENCH_REACH_", "/v1/benches:watch?bench=lab:7551a&every=0.001s": `"history"`,
	} {
		s.firstLine(path, says)
	}
}

// A browser that stands still holds up neither the bench nor another browser, and little
// is kept for it: when it goes on, it is told of what it missed in one average.
func TestSlowBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("writes megabytes of JSON, which takes the race detector half a minute")
	}
	s := newSite(t, Options{Loopback: true})
	watch := func(buffer int) *bufio.Reader {
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				err = c.(*net.TCPConn).SetReadBuffer(buffer)
			}
			return c, err
		}}}
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/benches:watch?bench=lab:7551wide&every=0.001s", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = res.Body.Close()
			client.CloseIdleConnections()
		})
		return bufio.NewReader(res.Body)
	}
	slow, quick := watch(64<<10), watch(1<<20)
	next := func(r *bufio.Reader) (bytes, merged int) {
		t.Helper()
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if m := mergedIn.FindStringSubmatch(line); m != nil {
			merged, _ = strconv.Atoi(m[1])
		}
		return len(line), merged
	}
	var missed int
	for missed < 1000 {
		_, n := next(quick)
		missed += n
	}
	for kept := 0; ; {
		bytes, merged := next(slow)
		if merged > 200 { // so many in one
			t.Logf("%d kB were kept for a browser that stood still over %d averages", kept>>10, missed)
			return
		}
		if kept += bytes; kept > 2<<20 {
			t.Fatal("more than 2 MiB were kept for a browser that did not read")
		}
	}
}

var mergedIn = regexp.MustCompile(`"merged":(\d+)`)
