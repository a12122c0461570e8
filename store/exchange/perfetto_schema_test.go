package exchange_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattmark/wattmark/store/exchange"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Perfetto's trace processor opens a trace of two tasks without a complaint, and finds in
// it the tracks, the kernels with their times and arguments, and every value of every
// counter that went in.
func TestPerfettoInTraceProcessor(t *testing.T) {
	f, _ := newMadeFull(10_000)
	raw := written(t, timeline(t, f, exchange.Choice{}), timeline(t, f, exchange.Choice{}))
	const tracks = `WITH named AS (SELECT track.id, track.name, parent.name AS task FROM track LEFT JOIN track AS parent ON track.parent_id = parent.id) `
	answers := askProcessor(
		t,
		raw,
		traceFaults,
		tracks+`SELECT named.name AS track, named.task, slice.name, ts, dur FROM slice JOIN named ON track_id = named.id ORDER BY slice.id`,
		`SELECT counter_track.name, unit, count(*) AS n, sum(value) AS total, min(ts) AS first FROM counter JOIN counter_track ON track_id = counter_track.id GROUP BY 1, 2 ORDER BY 1`,
		`SELECT slice.name, key, display_value FROM slice JOIN args USING (arg_set_id) WHERE slice.name = 'FIRST' AND key LIKE '%grid%' LIMIT 1`,
		`SELECT start_ts, end_ts FROM trace_bounds`,
		`SELECT DISTINCT clock_id FROM clock_snapshot ORDER BY 1`,
	)
	faults, slices, counters, args, bounds, clocks := answers[0], answers[1], answers[2], answers[3], answers[4], answers[5]
	if len(faults) > 0 {
		t.Errorf("found wrong: %v", faults)
	}
	checkSlices(t, f, slices)
	checkCounters(t, f, counters)
	if len(args) != 1 || args[0]["display_value"] != "4,1,1" {
		t.Errorf("a kernel's arguments: %v", args)
	}
	if first := number(t, bounds[0]["start_ts"]); first < madeStart.UnixNano()-1e9 || first > madeStart.UnixNano()+1e9 {
		t.Errorf("the trace begins at %d, the task at %d", first, madeStart.UnixNano())
	}
	if len(clocks) != 3 || number(t, clocks[0]["clock_id"]) != 1 {
		t.Errorf("clocks: %v", clocks)
	}
}

func number(t *testing.T, v any) int64 {
	t.Helper()
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkSlices holds the slices against the timeline that they were made of.
func checkSlices(t *testing.T, f *madeFull, rows []answerRow) {
	t.Helper()
	found := map[string]int{}
	for _, r := range rows {
		found[fmt.Sprint(r["task"], "/", r["track"], "/", r["name"], "/", r["ts"], "/", r["dur"])]++
	}
	tl := timeline(t, f, exchange.Choice{})
	task := fmt.Sprintf("task %d: %s", tl.Meta.Task.ID, tl.Meta.Task.Name)
	n := 0
	want := func(track int, name string, at, dur int64) {
		key := fmt.Sprint(task, "/", tl.Tracks[track], "/", name, "/", at, "/", dur)
		if found[key] != 2 { // one a task
			t.Errorf("%s is there %d times, want twice", key, found[key])
		}
		n++
	}
	for s, err := range tl.Slices {
		if err != nil {
			t.Fatal(err)
		}
		want(s.Track, s.Name, s.Start, s.End-s.Start)
	}
	for _, i := range tl.Instants {
		want(i.Track, i.Name, i.At, 0)
	}
	if len(rows) != 2*(n+1) { // and one that tells of the trace
		t.Errorf("%d slices and instants, want twice %d\n%v", len(rows), n+1, found)
	}
}

// checkCounters holds the counters against the samples.
func checkCounters(t *testing.T, f *madeFull, rows []answerRow) {
	t.Helper()
	got := map[string]answerRow{}
	for _, r := range rows {
		got[fmt.Sprint(r["name"])] = r
	}
	tl := timeline(t, f, exchange.Choice{})
	check := func(name, unit string, n int, total float64, first int64) {
		r := got[name]
		if r == nil || r["unit"] != unit || number(t, r["n"]) != int64(2*n) || number(t, r["first"]) != first {
			t.Errorf("%s is %v, want twice %d values in %s from %d on", name, r, n, unit, first)
			return
		}
		if d := r["total"].(float64) - 2*total; d > 1e-9*total || d < -1e-9*total {
			t.Errorf("%s adds up to %v, want twice %v", name, r["total"], total)
		}
		delete(got, name)
	}
	for _, c := range tl.Readings {
		total := 0.0
		for _, v := range c.Values {
			total += v
		}
		check(c.Name, c.Unit, len(c.At), total, c.At[0])
	}
	n, totals, first := 0, make([]float64, len(tl.Power.Columns)), int64(0)
	for b, err := range tl.Power.Batches {
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = b.Columns[len(b.Columns)-1].I64[0]
		}
		for _, c := range tl.Counters {
			for _, v := range b.Columns[c].F64[:b.Rows] {
				totals[c] += v
			}
		}
		n += b.Rows
	}
	for _, c := range tl.Counters {
		check(tl.Power.Columns[c].Name, tl.Power.Columns[c].Unit, n, totals[c], first)
	}
	if len(got) > 0 {
		t.Errorf("counters that nobody wrote: %v", got)
	}
}

