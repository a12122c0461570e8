package monitor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"wattmark/api/wattmarkv1"
)

// A free bench is sampled for who asks for it, gives way to a capture, and is
// sampled again afterwards, by one stream all the while.
func TestWatchFreeBench(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	s, err := client.WatchRails(t.Context(), &wattmarkv1.WatchRailsRequest{Every: durationpb.New(10 * time.Millisecond), Idle: true})
	if err != nil {
		t.Fatal(err)
	}
	await := func(capture string) {
		t.Helper()
		for {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.CaptureId != capture || len(m.Rails) == 0 {
				continue
			}
			if m.SampleRateHz != 50e3 || m.Scans == 0 || m.Lost != 0 || m.Rails[0].PowerW < 15 || m.Rails[0].PowerW > 26 {
				t.Errorf("live %v", m)
			}
			return
		}
	}
	await("")
	if b, err := client.GetBench(t.Context(), &wattmarkv1.GetBenchRequest{}); err != nil || b.Holder != "" {
		t.Errorf("a look holds the bench: %v, %v", b, err)
	}
	started, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	await(started.CaptureId)
	sum, err := client.StopCapture(t.Context(), &wattmarkv1.StopCaptureRequest{CaptureId: started.CaptureId})
	if err != nil || sum.Summary.ScansLost != 0 {
		t.Fatalf("%v, %v", sum, err)
	}
	await("")
}

// Who does not ask for the free bench sees captures only.
func TestWatchCapturesOnly(t *testing.T) {
	client, _, _ := serve(t, rampConfig(t.TempDir()))
	every := durationpb.New(10 * time.Millisecond)
	only, err := client.WatchRails(t.Context(), &wattmarkv1.WatchRailsRequest{Every: every})
	if err != nil {
		t.Fatal(err)
	}
	idle, err := client.WatchRails(t.Context(), &wattmarkv1.WatchRailsRequest{Every: every, Idle: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := idle.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	started, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "ada@lab"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := only.Recv(); err != nil || m.CaptureId != started.CaptureId {
		t.Errorf("first seen: %v, %v", m, err)
	}
}

func TestWatchTellsOfTrouble(t *testing.T) {
	cfg := rampConfig(t.TempDir())
	cfg.Bench.Instrument = &ramp{rate: 50e3, fails: errors.New("the cable is out")}
	client, _, _ := serve(t, cfg)
	s, err := client.WatchRails(t.Context(), &wattmarkv1.WatchRailsRequest{Idle: true})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || !strings.Contains(m.Trouble, "the cable is out") || len(m.Rails) != 0 {
		t.Errorf("%v, %v", m, err)
	}
}
