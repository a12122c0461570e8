package marker

import (
	"math"

	"wattmark/measure"
)

// lagsPerChip is the resolution of the search in a sensor's updates.
const lagsPerChip = 16

// update is a new value of a slow sensor: the mean power over the window that
// ends when the value appears.
type update struct {
	t       float64 // when it appeared, between two polls
	half    float64 // half the distance of the two polls
	p       float64 // watts
	u       float64 // standard uncertainty of t that is the update's own, seconds
	clipped bool    // as of a point
	// guess marks an update that was not seen, as its value was the same again.
	guess bool
}

// updates finds markers in the readings of a sensor that shows a new value
// once a chip or less often, as NVML does, or of an instrument that samples as
// slowly. The trace is collapsed to the instants at which the value changes.
type updates struct {
	spec   Spec
	window float64 // boxcar average before a value, seconds
	tau    float64 // of the sensor's lag, seconds; very small where it has none
	period float64 // nominal distance of updates, seconds
	hold   bool    // values are held; else every scan is new
	shift  float64 // skew of the channels
	on     func(Found)

	ring  ring[update]
	prev  point // the last scan
	begun bool

	lags   *lags
	origin float64 // time of lag 0
	shapes [2]shape
	work   updateWork
}

func newUpdates(spec Spec, setup *measure.Setup, on func(Found)) *updates {
	r := setup.Response
	u := &updates{
		spec: spec, on: on, window: float64(r.Window), shift: skew(setup),
		period: float64(r.Update), hold: r.Update > 0,
	}
	if !u.hold {
		u.period = 1 / float64(setup.Timebase.SampleRate())
	}
	u.tau = max(float64(r.Tau), 1e-5*u.window, 1e-6*float64(spec.Chip))
	margin := float64(spec.Len()+2*settleChips+4)*float64(spec.Chip) + u.memory()
	u.ring = newRing[update](int(2.5*margin/u.period) + 16)
	u.shapes = [2]shape{u.shape(Start), u.shape(Stop)}
	chips := int(float64(spec.CodeLen()+spec.Guard) * min(1, float64(spec.Chip)/u.period))
	u.lags = newLags(spec, lagsPerChip, max(chips, 6), u.memory()/float64(spec.Chip), u.judge)
	return u
}

// memory is how long a value remembers what was.
func (u *updates) memory() float64 { return u.window + 5*u.tau }

// point takes the next scan and notes the values that are new.
func (u *updates) point(p point) {
	p.t -= u.shift
	if !u.begun {
		u.begun, u.prev, u.origin = true, p, p.t
		return
	}
	gap := p.t - u.prev.t
	if !(gap > 0) {
		return // a device clock that jumps back: keep what came first
	}
	if gap > 3*u.period {
		u.restart(p)
		return
	}
	last := math.Inf(-1)
	if u.ring.n > 0 {
		last = u.ring.at(u.ring.n - 1).t
	}
	now := update{t: p.t - gap/2, half: gap / 2, p: p.p, clipped: p.clipped}
	switch {
	case !u.hold:
		u.push(update{t: p.t, p: p.p, clipped: p.clipped})
	case p.p != u.prev.p && now.t-last < 0.4*u.period:
		// Another rail of the same update.
		x := u.ring.at(u.ring.n - 1)
		x.p, x.clipped = p.p, x.clipped || p.clipped
	case p.p != u.prev.p:
		u.push(now)
	case now.t-last > 1.6*u.period && !math.IsInf(last, -1):
		// The same value again is an update that cannot be seen.
		u.push(update{t: last + u.period, half: now.half, p: p.p, clipped: p.clipped, guess: true})
	}
	u.prev = p
}

// restart forgets the trace: updates were missed.
func (u *updates) restart(p point) {
	u.finish()
	u.lags.restart()
	u.ring.clear()
	u.prev, u.origin = p, p.t
}

func (u *updates) finish() { u.lags.finish() }

// fallback finds none: with one new value a chip, or fewer, any work looks like
// a plain pattern now and then.
func (u *updates) fallback([]Found) []Found { return nil }

// push takes an update and looks at every lag that it completes: those whose
// code has ended before the update's window.
func (u *updates) push(x update) {
	u.ring.push(x)
	step := float64(u.spec.Chip) / lagsPerChip
	ends := x.t - u.window/2 - u.shapes[0].to
	for n := int64((ends - u.origin) / step); u.lags.newest() < n; {
		u.correlate(u.origin + float64(u.lags.newest()+1)*step)
	}
}

// shape is a marker's guard and code as the sensor shows them, tabulated: the
// level at the centre of a window, counted from the begin of the code.
type shape struct {
	from, to float64 // where no window reaches beyond guard or into the tag
	step     float64
	level    []float64
}

func (u *updates) shape(kind Kind) shape {
	chip := float64(u.spec.Chip)
	s := shape{
		from: min(-float64(u.spec.Guard)*chip+u.window/2+5*u.tau, -chip/2),
		to:   float64(u.spec.CodeLen())*chip - u.window/2,
		step: chip / (4 * lagsPerChip),
	}
	code := u.spec
	code.TagBits = 0
	m := model{box: u.window, edges: edgesOf(code.Chips(kind), code.CodeStart(), chip, nil)}
	m.par = vector{parTau: math.Log(u.tau), parStep: 1}
	for t := s.from; t <= s.to+s.step; t += s.step {
		m.pts = append(m.pts, point{t: t})
	}
	m.each(&m.par, func(_ int, level, _ float64, _ *vector, _ int, _ bool) {
		s.level = append(s.level, level)
	})
	return s
}

// at returns the level t seconds behind the begin of the code.
func (s *shape) at(t float64) float64 {
	i := int((t-s.from)/s.step + 0.5)
	return s.level[max(0, min(i, len(s.level)-1))]
}

// correlate works out the correlation of both kinds for a code that begins at t0.
func (u *updates) correlate(t0 float64) {
	start, stop := &u.shapes[0], &u.shapes[1]
	var n, y, yy float64
	var x, xx, xy [2]float64
	for i := u.ring.n - 1; i >= u.ring.first(); i-- {
		v := u.ring.at(i)
		rel := v.t - u.window/2 - t0
		if rel > start.to {
			continue
		}
		if rel < start.from {
			break
		}
		n, y, yy = n+1, y+v.p, yy+v.p*v.p
		for k, s := range [2]*shape{start, stop} {
			a := s.at(rel)
			x[k], xx[k], xy[k] = x[k]+a, xx[k]+a*a, xy[k]+a*v.p
		}
	}
	var rho [2]float64
	if spread := yy - y*y/n; n >= 0.7*(start.to-start.from)/u.period && n >= 6 && spread > 1e-12*yy {
		for k := range rho {
			if vx := xx[k] - x[k]*x[k]/n; vx > 0 {
				rho[k] = (xy[k] - x[k]*y/n) / math.Sqrt(vx*spread)
			}
		}
	}
	u.lags.push(rho[0], rho[1])
}

// judge reports a candidate that the fit confirms.
func (u *updates) judge(kind Kind, p peak) {
	t0 := u.origin + p.at*float64(u.spec.Chip)/lagsPerChip
	if f := u.fit(kind, t0); f != nil {
		f.PSLR = p.pslr
		u.on(*f)
	}
}
