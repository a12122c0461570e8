package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/marker"
	"wattmark/measure/quality"
)

// An over-range event counts a channel's clipped readings in one chunk and names the
// first: it does not say where in the chunk the others lie. So the readings that lie in
// the window and in the markers are counted by scan, out of the chunks that reach over
// an end of those.

// clips counts a task's clipped readings.
type clips struct {
	d     *DB
	tx    *sql.Tx
	t     *Task
	heads []chunkHead
	spans []scanRange // the first is the window, others are markers
	out   []quality.Clipping
	c     chunk.Chunk
}

// chunkHead is where a stored chunk lies.
type chunkHead struct{ no, first, n, tick int64 }

func (h *chunkHead) end() int64 { return h.first + h.n }

// scanRange is the scans from first to before end.
type scanRange struct{ first, end int64 }

// readClipped counts the clipped readings of a task that has over-range events and a
// window. Without samples, or where a chunk cannot be read, they count as unplaced.
func (d *DB) readClipped(ctx context.Context, tx *sql.Tx, t *Task) error {
	t.Clipped = nil
	events := slices.DeleteFunc(slices.Clone(t.Events), func(e measure.Event) bool {
		return e.Kind != measure.EventOverRange || e.Channel < 0 || e.Channel >= len(t.Setup.Channels)
	})
	if t.Result == nil || len(events) == 0 {
		return nil
	}
	k := &clips{d: d, tx: tx, t: t, out: make([]quality.Clipping, len(t.Setup.Channels))}
	var err error
	k.heads, err = collect(ctx, tx, func(rows *sql.Rows, h *chunkHead) error {
		return rows.Scan(&h.no, &h.first, &h.n, &h.tick)
	}, `SELECT chunk_no, first_scan, n, first_tick FROM chunk WHERE task_id=? ORDER BY chunk_no`, int64(t.ID))
	if err != nil || len(k.heads) == 0 {
		return err // Judge knows what to make of events alone
	}
	k.place()
	for _, h := range k.heads {
		n := 0 // events come in the order of their scans, and chunks' scans grow
		for n < len(events) && int64(events[n].FirstScan) < h.end() {
			n++
		}
		in := events[:n]
		events = events[n:]
		before := slices.IndexFunc(in, func(e measure.Event) bool { return int64(e.FirstScan) >= h.first })
		if before < 0 {
			before = len(in)
		}
		k.elsewhere(in[:before])
		if err := k.chunk(ctx, h, in[before:]); err != nil {
			return err
		}
	}
	k.elsewhere(events)
	for c, n := range k.out {
		if n != (quality.Clipping{}) {
			n.Channel = c
			t.Clipped = append(t.Clipped, n)
		}
	}
	return nil
}

// elsewhere takes events whose chunks are not stored: they were trimmed away, or what is
// missing is counted as lost.
func (k *clips) elsewhere(events []measure.Event) {
	for _, e := range events {
		k.out[e.Channel].Outside += e.Scans
	}
}

// place finds the scans of the window and of the markers.
func (k *clips) place() {
	w := scanRange{first: int64(k.t.Result.FirstScan)}
	w.end = w.first
	left := int64(k.t.Result.Samples)
	for _, h := range k.heads {
		if from := max(h.first, w.first); from < h.end() && left > 0 {
			n := min(left, h.end()-from)
			w.end, left = from+n, left-n
		}
	}
	k.spans = []scanRange{w}
	start, stop := marker.Pair(k.t.Markers)
	for _, m := range []*marker.Found{start, stop} {
		if m != nil {
			k.spans = append(k.spans, scanRange{k.scanAt(m.Begin), k.scanAt(m.End)})
		}
	}
}

// scanAt is the scan at a device time, as near as ticks at an even distance tell.
func (k *clips) scanAt(at measure.Seconds) int64 {
	tb := k.t.Setup.Timebase
	tick := tb.Ticks(at)
	i, _ := slices.BinarySearchFunc(k.heads, tick, func(h chunkHead, tick float64) int {
		if float64(h.tick) <= tick {
			return -1
		}
		return 1
	})
	h := k.heads[max(i-1, 0)]
	in := (tick - float64(h.tick)) / tb.TicksPerScan
	return h.first + int64(min(max(in, 0), float64(h.n)))
}

// chunk takes the events of a stored chunk. They are enough where the chunk lies wholly
// in one span, or in none; else its readings are counted.
func (k *clips) chunk(ctx context.Context, h chunkHead, events []measure.Event) error {
	cut := slices.ContainsFunc(k.spans, func(s scanRange) bool {
		return s.first < h.end() && s.end > h.first && (s.first > h.first || s.end < h.end())
	})
	var done []int // channels
	for _, e := range events {
		if slices.Contains(done, e.Channel) {
			continue
		}
		done = append(done, e.Channel)
		var told uint64
		twice := 0
		for _, x := range events {
			if x.Channel == e.Channel {
				told, twice = told+x.Scans, twice+1
			}
		}
		if !cut && twice == 1 {
			k.add(e.Channel, h.first, told)
			continue
		}
		err := k.count(ctx, h, e.Channel)
		if errors.Is(err, ErrCorrupt) || errors.Is(err, errNoMore) {
			k.out[e.Channel].Unplaced += told
		} else if err != nil {
			return err
		}
	}
	return nil
}

// count counts a channel's clipped readings in a chunk, scan by scan.
func (k *clips) count(ctx context.Context, h chunkHead, channel int) error {
	sh := shape{k.t.Setup.Timebase, len(k.t.Setup.Channels)}
	if len(k.c.Columns) == 0 || int64(k.c.No) != h.no {
		err := k.d.loadChunk(ctx, k.tx, k.t.ID, uint64(h.no), sh, &k.c)
		if err == nil {
			if err = k.c.Validate(sh.tb, sh.channels); err != nil {
				err = fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
		}
		if err != nil {
			k.c.Columns = k.c.Columns[:0]
			return err
		}
	}
	err := k.c.OverRange(k.t.Setup.Channels[channel], channel, func(scan uint64) { k.add(channel, int64(scan), 1) })
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// add counts readings that lie with a scan.
func (k *clips) add(channel int, scan int64, n uint64) {
	out := &k.out[channel]
	for i, s := range k.spans {
		switch {
		case scan < s.first || scan >= s.end:
		case i == 0:
			out.Inside += n
			return
		default:
			out.Markers += n
			return
		}
	}
	out.Outside += n
}
