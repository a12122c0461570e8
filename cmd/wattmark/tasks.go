package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"wattmark/store"
)

// openDB opens the task database to read; it must exist. That needs no right to write. One of
// an older version is brought up to date where it may be written, else a copy of it is.
func (a *app) openDB(ctx context.Context) (*store.DB, error) {
	if err := a.mustExist(); err != nil {
		return nil, err
	}
	db, err := store.OpenReadOnly(ctx, a.db)
	if !errors.Is(err, store.ErrOlder) {
		return db, err
	}
	if db, err = store.Open(ctx, a.db); cannotWrite(err) {
		db, err = store.OpenSource(ctx, a.db)
	}
	return db, err
}

// openToChange opens the task database to change it; it must exist.
func (a *app) openToChange(ctx context.Context) (*store.DB, error) {
	if err := a.mustExist(); err != nil {
		return nil, err
	}
	return store.Open(ctx, a.db)
}

// cannotWrite reports whether a database could not be opened because it may not be written.
func cannotWrite(err error) bool {
	return errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrCannotOpen)
}

func (a *app) mustExist() error {
	if _, err := os.Stat(a.db); errors.Is(err, os.ErrNotExist) && !store.OnServer(a.db) {
		return withCode(exitNotFound, fmt.Errorf("no task database at %s: measure something first (wattmark demo) or name another with --db", a.db))
	}
	return nil
}

// taskID reads a task's number from the command line.
func taskID(arg string) (store.TaskID, error) {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n < 1 {
		return 0, withCode(exitUsage, fmt.Errorf("%q is not a task number: list them with wattmark tasks", arg))
	}
	return store.TaskID(n), nil
}

// oneTask checks that one task is named, before anything is opened.
func oneTask(c *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(1)(c, args); err != nil {
		return err
	}
	_, err := taskID(args[0])
	return err
}

// oneGroup checks that a group is named, and nothing else.
func oneGroup(c *cobra.Command, args []string) error {
	if n, err := c.Flags().GetInt64("group"); err != nil || n < 1 || len(args) > 0 {
		return errors.New("--group wants the number of a group, and no task beside it")
	}
	return nil
}

// task reads one task, with the exit code for one that is not there.
func (a *app) task(ctx context.Context, db *store.DB, arg string) (*store.Task, error) {
	id, err := taskID(arg)
	if err != nil {
		return nil, err
	}
	t, err := db.Task(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, withCode(exitNotFound, fmt.Errorf("no task %d in %s: list them with wattmark tasks", id, a.db))
	}
	return &t, err
}

func (a *app) tasksCmd() *cobra.Command {
	var q store.Query
	var since, until string
	var tags, without []string
	c := &cobra.Command{
		Use: "tasks", Short: "List tasks, newest first, by user, name and time", Args: cobra.NoArgs,
		Example: "  wattmark tasks --user lab\n  wattmark tasks --name 'gemm*' --since 2026-01-31 --json\n  wattmark tasks --search 'gemm fp16' --tag cooler=water",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Since, err = parseTime(since); err != nil {
				return err
			}
			if q.Until, err = parseTime(until); err != nil {
				return err
			}
			if q.Tags, err = parseTags(tags, true); err != nil {
				return err
			}
			for _, w := range without {
				t, err := store.ParseTag(w)
				if err != nil {
					return withCode(exitUsage, err)
				}
				q.Without = append(q.Without, t)
			}
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			a.leftOvers(cmd.Context(), db)
			tasks, err := db.Tasks(cmd.Context(), q)
			if err != nil {
				return err
			}
			return a.printTasks(tasks, q)
		},
	}
	c.Flags().StringVar(&q.User, "user", "", "only this user's")
	c.Flags().StringVar(&q.Name, "name", "", "only of this name; a trailing * matches what begins so")
	c.Flags().StringVar(&q.Job, "job", "", "only of this job")
	c.Flags().StringVar(&q.Search, "search", "", "only with all of these words, or beginnings of words, in name, notes or tags")
	c.Flags().StringArrayVar(&tags, "tag", nil, "only with this tag: key=value, or key alone (repeatable)")
	c.Flags().StringArrayVar(&without, "without-tag", nil, "only without this tag: key=value, or key alone (repeatable)")
	c.Flags().StringVar(&since, "since", "", "only launched at or after: 2026-01-31 or 2026-01-31T15:04:05Z")
	c.Flags().StringVar(&until, "until", "", "only launched before")
	c.Flags().IntVar(&q.Limit, "limit", 50, "how many")
	c.Flags().Int64Var((*int64)(&q.Before), "before", 0, "only tasks with a smaller number, for the next page")
	return a.jsonFlag(c)
}

// parseTime reads a date or an RFC 3339 instant; empty is no limit.
func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, withCode(exitUsage, fmt.Errorf("%q is not a time: write 2026-01-31 or 2026-01-31T15:04:05Z", s))
}

func (a *app) printTasks(tasks []store.Row, q store.Query) error {
	if a.json {
		list := []listedReport{}
		for i := range tasks {
			list = append(list, newListedReport(&tasks[i], a.db))
		}
		return a.printJSON(map[string]any{"tasks": list})
	}
	if len(tasks) == 0 {
		fmt.Fprintln(a.out, "No such tasks in", a.db)
		return nil
	}
	rows := make([]taskRow, len(tasks))
	for i := range tasks {
		rows[i] = newTaskRow(&tasks[i])
	}
	width := 0 // a file has room
	if isTerminal(a.out) {
		width = terminalWidth(a.out)
	}
	fmt.Fprintln(a.out, taskTable(rows, width))
	if q.Limit > 0 && len(tasks) == q.Limit {
		fmt.Fprintf(a.out, "\nOlder ones: wattmark tasks --before %d\n", tasks[len(tasks)-1].ID)
	}
	return nil
}

func (a *app) usersCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "users", Short: "List users with their number of tasks", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			users, err := db.Users(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				type user struct {
					User  string `json:"user"`
					Tasks uint64 `json:"tasks"`
				}
				list := []user{}
				for _, u := range users {
					list = append(list, user(u))
				}
				return a.printJSON(map[string]any{"users": list})
			}
			t := newTable(a.out)
			t.AppendHeader([]any{"user", "tasks"})
			for _, u := range users {
				t.AppendRow([]any{u.User, u.Tasks})
			}
			t.Render()
			return nil
		},
	}
	return a.jsonFlag(c)
}
