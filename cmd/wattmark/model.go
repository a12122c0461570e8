package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"wattmark/analysis/counters"
	"wattmark/analysis/model"
)

func (a *app) modelCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "model", Short: "Estimate power from performance counters",
		Long: `Fit the measured power of kernels to their performance counters, and estimate the
power of others from counters alone: p = Σ α·c + β, by ridge regression, as
Nagasaka et al. have it. docs/counter-model.md goes the whole way.

  wattmark model eval kernels.csv                     how good such a model is
  wattmark model fit kernels.csv --name gtx285        make one and keep it
  wattmark model predict gtx285 others.csv            estimate
  wattmark model explain gtx285 others.csv            what each counter adds
  wattmark model plan --set full --per-run 4          which counters to count in which run

Files are CSV: of Nsight Compute (ncu --csv --page raw, or a metric a line), of
your own (a header; a row a kernel; a column power_w; perhaps app, kernel, time_s,
blocks, task), in the form of gpupowermodel, or AccelWattch's counters.`,
	}
	c.AddCommand(a.modelFitCmd(), a.modelEvalCmd(), a.modelPredictCmd(), a.modelExplainCmd(), a.modelListCmd(), a.modelShowCmd(), a.modelDeleteCmd(), a.modelPlanCmd())
	return c
}

// trainFlags say how a model is trained.
type trainFlags struct {
	method, alpha, preset string
	alphaFolds            int
	folds                 int
	foldBy                string
	seed                  uint64
}

func (f *trainFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.method, "method", string(model.Ridge), "ridge, ridge-positive (no negative coefficients), lasso or ols")
	fl.StringVar(&f.alpha, "alpha", "auto", "weight of the penalty, or auto: by cross-validation over the training rows")
	fl.IntVar(&f.alphaFolds, "alpha-folds", 10, "folds of that cross-validation")
	fl.IntVar(&f.folds, "folds", 10, "folds of the cross-validation")
	fl.StringVar(&f.foldBy, "fold-by", string(model.ByRowMod), "row-mod (row number modulo folds), block, random, loo (each row), group (each application), group-k")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of --fold-by random")
	fl.StringVar(&f.preset, "preset", "", "accelwattch: per-cycle sums, α = 10, each row left out")
}

// options reads the flags; a preset takes the place of what was not given.
func (f *trainFlags) options(c *cobra.Command) (model.Options, error) {
	switch f.preset {
	case "":
	case "accelwattch":
		if !c.Flags().Changed("alpha") {
			f.alpha = "10"
		}
		if !c.Flags().Changed("fold-by") {
			f.foldBy = string(model.ByOne)
		}
	default:
		return model.Options{}, withCode(exitUsage, fmt.Errorf("--preset %q: there is accelwattch", f.preset))
	}
	o := model.Options{Method: model.Method(f.method), Alpha: model.Auto, AlphaFolds: f.alphaFolds}
	if f.alpha != "auto" {
		v, err := strconv.ParseFloat(f.alpha, 64)
		if err != nil || math.IsNaN(v) {
			return o, withCode(exitUsage, fmt.Errorf("--alpha %q: want a number of 0 or more, or auto", f.alpha))
		}
		o.Alpha = v
	}
	return o, modelUsage(o.Check())
}

// modelUsage gives errors about what was asked for the exit code of wrong usage.
func modelUsage(err error) error {
	if errors.Is(err, model.ErrOptions) || errors.Is(err, counters.ErrFormula) {
		return withCode(exitUsage, err)
	}
	return err
}

// splitModel parts NAME@VERSION.
func splitModel(arg string) (name string, version int, err error) {
	name, v, given := strings.Cut(arg, "@")
	if given {
		version, err = strconv.Atoi(v)
		if err != nil || version < 1 {
			return "", 0, withCode(exitUsage, fmt.Errorf("%q: want a model's name, or NAME@VERSION", arg))
		}
	}
	return name, version, nil
}
