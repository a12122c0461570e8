// Package fold makes the pyramid of a capture out of its chunks.
//
//	chunk ─▶ blocks of 256 scans ─▶ extremes of runs of scans ─▶ bins ─▶ pages
//
// A Folder works block by block, so that its memory stays in the processor's cache. It is not
// safe for concurrent use.
package fold

import (
	"cmp"
	"math"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/pyramid"
)

// Folder makes a pyramid while chunks come in. Next, Scans, Resume and Close are those of its builder; Close completes
// the pages that are not full.
type Folder struct {
	*pyramid.Builder
	meter  *measure.PowerMeter
	counts [][chunk.BlockScans]measure.Count // by channel
	cols   [][]measure.Count                 // the same, as slices
	runs   []measure.Extreme                 // by series
	pages  []Page                            // complete, and not yet handed over
}

// Page is a page in its stored form.
type Page struct {
	Level  int
	Number uint64
	Data   []byte
}

// Series returns the number of series of a setup's pyramid: its rails, and behind them their sum
// where there are several.
func Series(s *measure.Setup) int {
	if len(s.Rails) > 1 {
		return len(s.Rails) + 1
	}
	return len(s.Rails)
}

// New returns a folder of a setup; a setup that cannot be is an error.
func New(s *measure.Setup) (*Folder, error) {
	meter, err := measure.NewPowerMeter(s)
	if err != nil {
		return nil, err
	}
	f := &Folder{
		meter: meter, counts: make([][chunk.BlockScans]measure.Count, len(s.Channels)),
		cols: make([][]measure.Count, len(s.Channels)), runs: make([]measure.Extreme, Series(s)),
	}
	f.Builder = pyramid.NewBuilder(Series(s), func(p *pyramid.Page) error {
		f.pages = append(f.pages, Page{p.Level, p.Number, p.Append(nil)})
		return nil
	})
	return f, nil
}

// Pending returns the number of pages that HandOver would return, and forget.
func (f *Folder) Pending() int { return len(f.pages) }

// HandOver returns the complete pages, each once.
func (f *Folder) HandOver() []Page {
	pages := f.pages
	f.pages = nil
	return pages
}

// Take folds a chunk in; scans that are in already are passed over.
func (f *Folder) Take(c *chunk.Chunk) (err error) {
	berr := f.Blocks(c, f.Next(), math.MaxUint64, func(first uint64, at, n int) {
		for at < n && err == nil {
			scan := first + uint64(at)
			m := min(pyramid.Base-int(scan%pyramid.Base), n-at) // the rest of a bin
			err = f.Add(scan, m, f.Extremes(at, m))
			at += m
		}
	})
	return cmp.Or(berr, err)
}

// Blocks unpacks those blocks of a chunk that hold scans from one to another, and calls
// do for each, with the number of its first scan and which of its scans are meant. It
// goes block by block, so that its memory stays in the processor's cache.
func (f *Folder) Blocks(c *chunk.Chunk, from, end uint64, do func(first uint64, at, n int)) (err error) {
	for k := int((max(from, c.FirstScan) - c.FirstScan) / chunk.BlockScans); k < c.Blocks(); k++ {
		first := c.FirstScan + uint64(k*chunk.BlockScans)
		if first >= end {
			return nil
		}
		n := 0 // scans of the block, of which all channels are unpacked
		for ch := range f.counts {
			if n, err = c.Block(ch, k, &f.counts[ch]); err != nil {
				return err
			}
			f.cols[ch] = f.counts[ch][:n]
		}
		do(first, int(max(from, first)-first), int(min(uint64(n), end-first)))
	}
	return nil
}

// Extremes returns the extremes of n scans of the unpacked block, from scan at on, by series. They
// are valid until the next call.
func (f *Folder) Extremes(at, n int) []measure.Extreme {
	f.meter.Extremes(f.cols, at, at+n, f.runs)
	return f.runs
}
