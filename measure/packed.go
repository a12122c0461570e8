package measure

import "encoding/binary"

// PackedScans is how many counts Packed holds.
const PackedScans = RunScans * MaxRuns

// Packed is PackedScans counts as they are stored (package chunk): each is Base and
// Width bits more, the least significant first.
type Packed struct {
	Bits  []byte
	Width uint
	Base  Count
}

// Vectored reports whether PackedExtremes takes the counts: up to eight bits each, with
// room behind them to read eight bytes from where each eight counts begin.
func (p *Packed) Vectored() bool {
	const eights = PackedScans / 8
	return vector && p.Width <= 8 && len(p.Bits) >= (eights-1)*int(p.Width)+8
}

// first is the first count, less Base.
func (p *Packed) first() Count {
	return Count(binary.LittleEndian.Uint64(p.Bits) & (1<<p.Width - 1))
}

// PackedExtremes is Extremes of PackedScans scans that are not unpacked for it: the
// columns are of a meter whose counts cannot be 2³¹ apart, and all Vectored. It reports
// false where they are not, and leaves dst then.
func (m *PowerMeter) PackedExtremes(cols []Packed, series int, dst []Extreme) bool {
	for i := range cols {
		if !cols[i].Vectored() {
			return false
		}
	}
	for r := range m.rails {
		if m.rails[r].far {
			return false
		}
	}
	var total [PackedScans]float32
	first := 0.0
	for r := range m.rails {
		rail := &m.rails[r]
		x := &cols[rail.x]
		y, l := x, rail.lin
		if rail.y < 0 {
			l.IY, l.VY = 0, 0 // y counts for nothing
		} else {
			y = &cols[rail.y]
		}
		x0, y0 := x.first(), y.first()
		s, p := swingOf(&l, x.Base+x0, y.Base+y0)
		s.x0, s.y0 = x0, y0
		runs := [MaxRuns]distance{nowhere, nowhere}
		swingPackedFMA(&s, &x.Bits[0], x.Width, &y.Bits[0], y.Width, &total[0], &runs[0])
		tell(&runs, p, PackedScans, series, dst[r:])
		first += p
	}
	m.together(total[:], first, series, dst)
	return true
}
