package marker

import (
	"math"

	"wattmark/measure"
)

// quality correlates the means of chips with the model and compares what is
// left beside it with the noise of neighbouring points. The work on a GPU may
// well correlate with a marker; it does not leave mere noise.
func (s *sampled) quality(f *fitted, chips []bool) (rho float64, good bool) {
	w, chip := &s.work, float64(s.spec.Chip)
	w.residuals, w.levels = w.residuals[:0], w.levels[:0]
	f.each(&f.par, func(_ int, level, r float64, _ *vector, _ int, _ bool) {
		w.residuals = append(w.residuals, r)
		w.levels = append(w.levels, level)
	})
	begin := f.origin + f.par[parT0] - float64(s.spec.CodeStart())*chip
	var n, sx, sy, sxx, syy, sxy, rest, share float64
	for i, k := 0, 0; k < len(chips) && i < len(f.pts); k++ {
		end := begin + float64(k+1)*chip
		var x, r float64
		from := i
		for ; i < len(f.pts) && f.pts[i].t < end; i++ {
			x += w.levels[i]
			r += w.residuals[i]
		}
		m := float64(i - from)
		if m < chip/s.space/2 {
			continue
		}
		x, r = x/m, r/m
		y := f.par[parStep]*x + r
		n, sx, sy, sxx, syy, sxy = n+1, sx+x, sy+y, sxx+x*x, syy+y*y, sxy+x*y
		rest += r * r
		share += 1 / m
	}
	if n < 6 {
		return 0, false
	}
	rho = (sxy - sx*sy/n) / math.Sqrt((sxx-sx*sx/n)*(syy-sy*sy/n))
	allowed := 2.5*whiteNoise(len(w.residuals), func(i int) float64 { return w.residuals[i] })*share/n + misfit*misfit*f.par[parStep]*f.par[parStep]
	return rho, rho >= leastRho(int(n)) && rest/(n-5) <= allowed
}

// refine lets falls be slower than rises and chips longer than told where the
// trace demands it, works out the uncertainty, and places the single edges.
func (s *sampled) refine(f *fitted) []Edge {
	s.trySplit(f)
	s.uncertainty(f)
	s.marginalise(f)
	edges := s.place(f)
	if slope, u := stretch(edges, f); math.Abs(slope) > outstanding*u && math.Abs(slope) > 20e-6 {
		trial := *f
		trial.scale = true
		trial.par[parStretch] = slope
		if s.minimise(&trial) && trial.variance < f.variance {
			*f = trial
			s.uncertainty(f)
			edges = s.place(f)
		}
	}
	if len(edges) > 0 {
		return edges
	}
	return []Edge{{Chip: 0, T: measure.Seconds(f.origin + f.par[parT0]), U: measure.Seconds(f.uT0)}}
}

// trySplit fits rises and falls apart and keeps that where it is clearly better.
func (s *sampled) trySplit(f *fitted) {
	trial := *f
	trial.split = true
	trial.par[parFall] = trial.par[parTau]
	if !s.minimise(&trial) {
		return
	}
	n := float64(len(f.pts))
	if (f.variance-trial.variance)*n > outstanding*outstanding*trial.variance {
		*f = trial
	}
}

// uncertainty sets the standard uncertainty of t0: the larger of the one for
// white noise and the one that the edges' own scatter shows (the cluster-robust
// sandwich of Liang and Zeger, one cluster an edge).
func (s *sampled) uncertainty(f *fitted) {
	lean := f.inverse[parT0]
	var sum, squares, clusters float64
	last := 0
	f.each(&f.par, func(_ int, _, r float64, row *vector, begun int, _ bool) {
		if begun != last {
			squares += sum * sum
			sum, last = 0, begun
			clusters++
		}
		var h float64
		for a := range params {
			h += lean[a] * row[a]
		}
		sum += h * r
	})
	squares = (squares + sum*sum) * clusters / max(clusters-1, 1)
	f.uT0 = math.Sqrt(max(f.inverse[parT0][parT0]*f.variance, squares))
}
