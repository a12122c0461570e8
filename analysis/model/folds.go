package model

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

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

// FoldBys lists the ways to deal.
func FoldBys() []FoldBy { return []FoldBy{ByRowMod, ByBlock, ByRandom, ByOne, ByGroup, ByGroupK} }

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
		return nil, fmt.Errorf("%w: folds by %q: want one of %v", ErrOptions, by, FoldBys())
	}
	switch {
	case k < 2:
		return nil, fmt.Errorf("%w: %d folds: want 2 or more", ErrOptions, k)
	case n < k:
		return nil, fmt.Errorf("%w: %d rows for %d folds: take fewer folds or more rows", ErrData, n, k)
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
	size := map[string]int{}
	var order []string
	for i, r := range d.Rows {
		if r.Group == "" {
			return nil, fmt.Errorf("%w: row %d (%s) belongs to no application: give a column app or group, or name one with --group-column", ErrData, i+1, r.Name)
		}
		if size[r.Group] == 0 {
			order = append(order, r.Group)
		}
		size[r.Group]++
	}
	if by == ByGroup {
		k = len(order)
	}
	switch {
	case len(order) < 2:
		return nil, fmt.Errorf("%w: all rows are of one application: there is none to hold out", ErrData)
	case k < 2:
		return nil, fmt.Errorf("%w: %d folds: want 2 or more", ErrOptions, k)
	case len(order) < k:
		return nil, fmt.Errorf("%w: %d applications for %d folds: take fewer folds or more applications", ErrData, len(order), k)
	}
	fold := map[string]int{}
	if by == ByGroup {
		for i, g := range order {
			fold[g] = i
		}
	} else {
		deal(order, size, fold, k)
	}
	out := make([]int, len(d.Rows))
	for i, r := range d.Rows {
		out[i] = fold[r.Group]
	}
	return out, nil
}

func deal(order []string, size, fold map[string]int, k int) {
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(size[b], size[a]) })
	load := make([]int, k)
	for _, g := range order {
		best := slices.Index(load, slices.Min(load))
		fold[g] = best
		load[best] += size[g]
	}
}

// count returns the number of folds.
func count(folds []int) int { return slices.Max(folds) + 1 }
