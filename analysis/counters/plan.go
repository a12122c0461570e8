package counters

import (
	"fmt"
	"slices"
	"strings"
)

// Source is what counts.
type Source string

// The sources.
const (
	CUDAProfiler Source = "cuda-profiler" // the paper's names
	NsightSource Source = "ncu"
)

// Base returns the counters that features need in the end, each once, by the names
// of a source. have are columns that need not be counted.
func Base(features []Feature, s Source, have []string) ([]string, error) {
	var out []string
	var need func(name string, above []string) error
	formula := func(text string, above []string) error {
		f, err := ParseFormula(text)
		if err != nil {
			return err
		}
		for _, name := range f.Counters() {
			if err := need(name, above); err != nil {
				return err
			}
		}
		return nil
	}
	need = func(name string, above []string) error {
		if slices.Contains(have, name) || slices.Contains(out, name) {
			return nil
		}
		if slices.Contains(above, name) {
			return fmt.Errorf("%w: %s is defined by itself", ErrFormula, name)
		}
		for _, text := range virtual[name] {
			// A formula of Nsight's metrics is for Nsight; one of names is for both.
			nsight := strings.Contains(text, "__")
			paper := !nsight && name != "mem"
			if nsight && s != NsightSource || paper && s == NsightSource {
				continue
			}
			return formula(text, append(above, name))
		}
		if s == NsightSource && events[name] {
			return fmt.Errorf("%w: Nsight Compute has no metric for %s: take a set without it, as nsight-full", ErrMissing, name)
		}
		out = append(out, name)
		return nil
	}
	for _, f := range features {
		var err error
		if f.Formula != "" {
			err = formula(f.Formula, nil)
		} else {
			err = need(f.Name, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return out, nil
}

// Limit is how many counters can be counted in one run: in all, and of one unit.
type Limit struct {
	Total   int            // 0 for no limit
	PerUnit map[string]int // by what stands before "__" in a metric's name
}

// Plan deals counters into the fewest runs that cover all of them, within the
// limits. Dealt unit by unit, round and round, no run gets more than its share of
// the whole and of each unit, so the number of runs is the least there can be: the
// largest of ⌈n/k⌉ over all and over the units.
func Plan(counters []string, l Limit) ([][]string, error) {
	runs, err := l.runs(counters)
	if err != nil {
		return nil, err
	}
	byUnit := slices.Clone(counters)
	slices.SortStableFunc(byUnit, func(a, b string) int { return strings.Compare(unitOf(a), unitOf(b)) })
	out := make([][]string, runs)
	for i, c := range byUnit {
		out[i%runs] = append(out[i%runs], c)
	}
	return out, nil
}

func (l Limit) runs(counters []string) (int, error) {
	if len(counters) == 0 {
		return 0, nil
	}
	runs := 1
	of := func(n, k int, what string) error {
		if k < 0 {
			return fmt.Errorf("%w: %d counters of %s in a run: want 1 or more", ErrFormula, k, what)
		}
		if k > 0 {
			runs = max(runs, (n+k-1)/k)
		}
		return nil
	}
	if err := of(len(counters), l.Total, "all"); err != nil {
		return 0, err
	}
	units := map[string]int{}
	for _, c := range counters {
		units[unitOf(c)]++
	}
	for u, n := range units {
		if err := of(n, l.PerUnit[u], u); err != nil {
			return 0, err
		}
	}
	return runs, nil
}

func unitOf(counter string) string {
	u, _, ok := strings.Cut(counter, "__")
	if !ok {
		return ""
	}
	return u
}
