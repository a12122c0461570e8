package validate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/analysis/clocksync"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
)

// subjects yields the measurement under the clock offset given by flags, under the clock
// recovered from the data, or under both where --recover is set.
func (m *foreignRun) subjects(f RecordedFlags) subjects {
	return func(yield func(validate.Subject, error) bool) {
		if !f.recover {
			yield(m.Related(f))
			return
		}
		s, err := m.given(f)
		s.Name += ", clock given"
		if yield(s, err) {
			s, err = m.found()
			s.Name += ", clock recovered"
			yield(s, err)
		}
	}
}

// Related relates the clocks by the offset of flags where one is given, else from the data.
func (m *foreignRun) Related(f RecordedFlags) (validate.Subject, error) {
	if f.OffsetGiven {
		return m.given(f)
	}
	return m.found()
}

// given relates the clocks by --clock-offset: a constant in seconds added to the meter's
// times, without a correction of the drift. It reads the whole trace once.
func (m *foreignRun) given(f RecordedFlags) (validate.Subject, error) {
	s, by := m.Subject, measure.SecondsOf(f.Offset)
	// The first pass collects the gaps, which must be complete before the subject is used.
	for _, err := range m.trace() {
		if err != nil {
			return s, err
		}
	}
	s.Clock = validate.Clock{
		Offset: by, OffsetU: 2 * measure.SecondsOf(f.uOffset), DriftPPM: 0,
		DriftUPPM: measure.Number(math.NaN()), How: "given", OffsetAt: new(s.Work.From),
	}
	m.put(&s, func(t measure.Seconds) measure.Seconds { return t + by })
	return s, nil
}

// found relates the clocks by matching the edges of the metered power with the begins and
// ends of the kernels. The error names --clock-offset as the remedy where the edges do
// not determine the offset.
func (m *foreignRun) found() (validate.Subject, error) {
	s := m.Subject
	fit, err := clocksync.Find(m.trace, s.Kernels)
	if err != nil {
		return s, fmt.Errorf(
			"%s: %w\nIf it is known otherwise, give what to add to the meter's times with --clock-offset", s.Name, err)
	}
	// With a drift the offset depends on the time: this is that of the fit's start.
	at := fit.Host(fit.Start)
	s.Clock = validate.Clock{
		Offset: fit.Offset, OffsetU: fit.OffsetU, DriftPPM: measure.Number(fit.DriftPPM),
		DriftUPPM: measure.Number(fit.DriftUPPM), How: "recovered from the data", OffsetAt: &at, Found: foundOf(fit),
	}
	if !m.placed {
		s.Cautions = append(s.Cautions, "the meter's times are relative: the clock's offset counts from the first event")
	} else if note := startNote(fit.Offset); note != "" {
		s.Cautions = append(s.Cautions, note)
	}
	m.put(&s, fit.Host)
	// A positive jump leaves an interval of host time without samples.
	for _, j := range fit.Jumps {
		if from := fit.Host(j.At); j.Size > 0 {
			s.Gaps = append(s.Gaps, validate.Span{From: from, To: from + j.Size})
		}
	}
	return s, nil
}

// put sets the truth, gaps and notes of s, with the meter's times mapped by host to the
// host's clock. Cautions are added to a copy, because given and found share one slice. Where
// the clock jumps back, samples up to the last time already yielded are dropped, so that
// times increase strictly.
func (m *foreignRun) put(s *validate.Subject, host func(measure.Seconds) measure.Seconds) {
	s.Gaps = lists.Map(m.lost, func(g validate.Span) validate.Span {
		return validate.Span{From: host(g.From), To: host(g.To)}
	})
	s.Cautions = slices.Clip(s.Cautions)
	if m.skipped > 0 {
		s.Cautions = append(s.Cautions,
			fmt.Sprintf("%d bytes of %s belong to no record and were left out", m.skipped, m.path))
	}
	s.Truth = func(yield func(validate.Sample, error) bool) {
		last := measure.Seconds(math.Inf(-1))
		for x, err := range m.trace() {
			x.At = host(x.At)
			if err == nil && x.At <= last {
				continue
			}
			last = x.At
			if !yield(x, err) {
				return
			}
		}
	}
}

// startNote describes the error of the meter's start time, and distinguishes a wrong time
// zone (near a multiple of 15 min, within 10 s) from any other error. It returns "" below
// 1 s.
func startNote(offset measure.Seconds) string {
	d := offset.Duration()
	const quarter = 15 * time.Minute
	zone := d.Round(quarter)
	switch {
	case d.Abs() < time.Second:
		return ""
	case zone != 0 && (d-zone).Abs() < 10*time.Second:
		return fmt.Sprintf("the meter's start time is off by %s and %v: it seems to be written in another time zone",
			hours(zone), (d - zone).Round(100*time.Microsecond))
	}
	return fmt.Sprintf("the meter's start time is off by %v", d.Round(100*time.Microsecond))
}

// foundOf converts a clock fit for the report. The scatter is omitted below five edges;
// jumps and edges that do not fit become breaks with a note each.
func foundOf(f *clocksync.Fit) *validate.Found {
	out := &validate.Found{
		Edges: f.Used, Rejected: f.Rejected, Unseen: f.Unseen, Scatter: f.Scatter,
		Correlation: measure.Number(f.Correlation),
	}
	if f.Used < 5 {
		out.Scatter = measure.Seconds(math.NaN())
	}
	for _, j := range f.Jumps {
		out.Breaks = append(out.Breaks, validate.ClockBreak{
			At: f.Host(j.At), UAt: j.UAt, Size: -j.Size, U: j.U, Kind: validate.Jump,
			Note: fmt.Sprintf("%d edges before it and %d behind it: the clock is put together of pieces%s",
				j.Edges[0], j.Edges[1], turns(j.Size)),
		})
	}
	for _, e := range f.Single {
		side := map[bool]string{true: "end", false: "start"}[e.End]
		out.Breaks = append(out.Breaks, validate.ClockBreak{
			Kind: validate.SingleEdge, At: e.Host, Size: -e.Residual,
			U: 2 * measure.Seconds(math.Hypot(float64(e.U), float64(f.Scatter))),
			Note: fmt.Sprintf("a %s of work alone, all edges around it fit: a late launch or an unclear edge, not "+
				"a clock; it was left out", side),
		})
	}
	return out
}

// turns returns a note where a jump of size seconds is a whole number of wraps of the
// PMD's time stamp: 65536 ticks at 2.9345 MHz, about 22.3 ms. Such a jump means lost
// samples.
func turns(size measure.Seconds) string {
	const turn = 65536 / 2.9345e6
	n := math.Round(float64(size) / turn)
	if n < 1 || math.Abs(float64(size)-n*turn) > 1e-3 {
		return ""
	}
	return fmt.Sprintf("; it is %.0f turns of a PMD's time stamp, so that samples were lost there", n)
}
