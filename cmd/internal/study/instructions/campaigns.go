package instructions

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
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
	c := &cobra.Command{Use: "instructions", Short: "Measure what single GPU instructions cost"}
	catalogue := listCmd(a, "list", "List the instructions that can be measured", "instructions",
		func(context.Context) ([]instructions.Instruction, error) { return instructions.Catalogue(), nil },
		out.Row{"instruction", "group", "row of Arafa et al.", "step"},
		func(i instructions.Instruction) out.Row { return out.Row{i.Name, i.Group, i.Row, i.Step} })
	campaigns := listCmd(a, "campaigns", "List the campaigns of instructions, newest first", "campaigns",
		func(ctx context.Context) ([]store.InstructionCampaign, error) { return allCampaigns(a, ctx) },
		out.Row{"campaign", "started", "GPU", "driver", "host", "seed", "passes", "runs"},
		func(c store.InstructionCampaign) out.Row {
			return out.Row{c.ID, c.Started.Local().Format(time.DateTime), c.GPU, c.Driver, c.Host, c.Seed, c.Passes, c.Runs}
		})
	c.AddCommand(catalogue, instructionsRunCmd(a), instructionsTableCmd(a), instructionsCompareCmd(a),
		instructionsImportCmd(a), campaigns, instructionsDeleteCmd(a), instructionsSASSCmd(a))
	return cli.In(cli.Measure, help, c)
}

// listCmd returns a command that prints a list: under a key in JSON, as a table in text.
func listCmd[T any](a *cli.App, use, short, key string, load func(context.Context) ([]T, error), head out.Row,
	row func(T) out.Row,
) *cobra.Command {
	return a.JSONFlag(cli.Command(use, short, cobra.NoArgs, func(ctx context.Context, _ []string) error {
		list, err := load(ctx)
		if err != nil {
			return err
		}
		list = append([]T{}, list...) // JSON shows none as []
		return a.Print(map[string]any{key: list}, func(w io.Writer) { out.Table(w, head, list, row) })
	}))
}

// allCampaigns reads the campaigns of the task database, newest first.
func allCampaigns(a *cli.App, ctx context.Context) ([]store.InstructionCampaign, error) {
	db, err := a.OpenDB(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return db.InstructionCampaigns(ctx)
}

// instructionsImportCmd returns instructions import. The database is created if absent.
func instructionsImportCmd(a *cli.App) *cobra.Command {
	return cli.Command("import FILE...", "Put files of runs into the task database", cobra.MinimumNArgs(1),
		func(ctx context.Context, args []string) error {
			db, err := store.Open(ctx, a.DB)
			if err != nil {
				return err
			}
			defer db.Close()
			for _, name := range args {
				if err := instructionsImport(a, ctx, db, name); err != nil {
					return err
				}
			}
			return nil
		})
}

// instructionsImport stores the runs of one file as campaigns, one per start and
// GPU, each in one transaction. A campaign already stored is reported and skipped,
// so that a file can be imported again after it has grown.
func instructionsImport(a *cli.App, ctx context.Context, db *store.DB, name string) error {
	runs, err := cli.ReadFile(name, instructions.ReadRuns)
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
			id, err := db.ImportInstructions(ctx, c, list)
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

// instructionsDeleteCmd returns instructions delete, which asks before it deletes.
func instructionsDeleteCmd(a *cli.App) *cobra.Command {
	var yes bool
	c := cli.Command("delete CAMPAIGN", "Delete a campaign of instructions", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error {
			n, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return cli.Usagef("%q is not a campaign's number: list them with wattmark instructions campaigns", args[0])
			}
			db, err := a.OpenToChange(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			if ok, err := task.Confirm(a, yes, fmt.Sprintf("campaign %d of %s", n, a.DB)); err != nil || !ok {
				return err
			}
			if err := db.DeleteInstructions(ctx, store.CampaignID(n)); err != nil {
				return noCampaign(a, err)
			}
			fmt.Fprintf(a.Out, "Deleted campaign %d from %s\n", n, a.DB)
			return nil
		})
	task.YesFlag(c.Flags(), &yes)
	return c
}
