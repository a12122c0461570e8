package marker

import (
	"math"
	"slices"
)

// The parameters of the marker's model, by their column.
const (
	parT0      = iota // begin of the code, behind the first guess
	parTau            // ln of the time constant of rises, of both where not split
	parStep           // high less low
	parLow            // level of low
	parDrift          // watts a second
	parFall           // ln of the time constant of falls
	parStretch        // relative excess of the chip's length
	params
)

type vector [params]float64

// model is the trace that a marker makes:
//
//	p(t) = low + drift·(t − middle) + step·Σ ±S(t − t0 − (1 + stretch)·edge)
//
// over the chip edges, with S the response to a unit step.
type model struct {
	pts    []point
	origin float64 // the first guess of t0; all times below count from it
	middle float64
	box    float64
	edges  []edge
	split  bool // falls have a time constant of their own
	scale  bool // the chip's length is fitted freely
	fixed  bool // tau is given
	par    vector
	// prior is the weight of a guess of ln tau, in W²: it keeps a time constant
	// that the noise hides within reason, and yields to any data.
	prior, guess float64
	// clocks is the weight of two clocks that run alike, in W²: host and meter
	// count a chip differently by some 1e-5, which the best edges show. Unused
	// where the chip's length is free.
	clocks float64
}

// edge is a change of level between two chips.
type edge struct {
	chip int     // the chip that begins here, from the first of the code
	at   float64 // seconds behind the begin of the code
	sign float64
}

// edgesOf lists the level changes of a marker's chips.
func edgesOf(chips []bool, codeStart int, chip float64, into []edge) []edge {
	into = into[:0]
	for i := 1; i < len(chips); i++ {
		if chips[i] != chips[i-1] {
			k := i - codeStart
			into = append(into, edge{chip: k, at: float64(k) * chip, sign: sign(chips[i])})
		}
	}
	return into
}

// tau returns the time constants of rises and falls.
func (m *model) tau(par *vector) (rise, fall float64) {
	rise = math.Exp(par[parTau])
	if m.split {
		return rise, math.Exp(par[parFall])
	}
	return rise, rise
}

// each calls f for every point with the model's value without its step's
// scale, the residual, the derivatives by the parameters, and the number of
// edges that have begun. steady points lie on a level: only the derivatives by
// step, low and drift are not zero there.
func (m *model) each(par *vector, f func(level, residual float64, row *vector, begun int, steady bool)) {
	rise, fall := m.tau(par)
	slowest := settle * max(rise, fall)
	stretch := 1 + par[parStretch]
	var row vector
	row[parLow] = 1
	done, begun, base := 0, 0, 0.0
	for i := range m.pts {
		t := m.pts[i].t - m.origin - par[parT0]
		for begun < len(m.edges) && t > m.edges[begun].at*stretch-m.box/2 {
			begun++
		}
		for done < begun && t-m.edges[done].at*stretch-m.box/2 >= slowest {
			base += m.edges[done].sign
			done++
		}
		level, steady := base, done == begun
		row[parT0], row[parTau], row[parFall], row[parStretch] = 0, 0, 0, 0
		for k := done; k < begun; k++ {
			e := &m.edges[k]
			level += m.addEdge(par, e, t-e.at*stretch, rise, fall, &row)
		}
		row[parStep] = level
		row[parDrift] = m.pts[i].t - m.middle
		y := par[parLow] + par[parDrift]*row[parDrift] + par[parStep]*level
		f(level, m.pts[i].p-y, &row, begun, steady)
	}
}

// addEdge adds one edge's derivatives to row and returns its share of the level.
func (m *model) addEdge(par *vector, e *edge, t, rise, fall float64, row *vector) float64 {
	tau, column := rise, parTau
	if e.sign < 0 {
		tau = fall
		if m.split {
			column = parFall
		}
	}
	s, dt, dTau := stepAt(t, m.box, tau)
	a := par[parStep] * e.sign
	row[parT0] -= a * dt
	if !m.fixed {
		row[column] += a * dTau
	}
	if m.scale || m.clocks > 0 {
		row[parStretch] -= a * dt * e.at
	}
	return e.sign * s
}

