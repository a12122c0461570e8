package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// BackupReport is the JSON of db backup: the check of the copy, beside its name and size.
type BackupReport struct {
	Database string `json:"database"`
	File     string `json:"file"`
	Bytes    int64  `json:"bytes"`
	Verified string `json:"verified"` // "full" or "quick"
	SoundReport
}

// dbBackupCmd returns db backup, which copies the database into a new file and checks the
// copy. The source is opened for reading only, and captures may write to it meanwhile. An
// error with ExitDamaged means that the copy is complete but holds the source's damage.
func dbBackupCmd(a *cli.App) *cobra.Command {
	var quick bool
	c := cli.Command("backup FILE", "Copy the database while captures come in, and verify the copy", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error {
			file := args[0]
			if err := cli.CheckEnding(file, "a database", databaseEnds...); err != nil {
				return err
			}
			db, err := openToLook(ctx, a)
			if err != nil {
				return err
			}
			defer db.Close()
			a.Keep("no file was written")
			bar := a.Progress("copying the database")
			defer bar.End()
			if err := db.Backup(ctx, file, bar.Set); err != nil {
				return err
			}
			a.Keep("%s is written, but not verified", file)
			bar.Note("verifying")
			// The check runs on the copy: it proves that the file just written can be read.
			copied, err := store.OpenReadOnly(ctx, file)
			if err != nil {
				return fmt.Errorf("the copy: %w", err)
			}
			defer copied.Close()
			r, err := copied.Check(ctx, store.CheckOptions{Quick: quick, Progress: bar.Set})
			bar.End()
			if err != nil {
				return fmt.Errorf("the copy: %w", err)
			}
			out := BackupReport{
				Database: a.DB, File: file, Verified: map[bool]string{true: "quick", false: "full"}[quick],
				SoundReport: SoundReport{a.DB, len(r.Findings) == 0, quick, *r},
			}
			if out.Bytes, err = fileSize(file); err != nil {
				return err
			}
			err = a.Print(out, func(w io.Writer) {
				printFindings(w, r.Findings)
				fmt.Fprintf(w, "%s: %s, %s, %s, verified\n", file, cli.SizeText(out.Bytes),
					measure.Plural(r.Tasks, "task"), measure.Plural(r.Chunks, "chunk"))
			})
			if err == nil && len(r.Findings) > 0 {
				err = cli.WithCode(cli.ExitDamaged,
					errors.New("the copy has the damage of the database: wattmark db check, then wattmark db repair"))
			}
			return err
		})
	c.Flags().BoolVar(&quick, "quick", false, "verify without reading the chunks again")
	return a.JSONFlag(c)
}

// databaseEnds are the file endings that the commands accept for a new database.
var databaseEnds = []string{".db", ".sqlite", ".sqlite3"}

