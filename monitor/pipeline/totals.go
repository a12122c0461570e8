package pipeline

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/spool"
)

// Losses counts the scans that are missing or clipped.
type Losses struct {
	Lost uint64 // scans in gaps
	Gaps uint64
	Over uint64 // readings at an end of a converter's range
}

// add counts an event.
func (l *Losses) add(e measure.Event) {
	switch e.Kind {
	case measure.EventGap:
		l.Gaps++
		l.Lost += e.Scans
	case measure.EventOverRange:
		l.Over += e.Scans
	}
}

// Totals counts the records of a log. It is kept up while they are appended, and built
// again from a log that outlived its monitor.
type Totals struct {
	Losses
	Scans, Chunks uint64

	Next    uint64  // one past the last scan
	EndTick float64 // device time at the end of the last scan, in ticks
	// Markers is replaced, never changed in place: summaries share it.
	Markers []marker.Found
	State   session.State
	Reason  string
	Started time.Time // wall clock at device time zero
}

func (t *Totals) addChunk(c *chunk.Chunk, tb measure.Timebase) {
	t.Chunks = c.No + 1
	t.Scans += uint64(c.Scans)
	t.Next = c.FirstScan + uint64(c.Scans)
	t.EndTick = float64(c.FirstTick) + float64(c.Scans)*tb.TicksPerScan
}

// AddMarker counts a marker.
func (t *Totals) AddMarker(f marker.Found) { t.Markers = append(slices.Clip(t.Markers), f) }

// Recount builds the totals of a log from its records. It reads the frames of all
// chunks, without their payloads.
func Recount(log *spool.Log) (t Totals, err error) {
	r, err := log.NewReader()
	if err != nil {
		return t, err
	}
	defer r.Close()
	tb := log.Header().Setup.Timebase
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err == nil {
			err = t.Add(r, rec, tb)
		}
		if err != nil {
			return t, err
		}
	}
}

// Add counts a record of a log, read with r.
func (t *Totals) Add(r *spool.Reader, rec spool.Record, tb measure.Timebase) error {
	switch rec.Type {
	case spool.RecordChunk:
		t.addChunk(&rec.Chunk, tb)
	case spool.RecordEvent:
		e, err := r.Event(rec)
		t.add(e)
		return err
	case spool.RecordMarker:
		f, err := r.Marker(rec)
		if err == nil {
			t.AddMarker(f)
		}
		return err
	case spool.RecordState:
		s, err := r.State(rec)
		if err != nil {
			return err
		}
		t.State, t.Reason = s.State, s.Reason
		if !s.Started.IsZero() {
			t.Started = s.Started
		}
	}
	return nil
}

// EndsAt adds the place at which the samples end to a reason.
func (t *Totals) EndsAt(reason string, tb measure.Timebase) string {
	if t.Scans == 0 {
		return reason + "; no samples"
	}
	last := float64(tb.Seconds(t.EndTick - tb.TicksPerScan))
	return fmt.Sprintf("%s; no samples after scan %d (t = %.6f s)", reason, t.Next-1, last)
}

// Summarize returns the result of a capture with these totals and this trim.
func Summarize(h *session.Header, t *Totals, tr Trim, s session.State, reason string) session.Summary {
	sum := session.Summary{
		State: s, Reason: reason, Scans: t.Scans, Lost: t.Lost, Gaps: t.Gaps, OverRange: t.Over,
		Chunks: t.Chunks, FirstChunk: tr.First, EndChunk: tr.End, Markers: t.Markers,
		Window: tr.Window(), End: h.Setup.Timebase.Seconds(t.EndTick),
	}
	if tr.Stop == nil {
		sum.EndChunk = t.Chunks
	}
	if s.Ended() {
		sum.NoWindowReason = tr.noWindow(h.Marker, t.Markers)
	}
	return sum
}
