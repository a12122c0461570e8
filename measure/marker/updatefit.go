package marker

import (
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
)

const (
	// gpuSlew is measure.UPowerResponse in seconds: no sensor's updates show that delay.
	gpuSlew = float64(measure.UPowerResponse)
	// lagWander is the standard uncertainty of a sensor's lag at one marker, relative to the lag that is
	// corrected: an H200's grows by some 0.2 ms a second and falls back to none at 20 ms, so that it lies
	// anywhere between none and twice its mean, which is corrected (rectangular: GUM, 4.3.7).
	lagWander = 1 / 1.7320508075688772
)

// skipped is the share of updates, one in so many, up to which repeated values
// are updates left out.
const skipped = 6

// kernel is how an update shows a step of power: the mean over box after a lag
// tau, read behind seconds after the middle of the window that it shows.
type kernel struct{ box, tau, behind float64 }

// boxcar is the kernel of a sensor that averages over a window.
func (u *updates) boxcar(window float64) kernel {
	return kernel{box: window, tau: u.tau, behind: window / 2}
}

// lag is the kernel of a sensor that follows with a time constant instead; the
// same mean delay as a window's takes half of it.
func (u *updates) lag(window float64) kernel { return kernel{tau: window / 2} }

// updateWork is the memory of a fit, kept from one candidate to the next.
type updateWork struct {
	all    []update // around the marker, at the sensor's own instants
	seen   []update
	edges  []edge
	y, x   []float64
	v      []float64 // variance of y in units of sigma²
	sigma  float64   // noise of a value on a level, watts; 0: all v are 1
	step   float64   // turns the uncertainty of an instant into watts
	logDet float64   // Σ ln v
	trials []trialT0
}

// fit refines a candidate whose code begins near t0; nil where the updates
// there are not a marker.
func (u *updates) fit(kind Kind, t0 float64) *Found {
	chip := float64(u.spec.Chip)
	u.work.sigma = 0
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
	mean, spread, seen := u.posterior(spec, kind, t0)
	rho, step := u.final(mean, seen)
	if step <= 0 || rho < u.leastRho(len(u.work.y)) || !(spread < chip/4) {
		return nil
	}
	if rho < noJump {
		if t, uT, k, ok := u.unjumped(spec, kind, mean, seen); ok {
			mean, spread = t, uT
			rho, step = u.final(mean, k)
		}
	}
	begin := measure.Seconds(mean)
	lead := measure.Seconds(spec.CodeStart()) * spec.Chip
	cut := u.cut(mean)
	wander := lagWander * lagWander * u.shift * u.shift
	sigma := measure.Seconds(math.Sqrt(spread*spread + uClock*uClock + gpuSlew*gpuSlew + wander + cut*cut))
	return &Found{
		Kind: kind, T: begin, U: sigma, Begin: begin - lead, End: begin - lead + spec.Duration(),
		Correlation: rho, Step: measure.Watt(step), Tau: measure.Seconds(u.tau),
		Tag: spec.Tag, TagOK: spec.Tag == u.spec.Tag, Fallback: spec.Code == UpDown,
		Edges: []Edge{{Chip: 0, T: begin, U: sigma}},
	}
}

// cut is the part of clipped updates in the standard uncertainty of a marker's time:
// of the sensor's response to an edge only a part is seen, it is not
// known which, so the edge may lie anywhere within it, to either side.
func (u *updates) cut(t0 float64) float64 {
	chip := float64(u.spec.Chip)
	from, to := t0-float64(u.spec.CodeStart())*chip, t0+float64(u.spec.Len()-u.spec.Guard)*chip
	for i := range u.work.all {
		if v := &u.work.all[i]; v.clipped && v.t >= from && v.t < to {
			return max(u.window+u.tau, u.period) / math.Sqrt(3)
		}
	}
	return 0
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
	uClock = u.clock()
	// The guesses are dropped where they are few. A value that stays for two periods is the same again where the
	// sensor is coarse, and often so; a fine one has left an update out then, as an H200 does with one in sixteen, and
	// the value it still shows is old.
	guesses := 0
	for _, v := range w.all {
		if v.guess {
			guesses++
		}
	}
	if guesses <= len(w.all)/skipped {
		w.all = slices.DeleteFunc(w.all, func(v update) bool { return v.guess })
	}
	return uClock, true
}

