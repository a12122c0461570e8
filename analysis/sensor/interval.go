package sensor

import (
	"math"

	"wattmark/measure"
)

// intervals are where the residuals, all else at its best, stay below a limit: the
// profile likelihood. Over a load that alternates it may have several valleys: all
// that are deep enough belong to the interval, and so does what lies between them.
func (l *linear) intervals(f *Fit, all []valley, r response, b bounds, constant, delay float64) {
	cs, ds := []float64{float64(r.constant)}, []float64{float64(r.delay)}
	for _, v := range all {
		if v.rss <= constant {
			cs = append(cs, v.c)
		}
		if v.rss <= delay {
			ds = append(ds, v.d)
		}
	}
	starts := append(all, valley{float64(r.constant), float64(r.delay), 0})
	edge := func(list []float64, sign float64, walk func(valley) float64) measure.Seconds {
		out := list[0]
		for _, v := range list {
			if sign*(v-out) > 0 {
				out = v
			}
		}
		for _, v := range starts { // on from the outermost
			if v.c == out || v.d == out {
				return measure.Seconds(walk(v))
			}
		}
		return measure.Seconds(out)
	}
	byC := func(sign float64) func(valley) float64 {
		return func(v valley) float64 { return l.walkConstant(r.model, v, b, sign, constant) }
	}
	byD := func(sign float64) func(valley) float64 {
		return func(v valley) float64 { return l.walkDelay(r.model, v, b, sign, delay) }
	}
	f.ConstantLow, f.ConstantHigh = edge(cs, -1, byC(-1)), edge(cs, 1, byC(1))
	f.DelayLow, f.DelayHigh = edge(ds, -1, byD(-1)), edge(ds, 1, byD(1))
	if f.ConstantLow <= measure.Seconds(b.least/7) {
		f.ConstantLow = 0 // not told from a single look
	}
}

// valley is the best delay at a constant.
type valley struct{ c, d, rss float64 }

// valleys are the best delays at the constants of the grid. Beside the grid's delays
// those are tried that keep the mean delay what it was: along that ridge the fit
// changes least.
func (l *linear) valleys(from response, b bounds) (out []valley) {
	const step, side = 2e-3, 8
	lag := float64(from.delay) + share(from.model)*float64(from.constant)
	for i := range b.constants {
		v := valley{b.constantAt(i), 0, math.Inf(1)}
		gap := 0.0
		try := func(d, width float64) {
			if d < b.early || d > b.late {
				return
			}
			if rss := l.solve(response{from.model, measure.Seconds(v.c), measure.Seconds(d)}); rss < v.rss {
				v.d, v.rss, gap = d, rss, width
			}
		}
		for j := range b.delay {
			try(b.delayAt(j), (b.delayAt(j+1)-b.delayAt(j))/2)
		}
		for j := -side; j <= side; j++ {
			try(lag-share(from.model)*v.c+float64(j)*step, step/2)
		}
		if math.IsInf(v.rss, 1) {
			continue
		}
		v.rss, v.d = l.alongConstant(from.model, v.c, v.d, gap, b)
		out = append(out, v)
	}
	return out
}

// alongConstant is the least residual at a given constant, and the delay of it.
func (l *linear) alongConstant(m Model, c, near, width float64, b bounds) (rss, d float64) {
	return least(func(d float64) float64 {
		if d < b.early || d > b.late {
			return math.Inf(1)
		}
		return l.solve(response{m, measure.Seconds(c), measure.Seconds(d)})
	}, near, width)
}

// alongDelay is the least residual at a given delay, and the constant of it.
func (l *linear) alongDelay(m Model, d, near float64, b bounds) (rss, c float64) {
	rss, x := least(func(x float64) float64 {
		c := math.Exp(x)
		if c > b.most {
			return math.Inf(1)
		}
		return l.solve(response{m, measure.Seconds(c), measure.Seconds(d)})
	}, math.Log(max(near, b.least/8)), 0.2)
	return rss, math.Exp(x)
}

func (l *linear) walkConstant(m Model, from valley, b bounds, sign, limit float64) float64 {
	delay := from.d
	above := func(x float64) bool {
		c := from.c * math.Exp(x)
		if c > b.most {
			return true
		}
		rss, d := l.alongConstant(m, c, delay, max(0.05*from.c, 1e-3), b)
		if rss <= limit {
			delay = d
		}
		return rss > limit
	}
	return from.c * math.Exp(crossing(above, sign, math.Log(from.c/(b.least/8))))
}

func (l *linear) walkDelay(m Model, from valley, b bounds, sign, limit float64) float64 {
	unit := max(0.05*from.c, 1e-3)
	near := from.c
	above := func(x float64) bool {
		d := from.d + x*unit
		if d < b.early || d > b.late {
			return true
		}
		rss, c := l.alongDelay(m, d, near, b)
		if rss <= limit {
			near = c
		}
		return rss > limit
	}
	return from.d + crossing(above, sign, 1e6)*unit
}

// crossing walks away from zero until above, which is false there, and closes in on
// where it becomes true; most is as far as it goes downwards.
func crossing(above func(float64) bool, sign, most float64) float64 {
	in, out := 0.0, 0.0
	for step := 0.02; ; step *= 1.8 {
		out = in + sign*step
		if sign < 0 && -out > most {
			if out = -most; !above(out) {
				return out
			}
			break
		}
		if above(out) {
			break
		}
		in = out
	}
	for math.Abs(out-in) > 0.02*math.Abs(out) {
		if mid := (in + out) / 2; above(mid) {
			out = mid
		} else {
			in = mid
		}
	}
	return (in + out) / 2
}
