package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"wattmark/analysis/predict"
)

// publishedReport are errors as the paper prints them.
type publishedReport struct {
	Worst   float64 `json:"wre_pct"`
	Best    float64 `json:"bre_pct"`
	Average float64 `json:"are_pct"`
}

type referenceReport struct {
	Device    string          `json:"device"`
	Kernel    string          `json:"kernel"`
	Time      publishedReport `json:"time"`
	Energy    publishedReport `json:"energy"`
	Irregular string          `json:"irregular,omitempty"`
}

func (a *app) predictReferenceCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "reference", Short: "Show the errors that the paper reports", Args: cobra.NoArgs,
		Long: `Show Tables IV and V of Boughzala et al. (2020): the errors of predicted time and
energy in percent, of 9 kernels on two GPUs. The measurements behind them are not
published, so they cannot be computed again.`,
		RunE: func(*cobra.Command, []string) error {
			list := []referenceReport{}
			for _, r := range predict.References() {
				list = append(list, referenceReport{r.Device, r.Kernel, publishedReport(r.Time), publishedReport(r.Energy), r.Irregular})
			}
			if a.json {
				return a.printJSON(map[string]any{"source": "Boughzala et al. 2020, Tables IV and V", "rows": list})
			}
			t := newTable(a.out)
			t.AppendHeader([]any{"device", "kernel", "time WRE", "BRE", "ARE", "energy WRE", "BRE", "ARE", ""})
			var notes []string
			for _, r := range list {
				mark := ""
				if r.Irregular != "" {
					mark = "*"
					notes = append(notes, fmt.Sprintf("* %s on %s: %s", r.Kernel, r.Device, r.Irregular))
				}
				t.AppendRow([]any{r.Device, r.Kernel, r.Time.Worst, r.Time.Best, r.Time.Average, r.Energy.Worst, r.Energy.Best, r.Energy.Average, mark})
			}
			t.Render()
			for _, n := range notes {
				fmt.Fprintln(a.out, n)
			}
			return nil
		},
	}
	return a.jsonFlag(c)
}

func (a *app) predictAdviseCmd() *cobra.Command {
	var sms, resident, largest uint64
	c := &cobra.Command{
		Use: "advise", Short: "Say which numbers of blocks to measure for a calibration", Args: cobra.NoArgs,
		Example: "  wattmark predict advise --sms 132 --resident 2 --largest 100000",
		RunE: func(*cobra.Command, []string) error {
			x, err := predict.Advise(sms, resident, largest)
			if err != nil {
				return withCode(exitUsage, err)
			}
			if a.json {
				return a.printJSON(x)
			}
			fmt.Fprintf(a.out, "Measure launches of %v blocks:\n", x.Blocks)
			for _, w := range x.Why {
				fmt.Fprintln(a.out, " -", w)
			}
			return nil
		},
	}
	c.Flags().Uint64Var(&sms, "sms", 0, "multiprocessors of the GPU (required)")
	c.Flags().Uint64Var(&resident, "resident", 1, "blocks that a multiprocessor holds at a time")
	c.Flags().Uint64Var(&largest, "largest", 0, "largest number of blocks that is to be predicted")
	return a.jsonFlag(c)
}
