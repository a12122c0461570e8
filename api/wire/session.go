package wire

import (
	"cmp"
	"fmt"

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

// ParseProtocol converts a peer's protocol version; an unset message is 1.0.
func ParseProtocol(p *pb.Protocol) session.Protocol {
	if p == nil {
		return unversioned
	}
	return protocolOf(p)
}

// Bench converts a bench to its message. A setup that is not known stays unset.
func Bench(b *session.Bench) *pb.GetBenchResponse {
	p := benchMessage(*b)
	if b.Known() {
		p.Setup, p.Nominal = Setup(b.Setup), Setup(b.Nominal)
	}
	return p
}

// ParseBench converts a bench. Bridged is the caller's to fill in.
func ParseBench(p *pb.GetBenchResponse) (session.Bench, error) {
	var f Fields
	b := benchOf(&f, p)
	b.Protocol, b.GPU = ParseProtocol(p.Protocol), Field(&f, parseGPU, p.GpuUuid)
	b.Waiting = lists.Map(p.Waiting, func(w *pb.Waiting) session.Waiting {
		since, _ := ParseTime("since", w.Since) // a bad time is left out, the holder is not
		return session.Waiting{Holder: Text(w.Holder), Since: since}
	})
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
func Waiting(list []session.Waiting) []*pb.Waiting { return lists.Map(list, waiting) }

// StartRequest converts a request for a capture, from a host of the given version, to
// its message.
func StartRequest(r session.Request, version string) *pb.StartCaptureRequest {
	p := startRequest(r)
	p.Protocol, p.Version = Protocol(Speaks), Text(version)
	if r.Lease <= 0 {
		p.Lease = nil
	}
	return p
}

// ParseOpening converts the header of a stream, without the marker, which the host chose.
func ParseOpening(p *pb.Header) (session.Opening, error) {
	var f Fields
	h := openingOf(&f, p)
	h.GPU = Field(&f, parseGPU, p.GpuUuid)
	return h, f.Err
}

// RailValues converts the rails of a live moment to their messages.
func RailValues(list []session.RailValue) []*pb.RailValue { return lists.Map(list, railValue) }

// maxLiveRails bounds the rails of a live moment that a viewer keeps, maxWave its wave.
const (
	maxLiveRails = 1024
	maxWave      = 4096
)

// ParseMoment converts a live moment. Every reading must be finite.
func ParseMoment(p *pb.WatchRailsResponse) (session.Moment, error) {
	if len(p.Rails) > maxLiveRails || len(p.WaveW) > maxWave {
		return session.Moment{}, fmt.Errorf("%d rails, %d values of a wave: at most %d and %d are shown", len(p.Rails),
			len(p.WaveW), maxLiveRails, maxWave)
	}
	wave := lists.Map(p.WaveW, func(w float32) field { return field{"wave_w", float64(w)} })
	f := Fields{cmp.Or(finite("wave", wave...), finite("moment", field{"min_w", p.MinW}, field{"max_w", p.MaxW},
		field{"wave_step_s", p.WaveStepS}))}
	m := momentOf(&f, p)
	return m, f.Err
}

// parseRailValue converts a rail of a live moment.
func parseRailValue(p *pb.RailValue) (session.RailValue, error) {
	r := railValueOf(p)
	return r, finite("rail "+r.Rail, field{"power_w", p.GetPowerW()}, field{"voltage_v", p.GetVoltageV()},
		field{"current_a", p.GetCurrentA()})
}
