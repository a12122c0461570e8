package wire

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/clock"
	"github.com/wattmark/wattmark/measure/marker"
)

// testSetup has one rail of every wiring.
func testSetup() measure.Setup {
	return measure.Setup{
		Timebase: measure.Timebase{TickHz: 2.9345e6, UTickHz: 1e-4, TicksPerScan: 512.25, Stamped: true},
		Response: measure.Response{Tau: 0.058, Window: 0.025, Update: 0.1},
		Missing:  []string{"pcie_3v3"},
		Channels: []measure.Channel{
			{Name: "s", Unit: measure.UnitVolt, Gain: 0.5e-3, Offset: -0.25, UGain: 0.01, UOffset: 1e-3, Noise: 2e-3, MinCount: -2048, MaxCount: 2047, Skew: 3e-6},
			{Name: "g", Unit: measure.UnitVolt, Gain: 0.5e-3},
			{Name: "clamp", Unit: measure.UnitAmpere, Gain: -48.8e-3},
			{Name: "v", Unit: measure.UnitVolt, Gain: 7.568e-3},
			{Name: "i", Unit: measure.UnitAmpere, Gain: 1},
			{Name: "gpu", Unit: measure.UnitWatt, Gain: 1e-3},
		},
		Rails: []measure.Rail{
			{Name: "pcie_12v", Role: measure.RolePCIe12V, Wiring: measure.WiringShunt, X: 0, Y: 1, Shunt: 5e-3, UShunt: 0.01},
			{Name: "aux", Role: measure.RolePSU, Wiring: measure.WiringClamp, X: 2, Y: 3},
			{Name: "slot", Role: measure.RolePCIe3V3, Wiring: measure.WiringAssumed, X: 4, Y: -1, Assumed: 3.3, UAssumed: 0.1},
			{Name: "nvml", Role: measure.RoleWholeGPU, Wiring: measure.WiringPower, X: 5, Y: -1},
		},
	}
}

func testMarker() marker.Found {
	return marker.Found{
		Kind: marker.Stop, T: 1.5, U: 1e-6, Begin: 1.4, End: 1.9, Correlation: 0.97, PSLR: 22.3, Step: 110,
		Tau: 1e-3, Tag: 0xA5, TagOK: true, Fallback: true,
		Edges: []marker.Edge{{Chip: -2, T: 1.48, U: 2e-6}, {Chip: 5, T: 1.55, U: 1e-6}},
	}
}

