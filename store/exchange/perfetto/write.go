package perfetto

import (
	"bufio"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"wattmark/measure"
	"wattmark/store/exchange"
)

// Writer writes timelines of tasks as one Perfetto trace.
type Writer struct {
	out   *bufio.Writer
	tasks uint64
	names map[string]uint64
	begun bool

	packet, inner, leaf []byte
}

// New writes a trace to w.
func New(w io.Writer) *Writer {
	return &Writer{out: bufio.NewWriterSize(w, 1<<16), names: map[string]uint64{}}
}

// Close writes what is buffered; it does not close what is below.
func (w *Writer) Close() error { return w.out.Flush() }

// Add adds a task, below a track of its own.
func (w *Writer) Add(t *exchange.Timeline) error {
	w.tasks++
	base := w.tasks << 32 // of the task's tracks' ids
	m := &t.Meta
	w.track(base, 0, fmt.Sprintf("task %d: %s", m.Task.ID, m.Task.Name), "")
	next := base + 1
	id := func(parent uint64, name, unit string) uint64 {
		u := next
		next++
		w.track(u, parent, name, unit)
		return u
	}
	w.clocks(m, 0)
	text, err := m.JSON()
	if err != nil {
		return err
	}
	tracks := make([]uint64, len(t.Tracks))
	for i, name := range t.Tracks {
		tracks[i] = id(base, name, "")
	}
	w.event(typeInstant, base, m.HostNanos(first(m)), "about this trace", []exchange.Arg{{Name: exchange.MetaKey, Value: string(text)}})
	for s, err := range t.Slices {
		if err != nil {
			return err
		}
		w.event(typeSliceBegin, tracks[s.Track], s.Start, s.Name, s.Args)
		if err := w.event(typeSliceEnd, tracks[s.Track], max(s.End, s.Start), "", nil); err != nil {
			return err
		}
	}
	for _, i := range t.Instants {
		w.event(typeInstant, tracks[i.Track], i.At, i.Name, i.Args)
	}
	for _, c := range t.Readings {
		u := id(base, c.Name, c.Unit)
		for i := range c.At {
			w.counter(u, c.At[i], c.Values[i])
		}
	}
	return w.power(t, func(name, unit string) uint64 { return id(base, name, unit) })
}

// first is where the exported device time begins.
func first(m *exchange.Meta) measure.Seconds {
	if m.Span != nil {
		return measure.Seconds(m.Span.From)
	}
	return 0
}

// power writes the rails' counters.
func (w *Writer) power(t *exchange.Timeline, track func(name, unit string) uint64) error {
	ids := make([]uint64, len(t.Counters))
	for k, c := range t.Counters {
		ids[k] = track(t.Power.Columns[c].Name, t.Power.Columns[c].Unit)
	}
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

// send writes the packet that w.packet holds.
func (w *Writer) send() error {
	var head [16]byte
	b := protowire.AppendTag(head[:0], tracePacket, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(w.packet)))
	if _, err := w.out.Write(b); err != nil {
		return err
	}
	_, err := w.out.Write(w.packet)
	return err
}

// begin starts a packet of our one sequence. The first says that nothing was
// interned before; the others lean on what was.
func (w *Writer) begin() {
	w.packet = w.packet[:0]
	flags := uint64(flagNeedsState)
	if !w.begun {
		w.begun, flags = true, flagCleared
	}
	w.packet = uvarint(w.packet, packetSequence, 1)
	w.packet = uvarint(w.packet, packetFlags, flags)
}

// stamp gives the packet a time on CLOCK_REALTIME.
func (w *Writer) stamp(at int64) {
	w.packet = uvarint(w.packet, packetTimestamp, uint64(at))
	w.packet = uvarint(w.packet, packetClock, clockRealtime)
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
	w.packet = message(w.packet, packetTrack, w.inner)
	return w.send()
}

// clocks says what CLOCK_REALTIME and the meter's clock, in ns of device time,
// showed at one moment, and that the trace's time is CLOCK_REALTIME.
func (w *Writer) clocks(m *exchange.Meta, t measure.Seconds) error {
	w.begin()
	w.inner = w.inner[:0]
	clock := func(id uint64, at int64) {
		w.leaf = uvarint(uvarint(w.leaf[:0], clockID, id), clockTime, uint64(at))
		w.inner = message(w.inner, snapshotClock, w.leaf)
	}
	clock(clockRealtime, m.HostNanos(t))
	clock(clockMeter+w.tasks-1, int64(math.Round(float64(t)*1e9)))
	w.inner = uvarint(w.inner, snapshotPrimary, clockRealtime)
	w.packet = message(w.packet, packetClocks, w.inner)
	return w.send()
}

// event writes a slice's end or begin or an instant. A name is written out once
// and referred to by number from then on.
func (w *Writer) event(kind, track uint64, at int64, name string, args []exchange.Arg) error {
	w.begin()
	w.stamp(at)
	w.inner = uvarint(w.inner[:0], eventType, kind)
	w.inner = uvarint(w.inner, eventTrack, track)
	if name != "" {
		iid, known := w.names[name]
		if !known {
			iid = uint64(len(w.names) + 1)
			w.names[name] = iid
			w.leaf = str(uvarint(w.leaf[:0], nameIID, iid), nameText, name)
			w.packet = message(w.packet, packetInterned, message(nil, internedNames, w.leaf))
		}
		w.inner = uvarint(w.inner, eventNameIID, iid)
	}
	for _, a := range args {
		w.leaf = str(str(w.leaf[:0], annotationName, a.Name), annotationText, a.Value)
		w.inner = message(w.inner, eventAnnotation, w.leaf)
	}
	w.packet = message(w.packet, packetEvent, w.inner)
	return w.send()
}

// counter writes one value of a counter.
func (w *Writer) counter(track uint64, at int64, v float64) error {
	w.begin()
	w.stamp(at)
	w.inner = uvarint(w.inner[:0], eventType, typeCounter)
	w.inner = uvarint(w.inner, eventTrack, track)
	w.inner = protowire.AppendTag(w.inner, eventDouble, protowire.Fixed64Type)
	w.inner = protowire.AppendFixed64(w.inner, math.Float64bits(v))
	w.packet = message(w.packet, packetEvent, w.inner)
	return w.send()
}

func uvarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func str(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}
