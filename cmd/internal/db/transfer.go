package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// SamplesBySQL returns a shell command that lists five samples of a task with the
// database's own client, and a phrase that explains it.
func SamplesBySQL(a *cli.App, id store.TaskID) [2]string {
	client, what := "sqlite3 "+a.DB, "the samples, in any SQLite program"
	if store.OnServer(a.DB) {
		client, what = fmt.Sprintf("psql '%s' -c", a.DB), "the samples, in any PostgreSQL client"
	}
	return [2]string{fmt.Sprintf("%s 'select * from data where taskID = %d limit 5'", client, id), what}
}

// transferFlags select the tasks of db copy. q holds user, name, job and the parsed times;
// since and until are the texts of the flags. update replaces differing tasks in the
// target.
type transferFlags struct {
	q            store.Query
	since, until string
	tasks        []int64
	update       bool
}

// dbTransferCmd returns db copy. A report is printed also where the copy failed half-way.
func dbTransferCmd(a *cli.App) *cobra.Command {
	var f transferFlags
	c := cli.Command("copy FROM TO", "Copy tasks between databases, also from a file to a server and back",
		cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
			r, err := transfer(ctx, a, store.Conceal(args[0]), store.Conceal(args[1]), f)
			if r == nil {
				return err
			}
			return errors.Join(err, a.Print(r, func(w io.Writer) { renderTransfer(w, r) }))
		})
	c.Flags().StringVar(&f.q.User, "user", "", "only this user's")
	c.Flags().StringVar(&f.q.Name, "name", "", "only of this name; a trailing * matches what begins so")
	c.Flags().StringVar(&f.q.Job, "job", "", "only of this job")
	c.Flags().StringVar(&f.since, "since", "", "only launched at or after: 2026-01-31 or 2026-01-31T15:04:05Z")
	c.Flags().StringVar(&f.until, "until", "", "only launched before")
	c.Flags().Int64SliceVar(&f.tasks, "task", nil, "only the task of this number; may be given again")
	c.Flags().BoolVar(&f.update, "update", false, "make tasks that are there already, and differ, as the source has them")
	return a.JSONFlag(c)
}

// TransferReport is the JSON of db copy. From and To are without passwords. Known counts
// tasks that the target had; Updated and Differing are parts of Known.
type TransferReport struct {
	From      string             `json:"from"`
	To        string             `json:"to"`
	Tasks     []store.CopiedTask `json:"tasks"`
	Running   []store.TaskID     `json:"running"` // left out
	Copied    int                `json:"copied"`
	Known     int                `json:"known"`
	Differing int                `json:"differing"` // of those, and left as they were
	Updated   int                `json:"updated"`
	Deleted   int                `json:"deleted,omitempty"` // from an outbox, since the host has them
	Samples   uint64             `json:"samples"`           // read back
	Analyses  int                `json:"analyses"`
	Campaigns int                `json:"campaigns"`
	DurationS float64            `json:"duration_s"`
}

// transfer copies the selected tasks, oldest first, and verifies each. It returns a nil
// report where it failed before the first task, else a report beside the error. It fails
// with ExitUsage where both names are one database, with ExitNotFound without a source.
func transfer(ctx context.Context, a *cli.App, from, to string, f transferFlags) (r *TransferReport, err error) {
	a.Keep("nothing was copied")
	if f.q.Since, err = cli.ParseTime(f.since); err != nil {
		return nil, err
	}
	if f.q.Until, err = cli.ParseTime(f.until); err != nil {
		return nil, err
	}
	if f.update && strings.HasPrefix(to, store.HostScheme) {
		return nil, cli.Usagef("--update: a wattmark host keeps the tasks that it has; change them with wattmark tag, note " +
			"and pin --host")
	}
	if sameDatabase(from, to) {
		return nil, cli.Usagef("%s is both the source and the target: name another target", from)
	}
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) && !store.OnServer(from) {
		return nil, cli.NotFoundf("no task database at %s: the source comes first", from)
	}
	r = &TransferReport{From: from, To: to, Tasks: []store.CopiedTask{}, Running: []store.TaskID{}}
	source, err := openSource(ctx, a, r, &f)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	list, err := selected(ctx, source, &f)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if strings.HasPrefix(to, store.HostScheme) {
		err = sendAll(ctx, a, source, list, r)
		r.DurationS = time.Since(began).Seconds()
		return r, err
	}
	target, err := store.Open(ctx, to)
	if err != nil {
		return nil, err
	}
	// Remove remains of dead processes in the target before tasks are compared with it.
	if _, err := target.Sweep(ctx); err != nil {
		return nil, errors.Join(err, target.Close())
	}
	err = transferAll(ctx, a, source, target, list, &f, r)
	r.DurationS = time.Since(began).Seconds()
	return r, errors.Join(err, target.Close())
}

