package marker

import (
	"math"
	"slices"
)

const (
	// windowSpread is the standard uncertainty of the logarithm of a sensor's
	// averaging window: it is known from the architecture only, and cards differ.
	windowSpread = 0.3
	beliefReach  = 4 // standard deviations to either side
	stepsT0      = 16
	stepsWindow  = 6
)

// trialT0 is one begin of the code, and one window, with the sum of squares
// that they leave.
type trialT0 struct{ t0, lnW, cost, logDet float64 }

// belief is what is known of t0 and of the logarithm of the window's ratio to
// the nominal one: their means, and the reach of the next look around them.
type belief struct {
	t0, lnW, reach, reachW float64
	evidence               float64 // ln of the likelihood of all that was tried
}

// posterior returns mean and standard deviation of t0 over all that the updates
// allow: any begin, any window about the nominal one, and a lag in its place,
// as makers do not say which it is and some cards have one. It also returns
// the likeliest kernel.
func (u *updates) posterior(spec Spec, kind Kind, t0 float64) (mean, spread float64, seen kernel) {
	u.work.edges = edgesOf(spec.Chips(kind), spec.CodeStart(), float64(spec.Chip), u.work.edges)
	reachW := 2 * windowSpread
	if u.window == 0 {
		reachW = 0
	}
	widest := u.window * math.Exp(reachW)
	u.choose(t0, max(widest, u.window)+5*u.tau, false)
	u.noise(t0)
	at, ok := u.believe(t0, reachW, u.boxcar)
	if !ok {
		return t0, math.Inf(1), u.boxcar(u.window)
	}
	mean, spread = at.t0, at.reach/beliefReach
	seen = u.boxcar(u.window * math.Exp(at.lnW))
	if memory := 2.5 * widest; u.window > 0 && memory < float64(spec.Guard-1)*float64(spec.Chip) {
		u.choose(t0, memory, false)
		if lag, ok := u.believe(t0, reachW, u.lag); ok {
			p := 1 / (1 + math.Exp(at.evidence-lag.evidence))
			apart := lag.t0 - at.t0
			spread = math.Sqrt((1-p)*spread*spread + p*math.Pow(lag.reach/beliefReach, 2) + p*(1-p)*apart*apart)
			mean += p * apart
			if p > 0.5 {
				seen = u.lag(u.window * math.Exp(lag.lnW))
			}
		}
	}
	return mean, max(spread, u.scatter(mean, seen)), seen
}

// noise sets sigma and step of the chosen updates: most lie on a level, so that
// the median of what is left beside the model shows their noise.
func (u *updates) noise(t0 float64) {
	w := &u.work
	w.sigma = 0
	u.levels(t0, u.boxcar(u.window))
	low, step, _, _ := w.line()
	rest := make([]float64, len(w.x))
	for i, x := range w.x {
		rest[i] = math.Abs(w.y[i] - low - step*x)
	}
	slices.Sort(rest)
	w.step = step
	w.sigma = max(1.48*rest[len(rest)/2], 1e-5*math.Abs(step))
}

// believe looks three times, each time closer.
func (u *updates) believe(t0, reachW float64, shape func(float64) kernel) (belief, bool) {
	at := belief{t0: t0, reach: 0.2 * float64(u.spec.Chip), reachW: reachW}
	for range 3 {
		next, ok := u.weigh(at, shape)
		if !ok {
			return at, false
		}
		at = next
	}
	return at, true
}

// weigh tries a grid around what is believed, weighted by Student's likelihood,
// as the noise is not known beforehand, and by what is known of windows.
func (u *updates) weigh(at belief, shape func(float64) kernel) (next belief, ok bool) {
	stepT, stepW := at.reach/stepsT0, at.reachW/stepsWindow
	least, floor, logDet := u.tryGrid(at, stepT, stepW, shape)
	half := (float64(len(u.work.y)) - 4) / 2
	var total, t, tt, l, ll float64
	for _, v := range u.work.trials {
		p := math.Pow((v.cost+floor)/(least+floor), -half) * math.Exp(-0.5*(math.Pow(v.lnW/windowSpread, 2)+v.logDet-logDet))
		dt, dl := v.t0-at.t0, v.lnW-at.lnW
		total, t, tt, l, ll = total+p, t+p*dt, tt+p*dt*dt, l+p*dl, ll+p*dl*dl
	}
	if !(total > 0) || !(half > 0) {
		return at, false
	}
	t, l = t/total, l/total
	cell := stepT
	if stepW > 0 {
		cell *= stepW
	}
	return belief{
		t0: at.t0 + t, reach: beliefReach * math.Sqrt(max(0, tt/total-t*t)+stepT*stepT/12),
		lnW: at.lnW + l, reachW: beliefReach * math.Sqrt(max(0, ll/total-l*l)+stepW*stepW/12),
		evidence: math.Log(total*cell) - half*math.Log(least+floor) - logDet/2,
	}, true
}

// tryGrid fills trials and returns the least sum of squares, the smallest one
// that rounding leaves meaningful, and the ln of the determinant that goes with
// the least.
func (u *updates) tryGrid(at belief, stepT, stepW float64, shape func(float64) kernel) (least, floor, logDet float64) {
	w := &u.work
	w.trials = w.trials[:0]
	least = math.Inf(1)
	for j := -stepsWindow; j <= stepsWindow; j++ {
		lnW := at.lnW + float64(j)*stepW
		window := u.window * math.Exp(lnW)
		k := shape(window)
		// The middle of what is shown is what is seen: the wider the window, the
		// earlier the begin.
		shift := (window - u.window*math.Exp(at.lnW)) / 2
		for i := -stepsT0; i <= stepsT0; i++ {
			t := at.t0 + float64(i)*stepT - shift
			u.levels(t, k)
			if _, rise, cost, total := w.line(); rise > 0 {
				w.trials = append(w.trials, trialT0{t, lnW, cost, w.logDet})
				if cost < least {
					least, floor, logDet = cost, 1e-10*total, w.logDet
				}
			}
		}
		if stepW == 0 {
			break
		}
	}
	return least, floor, logDet
}

// scatter is the standard uncertainty of t0 that the updates across edges show
// themselves (the sandwich estimator): where the sensor's clock wanders they
// scatter, and the many on a level do not.
func (u *updates) scatter(t0 float64, k kernel) float64 {
	w, h := &u.work, float64(u.spec.Chip)/1024
	u.levels(t0-h, k)
	lean := append([]float64(nil), w.x...)
	u.levels(t0+h, k)
	for i, x := range w.x {
		lean[i] = (lean[i] - x) / (2 * h)
	}
	u.levels(t0, k)
	low, step, _, _ := w.line()
	var info, info2, square float64
	for i, x := range w.x {
		g := step * lean[i]
		p := g * g / w.v[i]
		r := (w.y[i] - low - step*x) / w.v[i]
		info, info2, square = info+p, info2+p*p, square+g*g*r*r
	}
	if info == 0 {
		return 0
	}
	// Few updates lie across an edge, and t0 and window were fitted to them.
	n := info * info / info2
	return math.Sqrt(square*n/max(n-2, 1)) / info
}