func TestSetupRoundTrip(t *testing.T) {
	want := testSetup()
	if err := want.Validate(); err != nil {
		t.Fatal(err)
	}
	got, err := ParseSetup(overTheWire(t, Setup(want)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// overTheWire marshals and unmarshals, so that a field that proto cannot carry shows.
func overTheWire[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out.(M)
}

func TestParseSetupRefuses(t *testing.T) {
	type setup = pb.Setup
	for _, c := range []struct {
		name, says string
		spoil      func(*setup)
	}{
		{"no timebase", "without a timebase", func(s *setup) { s.Timebase = nil }},
		{"tick rate 0", "tick rate", func(s *setup) { s.Timebase.TickHz = 0 }},
		{"NaN ticks a scan", "ticks a scan", func(s *setup) { s.Timebase.TicksPerScan = math.NaN() }},
		{"unit unspecified", "unit", func(s *setup) { s.Channels[0].Unit = 0 }},
		{"unit unknown", "unit", func(s *setup) { s.Channels[0].Unit = 17 }},
		{"unit negative", "unit", func(s *setup) { s.Channels[0].Unit = -1 }},
		{"NaN gain", "gain is NaN", func(s *setup) { s.Channels[0].Gain = math.NaN() }},
		{"infinite skew", "skew", func(s *setup) { s.Channels[0].SkewS = math.Inf(1) }},
		{"range upside down", "min_count", func(s *setup) { s.Channels[0].MinCount = 3000 }},
		{"empty channel", "empty channel", func(s *setup) { s.Channels[1] = nil }},
		{"role unspecified", "role", func(s *setup) { s.Rails[0].Role = 0 }},
		{"role 256+1 must not wrap", "role", func(s *setup) { s.Rails[0].Role = 257 }},
		{"wiring unspecified", "wiring", func(s *setup) { s.Rails[0].Wiring = 0 }},
		{"wiring 256+1 must not wrap", "wiring", func(s *setup) { s.Rails[0].Wiring = 257 }},
		{"shunt of 0 Ω", "shunt", func(s *setup) { s.Rails[0].ShuntOhm = 0 }},
		{"channel that is not there", "does not exist", func(s *setup) { s.Rails[0].X = 99 }},
		{"two rails on one channel", "already used", func(s *setup) { s.Rails[0].X = 3 }},
		{"two rails of one name", "named twice", func(s *setup) { s.Rails[1].Name = "pcie_12v" }},
		{"empty rail", "empty rail", func(s *setup) { s.Rails[1] = nil }},
		{"no rails", "no rails", func(s *setup) { s.Rails = nil }},
		{"negative lag", "tau_s", func(s *setup) { s.Response.TauS = -1 }},
		{"too many channels", "at most 256", func(s *setup) { s.Channels = make([]*pb.Channel, MaxChannels+1) }},
		{"endless name", "at most 4096", func(s *setup) { s.Channels[0].Name = strings.Repeat("x", MaxText+1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Setup(testSetup())
			c.spoil(p)
			refused(t, c.says, func() error { _, err := ParseSetup(p); return err })
		})
	}
	refused(t, "no setup", func() error { _, err := ParseSetup(nil); return err })
}

func refused(t *testing.T, says string, parse func() error) {
	t.Helper()
	err := parse()
	if !errors.Is(err, ErrMessage) {
		t.Fatalf("got %v, want an error that wraps ErrMessage", err)
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("error %q does not say %q", err, says)
	}
}

func TestMarkerRoundTripAndRefusals(t *testing.T) {
	want := testMarker()
	got, err := ParseMarker(overTheWire(t, Marker(want)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	type message = pb.Marker
	for _, c := range []struct {
		name, says string
		spoil      func(*message)
	}{
		{"kind unspecified", "kind", func(m *message) { m.Kind = 0 }},
		{"kind unknown", "kind", func(m *message) { m.Kind = 3 }},
		{"NaN time", "t_s", func(m *message) { m.TS = math.NaN() }},
		{"negative uncertainty", "u_s", func(m *message) { m.US = -1 }},
		{"NaN pslr", "pslr_db", func(m *message) { m.PslrDb = math.NaN() }},
		{"ends before it begins", "before it begins", func(m *message) { m.EndS = 0 }},
		{"NaN edge", "edge", func(m *message) { m.Edges[0].TS = math.NaN() }},
		{"too many edges", "edges", func(m *message) { m.Edges = make([]*pb.Edge, MaxEdges+1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Marker(testMarker())
			c.spoil(p)
			refused(t, c.says, func() error { _, err := ParseEach([]*message{p}, ParseMarker); return err })
		})
	}
}

func TestMarkerSpec(t *testing.T) {
	want := testMarkerSpec()
	got, err := ParseMarkerSpec(overTheWire(t, MarkerSpec(want)))
	if err != nil || got != want {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	if got, err := ParseMarkerSpec(nil); err != nil || got != (marker.Spec{}) {
		t.Errorf("unset: got %+v, %v; want no marker", got, err)
	}
	for name, p := range map[string]*pb.MarkerSpec{
		"unknown code":  {Code: 9, ChipS: 1},
		"no chip":       {Code: 1},
		"NaN chip":      {Code: 1, ChipS: math.NaN()},
		"endless chip":  {Code: 1, ChipS: math.Inf(1)},
		"guard":         {Code: 1, ChipS: 1, GuardChips: 1 << 30},
		"tag bits":      {Code: 1, ChipS: 1, TagBits: 33},
		"tag too large": {Code: 1, ChipS: 1, TagBits: 4, Tag: 16},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, "marker", func() error { _, err := ParseMarkerSpec(p); return err })
		})
	}
}

func TestEventsWindowsAndResults(t *testing.T) {
	event := measure.Event{Kind: measure.EventGap, FirstScan: 7, Scans: 3, Exact: true, Channel: -1, Detail: "cable"}
	if got, err := ParseEvent(overTheWire(t, Event(event))); err != nil || got != event {
		t.Errorf("event: got %+v, %v", got, err)
	}
	for kind := measure.EventGap; kind <= measure.EventThinned; kind++ { // what a host adds to a task travels too
		event.Kind = kind
		if got, err := ParseEvent(overTheWire(t, Event(event))); err != nil || got != event {
			t.Errorf("%v: %v", kind, err)
		}
	}
	window := measure.Window{From: 1.25, To: 2.5}
	if got, err := ParseWindow(overTheWire(t, Window(&window))); err != nil || got == nil || *got != window {
		t.Errorf("window: got %v %v", got, err)
	}
	if got, err := ParseWindow(Window(nil)); got != nil || err != nil {
		t.Errorf("no window: got %v %v", got, err)
	}
	rail := measure.RailResult{Name: "aux", Energy: measure.Estimate{Energy: 100, U: 2}, Mean: 50, Peak: 80, Budget: []measure.Contribution{{Source: "gain aux.current", U: 1, Systematic: true}}}
	gotRail, err := ParseRailResult(overTheWire(t, RailResult(rail)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rail, gotRail); d != "" {
		t.Error(d)
	}
	id := measure.Identity{Kind: "pmd", Model: "PMD-USB", Serial: "1", Firmware: "5", Address: "/dev/ttyACM0"}
	if got, err := ParseInstrument(overTheWire(t, Instrument(id))); err != nil || got != id {
		t.Errorf("instrument: got %+v, %v", got, err)
	}

	refused(t, "empty event", func() error { _, err := ParseEvent(nil); return err })
	refused(t, "kind", func() error { _, err := ParseEvent(&pb.Event{}); return err })
	refused(t, "kind", func() error { _, err := ParseEvent(&pb.Event{Kind: 257}); return err })
	refused(t, "channel", func() error { _, err := ParseEvent(&pb.Event{Kind: 1, Channel: -2}); return err })
	refused(t, "largest", func() error {
		_, err := ParseEvent(&pb.Event{Kind: 1, FirstScan: math.MaxUint64, Scans: 1})
		return err
	})
	refused(t, "before it begins", func() error {
		_, err := ParseWindow(&pb.Window{FromS: 2, ToS: 1})
		return err
	})
	refused(t, "energy_u_j", func() error { _, err := ParseEnergy(&pb.Energy{EnergyUJ: -1}); return err })
	refused(t, "peak_w", func() error {
		_, err := ParseRailResult(&pb.RailResult{Energy: &pb.Energy{}, PeakW: math.NaN()})
		return err
	})
	refused(t, "at most 4096", func() error {
		_, err := ParseInstrument(&pb.Instrument{Model: strings.Repeat("x", MaxText+1)})
		return err
	})
}

func TestClock(t *testing.T) {
	want := &clock.Fit{
		Origin: 1.7e9, A: 10, B: 1.0001, VarA: 4e-12, VarB: 9e-14, CovAB: -1e-14, RMS: 3e-6, Used: 40, Rejected: 2,
	}
	p := overTheWire(t, Clock(*want, 11, 20))
	got, err := ParseClock(p)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// By hand, at the later end: δ = 10/1.0001 s.
	d := 10 / 1.0001
	if u := math.Sqrt(4e-12 - 2*d*1e-14 + d*d*9e-14); math.Abs(p.US-u) > 1e-15 {
		t.Errorf("u_s = %v, want %v", p.US, u)
	}
	if got, err := ParseClock(nil); got != nil || err != nil {
		t.Errorf("unset: got %v, %v", got, err)
	}
	refused(t, "rate", func() error { _, err := ParseClock(&pb.Clock{}); return err })
	refused(t, "negative", func() error { _, err := ParseClock(&pb.Clock{B: 1, VarB: -1}); return err })
	refused(t, "cov_ab_s", func() error { _, err := ParseClock(&pb.Clock{B: 1, CovAbS: math.Inf(1)}); return err })
}

func testMarkerSpec() marker.Spec {
	return marker.Spec{Code: marker.M31, Chip: 0.02, Guard: 4, TagBits: 8, Tag: 0xA5}
}

func TestWithPort(t *testing.T) {
	for target, want := range map[string]string{
		"lab": "lab:7551", "lab:1": "lab:1", "10.0.0.1": "10.0.0.1:7551", "::1": "[::1]:7551", "[fe80::1]": "[fe80::1]:7551",
		"[::1]:2": "[::1]:2", "unix:/run/x": "unix:/run/x", "dns:///lab": "dns:///lab", "": "", "a:b:c": "a:b:c",
		"unix-abstract:x": "unix-abstract:x",
	} {
		if got := WithPort(target, MonitorPort); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

// Lost returns the cause of a connection that was not made, and the remedy.
func TestLost(t *testing.T) {
	const dial = `connection error: desc = "transport: Error while dialing: `
	const preface = `connection error: desc = "error reading server preface: `
	for _, c := range []struct{ text, plain, remedy string }{
		{"name resolver error: produced zero addresses", "unknown host", "look at its name"},
		{dial + `dial tcp: lookup lab: no such host"`, "unknown host", "look at its name"},
		{dial + `dial tcp 127.0.0.1:1: connect: connection refused"`, "dial tcp 127.0.0.1:1: connect: connection refused", "is wattmark host running there?"},
		{preface + `http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`, "no gRPC", "name that of wattmark host's --listen"},
		{preface + `EOF"`, preface + `EOF"`, "does it speak TLS?"},
		{"authentication handshake failed: tls: first record does not look like a TLS handshake", "", "leave --tls-ca and --tls-cert out (wattmark config says where"},
		{"authentication handshake failed: x509: unknown authority", "", "name the CA"},
	} {
		plain, remedy := Lost(c.text, "wattmark host")
		if c.plain != "" && plain != c.plain || !strings.Contains(remedy, c.remedy) {
			t.Errorf("%s: %q, %q", c.text, plain, remedy)
		}
	}
}
