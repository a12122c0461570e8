package measure

import "math"

// MaxRun is how many scans Extremes takes at most.
const MaxRun = 64

// Extreme is what a rail's power did over a run of scans.
type Extreme struct {
	Min, Max Watt
	Sum      float64 // of the watts
}

// Extremes tells what each rail's power did over scans from to to of the columns, at
// least one and at most MaxRun, and behind the rails, where dst has room for it, what
// their sum did. The readings of a scan are taken as of one instant.
func (m *PowerMeter) Extremes(cols [][]Count, from, to int, dst []Extreme) {
	var total [MaxRun]float64
	t := total[:to-from]
	sum := 0.0
	for r := range m.rails {
		rail := &m.rails[r]
		x := cols[rail.x][from:to]
		y := x // not looked at
		l := rail.lin
		if rail.y < 0 {
			l.IY, l.VY = 0, 0
		} else {
			y = cols[rail.y][from:to]
		}
		dst[r] = extreme(&l, x, y, t)
		sum += dst[r].Sum
	}
	if len(dst) <= len(m.rails) {
		return
	}
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	for _, p := range t {
		q := ordered(p)
		lo, hi = min(lo, q), max(hi, q)
	}
	dst[len(m.rails)] = Extreme{unordered(lo), unordered(hi), sum}
}

// ordered turns a number into an integer that orders as it does. Noise makes the
// processor guess wrong at every other comparison of floats; integers are compared
// without a branch.
func ordered(p float64) int64 {
	b := int64(math.Float64bits(p))
	return b ^ int64(uint64(b>>63)>>1)
}

// unordered is its inverse.
func unordered(q int64) Watt {
	return Watt(math.Float64frombits(uint64(q ^ int64(uint64(q>>63)>>1))))
}

// extreme is one rail over a run; it adds the rail's power to total.
func extreme(l *Linear, x, y []Count, total []float64) Extreme {
	i0, ix, iy, v0, vy := l.I0, l.IX, l.IY, l.V0, l.VY
	lo, hi, sum := int64(math.MaxInt64), int64(math.MinInt64), 0.0
	y, total = y[:len(x)], total[:len(x)]
	for i, c := range x {
		fy := float64(y[i])
		p := (i0 + ix*float64(c) + iy*fy) * (v0 + vy*fy)
		total[i] += p
		sum += p
		q := ordered(p)
		lo, hi = min(lo, q), max(hi, q)
	}
	return Extreme{unordered(lo), unordered(hi), sum}
}
