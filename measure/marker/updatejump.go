package marker

import "math"

const (
	// jumpSteps is the number of instants tried to either side of a marker's time,
	// over one window.
	jumpSteps = 25
	// leastJump is the smallest jump, in steps: a third of a window. The windows of
	// an H200 jump by 20 of their 25 ms.
	leastJump = 8
	// jumpGain is the gain of log likelihood from which on a jump is believed:
	// some 60 places and 51 × 51 shifts are tried, whose logarithm is 12.
	// jumpAgain is that gain for a closer look at a jump that is believed.
	jumpGain, jumpAgain = 16, 2
	// noJump is the correlation from which on there is none: the smallest one, seen
	// by a single update whole, leaves 0.997, and by part of one more.
	noJump = 0.9995
	// jumpSpread is the standard uncertainty, in steps, of a jump that a single
	// update across an edge shows on either side.
	jumpSpread = 2
	// flicker bounds, in steps, what one update may miss the model by: near its
	// jump the lag goes back and forth.
	flicker = 0.2
)

// jump is a jump of a sensor's lag: updates from the given instant on show what
// was seconds later than those before it do.
type jump struct {
	from, by float64
	before   float64 // how far the marker's begin lies behind the guess, with the jump
	spread   float64 // standard uncertainty of by
	gain     float64 // of log likelihood
	// what it was seen with
	k         kernel
	low, step float64
}

// unjumped is the posterior once a jump of the sensor's lag is taken out. A
// sensor that averages on one clock and publishes on another has a lag that
// drifts, and falls back by a whole period of the averages once it is that
// long. The updates behind the jump are moved to where they would have been
// without it, so that the marker's time is that of its begin.
func (u *updates) unjumped(spec Spec, kind Kind, t0 float64, k kernel) (mean, spread float64, seen kernel, ok bool) {
	mean, seen = t0, k
	from := math.NaN()
	for range 3 {
		j := u.findJump(mean, seen)
		switch {
		case !ok && (j.gain < jumpGain || math.Abs(j.by) < leastJump*u.jumpStep()):
			return mean, spread, seen, ok
		case ok && (j.gain < jumpAgain || math.Abs(j.from-from) > u.period/2):
			return mean, spread, seen, ok
		}
		u.move(mean, j)
		mean, spread, seen = u.posterior(spec, kind, mean+j.before)
		spread = math.Hypot(spread, j.spread)
		from, ok = j.from-j.by, true
	}
	return mean, spread, seen, ok
}

// move takes the jump out. An update that clearly fits on the other side of the
// jump better is one of that side.
func (u *updates) move(t0 float64, j jump) {
	w := &u.work
	miss := func(v update, by float64) float64 {
		level, _ := j.k.response(w.edges, v.t-j.k.behind-t0-j.before-by)
		return math.Abs(v.p - j.low - j.step*level)
	}
	for i := range w.all {
		v := &w.all[i]
		here, there := 0.0, j.by
		if v.t >= j.from {
			here, there = there, here
		}
		if miss(*v, there) < miss(*v, here)-flicker*j.step {
			here = there
		}
		v.t -= here
	}
}

// jumpStep is the distance of the instants that are tried.
func (u *updates) jumpStep() float64 { return max(u.window, u.period/4) / jumpSteps }

// findJump returns the likeliest jump within the chosen updates.
func (u *updates) findJump(t0 float64, k kernel) (best jump) {
	w := &u.work
	w.sigma = 0
	u.levels(t0, k)
	low, step, _, _ := w.line()
	var before float64
	for i, x := range w.x {
		r := w.y[i] - low - step*x
		before += min(r*r, flicker*flicker*step*step)
	}
	across := make([]int, len(w.seen)+1)
	for i, v := range w.seen {
		across[i+1] = across[i]
		if share := (v.p - low) / step; share > 0.1 && share < 0.9 {
			across[i+1]++
		}
	}
	// The kernel was fitted to both sides at once: try the nominal ones too.
	for _, k := range [3]kernel{k, u.boxcar(u.window), u.lag(u.window)} {
		if k.box+k.tau == 0 {
			continue
		}
		at, first, second, least := u.split(t0, k, low, step, across)
		gain := float64(len(w.seen)) / 2 * math.Log(before/max(least, 1e-9*before))
		if at == 0 || gain <= best.gain {
			continue
		}
		few := float64(min(across[at], across[len(across)-1]-across[at]))
		best = jump{
			from: w.seen[at].t, by: float64(second-first) * u.jumpStep(), before: float64(first) * u.jumpStep(),
			spread: jumpSpread * u.jumpStep() / math.Sqrt(few), gain: gain, k: k, low: low, step: step,
		}
	}
	return best
}

// split finds the update from which on another shift, in steps, fits better
// than the one before it, and the sum of squares that both leave.
func (u *updates) split(t0 float64, k kernel, low, step float64, across []int) (at, first, second int, least float64) {
	w, n := &u.work, len(u.work.seen)
	var squares [2*jumpSteps + 1][]float64
	for s := range squares {
		squares[s] = make([]float64, n+1)
		shift := float64(s-jumpSteps) * u.jumpStep()
		for i, v := range w.seen {
			level, _ := k.response(w.edges, v.t-k.behind-t0-shift)
			r := v.p - low - step*level
			squares[s][i+1] = squares[s][i] + min(r*r, flicker*flicker*step*step)
		}
	}
	least = math.Inf(1)
	for i := 1; i < n; i++ {
		if across[i] == 0 || across[n] == across[i] {
			continue
		}
		a, b := 0, 0
		for s := range squares {
			if squares[s][i] < squares[a][i] {
				a = s
			}
			if squares[s][n]-squares[s][i] < squares[b][n]-squares[b][i] {
				b = s
			}
		}
		if c := squares[a][i] + squares[b][n] - squares[b][i]; c < least {
			at, first, second, least = i, a-jumpSteps, b-jumpSteps, c
		}
	}
	return at, first, second, least
}
