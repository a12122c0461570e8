package sensor

import (
	"math"

	"gonum.org/v1/gonum/optimize"

	"wattmark/measure"
)

// bounds are what is searched.
type bounds struct {
	least, most      float64 // of the constant
	early, late      float64 // of the delay
	u                float64 // of the clocks
	constants, delay int     // points of the first grid
}

// boundsFor derives the search from the beat and the length of the recording: the
// windows known lie between a quarter of a period and ten; clocks that relate
// by hand are some tens of milliseconds wrong.
func boundsFor(period, span, uClock float64) bounds {
	if uClock == 0 {
		uClock = 2e-3
	}
	return bounds{
		least: period / 60, most: min(25*period, span/3), early: -4 * uClock, u: uClock, late: max(2*period, 0.25),
		constants: 32, delay: 18,
	}
}

// constantAt and delayAt are the grid: even in the constant's logarithm, and denser
// near the earliest delay, where sensors are.
func (b bounds) constantAt(i int) float64 {
	return b.least * math.Pow(b.most/b.least, float64(i)/float64(b.constants-1))
}

func (b bounds) delayAt(j int) float64 {
	return b.early + (b.late-b.early)*math.Pow(float64(j)/float64(b.delay-1), 1.6)
}

// search finds the constant and the delay with the least residuals: a grid first,
// since windows over a load that alternates have several minima, and
// Nelder and Mead's simplex from the best of it (as arXiv 2312.02741 does).
func (l *linear) search(m Model, b bounds) (response, float64) {
	type start struct {
		r   response
		rss float64
	}
	best := []start{{rss: math.Inf(1)}, {rss: math.Inf(1)}, {rss: math.Inf(1)}}
	for i := range b.constants {
		c := b.constantAt(i)
		mine := start{rss: math.Inf(1)}
		for j := range b.delay {
			r := response{m, measure.Seconds(c), measure.Seconds(b.delayAt(j))}
			if rss := l.solve(r); rss < mine.rss {
				mine = start{r, rss}
			}
		}
		for k := range best { // a few constants, each with its best delay
			if mine.rss < best[k].rss {
				copy(best[k+1:], best[k:])
				best[k] = mine
				break
			}
		}
	}
	top := best[0]
	for _, s := range best {
		if math.IsInf(s.rss, 1) {
			continue
		}
		if r, rss := l.climb(s.r, b); rss < top.rss {
			top = start{r, rss}
		}
	}
	return top.r, l.solve(top.r)
}

// climb goes to the bottom from near it.
func (l *linear) climb(from response, b bounds) (response, float64) {
	at := func(x []float64) response {
		return response{from.model, measure.Seconds(math.Exp(x[0])), measure.Seconds(x[1])}
	}
	scale := (b.late - b.early) / float64(b.delay)
	p := optimize.Problem{Func: func(x []float64) float64 {
		if x[0] > math.Log(b.most) || x[0] < math.Log(b.least/8) || x[1]*scale < b.early || x[1]*scale > b.late {
			return math.Inf(1)
		}
		return l.solve(at([]float64{x[0], x[1] * scale}))
	}}
	x0 := []float64{math.Log(float64(from.constant)), float64(from.delay) / scale}
	s := &optimize.Settings{FuncEvaluations: 150, Converger: &optimize.FunctionConverge{Relative: 1e-7, Iterations: 12}}
	res, err := optimize.Minimize(p, x0, s, &optimize.NelderMead{SimplexSize: 0.3})
	if res == nil || err != nil && math.IsInf(res.F, 1) {
		return from, l.solve(from)
	}
	return at([]float64{res.X[0], res.X[1] * scale}), res.F
}

// least looks for a minimum around near, by steps that are halved.
func least(f func(float64) float64, near, width float64) (fx, x float64) {
	x, fx = near, f(near)
	moved := 0
	for h := width; h > width/40; {
		if g := f(x + h); g < fx {
			x, fx = x+h, g
		} else if g := f(x - h); g < fx {
			x, fx = x-h, g
		} else {
			h /= 2.5
			continue
		}
		if moved++; moved > 40 {
			break
		}
	}
	return fx, x
}
