package clocksync

import (
	"math"
	"slices"

	"wattmark/measure"
)

const (
	maxJumps = 8
	// beside is how many edges on either side speak for a jump, minBeside how many
	// must.
	beside, minBeside = 10, 3
	// leastJump is what a wandering clock does between neighbours without jumping.
	leastJump = 0.12e-3
	// sureJump is how many standard uncertainties a jump must be.
	sureJump = 6
)

// jump looks for the place of the most evident jump that is not known yet. The
// scatter is taken from neighbours, so that neither a jump nor a wrong slope widens
// it.
func (s *solver) jump() (at float64, ok bool) {
	scale := s.roughness()
	if at, ok = s.largeJump(scale); ok {
		return at, ok
	}
	return s.smallJump(scale)
}

// smallJump looks for the place at which one more step in the fit would be the most
// significant, by all edges: the step's column is freed from what the others can say
// of it (R. Frisch and F. V. Waugh, Econometrica 1 (1933) 387).
func (s *solver) smallJump(scale float64) (at float64, ok bool) {
	k := columns + len(s.jumps)
	row, v := make([]float64, k), make([]float64, k)
	var num, den, sum float64
	best := sureJump * scale
	for i := len(s.x) - 1; i >= minBeside; i-- {
		w := s.w[i] / (s.scale * s.scale * s.u[i] * s.u[i])
		s.row(i, row)
		for p := range v {
			v[p] += w * row[p]
		}
		num += w * s.residual[i]
		sum += w
		if len(s.x)-i < minBeside || slices.Contains(s.jumps, s.between(i)) {
			continue
		}
		den = sum
		for p := range v {
			for q := range v {
				den -= v[p] * s.cov.At(p, q) * v[q]
			}
		}
		if den < 1e-6*sum {
			continue
		}
		// The scatter of the size is scale/√(edges), sum being edges/(scale² as fitted).
		size := num / den
		u := scale * math.Sqrt(sum/den) / math.Sqrt(float64(len(s.x)-i))
		if math.Abs(size) > max(leastJump, 3*scale) && math.Abs(size)/u*scale > best {
			best, at, ok = math.Abs(size)/u*scale, s.between(i), true
		}
	}
	return at, ok
}

// largeJump looks for the place at which the residuals on both sides differ most.
func (s *solver) largeJump(scale float64) (at float64, ok bool) {
	best := 0.0
	for k := minBeside; k+minBeside <= len(s.x); k++ {
		if slices.Contains(s.jumps, s.between(k)) {
			continue
		}
		before, after := s.residual[s.side(k, -1):k], s.residual[k:s.side(k, 1)]
		size := median(slices.Clone(after)) - median(slices.Clone(before))
		u := scale * math.Sqrt(math.Pi/2*(1/float64(len(before))+1/float64(len(after))))
		if z := math.Abs(size) / u; z > sureJump && math.Abs(size) > max(leastJump, 3*scale) && z > best {
			best, at, ok = z, s.between(k), true
		}
	}
	return at, ok
}

// between is the place half-way between edges k − 1 and k.
func (s *solver) between(k int) float64 { return (s.x[k-1] + s.x[k]) / 2 }

// side is how far the edges on a side of k reach, up to the next known jump.
func (s *solver) side(k, way int) int {
	i := k
	for n := 0; n < beside && i+way >= 0 && i+way <= len(s.x); n++ {
		i += way
		if i > 0 && i < len(s.x) && slices.Contains(s.jumps, s.between(i)) {
			break
		}
	}
	return i
}

// roughness is the scatter of the residuals by second differences of a kind.
func (s *solver) roughness() float64 {
	var d []float64
	last := map[bool]float64{}
	seen := map[bool]bool{}
	for i, e := range s.edges {
		if seen[e.End] {
			d = append(d, math.Abs(s.residual[i]-last[e.End]))
		}
		last[e.End], seen[e.End] = s.residual[i], true
	}
	if len(d) == 0 {
		return math.Inf(1)
	}
	return max(madToSigma*median(d)/math.Sqrt2, 1e-6)
}

// prune drops jumps that the whole fit does not bear out.
func (s *solver) prune() {
	for {
		drop := -1
		for j := range s.jumps {
			size, u := s.beta[columns+j], math.Sqrt(s.cov.At(columns+j, columns+j))
			if math.Abs(size) < 4*u || math.Abs(size) < leastJump {
				drop = j
			}
		}
		if drop < 0 {
			return
		}
		s.jumps = slices.Delete(s.jumps, drop, drop+1)
		s.robustly()
	}
}

// describe says where jump j is and how large.
func (s *solver) describe(j int, at float64, start measure.Seconds, grow float64) Jump {
	out := Jump{
		At:   start + measure.Seconds(at),
		Size: measure.Seconds(s.beta[columns+j]), U: measure.Seconds(2 * grow * math.Sqrt(s.cov.At(columns+j, columns+j))),
	}
	for i, x := range s.x {
		if s.w[i] == 0 {
			continue
		}
		if x < at {
			out.Edges[0]++
		} else {
			out.Edges[1]++
		}
	}
	k, _ := slices.BinarySearch(s.x, at)
	if k > 0 && k < len(s.x) {
		out.UAt = measure.Seconds(s.x[k]-s.x[k-1]) / 2
	}
	return out
}

// single collects rejected edges both of whose neighbours fit.
func (f *Fit) single() {
	for i, e := range f.Edges {
		if !e.Used && (i == 0 || f.Edges[i-1].Used) && (i+1 == len(f.Edges) || f.Edges[i+1].Used) {
			f.Single = append(f.Single, e)
		}
	}
}
