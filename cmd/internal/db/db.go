// Package db has the commands that care for a task database as a whole.
//
//	check    report damage, change nothing          retain   delete old tasks
//	repair   mend findings; --salvage: a new file   compact  pack cold tasks; expand unpacks
//	backup   verified copy of the open database     vacuum   return free pages to the disk
//	import   merge another database                 detach   some tasks into a new file
//	copy     tasks between files and servers; read back and compared
//
// The commands parse flags and print; store does the work. A command that finds
// damage exits with cli.ExitDamaged, also where a part of the database is sound.
package db

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// SoundReport is the JSON of db check. Sound is true without findings; Quick marks a check
// that left the chunks' contents out.
type SoundReport struct {
	Database string `json:"database"`
	Sound    bool   `json:"sound"`
	Quick    bool   `json:"quick,omitempty"`
	store.CheckReport
}

// dbCheckCmd returns db check, which prints the findings, then one line of totals with the
// verdict. It only reads: the whole file, unless --quick is set. Findings are an error with
// ExitDamaged.
func dbCheckCmd(a *cli.App) *cobra.Command {
	var opt store.CheckOptions
	c := cli.Command("check", "Look for damage: pages, checksums, counts, holes, results, pyramids", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			db, err := openToLook(ctx, a)
			if err != nil {
				return err
			}
			defer db.Close()
			bar := a.Progress("checking tasks")
			opt.Progress = bar.Set
			r, err := checkOf(ctx, a, db, opt)
			bar.End()
			if err != nil {
				return err
			}
			verdict := "sound"
			if len(r.Findings) > 0 {
				verdict = measure.Plural(len(r.Findings), "finding")
			}
			if opt.Quick {
				verdict += ", by a quick look"
			}
			err = a.Print(SoundReport{a.DB, len(r.Findings) == 0, opt.Quick, *r}, func(w io.Writer) {
				printFindings(w, r.Findings)
				fmt.Fprintf(w, "%s: %s, %s, %s, %s: %s\n", a.DB, measure.Plural(r.Tasks, "task"),
					measure.Plural(r.Chunks, "chunk"),
					measure.Plural(r.Scans, "sample"), measure.Plural(r.Pages, "pyramid page"), verdict)
			})
			return cmp.Or(err, damaged(r.Findings))
		})
	c.Flags().Int64Var((*int64)(&opt.Task), "task", 0, "only this task")
	c.Flags().BoolVar(&opt.Quick, "quick", false, "do not read the chunks")
	return a.JSONFlag(c)
}

// openToLook opens the database for reading, whatever its schema version, and changes
// nothing in it. It fails with ExitNotFound where there is no file, and
// with ExitDamaged where damage keeps the file from being opened.
func openToLook(ctx context.Context, a *cli.App) (*store.DB, error) {
	a.Keep(cli.Unchanged)
	if _, err := os.Stat(a.DB); errors.Is(err, os.ErrNotExist) && !store.OnServer(a.DB) {
		return nil, cli.NotFoundf("no task database at %s: name one with --db", a.DB)
	}
	db, err := store.OpenSource(ctx, a.DB)
	if errors.Is(err, store.ErrCorrupt) {
		err = cli.WithCode(cli.ExitDamaged, fmt.Errorf("%w\nSave what can be read: wattmark db repair --salvage NEW.db",
			err))
	}
	return db, err
}

// checkOf checks the database; a task that does not exist has the exit code 4.
func checkOf(ctx context.Context, a *cli.App, db *store.DB, opt store.CheckOptions) (*store.CheckReport, error) {
	r, err := db.Check(ctx, opt)
	if errors.Is(err, store.ErrNotFound) {
		err = cli.NotFoundf("no task %d in %s: list them with wattmark tasks", opt.Task, a.DB)
	}
	return r, err
}

// damaged returns nil for an empty list, else an error with ExitDamaged.
func damaged(list []store.Finding) error {
	if len(list) == 0 {
		return nil
	}
	return cli.WithCode(cli.ExitDamaged, fmt.Errorf("the database is damaged: %s", measure.Plural(len(list), "finding")))
}

// printFindings prints each finding with its place and, indented below, its remedy.
func printFindings(w io.Writer, list []store.Finding) {
	for _, f := range list {
		fmt.Fprintf(w, "%s: %s: %s\n    → %s\n", placeOf(f), f.Kind, f.What, f.Remedy)
	}
}

// placeOf names the task and the chunk of a finding.
func placeOf(f store.Finding) string {
	where := "file"
	if f.Task != 0 {
		where = fmt.Sprintf("task %d", f.Task)
	}
	if f.Chunk != store.NoChunk {
		where += fmt.Sprintf(", chunk %d", f.Chunk)
	}
	return where
}

//go:embed help.md
var help string

// Commands returns the commands of this package.
func Commands(a *cli.App) []*cobra.Command {
	c := &cobra.Command{Use: "db", Short: "Check, repair, back up, merge, pack, prune the task database"}
	for _, sub := range []*cobra.Command{dbCheckCmd(a), dbRepairCmd(a), dbBackupCmd(a), dbVacuumCmd(a), dbRetainCmd(a)} {
		run := sub.RunE
		sub.RunE = func(c *cobra.Command, args []string) error {
			if store.OnServer(a.DB) {
				kind := "a database server"
				if _, ok := a.OnHost(); ok {
					kind = "a wattmark host"
				}
				return cli.Usagef("%s is %s, and %s is for SQLite files: wattmark db copy %s FILE.db copies tasks into one",
					a.DB, kind, c.CommandPath(), a.DB)
			}
			return run(c, args)
		}
		c.AddCommand(sub)
	}
	c.AddCommand(dbTransferCmd(a), dbDetachCmd(a), dbImportCmd(a), dbCompactCmd(a), dbExpandCmd(a))
	return cli.In(cli.Database, help, c)
}

