package perfetto_test

import (
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

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
