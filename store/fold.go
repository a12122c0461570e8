package store

import (
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
	runs    []measure.Extreme                 // by series
	rows    []pyramidRow                      // complete, and not yet stored
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
		cols: make([][]measure.Count, len(s.Channels)), runs: make([]measure.Extreme, seriesOf(s)),
	}
	f.builder = pyramid.NewBuilder(len(f.runs), f.put)
	return f, nil
}

func (f *folding) put(p *pyramid.Page) error {
	f.rows = append(f.rows, pyramidRow{p.Level, p.Number, p.Append(nil)})
	return nil
}

// take folds a chunk in; scans that are in already are passed over. It goes block by
// block, so that what it works on stays in the processor's cache.
func (f *folding) take(c *chunk.Chunk) error {
	skip := uint64(0)
	if next := f.builder.Next(); next > c.FirstScan {
		skip = next - c.FirstScan
	}
	for k := int(skip / chunk.BlockScans); k < c.Blocks(); k++ {
		n := 0
		for ch := range f.counts {
			var err error
			if n, err = c.Block(ch, k, &f.counts[ch]); err != nil {
				return err
			}
			f.cols[ch] = f.counts[ch][:n]
		}
		from := uint64(k * chunk.BlockScans)
		if err := f.block(c.FirstScan+from, int(max(skip, from)-from), n); err != nil {
			return err
		}
	}
	return nil
}

// block folds scans at to n of a block that begins with scan first.
func (f *folding) block(first uint64, at, n int) error {
	for at < n {
		m := min(pyramid.Base-int((first+uint64(at))%pyramid.Base), n-at)
		f.meter.Extremes(f.cols, at, at+m, f.runs)
		if err := f.builder.Add(first+uint64(at), m, f.runs); err != nil {
			return err
		}
		at += m
	}
	return nil
}

// powers fills a column a series with a block's power, and returns the first scan.
func powers(m *measure.PowerMeter, rails int, b *measure.Block, cols [][]measure.Watt) uint64 {
	for r := range rails {
		cols[r] = m.RailPower(r, b, cols[r])
	}
	if len(cols) > rails {
		cols[rails] = m.Total(b, cols[rails])
	}
	return b.FirstScan
}
