package marker

import (
	"math"

	"wattmark/measure"
)

// windowSpread is the standard uncertainty of the logarithm of a sensor's
// averaging window: it is known from the architecture only, and cards differ.
const windowSpread = 0.3

// updateWork is the memory of a fit, kept from one candidate to the next.
type updateWork struct {
	all    []update // around the marker, at the sensor's own instants
	seen   []update
	edges  []edge
	y, x   []float64
	trials []trialT0
}

// trialT0 is one begin of the code, and one window, with the sum of squares
// that they leave.
type trialT0 struct{ t0, lnW, cost float64 }

// fit refines a candidate whose code begins near t0; nil where the updates
// there are not a marker.
func (u *updates) fit(kind Kind, t0 float64) *Found {
	chip := float64(u.spec.Chip)
	uClock, ok := u.gather(t0)
	if !ok {
		return nil
	}
	// The tag first, at the best t0 for guard and code alone; it is read again
	// once the tag's own chips have helped to place the marker.
	spec := u.spec
	t0 = u.search(spec, kind, t0, 0.75*chip, chip/128, true)
	spec.Tag = u.decode(kind, t0)
	t0 = u.search(spec, kind, t0, 0.3*chip, chip/256, false)
	if tag := u.decode(kind, t0); tag != spec.Tag {
		spec.Tag = tag
		t0 = u.search(spec, kind, t0, 0.3*chip, chip/256, false)
	}
	mean, spread, window := u.posterior(spec, kind, t0)
	rho, step := u.final(spec, kind, mean, window)
	if step <= 0 || rho < max(u.leastRho(), leastRho(len(u.work.y))) || !(spread < chip/2) {
		return nil
	}
	begin := measure.Seconds(mean)
	lead := measure.Seconds(spec.CodeStart()) * spec.Chip
	sigma := measure.Seconds(math.Hypot(spread, uClock))
	return &Found{
		Kind: kind, T: begin, U: sigma, Begin: begin - lead, End: begin - lead + spec.Duration(),
		Correlation: rho, Step: measure.Watt(step), Tau: measure.Seconds(u.tau),
		Tag: spec.Tag, TagOK: spec.Tag == u.spec.Tag, Fallback: spec.Code == UpDown,
		Edges: []Edge{{Chip: 0, T: begin, U: sigma}},
	}
}

// gather copies the updates around the candidate's marker and sets their
// instants by the sensor's own clock. It returns the standard uncertainty of
// that clock, and false where the trace ends before the tag does.
func (u *updates) gather(t0 float64) (uClock float64, ok bool) {
	chip, w := float64(u.spec.Chip), &u.work
	from := t0 - float64(u.spec.Guard+1)*chip
	to := t0 + float64(u.spec.Len()-u.spec.Guard+1)*chip + u.memory()
	w.all = w.all[:0]
	for i := u.ring.first(); i < u.ring.n; i++ {
		if v := u.ring.at(i); v.t >= from && v.t < to {
			w.all = append(w.all, *v)
		}
	}
	ended := t0 + float64(u.spec.CodeLen()+2*u.spec.TagBits+1)*chip
	if len(w.all) < 6 || w.all[len(w.all)-1].t < ended {
		return 0, false
	}
	if !u.hold {
		return 0, true
	}
	return u.clock(), true
}

// choose picks the gathered updates that show nothing but a marker that begins
// at t0: guards and code, and the tag too unless noTag.
func (u *updates) choose(t0, window float64, noTag bool) {
	w, chip := &u.work, float64(u.spec.Chip)
	from := t0 + min(-float64(u.spec.Guard)*chip+window/2+5*u.tau, -chip/2) + window/2
	to := t0 + float64(u.spec.Len()-u.spec.Guard)*chip - chip/4
	if noTag {
		to = t0 + float64(u.spec.CodeLen())*chip
	}
	w.seen, w.y = w.seen[:0], w.y[:0]
	for _, v := range w.all {
		if v.t >= from && v.t <= to {
			w.seen, w.y = append(w.seen, v), append(w.y, v.p)
		}
	}
}

// levels fills x with the levels that the marker gives to the chosen updates.
func (u *updates) levels(t0, window float64) {
	w := &u.work
	w.x = w.x[:0]
	for _, v := range w.seen {
		w.x = append(w.x, u.response(w.edges, v.t-window/2-t0, window))
	}
}

// response is the sensor's answer to edges, t at the centre of its window.
func (u *updates) response(edges []edge, t, window float64) (level float64) {
	for i := range edges {
		if t <= edges[i].at-window/2 {
			break
		}
		s, _, _ := stepAt(t-edges[i].at, window, u.tau)
		level += edges[i].sign * s
	}
	return level
}

