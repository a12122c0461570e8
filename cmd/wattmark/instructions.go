package main

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/hostagent/instructions"
	"wattmark/measure"
)

func (a *app) instructionsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "instructions", Short: "Measure what single GPU instructions cost",
		Long: `Measure the energy of single GPU instructions, after Arafa et al. (2020): a kernel
with a block of dependent instructions against the same kernel without it. Two
layouts: one thread, as in the paper, where what an instruction costs is the
whole GPU's power for its time; and a full GPU, where its own power stands out.`,
	}
	c.AddCommand(
		a.instructionsListCmd(), a.instructionsRunCmd(), a.instructionsTableCmd(), a.instructionsCompareCmd(),
		a.instructionsImportCmd(), a.instructionsCampaignsCmd(), a.instructionsDeleteCmd(), a.instructionsSASSCmd(),
	)
	return c
}

func (a *app) instructionsListCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the instructions that can be measured", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]any{"instructions": instructions.Catalogue()})
			}
			t := newTable(a.out)
			t.AppendHeader(table.Row{"instruction", "group", "row of Arafa et al.", "step"})
			for _, i := range instructions.Catalogue() {
				t.AppendRow(table.Row{i.Name, i.Group, i.Row, i.Step})
			}
			t.Render()
			return nil
		},
	}
	return a.jsonFlag(c)
}

// joules writes very small energies.
func joules(e measure.Joule) string {
	switch v := float64(e); {
	case v == 0:
		return "0"
	case v < 1e-9 && v > -1e-9:
		return fmt.Sprintf("%.3g pJ", 1e12*v)
	case v < 1e-6 && v > -1e-6:
		return fmt.Sprintf("%.3g nJ", 1e9*v)
	default:
		return fmt.Sprintf("%.3g µJ", 1e6*v)
	}
}

// spread writes a standard deviation, of which a single pass has none.
func spread(e measure.Joule, passes int) string {
	if passes < 2 {
		return "one pass"
	}
	return joules(e)
}
