package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"wattmark/store"
)

type backupReport struct {
	Database string `json:"database"`
	File     string `json:"file"`
	Bytes    int64  `json:"bytes"`
	Verified string `json:"verified"` // "full" or "quick"
	soundReport
}

func (a *app) dbBackupCmd() *cobra.Command {
	var quick bool
	c := &cobra.Command{
		Use: "backup FILE", Short: "Copy the database while captures come in, and verify the copy", Args: cobra.ExactArgs(1),
		Long: `Copy the database as it stands at one moment into a new file, page by page, while
captures go on coming in. The copy is one file without a log: it can be carried
away, and opens from a medium that cannot be written. Afterwards it is checked as
by wattmark db check, or with --quick as by wattmark db check --quick.`,
		Example: "  wattmark db backup /mnt/backup/power-$(date +%F).db",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.dbBackup(cmd.Context(), args[0], quick) },
	}
	c.Flags().BoolVar(&quick, "quick", false, "verify without reading the chunks again")
	return a.jsonFlag(c)
}

// databaseEnds are the endings of names of databases.
var databaseEnds = []string{".db", ".sqlite", ".sqlite3"}

func (a *app) dbBackup(ctx context.Context, file string, quick bool) error {
	if err := checkEnding(file, "a database", databaseEnds...); err != nil {
		return err
	}
	db, err := a.openToLook(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Backup(ctx, file, nil); err != nil {
		return err
	}
	copied, err := store.OpenReadOnly(ctx, file)
	if err != nil {
		return fmt.Errorf("the copy: %w", err)
	}
	defer copied.Close()
	r, err := copied.Check(ctx, store.CheckOptions{Quick: quick})
	if err != nil {
		return fmt.Errorf("the copy: %w", err)
	}
	out := backupReport{Database: a.db, File: file, Verified: "full", soundReport: soundReport{a.db, len(r.Findings) == 0, quick, r.Tasks, r.Chunks, r.Scans, r.Pages, newFindings(r.Findings)}}
	if quick {
		out.Verified = "quick"
	}
	if out.Bytes, err = fileSize(file); err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(out)
	} else {
		a.printFindings(r.Findings)
		fmt.Fprintf(a.out, "%s: %s, %d task(s), %d chunks, verified\n", file, sizeText(out.Bytes), r.Tasks, r.Chunks)
	}
	if err == nil && len(r.Findings) > 0 {
		err = withCode(exitDamaged, errors.New("the copy has the damage of the database: wattmark db check, then wattmark db repair"))
	}
	return err
}

func fileSize(path string) (int64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

type mergedTask struct {
	From    int64  `json:"from_task_id"`
	To      int64  `json:"task_id"`
	Known   bool   `json:"known"`   // it was here already
	Resumed bool   `json:"resumed"` // an interrupted import was ended
	Chunks  uint64 `json:"chunks"`  // copied
}

type mergeReport struct {
	Database  string          `json:"database"`
	File      string          `json:"file"`
	Bytes     int64           `json:"bytes,omitempty"`
	Tasks     []mergedTask    `json:"tasks"`
	Running   []int64         `json:"left_running"`
	Analyses  int             `json:"analyses"`
	Campaigns int             `json:"campaigns"`
	Findings  []findingReport `json:"findings"`
}

func newMergeReport(db, file string, in *store.Imported) mergeReport {
	r := mergeReport{Database: db, File: file, Tasks: []mergedTask{}, Running: []int64{}, Analyses: in.Analyses, Campaigns: in.Campaigns, Findings: newFindings(in.Lost)}
	for _, t := range in.Tasks {
		r.Tasks = append(r.Tasks, mergedTask{int64(t.From), int64(t.To), t.Known, t.Resumed, t.Chunks})
	}
	for _, id := range in.Running {
		r.Running = append(r.Running, int64(id))
	}
	return r
}

func (a *app) dbDetachCmd() *cobra.Command {
	var ids []int64
	var user string
	c := &cobra.Command{
		Use: "detach FILE --task N… | --user NAME", Short: "Write tasks into a new file to carry away", Args: cobra.ExactArgs(1),
		Long: `Write tasks, with all that belongs to them and the analyses that rest on them, into a
new file: under the same numbers, without a log, with the view data for any sqlite3.
The tasks stay here as they are. Tasks that still run are left out.`,
		Example: "  wattmark db detach trip.db --task 42 --task 43\n  wattmark db detach ada.db --user ada\n  sqlite3 -readonly trip.db 'SELECT avg(power) FROM data WHERE taskID = 42'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(ids) > 0) == (user != "") {
				return withCode(exitUsage, errors.New("name the tasks by --task or by --user"))
			}
			return a.dbDetach(cmd.Context(), args[0], ids, user)
		},
	}
	c.Flags().Int64SliceVar(&ids, "task", nil, "this task (repeatable, or with commas)")
	c.Flags().StringVar(&user, "user", "", "all tasks of this user")
	return a.jsonFlag(c)
}

func (a *app) dbDetach(ctx context.Context, file string, numbers []int64, user string) error {
	if err := checkEnding(file, "a database", databaseEnds...); err != nil {
		return err
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	ids, err := a.chosen(ctx, db, numbers, user)
	if err != nil {
		return err
	}
	in, err := db.Detach(ctx, file, ids, nil)
	if err != nil {
		return err
	}
	return a.printMerge(newMergeReport(a.db, file, in), fmt.Sprintf("%s: %d task(s) of %s", file, len(in.Tasks), a.db), file)
}

// chosen are tasks by number, or all of a user.
func (a *app) chosen(ctx context.Context, db *store.DB, numbers []int64, user string) (ids []store.TaskID, err error) {
	for _, n := range numbers {
		t, err := a.task(ctx, db, fmt.Sprint(n))
		if err != nil {
			return nil, err
		}
		ids = append(ids, t.ID)
	}
	if user != "" {
		list, err := everyTask(ctx, db, store.Query{User: user})
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return nil, withCode(exitNotFound, fmt.Errorf("no task of user %q in %s: wattmark users lists who has some", user, a.db))
	}
	return ids, nil
}

func (a *app) printMerge(r mergeReport, what, file string) error {
	if file != "" {
		var err error
		if r.Bytes, err = fileSize(file); err != nil {
			return err
		}
		what += ", " + sizeText(r.Bytes)
	}
	if a.json {
		return a.printJSON(r)
	}
	for _, f := range r.Findings {
		where := fmt.Sprintf("task %d", f.TaskID)
		if f.Chunk != nil {
			where += fmt.Sprintf(", chunk %d", *f.Chunk)
		}
		fmt.Fprintf(a.out, "%s: %s\n    → %s\n", where, f.What, f.Remedy)
	}
	for _, id := range r.Running {
		fmt.Fprintf(a.out, "task %d still runs and was left out\n", id)
	}
	fmt.Fprintln(a.out, what)
	return nil
}
