package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"wattmark/store"
)

func (a *app) dbImportCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "import OTHER.db", Short: "Copy the tasks of another task database into this one", Args: cobra.ExactArgs(1),
		Long: `Copy all tasks of another task database into this one, with their users, calibrations,
results, kernels, launches, groups, labels and analyses. They get new numbers.

A task is known by its monitor, capture, launch, GPU, user and name: what is here
already is not copied again. So an import can be repeated, and one that was
interrupted goes on where it stopped. A database of an older version is read too, and
left as it is. Each task that came is checked as by wattmark db check.`,
		Example: "  wattmark db import node-b/power.db\n  wattmark --db all.db db import a.db",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.dbImport(cmd.Context(), args[0]) },
	}
	return a.jsonFlag(c)
}

func (a *app) dbImport(ctx context.Context, other string) (err error) {
	if _, err := os.Stat(other); errors.Is(err, os.ErrNotExist) {
		return withCode(exitNotFound, fmt.Errorf("no database at %s", other))
	}
	if one, err := os.Stat(a.db); err == nil {
		if two, err := os.Stat(other); err == nil && os.SameFile(one, two) {
			return withCode(exitUsage, fmt.Errorf("%s and %s are one file", a.db, other))
		}
	}
	from, err := store.OpenSource(ctx, other)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	db, err := store.Open(ctx, a.db) // an import may be the beginning of a database
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Sweep(ctx); err != nil {
		return err
	}
	in, err := db.Import(ctx, from, store.ImportOptions{})
	if err != nil {
		return fmt.Errorf("%w\nWhat came so far is kept: the same command goes on", err)
	}
	known := 0
	var bad []store.Finding
	for _, t := range in.Tasks {
		if t.Known {
			known++
			continue
		}
		r, err := db.Check(ctx, store.CheckOptions{Task: t.To})
		if err != nil {
			return err
		}
		bad = append(bad, r.Findings...)
	}
	r := newMergeReport(a.db, other, in)
	r.Findings = newFindings(bad)
	what := fmt.Sprintf("%s: %d task(s) of %s, %d known already, %d analyses, %d campaigns", a.db, len(in.Tasks)-known, other, known, in.Analyses, in.Campaigns)
	if err := a.printMerge(r, what, ""); err != nil {
		return err
	}
	return damaged(bad)
}

func (a *app) dbSalvage(ctx context.Context, file string) error {
	in, err := store.Salvage(ctx, a.db, file, nil)
	if err != nil {
		return err
	}
	if err := a.mendSalvaged(ctx, file, in.Cut); err != nil {
		return err
	}
	if err := a.printMerge(newMergeReport(a.db, file, in), fmt.Sprintf("%s: %d task(s) salvaged from %s, %d thing(s) lost", file, len(in.Tasks), a.db, len(in.Lost)), file); err != nil {
		return err
	}
	if len(in.Lost) > 0 {
		return withCode(exitDamaged, errors.New("not all could be read: tasks that lost samples are incomplete, and say so"))
	}
	return nil
}

// mendSalvaged mends in a salvaged file what can be, and computes the results of
// tasks that lost samples anew.
func (a *app) mendSalvaged(ctx context.Context, file string, cut []store.TaskID) error {
	db, err := store.Open(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	r, err := db.Check(ctx, store.CheckOptions{})
	if err != nil {
		return err
	}
	done, err := db.Repair(ctx, r.Findings)
	if err != nil {
		return err
	}
	for _, id := range append(cut, done.Cut...) {
		if err := a.recompute(ctx, db, id, &repairReport{}); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) dbVacuumCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "vacuum", Short: "Give the room of deleted tasks back to the disk", Args: cobra.NoArgs,
		Long: `Write the file anew without the room that deleted tasks left. It takes as much room
again meanwhile, and whoever writes has to wait: do it when nothing is measured.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.openToChange(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			before, after, err := db.Vacuum(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"database": a.db, "bytes_before": before, "bytes": after})
			}
			fmt.Fprintf(a.out, "%s: %s, was %s\n", a.db, sizeText(after), sizeText(before))
			return nil
		},
	}
	return a.jsonFlag(c)
}
