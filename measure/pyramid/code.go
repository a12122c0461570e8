package pyramid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

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
	for i := range p.Series[0] {
		if p.Series[0][i].N != full {
			flags = 1
		}
	}
	le := binary.LittleEndian
	dst = slices.Grow(dst, headBytes+len(p.Series)*seriesBytes+4*PageBins)
	dst = append(dst, pageVersion, flags)
	dst = le.AppendUint16(dst, uint16(len(p.Series)))
	for _, bins := range p.Series {
		dst = appendSeries(dst, bins, full)
	}
	if flags&1 != 0 {
		for i := range p.Series[0] {
			dst = le.AppendUint32(dst, uint32(p.Series[0][i].N))
		}
	}
	return dst
}

func appendSeries(dst []byte, bins []Bin, full uint64) []byte {
	le := binary.LittleEndian
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range bins {
		if b := &bins[i]; b.N > 0 {
			if v := float64(b.Min); v < lo {
				lo = v
			}
			if v := float64(b.Max); v > hi {
				hi = v
			}
		}
	}
	low, step := scale(lo, hi)
	dst = le.AppendUint32(dst, math.Float32bits(low))
	dst = le.AppendUint32(dst, math.Float32bits(step))
	at := len(dst)
	dst = slices.Grow(dst, 3*2*PageBins)[:at+3*2*PageBins]
	var to [3]*[2 * PageBins]byte
	for j := range to {
		to[j] = (*[2 * PageBins]byte)(dst[at+2*j*PageBins:])
	}
	k, base, share := 1/float64(step), float64(low), 1/float64(full)
	for i, bins := 0, bins[:PageBins]; i < PageBins; i++ {
		b, v := &bins[i], [3]uint16{none, none, none}
		if b.N > 0 {
			sum := b.Sum * share // exactly a division: full is a power of two
			if b.N != full {
				sum = b.Sum / float64(b.N)
			}
			top := (float64(b.Max) - base) * k
			up := int64(top)
			if float64(up) < top {
				up++
			}
			v = [3]uint16{code(int64((float64(b.Min) - base) * k)), code(up), code(int64((sum-base)*k + 0.5))}
		}
		le.PutUint16(to[0][2*i:], v[0])
		le.PutUint16(to[1][2*i:], v[1])
		le.PutUint16(to[2][2*i:], v[2])
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

// stored is a page as it is stored.
type stored struct {
	series int
	body   []byte // seriesBytes each
	counts []byte // empty where all bins are full
}

// parse checks a stored page.
func parse(b []byte) (p stored, err error) {
	le := binary.LittleEndian
	if len(b) < headBytes || b[0] != pageVersion {
		return p, fmt.Errorf("%w: it does not begin as one", ErrPage)
	}
	flags, series := b[1], int(le.Uint16(b[2:]))
	want := headBytes + series*seriesBytes + int(flags&1)*4*PageBins
	if series == 0 || series > maxSeries || flags > 1 || len(b) != want {
		return p, fmt.Errorf("%w: %d bytes for %d series, want %d", ErrPage, len(b), series, want)
	}
	p = stored{series, b[headBytes : headBytes+series*seriesBytes], b[headBytes+series*seriesBytes:]}
	for s := range series {
		low, step := p.scale(s)
		if math.IsNaN(low) || math.IsInf(low, 0) || !(step > 0) || math.IsInf(step, 0) {
			return p, fmt.Errorf("%w: steps of %v W from %v W on", ErrPage, step, low)
		}
	}
	return p, nil
}

func (p *stored) scale(s int) (low, step float64) {
	b, le := p.body[s*seriesBytes:], binary.LittleEndian
	return float64(math.Float32frombits(le.Uint32(b))), float64(math.Float32frombits(le.Uint32(b[4:])))
}

// join returns the sum of bins [from, to) of a series, of full scans each.
func (p *stored) join(s, from, to int, full uint64) Bin {
	le := binary.LittleEndian
	codes := func(j int) []byte {
		return p.body[s*seriesBytes+8+2*j*PageBins:][2*from : 2*to]
	}
	least, greatest, mean := codes(0), codes(1), codes(2)
	lo, hi, n, steps := uint16(none), uint16(0), uint64(0), uint64(0)
	for i := 0; i < len(least); i += 2 {
		l, of := le.Uint16(least[i:]), full
		if l == none {
			continue
		}
		if len(p.counts) > 0 {
			if of = uint64(le.Uint32(p.counts[4*from+2*i:])); of == 0 {
				continue
			}
		}
		lo, hi = min(lo, l), max(hi, le.Uint16(greatest[i:]))
		steps += of * uint64(le.Uint16(mean[i:]))
		n += of
	}
	if n == 0 {
		return empty()
	}
	low, step := p.scale(s)
	return Bin{
		measure.Watt(low + step*float64(lo)), measure.Watt(low + step*float64(hi)),
		low*float64(n) + step*float64(steps), n,
	}
}

// Parse reads a stored page into p, whose Level and Number must be set. Errors wrap
// ErrPage.
func (p *Page) Parse(b []byte) error {
	of, err := parse(b)
	if err != nil {
		return err
	}
	p.Series = slices.Grow(p.Series[:0], of.series)[:of.series]
	for s := range p.Series {
		p.Series[s] = slices.Grow(p.Series[s][:0], PageBins)[:PageBins]
		for i := range p.Series[s] {
			p.Series[s][i] = of.join(s, i, i+1, BinScans(p.Level))
		}
	}
	return nil
}
