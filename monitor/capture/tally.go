package capture

import (
	"errors"
	"io"
	"slices"
	"time"

	"wattmark/measure"
	"wattmark/measure/marker"
	"wattmark/monitor/spool"
)

// tally is what the records of a log come to. It is kept up while they are
// appended, and built again from a log that outlived its monitor.
type tally struct {
	scans, lost, gaps, over, chunks uint64

	next    uint64  // one past the last scan
	endTick float64 // device time at the end of the last scan, in ticks
	markers []marker.Found
	state   State
	reason  string
	started time.Time // wall clock at device time zero
}

func (t *tally) chunk(h spool.ChunkHead, tb measure.Timebase) {
	t.chunks = h.No + 1
	t.scans += uint64(h.Scans)
	t.next = h.FirstScan + uint64(h.Scans)
	t.endTick = float64(h.FirstTick) + float64(h.Scans)*tb.TicksPerScan
}

func (t *tally) event(e measure.Event) {
	switch e.Kind {
	case measure.EventGap:
		t.gaps++
		t.lost += e.Scans
	case measure.EventOverRange:
		t.over += e.Scans
	}
}

// marker keeps the slice that readers may hold unchanged.
func (t *tally) marker(f marker.Found) { t.markers = append(slices.Clip(t.markers), f) }

func (t *tally) stateRecord(s spool.State) {
	t.state, t.reason = State(s.Code), s.Reason
	if !s.Started.IsZero() {
		t.started = s.Started
	}
}

// retell builds the tally of a log from its records.
func retell(log *spool.Log) (tally, error) {
	var t tally
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
			err = t.record(r, rec, tb)
		}
		if err != nil {
			return t, err
		}
	}
}

func (t *tally) record(r *spool.Reader, rec spool.Record, tb measure.Timebase) error {
	switch rec.Type {
	case spool.RecordChunk:
		t.chunk(rec.Chunk, tb)
	case spool.RecordEvent:
		e, err := r.Event(rec)
		if err != nil {
			return err
		}
		t.event(e)
	case spool.RecordMarker:
		f, err := r.Marker(rec)
		if err != nil {
			return err
		}
		t.marker(f)
	case spool.RecordState:
		s, err := r.State(rec)
		if err != nil {
			return err
		}
		t.stateRecord(s)
	}
	return nil
}
