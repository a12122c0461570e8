package marker

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
	nominal := u.boxcar(u.window)
	u.choose(t0, u.memory(), true)
	u.levels(t0, nominal)
	low, step, _, _ := w.line()
	u.choose(t0, u.memory(), false)
	u.levels(t0, nominal)
	columns := make([][]float64, bits)
	rest := make([]float64, len(w.seen))
	for i, v := range w.seen {
		rest[i] = w.y[i] - low - step*w.x[i]
		for b := range columns {
			level, _ := nominal.response(pairs[b], v.t-nominal.behind-t0)
			columns[b] = append(columns[b], step*level)
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
