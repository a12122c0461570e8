package main

import (
	"slices"
	"time"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
)

// topHistory is how many values of each rail are kept for its course.
const topHistory = 600

// topState is what a viewer knows of a monitor.
type topState struct {
	address  string
	bench    monitorclient.Bench
	captures []monitorclient.Capture
	moment   monitorclient.Moment
	err      error // of the last thing that failed; nil again once it works

	seen    uint64 // moments
	rails   []railCourse
	total   railCourse
	asked   bool // bench is known
	stale   bool // moment is of a capture that is over
	trouble string
}

// railCourse is a rail's recent power.
type railCourse struct {
	name  string
	watts []measure.Watt // the oldest first
	peak  measure.Watt   // since the viewer began
}

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

func newTopState(address string) *topState {
	return &topState{address: address, total: railCourse{name: "total"}}
}

func (n momentNews) apply(s *topState) {
	s.err = nil
	if s.trouble = n.m.Trouble; n.m.Trouble != "" {
		s.stale = true
		return
	}
	s.seen++
	s.stale = false
	s.moment = n.m
	same := slices.EqualFunc(s.rails, n.m.Rails, func(c railCourse, v monitorclient.RailValue) bool { return c.name == v.Rail })
	if !same { // another bench, or another bench file
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

func (n benchNews) apply(s *topState) {
	s.bench, s.captures, s.asked = n.bench, n.captures, true
	if s.err != nil {
		s.err = nil
	}
	// A capture's last average is no news once somebody else has the bench, or nobody.
	if s.seen > 0 && s.moment.CaptureID != "" && s.moment.CaptureID != n.bench.CaptureID {
		s.stale = true
	}
}

func (n failureNews) apply(s *topState) {
	s.err = n.err
	s.stale = true
}

// topReport is one picture, for scripts.
type topReport struct {
	Monitor    string  `json:"monitor"`
	Version    string  `json:"version"`
	Protocol   string  `json:"protocol"`
	Bench      string  `json:"bench"`
	GPUUUID    string  `json:"gpu_uuid,omitempty"`
	Instrument string  `json:"instrument"`
	Holder     string  `json:"holder"` // empty for a free bench
	HeldSince  *string `json:"held_since,omitempty"`
	CaptureID  string  `json:"capture_id"`
	Draining   bool    `json:"draining"`
	Trouble    string  `json:"trouble,omitempty"`
	// SetAside says what of the monitor's spool could not be used.
	SetAside []string `json:"set_aside,omitempty"`

	// Sampled is false where nothing was sampled: there are no values then.
	Sampled     bool          `json:"sampled"`
	RateHz      float64       `json:"rate_hz"`
	Scans       uint64        `json:"scans"`
	Lost        uint64        `json:"lost"`
	ViewDropped uint64        `json:"view_dropped"`
	TotalW      float64       `json:"total_w"`
	Rails       []topRail     `json:"rails"`
	Captures    []topCaptured `json:"captures"`
}

type topRail struct {
	Rail     string  `json:"rail"`
	PowerW   float64 `json:"power_w"`
	VoltageV float64 `json:"voltage_v"`
	CurrentA float64 `json:"current_a"`
}

type topCaptured struct {
	CaptureID  string `json:"capture_id"`
	Holder     string `json:"holder"`
	Task       string `json:"task"`
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
	Started    string `json:"started,omitempty"`
	SpoolBytes uint64 `json:"spool_bytes"`
}

func (s *topState) report() topReport {
	m := &s.moment
	r := topReport{
		Monitor: s.address, Version: s.bench.Version, Protocol: s.bench.Protocol.String(), Bench: s.bench.Name, GPUUUID: s.bench.GPU,
		Instrument: instrumentText(s.bench.Instrument), Holder: s.bench.Holder, CaptureID: s.bench.CaptureID, Draining: s.bench.Draining,
		SetAside: s.bench.SetAside,
		Trouble:  firstOf(s.trouble, s.bench.Trouble), Sampled: s.seen > 0 && !s.stale,
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
			CaptureID: c.ID, Holder: c.Holder, Task: c.TaskName, State: captureStates[c.State], Reason: c.Reason, SpoolBytes: c.SpoolBytes,
		}
		if !c.Started.IsZero() {
			x.Started = c.Started.UTC().Format(time.RFC3339)
		}
		r.Captures = append(r.Captures, x)
	}
	return r
}

var captureStates = map[monitorclient.State]string{
	monitorclient.Arming: "arming", monitorclient.Running: "running", monitorclient.Stopping: "stopping",
	monitorclient.Complete: "complete", monitorclient.Incomplete: "incomplete", monitorclient.Released: "released",
}
