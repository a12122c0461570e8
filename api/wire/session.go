package wire

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/wattmark/wattmark/api/wattmarkv1"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// Speaks is the protocol of this program; docs/protocol.md lists the additions of each
// version.
var Speaks = session.Protocol{Major: 1, Minor: 1}

// unversioned is the protocol of a peer that sends none: versions travel since 1.1.
var unversioned = session.Protocol{Major: 1}

// Protocol converts a protocol version to its message.
func Protocol(p session.Protocol) *pb.Protocol { return &pb.Protocol{Major: p.Major, Minor: p.Minor} }

// ParseProtocol converts a peer's protocol version; an unset message is 1.0.
func ParseProtocol(p *pb.Protocol) session.Protocol {
	if p == nil {
		return unversioned
	}
	return session.Protocol{Major: p.Major, Minor: p.Minor}
}

// Bench converts a bench to its message. A setup that is not known stays unset.
func Bench(b *session.Bench) *pb.GetBenchResponse {
	p := &pb.GetBenchResponse{
		Name: Text(b.Name), Instrument: Instrument(b.Instrument), CalibrationId: b.CalibrationID,
		Holder: Text(b.Holder), HeldSince: Time(b.HeldSince), CaptureId: b.CaptureID, Version: b.Version,
		GpuUuid: Text(b.GPU), Protocol: Protocol(b.Protocol), Draining: b.Draining, Trouble: Text(b.Trouble),
		Notes: lists.Map(b.Notes, Text), SetAside: lists.Map(b.SetAside, Text), Waiting: Waiting(b.Waiting),
	}
	if b.Known() {
		p.Setup, p.Nominal = Setup(b.Setup), Setup(b.Nominal)
	}
	return p
}

// ParseBench converts a bench. Bridged is the caller's to fill in.
func ParseBench(p *pb.GetBenchResponse) (session.Bench, error) {
	var f Fields
	b := session.Bench{
		Name: p.Name, CalibrationID: p.CalibrationId, Holder: p.Holder, CaptureID: p.CaptureId, Version: p.Version,
		Trouble: p.Trouble, Protocol: ParseProtocol(p.Protocol), Draining: p.Draining,
		Notes: lists.Map(p.Notes, Text), SetAside: lists.Map(p.SetAside, Text), GPU: Field(&f, parseGPU, p.GpuUuid),
		Instrument: Field(&f, ParseInstrument, p.Instrument), HeldSince: f.Time("held_since", p.HeldSince),
		Waiting: lists.Map(p.Waiting, func(w *pb.Waiting) session.Waiting {
			since, _ := ParseTime("since", w.Since) // a bad time is left out, the holder is not
			return session.Waiting{Holder: Text(w.Holder), Since: since}
		}),
	}
	if p.Setup != nil {
		b.Setup = Field(&f, ParseSetup, p.Setup)
	}
	if p.Nominal != nil {
		b.Nominal = Field(&f, ParseSetup, p.Nominal)
	}
	return b, f.Err
}

// parseGPU checks the UUID of the GPU that a bench measures; empty where unknown.
func parseGPU(s string) (gpu string, err error) {
	if s == "" {
		return "", nil
	}
	if gpu, err = measure.ParseGPUUUID(s); err != nil {
		return "", fmt.Errorf("gpu_uuid: %w", err)
	}
	return gpu, nil
}

// Waiting converts the queue for a bench to its messages.
func Waiting(list []session.Waiting) []*pb.Waiting {
	return lists.Map(list, func(w session.Waiting) *pb.Waiting {
		return &pb.Waiting{Holder: Text(w.Holder), Since: Time(w.Since)}
	})
}

// StartRequest converts a request for a capture, from a host of the given version, to
// its message.
func StartRequest(r session.Request, version string) *pb.StartCaptureRequest {
	p := &pb.StartCaptureRequest{
		Holder: r.Holder, TaskName: r.TaskName, Marker: MarkerSpec(r.Marker), Wait: durationpb.New(r.Wait),
		Protocol: Protocol(Speaks), Version: Text(version),
	}
	if r.Lease > 0 {
		p.Lease = durationpb.New(r.Lease)
	}
	return p
}