// openSource opens the source of a copy. Of a host the tasks of --task, or all that the query selects, are
// fetched; the running ones of the latter are listed in r.
func openSource(ctx context.Context, a *cli.App, r *TransferReport, f *transferFlags) (*store.DB, error) {
	if !strings.HasPrefix(r.From, store.HostScheme) {
		return store.OpenSource(ctx, r.From)
	}
	host := &cli.App{Streams: a.Streams, DB: r.From}
	numbers := lists.Map(f.tasks, func(id int64) string { return fmt.Sprint(id) })
	if len(numbers) == 0 {
		list, err := task.EveryTask(ctx, host.List, f.q)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			if t.State == store.Running {
				r.Running = append(r.Running, t.ID)
			} else {
				numbers = append(numbers, fmt.Sprint(t.ID))
			}
		}
		if len(numbers) == 0 {
			return nil, cli.NotFoundf("no task in %s among those selected has ended: list them with wattmark tasks", r.From)
		}
	}
	return host.OpenDB(ctx, numbers...)
}

// sendAll sends the tasks of list to a host. What the host has is deleted from the source where that is its outbox,
// also after an error.
func sendAll(ctx context.Context, a *cli.App, source *store.DB, list []store.Row, r *TransferReport) error {
	host := &cli.App{Streams: a.Streams, DB: r.To}
	err := r.tasks(a, list, "sending", "sent", func(t *store.Row, _ func(uint64)) (store.CopiedTask, error) {
		if t.State == store.Running {
			return store.CopiedTask{}, store.ErrRunning
		}
		sent, err := host.Send(ctx, source, true, t.ID)
		s := sent[t.ID]
		done := store.CopiedTask{From: t.ID, To: store.TaskID(s.Task), Known: s.Known}
		if !s.Known {
			done.Scans = t.Scans
		}
		return done, err
	})
	outbox, derr := session.Outbox(strings.TrimPrefix(r.To, store.HostScheme))
	if derr != nil || len(r.Tasks) == 0 || !sameDatabase(r.From, outbox) {
		return err
	}
	db, derr := store.Open(ctx, r.From)
	if derr == nil {
		ids := lists.Map(r.Tasks, func(t store.CopiedTask) store.TaskID { return t.From })
		if derr = db.DeleteTasks(ctx, ids, store.DeleteOptions{Pinned: true}); derr == nil {
			r.Deleted = len(ids)
		}
		derr = errors.Join(derr, db.Close())
	}
	return errors.Join(err, derr)
}

