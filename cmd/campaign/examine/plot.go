package examine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/measure/pyramid"
	"wattmark/store"
)

// plot is what a task's pyramid must say: the bins of its lowest level by series, made
// from each scan by itself.
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

// compare holds each bin of each page of each level that is stored against the scans, and
// the whole as it is drawn: a bin has as many scans as there are, its least and greatest
// power are bounds of theirs, and no further off than the page can tell.
func (p *plot) compare(ctx context.Context, db *store.DB, t *store.Task) error {
	bins := p.bins
	for level := range pyramid.Levels {
		if level > 0 {
			bins = raise(bins)
		}
		for number := uint64(0); number*pyramid.PageBins <= last(bins[0]); number++ {
			var data []byte
			err := db.SQL().QueryRowContext(ctx, `SELECT data FROM pyramid WHERE task_id=? AND level=? AND page=?`, int64(t.ID), level, int64(number)).Scan(&data)
			if errors.Is(err, sql.ErrNoRows) {
				continue // it is made from the level below when it is drawn
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
		// Several steps: a page of a higher level is made of rounded ones.
		single := 1e-6 * max(math.Abs(lo), math.Abs(hi)) // what single precision cannot tell
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
	switch {
	case got.N != want.N:
		return fmt.Errorf("%d scans, the chunks have %d", got.N, want.N)
	case got.N > 0 && !(bounds && within(got.Min, want.Min) && within(got.Max, want.Max) && within(got.Mean(), want.Mean())):
		return fmt.Errorf("%v to %v, mean %v; the chunks have %v to %v, mean %v", got.Min, got.Max, got.Mean(), want.Min, want.Max, want.Mean())
	}
	return nil
}

// drawn holds what a client is shown of the whole task against its scans.
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

// raise makes the bins of the next level.
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
