package marker

import "math"

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
func (m *model) each(par *vector, f func(i int, level, residual float64, row *vector, begun int, steady bool)) {
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
		f(i, level, m.pts[i].p-y, &row, begun, steady)
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
	m.each(par, func(_ int, _, r float64, row *vector, _ int, steady bool) {
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
