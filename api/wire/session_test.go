package wire

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
)

// travels converts a value there and back, and compares.
func travels[T, P any](t *testing.T, name string, want T, to func(T) P, parse func(P) (T, error)) {
	t.Helper()
	got, err := parse(to(want))
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s changed on the way (-sent +received):\n%s", name, diff)
	}
}

func TestSessionTravels(t *testing.T) {
	at := time.Date(2026, 11, 21, 19, 43, 0, 5e6, time.UTC)
	id := measure.Identity{Kind: "pmd", Model: "PMD", Serial: "7", Firmware: "1.2", Address: "/dev/ttyUSB0"}
	setup := measure.Setup{
		Timebase: measure.Timebase{TickHz: 1e6, TicksPerScan: 50},
		Channels: []measure.Channel{{Name: "p", Unit: measure.UnitWatt, Gain: 0.01}},
		Rails:    []measure.Rail{{Name: "gpu", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 0, Y: -1}},
	}
	const gpu = "GPU-8f6ab2d1-0c1e-4d53-9b7a-2f3c4d5e6f70"
	bench := session.Bench{
		Name: "desk", GPU: gpu, Instrument: id, Setup: setup, Nominal: setup, CalibrationID: "0123456789abcdef",
		Notes: []string{"record x expires"}, Trouble: "no such port", Holder: "ada@lab", HeldSince: at, CaptureID: "c1",
		Waiting: []session.Waiting{{Holder: "bob@lab", Since: at}}, Draining: true, SetAside: []string{"header.json: torn"},
		Version: "0.1.0", Protocol: Speaks,
	}
	travels(t, "bench", bench, func(b session.Bench) *wattmarkv1.GetBenchResponse { return Bench(&b) }, ParseBench)
	travels(t, "bench that was never opened", session.Bench{Name: "desk", Protocol: session.Protocol{Major: 1}},
		func(b session.Bench) *wattmarkv1.GetBenchResponse { return Bench(&b) }, ParseBench)
	summary := session.Summary{
		State: session.Incomplete, Reason: "unplugged", Scans: 100, Lost: 3, Gaps: 1, OverRange: 2, Chunks: 9,
		FirstChunk: 2, EndChunk: 8, Markers: []marker.Found{{Kind: marker.Start, T: 1, Begin: 1, End: 2, TagOK: true}},
		Window: &measure.Window{From: 2, To: 3}, NoWindowReason: "", End: 4,
	}
	travels(t, "summary", summary, Summary, ParseSummary)
	travels(t, "trailer", session.Trailer{Summary: summary, Chunks: 6, Scans: 60, CRC: 7}, Trailer, ParseTrailer)
	travels(t, "opening", session.Opening{
		Header: session.Header{
			CaptureID: "c1", Bench: "desk", Holder: "ada@lab", TaskName: "gemm", Instrument: id, Setup: setup,
			CalibrationID: "0123456789abcdef", GPU: gpu,
		}, Started: at, FirstChunk: 2,
	}, Opening, ParseOpening)
	travels(t, "capture", session.Capture{
		ID: "c1", Holder: "ada@lab", TaskName: "gemm", Started: at, State: session.Running, SpoolBytes: 42,
	}, Capture, ParseCapture)
	travels(t, "started", session.Started{
		CaptureID: "c1", SampleRate: 20e3, Instrument: id, CalibrationID: "x", Started: at, LeaseUntil: at.Add(time.Minute),
	}, Started, ParseStarted)
	travels(t, "request", session.Request{
		Holder: "ada@lab", TaskName: "gemm", Marker: marker.FastProfile(1e4, 1), Lease: time.Minute, Wait: time.Hour,
	}, func(r session.Request) *wattmarkv1.StartCaptureRequest { return StartRequest(r, "0.1.0") }, ParseStartRequest)
	travels(t, "moment", session.Moment{
		CaptureID: "c1", T: 1.5, Rails: []session.RailValue{{Rail: "gpu", Power: 10, Voltage: 12, Current: 0.8}}, Total: 10,
		Dropped: 1, Rate: 20e3, Scans: 2000, Lost: 3, Gaps: 1, OverRange: 2,
		Min: 8, Max: 12.5, Wave: []measure.Watt{8.5, 11.5}, Step: 0.05,
	}, Moment, ParseMoment)
}

func TestSessionRefusals(t *testing.T) {
	if b, err := ParseBench(&wattmarkv1.GetBenchResponse{GpuUuid: "8f6a"}); err == nil {
		t.Errorf("a GPU without a UUID was taken: %+v", b)
	}
	for name, p := range map[string]*wattmarkv1.StartCaptureRequest{
		"lease": {Lease: &durationpb.Duration{Nanos: 2e9}}, "wait": {Wait: &durationpb.Duration{Seconds: 1 << 62}},
	} {
		refused(t, name, func() error { _, err := ParseStartRequest(p); return err })
	}
	for _, p := range []*wattmarkv1.WatchRailsResponse{
		{Rails: []*wattmarkv1.RailValue{{Rail: "gpu", PowerW: math.NaN()}}},
		{Rails: []*wattmarkv1.RailValue{{Rail: "gpu", CurrentA: math.Inf(1)}}},
		{Rails: make([]*wattmarkv1.RailValue, maxLiveRails+1)},
		{WaveW: make([]float32, maxWave+1)},
		{WaveW: []float32{float32(math.NaN())}},
		{MaxW: math.Inf(1)},
	} {
		if m, err := ParseMoment(p); err == nil {
			t.Errorf("%d rails were taken: %+v", len(p.Rails), m.Rails)
		}
	}
}
