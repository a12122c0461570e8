package benchservice

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"wattmark/api/wattmarkv1"
	"wattmark/hostagent/benchwatch"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/store"
)

const (
	present = wattmarkv1.BenchReach_BENCH_REACH_PRESENT
	away    = wattmarkv1.BenchReach_BENCH_REACH_AWAY
)

// A bench of an emulated board is followed from free over held to free again: its
// watts, who has it, who waits, and for which task.
func TestFollowsABench(t *testing.T) {
	t.Parallel()
	m := newSoft(t)
	host := m.client()
	cfg := benchwatch.Config{Poll: 50 * time.Millisecond, TaskOf: func(context.Context, string) (store.TaskID, error) { return 42, nil }}
	c := serve(t, cfg, m.client())
	w := watch(t, c, &wattmarkv1.WatchBenchesRequest{Idle: true})
	w.until("a free bench", func() bool { return w.state.Reach == present && w.moment.Scans > 0 })
	if w.state.Bench != m.address || w.state.Name != "soft" || w.state.Holder != "" || len(w.state.Rails) < 3 || w.state.SampleRateHz != 20e3 || w.state.CalibrationId == "" {
		t.Errorf("%v", w.state)
	}
	var sum float64
	for _, r := range w.moment.Rails {
		sum += r.PowerW
	}
	if w.moment.CaptureId != "" || w.moment.TotalW < 5 || math.Abs(sum-w.moment.TotalW) > 1e-9 || w.moment.PeakW < w.moment.TotalW {
		t.Errorf("%v", w.moment)
	}
	s, err := host.Start(t.Context(), monitorclient.StartRequest{Holder: "ada@lab", TaskName: "gemm"})
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan monitorclient.Started, 1)
	go func() {
		n, err := host.Start(t.Context(), monitorclient.StartRequest{Holder: "bob@lab", TaskName: "axpy", Wait: patience})
		if err != nil {
			t.Error(err)
		}
		next <- n
	}()
	w.until("held", func() bool {
		return w.state.CaptureId == s.CaptureID && len(w.state.Waiting) == 1 && w.moment.CaptureId == s.CaptureID
	})
	if x := w.state; x.Holder != "ada@lab" || x.TaskName != "gemm" || x.TaskId != 42 || x.HeldSince == nil || x.Waiting[0].Holder != "bob@lab" || len(x.Captures) != 1 {
		t.Errorf("%v", x)
	}
	end := func(id string) {
		t.Helper()
		if _, err := host.Stop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := host.Release(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	end(s.CaptureID)
	n := <-next
	w.until("the next in line", func() bool { return w.state.Holder == "bob@lab" && len(w.state.Waiting) == 0 })
	end(n.CaptureID)
	// Between the stop and the release the capture is seen complete, by those who look then.
	w.until("free again", func() bool {
		x := w.state.Last.GetCapture()
		return w.state.Holder == "" && x.GetCaptureId() == n.CaptureID && x.GetState() == wattmarkv1.CaptureState_CAPTURE_STATE_RELEASED
	})
	if x := w.state.Last; x.TaskId != 42 {
		t.Errorf("%v", x)
	}
	w.until("sampled on", func() bool { return w.moment.CaptureId == "" })
}

// A monitor that goes away is told of with the reason, beside those that are there; it
// comes back by itself.
func TestMonitorGoesAndComesBack(t *testing.T) {
	t.Parallel()
	m := newSoft(t)
	c := serve(t, benchwatch.Config{Poll: 50 * time.Millisecond}, m.client())
	w := watch(t, c, &wattmarkv1.WatchBenchesRequest{Bench: m.address, Idle: true})
	w.until("there", func() bool { return w.state.Reach == present && w.moment.Scans > 0 })
	m.stop()
	w.until("away", func() bool { return w.state.Reach == away })
	if x := w.state; !strings.Contains(x.Away, "is wattmark monitor running there") || x.Name != "soft" || x.Since == nil {
		t.Errorf("%v", x)
	}
	list, err := c.ListBenches(t.Context(), &wattmarkv1.ListBenchesRequest{})
	if err != nil || len(list.Benches) != 1 || list.Benches[0].Reach != away {
		t.Errorf("%v, %v", list, err)
	}
	m.start()
	w.moment = &wattmarkv1.LiveMoment{}
	w.until("back", func() bool { return w.state.Reach == present && w.state.Away == "" && w.moment.Scans > 0 })
	one, err := c.ReadBench(t.Context(), &wattmarkv1.ReadBenchRequest{Bench: "soft"})
	if err != nil || one.State.Bench != m.address {
		t.Errorf("%v, %v", one, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	nobody, err := monitorclient.Dial("127.0.0.1:1", monitorclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	c := serve(t, benchwatch.Config{}, nobody)
	if _, err := c.ReadBench(t.Context(), &wattmarkv1.ReadBenchRequest{Bench: "rack"}); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
	for q, want := range map[*wattmarkv1.WatchBenchesRequest]codes.Code{
		{Bench: "rack"}:                                 codes.NotFound,
		{Every: durationpb.New(-time.Second)}:           codes.InvalidArgument,
		{Every: durationpb.New(2 * time.Hour)}:          codes.InvalidArgument,
		{Every: &durationpb.Duration{Nanos: 2e9}}:       codes.InvalidArgument,
		{Every: &durationpb.Duration{Seconds: 1 << 62}}: codes.InvalidArgument,
	} {
		s, err := c.WatchBenches(t.Context(), q)
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("%v: %v, want %v", q, err, want)
		}
	}
}

// Moments of another bench file are no part of the history of this one.
func TestHistoryIsOfTheSameRails(t *testing.T) {
	at := time.Unix(100, 5e8)
	moment := func(rail string, w measure.Watt) benchwatch.Moment {
		return benchwatch.Moment{At: at, Moment: monitorclient.Moment{Total: w, Rails: []monitorclient.RailValue{{Rail: rail, Power: w}}}}
	}
	h := historyMessage([]benchwatch.Moment{moment("old", 1), moment("aux", 2), moment("aux", 3)})
	if len(h.AtS) != 2 || h.AtS[0] != 100.5 || h.TotalW[1] != 3 || len(h.Rails) != 1 || h.Rails[0].Rail != "aux" || h.Rails[0].PowerW[0] != 2 {
		t.Errorf("%v", h)
	}
}
