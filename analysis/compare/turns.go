package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// Design is the order in time of the runs. Only RandomPairs and Turns have a test.
type Design string

const (
	// Single: fewer than two runs on a side, whose scatter is unknown.
	Single Design = "one run"
	// Unordered: the time of a run is unknown, or the same as of a run of the other side.
	Unordered Design = "order unknown"
	// Blocks: all of one side before all of the other, which a drift changes alike.
	Blocks Design = "in blocks"
	// LongBlocks: the sides change too seldom to tell a wandering level from a difference.
	LongBlocks Design = "hardly in turns"
	// Few: in turns, fewer runs than a drift and the scatter need.
	Few Design = "too few runs"
	// Turns: the sides change often enough ([changesOf]) in an order that was not drawn.
	Turns Design = "in turns"
	// RandomPairs: pairs of a run of A and one of B, each in an order drawn at random.
	RandomPairs Design = "in pairs of random order"
	// EndedEarly: the same, ended before the planned number of pairs. A choice of the end
	// may depend on the result, which no p allows for.
	EndedEarly Design = "in pairs of random order, ended early"
)

// inPairs reports whether the runs are compared pair by pair.
func (d Design) inPairs() bool { return d == RandomPairs || d == EndedEarly }

// tested reports whether the runs have a test.
func (d Design) tested() bool { return d == RandomPairs || d == Turns }

// Turn is the place of a run in a series of pairs of random order.
type Turn struct {
	Series  string // empty for a run that is in none
	Number  int    // of the pair, from 1
	Planned int    // number of pairs
	// Second: the number of pairs was set by the scatter of those that are not Second.
	Second bool
}

// pair is a pair of runs by their index in A and B.
type pair struct {
	a, b int
	turn Turn
}

// pairs returns the pairs of both sides in the order of A, nil unless each run has a
// partner. early reports a series without its last planned pair.
func pairs(a, b []Run) (out []pair, early bool) {
	type key struct {
		series string
		number int
	}
	partner := map[key]int{}
	for i, r := range b {
		partner[key{r.Turn.Series, r.Turn.Number}] = i
	}
	latest := map[string]Turn{}
	for i, r := range a {
		k := key{r.Turn.Series, r.Turn.Number}
		j, ok := partner[k]
		if !ok || k.series == "" {
			return nil, false
		}
		delete(partner, k)
		out = append(out, pair{i, j, r.Turn})
		if r.Turn.Number >= latest[k.series].Number {
			latest[k.series] = r.Turn
		}
	}
	if len(out) != len(b) {
		return nil, false
	}
	for _, t := range latest {
		early = early || t.Number < t.Planned
	}
	return out, early
}

// leastPairs is the fewest pairs of random order that are tested: of three, the sign of a
// drift in each makes a scatter too far from normal (3 to 6 % of false alarms).
const leastPairs = 4

// leastRuns is the fewest runs of both sides that are tested: four of the degrees of
// freedom go into the level, the drift and the difference.
const leastRuns = 6

// changesOf returns the fewest changes of side that are tested where the smaller side has
// so many runs. With fewer, a wandering level makes up to 11 % of false alarms
// (A B A A A A B B B A).
func changesOf(smaller int) int { return max(4, min(2*smaller-1, 6), smaller) }

// ordered is a run in the order of time: its index in its side and its distance from
// the first one in median gaps.
type ordered struct {
	b     bool
	index int
	at    float64
}

