package exchange_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/perfetto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

func timeline(t testing.TB, f *madeFull, c exchange.Choice) *exchange.Timeline {
	t.Helper()
	_, task := newMadeFull(f.Scans)
	tl, err := exchange.NewTimeline(t.Context(), f, task, "test", c, strings.ToUpper)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func written(t testing.TB, tl ...*exchange.Timeline) []byte {
	t.Helper()
	var out bytes.Buffer
	w := perfetto.New(&out)
	for _, x := range tl {
		if err := w.Add(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// view is a trace as its reader would put it together.
type view struct {
	tracks   map[int64]string
	units    map[string]string
	names    map[int64]string
	open     map[int64][]string
	slices   map[string][]string
	instants map[string][]string
	counters map[string][][2]float64 // ns since 1970 less the start's, value
}

func newView(t *testing.T, packets []msg) *view {
	t.Helper()
	v := &view{
		map[int64]string{},
		map[string]string{},
		map[int64]string{},
		map[int64][]string{},
		map[string][]string{},
		map[string][]string{},
		map[string][][2]float64{},
	}
	for i, p := range packets {
		if u := p.unknown(); len(u) > 0 {
			t.Fatalf("packet %d has fields that the schema does not know, in %v", i, u)
		}
		if want := int64(2); p.uint("sequence_flags") != want && i > 0 || p.uint("trusted_packet_sequence_id") != 1 {
			t.Fatalf("packet %d: %v", i, p.Message)
		}
		v.packet(t, p)
	}
	for track, open := range v.open {
		if len(open) > 0 {
			t.Errorf("track %s: %v never ended", v.tracks[track], open)
		}
	}
	return v
}

func (v *view) packet(t *testing.T, p msg) {
	t.Helper()
	if p.has("interned_data") {
		for _, n := range p.sub("interned_data").all("event_names") {
			v.names[n.uint("iid")] = n.text("name")
		}
	}
	if d := p.sub("track_descriptor"); p.has("track_descriptor") {
		id, parent := d.uint("uuid"), d.uint("parent_uuid")
		if _, twice := v.tracks[id]; twice {
			t.Fatalf("track %d described twice", id)
		}
		if _, known := v.tracks[parent]; !known && parent != 0 {
			t.Fatalf("track %s below one that is not there", d.text("name"))
		}
		v.tracks[id] = d.text("name")
		if d.has("counter") {
			v.units[d.text("name")] = d.sub("counter").text("unit_name")
		}
	}
	if !p.has("track_event") {
		return
	}
	if p.uint("timestamp_clock_id") != 1 {
		t.Fatalf("an event on clock %d, not CLOCK_REALTIME", p.uint("timestamp_clock_id"))
	}
	v.event(t, p.sub("track_event"), p.uint("timestamp"))
}

func (v *view) event(t *testing.T, e msg, at int64) {
	t.Helper()
	id := e.uint("track_uuid")
	track, known := v.tracks[id]
	if !known {
		t.Fatalf("an event on track %d, which is not described", id)
	}
	name := v.names[e.uint("name_iid")]
	switch e.uint("type") {
	case 1:
		v.open[id] = append(v.open[id], name)
	case 2:
		n := len(v.open[id])
		v.slices[track] = append(v.slices[track], v.open[id][n-1])
		v.open[id] = v.open[id][:n-1]
	case 3:
		v.instants[track] = append(v.instants[track], name)
	case 4:
		v.counters[track] = append(v.counters[track], [2]float64{float64(at - madeStart.UnixNano()), e.float("double_counter_value")})
	default:
		t.Fatalf("an event of type %d", e.uint("type"))
	}
}

func TestPerfettoTrace(t *testing.T) {
	f, _ := newMadeFull(10_000)
	packets := decode(t, written(t, timeline(t, f, exchange.Choice{}), timeline(t, f, exchange.Choice{})))
	if packets[0].uint("sequence_flags") != 1 {
		t.Error("the first packet does not clear what was interned")
	}
	v := newView(t, packets)
	if got := v.slices["GPU 0, stream 7, process 99"]; len(got) != 2*10 || got[0] != "FIRST" || got[1] != "SECOND" {
		t.Errorf("kernels of the stream: %v", got)
	}
	if got := v.slices["GPU 0, stream 7, process 99 (2 at once)"]; len(got) != 2 {
		t.Errorf("the kernel that overlaps: %v", got)
	}
	if got := v.slices["work"]; len(got) != 2 || got[0] != "GEMM" || len(v.slices["window"]) != 2 {
		t.Errorf("work %v, window %v", got, v.slices["window"])
	}
	if got := v.instants["markers"]; len(got) != 4 || got[0] != "start marker" || got[1] != "stop marker" {
		t.Errorf("markers %v", got)
	}
	if v.units["power_w"] != "W" || v.units["nvml.instant"] != "W" || len(v.counters["nvml.instant"]) != 6 {
		t.Errorf("units %v, readings %v", v.units, v.counters["nvml.instant"])
	}
	checkPower(t, f, v)
	checkClocks(t, packets)
}

// checkPower holds the counters against the table that they come from.
func checkPower(t *testing.T, f *madeFull, v *view) {
	t.Helper()
	_, task := newMadeFull(f.Scans)
	tab, err := exchange.NewTable(t.Context(), f, task, "test", exchange.Choice{})
	if err != nil {
		t.Fatal(err)
	}
	row := 0
	for b, err := range tab.Batches {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows {
			got := v.counters["power_w"][row]
			// t_meter = a + b·(t_host − origin): 20 ppm fast, 123456789 ns behind.
			want := ((b.Columns[1].F64[i]+0.123456789)/(1+20e-6) - 0.123456789) * 1e9
			if got[1] != b.Columns[2].F64[i] || math.Abs(got[0]-want) > 1 {
				t.Fatalf("scan %d: %v, want %v W at %.0f ns", row, got, b.Columns[2].F64[i], want)
			}
			row++
		}
	}
	if n := len(v.counters["power_w"]); n != 2*row || len(v.counters["pcie_3v3_power_w"]) != n {
		t.Errorf("%d values for twice %d scans", n, row)
	}
}

// checkClocks looks for what ties the times to CLOCK_REALTIME.
func checkClocks(t *testing.T, packets []msg) {
	t.Helper()
	n := 0
	for _, p := range packets {
		if !p.has("clock_snapshot") {
			continue
		}
		n++
		s := p.sub("clock_snapshot")
		clocks := s.all("clocks")
		if s.uint("primary_trace_clock") != 1 || len(clocks) != 2 || clocks[0].uint("clock_id") != 1 || clocks[1].uint("clock_id") < 128 {
			t.Fatalf("snapshot %v", s.Message)
		}
		host := clocks[0].uint("timestamp") - madeStart.UnixNano()
		if device := clocks[1].uint("timestamp"); math.Abs(float64(host-device)) > 10_000 {
			t.Errorf("device time %d ns at %d ns of the host's", device, host)
		}
	}
	if n != 4 {
		t.Errorf("%d snapshots of two tasks, want two each", n)
	}
}

// Only what lies in the span, and only the rail that was asked for.
func TestSpanAndRail(t *testing.T) {
	f, _ := newMadeFull(10_000)
	tl := timeline(t, f, exchange.Choice{Rails: []string{"pcie_12v"}, Window: &measure.Window{From: 0.02, To: 0.025}})
	v := newView(t, decode(t, written(t, tl)))
	if len(v.counters["power_w"]) != 0 || len(v.counters["pcie_12v_power_w"]) != 501 {
		t.Errorf("%d and %d values, want none and 501", len(v.counters["power_w"]), len(v.counters["pcie_12v_power_w"]))
	}
	if len(v.instants["markers"]) != 0 || len(v.slices["GPU 0, stream 7, process 99"]) != 0 {
		t.Errorf("markers %v and kernels %v from outside the span", v.instants["markers"], v.slices)
	}
}

func TestPerfettoFullDisk(t *testing.T) {
	f, _ := newMadeFull(10_000)
	full := errors.New("disk full")
	w := perfetto.New(failing{full})
	if err := errors.Join(w.Add(timeline(t, f, exchange.Choice{})), w.Close()); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkPower(b *testing.B) {
	f, _ := newMadeFull(1 << 18)
	if err := f.Keep(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(1 << 18 * 6 * 2)
	for b.Loop() {
		w := perfetto.New(discard{})
		if err := errors.Join(w.Add(timeline(b, f, exchange.Choice{})), w.Close()); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// perfettosOwn compiles the schema in a checkout of Perfetto, which is no part of
// this repository: WATTMARK_PERFETTO names it.
func perfettosOwn(t *testing.T) *protoregistry.Files {
	t.Helper()
	dir := os.Getenv("WATTMARK_PERFETTO")
	if dir == "" {
		t.Skip("WATTMARK_PERFETTO names no checkout of github.com/google/perfetto")
	}
	out := filepath.Join(t.TempDir(), "trace.ds")
	said, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "grpc_tools.protoc", "-I"+dir, "--include_imports",
		"--descriptor_set_out="+out, "protos/perfetto/trace/trace.proto").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Perfetto's whole schema has every field and value of our table, by number, name and
// type, and reads a trace of ours without a byte left over.
func TestPerfettosOwnSchema(t *testing.T) {
	files := perfettosOwn(t)
	table, err := trace()
	if err != nil {
		t.Fatal(err)
	}
	ours := table.ParentFile().Messages()
	n := 0
	for i := range ours.Len() {
		m := ours.Get(i)
		theirs := findDescriptor(t, files, m.Name()).(protoreflect.MessageDescriptor)
		for k := range m.Fields().Len() {
			f := m.Fields().Get(k)
			g := theirs.Fields().ByNumber(f.Number())
			if g == nil || g.Name() != f.Name() || g.IsList() != f.IsList() || !sameKind(f, g) {
				t.Errorf("%s.%s %d: Perfetto has %v", m.Name(), f.Name(), f.Number(), g)
			}
			n++
		}
	}
	for line := range strings.Lines(strings.TrimSpace(values)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		d, err := files.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if v, ok := d.(protoreflect.EnumValueDescriptor); !ok || fmt.Sprint(v.Number()) != number {
			t.Errorf("%s: %v, want %s", name, d, number)
		}
		n++
	}
	t.Logf("%d fields and values are Perfetto's", n)
	whole := dynamicpb.NewMessage(findDescriptor(t, files, "Trace").(protoreflect.MessageDescriptor))
	f, _ := newMadeFull(4000)
	if err := proto.Unmarshal(written(t, timeline(t, f, exchange.Choice{})), whole); err != nil {
		t.Fatal(err)
	}
	if left := (msg{whole}).unknown(); len(left) > 0 || len((msg{whole}).all("packet")) < 100 {
		t.Errorf("Perfetto's schema does not know fields of ours in %v", left)
	}
}

// findDescriptor returns a message by its own name; Clock is within ClockSnapshot.
func findDescriptor(t *testing.T, files *protoregistry.Files, name protoreflect.Name) protoreflect.Descriptor {
	t.Helper()
	full := "perfetto.protos." + protoreflect.FullName(name)
	if name == "Clock" {
		full = "perfetto.protos.ClockSnapshot.Clock"
	}
	d, err := files.FindDescriptorByName(full)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func sameKind(ours, theirs protoreflect.FieldDescriptor) bool {
	if theirs.Kind() == protoreflect.EnumKind {
		return ours.Kind() == protoreflect.Uint32Kind
	}
	return ours.Kind() == theirs.Kind() && (ours.Message() == nil || ours.Message().Name() == theirs.Message().Name())
}

// Ranges have tracks of their thread, what lies within another a lane below it, with their energies.
func TestRangesAreTracks(t *testing.T) {
	f, _ := newMadeFull(5000)
	tl := timeline(t, f, exchange.Choice{})
	got := map[string]string{}
	for s, err := range tl.Slices {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(tl.Tracks[s.Track], "ranges") {
			got[s.Name] = fmt.Sprintf("%s%v%.2f", tl.Tracks[s.Track], s.Args, float64(s.End-s.Start)/1e6)
		}
	}
	if got["step"] != "ranges of thread 99[{path step} {launches 5} {energy_j 3} {u_j 0.25}]40.00" ||
		got["forward"] != "ranges of thread 99 (2 at once)[{path step/forward} {launches 3} {energy_j 2} {u_j 0.125}]20.00" {
		t.Errorf("%v", got)
	}
}
