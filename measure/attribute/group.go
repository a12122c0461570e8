package attribute

import (
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/mat"
)

// Entry is the energy of one column, or of a group of columns that the readings do not tell apart.
type Entry struct {
	Columns []int           // in rising order; the last two are active idle and idle
	Share   measure.Seconds // time by the rule of equal shares
	Energy  measure.Joule   // of the fit: power × Share
	U       measure.Joule   // standard uncertainty of Energy, with that of the clock fit
	Spans   uint64          // stretches: launches, or pauses
	Apart   bool            // long enough for its edges, see Model.Brief
	// Shared is Energy with the remainder distributed: all come to the window's energy.
	// UShared is its standard uncertainty, within 0 ≤ E ≤ the window's energy at k = 2.
	Shared, UShared measure.Joule
}

// Solution is a window's energy by column.
type Solution struct {
	Entries []Entry
	Columns int // with active idle and idle
	// Rank is the number of combinations of columns that the readings determine to better than the window's mean
	// power; below Columns there are groups.
	Rank int
}

// Solve ends the fit and returns the window's energy by column. total is the window's energy, which the entries come
// to: the remainder of the fit, mostly what the trapezoid rule loses between scans, is distributed.
//
// Two entries that are most alike (the most negative correlation) become one until each has a U (k = 2) below
// its share of the window's energy, by time, and a variance that is not inflated by what the columns have in
// common, or until one is left.
func (s *Solver) Solve(total measure.Joule) (out Solution, err error) {
	sums := newNormal(len(s.x))
	for i := range s.sums {
		sums.plus(&s.sums[i])
	}
	if sums.n == 0 || !(total > 0) {
		return out, fmt.Errorf("attribute: %d readings of %v: %w", sums.n, total, ErrNoData)
	}
	w := s.walkers[0]
	if err := w.to(s.to); err != nil { // the rest of the launches' time
		return out, fmt.Errorf("attribute: %w", err)
	}
	mean := float64(total) / (s.to - s.from)
	g := grouping{mean: mean, total: float64(total), memory: float64(s.model.Average), hidden: s.model.Hidden}
	fits, counts, err := s.fits(&sums, mean)
	if err != nil {
		return out, err
	}
	f := &fits[0]
	if g.memory == 0 {
		last := s.merged[0][f.bins-1]
		g.memory = s.ends[last[len(last)-1]+1]
	}
	p, fresh := f.powers(), f.fresh()
	g.fresh = energies(fresh, w.share)
	g.compare(fits, counts, w.share)
	blocked := s.blocked(f)
	g.stamps = s.stamps(f, 0, mean)
	for c, by := range s.stamps(f, 1, mean) { // the stamps' errors are between none and the most
		p[c] += by / 2
		g.stamps[c] *= w.share[c] / 2 // at k = 2
	}
	g.noise = f.sigma2 / s.weights
	g.blocked = energies(blocked, w.share)
	for i := range s.columns {
		if w.share[i] > 0 {
			g.entries = append(g.entries, Entry{
				Columns: []int{i}, Share: measure.Seconds(w.share[i]), Spans: w.spans[i],
				Energy: measure.Joule(w.share[i] * p[i]), Apart: s.apart(w, i),
			})
		}
	}
	if out.Rank, err = determined(fresh, mean); err != nil {
		return out, err
	}
	g.merge()
	Distribute(g.entries, total, total)
	if len(g.entries) == 1 {
		g.entries[0].UShared = 0 // the window's energy itself
	}
	out.Entries, out.Columns = g.entries, s.columns
	return out, nil
}

// compare keeps how the other fits differ from the first, whose columns have shares of the time: in the covariance of
// energies that noise gives (fresh is set before), and in the energies, each times the square root of its count.
func (g *grouping) compare(fits []fit, counts []float64, share []float64) {
	f := &fits[0]
	p := f.powers()
	for i := range fits[1:] {
		x, k := &fits[i+1], counts[i+1]
		if x.bins > f.bins { // the fit with more coefficients has the larger variance
			k = -k
		}
		var less mat.Dense
		less.Sub(g.fresh, energies(x.fresh(), share))
		less.Scale(k, &less)
		g.chance = append(g.chance, &less)
		other := x.powers()
		for c := range other {
			other[c] = math.Sqrt(math.Abs(k)) * share[c] * (other[c] - p[c])
		}
		g.others = append(g.others, other)
	}
}