// The part of Perfetto's schema that is needed to read our traces and to compare
// with Chromium's: message: field number name type. It is written down apart from
// the writer's constants, after protos/perfetto/trace/*.proto of
// github.com/google/perfetto as of 2026-08-22 (commit ec5d16b14b74), and
// TestPerfettosOwnSchema holds it to them.
const schema = `
Trace: 1 packet TracePacket*
TracePacket: 6 clock_snapshot ClockSnapshot; 8 timestamp uint64; 10 trusted_packet_sequence_id uint32; 11 track_event TrackEvent; 12 interned_data InternedData; 13 sequence_flags uint32; 58 timestamp_clock_id uint32; 60 track_descriptor TrackDescriptor
ClockSnapshot: 1 clocks Clock*; 2 primary_trace_clock enum
Clock: 1 clock_id uint32; 2 timestamp uint64
TrackDescriptor: 1 uuid uint64; 2 name string; 3 process ProcessDescriptor; 4 thread ThreadDescriptor; 5 parent_uuid uint64; 8 counter CounterDescriptor
ProcessDescriptor: 1 pid int32; 6 process_name string
ThreadDescriptor: 1 pid int32; 2 tid int64; 5 thread_name string
CounterDescriptor: 6 unit_name string
TrackEvent: 4 debug_annotations DebugAnnotation*; 9 type enum; 10 name_iid uint64; 11 track_uuid uint64; 23 name string; 30 counter_value int64; 44 double_counter_value double
DebugAnnotation: 1 name_iid uint64; 6 string_value string; 10 name string
InternedData: 2 event_names EventName*; 3 debug_annotation_names DebugAnnotationName*
EventName: 1 iid uint64; 2 name string
DebugAnnotationName: 1 iid uint64; 2 name string
`

// values are the numbers of enumerations that we write, by their full names there.
const values = `
perfetto.protos.TrackEvent.TYPE_SLICE_BEGIN 1
perfetto.protos.TrackEvent.TYPE_SLICE_END 2
perfetto.protos.TrackEvent.TYPE_INSTANT 3
perfetto.protos.TrackEvent.TYPE_COUNTER 4
perfetto.protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED 1
perfetto.protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE 2
perfetto.protos.BUILTIN_CLOCK_REALTIME 1
`

var kinds = map[string]descriptorpb.FieldDescriptorProto_Type{
	"uint64": descriptorpb.FieldDescriptorProto_TYPE_UINT64, "uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32,
	"int64": descriptorpb.FieldDescriptorProto_TYPE_INT64, "int32": descriptorpb.FieldDescriptorProto_TYPE_INT32,
	"enum":   descriptorpb.FieldDescriptorProto_TYPE_UINT32, // the same on the wire
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "double": descriptorpb.FieldDescriptorProto_TYPE_DOUBLE,
}

var trace = sync.OnceValues(func() (protoreflect.MessageDescriptor, error) {
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("trace.proto"), Package: proto.String("p"), Syntax: proto.String("proto2")}
	for line := range strings.Lines(strings.TrimSpace(schema)) {
		name, fields, _ := strings.Cut(strings.TrimSpace(line), ": ")
		m := &descriptorpb.DescriptorProto{Name: &name}
		for _, f := range strings.Split(fields, "; ") {
			part := strings.Fields(f)
			number := int32(0)
			for _, c := range part[0] {
				number = 10*number + int32(c-'0')
			}
			d := &descriptorpb.FieldDescriptorProto{Number: &number, Name: &part[1], Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
			if strings.HasSuffix(part[2], "*") {
				d.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			}
			if kind, ok := kinds[part[2]]; ok {
				d.Type = kind.Enum()
			} else {
				d.Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
				d.TypeName = proto.String(".p." + strings.TrimSuffix(part[2], "*"))
			}
			m.Field = append(m.Field, d)
		}
		file.MessageType = append(file.MessageType, m)
	}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		return nil, err
	}
	return d.Messages().ByName("Trace"), nil
})

// msg is a decoded message with short ways to its fields.
type msg struct{ protoreflect.Message }

func decode(t testing.TB, raw []byte) (packets []msg) {
	t.Helper()
	d, err := trace()
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(d)
	if err := proto.Unmarshal(raw, m); err != nil {
		t.Fatal(err)
	}
	return msg{m}.all("packet")
}

func (m msg) field(name string) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByName(protoreflect.Name(name))
}