// order sorts the runs of both sides by time and returns their design.
func order(a, b []Run) ([]ordered, Design) {
	if min(len(a), len(b)) < 2 {
		return nil, Single
	}
	switch p, early := pairs(a, b); {
	case len(p) >= leastPairs && early:
		return nil, EndedEarly
	case len(p) >= leastPairs:
		return nil, RandomPairs
	case p != nil:
		return nil, Few
	}
	var seq []ordered
	for i, runs := range [][]Run{a, b} {
		for k, r := range runs {
			if r.At.IsZero() {
				return nil, Unordered
			}
			seq = append(seq, ordered{b: i == 1, index: k, at: r.At.Sub(a[0].At).Seconds()})
		}
	}
	slices.SortStableFunc(seq, func(x, y ordered) int { return cmp.Compare(x.at, y.at) })
	changes := 0
	for i := range seq[1:] {
		if seq[i].b != seq[i+1].b {
			changes++
			if seq[i].at == seq[i+1].at {
				return nil, Unordered
			}
		}
	}
	switch {
	case changes == 1:
		return nil, Blocks
	case len(seq) < leastRuns:
		return nil, Few
	case changes < changesOf(min(len(a), len(b))):
		return nil, LongBlocks
	}
	return scaled(seq), Turns
}

// scaled measures the times in median gaps. A gap counts as a quarter of the median at
// least: runs that began together are not one run.
func scaled(seq []ordered) []ordered {
	gaps := stats.Differences(lists.Map(seq, func(r ordered) float64 { return r.at }))
	median := stats.Median(gaps)
	if !(median > 0) {
		median = 1
	}
	seq[0].at = 0
	for i, g := range gaps {
		seq[i+1].at = seq[i].at + max(g/median, 0.25)
	}
	return seq
}

// correlations are the correlations of neighbouring runs that are weighed against each other, with their prior
// weights: runs that do not depend on each other, and a level that wanders. The weight of the first bounds the false
// alarms of independent runs in strict turns to 6 % (TestTypeI); equal weights have 7 %.
var correlations = []struct{ rho, prior float64 }{{0, 12}, {0.9, 1}}

// part is Student's t distribution of a difference of logarithms, given one correlation.
type part struct{ weight, mean, u, dof float64 }

// posterior is the distribution of a difference: a mixture of t distributions.
type posterior []part

// regress returns the distribution of B − A from logarithms in the order of time, with the additional variance fixed,
// which no run shows. The model is a level, a drift of second order in time, a step for B, and errors whose
// correlation falls as ρ^gap with the gap between runs. Each ρ gives a t distribution by generalised least squares;
// they are weighed by their restricted likelihood (A. Zellner and G. C. Tiao, J. Am. Stat. Assoc. 59 (1964) 763–778;
// D. A. Harville, Biometrika 61 (1974) 383–385). It is nil where the runs have no scatter about the model.
func regress(seq []ordered, logs []float64, fixed float64) posterior {
	p := make(posterior, len(correlations))
	for i, c := range correlations {
		s, likelihood, ok := fitStep(seq, logs, c.rho)
		if !ok {
			return nil
		}
		s.u, s.dof = combine(term{s.u * s.u, s.dof}, term{fixed, math.Inf(1)})
		s.weight = math.Log(c.prior) + likelihood
		p[i] = s
	}
	weights := lists.Map(p, func(s part) float64 { return s.weight })
	all := floats.LogSumExp(weights)
	for i := range p {
		p[i].weight = math.Exp(weights[i] - all)
	}
	return p
}

