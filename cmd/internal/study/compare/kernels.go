package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/compare"
	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// kernelEffect compares one kernel of both sides. Holm is the p corrected for the number
// of kernels; it is null without a test.
type kernelEffect struct {
	Name      string         `json:"name"`
	LaunchesA float64        `json:"a_launches"` // mean per run
	LaunchesB float64        `json:"b_launches"`
	Energy    compare.Effect `json:"energy"`
	Time      compare.Effect `json:"time"`
	PerCallA  float64        `json:"a_j_per_launch"`
	PerCallB  float64        `json:"b_j_per_launch"`
	Holm      measure.Number `json:"p_holm"`
}

// kernelRuns are the runs of one side that contain a kernel, with its launches in all of
// them.
type kernelRuns struct {
	runs     []compare.Run
	launches float64
}

// kernelsOf collects a side's kernels by name. Kernels without energy or time in a run
// are skipped: a ratio of them does not exist.
func (s *comparedSide) kernelsOf(ctx context.Context) (map[string]kernelRuns, error) {
	out := map[string]kernelRuns{}
	for i, t := range s.tasks {
		_, lines, err := report.NameEnergies(ctx, s.db, t)
		if err != nil && !errors.Is(err, measurement.ErrNoShares) {
			return nil, err
		}
		for _, l := range lines {
			if l.Class != store.KernelEnergy || !(l.Energy.Energy > 0) || !(l.Share > 0) {
				continue
			}
			k := out[l.Name]
			k.runs = append(k.runs, kernelRun(&l, &s.runs[i]))
			k.launches += float64(l.Launches)
			out[l.Name] = k
		}
	}
	return out, nil
}

// kernelRun returns the part of a kernel in a run. Errors with an origin shared between
// runs have the same relative size as in the whole; the rest of the kernel's uncertainty
// is independent:
//
//	rest² = (U/2E)² − Σ shared²
func kernelRun(l *store.NameEnergy, whole *compare.Run) compare.Run {
	out := compare.Run{Name: whole.Name, At: whole.At, Energy: l.Energy.Energy, Time: l.Share, Turn: whole.Turn}
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

// addKernels compares the kernels that both sides have, sorted by falling energy, with p
// corrected after Holm. Kernels of one side alone are counted in a caution.
func (r *CompareReport) addKernels(ctx context.Context, s *[2]comparedSide) error {
	var by [2]map[string]kernelRuns
	for i := range s {
		var err error
		if by[i], err = s[i].kernelsOf(ctx); err != nil {
			return err
		}
	}
	var family, times []compare.Effect
	only := [2]int{}
	for name, a := range by[0] {
		b, both := by[1][name]
		if !both {
			only[0]++
			continue
		}
		k, err := compareKernel(name, a, b)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", api.Readable(name), err)
		}
		family, times, r.Kernels = append(family, k.Energy), append(times, k.Time), append(r.Kernels, k)
	}
	only[1] = len(by[1]) - len(r.Kernels)
	// The family is complete only here: the correction depends on the number of tests.
	compare.Holm(family)
	compare.Holm(times)
	for i := range family {
		r.Kernels[i].Energy, r.Kernels[i].Time, r.Kernels[i].Holm = family[i], times[i], family[i].Corrected
	}
	// By the larger of both energies: a kernel that B made cheap stays near the top.
	slices.SortFunc(r.Kernels, func(x, y kernelEffect) int {
		return cmp.Or(cmp.Compare(max(y.Energy.A.Value, y.Energy.B.Value), max(x.Energy.A.Value, x.Energy.B.Value)),
			cmp.Compare(x.Name, y.Name))
	})
	if len(r.Kernels) > 0 && only[0]+only[1] > 0 {
		r.Cautions = append(r.Cautions, fmt.Sprintf(
			"%s ran in A only, %d in B only: they are in the totals, and not compared", measure.Plural(only[0], "kernel"), only[1]))
	}
	return nil
}

// compareKernel compares the energy and time of one kernel.
func compareKernel(name string, a, b kernelRuns) (k kernelEffect, err error) {
	if k.Energy, err = compare.Between(a.runs, b.runs, compare.Energy); err != nil {
		return k, err
	}
	if k.Time, err = compare.Between(a.runs, b.runs, compare.Time); err != nil {
		return k, err
	}
	k.Name = api.Readable(name)
	k.LaunchesA, k.LaunchesB = a.launches/float64(len(a.runs)), b.launches/float64(len(b.runs))
	k.PerCallA, k.PerCallB = k.Energy.A.Value/k.LaunchesA, k.Energy.B.Value/k.LaunchesB
	return k, nil
}