// ParseStartRequest converts a request for a capture. Whether its times make sense is
// for the monitor to check.
func ParseStartRequest(p *pb.StartCaptureRequest) (session.Request, error) {
	var f Fields
	duration := func(name string, p *durationpb.Duration) time.Duration {
		if err := p.CheckValid(); p != nil && err != nil && f.Err == nil {
			f.Err = refuse("%s: %v", name, err)
		}
		return p.AsDuration()
	}
	r := session.Request{
		Holder: p.Holder, TaskName: p.TaskName, Marker: Field(&f, ParseMarkerSpec, p.Marker),
		Lease: duration("lease", p.Lease), Wait: duration("wait", p.Wait),
	}
	return r, f.Err
}

// Started converts the confirmation of a capture to its message.
func Started(s session.Started) *pb.StartCaptureResponse {
	return &pb.StartCaptureResponse{
		CaptureId: s.CaptureID, SampleRateHz: float64(s.SampleRate), Instrument: Instrument(s.Instrument),
		CalibrationId: s.CalibrationID, Started: Time(s.Started), LeaseUntil: Time(s.LeaseUntil),
	}
}

// ParseStarted converts the confirmation of a capture.
func ParseStarted(p *pb.StartCaptureResponse) (session.Started, error) {
	var f Fields
	s := session.Started{
		CaptureID: p.CaptureId, SampleRate: measure.Hertz(p.SampleRateHz), CalibrationID: p.CalibrationId,
		Instrument: Field(&f, ParseInstrument, p.Instrument), Started: f.Time("started", p.Started),
		LeaseUntil: f.Time("lease_until", p.LeaseUntil),
	}
	return s, f.Err
}

// Capture converts a capture of a list to its message.
func Capture(c session.Capture) *pb.CaptureInfo {
	return &pb.CaptureInfo{
		CaptureId: Text(c.ID), Holder: Text(c.Holder), TaskName: Text(c.TaskName), Started: Time(c.Started),
		State: pb.CaptureState(c.State), Reason: Text(c.Reason), SpoolBytes: c.SpoolBytes,
	}
}

// ParseCapture converts a capture of a list.
func ParseCapture(p *pb.CaptureInfo) (session.Capture, error) {
	at, err := ParseTime("started", p.GetStarted())
	return session.Capture{
		ID: p.GetCaptureId(), Holder: p.GetHolder(), TaskName: p.GetTaskName(), Started: at,
		State: session.State(p.GetState()), Reason: p.GetReason(), SpoolBytes: p.GetSpoolBytes(),
	}, err
}

// Summary converts the result of a capture to its message.
func Summary(s session.Summary) *pb.Summary {
	return &pb.Summary{
		State: pb.CaptureState(s.State), Reason: Text(s.Reason), Scans: s.Scans, ScansLost: s.Lost,
		Gaps: s.Gaps, OverRange: s.OverRange, Chunks: s.Chunks, FirstChunk: s.FirstChunk, EndChunk: s.EndChunk,
		Markers: Markers(s.Markers), NoWindowReason: s.NoWindowReason, EndS: float64(s.End),
		Window: Window(s.Window),
	}
}

// ParseSummary converts the result of a capture.
func ParseSummary(p *pb.Summary) (session.Summary, error) {
	var f Fields
	return session.Summary{
		State: session.State(p.GetState()), Reason: p.GetReason(), Scans: p.GetScans(), Lost: p.GetScansLost(),
		Gaps: p.GetGaps(), OverRange: p.GetOverRange(), Chunks: p.GetChunks(), FirstChunk: p.GetFirstChunk(),
		EndChunk: p.GetEndChunk(), NoWindowReason: p.GetNoWindowReason(), End: seconds(p.GetEndS()),
		Markers: Field(&f, ParseMarkers, p.GetMarkers()), Window: Field(&f, ParseWindow, p.GetWindow()),
	}, f.Err
}

// Opening converts the header of a stream to its message.
func Opening(h session.Opening) *pb.Header {
	return &pb.Header{
		CaptureId: h.CaptureID, Instrument: Instrument(h.Instrument), Setup: Setup(h.Setup),
		CalibrationId: h.CalibrationID, Started: Time(h.Started), FirstChunk: h.FirstChunk, Bench: h.Bench,
		Marker: MarkerSpec(h.Marker), Holder: h.Holder, TaskName: h.TaskName, GpuUuid: Text(h.GPU),
	}
}