// fitStep fits the model of regress at one correlation. likelihood is the logarithm of
// the restricted likelihood, up to a constant:
//
//	−½ ln|Σ| − ½ ln|XᵀΣ⁻¹X| − ½ ν ln S
//
// with S the weighted sum of squares and ν = n − 4. Σ is that of a Markov chain, so that
// it is taken off by differences of neighbours.
func fitStep(seq []ordered, logs []float64, rho float64) (s part, likelihood float64, ok bool) {
	columns := make([][]float64, 5) // 1, τ, τ², B, the logarithms
	length := seq[len(seq)-1].at
	mean := stat.Mean(logs, nil)
	for i, r := range seq {
		tau, step := r.at/length-0.5, 0.0
		if r.b {
			step = 1
		}
		for k, v := range []float64{1, tau, tau * tau, step, logs[i] - mean} {
			columns[k] = append(columns[k], v)
		}
	}
	for i := len(seq) - 1; i > 0; i-- { // backwards: each needs its neighbour as it was
		phi := math.Pow(rho, seq[i].at-seq[i-1].at)
		left := math.Sqrt(1 - phi*phi)
		likelihood -= math.Log(left)
		for _, c := range columns {
			c[i] = (c[i] - phi*c[i-1]) / left
		}
	}
	y := columns[4]
	whole := floats.Dot(y, y)
	for i, x := range columns[:4] { // Gram–Schmidt: each is taken off all behind it
		xx := floats.Dot(x, x)
		likelihood -= math.Log(xx) / 2
		for _, c := range columns[i+1:] {
			s.mean = floats.Dot(c, x) / xx // of B off the logarithms at last
			floats.AddScaled(c, -s.mean, x)
		}
		s.u = xx
	}
	rest := floats.Dot(y, y)
	s.dof = float64(len(seq) - 4)
	s.u = math.Sqrt(rest / s.dof / s.u)
	// Less than rounding leaves is no scatter.
	return s, likelihood - s.dof/2*math.Log(rest), rest > 1e-20*whole && s.u > 0 && !math.IsInf(s.u, 1)
}

// paired returns the distribution of B − A from the differences of logarithms within pairs, whose order was drawn at
// random: Student's t of their mean. Of a drift, of whatever form, a random sign is left in each difference, which is
// scatter. Where the scatter of the first pairs set the number of all, u is of their scatter alone, with their
// degrees of freedom, and the end of the series leaves t as it is (C. Stein, Ann. Math. Stat. 16 (1945) 243–258). It
// is nil where the differences have no scatter.
func paired(list []pair, a, b []float64, fixed float64) posterior {
	d, first := make([]float64, len(list)), []float64{}
	for i, p := range list {
		d[i] = b[p.b] - a[p.a]
		if !p.turn.Second {
			first = append(first, d[i])
		}
	}
	if len(first) < 2 {
		first = d
	}
	s := stat.StdDev(first, nil)
	if !(s > 1e-12) { // no more than rounding of a logarithm
		return nil
	}
	u, dof := combine(term{s * s / float64(len(d)), float64(len(first) - 1)}, term{fixed, math.Inf(1)})
	return posterior{{1, stat.Mean(d, nil), u, dof}}
}

// cdf is the probability of a difference below v.
func (p posterior) cdf(v float64) (below float64) {
	for _, s := range p {
		tail := stats.StudentTail((v-s.mean)/s.u, s.dof) / 2
		if v > s.mean {
			tail = 1 - tail
		}
		below += s.weight * tail
	}
	return below
}

// quantile is the inverse of cdf, by bisection. It lies between the quantiles of the parts as they would be with the
// fewest degrees of freedom of all, and with infinitely many.
func (p posterior) quantile(q float64) float64 {
	dof := math.Inf(1)
	for _, s := range p {
		dof = min(dof, s.dof)
	}
	near, far := stats.Student(q, math.Inf(1)), stats.Student(q, dof)
	if len(p) == 1 {
		return p[0].mean + p[0].u*far
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, s := range p {
		lo, hi = min(lo, s.mean+s.u*near, s.mean+s.u*far), max(hi, s.mean+s.u*near, s.mean+s.u*far)
	}
	for range 34 { // to 1e-10 of the width
		if mid := (lo + hi) / 2; p.cdf(mid) < q {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// moments returns the mean, the standard uncertainty and the degrees of freedom, each
// averaged over the parts.
func (p posterior) moments() (mean, u, dof float64) {
	v := 0.0
	for _, s := range p {
		mean, v, dof = mean+s.weight*s.mean, v+s.weight*s.u*s.u, dof+s.weight*s.dof
	}
	return mean, math.Sqrt(v), dof
}
