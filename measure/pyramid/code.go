package pyramid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
)

// A page as it is stored, little-endian:
//
//	u8 version 1, u8 flags (1: counts follow), u16 series
//	per series: f32 low, f32 step, u16[1024] least, u16[1024] greatest, u16[1024] mean
//	u32[1024] scans in each bin, only where some bin is not full
//
// A value v stands for low + v·step; 65535 for none. Least values are rounded down
// and greatest up, so that they stay bounds.
const (
	pageVersion = 1
	headBytes   = 4
	none        = math.MaxUint16
	maxSeries   = 1 << 12
)

// ErrPage is wrapped by errors about stored pages that cannot be read.
var ErrPage = errors.New("pyramid page is damaged")

const seriesBytes = 8 + 3*2*PageBins

// Append appends a page as it is stored.
func (p *Page) Append(dst []byte) []byte {
	full := uint32(BinScans(p.Level))
	flags := byte(0)
	for i := range p.Series[0] {
		if p.Series[0][i].N != full {
			flags = 1
		}
	}
	le := binary.LittleEndian
	dst = append(dst, pageVersion, flags)
	dst = le.AppendUint16(dst, uint16(len(p.Series)))
	for _, bins := range p.Series {
		dst = appendSeries(dst, bins)
	}
	if flags&1 != 0 {
		for i := range p.Series[0] {
			dst = le.AppendUint32(dst, p.Series[0][i].N)
		}
	}
	return dst
}

func appendSeries(dst []byte, bins []Bin) []byte {
	le := binary.LittleEndian
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range bins {
		if bins[i].N > 0 {
			lo, hi = min(lo, float64(bins[i].Min)), max(hi, float64(bins[i].Max))
		}
	}
	low, step := scale(lo, hi)
	dst = le.AppendUint32(dst, math.Float32bits(low))
	dst = le.AppendUint32(dst, math.Float32bits(step))
	at := len(dst)
	dst = append(dst, make([]byte, 3*2*PageBins)...)
	out := dst[at:]
	k := 1 / float64(step)
	for i := range bins {
		b, v := &bins[i], [3]uint16{none, none, none}
		if b.N > 0 {
			f := func(w float64) float64 { return min(max((w-float64(low))*k, 0), none-1) }
			v = [3]uint16{
				uint16(f(float64(b.Min))), uint16(math.Ceil(f(float64(b.Max)))), uint16(math.Round(f(b.Sum / float64(b.N)))),
			}
		}
		for j, x := range v {
			le.PutUint16(out[2*(j*PageBins+i):], x)
		}
	}
	return dst
}

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
	counts := b[headBytes+series*seriesBytes:]
	p.Series = sized(p.Series, series)
	for s := range p.Series {
		p.Series[s] = sized(p.Series[s], PageBins)
		if err := parseSeries(p.Series[s], b[headBytes+s*seriesBytes:], counts, uint32(BinScans(p.Level))); err != nil {
			return err
		}
	}
	return nil
}

func parseSeries(bins []Bin, b, counts []byte, full uint32) error {
	le := binary.LittleEndian
	low, step := float64(math.Float32frombits(le.Uint32(b))), float64(math.Float32frombits(le.Uint32(b[4:])))
	if math.IsNaN(low) || math.IsInf(low, 0) || !(step > 0) || math.IsInf(step, 0) {
		return fmt.Errorf("%w: steps of %v W from %v W on", ErrPage, step, low)
	}
	b = b[8:]
	for i := range bins {
		n := full
		if len(counts) > 0 {
			n = le.Uint32(counts[4*i:])
		}
		v := func(j int) uint16 { return le.Uint16(b[2*(j*PageBins+i):]) }
		if n == 0 || v(0) == none {
			bins[i] = empty()
			continue
		}
		w := func(j int) float64 { return low + step*float64(v(j)) }
		bins[i] = Bin{measure.Watt(w(0)), measure.Watt(w(1)), w(2) * float64(n), n}
	}
	return nil
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