// search returns the begin of the code, within reach of t0, that leaves the
// smallest mean square.
func (u *updates) search(spec Spec, kind Kind, t0, reach, step float64, noTag bool) float64 {
	u.work.edges = edgesOf(spec.Chips(kind), spec.CodeStart(), float64(spec.Chip), u.work.edges)
	best, least := t0, math.Inf(1)
	for t := t0 - reach; t <= t0+reach; t += step {
		u.choose(t, u.window, noTag)
		u.levels(t, u.window)
		_, rise, cost, _ := u.work.line()
		if n := len(u.work.y); n >= 6 && rise > 0 && cost/float64(n) < least {
			best, least = t, cost/float64(n)
		}
	}
	return best
}

// posterior returns mean and standard deviation of t0 and the mean window over
// all that the updates allow. It looks three times, each time closer.
func (u *updates) posterior(spec Spec, kind Kind, t0 float64) (mean, spread, window float64) {
	chip := float64(spec.Chip)
	u.work.edges = edgesOf(spec.Chips(kind), spec.CodeStart(), chip, u.work.edges)
	at := belief{t0: t0, reach: 0.2 * chip, reachW: 2 * windowSpread}
	if u.window == 0 {
		at.reachW = 0
	}
	u.choose(t0, u.window*math.Exp(at.reachW), false)
	for range 3 {
		next, ok := u.weigh(at)
		if !ok {
			return t0, math.Inf(1), u.window
		}
		at = next
	}
	return at.t0, at.reach / beliefReach, u.window * math.Exp(at.lnW)
}

// belief is what is known of t0 and of the logarithm of the window's ratio to
// the nominal one: their means, and the reach of the next look around them.
type belief struct{ t0, lnW, reach, reachW float64 }

const (
	beliefReach = 4 // standard deviations to either side
	stepsT0     = 24
	stepsWindow = 6
)

// weigh tries a grid around what is believed, weighted by Student's likelihood,
// as the noise is not known beforehand, and by what is known of windows.
func (u *updates) weigh(at belief) (next belief, ok bool) {
	w, n := &u.work, float64(len(u.work.y))
	stepT, stepW := at.reach/stepsT0, at.reachW/stepsWindow
	w.trials = w.trials[:0]
	least, floor := math.Inf(1), 0.0
	for j := -stepsWindow; j <= stepsWindow; j++ {
		lnW := at.lnW + float64(j)*stepW
		window := u.window * math.Exp(lnW)
		for i := -stepsT0; i <= stepsT0; i++ {
			// The middle of a window's slope is what is seen: a wider window, an
			// earlier begin.
			t := at.t0 + float64(i)*stepT - (window-u.window*math.Exp(at.lnW))/2
			u.levels(t, window)
			if _, rise, cost, total := w.line(); rise > 0 {
				w.trials = append(w.trials, trialT0{t, lnW, cost})
				least, floor = min(least, cost), 1e-10*total
			}
		}
		if stepW == 0 {
			break
		}
	}
	var total, t, tt, l, ll float64
	for _, v := range w.trials {
		p := math.Pow((v.cost+floor)/(least+floor), -(n-4)/2) * math.Exp(-0.5*math.Pow(v.lnW/windowSpread, 2))
		dt, dl := v.t0-at.t0, v.lnW-at.lnW
		total, t, tt, l, ll = total+p, t+p*dt, tt+p*dt*dt, l+p*dl, ll+p*dl*dl
	}
	if !(total > 0) {
		return at, false
	}
	t, l = t/total, l/total
	return belief{
		t0: at.t0 + t, reach: beliefReach * math.Sqrt(max(0, tt/total-t*t)+stepT*stepT/12),
		lnW: at.lnW + l, reachW: beliefReach * math.Sqrt(max(0, ll/total-l*l)+stepW*stepW/12),
	}, true
}

// leastRho is the least correlation of the whole marker in a sensor's updates:
// there are few of them, and no neighbours to tell noise by. The longer the
// sensor's memory, the smoother the trace and the more alike are all traces.
func (u *updates) leastRho() float64 {
	return 1 - 0.15/(1+u.memory()/float64(u.spec.Chip)/2)
}

// final returns the correlation of the whole marker and its step.
func (u *updates) final(spec Spec, kind Kind, t0, window float64) (rho, step float64) {
	u.work.edges = edgesOf(spec.Chips(kind), spec.CodeStart(), float64(spec.Chip), u.work.edges)
	u.choose(t0, window, false)
	u.levels(t0, window)
	_, step, cost, total := u.work.line()
	if !(total > 0) {
		return 0, 0
	}
	return math.Sqrt(max(0, 1-cost/total)), step
}
