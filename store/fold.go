package store

import (
	"math"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/pyramid"
)

// folding makes a task's pyramid while its chunks come in.
type folding struct {
	setup   measure.Setup
	meter   *measure.PowerMeter
	builder *pyramid.Builder
	counts  [][chunk.BlockScans]measure.Count // by channel
	cols    [][]measure.Count                 // the same
	series  int
	runs    []measure.Extreme // of a block, series by series
	rows    []pyramidRow      // complete, and not yet stored
}

type pyramidRow struct {
	level int
	page  uint64
	data  []byte
}

// seriesOf is how many series the pyramid of a setup has: its rails, and behind
// them their sum where there are several.
func seriesOf(s *measure.Setup) int {
	if len(s.Rails) > 1 {
		return len(s.Rails) + 1
	}
	return len(s.Rails)
}

func newFolding(s *measure.Setup) (*folding, error) {
	meter, err := measure.NewPowerMeter(s)
	if err != nil {
		return nil, err
	}
	f := &folding{
		setup: *s, meter: meter, counts: make([][chunk.BlockScans]measure.Count, len(s.Channels)),
		cols: make([][]measure.Count, len(s.Channels)), series: seriesOf(s),
	}
	f.runs = make([]measure.Extreme, measure.MaxRuns*f.series)
	f.builder = pyramid.NewBuilder(f.series, f.put)
	return f, nil
}

func (f *folding) put(p *pyramid.Page) error {
	f.rows = append(f.rows, pyramidRow{p.Level, p.Number, p.Append(nil)})
	return nil
}

// take folds a chunk in; scans that are in already are passed over.
func (f *folding) take(c *chunk.Chunk) error {
	return f.blocks(c, f.builder.Next(), math.MaxUint64, f.block)
}

// blocks unpacks those blocks of a chunk that hold scans from one to another, and calls
// do for each, with the number of its first scan and which of its scans are meant. It
// goes block by block, so that what it works on stays in the processor's cache.
func (f *folding) blocks(c *chunk.Chunk, from, end uint64, do func(first uint64, at, n int) error) error {
	skip := uint64(0)
	if from > c.FirstScan {
		skip = from - c.FirstScan
	}
	for k := int(skip / chunk.BlockScans); k < c.Blocks(); k++ {
		first := c.FirstScan + uint64(k*chunk.BlockScans)
		if first >= end {
			return nil
		}
		n := 0
		for ch := range f.counts {
			var err error
			if n, err = c.Block(ch, k, &f.counts[ch]); err != nil {
				return err
			}
			f.cols[ch] = f.counts[ch][:n]
		}
		at := max(from, first) - first
		if err := do(first, int(at), int(min(uint64(n), end-first))); err != nil {
			return err
		}
	}
	return nil
}

// block folds scans at to n of a block that begins with scan first.
func (f *folding) block(first uint64, at, n int) error {
	for at < n {
		m := n - at
		if begun := int((first + uint64(at)) % pyramid.Base); begun > 0 { // the rest of a bin
			m = min(pyramid.Base-begun, m)
		}
		f.meter.Extremes(f.cols, at, at+m, f.series, f.runs)
		for k := 0; m > 0; k++ {
			scans := min(pyramid.Base, m)
			if err := f.builder.Add(first+uint64(at), scans, f.runs[k*f.series:(k+1)*f.series]); err != nil {
				return err
			}
			at, m = at+scans, m-scans
		}
	}
	return nil
}
