package instructions

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/hostagent/experiment/instructions"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// instructionsCmd returns the family instructions with its commands.
func instructionsCmd(a *cli.App) *cobra.Command {
	c := &cobra.Command{Use: "instructions", Short: "Measure what single GPU instructions cost"}
	c.AddCommand(instructionsListCmd(a), instructionsRunCmd(a), instructionsTableCmd(a), instructionsCompareCmd(a),
		instructionsImportCmd(a), instructionsCampaignsCmd(a), instructionsDeleteCmd(a), instructionsSASSCmd(a))
	return c
}

// instructionsListCmd returns instructions list: the catalogue, without GPU or
// database.
func instructionsListCmd(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the instructions that can be measured", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list := instructions.Catalogue()
			return a.Print(map[string]any{"instructions": list}, func(w io.Writer) {
				head := out.Row{"instruction", "group", "row of Arafa et al.", "step"}
				out.Table(w, head, list, func(i instructions.Instruction) out.Row {
					return out.Row{i.Name, i.Group, i.Row, i.Step}
				})
			})
		},
	}
	return a.JSONFlag(c)
}

// joules formats energies of pJ to µJ with three digits.
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

// spread formats the standard deviation over passes; a single pass has none.
func spread(e measure.Joule, passes int) string {
	if passes < 2 {
		return "one pass"
	}
	return joules(e)
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	return cli.In(cli.Measure, help, instructionsCmd(a))
}

// instructionsImportCmd returns instructions import. The database is created if
// absent.
func instructionsImportCmd(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "import FILE...", Short: "Put files of runs into the task database", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := store.Open(cmd.Context(), a.DB)
			if err != nil {
				return err
			}
			defer db.Close()
			for _, name := range args {
				if err := instructionsImport(a, cmd, db, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// instructionsImport stores the runs of one file as campaigns, one per start and
// GPU, each in one transaction. A campaign already stored is reported and skipped,
// so that a file can be imported again after it has grown.
func instructionsImport(a *cli.App, cmd *cobra.Command, db *store.DB, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	runs, err := instructions.ReadRuns(f, name)
	if err != nil {
		return err
	}
	// A file collects campaigns of several starts and GPUs; each pair is one campaign
	// of the database.
	for _, at := range instructions.Campaigns(runs) {
		for _, card := range instructions.Cards(runs) {
			var c store.InstructionCampaign
			var list []store.InstructionRun
			for n := range runs {
				if r := &runs[n]; r.Campaign.Equal(at) && r.UUID == card {
					of, run := r.Stored()
					c, list = of, append(list, run)
				}
			}
			if len(list) == 0 {
				continue
			}
			id, err := db.ImportInstructions(cmd.Context(), c, list)
			switch {
			case errors.Is(err, store.ErrConflict):
				fmt.Fprintf(a.Out, "%s, %s: passed over: %v\n", name, at.Format(time.RFC3339), err)
			case err != nil:
				return fmt.Errorf("%s: %w", name, err)
			default:
				fmt.Fprintf(a.Out, "%s, %s: %d runs are campaign %d\n", name, at.Format(time.RFC3339), len(list), id)
			}
		}
	}
	return nil
}

// instructionsCampaignsCmd returns instructions campaigns.
func instructionsCampaignsCmd(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use: "campaigns", Short: "List the campaigns of instructions, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.OpenDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			list, err := db.InstructionCampaigns(cmd.Context())
			if err != nil {
				return err
			}
			list = append([]store.InstructionCampaign{}, list...) // JSON shows none as []
			return a.Print(map[string]any{"campaigns": list}, func(w io.Writer) {
				head := out.Row{"campaign", "started", "GPU", "driver", "host", "seed", "passes", "runs"}
				out.Table(w, head, list, func(c store.InstructionCampaign) out.Row {
					return out.Row{c.ID, c.Started.Local().Format(time.DateTime), c.GPU, c.Driver, c.Host, c.Seed, c.Passes, c.Runs}
				})
			})
		},
	}
	return a.JSONFlag(c)
}

// instructionsDeleteCmd returns instructions delete, which asks before it deletes.
func instructionsDeleteCmd(a *cli.App) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete CAMPAIGN", Short: "Delete a campaign of instructions", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return cli.Usagef("%q is not a campaign's number: list them with wattmark instructions campaigns", args[0])
			}
			db, err := a.OpenToChange(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			if ok, err := task.Confirm(a, yes, fmt.Sprintf("campaign %d of %s", n, a.DB)); err != nil || !ok {
				return err
			}
			if err := db.DeleteInstructions(cmd.Context(), store.CampaignID(n)); err != nil {
				return noCampaign(a, err)
			}
			fmt.Fprintf(a.Out, "Deleted campaign %d from %s\n", n, a.DB)
			return nil
		},
	}
	task.YesFlag(c.Flags(), &yes)
	return c
}
