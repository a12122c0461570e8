package instructions

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/hostagent/experiment/instructions"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// tableFlags select rows of a table of instructions.
type tableFlags struct {
	method, layout string
	level          int
	campaigns      []int64
	check          bool
	changed        func(flag string) bool // whether the command line gives a flag
}

// add defines the flags that table and compare share.
func (f *tableFlags) add(c *cobra.Command) {
	f.changed = c.Flags().Changed
	c.Flags().StringVar(&f.method, "method", string(instructions.Instant), "sma, mtsm, papi, counter, instant, or meter")
	c.Flags().StringVar(&f.layout, "layout", "", "one-thread or whole-gpu; both when left out")
	c.Flags().IntVar(&f.level, "opt-level", -1, "optimisation level; all when left out")
}

// takes reports whether a row is selected; with all, every method is, unless one
// is named.
func (f *tableFlags) takes(m instructions.Method, l instructions.Layout, level int, all bool) bool {
	return (f.method == string(m) || all && !f.changed("method")) &&
		(f.layout == "" || f.layout == string(l)) && (f.level < 0 || f.level == level)
}

func instructionsTableCmd(a *cli.App) *cobra.Command {
	var f tableFlags
	c := cli.Command("table [FILE|CAMPAIGN...]", "Show the energy of the instructions that were measured", nil,
		func(ctx context.Context, args []string) error {
			// --campaign N is another spelling of the argument N.
			for _, n := range f.campaigns {
				args = append(args, strconv.FormatInt(n, 10))
			}
			runs, err := instructionRuns(a, ctx, args)
			if err != nil {
				return err
			}
			table := instructions.Estimates(runs)
			if f.check {
				return instructionsCheck(a, instructions.Checks(table, f.method))
			}
			rows := append([]instructions.Estimate{}, lists.Filter(table, func(e *instructions.Estimate) bool {
				return f.takes(e.Method, e.Layout, e.Level, a.JSON)
			})...) // JSON shows none as []
			return a.Print(rows, func(w io.Writer) { renderEstimates(w, rows) })
		})
	f.add(c)
	c.Flags().Int64SliceVar(&f.campaigns, "campaign", nil, "campaign of the task database (repeatable)")
	c.Flags().BoolVar(&f.check, "check", false, "hold the figures against what one expects")
	return a.JSONFlag(c)
}

// renderEstimates writes a table of estimates; the dynamic energy is that above the idle GPU.
func renderEstimates(w io.Writer, rows []instructions.Estimate) {
	out.Table(w, out.Row{
		"instruction", "layout", "level", "energy", "± spread", "dynamic", "± spread", "cycles", "power", "passes", "result",
	}, rows, func(e instructions.Estimate) out.Row {
		return out.Row{
			e.Instruction, e.Layout, levelText(e.Level), joules(e.Energy), spread(e.Spread, e.Passes),
			joules(e.Dynamic), spread(e.DynamicSpread, e.Passes), fmt.Sprintf("%.1f", e.Cycles), e.Power, e.Passes,
			map[bool]string{true: "checked"}[e.Checked],
		}
	})
}

// instructionRuns reads campaigns, by number, and files, and joins their runs as
// passes of one measurement. Without names it reads the newest campaign. Runs on
// several GPUs are wrong usage: their passes cannot be averaged.
func instructionRuns(a *cli.App, ctx context.Context, names []string) ([]instructions.Run, error) {
	if len(names) == 0 {
		list, err := allCampaigns(a, ctx)
		if err == nil && len(list) == 0 {
			err = cli.NotFoundf("no campaign in %s: measure one with wattmark instructions run, or name a file", a.DB)
		}
		if err != nil {
			return nil, err
		}
		names = []string{strconv.FormatInt(int64(list[0].ID), 10)}
	}
	var runs []instructions.Run
	for _, name := range names {
		r, err := runsNamed(a, ctx, name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r...)
	}
	// Passes are averaged, and two GPUs are two quantities.
	if cards := instructions.Cards(runs); len(cards) > 1 {
		return nil, cli.Usagef("runs on %d GPUs (%s) make no one table: hold them against each other with wattmark "+
			"instructions compare", len(cards), strings.Join(cards, ", "))
	}
	return runs, nil
}