func (m msg) has(name string) bool   { return m.Has(m.field(name)) }
func (m msg) sub(name string) msg    { return msg{m.Get(m.field(name)).Message()} }
func (m msg) uint(name string) int64 { return int64(m.Get(m.field(name)).Uint()) }
func (m msg) text(name string) string {
	return m.Get(m.field(name)).String()
}
func (m msg) float(name string) float64 { return m.Get(m.field(name)).Float() }

func (m msg) all(name string) (out []msg) {
	l := m.Get(m.field(name)).List()
	for i := range l.Len() {
		out = append(out, msg{l.Get(i).Message()})
	}
	return out
}

// unknown returns the messages that hold fields the schema does not name.
func (m msg) unknown() (out []string) {
	if len(m.GetUnknown()) > 0 {
		out = append(out, string(m.Descriptor().Name()))
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind:
		case f.IsList():
			for i := range v.List().Len() {
				out = append(out, msg{v.List().Get(i).Message()}.unknown()...)
			}
		default:
			out = append(out, msg{v.Message()}.unknown()...)
		}
		return true
	})
	return out
}

// Chromium writes traces with Perfetto's own library. That packets of one can be
// read with the schema of these tests says that its numbers are Perfetto's. With
// WATTMARK_CHROMIUM=record the packets are recorded anew.
func TestSchemaReadsChromiumsTrace(t *testing.T) {
	const kept = "testdata/chromium.pftrace"
	if os.Getenv("WATTMARK_CHROMIUM") == "record" {
		if err := os.WriteFile(kept, excerpt(t, recordChromium(t)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, raw)
	seen := map[string]int{}
	for _, p := range all {
		for _, f := range features(p) {
			seen[f]++
		}
	}
	t.Logf("%d packets, %v", len(all), seen)
	for _, f := range []string{"time of day", "primary clock", "thread", "counter track", "below another", "names", "named event", "begin", "end", "instant", "counter", "text"} {
		if seen[f] == 0 {
			t.Errorf("no packet of Chromium's has a %s under our numbers", f)
		}
	}
}

// recordChromium lets Chromium trace its own start.
func recordChromium(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "own.pftrace")
	cmd := exec.CommandContext(t.Context(), "chromium", "--headless=new", "--no-sandbox", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--trace-startup=*", "--trace-startup-format=proto", "--trace-startup-file="+file, "--trace-startup-duration=3",
		"--virtual-time-budget=5000", "--screenshot="+filepath.Join(dir, "x.png"), "data:text/html,<p>x")
	cmd.WaitDelay = 10 * time.Second
	said, err := cmd.CombinedOutput()
	raw, readErr := os.ReadFile(file)
	if readErr != nil {
		t.Fatalf("chromium wrote no trace: %v\n%s", err, said)
	}
	return raw
}

// excerpt keeps a few packets of each kind, none that names a file.
func excerpt(t *testing.T, raw []byte) (out []byte) {
	t.Helper()
	seen := map[string]int{}
	for len(raw) > 0 {
		_, _, k := protowire.ConsumeField(raw)
		if k < 0 {
			t.Fatal(protowire.ParseError(k))
		}
		one := raw[:k]
		raw = raw[k:]
		if p := decode(t, one); len(one) < 2000 && len(p) == 1 && !bytes.ContainsRune(one, '/') {
			fresh := false
			for _, f := range features(p[0]) {
				seen[f]++
				fresh = fresh || seen[f] <= 4
			}
			if fresh {
				out = append(out, one...)
			}
		}
	}
	return out
}

// features are what a packet shows of Perfetto's schema.
func features(p msg) (out []string) {
	add := func(yes bool, name string) {
		if yes {
			out = append(out, name)
		}
	}
	if s := p.sub("clock_snapshot"); p.has("clock_snapshot") {
		add(s.has("primary_trace_clock"), "primary clock")
		for _, c := range s.all("clocks") {
			at := time.Unix(0, c.uint("timestamp"))
			add(c.uint("clock_id") == 1 && at.Year() >= 2020 && at.Year() < 2100, "time of day")
		}
	}
	if d := p.sub("track_descriptor"); p.has("track_descriptor") {
		add(strings.Contains(d.sub("thread").text("thread_name"), "Main"), "thread")
		add(d.has("counter") && d.text("name") != "" || d.sub("counter").text("unit_name") != "", "counter track")
		add(d.uint("parent_uuid") != 0, "below another")
	}
	for _, n := range p.sub("interned_data").all("event_names") {
		add(n.uint("iid") > 0 && n.text("name") != "", "names")
	}
	if e := p.sub("track_event"); p.has("track_event") {
		kind := map[int64]string{1: "begin", 2: "end", 3: "instant", 4: "counter"}[e.uint("type")]
		add(kind != "" && p.has("timestamp"), kind)
		add(e.uint("name_iid") != 0, "named event")
		for _, a := range e.all("debug_annotations") {
			add(a.text("string_value") != "" && (a.uint("name_iid") != 0 || a.text("name") != ""), "text")
		}
	}
	return out
}
