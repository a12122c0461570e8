package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/hostagent/instructions"
	"wattmark/store"
)

// tableFlags select rows of a table of instructions.
type tableFlags struct {
	method, layout string
	level          int
	campaigns      []int64
	check          bool
	markdown       bool
	byMethod       bool
	sass           string
}

func (f *tableFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.method, "method", string(instructions.Instant), "sma, mtsm, papi, counter, instant, or meter")
	c.Flags().StringVar(&f.layout, "layout", "", "one-thread or whole-gpu; both when left out")
	c.Flags().IntVar(&f.level, "level", -1, "optimisation level; all when left out")
}

// takes reports whether a row is wanted; a table in JSON has all methods unless
// one is named.
func (f *tableFlags) takes(c *cobra.Command, m instructions.Method, l instructions.Layout, level int, all bool) bool {
	return (f.method == string(m) || all && !c.Flags().Changed("method")) && (f.layout == "" || f.layout == string(l)) && (f.level < 0 || f.level == level)
}

func (a *app) instructionsTableCmd() *cobra.Command {
	var f tableFlags
	c := &cobra.Command{
		Use: "table [FILE|CAMPAIGN...]", Short: "Show the energy of the instructions that were measured",
		Long: `Show what instructions cost: of a campaign in the task database, the newest unless
one is named, or of files. Several count as further passes of one measurement, if
they are of the same GPU.

--check holds the figures against what physics and the compiler make one expect,
and fails where an expectation fails by more than the noise.`,
		Example: "  wattmark instructions table --layout whole-gpu --method counter\n  wattmark instructions table h200-1.jsonl h200-2.jsonl --check",
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, n := range f.campaigns {
				args = append(args, strconv.FormatInt(n, 10))
			}
			runs, err := a.instructionRuns(cmd.Context(), args)
			if err != nil {
				return err
			}
			table := instructions.Estimates(runs)
			if f.check {
				return a.instructionsCheck(instructions.Checks(table, instructions.Method(f.method)))
			}
			if f.markdown {
				if f.byMethod {
					markdownByMethod(a.out, table, instructions.Layout(cmp.Or(f.layout, string(instructions.OneThread))))
					return nil
				}
				sass, err := readSASS(f.sass)
				if err != nil {
					return err
				}
				markdown(a.out, table, instructions.Method(f.method), sass)
				return nil
			}
			rows := []instructions.Estimate{}
			for _, e := range table {
				if f.takes(cmd, e.Method, e.Layout, e.Level, a.json) {
					rows = append(rows, e)
				}
			}
			return a.instructionsTable(rows)
		},
	}
	f.add(c)
	c.Flags().Int64SliceVar(&f.campaigns, "campaign", nil, "campaign of the task database (repeatable)")
	c.Flags().BoolVar(&f.check, "check", false, "hold the figures against what one expects")
	c.Flags().BoolVar(&f.markdown, "markdown", false, "print the table of docs/instructions.md")
	c.Flags().BoolVar(&f.byMethod, "by-method", false, "with --markdown: what each method says, of one --layout")
	c.Flags().StringVar(&f.sass, "sass", "", "with --markdown: what wattmark instructions sass --json printed")
	return a.jsonFlag(c)
}

// instructionRuns reads campaigns, by number, and files; the newest campaign for
// none. They must be of one GPU.
func (a *app) instructionRuns(ctx context.Context, names []string) ([]instructions.Run, error) {
	if len(names) == 0 {
		n, err := a.newestCampaign(ctx)
		if err != nil {
			return nil, err
		}
		names = []string{n}
	}
	var runs []instructions.Run
	for _, name := range names {
		r, err := a.runsNamed(ctx, name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r...)
	}
	if cards := instructions.Cards(runs); len(cards) > 1 {
		return nil, withCode(exitUsage, fmt.Errorf("runs on %d GPUs (%s) make no one table: hold them against each other with wattmark instructions compare", len(cards), strings.Join(cards, ", ")))
	}
	return runs, nil
}

func (a *app) newestCampaign(ctx context.Context) (string, error) {
	db, err := a.openDB(ctx)
	if err != nil {
		return "", err
	}
	defer db.Close()
	list, err := db.InstructionCampaigns(ctx)
	if err == nil && len(list) == 0 {
		err = withCode(exitNotFound, fmt.Errorf("no campaign in %s: measure one with wattmark instructions run, or name a file", a.db))
	}
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(int64(list[0].ID), 10), nil
}

// runsNamed reads one campaign or file.
func (a *app) runsNamed(ctx context.Context, name string) ([]instructions.Run, error) {
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return instructions.ReadRuns(f, name)
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	runs, err := campaignRuns(ctx, db, store.CampaignID(n))
	return runs, a.noCampaign(err)
}

// noCampaign gives a campaign that is not there its exit code.
func (a *app) noCampaign(err error) error {
	if errors.Is(err, store.ErrNoCampaign) {
		return withCode(exitNotFound, fmt.Errorf("%w in %s: list them with wattmark instructions campaigns", err, a.db))
	}
	return err
}

func campaignRuns(ctx context.Context, db *store.DB, id store.CampaignID) ([]instructions.Run, error) {
	c, err := db.InstructionCampaign(ctx, id)
	if err != nil {
		return nil, err
	}
	runs, err := db.Instructions(ctx, id)
	return instructions.FromStore(c, runs), err
}

func (a *app) instructionsTable(rows []instructions.Estimate) error {
	if a.json {
		return a.printJSON(rows)
	}
	t := newTable(a.out)
	t.AppendHeader(table.Row{"instruction", "layout", "level", "energy", "± spread", "dynamic", "± spread", "cycles", "power", "passes", "result"})
	for _, e := range rows {
		t.AppendRow(table.Row{
			e.Instruction, e.Layout, fmt.Sprintf("-O%d", e.Level), joules(e.Energy), spread(e.Spread, e.Passes), joules(e.Dynamic), spread(e.DynamicSpread, e.Passes),
			fmt.Sprintf("%.1f", e.Cycles), e.Power, e.Passes, checkedText(e.Checked),
		})
	}
	t.Render()
	return nil
}

func checkedText(yes bool) string {
	if yes {
		return "checked"
	}
	return ""
}

func (a *app) instructionsCheck(checks []instructions.Check) error {
	failed := instructions.Failed(checks)
	if a.json {
		if err := a.printJSON(checks); err != nil {
			return err
		}
	} else {
		t := newTable(a.out)
		t.AppendHeader(table.Row{"expectation", "layout", "dearer", "energy", "cheaper", "energy", "± U", "verdict"})
		for _, c := range checks {
			t.AppendRow(table.Row{
				c.Rule, c.Layout, figureText(c.Dearer), joules(c.Dearer.Energy), figureText(c.Cheaper), joules(c.Cheaper.Energy), joules(c.U), c.Verdict,
			})
		}
		t.Render()
	}
	if len(checks) == 0 {
		return errors.New("nothing to check: no pair of instructions of which one must cost more was measured by this method")
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d expectations fail", failed, len(checks))
	}
	return nil
}

func figureText(f instructions.Figure) string { return fmt.Sprintf("%s -O%d", f.Instruction, f.Level) }
