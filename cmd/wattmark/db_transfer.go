package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"wattmark/store"
)

// addDBCopy adds db copy to the commands about the database, and the group where
// there is none yet.
func (a *app) addDBCopy(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() == "db" {
			c.AddCommand(a.dbTransferCmd())
			return
		}
	}
	c := &cobra.Command{Use: "db", Short: "Care for the task database"}
	c.AddCommand(a.dbTransferCmd())
	root.AddCommand(c)
}

// samplesBySQL is how to see samples with the database's own client.
func (a *app) samplesBySQL(id store.TaskID) [2]string {
	if store.OnServer(a.db) {
		return [2]string{fmt.Sprintf("psql '%s' -c 'select * from data where taskID = %d limit 5'", a.db, id), "the samples, in any PostgreSQL client"}
	}
	return [2]string{fmt.Sprintf("sqlite3 %s 'select * from data where taskID = %d limit 5'", a.db, id), "the samples, in any SQLite program"}
}

// transferFlags select what db copy copies.
type transferFlags struct {
	q            store.Query
	since, until string
	tasks        []int64
	update       bool
}

// all reports whether nothing is left out.
func (f *transferFlags) all() bool {
	return len(f.tasks) == 0 && reflect.DeepEqual(f.q, store.Query{})
}

func (a *app) dbTransferCmd() *cobra.Command {
	var f transferFlags
	c := &cobra.Command{
		Use: "copy FROM TO", Short: "Copy tasks between databases, also from a file to a server and back",
		Long: `Copy tasks with all that belongs to them from one database to another: files
and PostgreSQL servers, in any pairing. A task that is there already is compared, and
what differs is named: its tags, its notes, its results. With --update it is made as
the source has it, notes and tags that only the target has are then gone. So a copy
can be repeated, and one that was interrupted goes on where it was.
At last the rows are counted on both sides, and every chunk of samples is read back
and checked against its checksum.

Without flags all tasks are copied, the analyses and the campaigns of instructions.
Tasks that still run are left out, and named.`,
		Example: `  wattmark db copy power.db postgres://lab@db.example/power
  wattmark db copy postgres://lab@db.example/power my.db --user ada --since 2026-01-01
  wattmark db copy power.db other.db --task 3 --task 7 --json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.transfer(cmd.Context(), store.Conceal(args[0]), store.Conceal(args[1]), f)
			if r == nil {
				return err
			}
			if a.json {
				return errors.Join(err, a.printJSON(r))
			}
			a.renderTransfer(r)
			return err
		},
	}
	c.Flags().StringVar(&f.q.User, "user", "", "only this user's")
	c.Flags().StringVar(&f.q.Name, "name", "", "only of this name; a trailing * matches what begins so")
	c.Flags().StringVar(&f.q.Job, "job", "", "only of this job")
	c.Flags().StringVar(&f.since, "since", "", "only launched at or after: 2026-01-31 or 2026-01-31T15:04:05Z")
	c.Flags().StringVar(&f.until, "until", "", "only launched before")
	c.Flags().Int64SliceVar(&f.tasks, "task", nil, "only the task of this number; may be given again")
	c.Flags().BoolVar(&f.update, "update", false, "make tasks that are there already, and differ, as the source has them")
	return a.jsonFlag(c)
}

// transferReport is what db copy did, as our JSON shows it.
type transferReport struct {
	From      string          `json:"from"`
	To        string          `json:"to"`
	Tasks     []transferredID `json:"tasks"`
	Running   []int64         `json:"running"` // left out
	Copied    int             `json:"copied"`
	Known     int             `json:"known"`
	Differing int             `json:"differing"` // of those, and left as they were
	Updated   int             `json:"updated"`
	Samples   uint64          `json:"samples"` // read back
	Analyses  int             `json:"analyses"`
	Campaigns int             `json:"campaigns"`
	DurationS float64         `json:"duration_s"`
}

type transferredID struct {
	TaskID int64 `json:"task_id"`
	CopyID int64 `json:"copy_id"`
	Known  bool  `json:"known"`
	// Differs names what was not as the source has it.
	Differs []string `json:"differs,omitempty"`
	Updated bool     `json:"updated"`
	Resumed bool     `json:"resumed"`
	Chunks  uint64   `json:"chunks"`
	Samples uint64   `json:"samples"`
	Rows    uint64   `json:"rows"`
}

// transfer copies what the flags select. What it did before an error is reported too.
func (a *app) transfer(ctx context.Context, from, to string, f transferFlags) (r *transferReport, err error) {
	if f.q.Since, err = parseTime(f.since); err != nil {
		return nil, err
	}
	if f.q.Until, err = parseTime(f.until); err != nil {
		return nil, err
	}
	if sameDatabase(from, to) {
		return nil, withCode(exitUsage, fmt.Errorf("%s is both the source and the target: name another target", from))
	}
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) && !store.OnServer(from) {
		return nil, withCode(exitNotFound, fmt.Errorf("no task database at %s: the source comes first", from))
	}
	source, err := store.OpenSource(ctx, from)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	list, err := selected(ctx, source, &f)
	if err != nil {
		return nil, err
	}
	target, err := store.Open(ctx, to)
	if err != nil {
		return nil, err
	}
	if _, err := target.Sweep(ctx); err != nil {
		return nil, errors.Join(err, target.Close())
	}
	r = &transferReport{From: from, To: to, Tasks: []transferredID{}, Running: []int64{}}
	began := time.Now()
	err = a.transferAll(ctx, source, target, list, &f, r)
	r.DurationS = time.Since(began).Seconds()
	return r, errors.Join(err, target.Close())
}

// sameDatabase reports whether two names are one file or one address.
func sameDatabase(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := filepath.EvalSymlinks(a)
	y, errY := filepath.EvalSymlinks(b)
	if errX != nil || errY != nil {
		return false
	}
	i, errX := os.Stat(x)
	k, errY := os.Stat(y)
	return errX == nil && errY == nil && os.SameFile(i, k)
}

// selected lists the tasks to copy, oldest first.
func selected(ctx context.Context, db *store.DB, f *transferFlags) (out []store.Row, err error) {
	list, err := everyTask(ctx, db, f.q)
	if err != nil {
		return nil, err
	}
	found := map[int64]bool{}
	for _, t := range list {
		if len(f.tasks) == 0 || slices.Contains(f.tasks, int64(t.ID)) {
			out = append(out, t)
			found[int64(t.ID)] = true
		}
	}
	for _, id := range f.tasks {
		if !found[id] {
			return nil, withCode(exitNotFound, fmt.Errorf("no task %d in %s among those selected: list them with wattmark tasks", id, db.Path()))
		}
	}
	slices.Reverse(out)
	return out, nil
}

func (a *app) transferAll(ctx context.Context, from, to *store.DB, list []store.Row, f *transferFlags, r *transferReport) error {
	bar := &transferBar{a: a, tasks: len(list), live: isTerminal(a.err) && !a.json, began: time.Now()}
	for i := range list {
		bar.total += list[i].Scans
	}
	defer bar.clear()
	ids := map[store.TaskID]store.TaskID{}
	for i := range list {
		before := bar.samples
		bar.at(i, list[i].ID)
		done, err := from.CopyTask(ctx, to, list[i].ID, store.CopyOptions{Update: f.update, Samples: bar.add})
		if errors.Is(err, store.ErrRunning) {
			r.Running = append(r.Running, int64(list[i].ID))
			continue
		} else if err != nil {
			return err
		}
		bar.samples = before + list[i].Scans
		ids[list[i].ID] = done.To
		r.Tasks = append(r.Tasks, transferredID{int64(done.From), int64(done.To), done.Known, done.Differs, done.Updated, done.Resumed, done.Chunks, done.Scans, done.Rows})
		r.Samples += done.Scans
		if done.Known {
			r.Known++
		}
		switch {
		case done.Updated:
			r.Updated++
		case len(done.Differs) > 0:
			r.Differing++
		case !done.Known:
			r.Copied++
		}
	}
	if !f.all() {
		return nil
	}
	var err error
	if r.Analyses, err = from.CopyAnalyses(ctx, to, ids); err != nil {
		return err
	}
	r.Campaigns, err = from.CopyCampaigns(ctx, to)
	return err
}