// RepairReport is the JSON of db repair. Mended and Left divide Findings once Done is true.
type RepairReport struct {
	Database string          `json:"database"`
	Done     bool            `json:"done"` // false: a dry run
	Findings []store.Finding `json:"findings"`
	Mended   []store.Finding `json:"mended"`
	Left     []store.Finding `json:"left"`
	// Recomputed are tasks with a new result over the samples that remain; Marked are those
	// whose result could not be computed; their reason names the cause.
	Recomputed []store.TaskID `json:"recomputed"`
	Marked     []store.TaskID `json:"marked"`
}

// dbRepairCmd returns db repair. Without --yes it prints the findings and changes nothing;
// --salvage excludes --yes and --task, since it leaves the file alone.
func dbRepairCmd(a *cli.App) *cobra.Command {
	var task store.TaskID
	var yes bool
	var salvage string
	c := cli.Command("repair", "Mend what wattmark db check finds, or salvage a broken file", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			switch {
			case salvage != "" && (yes || task != 0):
				return cli.Usagef("--salvage writes a new file: it goes without --yes and --task")
			case salvage != "":
				return dbSalvage(ctx, a, salvage)
			}
			return dbRepair(ctx, a, task, yes)
		})
	c.Flags().Int64Var((*int64)(&task), "task", 0, "only this task")
	c.Flags().BoolVar(&yes, "yes", false, "do it")
	cli.OutFlag(c.Flags(), &salvage, "salvage", "write what can be read into this new file", "a database",
		databaseEnds...)
	return a.JSONFlag(c)
}

// dbRepair checks the database (or one task; 0 for all) and, with yes, mends the findings
// and recomputes results. It exits with ExitDamaged while findings are left, also in the
// dry run. The database is first opened read-only: a sound file is never opened for
// writing.
func dbRepair(ctx context.Context, a *cli.App, task store.TaskID, yes bool) error {
	db, err := openToLook(ctx, a)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // repairs are committed by then
	bar := a.Progress("checking tasks")
	defer bar.End()
	found, err := checkOf(ctx, a, db, store.CheckOptions{Task: task, Progress: bar.Set})
	if err != nil {
		return err
	}
	r := RepairReport{
		Database: a.DB, Done: yes, Findings: found.Findings, Mended: []store.Finding{},
		Left: []store.Finding{}, Recomputed: []store.TaskID{}, Marked: []store.TaskID{},
	}
	if !yes {
		bar.End()
		err = a.Print(r, func(w io.Writer) {
			printFindings(w, found.Findings)
			fmt.Fprintf(w, "%s: %s. Nothing was changed; wattmark db repair --yes mends what can be.\n", a.DB,
				measure.Plural(len(found.Findings), "finding"))
		})
		return errors.Join(err, damaged(found.Findings))
	}
	// Every finding counts as left until Repair has run.
	done := &store.Repaired{Left: found.Findings}
	// Reopen for writing only where at least one finding can be mended.
	if slices.ContainsFunc(found.Findings, func(f store.Finding) bool { return f.Mendable }) {
		if err := db.Close(); err != nil {
			return err
		}
		if db, err = a.OpenToChange(ctx); err != nil {
			return err
		}
		bar.Set(0, 0)
		bar.Note("mending")
		a.Keep("what was mended so far is kept; the same command goes on")
		if done, err = db.Repair(ctx, found.Findings); err != nil {
			return err
		}
	}
	r.Mended, r.Left = append(r.Mended, done.Mended...), append(r.Left, done.Left...)
	for i, id := range done.Cut {
		bar.Set(i, len(done.Cut))
		bar.Note(fmt.Sprintf("computing task %d", id))
		if err := recompute(ctx, db, id, &r); err != nil {
			return err
		}
	}
	bar.End()
	return errors.Join(a.Print(r, func(w io.Writer) { renderRepair(w, &r, done) }), damaged(done.Left))
}

// recompute computes the results of a task that lost samples over the rest, and the energy
// by kernel name again where the task had it. A task without a result is left alone. Where
// the computation fails, the old result stays, the task's reason names the cause, and
// r.Marked lists the task; that is not an error.
func recompute(ctx context.Context, db *store.DB, id store.TaskID, r *RepairReport) error {
	t, err := db.Task(ctx, id)
	if err != nil || t.Result == nil {
		return err
	}
	names, err := db.NameEnergies(ctx, id, t.ResultNumber)
	if err != nil {
		return err
	}
	if err := measurement.Recompute(ctx, db, id); err != nil {
		r.Marked = append(r.Marked, id)
		return db.SetReason(ctx, id, "its energy is of before the damage, for it could not be computed anew: "+err.Error())
	}
	r.Recomputed = append(r.Recomputed, id)
	if len(names) > 0 {
		return report.ShareAgain(ctx, db, id)
	}
	return nil
}

// renderRepair prints the repair: mended findings, recomputed and marked tasks, then the
// rest.
func renderRepair(w io.Writer, r *RepairReport, done *store.Repaired) {
	for _, f := range done.Mended {
		fmt.Fprintf(w, "mended: %s: %s: %s\n", placeOf(f), f.Kind, f.What)
	}
	for _, id := range r.Recomputed {
		fmt.Fprintf(w, "task %d: results computed anew over what is left; wattmark show %d\n", id, id)
	}
	for _, id := range r.Marked {
		fmt.Fprintf(w, "task %d: its result could not be computed anew, and says so\n", id)
	}
	if len(done.Left) > 0 {
		fmt.Fprintln(w, "left as it is:")
		printFindings(w, done.Left)
	}
	fmt.Fprintf(w, "%s: %d mended, %d left\n", r.Database, len(done.Mended), len(done.Left))
}