// ParseOpening converts the header of a stream, without the marker, which the host chose.
func ParseOpening(p *pb.Header) (session.Opening, error) {
	var f Fields
	h := session.Opening{Header: session.Header{
		CaptureID: p.CaptureId, Bench: p.Bench, Holder: p.Holder, TaskName: p.TaskName, CalibrationID: p.CalibrationId,
		Setup: Field(&f, ParseSetup, p.Setup), Instrument: Field(&f, ParseInstrument, p.Instrument),
		GPU: Field(&f, parseGPU, p.GpuUuid),
	}, Started: f.Time("started", p.Started), FirstChunk: p.FirstChunk}
	return h, f.Err
}

// Trailer converts the end of a stream to its message.
func Trailer(t session.Trailer) *pb.Trailer {
	return &pb.Trailer{Summary: Summary(t.Summary), Chunks: t.Chunks, Scans: t.Scans, Crc32C: t.CRC}
}

// ParseTrailer converts the end of a stream.
func ParseTrailer(p *pb.Trailer) (session.Trailer, error) {
	s, err := ParseSummary(p.GetSummary())
	return session.Trailer{Summary: s, Chunks: p.GetChunks(), Scans: p.GetScans(), CRC: p.GetCrc32C()}, err
}

// RailValues converts the rails of a live moment to their messages.
func RailValues(list []session.RailValue) []*pb.RailValue {
	return lists.Map(list, func(r session.RailValue) *pb.RailValue {
		return &pb.RailValue{
			Rail: Text(r.Rail), PowerW: float64(r.Power), VoltageV: float64(r.Voltage), CurrentA: float64(r.Current),
		}
	})
}

// Moment converts a live moment to its message.
func Moment(m session.Moment) *pb.WatchRailsResponse {
	return &pb.WatchRailsResponse{
		CaptureId: m.CaptureID, TS: float64(m.T), Rails: RailValues(m.Rails), TotalW: float64(m.Total),
		Dropped: m.Dropped, SampleRateHz: float64(m.Rate), Scans: m.Scans, Lost: m.Lost, Gaps: m.Gaps,
		OverRange: m.OverRange, Trouble: Text(m.Trouble),
		MinW: float64(m.Min), MaxW: float64(m.Max), WaveW: Wave(m.Wave), WaveStepS: float64(m.Step),
	}
}

// Wave converts the course of the power within a moment.
func Wave(list []measure.Watt) []float32 {
	return lists.Map(list, func(w measure.Watt) float32 { return float32(w) })
}

// maxLiveRails bounds the rails of a live moment that a viewer keeps, maxWave its wave.
const (
	maxLiveRails = 1024
	maxWave      = 4096
)

// ParseMoment converts a live moment. Every reading must be finite.
func ParseMoment(p *pb.WatchRailsResponse) (session.Moment, error) {
	m := session.Moment{
		CaptureID: p.CaptureId, T: seconds(p.TS), Total: measure.Watt(p.TotalW), Dropped: p.Dropped,
		Rate: measure.Hertz(p.SampleRateHz), Scans: p.Scans, Lost: p.Lost, Gaps: p.Gaps, OverRange: p.OverRange,
		Trouble: Text(p.Trouble), Min: measure.Watt(p.MinW), Max: measure.Watt(p.MaxW), Step: seconds(p.WaveStepS),
	}
	if len(p.Rails) > maxLiveRails || len(p.WaveW) > maxWave {
		return m, fmt.Errorf("%d rails, %d values of a wave: at most %d and %d are shown", len(p.Rails), len(p.WaveW), maxLiveRails, maxWave)
	}
	var err error
	for _, w := range p.WaveW {
		if err = finite("wave", field{"wave_w", float64(w)}); err != nil {
			return m, err
		}
		m.Wave = append(m.Wave, measure.Watt(w))
	}
	if err = finite("moment", field{"min_w", p.MinW}, field{"max_w", p.MaxW}, field{"wave_step_s", p.WaveStepS}); err != nil {
		return m, err
	}
	m.Rails, err = ParseEach(p.Rails, func(r *pb.RailValue) (session.RailValue, error) {
		fault := finite("rail "+Text(r.Rail), field{"power_w", r.PowerW}, field{"voltage_v", r.VoltageV},
			field{"current_a", r.CurrentA})
		return session.RailValue{
			Rail: Text(r.Rail), Power: measure.Watt(r.PowerW), Voltage: measure.Volt(r.VoltageV),
			Current: measure.Ampere(r.CurrentA),
		}, fault
	})
	return m, err
}