// energies turns a covariance of powers into one of energies.
func energies(powers *mat.SymDense, share []float64) *mat.Dense {
	out := mat.NewDense(len(share), len(share), nil)
	out.Apply(func(i, j int, v float64) float64 { return share[i] * share[j] * v }, powers)
	return out
}

// determined counts the combinations of columns whose powers are known to better than the mean.
func determined(covariance *mat.SymDense, mean float64) (rank int, err error) {
	var eigen mat.EigenSym
	if !eigen.Factorize(covariance, false) {
		return 0, fmt.Errorf("attribute: no eigenvalues of %d columns: %w", covariance.SymmetricDim(), ErrNoData)
	}
	for _, v := range eigen.Values(nil) {
		if v < mean*mean {
			rank++
		}
	}
	return rank, nil
}

// apart reports whether a column joins no group.
func (s *Solver) apart(w *walker, column int) bool {
	b := float64(s.model.Brief)
	return b > 0 && (column == s.columns-1 || w.share[column] >= b*float64(w.spans[column]))
}

// collinear is the inflation of a variance from which on columns are not told apart: the usual bound of variance
// inflation factors (D. Marquardt, Technometrics 12 (1970) 591). Beyond it U would be that of the residuals
// alone, which do not show how far a response that depends on what ran before moves the energies.
const collinear = 10

// grouping merges entries. Covariances are of energies, by column, in J².
type grouping struct {
	entries        []Entry
	fresh, blocked *mat.Dense
	others         [][]float64  // by how much the energies differ of fits with other lags, J
	chance         []*mat.Dense // what noise alone makes of that, squared
	stamps         []float64    // J, by the stamps' errors: a standard uncertainty, of all columns together
	mean, total    float64      // of the window's power, W; its energy, J
	memory, noise  float64      // s; variance of a reading's noise over the number of readings, W²
	hidden         bool         // as in Model
}

// covariance sums a matrix over two entries' columns.
func covariance(m *mat.Dense, a, b []int) (v float64) {
	for _, i := range a {
		for _, j := range b {
			v += m.At(i, j)
		}
	}
	return v
}

// variance is that of an entry: of the blocks, of the stamps, and of the lags by the largest squared difference to
// fits with others, less what chance makes of it: a fit with fewer coefficients differs by the difference of the
// two variances (J. Hausman, Econometrica 46 (1978) 1251).
func (g *grouping) variance(e *Entry) float64 {
	var misfit float64
	for i, other := range g.others {
		misfit = max(misfit, square(other, e.Columns, e.Columns)-max(covariance(g.chance[i], e.Columns, e.Columns), 0))
	}
	blocked := max(covariance(g.blocked, e.Columns, e.Columns), 0) // rounding may leave less than nothing
	return blocked + misfit + square(g.stamps, e.Columns, e.Columns)
}

// inflation is by how much the variance that the noise of the scans gives an entry exceeds that of
// launches in random order: with shares s of the time, n readings and a memory M,
//
//	σ²·M/(n·s·(1 − s)·l)    l: mean length of a launch
//
// It measures how far the entry's duty follows from those of the others.
func (g *grouping) inflation(e *Entry) float64 {
	share := float64(e.Share) * g.mean / g.total
	length := min(float64(e.Share)/float64(max(e.Spans, 1)), g.memory)
	return covariance(g.fresh, e.Columns, e.Columns) / (float64(e.Share) * float64(e.Share)) *
		share * (1 - share) * length / (g.noise * g.memory)
}

// square is the product of the sums of v over two entries' columns.
func square(v []float64, a, b []int) float64 {
	var x, y float64
	for _, i := range a {
		x += v[i]
	}
	for _, i := range b {
		y += v[i]
	}
	return x * y
}

