package marker

import "math"

// clock replaces the instants by a straight line through them where the sensor
// keeps a steady period: polls place one update to a few milliseconds, and
// sixty of them together thirty times better.
func (u *updates) clock() (uClock float64) {
	all := u.work.all
	var n, sk, st, skk, skt, half, k float64
	index := make([]float64, len(all))
	for i, v := range all {
		if i > 0 {
			k += max(1, math.Round((v.t-all[i-1].t)/u.period))
		}
		index[i] = k
		if v.guess {
			continue
		}
		t := v.t - all[0].t
		n, sk, st, skk, skt, half = n+1, sk+k, st+t, skk+k*k, skt+k*t, half+v.half
	}
	if n < 4 {
		return u.period / math.Sqrt(12)
	}
	slope := (n*skt - sk*st) / (n*skk - sk*sk)
	first := (st - slope*sk) / n
	half /= n
	var off, worst float64
	for i, v := range all {
		if v.guess {
			continue
		}
		r := v.t - all[0].t - first - slope*index[i]
		off += r * r
		worst = max(worst, math.Abs(r)-v.half)
	}
	if rms := math.Sqrt(off / n); rms > half || worst > half {
		// No steady period: every update is known to its own two polls only, and
		// a handful of them, those across an edge, place the marker.
		return half / math.Sqrt(3*max(1, n/8))
	}
	begin := all[0].t
	for i := range all {
		all[i].t = begin + first + slope*index[i]
	}
	return half / math.Sqrt(3*n)
}

// line fits y = low + step·x and returns the sum of squares that is left.
func (w *updateWork) line() (low, step, cost, total float64) {
	n := float64(len(w.y))
	var sx, sy, sxx, sxy, syy float64
	for i, x := range w.x {
		sx, sy = sx+x, sy+w.y[i]
	}
	mx, my := sx/n, sy/n
	for i, x := range w.x {
		dx, dy := x-mx, w.y[i]-my
		sxx, sxy, syy = sxx+dx*dx, sxy+dx*dy, syy+dy*dy
	}
	if sxx > 0 {
		step = sxy / sxx
	}
	return my - step*mx, step, max(0, syy-step*sxy), syy
}

// decode reads the tag: each bit is the amplitude of a high-low pair of chips,
// and all amplitudes together are fitted to what guard and code leave over, as
// a long window mixes neighbouring bits.
func (u *updates) decode(kind Kind, t0 float64) (tag uint32) {
	w, bits := &u.work, u.spec.TagBits
	if bits == 0 {
		return 0
	}
	base, pairs := u.tagShapes(kind)
	w.edges = append(w.edges[:0], base...)
	u.choose(t0, u.window, true)
	u.levels(t0, u.window)
	low, step, _, _ := w.line()
	u.choose(t0, u.window, false)
	u.levels(t0, u.window)
	columns := make([][]float64, bits)
	rest := make([]float64, len(w.seen))
	for i, v := range w.seen {
		rest[i] = w.y[i] - low - step*w.x[i]
		for b := range columns {
			columns[b] = append(columns[b], step*u.response(pairs[b], v.t-u.window/2-t0, u.window))
		}
	}
	for b, amplitude := range leastSquares(columns, rest) {
		if amplitude > 0 {
			tag |= 1 << (bits - 1 - b)
		}
	}
	return tag
}

// tagShapes returns the edges of the marker with its tag at half height, and
// those of each bit, the most significant first, about that half height.
func (u *updates) tagShapes(kind Kind) (base []edge, pairs [][]edge) {
	chip := float64(u.spec.Chip)
	plain := u.spec
	plain.TagBits = 0
	n := plain.CodeLen()
	// Guards are low, and so is the chip behind the code.
	base = edgesOf(plain.Chips(kind), plain.CodeStart(), chip, nil)
	at := float64(n) * chip
	end := at + float64(2*u.spec.TagBits)*chip
	base = append(base, edge{chip: n, at: at, sign: 0.5}, edge{chip: n + 2*u.spec.TagBits, at: end, sign: -0.5})
	for range u.spec.TagBits {
		pairs = append(pairs, []edge{{at: at, sign: 0.5}, {at: at + chip, sign: -1}, {at: at + 2*chip, sign: 0.5}})
		at += 2 * chip
	}
	return base, pairs
}

// leastSquares returns the amplitudes of columns that fit y best, by Gauss and
// Seidel's sweeps over the normal equations, which always converge there.
func leastSquares(columns [][]float64, y []float64) []float64 {
	out := make([]float64, len(columns))
	rest := append([]float64(nil), y...)
	for range 60 {
		for b, col := range columns {
			var num, den float64
			for i, c := range col {
				num += c * rest[i]
				den += c * c
			}
			if den == 0 {
				continue
			}
			d := num / den
			out[b] += d
			for i, c := range col {
				rest[i] -= d * c
			}
		}
	}
	return out
}
