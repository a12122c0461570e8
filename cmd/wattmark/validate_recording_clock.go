package main

import (
	"fmt"
	"io"
	"iter"
	"math"
	"time"

	"wattmark/analysis/clocksync"
	"wattmark/analysis/validate"
	"wattmark/measure"
)

func nan() float64 { return math.NaN() }

// subjects are the measurement with the clock that was given, and with the one
// found from the data, as the flags ask.
func (m *foreignRun) subjects(f recordedFlags) subjects {
	return func(yield func(validate.Subject, error) bool) {
		if f.offsetGiven {
			s, err := m.given(f)
			if f.recover {
				s.Name += ", clock given"
			}
			if !yield(s, err) {
				return
			}
		}
		if !f.offsetGiven || f.recover {
			s, err := m.found()
			if f.recover {
				s.Name += ", clock recovered"
			}
			yield(s, err)
		}
	}
}

// given relates the clocks by hand: the meter's times are moved, no more.
func (m *foreignRun) given(f recordedFlags) (validate.Subject, error) {
	s, by := m.Subject, seconds(f.offset)
	for _, err := range m.trace() { // for its gaps, which are wanted first
		if err != nil {
			return s, err
		}
	}
	host := func(t measure.Seconds) measure.Seconds { return t + by }
	at := s.Work.From
	s.Clock = validate.Clock{Offset: by, OffsetU: 2 * seconds(f.uOffset), DriftPPM: 0, DriftUPPM: nan(), How: "given", OffsetAt: &at}
	m.put(&s, host)
	return s, nil
}

// found relates the clocks by the data.
func (m *foreignRun) found() (validate.Subject, error) {
	s := m.Subject
	fit, err := clocksync.Find(m.trace, s.Kernels, clocksync.Options{})
	if err != nil {
		return s, fmt.Errorf("%s: %w\nIf it is known otherwise, give what to add to the meter's times with --clock-offset", s.Name, err)
	}
	at := fit.Host(fit.Start)
	s.Clock = validate.Clock{
		Offset: fit.Offset, OffsetU: fit.OffsetU, DriftPPM: fit.DriftPPM, DriftUPPM: fit.DriftUPPM,
		How: "recovered from the data", OffsetAt: &at, Found: foundOf(fit),
	}
	if !m.placed {
		s.Cautions = append(s.Cautions, "the meter's times are relative: the clock's offset counts from the first event")
	} else if note := startNote(fit.Offset); note != "" {
		s.Cautions = append(s.Cautions, note)
	}
	m.put(&s, fit.Host)
	for _, j := range fit.Jumps {
		if from := fit.Host(j.At); j.Size > 0 {
			s.Gaps = append(s.Gaps, validate.Span{From: from, To: from + j.Size})
		}
	}
	return s, nil
}

// put puts the meter on the host's clock.
func (m *foreignRun) put(s *validate.Subject, host func(measure.Seconds) measure.Seconds) {
	s.Gaps = nil
	for _, g := range m.gaps() {
		s.Gaps = append(s.Gaps, validate.Span{From: host(g.From), To: host(g.To)})
	}
	s.Cautions = append(s.Cautions[:len(s.Cautions):len(s.Cautions)], m.notes()...)
	s.Truth = inOrder(m.trace, host)
}

// inOrder puts samples on the host's clock. What a jump back would make come twice
// is left out.
func inOrder(trace clocksync.Trace, host func(measure.Seconds) measure.Seconds) iter.Seq2[validate.Sample, error] {
	return func(yield func(validate.Sample, error) bool) {
		last := measure.Seconds(math.Inf(-1))
		for s, err := range trace() {
			s.At = host(s.At)
			if err == nil && s.At <= last {
				continue
			}
			last = s.At
			if !yield(s, err) {
				return
			}
		}
	}
}

// startNote tells a start time in the wrong zone from a wrong start time.
func startNote(offset measure.Seconds) string {
	d := offset.Duration()
	const quarter = 15 * time.Minute
	zone := d.Round(quarter)
	switch {
	case d.Abs() < time.Second:
		return ""
	case zone != 0 && (d-zone).Abs() < 10*time.Second:
		return fmt.Sprintf("the meter's start time is off by %s and %v: it seems to be written in another time zone", hours(zone), (d - zone).Round(100*time.Microsecond))
	}
	return fmt.Sprintf("the meter's start time is off by %v", d.Round(100*time.Microsecond))
}

