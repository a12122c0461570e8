// Package perfetto writes timelines of tasks as Perfetto traces: protobuf messages of the type
// perfetto.protos.Trace, which https://ui.perfetto.dev and its trace processor read.
//
// Only the necessary fields of Perfetto's messages are written, by number. The numbers are those of its
// public .proto files (protos/perfetto/trace/…), which are kept compatible for ever; docs/export.md lists
// them. A test compares those that Chromium's own traces use with a trace by Chromium.
package perfetto

import (
	"bufio"
	"fmt"
	"io"
	"math"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store/exchange"
	"google.golang.org/protobuf/encoding/protowire"
)

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

// Writer writes timelines of tasks as one Perfetto trace. One goroutine uses it.
// Packets are built in three buffers by depth: leaf in inner in packet; protobuf puts a message's
// length before it, so the inner ones come first.
type Writer struct {
	out   *bufio.Writer
	tasks uint64
	// names are the numbers of interned names: each is written once and then referred to.
	names map[string]uint64
	begun bool

	packet, inner, leaf []byte
}

// New writes a trace to w.
func New(w io.Writer) *Writer {
	return &Writer{out: bufio.NewWriterSize(w, 1<<16), names: map[string]uint64{}}
}

// Close writes the buffered bytes; it does not close the underlying writer.
func (w *Writer) Close() error { return w.out.Flush() }

// Add adds a task, below a track of its own. Order: tracks, clocks, an instant with the metadata, slices,
// instants, counters. Tracks are described before their events.
func (w *Writer) Add(t *exchange.Timeline) error {
	w.tasks++
	// Ids of tracks are unique in a trace: the task's number, then 32 bits for that of the track.
	base := w.tasks << 32
	m := &t.Meta
	w.track(base, 0, fmt.Sprintf("task %d: %s", m.Task.ID, m.Task.Name), "")
	last := base
	id := func(name, unit string) uint64 {
		last++
		w.track(last, base, name, unit)
		return last
	}
	// The clocks are related at the begin and, in power, at the end: the viewer interpolates between.
	w.clocks(m, 0)
	text, err := m.JSON()
	if err != nil {
		return err
	}
	tracks := make([]uint64, len(t.Tracks))
	for i, name := range t.Tracks {
		tracks[i] = id(name, "")
	}
	about := []exchange.Arg{{Name: exchange.MetaKey, Value: string(text)}}
	var first measure.Seconds // of the exported device time
	if m.Span != nil {
		first = m.Span.From
	}
	w.event(typeInstant, base, m.HostNanos(first), "about this trace", about)
	for s, err := range t.Slices {
		if err != nil {
			return err
		}
		// An error of the first write comes again with the second: bufio keeps it.
		w.event(typeSliceBegin, tracks[s.Track], s.Start, s.Name, s.Args)
		// A slice that ends before it begins would never be closed.
		if err := w.event(typeSliceEnd, tracks[s.Track], max(s.End, s.Start), "", nil); err != nil {
			return err
		}
	}
	for _, i := range t.Instants {
		w.event(typeInstant, tracks[i.Track], i.At, i.Name, i.Args)
	}
	for _, c := range t.Readings {
		u := id(c.Name, c.Unit)
		for i := range c.At {
			w.counter(u, c.At[i], c.Values[i])
		}
	}
	return w.power(t, id)
}

// power writes the rails' counters, and the clocks at the last scan.
func (w *Writer) power(t *exchange.Timeline, track func(name, unit string) uint64) error {
	ids := make([]uint64, len(t.Counters))
	for k, c := range t.Counters {
		ids[k] = track(t.Power.Columns[c].Name, t.Power.Columns[c].Unit)
	}
	// Of a derived table with host time: column 1 is t_s, the last host_ns.
	host := len(t.Power.Columns) - 1
	last := math.NaN()
	for b, err := range t.Power.Batches {
		if err != nil {
			return err
		}
		for i := range b.Rows {
			at := b.Columns[host].I64[i]
			for k, c := range t.Counters {
				if err := w.counter(ids[k], at, b.Columns[c].F64[i]); err != nil {
					return err
				}
			}
			last = b.Columns[1].F64[i]
		}
	}
	if last > 0 {
		return w.clocks(&t.Meta, measure.Seconds(last))
	}
	return nil
}

