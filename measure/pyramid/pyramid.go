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
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
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
	const octaves = 3 // Ratio is 2³
	return Base << (octaves * level)
}

// PageScans returns the scans that a page of a level covers.
func PageScans(level int) uint64 { return PageBins * BinScans(level) }

// Bin holds the range and the sum of a series over some scans.
type Bin struct {
	Min, Max measure.Watt // NaN where N is 0
	Sum      float64      // of the watts of the scans
	N        uint64       // scans that were there
}

// Mean returns the mean power; NaN without scans.
func (b Bin) Mean() measure.Watt { return measure.Watt(b.Sum / float64(b.N)) }

func empty() Bin { return Bin{Min: measure.Watt(math.NaN()), Max: measure.Watt(math.NaN())} }

// vacant are the bins of a page without scans.
var vacant = slices.Repeat([]Bin{empty()}, PageBins)

// emptyBins returns n bins without scans for every series.
func emptyBins(series, n int) [][]Bin {
	out := make([][]Bin, series)
	for s := range out {
		out[s] = slices.Repeat([]Bin{empty()}, n)
	}
	return out
}

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
	return &Page{Level: level, Number: number, Series: emptyBins(series, PageBins)}
}

// Builder makes the pages of a capture from its scans, in their order. Its memory
// is a page a level. It is not safe for concurrent use.
type Builder struct {
	series int
	next   uint64 // first scan that may come
	scans  uint64 // in all pages
	open   [Levels]*Page
	out    func(*Page) error
}

// NewBuilder begins a pyramid at a capture's scan first. out gets every page that is
// complete, the lower levels first; it must not keep it.
func NewBuilder(series int, out func(*Page) error) *Builder {
	return &Builder{series: series, out: out}
}

// Next returns the first scan that may come.
func (b *Builder) Next() uint64 { return b.next }

// Scans returns how many scans the pages hold, those that Resume went on behind among them.
func (b *Builder) Scans() uint64 { return b.scans }

// Add takes n scans from a number on, all of one bin of level 0, and the extremes of each
// series over them. Scans may be left out, and none may come again.
func (b *Builder) Add(first uint64, n int, e []measure.Extreme) error {
	if len(e) != b.series || first < b.next || n < 1 || first%Base+uint64(n) > Base {
		return fmt.Errorf(
			"pyramid: %d scans of %d series from scan %d on: want some of one bin, of %d series, from %d "+
				"on", n, len(e), first, b.series, b.next)
	}
	page, err := b.page(0, first/PageScans(0))
	if err != nil {
		return err
	}
	at := first % PageScans(0) / Base
	for s := range e {
		page.Series[s][at].Join(Bin{e[s].Min, e[s].Max, e[s].Sum, uint64(n)})
	}
	b.next = first + uint64(n)
	b.scans += uint64(n)
	return nil
}

// page returns the open page of a level, after closing the one before it.
func (b *Builder) page(level int, number uint64) (*Page, error) {
	p := b.open[level]
	if p == nil {
		p = NewPage(level, number, b.series)
	} else if p.Number != number {
		if err := b.close(level); err != nil {
			return nil, err
		}
		p.Number = number
		for _, bins := range p.Series {
			copy(bins, vacant)
		}
	}
	b.open[level] = p
	return p, nil
}

// close hands a page on, and its bins to the next level.
func (b *Builder) close(level int) error {
	p := b.open[level]
	b.open[level] = nil
	if err := b.raise(p); err != nil {
		return err
	}
	return b.out(p)
}

// raise adds a page's bins to the page of the next level that they lie in.
func (b *Builder) raise(p *Page) error {
	if p.Level+1 == Levels {
		return nil
	}
	const width = PageBins / Ratio // bins of the next level that a page fills
	up, err := b.page(p.Level+1, p.Number/Ratio)
	if err != nil {
		return err
	}
	at := int(p.Number%Ratio) * width
	for s, bins := range p.Series {
		for i, bin := range bins {
			up.Series[s][at+i/Ratio].Join(bin)
		}
	}
	if p.Number%Ratio < Ratio-1 {
		return nil
	}
	// It is complete with its last part: a builder that begins behind that finds it.
	return b.close(up.Level)
}

