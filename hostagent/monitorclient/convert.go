package monitorclient

import (
	"fmt"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/store"
)

func hertz(v float64) measure.Hertz     { return measure.Hertz(v) }
func seconds(v float64) measure.Seconds { return measure.Seconds(v) }

func instrument(p *wattmarkv1.Instrument) (store.Instrument, error) {
	id, err := wire.ParseInstrument(p)
	return store.Instrument(id), err
}

// gpuUUID reads the GPU that a bench measures; empty where nobody said.
func gpuUUID(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	gpu, err := measure.ParseGPUUUID(s)
	if err != nil {
		return "", fmt.Errorf("gpu_uuid: %w", err)
	}
	return gpu, nil
}

func started(a *wattmarkv1.StartCaptureResponse) (Started, error) {
	s := Started{CaptureID: a.CaptureId, SampleRate: hertz(a.SampleRateHz), CalibrationID: a.CalibrationId}
	var err error
	if s.Instrument, err = instrument(a.Instrument); err != nil {
		return s, err
	}
	if s.Started, err = wire.ParseTime("started", a.Started); err != nil {
		return s, err
	}
	s.LeaseUntil, err = wire.ParseTime("lease_until", a.LeaseUntil)
	return s, err
}

func summary(p *wattmarkv1.Summary) (Summary, error) {
	s := Summary{
		State: State(p.GetState()), Reason: p.GetReason(), Scans: p.GetScans(), Lost: p.GetScansLost(),
		Gaps: p.GetGaps(), OverRange: p.GetOverRange(),
		Chunks: p.GetChunks(), FirstChunk: p.GetFirstChunk(), EndChunk: p.GetEndChunk(),
		NoWindowReason: p.GetNoWindowReason(), End: seconds(p.GetEndS()),
	}
	var err error
	if s.Markers, err = wire.ParseMarkers(p.GetMarkers()); err != nil {
		return s, err
	}
	from, to, ok, err := wire.ParseWindow(p.GetWindow())
	if ok {
		s.Window = &Window{From: from, To: to}
	}
	return s, err
}

// Found returns the marker of a kind, nil when it was not found.
func (s *Summary) Found(k marker.Kind) *marker.Found {
	for i := range s.Markers {
		if s.Markers[i].Kind == k {
			return &s.Markers[i]
		}
	}
	return nil
}
