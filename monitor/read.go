package monitor

import (
	"sync"

	"google.golang.org/grpc"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/monitor/capture"
	"wattmark/monitor/spool"
)

func (s *service) ReadCapture(q *wattmarkv1.ReadCaptureRequest, stream grpc.ServerStreamingServer[wattmarkv1.ReadCaptureResponse]) error {
	c, err := s.owner.Get(q.CaptureId)
	if err != nil {
		return toStatus(err)
	}
	o := capture.ReadOptions{From: q.FromChunk, Follow: q.Follow, Untrimmed: q.Untrimmed}
	return toStatus(c.Read(stream.Context(), o, &receiver{stream: stream}))
}

// receiver sends a capture's stream over gRPC.
type receiver struct {
	stream grpc.ServerStreamingServer[wattmarkv1.ReadCaptureResponse]
}

func (r *receiver) Header(h capture.ReadHeader) error {
	return r.stream.Send(&wattmarkv1.ReadCaptureResponse{Item: &wattmarkv1.ReadCaptureResponse_Header{Header: &wattmarkv1.Header{
		CaptureId: h.CaptureID, Instrument: wire.Instrument(h.Instrument), Setup: wire.Setup(h.Setup),
		CalibrationId: h.CalibrationID, Started: wire.Time(h.Started), FirstChunk: h.FirstChunk, Bench: h.Bench,
		Marker: wire.MarkerSpec(h.Marker), Holder: h.Holder, TaskName: h.TaskName, GpuUuid: wire.Text(h.GPU),
	}}})
}

// payloads are lent to gRPC until it has sent them.
var payloads = sync.Pool{New: func() any { return new([]byte) }}

func (r *receiver) Chunk(head spool.ChunkHead, load func(*[]byte) ([]byte, error)) error {
	buf := payloads.Get().(*[]byte)
	payload, err := load(buf)
	if err != nil {
		payloads.Put(buf)
		return err
	}
	c := chunk.Chunk{No: head.No, FirstScan: head.FirstScan, FirstTick: head.FirstTick, Scans: int(head.Scans), CRC: head.CRC}
	return wire.SendPayload(r.stream, &c, payload, func() { payloads.Put(buf) })
}

func (r *receiver) Event(e measure.Event) error {
	return r.stream.Send(&wattmarkv1.ReadCaptureResponse{Item: &wattmarkv1.ReadCaptureResponse_Event{Event: wire.Event(e)}})
}

func (r *receiver) Trailer(t capture.Trailer) error {
	return r.stream.Send(&wattmarkv1.ReadCaptureResponse{Item: &wattmarkv1.ReadCaptureResponse_Trailer{Trailer: &wattmarkv1.Trailer{
		Summary: summary(t.Summary), Chunks: t.Chunks, Scans: t.Scans, Crc32C: t.CRC,
	}}})
}

func summary(s capture.Summary) *wattmarkv1.Summary {
	p := &wattmarkv1.Summary{
		State: wattmarkv1.CaptureState(s.State), Reason: wire.Text(s.Reason), Scans: s.Scans, ScansLost: s.Lost, Gaps: s.Gaps,
		OverRange: s.OverRange, Chunks: s.Chunks, FirstChunk: s.FirstChunk, EndChunk: s.EndChunk,
		Markers: wire.Markers(s.Markers), NoWindowReason: s.NoWindowReason, EndS: float64(s.End),
	}
	if s.Window != nil {
		p.Window = wire.Window(s.Window.From, s.Window.To)
	}
	return p
}

func moment(m capture.Moment) *wattmarkv1.WatchRailsResponse {
	p := &wattmarkv1.WatchRailsResponse{
		CaptureId: m.CaptureID, TS: float64(m.T), TotalW: float64(m.Total), Dropped: m.Dropped,
		SampleRateHz: float64(m.Rate), Scans: m.Scans, Lost: m.Lost, Gaps: m.Gaps, OverRange: m.OverRange, Trouble: wire.Text(m.Trouble),
	}
	for _, r := range m.Rails {
		p.Rails = append(p.Rails, &wattmarkv1.RailValue{
			Rail: r.Rail, PowerW: float64(r.Power), VoltageV: float64(r.Voltage), CurrentA: float64(r.Current),
		})
	}
	return p
}
