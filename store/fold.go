package store

import (
	"sync"

	"wattmark/measure"
	"wattmark/measure/chunk"
	"wattmark/measure/pyramid"
)

// folding makes a task's pyramid while its chunks come in.
type folding struct {
	// mu: on a server several goroutines may store chunks of one task. Chunks that were
	// folded already are left out.
	mu    sync.Mutex
	setup measure.Setup
	// calibration is the setup's number.
	calibration int64
	meter       *measure.PowerMeter
	builder     *pyramid.Builder
	counts      [][chunk.BlockScans]measure.Count // by channel
	cols        [][]measure.Count                 // the same
	packed      []measure.Packed                  // a block by channel
	series      int
	runs        []measure.Extreme // of a block, series by series
	rows        []pyramidRow      // complete, and not yet stored
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
		cols: make([][]measure.Count, len(s.Channels)), packed: make([]measure.Packed, len(s.Channels)), series: seriesOf(s),
	}
	f.runs = make([]measure.Extreme, measure.MaxRuns*f.series)
	f.builder = pyramid.NewBuilder(f.series, f.put)
	return f, nil
}

func (f *folding) put(p *pyramid.Page) error {
	f.rows = append(f.rows, pyramidRow{p.Level, p.Number, p.Append(nil)})
	return nil
}

// take folds a chunk in; scans that are in already are passed over. Blocks that are
// whole are not unpacked for it where the processor can do without.
func (f *folding) take(c *chunk.Chunk) error {
	from := f.builder.Next()
	for k := blockOf(c, from); k < c.Blocks(); k++ {
		first := c.FirstScan + uint64(k*chunk.BlockScans)
		if first >= from && first%pyramid.Base == 0 && f.packedBlock(c, k) {
			if err := f.add(first, chunk.BlockScans); err != nil {
				return err
			}
			continue
		}
		n, err := f.unpack(c, k)
		if err == nil {
			err = f.block(first, int(max(from, first)-first), n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// blockOf is the first block of a chunk that holds scans from one on.
func blockOf(c *chunk.Chunk, from uint64) int {
	if from <= c.FirstScan {
		return 0
	}
	return int((from - c.FirstScan) / chunk.BlockScans)
}

// blocks unpacks those blocks of a chunk that hold scans from one to another, and calls
// do for each, with the number of its first scan and which of its scans are meant. It
// goes block by block, so that what it works on stays in the processor's cache.
func (f *folding) blocks(c *chunk.Chunk, from, end uint64, do func(first uint64, at, n int)) error {
	for k := blockOf(c, from); k < c.Blocks(); k++ {
		first := c.FirstScan + uint64(k*chunk.BlockScans)
		if first >= end {
			return nil
		}
		n, err := f.unpack(c, k)
		if err != nil {
			return err
		}
		do(first, int(max(from, first)-first), int(min(uint64(n), end-first)))
	}
	return nil
}

// unpack unpacks a block of all channels, and returns how many scans it has.
func (f *folding) unpack(c *chunk.Chunk, k int) (n int, err error) {
	for ch := range f.counts {
		if n, err = c.Block(ch, k, &f.counts[ch]); err != nil {
			return 0, err
		}
		f.cols[ch] = f.counts[ch][:n]
	}
	return n, nil
}

// packedBlock finds the extremes of a block that is not unpacked; false where it must be.
func (f *folding) packedBlock(c *chunk.Chunk, k int) bool {
	for ch := range f.packed {
		var ok bool
		if f.packed[ch], ok = c.Packed(ch, k); !ok {
			return false
		}
	}
	return f.meter.PackedExtremes(f.packed, f.series, f.runs)
}

// block folds scans at to n of a block that begins with scan first.
func (f *folding) block(first uint64, at, n int) error {
	for at < n {
		m := n - at
		if begun := int((first + uint64(at)) % pyramid.Base); begun > 0 { // the rest of a bin
			m = min(pyramid.Base-begun, m)
		}
		f.meter.Extremes(f.cols, at, at+m, f.series, f.runs)
		if err := f.add(first+uint64(at), m); err != nil {
			return err
		}
		at += m
	}
	return nil
}

// add hands the extremes of n scans from one on to the builder, bin by bin.
func (f *folding) add(first uint64, n int) error {
	for k := 0; n > 0; k++ {
		m := min(pyramid.Base, n)
		if err := f.builder.Add(first, m, f.runs[k*f.series:(k+1)*f.series]); err != nil {
			return err
		}
		first, n = first+uint64(m), n-m
	}
	return nil
}
