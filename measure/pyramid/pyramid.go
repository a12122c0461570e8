// Package pyramid keeps the least, greatest and mean power over runs of scans, at
// five scales, so that any stretch of a long capture is drawn from a few thousand
// numbers.
//
// A bin of level l covers 128·8^l scans of the capture's own numbering: bin k
// begins with scan k·128·8^l, whether or not scans were lost. A page holds 1024
// bins of every series. Series are the rails, and behind them their sum where there
// are several. The values are of the calibration that was in force; a multiplexed
// meter's readings are taken as of one instant.
package pyramid

import (
	"math"

	"wattmark/measure"
)

// The shape of a pyramid.
const (
	Base     = 128  // scans in a bin of level 0
	Ratio    = 8    // bins of a level in one of the next
	Levels   = 5    // 128, 1024, 8192, 65536 and 524288 scans a bin
	PageBins = 1024 // bins in a page
)

// BinScans returns the scans that a bin of a level covers.
func BinScans(level int) uint64 {
	n := uint64(Base)
	for range level {
		n *= Ratio
	}
	return n
}

// PageScans returns the scans that a page of a level covers.
func PageScans(level int) uint64 { return PageBins * BinScans(level) }

// Bin is what a series came to over some scans.
type Bin struct {
	Min, Max measure.Watt // NaN where N is 0
	Sum      float64      // of the watts of the scans
	N        uint64       // scans that were there
}

// Mean returns the mean power; NaN without scans.
func (b Bin) Mean() measure.Watt { return measure.Watt(b.Sum / float64(b.N)) }

func empty() Bin { return Bin{Min: measure.Watt(math.NaN()), Max: measure.Watt(math.NaN())} }

// Join adds another run of scans to b.
func (b *Bin) Join(o Bin) {
	if o.N == 0 {
		return
	}
	if b.N == 0 {
		*b = o
		return
	}
	b.Min, b.Max = min(b.Min, o.Min), max(b.Max, o.Max)
	b.Sum += o.Sum
	b.N += o.N
}

// Page is 1024 bins of every series at one level.
type Page struct {
	Level  int
	Number uint64  // page k begins with scan k·PageScans(Level)
	Series [][]Bin // by series, PageBins each
}

// NewPage returns a page without scans.
func NewPage(level int, number uint64, series int) *Page {
	p := &Page{Level: level, Number: number, Series: make([][]Bin, series)}
	for s := range p.Series {
		p.Series[s] = make([]Bin, PageBins)
	}
	p.clear()
	return p
}

func (p *Page) clear() {
	for s := range p.Series {
		for i := range p.Series[s] {
			p.Series[s][i] = empty()
		}
	}
}

// hasData reports whether a page has any scan.
func (p *Page) hasData() bool {
	for i := range p.Series[0] {
		if p.Series[0][i].N > 0 {
			return true
		}
	}
	return false
}
