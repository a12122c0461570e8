package harness

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/pyramid"
	"github.com/wattmark/wattmark/store"
)

// Samples sums up the samples that a database holds of a task.
type Samples struct {
	CRCs  map[uint64]uint32 // of chunks, by their numbers
	First uint64            // number of the first chunk
	Scans uint64
	CRC   uint32 // of all chunks' checksums, as in a capture's trailer
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Examine reads all samples of a task that has ended and compares them, by arithmetic of its own, with the task's
// numbers, counts, gaps, plots, reason and state. It calls fail with each violation, and also, unless it is nil, with
// each chunk in order; the block is valid during that call.
func Examine(
	ctx context.Context, db *store.DB, t *store.Task, also func(*chunk.Chunk, *measure.Block), fail func(string, ...any),
) Samples {
	reasons(t, fail)
	s := Samples{CRCs: map[uint64]uint32{}}
	lost := gaps(t)
	drawn, err := newPlot(&t.Setup)
	if err != nil && t.Chunks > 0 {
		fail("task %d: its setup makes no power: %v", t.ID, err)
		return s
	}
	var b measure.Block
	var next uint64
	for c, err := range db.Chunks(ctx, t.ID, 0) {
		if err == nil {
			err = chunk.Decode(c, t.Setup.Timebase, len(t.Setup.Channels), &b)
		}
		if err != nil {
			fail("task %d: %v", t.ID, err)
			return s
		}
		if _, twice := s.CRCs[c.No]; twice {
			fail("task %d: chunk %d is there twice", t.ID, c.No)
		}
		if len(s.CRCs) == 0 {
			s.First = c.No
		} else if c.FirstScan != next+lost[next] {
			fail("task %d: chunk %d begins at scan %d, the one before ends at %d, and %d scans are recorded as lost",
				t.ID, c.No, c.FirstScan, next, lost[next])
		}
		next = c.FirstScan + uint64(c.Scans)
		s.CRCs[c.No], s.Scans = c.CRC, s.Scans+uint64(c.Scans)
		s.CRC = crc32.Update(s.CRC, castagnoli, binary.LittleEndian.AppendUint32(nil, c.CRC))
		drawn.add(&b)
		if also != nil {
			also(c, &b)
		}
	}
	if t.Chunks != uint64(len(s.CRCs)) || t.Scans != s.Scans {
		fail("task %d counts %d chunks and %d scans; it has %d and %d", t.ID, t.Chunks, t.Scans, len(s.CRCs), s.Scans)
	}
	if t.Chunks == 0 {
		return s
	}
	if err := drawn.compare(ctx, db, t); err != nil {
		fail("task %d: %v", t.ID, err)
	}
	return s
}

// gaps returns the number of recorded missing scans by the scan at which each gap begins.
func gaps(t *store.Task) map[uint64]uint64 {
	lost := map[uint64]uint64{}
	for _, e := range t.Events {
		if e.Kind == measure.EventGap {
			lost[e.FirstScan] += e.Scans
		}
	}
	return lost
}

// unfinished are parts of reasons that contradict a complete task, which has all of its samples and its work.
var unfinished = []string{
	"keeps the rest", "was interrupted", "are missing", "is not complete", "did not come to its end", "no longer has",
}

// reasons compares a task's reason with its state.
func reasons(t *store.Task, fail func(string, ...any)) {
	switch t.State {
	case store.Running:
		fail("task %d is half done: %s", t.ID, t.Reason)
	case store.Complete:
		for _, u := range unfinished {
			if strings.Contains(t.Reason, u) {
				fail("task %d is complete, with the reason: %s", t.ID, t.Reason)
			}
		}
	default:
		if t.Reason == "" {
			fail("task %d is in state %d without a reason", t.ID, t.State)
		}
		if strings.Contains(t.Reason, "until this host fetches it") {
			fail("task %d has ended, with a rest that is to come: %s", t.ID, t.Reason)
		}
	}
}

// plot is the lowest level of a task's pyramid by series, as it must be: each bin is made scan by scan.
type plot struct {
	meter *measure.PowerMeter
	rails int
	bins  []map[uint64]pyramid.Bin // by series: the rails, and their sum where there are several
	watts []measure.Watt
}

func newPlot(s *measure.Setup) (*plot, error) {
	meter, err := measure.NewPowerMeter(s)
	if err != nil {
		return nil, err
	}
	p := &plot{meter: meter, rails: len(s.Rails), bins: make([]map[uint64]pyramid.Bin, len(s.Rails))}
	if p.rails > 1 {
		p.bins = append(p.bins, nil)
	}
	for i := range p.bins {
		p.bins[i] = map[uint64]pyramid.Bin{}
	}
	return p, nil
}

func (p *plot) add(b *measure.Block) {
	for r := range p.rails {
		p.watts = p.meter.RailPower(r, b, p.watts)
		p.series(r, b.FirstScan, p.watts)
	}
	if p.rails > 1 {
		p.watts = p.meter.Total(b, p.watts)
		p.series(p.rails, b.FirstScan, p.watts)
	}
}

func (p *plot) series(s int, first uint64, watts []measure.Watt) {
	for i, w := range watts {
		at := (first + uint64(i)) / pyramid.Base
		bin := p.bins[s][at]
		bin.Join(pyramid.Bin{Min: w, Max: w, Sum: float64(w), N: 1})
		p.bins[s][at] = bin
	}
}

// compare checks each stored bin of each level, and the envelope of the whole task, against the scans: a bin counts
// all of its scans, and its least and greatest power bound theirs within the page's resolution.
func (p *plot) compare(ctx context.Context, db *store.DB, t *store.Task) error {
	bins := p.bins
	for level := range pyramid.Levels {
		if level > 0 {
			bins = raise(bins)
		}
		for number := uint64(0); number*pyramid.PageBins <= last(bins[0]); number++ {
			var data []byte
			err := db.SQL().QueryRowContext(ctx, `SELECT data FROM pyramid WHERE task_id=? AND level=? AND page=?`,
				int64(t.ID), level, int64(number)).Scan(&data)
			if errors.Is(err, sql.ErrNoRows) {
				continue // drawing makes it from the level below
			}
			page := &pyramid.Page{Level: level, Number: number}
			if err == nil {
				err = page.Parse(data)
			}
			if err == nil {
				err = samePage(page, bins)
			}
			if err != nil {
				return fmt.Errorf("plot: level %d, page %d: %w", level, number, err)
			}
		}
	}
	return p.drawn(ctx, db, t)
}

func samePage(page *pyramid.Page, bins []map[uint64]pyramid.Bin) error {
	if len(page.Series) != len(bins) {
		return fmt.Errorf("%d series of %d", len(page.Series), len(bins))
	}
	for s, got := range page.Series {
		lo, hi := math.Inf(1), math.Inf(-1)
		for i := range got {
			if w := bins[s][page.Number*pyramid.PageBins+uint64(i)]; w.N > 0 {
				lo, hi = min(lo, float64(w.Min)), max(hi, float64(w.Max))
			}
		}
		// A page stores 16 bits between its extremes in single precision; a higher level is made of rounded pages.
		single := 1e-6 * max(math.Abs(lo), math.Abs(hi))
		room := 8*(hi-lo)/math.MaxUint16 + single
		for i, g := range got {
			if err := sameBin(g, bins[s][page.Number*pyramid.PageBins+uint64(i)], room, single); err != nil {
				return fmt.Errorf("series %d, bin %d: %w", s, i, err)
			}
		}
	}
	return nil
}

func sameBin(got, want pyramid.Bin, room, single float64) error {
	within := func(a, b measure.Watt) bool { return math.Abs(float64(a-b)) <= room }
	bounds := float64(got.Min) <= float64(want.Min)+single && float64(got.Max) >= float64(want.Max)-single
	near := within(got.Min, want.Min) && within(got.Max, want.Max) && within(got.Mean(), want.Mean())
	switch {
	case got.N != want.N:
		return fmt.Errorf("%d scans, the chunks have %d", got.N, want.N)
	case got.N > 0 && !(bounds && near):
		return fmt.Errorf("%v to %v, mean %v; the chunks have %v to %v, mean %v",
			got.Min, got.Max, got.Mean(), want.Min, want.Max, want.Mean())
	}
	return nil
}

// drawn compares the envelope that a client gets of the whole task with its scans.
func (p *plot) drawn(ctx context.Context, db *store.DB, t *store.Task) error {
	from, to, err := db.Extent(ctx, t.ID)
	if err != nil {
		return err
	}
	const columns = 7
	e, err := db.Envelope(ctx, t.ID, from, to, columns)
	if err != nil {
		return err
	}
	for s := range p.bins {
		var got, want pyramid.Bin
		for _, b := range e.Columns[s] {
			if b.N > 0 {
				got.Join(b)
			}
		}
		for _, b := range p.bins[s] {
			want.Join(b)
		}
		size := math.Abs(float64(want.Min)) + math.Abs(float64(want.Max))
		if err := sameBin(got, want, 1e-3*size, 1e-6*size); err != nil {
			return fmt.Errorf("as it is drawn, %s: %w", e.Series[s], err)
		}
	}
	return nil
}

// raise returns the bins of the next higher level.
func raise(bins []map[uint64]pyramid.Bin) []map[uint64]pyramid.Bin {
	out := make([]map[uint64]pyramid.Bin, len(bins))
	for s := range bins {
		out[s] = map[uint64]pyramid.Bin{}
		for at, b := range bins[s] {
			up := out[s][at/pyramid.Ratio]
			up.Join(b)
			out[s][at/pyramid.Ratio] = up
		}
	}
	return out
}

func last(bins map[uint64]pyramid.Bin) (at uint64) {
	for i := range bins {
		at = max(at, i)
	}
	return at
}
