package benchservice

import (
	"time"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/hostagent/benchwatch"
	"wattmark/hostagent/monitorclient"
)

// stateMessage is a bench as it travels.
func stateMessage(s *benchwatch.State) *wattmarkv1.BenchState {
	b := &s.Bench
	m := &wattmarkv1.BenchState{
		Bench: wire.Text(s.Address), Reach: wattmarkv1.BenchReach(s.Reach), Since: wire.Time(s.Since), Away: wire.Text(s.Why),
		Name: wire.Text(b.Name), Instrument: wire.Instrument(b.Instrument), GpuUuid: wire.Text(b.GPU), Version: wire.Text(b.Version),
		Bridged: wire.Text(b.Bridged), Draining: b.Draining, Trouble: wire.Text(b.Trouble), CalibrationId: wire.Text(b.CalibrationID),
		Holder: wire.Text(b.Holder), HeldSince: wire.Time(b.HeldSince), CaptureId: wire.Text(b.CaptureID),
	}
	if b.Protocol != (monitorclient.Protocol{}) {
		m.Protocol = b.Protocol.String()
	}
	if m.Trouble == "" && s.Reach != benchwatch.Away { // away says it all
		m.Trouble = wire.Text(s.Unwatched)
	}
	if len(b.Setup.Channels) > 0 {
		p := wire.Setup(b.Setup)
		m.Records, m.SampleRateHz = p.Records, float64(b.Setup.Timebase.SampleRate())
		for _, r := range p.Rails {
			m.Rails = append(m.Rails, wire.Text(r.Name))
		}
		for _, r := range p.Missing {
			m.Missing = append(m.Missing, wire.Text(r))
		}
	}
	for _, n := range b.Notes {
		m.Notes = append(m.Notes, wire.Text(n))
	}
	for _, w := range b.Waiting {
		m.Waiting = append(m.Waiting, &wattmarkv1.Waiting{Holder: wire.Text(w.Holder), Since: wire.Time(w.Since)})
	}
	for _, c := range s.Captures {
		m.Captures = append(m.Captures, captureMessage(c))
	}
	if c, ok := s.Holding(); ok {
		m.TaskName, m.TaskId = wire.Text(c.TaskName), int64(c.Task)
	}
	if s.Last.ID != "" {
		m.Last = captureMessage(s.Last)
	}
	return m
}

func captureMessage(c benchwatch.Capture) *wattmarkv1.BenchCapture {
	return &wattmarkv1.BenchCapture{TaskId: int64(c.Task), Capture: &wattmarkv1.CaptureInfo{
		CaptureId: wire.Text(c.ID), Holder: wire.Text(c.Holder), TaskName: wire.Text(c.TaskName), Started: wire.Time(c.Started),
		State: wattmarkv1.CaptureState(c.State), Reason: wire.Text(c.Reason), SpoolBytes: c.SpoolBytes,
	}}
}

// newsMessage is news as it travels.
func newsMessage(n benchwatch.News) *wattmarkv1.WatchBenchesResponse {
	m := &wattmarkv1.WatchBenchesResponse{Bench: wire.Text(n.Address)}
	if n.State != nil {
		m.State = stateMessage(n.State)
	}
	if n.Moment != nil {
		m.Moment = momentMessage(n.Moment)
	}
	if n.History != nil {
		m.History = historyMessage(n.History)
	}
	return m
}

func momentMessage(m *benchwatch.Moment) *wattmarkv1.LiveMoment {
	p := &wattmarkv1.LiveMoment{
		At: wire.Time(m.At), CaptureId: wire.Text(m.CaptureID), TS: float64(m.T), TotalW: float64(m.Total), PeakW: float64(m.Peak),
		Merged: uint32(m.Merged), Dropped: m.Dropped, SampleRateHz: float64(m.Rate), Scans: m.Scans, Lost: m.Lost, Gaps: m.Gaps, OverRange: m.OverRange,
	}
	for _, r := range m.Rails {
		p.Rails = append(p.Rails, &wattmarkv1.RailValue{
			Rail: wire.Text(r.Rail), PowerW: float64(r.Power), VoltageV: float64(r.Voltage), CurrentA: float64(r.Current),
		})
	}
	return p
}

// historyMessage puts moments into columns. Rails are those of the newest moment;
// older ones of other rails are left out, as another bench file is another bench.
func historyMessage(list []benchwatch.Moment) *wattmarkv1.LiveHistory {
	h := &wattmarkv1.LiveHistory{}
	if len(list) == 0 {
		return h
	}
	rails := list[len(list)-1].Rails
	for _, r := range rails {
		h.Rails = append(h.Rails, &wattmarkv1.RailHistory{Rail: wire.Text(r.Rail)})
	}
	for i := range list {
		m := &list[i]
		if !sameRails(m.Rails, rails) {
			continue
		}
		h.AtS = append(h.AtS, unix(m.At))
		h.TotalW = append(h.TotalW, float64(m.Total))
		for j, r := range m.Rails {
			h.Rails[j].PowerW = append(h.Rails[j].PowerW, float64(r.Power))
		}
	}
	return h
}

func sameRails(a, b []monitorclient.RailValue) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Rail != b[i].Rail {
			return false
		}
	}
	return true
}

// unix is an instant in seconds since 1970.
func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
