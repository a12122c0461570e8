package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"wattmark/store"
)

// retainFlags say what is kept.
type retainFlags struct {
	olderThan string
	keepSize  size // 0 for no bound
}

func (f *retainFlags) register(fl *pflag.FlagSet, prefix string) {
	fl.StringVar(&f.olderThan, prefix+"older-than", "", "delete tasks that came into the database longer ago: 90d, 12w or 36h")
	fl.Var(&f.keepSize, prefix+"keep-size", "delete the tasks that came first until the rest takes no more: 50GB or 500MiB; 0 for no bound")
}

func (f *retainFlags) given() bool { return f.olderThan != "" || f.keepSize > 0 }

// options reads the flags against a moment.
func (f *retainFlags) options(now time.Time) (o store.RetainOptions, err error) {
	if f.olderThan != "" {
		age, err := parseAge(f.olderThan)
		if err != nil {
			return o, err
		}
		o.Before = now.Add(-age)
	}
	o.KeepBytes = int64(f.keepSize)
	return o, nil
}

// parseAge reads a duration that may be in days or weeks.
func parseAge(s string) (time.Duration, error) {
	unit := map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[s[len(s)-1]]
	var age time.Duration
	var err error
	if unit != 0 {
		var n float64
		n, err = strconv.ParseFloat(strings.TrimSpace(s[:len(s)-1]), 64)
		if n*unit.Hours() > 100*365*24 {
			err = errors.New("more than a hundred years")
		}
		age = time.Duration(n * float64(unit))
	} else {
		age, err = time.ParseDuration(s)
	}
	if err != nil || !(age > 0) {
		return 0, withCode(exitUsage, fmt.Errorf("%q is not an age: write 90d, 12w or 36h", s))
	}
	return age, nil
}

type retainReport struct {
	Database string        `json:"database"`
	Done     bool          `json:"done"` // false: this is what --yes would do
	Tasks    []retiredTask `json:"tasks"`
	Used     int64         `json:"used_bytes"`
	Free     int64         `json:"freed_bytes"`
	Kept     int           `json:"kept_pinned_or_running"`
}

type retiredTask struct {
	TaskID   int64      `json:"task_id"`
	Name     string     `json:"name"`
	User     string     `json:"user"`
	Launched *time.Time `json:"launched,omitempty"`
	Stored   *time.Time `json:"stored,omitempty"` // when it came into the database
	Bytes    int64      `json:"bytes"`
	Why      string     `json:"why"` // "age" or "room"
}

func (a *app) dbRetainCmd() *cobra.Command {
	var f retainFlags
	var yes, dry bool
	c := &cobra.Command{
		Use: "retain --older-than AGE | --keep-size SIZE", Short: "Delete old tasks, but never pinned ones or those that run", Args: cobra.NoArgs,
		Long: `Say which tasks would be deleted: those that came into this database longer ago than
an age, and then those that came first until the rest takes no more than a size.
--yes deletes them. Pinned tasks (wattmark pin) and those that run stay.

A task's age counts from when it was measured, imported or copied into this database:
an old recording is new here on the day of its import. The file keeps its size, and
what comes next uses the room; wattmark db vacuum gives it back. wattmark host deletes
now and then, without asking, with --retain-older-than and --retain-keep-size.`,
		Example: "  wattmark db retain --older-than 90d --keep-size 50GB\n  wattmark db retain --older-than 90d --keep-size 50GB --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if yes && dry {
				return withCode(exitUsage, errors.New("--yes and --dry-run: choose one"))
			}
			if !f.given() {
				return withCode(exitUsage, errors.New("say what to keep: --older-than, --keep-size or both"))
			}
			o, err := f.options(time.Now())
			if err != nil {
				return err
			}
			return a.dbRetain(cmd.Context(), o, yes)
		},
	}
	f.register(c.Flags(), "")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do it")
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would go, and delete nothing: as without --yes")
	return a.jsonFlag(c)
}

func (a *app) dbRetain(ctx context.Context, o store.RetainOptions, yes bool) error {
	open := a.openDB
	if yes {
		open = a.openToChange
	}
	db, err := open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	do, verb, then := db.Retention, "Would delete", "\nNothing was deleted; --yes does it.\n"
	if yes {
		do, verb, then = db.Retain, "Deleted", "\n"
	}
	r, err := do(ctx, o)
	if err != nil {
		return err
	}
	if a.json {
		out := retainReport{a.db, yes, []retiredTask{}, r.Used, r.Free, r.Kept}
		for _, t := range r.Tasks {
			x := retiredTask{int64(t.Task), t.Name, t.User, nil, nil, t.Bytes, "room"}
			if t.Aged {
				x.Why = "age"
			}
			if !t.Launched.IsZero() {
				x.Launched = &t.Launched
			}
			if !t.Stored.IsZero() {
				x.Stored = &t.Stored
			}
			out.Tasks = append(out.Tasks, x)
		}
		return a.printJSON(out)
	}
	t := newTable(a.out)
	t.AppendHeader([]any{"task", "stored", "launched", "user", "name", "about", "for its"})
	for _, x := range r.Tasks {
		why := "room"
		if x.Aged {
			why = "age"
		}
		t.AppendRow([]any{x.Task, dateOf(x.Stored), dateOf(x.Launched), x.User, x.Name, sizeText(x.Bytes), why})
	}
	if len(r.Tasks) > 0 {
		t.Render()
	}
	fmt.Fprintf(a.out, "%s %d task(s), about %s of %s; %d pinned or running stay%s", verb, len(r.Tasks), sizeText(r.Free), sizeText(r.Used), r.Kept, then)
	return nil
}

// dateOf is a day in the local time zone, empty where it is not known.
func dateOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateOnly)
}

// retainLoop deletes what is old now and then.
func retainLoop(ctx context.Context, db *store.DB, log *slog.Logger, f retainFlags, every time.Duration) error {
	if !f.given() {
		return nil
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		o, err := f.options(time.Now())
		if err != nil {
			return err
		}
		r, err := db.Retain(ctx, o)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Warn("could not delete old tasks", "error", err)
		case len(r.Tasks) > 0:
			log.Info("deleted old tasks", "tasks", len(r.Tasks), "bytes", r.Free)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
