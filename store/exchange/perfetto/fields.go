// Package perfetto writes timelines of tasks as Perfetto traces: protobuf messages
// of the type perfetto.protos.Trace, which https://ui.perfetto.dev and its trace
// processor read.
//
// Of Perfetto's messages only what is needed is written, by field number. The
// numbers are those of its public .proto files (protos/perfetto/trace/…), which
// are kept compatible for ever; docs/export.md lists them. A test compares those
// that Chromium's own traces use with what Chromium writes.
package perfetto

import "google.golang.org/protobuf/encoding/protowire"

// Fields, by message.
const (
	tracePacket protowire.Number = 1 // Trace.packet

	// TracePacket
	packetClocks    protowire.Number = 6  // clock_snapshot
	packetTimestamp protowire.Number = 8  // timestamp
	packetSequence  protowire.Number = 10 // trusted_packet_sequence_id
	packetEvent     protowire.Number = 11 // track_event
	packetInterned  protowire.Number = 12 // interned_data
	packetFlags     protowire.Number = 13 // sequence_flags
	packetClock     protowire.Number = 58 // timestamp_clock_id
	packetTrack     protowire.Number = 60 // track_descriptor

	// ClockSnapshot, ClockSnapshot.Clock
	snapshotClock   protowire.Number = 1 // clocks
	snapshotPrimary protowire.Number = 2 // primary_trace_clock
	clockID         protowire.Number = 1 // clock_id
	clockTime       protowire.Number = 2 // timestamp

	// TrackDescriptor, CounterDescriptor
	trackUUID       protowire.Number = 1 // uuid
	trackName       protowire.Number = 2 // name
	trackParent     protowire.Number = 5 // parent_uuid
	trackCounter    protowire.Number = 8 // counter
	counterUnitName protowire.Number = 6 // unit_name

	// TrackEvent
	eventAnnotation protowire.Number = 4  // debug_annotations
	eventType       protowire.Number = 9  // type
	eventNameIID    protowire.Number = 10 // name_iid
	eventTrack      protowire.Number = 11 // track_uuid
	eventDouble     protowire.Number = 44 // double_counter_value

	// DebugAnnotation, InternedData, EventName
	annotationName protowire.Number = 10 // name
	annotationText protowire.Number = 6  // string_value
	internedNames  protowire.Number = 2  // event_names
	nameIID        protowire.Number = 1  // iid
	nameText       protowire.Number = 2  // name
)

// Values of enumerations and of bit fields.
const (
	flagCleared    = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	flagNeedsState = 2 // SEQ_NEEDS_INCREMENTAL_STATE

	typeSliceBegin = 1
	typeSliceEnd   = 2
	typeInstant    = 3
	typeCounter    = 4

	clockRealtime = 1   // BUILTIN_CLOCK_REALTIME
	clockMeter    = 128 // the first of the clocks that a trace may define for itself
)
