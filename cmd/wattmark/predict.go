package main

import (
	"github.com/spf13/cobra"
)

func (a *app) predictCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "predict", Short: "Predict a kernel's time and energy from its number of blocks",
		Long: `Predict a kernel's time and energy from its number of blocks, after Boughzala et
al. (2020): three measured launches of a kernel with different grids, and the
power of the idle GPU, tell those of any other grid, by a line and by rounds of
as many blocks as the GPU holds. docs/prediction.md tells how, and how well.`,
		Example: `  wattmark predict advise --sms 132 --resident 2
  wattmark predict calibrate 3 5 8 --sms 132 --idle 134W --name vadd
  wattmark predict at vadd --blocks 15,140,9765
  wattmark predict simgrid --platform fig3 --blocks 15,140,9765
  wattmark predict sweep --kernel vectoradd`,
	}
	c.AddCommand(
		a.predictAdviseCmd(), a.predictCalibrateCmd(), a.predictSweepCmd(), a.predictAtCmd(), a.predictShowCmd(), a.predictListCmd(),
		a.predictDeleteCmd(), a.predictCheckCmd(), a.predictExportCmd(), a.predictSimGridCmd(), a.predictReferenceCmd(),
	)
	return c
}