// runsNamed reads one campaign if name is a number, else a file.
func runsNamed(a *cli.App, ctx context.Context, name string) ([]instructions.Run, error) {
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return cli.ReadFile(name, instructions.ReadRuns)
	}
	return cli.Reading(a, ctx, func(db *store.DB) ([]instructions.Run, error) {
		runs, err := CampaignRuns(ctx, db, store.CampaignID(n))
		return runs, noCampaign(a, err)
	})
}

// noCampaign gives store.ErrNoCampaign its exit code and remedy; other errors
// pass.
func noCampaign(a *cli.App, err error) error {
	if errors.Is(err, store.ErrNoCampaign) {
		return cli.NotFoundf("%w in %s: list them with wattmark instructions campaigns", err, a.DB)
	}
	return err
}

// CampaignRuns reads the runs of a stored campaign.
func CampaignRuns(ctx context.Context, db *store.DB, id store.CampaignID) ([]instructions.Run, error) {
	c, err := db.InstructionCampaign(ctx, id)
	if err != nil {
		return nil, err
	}
	runs, err := db.Instructions(ctx, id)
	return instructions.FromStore(c, runs), err
}

// instructionsCheck prints the expectations, such as a division costing more than
// an addition, and fails if one is violated by more than the noise, or if none
// applies.
func instructionsCheck(a *cli.App, checks []instructions.Check) error {
	if err := a.Print(checks, func(w io.Writer) {
		head := out.Row{"expectation", "layout", "dearer", "energy", "cheaper", "energy", "± U", "verdict"}
		out.Table(w, head, checks, func(c instructions.Check) out.Row {
			return out.Row{
				c.Rule, c.Layout, c.Dearer.Instruction + " " + levelText(c.Dearer.Level), joules(c.Dearer.Energy),
				c.Cheaper.Instruction + " " + levelText(c.Cheaper.Level), joules(c.Cheaper.Energy), joules(c.U), c.Verdict,
			}
		})
	}); err != nil {
		return err
	}
	// A check without a single pair of instructions would pass silently.
	if len(checks) == 0 {
		return errors.New("nothing to check: no pair of instructions of which one must cost more was measured by " +
			"this method")
	}
	if failed := instructions.Failed(checks); failed > 0 {
		return fmt.Errorf("%d of %d expectations fail", failed, len(checks))
	}
	return nil
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
	c := &cobra.Command{Use: "instructions", Short: "Measure what single GPU instructions cost"}
	catalogue := task.ListCmd(a, "list", "List the instructions that can be measured", "instructions",
		func(context.Context) ([]instructions.Instruction, error) { return instructions.Catalogue(), nil }, "",
		out.Row{"instruction", "group", "row of Arafa et al.", "step"},
		func(i instructions.Instruction) out.Row { return out.Row{i.Name, i.Group, i.Row, i.Step} })
	campaigns := task.ListCmd(a, "campaigns", "List the campaigns of instructions, newest first", "campaigns",
		func(ctx context.Context) ([]store.InstructionCampaign, error) { return allCampaigns(a, ctx) }, "",
		out.Row{"campaign", "started", "GPU", "driver", "host", "seed", "passes", "runs"},
		func(c store.InstructionCampaign) out.Row {
			return out.Row{c.ID, c.Started.Local().Format(time.DateTime), c.GPU, c.Driver, c.Host, c.Seed, c.Passes, c.Runs}
		})
	c.AddCommand(catalogue, instructionsRunCmd(a), instructionsTableCmd(a), instructionsCompareCmd(a),
		instructionsImportCmd(a), campaigns, instructionsDeleteCmd(a))
	return cli.In(cli.Measure, help, c)
}

// allCampaigns reads the campaigns of the task database, newest first.
func allCampaigns(a *cli.App, ctx context.Context) ([]store.InstructionCampaign, error) {
	return cli.Reading(a, ctx, func(db *store.DB) ([]store.InstructionCampaign, error) {
		return db.InstructionCampaigns(ctx)
	})
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
	// A file may hold several starts and GPUs: each pair is a campaign of the database.
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
				fmt.Fprintf(a.Out, "%s, %s: %s are campaign %d\n", name, at.Format(time.RFC3339),
					measure.Plural(len(list), "run"), id)
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
