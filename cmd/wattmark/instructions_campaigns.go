package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/hostagent/instructions"
	"wattmark/store"
)

func (a *app) instructionsImportCmd() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE...", Short: "Put files of runs into the task database", Args: cobra.MinimumNArgs(1),
		Long: `Put the runs of files, as run --out writes them, into the task database. Each
campaign that a file holds becomes one there, whole or not at all; one that is
there already is passed over.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := store.Open(cmd.Context(), a.db)
			if err != nil {
				return err
			}
			defer db.Close()
			for _, name := range args {
				if err := a.instructionsImport(cmd, db, name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (a *app) instructionsImport(cmd *cobra.Command, db *store.DB, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	runs, err := instructions.ReadRuns(f, name)
	if err != nil {
		return err
	}
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
				fmt.Fprintf(a.out, "%s, %s: passed over: %v\n", name, at.Format(time.RFC3339), err)
			case err != nil:
				return fmt.Errorf("%s: %w", name, err)
			default:
				fmt.Fprintf(a.out, "%s, %s: %d runs are campaign %d\n", name, at.Format(time.RFC3339), len(list), id)
			}
		}
	}
	return nil
}

func (a *app) instructionsCampaignsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "campaigns", Short: "List the campaigns of instructions, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			list, err := db.InstructionCampaigns(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"campaigns": campaignReports(list)})
			}
			t := newTable(a.out)
			t.AppendHeader(table.Row{"campaign", "started", "GPU", "driver", "host", "seed", "passes", "runs"})
			for _, c := range list {
				t.AppendRow(table.Row{c.ID, c.Started.Local().Format("2006-01-02 15:04:05"), c.GPU, c.Driver, c.Host, c.Seed, c.Passes, c.Runs})
			}
			t.Render()
			return nil
		},
	}
	return a.jsonFlag(c)
}

// campaignReport is a campaign in JSON.
type campaignReport struct {
	Campaign store.CampaignID `json:"campaign"`
	Started  time.Time        `json:"started"`
	GPU      string           `json:"gpu"`
	UUID     string           `json:"gpu_uuid"`
	Driver   string           `json:"driver"`
	Host     string           `json:"host"`
	Version  string           `json:"version"`
	Seed     uint64           `json:"seed"`
	Passes   uint64           `json:"passes"`
	Runs     uint64           `json:"runs"`
}

func campaignReports(list []store.InstructionCampaign) []campaignReport {
	out := []campaignReport{}
	for _, c := range list {
		out = append(out, campaignReport{c.ID, c.Started, c.GPU, c.GPUUUID, c.Driver, c.Host, c.Version, c.Seed, c.Passes, c.Runs})
	}
	return out
}

func (a *app) instructionsDeleteCmd() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete CAMPAIGN", Short: "Delete a campaign of instructions", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return withCode(exitUsage, fmt.Errorf("%q is not a campaign's number: list them with wattmark instructions campaigns", args[0]))
			}
			db, err := a.openToChange(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			if ok, err := a.confirm(yes, fmt.Sprintf("campaign %d of %s", n, a.db)); err != nil || !ok {
				return err
			}
			if err := db.DeleteInstructions(cmd.Context(), store.CampaignID(n)); err != nil {
				return a.noCampaign(err)
			}
			fmt.Fprintf(a.out, "Deleted campaign %d from %s\n", n, a.db)
			return nil
		},
	}
	yesFlag(c.Flags(), &yes)
	return c
}