// send writes the packet that w.packet holds, with the message of w.inner.
func (w *Writer) send(field protowire.Number) error {
	w.packet = message(w.packet, field, w.inner)
	var head [16]byte
	b := protowire.AppendTag(head[:0], tracePacket, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(w.packet)))
	if _, err := w.out.Write(b); err != nil {
		return err
	}
	_, err := w.out.Write(w.packet)
	return err
}

// begin starts a packet of our one sequence. The first has the flag that no name was
// interned before; the others refer to interned names.
// A sequence has its own interned names. A reader that lost a packet ignores those that need the state.
func (w *Writer) begin() {
	w.packet = w.packet[:0]
	flags := uint64(flagNeedsState)
	if !w.begun {
		w.begun, flags = true, flagCleared
	}
	w.packet = uvarint(w.packet, packetSequence, 1)
	w.packet = uvarint(w.packet, packetFlags, flags)
}

// beginEvent starts a packet of an event of a track, at a time on CLOCK_REALTIME.
func (w *Writer) beginEvent(kind, track uint64, at int64) {
	w.begin()
	w.packet = uvarint(w.packet, packetTimestamp, uint64(at))
	w.packet = uvarint(w.packet, packetClock, clockRealtime)
	w.inner = uvarint(w.inner[:0], eventType, kind)
	w.inner = uvarint(w.inner, eventTrack, track)
}

// track describes a track; one with a unit is a counter.
func (w *Writer) track(id, parent uint64, name, unit string) error {
	w.begin()
	w.inner = uvarint(w.inner[:0], trackUUID, id)
	if parent != 0 {
		w.inner = uvarint(w.inner, trackParent, parent)
	}
	w.inner = str(w.inner, trackName, name)
	if unit != "" {
		w.leaf = str(w.leaf[:0], counterUnitName, unit)
		w.inner = message(w.inner, trackCounter, w.leaf)
	}
	return w.send(packetTrack)
}

// clocks writes the readings of CLOCK_REALTIME and of the meter's clock, in ns of device time,
// at one moment, and CLOCK_REALTIME as the trace's clock.
func (w *Writer) clocks(m *exchange.Meta, t measure.Seconds) error {
	w.begin()
	w.inner = w.inner[:0]
	clock := func(id uint64, at int64) {
		w.leaf = uvarint(uvarint(w.leaf[:0], clockID, id), clockTime, uint64(at))
		w.inner = message(w.inner, snapshotClock, w.leaf)
	}
	clock(clockRealtime, m.HostNanos(t))
	// Each task has a clock of its own, by its number from 128 on.
	clock(clockMeter+w.tasks-1, int64(math.Round(float64(t)*1e9)))
	w.inner = uvarint(w.inner, snapshotPrimary, clockRealtime)
	return w.send(packetClocks)
}

// event writes a slice's end or begin or an instant. A name is written out once
// and referred to by number from then on.
func (w *Writer) event(kind, track uint64, at int64, name string, args []exchange.Arg) error {
	w.beginEvent(kind, track, at)
	if name != "" {
		iid, known := w.names[name]
		if !known {
			iid = uint64(len(w.names) + 1)
			w.names[name] = iid
			// Interned data may stand in the packet that first uses it.
			w.leaf = str(uvarint(w.leaf[:0], nameIID, iid), nameText, name)
			w.packet = message(w.packet, packetInterned, message(nil, internedNames, w.leaf))
		}
		w.inner = uvarint(w.inner, eventNameIID, iid)
	}
	for _, a := range args {
		w.leaf = str(str(w.leaf[:0], annotationName, a.Name), annotationText, a.Value)
		w.inner = message(w.inner, eventAnnotation, w.leaf)
	}
	return w.send(packetEvent)
}

// counter writes one value of a counter.
func (w *Writer) counter(track uint64, at int64, v float64) error {
	w.beginEvent(typeCounter, track, at)
	// double_counter_value is a fixed64 of the float's bits, little-endian.
	w.inner = protowire.AppendTag(w.inner, eventDouble, protowire.Fixed64Type)
	w.inner = protowire.AppendFixed64(w.inner, math.Float64bits(v))
	return w.send(packetEvent)
}

// uvarint, str and message append a field of a message.
func uvarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func str(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}