// choose picks the gathered updates that show nothing but a marker that begins
// at t0: guards and code, and the tag too unless noTag.
func (u *updates) choose(t0, memory float64, noTag bool) {
	w, chip := &u.work, float64(u.spec.Chip)
	from := t0 + min(-float64(u.spec.Guard)*chip+memory, -chip/2)
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

// levels fills x with the levels that the marker gives to the chosen updates,
// and v with their variances: an update across an edge is as uncertain as its
// instant is.
func (u *updates) levels(t0 float64, k kernel) {
	w := &u.work
	w.x, w.v, w.logDet = w.x[:0], w.v[:0], 0
	for _, seen := range w.seen {
		level, slope := k.response(w.edges, seen.t-k.behind-t0)
		v := 1.0
		if w.sigma > 0 && seen.u > 0 && slope != 0 {
			r := w.step * slope * seen.u / w.sigma
			v += r * r
			w.logDet += math.Log(v)
		}
		w.x, w.v = append(w.x, level), append(w.v, v)
	}
}

// response is a sensor's answer to edges, and its slope.
func (k kernel) response(edges []edge, t float64) (level, slope float64) {
	for i := range edges {
		if t <= edges[i].at-k.box/2 {
			break
		}
		s, dt, _ := stepAt(t-edges[i].at, k.box, k.tau)
		level += edges[i].sign * s
		slope += edges[i].sign * dt
	}
	return level, slope
}

// search returns the begin of the code, within reach of t0, that leaves the
// smallest mean square.
func (u *updates) search(spec Spec, kind Kind, t0, reach, step float64, noTag bool) float64 {
	u.work.edges = edgesOf(spec.Chips(kind), spec.CodeStart(), float64(spec.Chip), u.work.edges)
	best, least := t0, math.Inf(1)
	for t := t0 - reach; t <= t0+reach; t += step {
		u.choose(t, u.memory(), noTag)
		u.levels(t, u.boxcar(u.window))
		_, rise, cost, _ := u.work.line()
		if n := len(u.work.y); n >= 6 && rise > 0 && cost/float64(n) < least {
			best, least = t, cost/float64(n)
		}
	}
	return best
}

// leastRho is the least correlation of the whole marker in n updates of a
// sensor: there are few, and no neighbours to estimate noise from. The longer the
// sensor's memory, the fewer of them are new, and the more alike all traces.
func (u *updates) leastRho(n int) float64 {
	fresh := min(1, 2*u.period/(u.period+u.memory()))
	least := 1 - 0.15/(1+u.memory()/float64(u.spec.Chip)/2)
	return max(least, leastRho(int(fresh*float64(n))))
}

// final returns the correlation of the whole marker and its step.
func (u *updates) final(t0 float64, k kernel) (rho, step float64) {
	u.work.sigma = 0
	u.levels(t0, k)
	_, step, cost, total := u.work.line()
	if !(total > 0) {
		return 0, 0
	}
	return math.Sqrt(max(0, 1-cost/total)), step
}

// line fits y = low + step·x and returns the weighted sum of squares that is
// left, and the one about the mean.
func (w *updateWork) line() (low, step, cost, total float64) {
	var n, sx, sy, sxx, sxy, syy float64
	for i, x := range w.x {
		p := 1 / w.v[i]
		n, sx, sy = n+p, sx+p*x, sy+p*w.y[i]
	}
	mx, my := sx/n, sy/n
	for i, x := range w.x {
		p, dx, dy := 1/w.v[i], x-mx, w.y[i]-my
		sxx, sxy, syy = sxx+p*dx*dx, sxy+p*dx*dy, syy+p*dy*dy
	}
	if sxx > 0 {
		step = sxy / sxx
	}
	return my - step*mx, step, max(0, syy-step*sxy), syy
}

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
	// flicker bounds, in steps, the deviation of one update from the model: near its
	// jump the lag goes back and forth.
	flicker = 0.2
)

// jump is a jump of a sensor's lag: updates from the given instant on show the power
// some seconds later than those before it do.
type jump struct {
	from, by float64
	before   float64 // how far the marker's begin lies behind the guess, with the jump
	spread   float64 // standard uncertainty of by
	gain     float64 // of log likelihood
	// the uncertainty that it was seen with
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

// decode reads the tag: each bit is the amplitude of a high-low pair of chips,
// and all amplitudes together are fitted to the residuals of guard and code, as
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
