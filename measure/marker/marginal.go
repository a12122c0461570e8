package marker

import "math"

const (
	// vague is the standard uncertainty of ln tau from which on the straight
	// line between t0 and tau no longer describes their bend.
	vague = 0.2
	// tauRatio is the step of the time constants that are tried.
	tauRatio = 1.35
	// sharpest is the smallest time constant, in distances of points.
	sharpest = 0.02
)

// marginalise replaces t0 and its uncertainty by their mean and spread over
// all time constants that the trace allows, each weighted by its likelihood.
// A lag and a delay look alike in noise, so that the single best fit would name
// one of many and be far too sure of it.
func (s *sampled) marginalise(f *fitted) {
	rise, _ := f.tau(&f.par)
	known := math.Sqrt(f.inverse[parTau][parTau] * f.variance)
	if f.split || f.scale || (known < vague && rise+f.box/2 > 0.3*s.space) {
		return
	}
	trial := *f
	trial.fixed = true
	var weights, mean, square, tau, drop float64
	first := true
	top := 0.35 * float64(s.spec.Chip)
	trial.par[parT0] += rise - top
	bottom := sharpest * s.space
	if f.par[parStep] < 6*math.Sqrt(f.variance) {
		// Such noise hides between which two points an edge lies: sharper models
		// would only follow its spikes.
		bottom = 0.5 * s.space
	}
	for v := top; v > bottom; v /= tauRatio {
		trial.par[parTau] = math.Log(v)
		cost, inverse, ok := trial.solve(math.Log(v), math.Log(v), float64(s.spec.Chip))
		if ok {
			if first {
				drop, first = cost, false
			}
			// A better cost than the reference only rescales all the weights.
			w := math.Exp((drop - cost) / (2 * f.variance))
			if w > 1e12 {
				weights, mean, square, tau, drop, w = weights/w, mean/w, square/w, tau/w, cost, 1
			}
			t0, room := trial.par[parT0], s.room(&trial.model, v)
			weights += w
			mean += w * t0
			square += w * (t0*t0 + inverse[parT0][parT0]*f.variance + room*room)
			tau += w * v
		}
		// The next one is faster: the same middle of the edge is reached later.
		trial.par[parT0] += v - v/tauRatio
	}
	if !(weights > 0) || math.IsInf(square, 0) {
		return
	}
	mean /= weights
	f.par[parT0], f.par[parTau] = mean, math.Log(tau/weights)
	f.uT0 = max(f.uT0, math.Sqrt(max(0, square/weights-mean*mean)))
}

// room is the standard uncertainty of t0 where edges are sharper than the
// points are dense: each edge only says between which two points it lies.
func (s *sampled) room(m *model, tau float64) float64 {
	soft := tau + m.box/2
	if soft >= s.space/2 {
		return 0
	}
	return 0.8 * s.space / float64(len(m.edges)) * (1 - 2*soft/s.space)
}