func foundOf(f *clocksync.Fit) *validate.FoundClock {
	out := &validate.FoundClock{Edges: f.Used, Rejected: f.Rejected, Unseen: f.Unseen, Scatter: f.Scatter, Correlation: f.Correlation}
	if f.Used < 5 {
		out.Scatter = measure.Seconds(nan())
	}
	for _, j := range f.Jumps {
		out.Breaks = append(out.Breaks, validate.ClockBreak{
			At: f.Host(j.At), UAt: j.UAt, Size: -j.Size, U: j.U, Jump: true,
			Note: fmt.Sprintf("%d edges before it and %d behind it: the clock is put together of pieces%s", j.Edges[0], j.Edges[1], turns(j.Size)),
		})
	}
	for _, e := range f.Single {
		what := "start"
		if e.End {
			what = "end"
		}
		out.Breaks = append(out.Breaks, validate.ClockBreak{
			At: e.Host, Size: -e.Residual, U: 2 * measure.Seconds(math.Hypot(float64(e.U), float64(f.Scatter))),
			Note: fmt.Sprintf("a %s of work alone, all edges around it fit: a late launch or an unclear edge, not a clock; it was left out", what),
		})
	}
	return out
}

// turns says where a jump is whole turns of a PMD's stamp, 65536 ticks.
func turns(size measure.Seconds) string {
	const turn = 65536 / 2.9345e6
	n := math.Round(float64(size) / turn)
	if n < 1 || math.Abs(float64(size)-n*turn) > 1e-3 {
		return ""
	}
	return fmt.Sprintf("; it is %.0f turns of a PMD's time stamp, so that samples were lost there", n)
}

// clockFound is what is known of a clock beyond its offset and drift.
type clockFound struct {
	OffsetAtS   *float64      `json:"clock_offset_at_s,omitempty"` // host's seconds since the meter's start time
	Edges       *int          `json:"clock_edges,omitempty"`
	Rejected    *int          `json:"clock_edges_rejected,omitempty"`
	Unseen      *int          `json:"clock_edges_unseen,omitempty"`
	ScatterS    *float64      `json:"clock_edge_scatter_s,omitempty"`
	Correlation *float64      `json:"clock_correlation,omitempty"`
	Breaks      []breakReport `json:"clock_discontinuities,omitempty"`
}

// breakReport is a place at which the clocks do not run on evenly.
type breakReport struct {
	Kind  string   `json:"kind"` // jump or single edge
	AtS   float64  `json:"at_s"`
	UAtS  float64  `json:"u_at_s"`
	SizeS float64  `json:"size_s"` // what the meter's times gain
	US    *float64 `json:"u_s"`
	Note  string   `json:"note"`
}

func newClockFound(c *validate.Clock) (out clockFound) {
	if c.OffsetAt != nil {
		out.OffsetAtS = finite(*c.OffsetAt)
	}
	f := c.Found
	if f == nil {
		return out
	}
	out.Edges, out.Rejected, out.Unseen = &f.Edges, &f.Rejected, &f.Unseen
	out.ScatterS, out.Correlation = finite(f.Scatter), number(f.Correlation)
	for _, b := range f.Breaks {
		kind := "single edge"
		if b.Jump {
			kind = "jump"
		}
		out.Breaks = append(out.Breaks, breakReport{kind, float64(b.At), float64(b.UAt), float64(b.Size), finite(b.U), b.Note})
	}
	return out
}

// renderFoundClock says when a clock's offset holds and how well it was found.
func renderFoundClock(w io.Writer, c *validate.Clock) {
	f := c.Found
	if f == nil || c.OffsetAt == nil {
		return
	}
	fmt.Fprintf(w, "           the offset is that at %.3f s, %s; found by %d edges of the power, %d lie off, %d not seen",
		float64(*c.OffsetAt), scaledU(float64(c.Offset), float64(c.OffsetU), 1e3, "ms"), f.Edges, f.Rejected, f.Unseen)
	if !math.IsNaN(float64(f.Scatter)) {
		fmt.Fprintf(w, "; one scatters by %.3f ms", 1e3*float64(f.Scatter))
	}
	fmt.Fprintln(w)
	for _, b := range f.Breaks {
		fmt.Fprintf(w, "           %s at %.3f s: %s\n", scaledU(float64(b.Size), float64(b.U), 1e3, "ms"), float64(b.At), b.Note)
	}
}

// scaledU writes a value with its expanded uncertainty.
func scaledU(v, u, scale float64, unit string) string {
	if math.IsNaN(u) {
		return fmt.Sprintf("%+.3f %s", v*scale, unit)
	}
	return fmt.Sprintf("%+.3f ± %.3f %s", v*scale, u*scale, unit)
}
