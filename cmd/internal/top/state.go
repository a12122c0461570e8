package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/session"
)

// topHistory is the number of values kept per rail for its sparkline.
const topHistory = 600

// topState is the state of a monitor as its viewer knows it. One goroutine owns
// it.
type topState struct {
	address  string
	bench    session.Bench
	captures []session.Capture
	moment   session.Moment
	err      error // the last failure; nil after a success

	// seen counts the averages received.
	seen  uint64
	rails []railCourse
	total railCourse
	asked bool // the bench has answered
	stale bool // moment belongs to a capture that has ended
	// trouble is the instrument's error in the last average, "" for none.
	trouble string
}

// railCourse is a rail's recent power in W.
type railCourse struct {
	name  string
	watts []measure.Watt // oldest first
	peak  measure.Watt   // since the viewer began
}

// add appends a value, drops the oldest beyond topHistory, and updates the peak.
func (c *railCourse) add(w measure.Watt) {
	if len(c.watts) == 0 || w > c.peak {
		c.peak = w
	}
	if len(c.watts) == topHistory {
		copy(c.watts, c.watts[1:])
		c.watts = c.watts[:topHistory-1]
	}
	c.watts = append(c.watts, w)
}

// NewTopState returns the state before the first message.
func NewTopState(address string) *topState {
	return &topState{address: address, total: railCourse{name: "total"}}
}

// Apply takes an average. Other rail names mean another bench, or another bench
// file: the history then starts anew.
func (n momentNews) Apply(s *topState) {
	s.err = nil
	if s.trouble = n.m.Trouble; n.m.Trouble != "" {
		s.stale = true
		return
	}
	s.seen++
	s.stale = false
	s.moment = n.m
	same := slices.EqualFunc(s.rails, n.m.Rails, func(c railCourse, v session.RailValue) bool { return c.name == v.Rail })
	if !same {
		s.rails, s.total = nil, railCourse{name: "total"}
		for _, v := range n.m.Rails {
			s.rails = append(s.rails, railCourse{name: v.Rail})
		}
	}
	for i, v := range n.m.Rails {
		s.rails[i].add(v.Power)
	}
	s.total.add(n.m.Total)
}

// Apply takes the bench and its captures. The last average is stale once its
// capture no longer has the bench.
func (n BenchNews) Apply(s *topState) {
	s.bench, s.captures, s.asked = n.Bench, n.Captures, true
	if s.err != nil {
		s.err = nil
	}
	// An average without a capture is of an idle bench and stays valid.
	if s.seen > 0 && s.moment.CaptureID != "" && s.moment.CaptureID != n.Bench.CaptureID {
		s.stale = true
	}
}

// Apply keeps the error to be shown and marks the values stale.
func (n FailureNews) Apply(s *topState) {
	s.err = n.Err
	s.stale = true
}

// TopReport is one picture in JSON, for scripts.
type TopReport struct {
	Monitor    string  `json:"monitor"`
	Version    string  `json:"version"`
	Protocol   string  `json:"protocol"`
	Bench      string  `json:"bench"`
	GPUUUID    string  `json:"gpu_uuid,omitempty"`
	Instrument string  `json:"instrument"`
	Holder     string  `json:"holder"` // "" for a free bench
	HeldSince  *string `json:"held_since,omitempty"`
	CaptureID  string  `json:"capture_id"`
	Draining   bool    `json:"draining"`
	Trouble    string  `json:"trouble,omitempty"`
	// SetAside lists entries of the monitor's spool that could not be used.
	SetAside []string `json:"set_aside,omitempty"`

	// Sampled is false if nothing was sampled; the values below are then zero. Scans
	// and Lost count the running capture, ViewDropped values lost on the way to this
	// viewer.
	Sampled     bool          `json:"sampled"`
	RateHz      float64       `json:"rate_hz"`
	Scans       uint64        `json:"scans"`
	Lost        uint64        `json:"lost"`
	ViewDropped uint64        `json:"view_dropped"`
	TotalW      float64       `json:"total_w"`
	Rails       []topRail     `json:"rails"`
	Captures    []topCaptured `json:"captures"`
}

// topRail is one rail's average.
type topRail struct {
	Rail     string  `json:"rail"`
	PowerW   float64 `json:"power_w"`
	VoltageV float64 `json:"voltage_v"`
	CurrentA float64 `json:"current_a"`
}

// topCaptured is one capture in the monitor's spool.
type topCaptured struct {
	CaptureID  string `json:"capture_id"`
	Holder     string `json:"holder"`
	Task       string `json:"task"`
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
	Started    string `json:"started,omitempty"`
	SpoolBytes uint64 `json:"spool_bytes"`
}

// report returns the state for JSON.
func (s *topState) report() TopReport {
	m := &s.moment
	r := TopReport{
		Monitor: s.address, Version: s.bench.Version, Protocol: s.bench.Protocol.String(), Bench: s.bench.Name,
		GPUUUID:    s.bench.GPU,
		Instrument: out.InstrumentText(s.bench.Instrument), Holder: s.bench.Holder, CaptureID: s.bench.CaptureID,
		Draining: s.bench.Draining, SetAside: s.bench.SetAside,
		Trouble: cmp.Or(s.trouble, s.bench.Trouble), Sampled: s.seen > 0 && !s.stale,
		Rails: []topRail{}, Captures: []topCaptured{},
	}
	if !s.bench.HeldSince.IsZero() {
		t := s.bench.HeldSince.UTC().Format(time.RFC3339)
		r.HeldSince = &t
	}
	if r.Sampled {
		r.RateHz, r.Scans, r.Lost, r.ViewDropped, r.TotalW = float64(m.Rate), m.Scans, m.Lost, m.Dropped, float64(m.Total)
		for _, v := range m.Rails {
			r.Rails = append(r.Rails, topRail{v.Rail, float64(v.Power), float64(v.Voltage), float64(v.Current)})
		}
	}
	for _, c := range s.captures {
		x := topCaptured{
			CaptureID: c.ID, Holder: c.Holder, Task: c.TaskName, State: captureStates[c.State], Reason: c.Reason,
			SpoolBytes: c.SpoolBytes,
		}
		if !c.Started.IsZero() {
			x.Started = c.Started.UTC().Format(time.RFC3339)
		}
		r.Captures = append(r.Captures, x)
	}
	return r
}

// captureStates names the states in text and JSON.
var captureStates = map[session.State]string{
	session.Arming: "arming", session.Running: "running", session.Stopping: "stopping",
	session.Complete: "complete", session.Incomplete: "incomplete", session.Released: "released",
}
