package faults

import (
	"errors"
	"math"
	"slices"
	"strings"

	"wattmark/cmd/campaign/examine"
	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/store"
)

// examination is one task held against what was seen.
type examination struct {
	examine.Samples
	w    *world
	t    *store.Task
	kept bool // the monitor still has the capture

	true0  uint64 // scan of the card's life at scan number 0 of the last chunk's stretch
	last   uint64 // last scan of the card's life that is stored
	looked bool
}

// chunk holds a chunk's samples against what the card drew.
func (x *examination) chunk(c *chunk.Chunk, b *measure.Block) {
	card := x.w.card
	card.mu.Lock()
	defer card.mu.Unlock()
	for i := range b.Scans() {
		scan := uint64(b.Counts[1][i])
		if x.looked && scan <= x.last {
			x.w.fail("task %d: chunk %d has a sample that is there already, or out of order", x.t.ID, c.No)
			return
		}
		x.last, x.looked = scan, true
		if b.Counts[0][i] != card.countOf(scan) {
			x.w.fail("task %d: chunk %d: a sample is %d, and %d was sampled", x.t.ID, c.No, b.Counts[0][i], card.countOf(scan))
			return
		}
		if i == 0 {
			x.true0 = scan - c.FirstScan
		} else if scan-uint64(b.FirstScan)-uint64(i) != x.true0 {
			x.w.fail("task %d: chunk %d has a hole inside", x.t.ID, c.No)
			return
		}
	}
}

// acknowledged holds the task against what was promised of it.
func (x *examination) acknowledged() {
	w, t := x.w, x.t
	w.mu.Lock()
	stored, stop := w.seen.stored[t.ID], w.seen.stops[t.CaptureID]
	trailer, ended := w.seen.trailers[t.CaptureID]
	promised := w.seen.tasks[t.ID]
	rotten := w.seen.excuses[rotExcuse]
	w.mu.Unlock()
	if w.excused(t.CaptureID) {
		return
	}
	if p := promised; p.ended > store.Running && p.ended != t.State {
		w.fail("task %d had ended (state %d), as the database acknowledged, and is in state %d", t.ID, p.ended, t.State)
	}
	x.rows(promised)
	for no, crc := range stored {
		if got, there := x.CRCs[no]; !there || got != crc {
			w.fail("task %d: chunk %d was acknowledged by the database, and is not there as it was", t.ID, no)
		}
	}
	if n := uint64(len(x.CRCs)); ended && (n != trailer.Chunks || x.Scans != trailer.Scans || x.CRC != trailer.CRC) && !x.explained() {
		w.fail("task %d: %d chunks, %d scans, %08x are stored; the trailer said %d, %d, %08x", t.ID, n, x.Scans, x.CRC,
			trailer.Chunks, trailer.Scans, trailer.CRC)
	}
	if stop.State == 0 || rotten || strings.Contains(stop.Reason, "could not be made durable") {
		return
	}
	// What lies before the first that was sent lies before the start marker.
	var still map[uint64]bool
	for no := max(stop.FirstChunk, x.First); no < stop.EndChunk; no++ {
		if _, there := x.CRCs[no]; there {
			continue
		}
		if still == nil {
			still = x.onMonitor()
		}
		if !x.explained() || !still[no] {
			w.fail("task %d (%s): chunk %d was durable on the monitor when it answered the stop request, and is lost", t.ID, t.Reason, no)
			return
		}
	}
}

// rows holds what is stored of work and markers against what was acknowledged.
func (x *examination) rows(p promise) {
	kernels, err := x.w.host.db.Kernels(x.w.ctx, x.t.ID)
	edges, perr := x.w.host.db.Played(x.w.ctx, x.t.ID)
	if err = errors.Join(err, perr); err != nil || len(kernels) < p.kernels || len(edges) < p.edges {
		x.w.fail("task %d has %d kernels and %d edges; the database acknowledged %d and %d: %v", x.t.ID, len(kernels), len(edges), p.kernels, p.edges, err)
	}
}

// onMonitor are the chunks of the task that the monitor can still send.
func (x *examination) onMonitor() map[uint64]bool {
	numbers := numbers{}
	if x.kept {
		// An error only means that there are no more: they are what counts.
		_, _ = x.w.host.client.Read(x.w.ctx, monitorclient.ReadOptions{CaptureID: x.t.CaptureID, Untrimmed: true}, numbers)
	}
	return numbers
}

// numbers takes the numbers of chunks.
type numbers map[uint64]bool

func (n numbers) Header(store.Header, uint64) error { return nil }
func (n numbers) Event(measure.Event) error         { return nil }
func (n numbers) Chunk(c *chunk.Chunk) error {
	n[c.No] = true
	return nil
}

// explained: the samples are not all here, and the monitor has them still; or its disk has
// lost some that are here.
func (x *examination) explained() bool {
	x.w.mu.Lock()
	rotten, trailer := x.w.seen.excuses[rotExcuse], x.w.seen.trailers[x.t.CaptureID]
	x.w.mu.Unlock()
	return (x.kept || rotten && uint64(len(x.CRCs)) >= trailer.Chunks) && x.t.State == store.Incomplete && x.t.Reason != ""
}

// How many U an energy may be off. U is of k = 2, so that one normal error in twenty
// is larger; but it holds what does not go wrong here, a gain that is off and power that
// follows its kernel late: of 1600 without skew 95 % were within 0.13 U, the largest 0.2. A clock whose
// rate changes by up to 1 % between two markers, a hundred times what a quartz does, is
// none that U knows; up to 1.34 U was seen.
const (
	margin       = 1.0
	skewedMargin = 2.0
)

// energy holds the result against what was drawn.
func (x *examination) energy() {
	work := x.w.worked.Load()
	if x.t.Result == nil || x.t.Clock == nil || work == nil {
		x.w.fail("task %d is complete without a result", x.t.ID)
		return
	}
	told := slices.ContainsFunc(x.t.Events, func(e measure.Event) bool { return e.Kind == measure.EventClock })
	if x.w.apart && x.w.card.torn() && !told {
		x.w.fail("task %d: its times were taken by a clock that was set in between, and it does not say so", x.t.ID)
	}
	if x.t.Reason != "" { // a note says what is wrong, as with a clock that was stepped
		return
	}
	truth, total := busyW*workFor.Seconds(), x.t.Result.Total
	off := math.Abs(float64(total.Energy) - truth)
	limit := margin
	if x.w.struck(ClockSkew) {
		limit = skewedMargin
	}
	if x.w.seen.off = off / float64(total.U); x.w.seen.off > limit {
		x.w.fail("task %d is complete with %v ± %v, and %.4f J were drawn", x.t.ID, total.Energy, total.U, truth)
	}
	room := 200e-6 + 6*math.Sqrt(x.t.Clock.VarA)
	from, to := seconds(work.from-x.true0), seconds(work.to-x.true0)
	if r := x.t.Result; math.Abs(float64(r.From)-from) > room || math.Abs(float64(r.To)-to) > room {
		x.w.fail("task %d is complete with a window from %v to %v; the work was from %.6f to %.6f s", x.t.ID, r.From, r.To, from, to)
	}
}
