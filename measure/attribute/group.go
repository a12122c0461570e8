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
	Power   measure.Watt
	U       measure.Joule // standard uncertainty of Energy, with that of the clock fit
	Spans   uint64        // stretches: launches, or pauses
	Apart   bool          // long enough for its edges, see Model.Brief
	// Shared is Energy with the Remainder distributed: all come to the window's energy.
	// UShared is its standard uncertainty, within 0 ≤ E ≤ the window's energy at k = 2.
	Shared, UShared measure.Joule
}

// Solution is a window's energy by column.
type Solution struct {
	Entries []Entry
	Columns int // with active idle and idle
	// Rank is the number of combinations of columns that the readings determine to better than the
	// window's mean power; below Columns there are groups.
	Rank  int
	Scans int          // readings used
	Noise measure.Watt // standard deviation of the residuals of a reading of mean weight
	// Remainder is the window's energy less that of all entries of the fit: mostly what the
	// trapezoid rule loses between scans. It is distributed in proportion to the energies.
	Remainder measure.Joule
}

// Solve ends the fit. total is the window's energy, which the entries come to.
// Two entries that are most alike (the most negative correlation) become one until each has a U (k = 2) below
// its share of the window's energy, by time, or until one is left.
func (s *Solver) Solve(total measure.Joule) (Solution, error) {
	sums := newNormal(s.columns)
	for i := range s.models[0].sums {
		sums.plus(&s.models[0].sums[i])
	}
	if sums.n == 0 || !(total > 0) {
		return Solution{}, fmt.Errorf("attribute: %d readings of %v: %w", sums.n, total, ErrNoData)
	}
	for i := range s.models { // the rest of the launches' time
		if err := s.models[i].now.to(s.to); err != nil {
			return Solution{}, fmt.Errorf("attribute: %w", err)
		}
	}
	mean := float64(total) / (s.to - s.from)
	f, err := sums.solve(mean)
	if err != nil {
		return Solution{}, err
	}
	g := grouping{mean: mean}
	g.fresh, g.blocked = mat.NewDense(s.columns, s.columns, nil), mat.NewDense(s.columns, s.columns, nil)
	fresh, blocked := s.covariances(&f)
	edges, err := s.edges(mean, f.p)
	if err != nil {
		return Solution{}, err
	}
	w := s.models[0].now
	for i := range s.columns {
		for j := range s.columns {
			a := w.share[i] * w.share[j]
			e := edges[i] * edges[j]
			g.fresh.Set(i, j, a*(fresh.At(i, j)+e))
			g.blocked.Set(i, j, a*(blocked.At(i, j)+e))
		}
		if w.share[i] > 0 {
			g.entries = append(g.entries, Entry{
				Columns: []int{i}, Share: measure.Seconds(w.share[i]), Spans: w.spans[i],
				Energy: measure.Joule(w.share[i] * f.p.AtVec(i)), Apart: s.apart(w, i),
			})
		}
	}
	g.merge()
	out := Solution{
		Entries: g.entries, Columns: s.columns, Rank: f.rank, Scans: sums.n,
		Noise: measure.Watt(math.Sqrt(f.sigma2 * float64(sums.n) / s.weights)),
	}
	out.finish(total)
	return out, nil
}

// apart reports whether a column joins no group.
func (s *Solver) apart(w *walker, column int) bool {
	b := float64(s.model.Brief)
	return b > 0 && (column == s.columns-1 || w.share[column] >= b*float64(w.spans[column]))
}

// edges is the change of each column's power with one standard uncertainty of the clock fit: the larger
// of the two directions, in W.
func (s *Solver) edges(mean float64, p *mat.VecDense) ([]float64, error) {
	out := make([]float64, s.columns)
	for i := 1; i < len(s.models); i++ {
		f, err := s.models[i].sums[0].solve(mean)
		if err != nil {
			return nil, err
		}
		for c := range out {
			d := f.p.AtVec(c) - p.AtVec(c)
			if i == 2 { // the other direction, so that signs among columns stay
				d = -d
			}
			if math.Abs(d) > math.Abs(out[c]) {
				out[c] = d
			}
		}
	}
	return out, nil
}

// grouping merges entries. Covariances are of energies, by column, in J².
type grouping struct {
	entries        []Entry
	fresh, blocked *mat.Dense
	mean           float64 // of the window's power, W
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

// variance is that of an entry: of the blocks where they scatter by more than 1.5 times what chance
// leaves of 32 of them, else of the scans.
func (g *grouping) variance(e *Entry) float64 {
	v, b := covariance(g.fresh, e.Columns, e.Columns), covariance(g.blocked, e.Columns, e.Columns)
	if b > 1.5*v {
		v = b
	}
	return max(v, 0)
}

// closest are the two entries of the most negative correlation, one of them bad; equal where there are none.
func (g *grouping) closest(bad []bool) (a, b int) {
	least := math.Inf(1)
	for i := range g.entries {
		for j := range i {
			if !bad[i] && !bad[j] || g.entries[i].Apart || g.entries[j].Apart {
				continue
			}
			x, y := g.entries[i].Columns, g.entries[j].Columns
			r := covariance(g.fresh, x, y) /
				math.Sqrt(covariance(g.fresh, x, x)*covariance(g.fresh, y, y))
			if a == b || r < least {
				a, b, least = j, i, r
			}
		}
	}
	return a, b
}

// merge joins entries until all are determined.
func (g *grouping) merge() {
	for {
		open := false
		bad := make([]bool, len(g.entries))
		for i := range g.entries {
			e := &g.entries[i]
			e.U = measure.Joule(math.Sqrt(g.variance(e)))
			bad[i] = !e.Apart && 2*float64(e.U) >= g.mean*float64(e.Share)
			open = open || bad[i]
		}
		if !open || len(g.entries) < 2 {
			break
		}
		a, b := g.closest(bad)
		if a == b {
			return // none is left to join
		}
		x, y := &g.entries[a], g.entries[b]
		x.Columns = append(x.Columns, y.Columns...)
		slices.Sort(x.Columns)
		x.Share, x.Energy, x.Spans = x.Share+y.Share, x.Energy+y.Energy, x.Spans+y.Spans
		g.entries = slices.Delete(g.entries, b, b+1)
	}
}

// finish distributes the remainder and applies the bounds.
func (s *Solution) finish(total measure.Joule) {
	s.Remainder = total
	for i := range s.Entries {
		e := &s.Entries[i]
		e.Power = measure.Watt(float64(e.Energy) / float64(e.Share))
		s.Remainder -= e.Energy
	}
	Distribute(s.Entries, total, total)
	if len(s.Entries) == 1 {
		s.Entries[0].UShared = 0 // the window's energy itself
	}
}

// Distribute sets Shared and UShared of entries that come to an energy, in a window of energy total: each
// has the remainder in proportion to its energy, and what it gets of that is a part of its uncertainty.
// It reports whether there was any energy to distribute by.
func Distribute(entries []Entry, energy, total measure.Joule) bool {
	var sum measure.Joule
	for i := range entries {
		sum += max(entries[i].Energy, 0) // no name gives energy back
	}
	if !(sum > 0) || !(energy > 0) {
		return false
	}
	for i := range entries {
		e := &entries[i]
		e.Shared = energy * max(e.Energy, 0) / sum
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