// joint is the covariance of two entries, with what other lags make of them.
func (g *grouping) joint(a, b []int) float64 {
	v := covariance(g.fresh, a, b)
	for _, other := range g.others {
		v += square(other, a, b)
	}
	return v
}

// closest are the two entries of the most negative correlation, one of them bad; equal where there are none.
func (g *grouping) closest(bad []bool) (a, b int) {
	least := math.Inf(1)
	for i := range g.entries {
		for j := range i {
			e, o := &g.entries[i], &g.entries[j]
			if !bad[i] && !bad[j] || e.Apart != o.Apart || !g.joins(e) || !g.joins(o) {
				continue
			}
			x, y := e.Columns, o.Columns
			r := g.joint(x, y) / math.Sqrt(g.joint(x, x)*g.joint(y, y))
			if a == b || r < least {
				a, b, least = j, i, r
			}
		}
	}
	return a, b
}

// joins reports whether an entry may join others, long ones each other alone: that before and after never does.
func (g *grouping) joins(e *Entry) bool {
	return !e.Apart || g.hidden && e.Columns[0] != len(g.stamps)-1
}

// alone is for an entry that has none to join: where noise leaves its power less certain than half of the window's mean
// power ± as much, that is taken.
func (g *grouping) alone(e *Entry) {
	half := measure.Joule(g.mean * float64(e.Share) / 2)
	if e.U = max(e.U, measure.Joule(math.Sqrt(covariance(g.fresh, e.Columns, e.Columns)))); e.U > half {
		e.Energy, e.U = half, half
	}
}

// merge joins entries until all are determined.
func (g *grouping) merge() {
	for {
		open := false
		bad := make([]bool, len(g.entries))
		for i := range g.entries {
			e := &g.entries[i]
			e.U = measure.Joule(math.Sqrt(g.variance(e)))
			bad[i] = g.joins(e) && (2*float64(e.U) >= g.mean*float64(e.Share) || g.inflation(e) > collinear)
			open = open || bad[i]
		}
		if !open || len(g.entries) < 2 {
			break
		}
		a, b := g.closest(bad)
		if a == b { // none is left to join
			for i := range g.entries {
				if bad[i] {
					g.alone(&g.entries[i])
				}
			}
			return
		}
		x, y := &g.entries[a], g.entries[b]
		x.Columns = append(x.Columns, y.Columns...)
		slices.Sort(x.Columns)
		x.Share, x.Energy, x.Spans = x.Share+y.Share, x.Energy+y.Energy, x.Spans+y.Spans
		g.entries = slices.Delete(g.entries, b, b+1)
	}
}

// Distribute sets Shared and UShared of entries that come to an energy, in a window of energy total. The remainder is
// adjusted as observations with a known sum are, in proportion to the variances; what then is less than nothing is
// none, and the others are in proportion. What an entry gets of the remainder is a part of its uncertainty.
// It reports whether there was any energy to distribute by.
func Distribute(entries []Entry, energy, total measure.Joule) bool {
	rest, variances := energy, 0.0
	for i := range entries {
		rest -= entries[i].Energy
		variances += float64(entries[i].U * entries[i].U)
	}
	var sum measure.Joule
	for i := range entries {
		e := &entries[i]
		e.Shared = e.Energy
		if variances > 0 {
			e.Shared += rest * measure.Joule(float64(e.U*e.U)/variances)
		}
		e.Shared = max(e.Shared, 0) // no name gives energy back
		sum += e.Shared
	}
	if !(sum > 0) || !(energy > 0) {
		return false
	}
	for i := range entries {
		e := &entries[i]
		e.Shared *= energy / sum
		u := measure.Joule(math.Hypot(float64(e.U), float64(e.Shared-e.Energy)))
		e.UShared = Bound(e.Shared, 2*u, total) / 2
	}
	return true
}

// Bound is the largest U that E ± U needs: an energy between 0 and the window's is at most
// max(E, total − E) away.
func Bound(e, u, total measure.Joule) measure.Joule {
	return min(u, max(e, total-e, 0))
}
