package model

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/wattmark/wattmark/analysis/stats"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"gonum.org/v1/gonum/floats"
)

// Held is the estimate of a row that was left out of the training.
type Held struct {
	Row  int // in the data
	Fold int
	Estimate
}

// Evaluation is a cross-validation.
type Evaluation struct {
	Score          // of the left-out rows
	Constant Score // of an estimate by the mean of the training rows alone, left out alike
	Folds    int
	Alphas   []float64 // of each fold's model
	Held     []Held    // in the order of the rows
	Warnings []Warning
}

// Evaluate cross-validates: it trains without each fold in turn and estimates it. folds holds the fold of each row,
// from Folds. Where α is to be chosen, every fold's model chooses its own, from its own training rows. Before each
// fold it calls progress, where that is given. Errors wrap ErrData or ErrOptions.
func Evaluate(d *Data, o Options, folds []int, progress func(done, of int)) (*Evaluation, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if len(folds) != len(d.Rows) || len(folds) == 0 {
		return nil, fmt.Errorf("%w: folds for %d of %d rows", ErrData, len(folds), len(d.Rows))
	}
	e := &Evaluation{Folds: count(folds), Held: make([]Held, len(d.Rows))}
	n := len(d.Rows)
	measured, estimated, constant := make([]measure.Watt, n), make([]measure.Watt, n), make([]measure.Watt, n)
	for k := range e.Folds {
		if progress != nil {
			progress(k, e.Folds)
		}
		f, err := Train(d.without(k, folds), o)
		if err != nil {
			return nil, fmt.Errorf("without fold %d: %w", k+1, err)
		}
		e.Alphas = append(e.Alphas, f.Alpha)
		for i, fold := range folds {
			if fold != k {
				continue
			}
			est, err := f.Estimate(d.Rows[i].X)
			if err != nil {
				return nil, fmt.Errorf("row %d (%s): %w", i+1, d.Rows[i].Name, err)
			}
			e.Held[i] = Held{Row: i, Fold: k, Estimate: est}
			// The plane passes through the means: the mean power of the training rows.
			measured[i], estimated[i], constant[i] = d.Rows[i].Power, est.Power, f.Power(f.Mean)
		}
	}
	e.Score, e.Constant = NewScore(measured, estimated), NewScore(measured, constant)
	// Of the rows' warnings only a missing coefficient bears on the whole.
	for i, h := range e.Held {
		for _, w := range h.Warnings {
			if w.Code == ZeroInTraining {
				w.Row = d.Rows[i].Name
				e.Warnings = append(e.Warnings, w)
			}
		}
	}
	e.Warnings = append(e.Warnings, underestimated(d, estimated)...)
	return e, nil
}

// Apply holds a trained model against rows that it was not trained on.
func (f *Fit) Apply(d *Data) ([]Estimate, error) {
	out := make([]Estimate, len(d.Rows))
	for i, r := range d.Rows {
		var err error
		if out[i], err = f.Estimate(r.X); err != nil {
			return nil, fmt.Errorf("row %d (%s): %w", i+1, r.Name, err)
		}
	}
	return out, nil
}

// SquareWatt is a squared power, in W².
type SquareWatt float64

// Score holds the errors of estimates against measured powers.
type Score struct {
	Rows int        `json:"rows"`
	MSE  SquareWatt `json:"mse_w2"`   // mean squared error, over all rows
	MAPE float64    `json:"mape_pct"` // mean of |error| over the measured power: the paper's error ratio
	// R2 is 1 − SSE over the squared distances from the mean; NaN where all powers are
	// the same.
	R2   measure.Number `json:"r2"`
	RMSE measure.Watt   `json:"rmse_w"`
	MAE  measure.Watt   `json:"mae_w"`
	Bias measure.Watt   `json:"bias_w"` // mean of estimated − measured
}

// NewScore compares estimates with measured powers, of the same length and not empty.
func NewScore(measured, estimated []measure.Watt) Score {
	watts := func(w measure.Watt) float64 { return float64(w) }
	truth := lists.Map(measured, watts)
	d := stats.Deviations(lists.Map(estimated, watts), truth, nil)
	mse := d.RMSE * d.RMSE
	s := Score{
		Rows: len(measured), MSE: SquareWatt(mse), RMSE: measure.Watt(d.RMSE), MAE: measure.Watt(d.MAE),
		Bias: measure.Watt(d.Bias), MAPE: d.MAPE, R2: measure.Number(math.NaN()),
	}
	if _, sd := moments(truth); sd > 0 {
		s.R2 = measure.Number(1 - mse/(sd*sd))
	}
	return s
}

// The grid of α: so many a decade.
const (
	ridgeLeast, ridgeMost = -4, 5
	perDecade             = 4
	lassoDecades          = 4
)

// ChooseAlpha returns the α of a grid that cross-validation over the training rows prefers:
// rows dealt by whole applications where every row has one and there are enough of them, else
// by row number. Of equal errors the larger α wins.
func ChooseAlpha(d *Data, o Options) (alpha float64, err error) {
	k := min(cmp.Or(o.AlphaFolds, defaultFolds), len(d.Rows))
	// Kernels of one application resemble each other: apart, they would flatter a small α.
	folds, err := Folds(d, ByGroupK, k, 0)
	if err != nil {
		folds, err = Folds(d, ByRowMod, k, 0)
	}
	if err != nil {
		return 0, fmt.Errorf("choose α: %w", err)
	}
	grid := o.grid(d)
	square := make([]float64, len(grid))
	for f := range count(folds) {
		if err := tryFold(d, o, folds, f, grid, square); err != nil {
			return 0, fmt.Errorf("choose α: %w", err)
		}
	}
	best := math.Inf(1)
	for i, a := range grid {
		if mse := square[i] / float64(len(d.Rows)); mse <= best {
			best, alpha = mse, a
		}
	}
	return alpha, nil
}