// Resume goes on behind pages that are complete already: page yields the page of a
// level and number, nil where there is none. The scans from Next on must be added
// again.
func (b *Builder) Resume(last uint64, page func(level int, number uint64) (*Page, error)) error {
	b.next = (last + 1) * PageScans(0)
	b.scans = 0
	for level := range Levels {
		// Pages of this level that lie in an unfinished page of the next.
		done := b.next / PageScans(level)
		from := done - done%Ratio
		if level == Levels-1 {
			from = 0 // there is no next
		}
		for n := from; n < done; n++ {
			p, err := page(level, n)
			if err != nil {
				return err
			}
			if p == nil {
				continue
			}
			for i := range p.Series[0] {
				b.scans += p.Series[0][i].N
			}
			if err := b.raise(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close hands on the pages that are not full. The builder is done.
func (b *Builder) Close() error {
	for level := range b.open { // closing one opens the next
		p := b.open[level]
		if p == nil || !slices.ContainsFunc(p.Series[0], func(bin Bin) bool { return bin.N > 0 }) {
			continue
		}
		if err := b.close(level); err != nil {
			return err
		}
	}
	return nil
}

// Columns are a stretch of scans, shared out among as many columns of every series: of
// n columns, c covers scans First + Scans·c/n to First + Scans·(c+1)/n. Scans and bins
// join the column that their first scan lies in; a bin that begins before First, and reaches
// it, the first one.
type Columns struct {
	First, Scans uint64
	Bins         [][]Bin // by series

	page Page // that is being joined
}

// NewColumns returns columns without scans.
func NewColumns(series, columns int, first, scans uint64) *Columns {
	return &Columns{First: first, Scans: scans, Bins: emptyBins(series, columns)}
}

// at is the column of a scan before the end, and the first scan that is of the next one.
func (c *Columns) at(scan uint64) (column, next uint64) {
	n := uint64(len(c.Bins[0]))
	if scan > c.First {
		column = (scan - c.First) * n / c.Scans
	}
	return column, c.First + ((column+1)*c.Scans+n-1)/n
}

// Join adds n scans from one on, all of one column, and each series' extremes over them.
func (c *Columns) Join(scan uint64, n int, e []measure.Extreme) {
	column, _ := c.at(scan)
	for s := range c.Bins {
		c.Bins[s][column].Join(Bin{e[s].Min, e[s].Max, e[s].Sum, uint64(n)})
	}
}

// Room is how many scans from one of the stretch on are of its column.
func (c *Columns) Room(scan uint64) int {
	_, next := c.at(scan)
	return int(next - scan)
}

// JoinStored adds the bins of a stored page of a level. Errors wrap ErrPage.
func (c *Columns) JoinStored(level int, number uint64, b []byte) error {
	p := &c.page
	p.Level, p.Number = level, number
	if err := p.Parse(b); err != nil {
		return err
	}
	if len(p.Series) != len(c.Bins) {
		return fmt.Errorf("%w: %d series of %d", ErrPage, len(p.Series), len(c.Bins))
	}
	size, begin, end := BinScans(level), number*PageScans(level), c.First+c.Scans
	from := uint64(0)
	if begin < c.First {
		from = (c.First - begin) / size // the bin that holds the first scan
	}
	for i := from; i < PageBins && begin+i*size < end; i++ {
		column, _ := c.at(begin + i*size)
		for s := range c.Bins {
			c.Bins[s][column].Join(p.Series[s][i])
		}
	}
	return nil
}

// A page as it is stored, little-endian:
//
//	u8 version 3, u8 flags (1: counts follow), u16 series
//	per series: f32 low, f32 step, u16[1024] least, u16[1024] greatest, u16[1024] mean
//	u32[1024] scans in each bin, only where some bin is not full
//
// A value v stands for low + v·step; 65535 for none. Least values are rounded down
// and greatest up, so that they stay bounds.
const (
	pageVersion = 3 // 1 had bins of 64 scans at level 0, 2 of sixteen bins at the others
	headBytes   = 4
	none        = math.MaxUint16
	maxSeries   = 1 << 12
)

// ErrPage is wrapped by errors about stored pages that cannot be read.
var ErrPage = errors.New("pyramid page is damaged")

const seriesBytes = 8 + 3*2*PageBins

// Append appends a page as it is stored.
func (p *Page) Append(dst []byte) []byte {
	full := BinScans(p.Level)
	flags := byte(0)
	if slices.ContainsFunc(p.Series[0], func(b Bin) bool { return b.N != full }) {
		flags = 1
	}
	le := binary.LittleEndian
	dst = slices.Grow(dst, headBytes+len(p.Series)*seriesBytes+4*PageBins)
	dst = append(dst, pageVersion, flags)
	dst = le.AppendUint16(dst, uint16(len(p.Series)))
	for _, bins := range p.Series {
		dst = appendSeries(dst, bins)
	}
	if flags&1 != 0 {
		for i := range p.Series[0] {
			dst = le.AppendUint32(dst, uint32(p.Series[0][i].N))
		}
	}
	return dst
}

func appendSeries(dst []byte, bins []Bin) []byte {
	le := binary.LittleEndian
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range bins {
		if b := &bins[i]; b.N > 0 {
			lo, hi = min(lo, float64(b.Min)), max(hi, float64(b.Max))
		}
	}
	low, step := scale(lo, hi)
	dst = le.AppendUint32(dst, math.Float32bits(low))
	dst = le.AppendUint32(dst, math.Float32bits(step))
	at := len(dst)
	dst = slices.Grow(dst, 3*2*PageBins)[:at+3*2*PageBins]
	k, base := 1/float64(step), float64(low)
	for i := range bins {
		b, v := &bins[i], [3]uint16{none, none, none}
		if b.N > 0 {
			v = [3]uint16{
				code(int64((float64(b.Min) - base) * k)), code(int64(math.Ceil((float64(b.Max) - base) * k))),
				code(int64((float64(b.Mean())-base)*k + 0.5)),
			}
		}
		for j := range v {
			le.PutUint16(dst[at+2*(j*PageBins+i):], v[j])
		}
	}
	return dst
}

// code is a number of steps as it is stored.
func code(steps int64) uint16 { return uint16(min(max(steps, 0), none-1)) }

// scale chooses low and step so that lo to hi fit below 65535 with room to round.
func scale(lo, hi float64) (low, step float32) {
	if !(lo <= hi) || math.IsInf(lo, 0) || math.IsInf(hi, 0) {
		return 0, 1
	}
	low = float32(lo)
	for float64(low) > lo {
		low = math.Nextafter32(low, float32(math.Inf(-1)))
	}
	step = float32((hi - float64(low)) / (none - 3))
	for !(step > 0) || float64(low)+float64(step)*(none-2) < hi {
		step = math.Nextafter32(step, float32(math.Inf(1)))
	}
	return low, step
}

// Parse reads a stored page into p, whose Level and Number must be set. Errors wrap
// ErrPage.
func (p *Page) Parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) < headBytes || b[0] != pageVersion {
		return fmt.Errorf("%w: it does not begin as one", ErrPage)
	}
	flags, series := b[1], int(le.Uint16(b[2:]))
	want := headBytes + series*seriesBytes + int(flags&1)*4*PageBins
	if series == 0 || series > maxSeries || flags > 1 || len(b) != want {
		return fmt.Errorf("%w: %d bytes for %d series, want %d", ErrPage, len(b), series, want)
	}
	counts := b[headBytes+series*seriesBytes:] // empty where all bins are full
	p.Series = slices.Grow(p.Series[:0], series)[:series]
	for s := range p.Series {
		p.Series[s] = slices.Grow(p.Series[s][:0], PageBins)[:PageBins]
		if err := parseSeries(p.Series[s], b[headBytes+s*seriesBytes:], counts, BinScans(p.Level)); err != nil {
			return err
		}
	}
	return nil
}

// parseSeries reads the bins of a series, which have full scans each where counts is empty.
func parseSeries(bins []Bin, b, counts []byte, full uint64) error {
	le := binary.LittleEndian
	low, step := float64(math.Float32frombits(le.Uint32(b))), float64(math.Float32frombits(le.Uint32(b[4:])))
	if math.IsNaN(low) || math.IsInf(low, 0) || !(step > 0) || math.IsInf(step, 0) {
		return fmt.Errorf("%w: steps of %v W from %v W on", ErrPage, step, low)
	}
	for i := range bins {
		n := full
		if len(counts) > 0 {
			n = uint64(le.Uint32(counts[4*i:]))
		}
		least := le.Uint16(b[8+2*i:])
		if least == none || n == 0 {
			bins[i] = empty()
			continue
		}
		greatest, mean := le.Uint16(b[8+2*(PageBins+i):]), le.Uint16(b[8+2*(2*PageBins+i):])
		bins[i] = Bin{
			measure.Watt(low + step*float64(least)), measure.Watt(low + step*float64(greatest)),
			low*float64(n) + step*float64(n*uint64(mean)), n,
		}
	}
	return nil
}
