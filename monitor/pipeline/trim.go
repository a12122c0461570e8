package pipeline

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/measure/session"
	"github.com/wattmark/wattmark/monitor/spool"
)

// Trim is the part of a capture between its markers, as far as known.
type Trim struct {
	Start, Stop *marker.Found // nil where not found
	First, End  uint64        // the chunks [First, End) hold it
}

// TrimLog finds the trim of a log whose capture has ended, or was interrupted.
func TrimLog(log *spool.Log, t *Totals) (Trim, error) {
	find := func(tick float64) (uint64, error) { return findChunk(log, tick) }
	return trimOf(t, t.State == session.Complete, log.Header().Setup.Timebase, find)
}

// trimOf chooses the markers that bound the task, as marker.Pair does, and finds their
// chunks; all chunks where there are none. Nothing is trimmed without a start; and the
// plain up-down pattern counts only once the capture is complete: before, the code may still come,
// and in one that was broken off it might have.
func trimOf(t *Totals, complete bool, tb measure.Timebase, chunkAt func(tick float64) (uint64, error)) (Trim, error) {
	tr := Trim{End: t.Chunks}
	start, stop := marker.Pair(t.Markers)
	if start == nil || start.Plain() && !complete {
		return tr, nil
	}
	tr.Start = start
	var err error
	if tr.First, err = chunkAt(tb.Ticks(start.Begin)); err != nil {
		return tr, err
	}
	if stop == nil || stop.Plain() && !complete {
		return tr, nil
	}
	tr.Stop = stop
	last, err := chunkAt(tb.Ticks(stop.End))
	tr.End = min(last+1, t.Chunks)
	return tr, err
}

// Window returns the span between the markers, nil where one is missing.
func (t Trim) Window() *measure.Window {
	if t.Start == nil || t.Stop == nil {
		return nil
	}
	return &measure.Window{From: t.Start.End, To: t.Stop.Begin}
}

// noWindow returns the reason for a missing window, for the operator; empty where there
// is one.
func (t Trim) noWindow(spec marker.Spec, found []marker.Found) string {
	foreign := 0
	for i := range found {
		if f := &found[i]; !f.TagOK && !f.Fallback {
			foreign++
		}
	}
	also := ""
	if foreign > 0 {
		also = fmt.Sprintf(" (%s with another task's tag were seen)", measure.Plural(foreign, "marker"))
	}
	switch {
	case t.Window() != nil:
		return ""
	case spec.Code == marker.None:
		return "no marker was asked for"
	case t.Start == nil:
		return "no start marker was found" + also
	default:
		return "no stop marker was found" + also
	}
}

// indexSize is the number of latest chunks that are found without touching the disk:
// three minutes at five chunks a second.
const indexSize = 1024

// chunkIndex remembers the first ticks of the latest chunks, in a ring of fixed size.
type chunkIndex struct {
	first []int64 // that of chunk no lies at no % indexSize
	n     uint64  // chunks so far
}

func (x *chunkIndex) add(firstTick int64) {
	if x.first == nil {
		x.first = make([]int64, indexSize)
	}
	x.first[x.n%indexSize] = firstTick
	x.n++
}

// at returns the chunk that holds a tick: the last one that begins at or before it. ok
// is false when that chunk is no longer remembered.
func (x *chunkIndex) at(tick float64) (no uint64, ok bool) {
	kept := min(x.n, indexSize)
	begin := x.n - kept
	i := sort.Search(int(kept), func(i int) bool {
		return float64(x.first[(begin+uint64(i))%indexSize]) > tick
	})
	if i == 0 {
		return 0, begin == 0
	}
	return begin + uint64(i) - 1, true
}

// findChunk returns the chunk that holds a tick by walking a log's frames. Where the disk lost
// that chunk it returns the number of the first of those lost there, not that of the chunk
// before: the trim stays the one that readers were sent while the chunk was whole.
func findChunk(log *spool.Log, tick float64) (uint64, error) {
	r, err := log.NewReader()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	var before chunk.Chunk
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return before.No, nil
		}
		if err != nil {
			return 0, err
		}
		if rec.Type != spool.RecordChunk {
			continue
		}
		if float64(rec.Chunk.FirstTick) > tick {
			end := float64(before.FirstTick) + float64(before.Scans)*log.Header().Setup.Timebase.TicksPerScan
			if rec.Chunk.No > before.No+1 && tick >= end {
				return before.No + 1, nil
			}
			return before.No, nil
		}
		before = rec.Chunk
	}
}