// normal builds the normal equations at par: the sum of squares with the
// prior's share, JᵀJ and Jᵀr.
func (m *model) normal(par *vector, h *[params]vector, g *vector) (cost float64) {
	*h, *g = [params]vector{}, vector{}
	m.each(par, func(_, r float64, row *vector, _ int, steady bool) {
		cost += r * r
		from, to := parStep, parFall
		if !steady {
			from, to = 0, params
		}
		for a := from; a < to; a++ {
			x := row[a]
			g[a] += x * r
			for b := from; b <= a; b++ {
				h[a][b] += x * row[b]
			}
		}
	})
	cost += m.addPrior(parTau, par, h, g)
	if m.split {
		cost += m.addPrior(parFall, par, h, g)
	}
	if !m.scale {
		d := par[parStretch]
		h[parStretch][parStretch] += m.clocks
		g[parStretch] -= m.clocks * d
		cost += m.clocks * d * d
	}
	for a := range params {
		for b := range a {
			h[b][a] = h[a][b]
		}
		if h[a][a] == 0 {
			h[a][a] = 1 // not fitted: it stays where it is
		}
	}
	return cost
}

func (m *model) addPrior(a int, par *vector, h *[params]vector, g *vector) float64 {
	d := m.guess - par[a]
	if !m.fixed {
		h[a][a] += m.prior
		g[a] += m.prior * d
	}
	return m.prior * d * d
}

// settle is the number of time constants after which a step counts as done:
// the remainder, 6e-6 of it, is below every converter's resolution.
const settle = 12

// stepAt returns the response at time t to a unit step at time 0 that passes a
// first-order lag tau and is then averaged over a centred window box, and its
// derivatives by t and by ln tau. Seconds; box may be 0.
func stepAt(t, box, tau float64) (s, dt, dlnTau float64) {
	if t <= -box/2 {
		return 0, 0, 0
	}
	if t-box/2 >= settle*tau {
		return 1, 0, 0
	}
	if box < 1e-3*tau {
		e := math.Exp(-t / tau)
		if t <= 0 {
			return 0, 0, 0
		}
		return 1 - e, e / tau, -t / tau * e
	}
	// With R(t) = t − τ(1 − e^(−t/τ)), the integral of the lag's answer, the
	// average is (R(t+box/2) − R(t−box/2)) / box.
	hi := t + box/2
	e := math.Exp(-hi / tau)
	s = hi - tau*(1-e)
	dt = 1 - e
	dlnTau = -tau + (tau+hi)*e
	if lo := t - box/2; lo > 0 {
		e := math.Exp(-lo / tau)
		s -= lo - tau*(1-e)
		dt -= 1 - e
		dlnTau -= -tau + (tau+lo)*e
	}
	return s / box, dt / box, dlnTau / box
}

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

// belief is the knowledge of t0 and of the logarithm of the window's ratio to
// the nominal one: their means, and the reach of the next look around them.
type belief struct {
	t0, lnW, reach, reachW float64
	evidence               float64 // ln of the likelihood of all that was tried
}

// posterior returns mean and standard deviation of t0 over all that the updates
// allow: any begin, any window about the nominal one, and a lag in its place,
// as makers do not state which it is and some cards have one. It also returns
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
// the median of their residuals from the model shows their noise.
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

// weigh tries a grid around the belief, weighted by Student's likelihood,
// as the noise is not known beforehand, and by the prior of windows.
func (u *updates) weigh(at belief, shape func(float64) kernel) (next belief, ok bool) {
	stepT, stepW := at.reach/stepsT0, at.reachW/stepsWindow
	least, floor, logDet := u.tryGrid(at, stepT, stepW, shape)
	half := (float64(len(u.work.y)) - 4) / 2
	var total, t, tt, l, ll float64
	for _, v := range u.work.trials {
		likelihood := math.Pow((v.cost+floor)/(least+floor), -half)
		p := likelihood * math.Exp(-0.5*(math.Pow(v.lnW/windowSpread, 2)+v.logDet-logDet))
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
		// A value stands at the middle of its window: the wider the window, the
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
// points are dense: each edge is only known to lie between two points.
func (s *sampled) room(m *model, tau float64) float64 {
	soft := tau + m.box/2
	if soft >= s.space/2 {
		return 0
	}
	return 0.8 * s.space / float64(len(m.edges)) * (1 - 2*soft/s.space)
}