func fileSize(path string) (int64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// mergedTask is one task of an import, a detach or a salvage: its number in the source and
// in the target, and the chunks copied.
type mergedTask struct {
	From    store.TaskID `json:"from_task_id"`
	To      store.TaskID `json:"task_id"`
	Known   bool         `json:"known"`   // it was here already
	Resumed bool         `json:"resumed"` // an interrupted import was ended
	Chunks  uint64       `json:"chunks"`  // copied
}

// MergeReport is the JSON of db import, db detach and db repair --salvage. Bytes is the
// size of the file written, 0 for an import. Running lists tasks left out since they still
// run.
type MergeReport struct {
	Database  string          `json:"database"`
	File      string          `json:"file"`
	Bytes     int64           `json:"bytes,omitempty"`
	Tasks     []mergedTask    `json:"tasks"`
	Running   []store.TaskID  `json:"left_running"`
	Analyses  int             `json:"analyses"`
	Campaigns int             `json:"campaigns"`
	Findings  []store.Finding `json:"findings"`
}

// newMergeReport converts store's report; its lists are never nil, for JSON.
func newMergeReport(db, file string, in *store.Imported) MergeReport {
	tasks := lists.Map(in.Tasks, func(t store.CopiedTask) mergedTask {
		return mergedTask{t.From, t.To, t.Known, t.Resumed, t.Chunks}
	})
	return MergeReport{
		Database: db, File: file, Tasks: append([]mergedTask{}, tasks...), Running: append([]store.TaskID{}, in.Running...),
		Analyses: in.Analyses, Campaigns: in.Campaigns, Findings: append([]store.Finding{}, in.Lost...),
	}
}

// dbDetachCmd returns db detach, which writes the chosen tasks into a new file under their own
// numbers. It wants either --task or --user. The source stays as it is.
func dbDetachCmd(a *cli.App) *cobra.Command {
	var numbers []int64
	var user string
	c := cli.Command("detach FILE --task N… | --user NAME", "Write tasks into a new file to carry away",
		cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
			if (len(numbers) > 0) == (user != "") {
				return cli.Usagef("name the tasks by --task or by --user")
			}
			file := args[0]
			if err := cli.CheckEnding(file, "a database", databaseEnds...); err != nil {
				return err
			}
			db, err := a.OpenDB(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			ids, err := chosen(ctx, a, db, numbers, user)
			if err != nil {
				return err
			}
			bar := a.Progress("writing tasks")
			a.Keep("no file was written")
			in, err := db.Detach(ctx, file, ids, bar.Set)
			bar.End()
			if err != nil {
				return err
			}
			return printMerge(a, newMergeReport(a.DB, file, in), fmt.Sprintf("%s: %s of %s", file, measure.Plural(len(in.Tasks), "task"),
				a.DB), file)
		})
	c.Flags().Int64SliceVar(&numbers, "task", nil, "this task (repeatable, or with commas)")
	c.Flags().StringVar(&user, "user", "", "all tasks of this user")
	return a.JSONFlag(c)
}

// chosen returns the tasks of the given numbers, or all tasks of a user; the caller passes
// one of the two. It fails with ExitNotFound for an unknown number or a user without tasks.
func chosen(ctx context.Context, a *cli.App, db *store.DB, numbers []int64, user string) ([]store.TaskID, error) {
	if user == "" {
		return taskIDs(ctx, a, db, lists.Map(numbers, func(n int64) string { return fmt.Sprint(n) }))
	}
	list, err := task.EveryTask(ctx, db.Tasks, store.Query{User: user})
	if err == nil && len(list) == 0 {
		err = cli.NotFoundf("no task of user %q in %s: wattmark users lists who has some", user, a.DB)
	}
	return lists.Map(list, func(t store.Row) store.TaskID { return t.ID }), err
}

// printMerge prints a merge: findings, tasks left out, then the summary. For a named file
// the size in bytes goes into the report and behind the summary.
func printMerge(a *cli.App, r MergeReport, what, file string) error {
	if file != "" {
		var err error
		if r.Bytes, err = fileSize(file); err != nil {
			return err
		}
		what += ", " + cli.SizeText(r.Bytes)
	}
	return a.Print(r, func(w io.Writer) {
		for _, f := range r.Findings {
			where := fmt.Sprintf("task %d", f.Task)
			if f.Chunk != store.NoChunk {
				where += fmt.Sprintf(", chunk %d", f.Chunk)
			}
			fmt.Fprintf(w, "%s: %s\n    → %s\n", where, f.What, f.Remedy)
		}
		for _, id := range r.Running {
			fmt.Fprintf(w, "task %d still runs and was left out\n", id)
		}
		fmt.Fprintln(w, what)
	})
}

func dbImportCmd(a *cli.App) *cobra.Command {
	return a.JSONFlag(cli.Command("import OTHER.db", "Copy the tasks of another task database into this one",
		cobra.ExactArgs(1), func(ctx context.Context, args []string) error { return dbImport(ctx, a, args[0]) }))
}

// dbImport copies all tasks of another database file into this one and checks each task
// that is new here. It creates the target where there is none, and can be repeated after an
// interruption. It refuses to import a file into itself, also under another name or link.
func dbImport(ctx context.Context, a *cli.App, other string) (err error) {
	if _, err := os.Stat(other); errors.Is(err, os.ErrNotExist) {
		return cli.NotFoundf("no database at %s", other)
	}
	if sameDatabase(a.DB, other) {
		return cli.Usagef("%s and %s are one file", a.DB, other)
	}
	from, err := store.OpenSource(ctx, other)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	db, err := store.Open(ctx, a.DB) // an import may be the beginning of a database
	if err != nil {
		return err
	}
	defer db.Close()
	// Delete unfinished tasks of processes that are gone, before tasks are compared.
	if _, err := db.Sweep(ctx); err != nil {
		return err
	}
	bar := a.Progress("importing tasks")
	defer bar.End()
	a.Keep("what came so far is kept; the same command goes on")
	in, err := db.Import(ctx, from, store.ImportOptions{Progress: bar.Set})
	if err != nil {
		return fmt.Errorf("%w\nWhat came so far is kept: the same command goes on", err)
	}
	bad := []store.Finding{}
	bar.Note("checking them")
	// Only the tasks that came: the rest of the database is not the import's subject.
	came := lists.Filter(in.Tasks, func(t *store.CopiedTask) bool { return !t.Known })
	for i, t := range came {
		bar.Set(i, len(came))
		r, err := db.Check(ctx, store.CheckOptions{Task: t.To})
		if err != nil {
			return err
		}
		bad = append(bad, r.Findings...)
	}
	bar.End()
	r := newMergeReport(a.DB, other, in)
	r.Findings = bad
	what := fmt.Sprintf("%s: %s of %s, %d known already, %d analyses, %d campaigns", a.DB,
		measure.Plural(len(came), "task"), other, len(in.Tasks)-len(came), in.Analyses, in.Campaigns)
	if err := printMerge(a, r, what, ""); err != nil {
		return err
	}
	return damaged(bad)
}

// dbSalvage writes the readable tasks and chunks of a broken database into a new file,
// repairs that file, and lists the losses. ExitDamaged reports a loss. The broken file is
// not changed.
func dbSalvage(ctx context.Context, a *cli.App, file string) error {
	bar := a.Progress("salvaging tasks")
	a.Keep("no file was written")
	in, err := store.Salvage(ctx, a.DB, file, bar.Set)
	bar.End()
	if errors.Is(err, store.ErrCorrupt) {
		err = cli.WithCode(cli.ExitDamaged, fmt.Errorf("%w\nIts first page or its list of tables is damaged: "+
			"go back to a backup", err))
	}
	if err == nil {
		err = mendSalvaged(ctx, file, in.Cut)
	}
	if err != nil {
		return err
	}
	err = printMerge(a, newMergeReport(a.DB, file, in), fmt.Sprintf("%s: %s salvaged from %s, %s lost", file,
		measure.Plural(len(in.Tasks), "task"), a.DB, measure.Plural(len(in.Lost), "thing")), file)
	if err == nil && len(in.Lost) > 0 {
		err = cli.WithCode(cli.ExitDamaged,
			errors.New("not all could be read: tasks that lost samples are incomplete, and say so"))
	}
	return err
}

// mendSalvaged repairs a salvaged file and recomputes the results of the tasks that lost
// samples: those in cut, and those that the repair shortened.
func mendSalvaged(ctx context.Context, file string, cut []store.TaskID) error {
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
		if err := recompute(ctx, db, id, &RepairReport{}); err != nil {
			return err
		}
	}
	return nil
}

