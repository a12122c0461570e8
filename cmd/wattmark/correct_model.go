package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"wattmark/analysis/correct"
	"wattmark/measure"
)

// correctModelCmd prints what a modelled K20 reads, to try the correction on.
func (a *app) correctModelCmd() *cobra.Command {
	var length, gap time.Duration
	var power, noise float64
	var runs int
	var seed uint64
	c := &cobra.Command{
		Use: "model", Short: "Print the readings of a modelled K20, to try the correction on", Args: cobra.NoArgs,
		Long: `Print what a K20 in software reads of kernels of steady power, polled flat out: 38
calls of 0.283 ms that repeat a look, then one of 4.7 ms that brings the next. It is
a model with the constants of Burtscher, Zecena and Zong, no measurement.`,
		Example: "  wattmark correct model > k20.csv && wattmark correct --readings k20.csv --preset k20\n  wattmark correct model --length 1.294s --runs 2 --gap 1.215s > close.csv",
		RunE: func(*cobra.Command, []string) error {
			if length <= 0 || gap < 0 || runs < 1 || runs > 1000 || noise < 0 || length > time.Hour {
				return withCode(exitUsage, fmt.Errorf("--length %v --gap %v --runs %d --noise %g: want a positive length, and 1 to 1000 runs", length, gap, runs, noise))
			}
			m := correct.K20()
			m.Noise, m.Seed, m.Kernels = measure.Watt(noise), seed, nil
			at := measure.Seconds(2)
			for range runs {
				end := at + measure.SecondsOf(length)
				m.Kernels = append(m.Kernels, correct.ModelKernel{Span: correct.Span{From: at, To: end}, Power: measure.Watt(power)})
				at = end + measure.SecondsOf(gap)
			}
			m.End = m.T4() + 4
			return a.printK20(m)
		},
	}
	fl := c.Flags()
	fl.DurationVar(&length, "length", 5346*time.Millisecond, "how long a kernel runs")
	fl.IntVar(&runs, "runs", 1, "how often")
	fl.DurationVar(&gap, "gap", 2*time.Second, "rest between two kernels")
	fl.Float64Var(&power, "power", 158.47, "what a kernel draws, in watts")
	fl.Float64Var(&noise, "noise", 0.005, "standard deviation of a look of the sensor, in watts")
	fl.Uint64Var(&seed, "seed", 1, "seed of the noise")
	return a.jsonFlag(c)
}

func (a *app) printK20(m correct.Model) error {
	rs := m.Readings()
	if a.json {
		type reading struct {
			T float64 `json:"time_s"`
			P float64 `json:"power_w"`
		}
		out := struct {
			EnergyJ  float64   `json:"energy_j"`
			Readings []reading `json:"readings"`
		}{EnergyJ: float64(m.Energy())}
		for _, r := range rs {
			out.Readings = append(out.Readings, reading{float64(r.At), float64(r.Power)})
		}
		return json.NewEncoder(a.out).Encode(out)
	}
	w := bufio.NewWriter(a.out)
	fmt.Fprintln(w, "time_s,power_w")
	for _, r := range rs {
		fmt.Fprintf(w, "%.6f,%.3f\n", float64(r.At), float64(r.Power))
	}
	return w.Flush()
}