// sameDatabase reports whether two names are one address, or one file by whatever link.
func sameDatabase(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// selected returns the tasks to copy, oldest first: later groups and analyses then refer to
// tasks that are there. It fails with ExitNotFound for a --task that the query leaves out.
func selected(ctx context.Context, db *store.DB, f *transferFlags) (out []store.Row, err error) {
	list, err := task.EveryTask(ctx, db.Tasks, f.q)
	if err != nil {
		return nil, err
	}
	out = lists.Filter(list, func(t *store.Row) bool {
		return len(f.tasks) == 0 || slices.Contains(f.tasks, int64(t.ID))
	})
	for _, id := range f.tasks {
		if !slices.ContainsFunc(out, func(t store.Row) bool { return int64(t.ID) == id }) {
			return nil, cli.NotFoundf("no task %d in %s among those selected: list them with wattmark tasks", id, db.Path())
		}
	}
	slices.Reverse(out)
	return out, nil
}

// tasks takes the tasks of list to the target one by one, and counts them: what is shown as the work, done as its
// end. It stops at the first error; r then holds the tasks so far. Running tasks are listed in r and skipped. take
// may call its function with the samples that are there.
func (r *TransferReport) tasks(a *cli.App, list []store.Row, what, end string,
	take func(t *store.Row, add func(scans uint64)) (store.CopiedTask, error),
) error {
	// The unit is the sample, since tasks differ in length by orders of magnitude.
	var copied, all uint64
	for i := range list {
		all += list[i].Scans
	}
	bar := a.Progress(what)
	defer bar.End()
	add := func(scans uint64) {
		copied += scans
		bar.Set(int(copied), int(all))
	}
	for i := range list {
		before := copied
		bar.Note(fmt.Sprintf("task %d (%d of %d)", list[i].ID, i+1, len(list)))
		a.Keep("%d of %d tasks are %s; the same command goes on", len(r.Tasks), len(list), end)
		done, err := take(&list[i], add)
		if errors.Is(err, store.ErrRunning) {
			r.Running = append(r.Running, list[i].ID)
			continue
		} else if err != nil {
			return err
		}
		copied = before // a task known to the target reports no samples
		add(list[i].Scans)
		r.Tasks = append(r.Tasks, done)
		r.Samples += done.Scans
		if done.Known {
			r.Known++
		}
		// These counts exclude each other; a known task without differences is in none.
		switch {
		case done.Updated:
			r.Updated++
		case len(done.Differs) > 0:
			r.Differing++
		case !done.Known:
			r.Copied++
		}
	}
	return nil
}

// transferAll copies the tasks of list to another database, and then analyses and campaigns where nothing was left
// out.
func transferAll(ctx context.Context, a *cli.App, from, to *store.DB, list []store.Row, f *transferFlags,
	r *TransferReport,
) error {
	err := r.tasks(a, list, "copying", "copied", func(t *store.Row, add func(uint64)) (store.CopiedTask, error) {
		return from.CopyTask(ctx, to, t.ID, store.CopyOptions{Update: f.update, Samples: add})
	})
	// Analyses and campaigns may refer to any task.
	if err != nil || len(f.tasks) > 0 || !reflect.DeepEqual(f.q, store.Query{}) {
		return err
	}
	ids := map[store.TaskID]store.TaskID{}
	for _, t := range r.Tasks {
		ids[t.From] = t.To
	}
	if r.Analyses, err = from.CopyAnalyses(ctx, to, ids); err != nil {
		return err
	}
	r.Campaigns, err = from.CopyCampaigns(ctx, to)
	return err
}

// renderTransfer prints the totals. The table of tasks follows where it is short (20 at
// most); a longer one shows only the tasks that differ or were updated.
func renderTransfer(w io.Writer, r *TransferReport) {
	fmt.Fprintf(w, "Copied %s with %s from %s to %s in %.1f s; every chunk was read back and is "+
		"right.\n", measure.Plural(r.Copied, "task"), measure.Plural(r.Samples, "sample"), r.From, r.To, r.DurationS)
	for _, some := range []struct {
		n    int
		text string
	}{
		{r.Known, "were there already."},
		{r.Updated, "of them differed and were updated."},
		{r.Deleted, "were deleted here: the host has them."},
		{r.Differing, "of them differ and were left as they are: --update makes them as the source has them."},
	} {
		if some.n > 0 {
			fmt.Fprintln(w, some.n, some.text)
		}
	}
	if len(r.Running) > 0 {
		fmt.Fprintf(w, "Left out, for they still run: %s. Copy again when they are done.\n",
			strings.Trim(fmt.Sprint(r.Running), "[]"))
	}
	if r.Analyses+r.Campaigns > 0 {
		fmt.Fprintf(w, "With them %d analyses and %d campaigns of instructions.\n", r.Analyses, r.Campaigns)
	}
	if n := len(r.Tasks); n > 0 && (n <= 20 || r.Differing > 0) {
		t := out.NewTable(w, "task", "is there", "samples", "rows", "")
		for _, x := range r.Tasks {
			note := ""
			switch {
			case x.Updated:
				note = "updated: " + strings.Join(x.Differs, ", ")
			case len(x.Differs) > 0:
				note = "differs: " + strings.Join(x.Differs, ", ")
			case x.Known && n > 20:
				continue
			case x.Known:
				note = "was there"
			case x.Resumed:
				note = "went on"
			case n > 20:
				continue
			}
			t.AppendRow([]any{x.From, x.To, x.Scans, x.Rows, note})
		}
		t.Render()
	}
}
