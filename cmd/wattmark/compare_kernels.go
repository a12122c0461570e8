package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"wattmark/analysis/compare"
	"wattmark/hostagent/measurement"
	"wattmark/store"
)

// kernelEffect is one kernel of both sides.
type kernelEffect struct {
	Name      string       `json:"name"`
	LaunchesA float64      `json:"a_launches"` // of a run, on the average
	LaunchesB float64      `json:"b_launches"`
	Energy    effectReport `json:"energy"`
	Time      effectReport `json:"time"`
	PerCallA  float64      `json:"a_j_per_launch"`
	PerCallB  float64      `json:"b_j_per_launch"`
	Holm      *float64     `json:"p_holm"`
}

// nameEnergies is the energy by kernel of a task's result in use, worked out where
// it was not; none where the program was not recorded.
func nameEnergies(ctx context.Context, db *store.DB, t *store.Task) ([]store.NameEnergy, error) {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil || len(tables.Processes) == 0 {
		return nil, err
	}
	lines, err := db.NameEnergies(ctx, t.ID, t.ResultNumber)
	if err == nil && len(lines) == 0 {
		lines, err = attributed(ctx, db, t.ID)
	}
	if errors.Is(err, measurement.ErrNoShares) {
		return nil, nil
	}
	return lines, err
}

// kernelRuns are one side's runs of one kernel.
type kernelRuns struct {
	runs     []compare.Run
	launches float64
}

// kernelsOf gathers a side's kernels by name.
func (s *comparedSide) kernelsOf(ctx context.Context) (map[string]*kernelRuns, error) {
	out := map[string]*kernelRuns{}
	for i, t := range s.tasks {
		lines, err := nameEnergies(ctx, s.db, t)
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			if l.Class != store.KernelEnergy || !(l.Energy.Energy > 0) || !(l.Share > 0) {
				continue
			}
			k := out[l.Name]
			if k == nil {
				k = &kernelRuns{}
				out[l.Name] = k
			}
			k.runs = append(k.runs, kernelRun(&l, &s.runs[i]))
			k.launches += float64(l.Launches)
		}
	}
	return out, nil
}

// kernelRun is a kernel's part of a run. Errors that stand behind several runs are
// as large in it, relatively, as in the whole; what else its uncertainty holds is
// its own.
func kernelRun(l *store.NameEnergy, whole *compare.Run) compare.Run {
	out := compare.Run{Name: whole.Name, At: whole.At, Energy: l.Energy.Energy, Time: l.Share}
	u := float64(l.Energy.U) / 2 / float64(l.Energy.Energy)
	rest := u * u
	for _, e := range whole.Errors {
		if e.Behind != "" {
			out.Errors = append(out.Errors, e)
			rest -= e.Energy * e.Energy
		}
	}
	if rest > 0 {
		out.Errors = append(out.Errors, compare.Error{Energy: math.Sqrt(rest)})
	}
	return out
}

// addKernels compares the kernels that both sides have.
func (r *compareReport) addKernels(ctx context.Context, s *[2]comparedSide) error {
	var by [2]map[string]*kernelRuns
	for i := range s {
		var err error
		if by[i], err = s[i].kernelsOf(ctx); err != nil {
			return err
		}
	}
	var family []compare.Effect
	only := [2]int{}
	for name, a := range by[0] {
		b := by[1][name]
		if b == nil {
			only[0]++
			continue
		}
		energy, err := compare.Between(a.runs, b.runs, compare.Energy)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", readable(name), err)
		}
		time, err := compare.Between(a.runs, b.runs, compare.Time)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", readable(name), err)
		}
		k := kernelEffect{
			Name: readable(name), LaunchesA: a.launches / float64(len(a.runs)), LaunchesB: b.launches / float64(len(b.runs)),
			Energy: newEffect(&energy), Time: newEffect(&time),
		}
		k.PerCallA, k.PerCallB = energy.A.Value/k.LaunchesA, energy.B.Value/k.LaunchesB
		family, r.Kernels = append(family, energy), append(r.Kernels, k)
	}
	for name := range by[1] {
		if by[0][name] == nil {
			only[1]++
		}
	}
	compare.Holm(family)
	for i := range family {
		r.Kernels[i].Holm, r.Kernels[i].Energy.Shown = number(family[i].Holm), family[i].Shown()
	}
	slices.SortFunc(r.Kernels, func(x, y kernelEffect) int {
		return cmp.Or(cmp.Compare(max(y.Energy.A.Value, y.Energy.B.Value), max(x.Energy.A.Value, x.Energy.B.Value)), cmp.Compare(x.Name, y.Name))
	})
	if len(r.Kernels) > 0 && only[0]+only[1] > 0 {
		r.Cautions = append(r.Cautions, fmt.Sprintf("%d kernels ran in A only, %d in B only: they are in the totals, and not compared", only[0], only[1]))
	}
	return nil
}
