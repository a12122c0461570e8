package marker

import "math"

// clock replaces the instants by those of a steady clock where the sensor keeps
// one: polls place one update to a few milliseconds, and sixty of them together
// thirty times better. It returns the standard uncertainty of that clock.
func (u *updates) clock() float64 {
	all := u.work.all
	index := make([]float64, len(all))
	var k, n, half float64
	for i, v := range all {
		if i > 0 {
			k += max(1, math.Round((v.t-all[i-1].t)/u.period))
		}
		index[i] = k
		if !v.guess {
			n, half = n+1, half+v.half
		}
	}
	if n < 4 {
		return u.period / math.Sqrt(12)
	}
	half /= n
	first, slope, sigma := steady(all, index)
	if sigma > half {
		// Every update is known to its own two polls only, and a handful of them,
		// those across an edge, place the marker.
		return half / math.Sqrt(3*max(1, n/8))
	}
	begin := all[0].t
	for i := range all {
		all[i].t = begin + first + slope*index[i]
	}
	return sigma
}

// steady finds the clock, first + slope·index behind the first update, that
// ticks between the two polls of every update. The one whose phase has the most
// room is taken; that room is its uncertainty. Where none fits, as the sensor's
// own clock jitters, it is the least-squares line.
func steady(all []update, index []float64) (first, slope, sigma float64) {
	first, slope, sigma = clockLine(all, index)
	last := index[len(index)-1]
	lo, hi := slope-4*sigma/last, slope+4*sigma/last
	for range 60 {
		a, b := lo+(hi-lo)/3, hi-(hi-lo)/3
		if _, wide := room(all, index, a); wide < second(room(all, index, b)) {
			lo = a
		} else {
			hi = b
		}
	}
	if middle, wide := room(all, index, (lo+hi)/2); wide > 0 {
		// The slope has room as well; towards the ends it counts as much again.
		return middle, (lo + hi) / 2, wide / math.Sqrt(6)
	}
	return first, slope, sigma
}

func second(_, b float64) float64 { return b }

// room returns the middle and the width of the phases that a clock of the given
// period can have; the width is negative where it can have none.
func room(all []update, index []float64, slope float64) (middle, wide float64) {
	lo, hi := math.Inf(-1), math.Inf(1)
	for i, v := range all {
		if !v.guess {
			t := v.t - all[0].t - slope*index[i]
			lo, hi = max(lo, t-v.half), min(hi, t+v.half)
		}
	}
	return (lo + hi) / 2, hi - lo
}

// clockLine fits the instants by least squares, each weighted by how closely
// its polls enclose it. sigma is the larger of what polls and scatter allow.
func clockLine(all []update, index []float64) (first, slope, sigma float64) {
	var n, sw, sk, st, skk, skt float64
	for i, v := range all {
		if v.guess {
			continue
		}
		w, k, t := 3/(v.half*v.half), index[i], v.t-all[0].t
		n, sw, sk, st, skk, skt = n+1, sw+w, sk+w*k, st+w*t, skk+w*k*k, skt+w*k*t
	}
	slope = (sw*skt - sk*st) / (sw*skk - sk*sk)
	first = (st - slope*sk) / sw
	var chi2 float64
	for i, v := range all {
		if !v.guess {
			r := (v.t - all[0].t - first - slope*index[i]) / v.half
			chi2 += 3 * r * r
		}
	}
	return first, slope, math.Sqrt(max(1, chi2/(n-2)) / sw)
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