// tryFold adds the squared errors of one fold under every α.
func tryFold(d *Data, o Options, folds []int, fold int, grid, square []float64) error {
	pr := standardise(d.without(fold, folds))
	var sp *spectrum // the solutions of all α at once
	var err error
	if o.Method == Ridge {
		if sp, err = pr.decompose(); err != nil {
			return err
		}
	}
	for i, a := range grid {
		var w []float64
		if sp != nil {
			w = sp.ridge(a, pr.n)
		} else if w, _, err = pr.solve(Options{Method: o.Method, Alpha: a}); err != nil {
			return err
		}
		l := pr.linear(w)
		for r, f := range folds {
			if f == fold {
				e := float64(d.Rows[r].Power - l.Power(d.Rows[r].X))
				square[i] += e * e
			}
		}
	}
	return nil
}

// grid returns the α to try: for ridge from 10⁻⁴ to 10⁵; for lasso up to the one
// that leaves no counter.
func (o Options) grid(d *Data) (out []float64) {
	// Columns have a variance of 1, so the useful α lie around the number of rows for ridge, and
	// below twice the largest correlation Zᵀy for lasso, where the last weight leaves zero.
	most, decades := math.Pow(10, ridgeMost), ridgeMost-ridgeLeast
	if o.Method == Lasso {
		most, decades = 1, lassoDecades
		if pr := standardise(d); len(pr.active) > 0 {
			_, b := pr.gram()
			most = 2 * floats.Norm(b, math.Inf(1))
		}
	}
	for i := range decades*perDecade + 1 {
		out = append(out, most*math.Pow(10, float64(i)/perDecade-float64(decades)))
	}
	return out
}

// FoldBy is how rows are dealt into folds.
type FoldBy string

// The ways to deal.
const (
	ByRowMod FoldBy = "row-mod" // row number modulo k, from 0
	ByBlock  FoldBy = "block"   // k stretches of rows, as equal as can be
	ByRandom FoldBy = "random"  // k folds as equal as can be, drawn by a seed
	ByOne    FoldBy = "loo"     // every row by itself
	ByGroup  FoldBy = "group"   // every application by itself
	ByGroupK FoldBy = "group-k" // k folds of whole applications, as equal as can be
)

// Folds deals rows into k folds and returns the fold of each. ByOne and ByGroup
// do not heed k.
func Folds(d *Data, by FoldBy, k int, seed uint64) ([]int, error) {
	n := len(d.Rows)
	switch by {
	case ByOne:
		k = n
	case ByGroup, ByGroupK:
		return groupFolds(d, by, k)
	case ByRowMod, ByBlock, ByRandom:
	default:
		return nil, fmt.Errorf("%w: folds by %q: want one of %v", ErrOptions, by,
			[]FoldBy{ByRowMod, ByBlock, ByRandom, ByOne, ByGroup, ByGroupK})
	}
	switch {
	case k < 2:
		return nil, fmt.Errorf("%w: %d folds: want 2 or more", ErrOptions, k)
	case n < k:
		return nil, fmt.Errorf("%w: %s for %d folds: take fewer folds or more rows", ErrData, measure.Plural(n, "row"), k)
	}
	out := make([]int, n)
	for i := range out {
		if out[i] = i % k; by == ByBlock {
			out[i] = i * k / n
		}
	}
	if by == ByRandom {
		rng := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
		rng.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out, nil
}

// groupFolds keeps an application together. Of k folds, the largest application
// goes into the fold that has the fewest rows so far, and so on.
func groupFolds(d *Data, by FoldBy, k int) ([]int, error) {
	var apps lists.Groups[string, int] // rows
	for i, r := range d.Rows {
		if r.Group == "" {
			return nil, fmt.Errorf("%w: row %d (%s) belongs to no application: give a column app or group, or name "+
				"one with --group-column", ErrData, i+1, r.Name)
		}
		apps.Add(r.Group, i)
	}
	order := apps.Keys
	if by == ByGroup {
		k = len(order)
	}
	switch {
	case len(order) < 2:
		return nil, fmt.Errorf("%w: all rows are of one application: there is none to hold out", ErrData)
	case k < 2:
		return nil, fmt.Errorf("%w: %d folds: want 2 or more", ErrOptions, k)
	case len(order) < k:
		return nil, fmt.Errorf("%w: %d applications for %d folds: take fewer folds or more applications", ErrData,
			len(order), k)
	}
	fold, load := map[string]int{}, make([]int, k)
	if by == ByGroupK { // the largest first, each to the smallest fold so far
		slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(len(apps.Of[b]), len(apps.Of[a])) })
	}
	for i, g := range order {
		if fold[g] = i; by == ByGroupK {
			fold[g] = slices.Index(load, slices.Min(load))
			load[fold[g]] += len(apps.Of[g])
		}
	}
	return lists.Map(d.Rows, func(r Row) int { return fold[r.Group] }), nil
}

func count(folds []int) int { return slices.Max(folds) + 1 }
