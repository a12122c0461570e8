package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"wattmark/hostagent/measurement"
	"wattmark/store"
)

// repairReport is a repair as our JSON shows it.
type repairReport struct {
	Database string          `json:"database"`
	Done     bool            `json:"done"` // false: this is what --yes would do
	Findings []findingReport `json:"findings"`
	Mended   []findingReport `json:"mended"`
	Left     []findingReport `json:"left"`
	// Recomputed are tasks with a new result over what is left of them, Marked those
	// whose result could not be computed.
	Recomputed []int64 `json:"recomputed"`
	Marked     []int64 `json:"marked"`
}

func (a *app) dbRepairCmd() *cobra.Command {
	var task int64
	var yes bool
	var salvage string
	c := &cobra.Command{
		Use: "repair", Short: "Mend what wattmark db check finds, or salvage a broken file", Args: cobra.NoArgs,
		Long: `Say what of wattmark db check's findings would be mended and how; --yes does it.

What can be made anew from what is sound is: pyramids, counts, indexes, the view
data. A chunk that is damaged goes, as it is, to the table damage; its scans become
a recorded gap, the task incomplete, and its results are computed anew over what is
left. Nothing is deleted.

Where pages of the file cannot be read, --salvage writes all tasks and chunks that
can be into a new file, and says what is missing. The broken file stays as it is.`,
		Example: "  wattmark db repair\n  wattmark db repair --yes\n  wattmark db repair --salvage new.db",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case salvage != "" && (yes || task != 0):
				return withCode(exitUsage, errors.New("--salvage writes a new file: it goes without --yes and --task"))
			case salvage != "":
				return a.dbSalvage(cmd.Context(), salvage)
			}
			return a.dbRepair(cmd.Context(), store.TaskID(task), yes)
		},
	}
	c.Flags().Int64Var(&task, "task", 0, "only this task")
	c.Flags().BoolVar(&yes, "yes", false, "do it")
	outFlag(c.Flags(), &salvage, "salvage", "write what can be read into this new file", "a database", databaseEnds...)
	return a.jsonFlag(c)
}

func (a *app) dbRepair(ctx context.Context, task store.TaskID, yes bool) error {
	db, err := a.openToLook(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // what was mended is stored by then
	found, err := db.Check(ctx, store.CheckOptions{Task: task})
	if errors.Is(err, store.ErrNotFound) {
		return withCode(exitNotFound, fmt.Errorf("no task %d in %s: list them with wattmark tasks", task, a.db))
	}
	if err != nil {
		return err
	}
	r := repairReport{Database: a.db, Done: yes, Findings: newFindings(found.Findings), Mended: []findingReport{}, Left: []findingReport{}, Recomputed: []int64{}, Marked: []int64{}}
	if !yes {
		if a.json {
			err = a.printJSON(r)
		} else {
			a.printFindings(found.Findings)
			fmt.Fprintf(a.out, "%s: %d finding(s). Nothing was changed; wattmark db repair --yes mends what can be.\n", a.db, len(found.Findings))
		}
		return errors.Join(err, damaged(found.Findings))
	}
	done := &store.Repaired{Left: found.Findings}
	// A file of which nothing can be mended is not opened to be changed.
	if slices.ContainsFunc(found.Findings, func(f store.Finding) bool { return f.Mendable }) {
		if err := db.Close(); err != nil {
			return err
		}
		if db, err = a.openToChange(ctx); err != nil {
			return err
		}
		if done, err = db.Repair(ctx, found.Findings); err != nil {
			return err
		}
	}
	r.Mended, r.Left = newFindings(done.Mended), newFindings(done.Left)
	for _, id := range done.Cut {
		if err := a.recompute(ctx, db, id, &r); err != nil {
			return err
		}
	}
	return errors.Join(a.printRepair(&r, done), damaged(done.Left))
}

// recompute computes the results of a task that lost samples anew, and by kernel
// where they were. Where that cannot be the task says so.
func (a *app) recompute(ctx context.Context, db *store.DB, id store.TaskID, r *repairReport) error {
	t, err := db.Task(ctx, id)
	if err != nil || t.Result == nil {
		return err
	}
	names, err := db.NameEnergies(ctx, id, t.ResultNumber)
	if err != nil {
		return err
	}
	if err := measurement.Recompute(ctx, db, id); err != nil {
		r.Marked = append(r.Marked, int64(id))
		return db.SetReason(ctx, id, "its energy is of before the damage, for it could not be computed anew: "+err.Error())
	}
	r.Recomputed = append(r.Recomputed, int64(id))
	if len(names) > 0 {
		return shareAgain(ctx, db, id)
	}
	return nil
}

func (a *app) printRepair(r *repairReport, done *store.Repaired) error {
	if a.json {
		return a.printJSON(r)
	}
	for _, f := range done.Mended {
		fmt.Fprintf(a.out, "mended: %s: %s\n", f.Kind, f.What)
	}
	for _, id := range r.Recomputed {
		fmt.Fprintf(a.out, "task %d: results computed anew over what is left; wattmark show %d\n", id, id)
	}
	for _, id := range r.Marked {
		fmt.Fprintf(a.out, "task %d: its result could not be computed anew, and says so\n", id)
	}
	if len(done.Left) > 0 {
		fmt.Fprintln(a.out, "left as it is:")
		a.printFindings(done.Left)
	}
	fmt.Fprintf(a.out, "%s: %d mended, %d left\n", a.db, len(done.Mended), len(done.Left))
	return nil
}