// removeDeleted removes the copies that delete left of a database's tasks, and nothing else of a similar name.
func removeDeleted(db string) error {
	copies, err := session.DeletedCopies(db)
	if err != nil {
		return err
	}
	dir, name := filepath.Split(copies)
	beside, err := os.ReadDir(cmp.Or(dir, "."))
	for _, f := range beside {
		number, is := strings.CutPrefix(f.Name(), name)
		if _, e := strconv.ParseUint(number, 10, 63); is && e == nil {
			err = errors.Join(err, os.Remove(dir+f.Name()))
		}
	}
	return err
}

// dbVacuumCmd returns db vacuum. Vacuum needs as much free disk as the file has, and blocks
// other writers until it ends.
func dbVacuumCmd(a *cli.App) *cobra.Command {
	return a.JSONFlag(cli.Command("vacuum", "Give the room of deleted tasks back to the disk", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			db, err := a.OpenToChange(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			bar := a.Progress("writing the database anew")
			a.Keep(cli.Unchanged)
			before, after, err := db.Vacuum(ctx)
			bar.End()
			if err == nil && !store.OnServer(a.DB) {
				err = removeDeleted(a.DB)
			}
			if err != nil {
				return err
			}
			return a.Print(map[string]any{"database": a.DB, "bytes_before": before, "bytes": after}, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %s, was %s\n", a.DB, cli.SizeText(after), cli.SizeText(before))
			})
		}))
}
