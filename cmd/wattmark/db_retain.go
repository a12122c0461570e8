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
	fl.StringVar(&f.olderThan, prefix+"older-than", "", "delete tasks that were launched longer ago: 90d, 12w or 36h")
	fl.Var(&f.keepSize, prefix+"keep-size", "delete the oldest tasks until the rest takes no more: 50GB or 500MiB; 0 for no bound")
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
	Done     bool          `json:"done"` // false: --dry-run
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
	Bytes    int64      `json:"bytes"`
	Why      string     `json:"why"` // "age" or "room"
}

func (a *app) dbRetainCmd() *cobra.Command {
	var f retainFlags
	var dry bool
	c := &cobra.Command{
		Use: "retain --older-than AGE | --keep-size SIZE", Short: "Delete old tasks, but never pinned ones or those that run", Args: cobra.NoArgs,
		Long: `Delete tasks that are older than an age, and then the oldest until the rest takes no
more than a size. Pinned tasks (wattmark pin) and those that run stay, whatever their
age. The file keeps its size, and what comes next uses the room; wattmark db vacuum
gives it back. wattmark host does the same now and then with --retain-older-than and
--retain-keep-size.`,
		Example: "  wattmark db retain --older-than 90d --keep-size 50GB --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.given() {
				return withCode(exitUsage, errors.New("say what to keep: --older-than, --keep-size or both"))
			}
			o, err := f.options(time.Now())
			if err != nil {
				return err
			}
			return a.dbRetain(cmd.Context(), o, dry)
		},
	}
	f.register(c.Flags(), "")
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would go, and delete nothing")
	return a.jsonFlag(c)
}

func (a *app) dbRetain(ctx context.Context, o store.RetainOptions, dry bool) error {
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	do, verb := db.Retain, "Deleted"
	if dry {
		do, verb = db.Retention, "Would delete"
	}
	r, err := do(ctx, o)
	if err != nil {
		return err
	}
	if a.json {
		out := retainReport{a.db, !dry, []retiredTask{}, r.Used, r.Free, r.Kept}
		for _, t := range r.Tasks {
			x := retiredTask{int64(t.Task), t.Name, t.User, nil, t.Bytes, "room"}
			if t.Aged {
				x.Why = "age"
			}
			if !t.Launched.IsZero() {
				x.Launched = &t.Launched
			}
			out.Tasks = append(out.Tasks, x)
		}
		return a.printJSON(out)
	}
	t := newTable(a.out)
	t.AppendHeader([]any{"task", "launched", "user", "name", "about", "for its"})
	for _, x := range r.Tasks {
		why := "room"
		if x.Aged {
			why = "age"
		}
		t.AppendRow([]any{x.Task, x.Launched.Local().Format("2006-01-02 15:04"), x.User, x.Name, sizeText(x.Bytes), why})
	}
	if len(r.Tasks) > 0 {
		t.Render()
	}
	fmt.Fprintf(a.out, "%s %d task(s), about %s of %s; %d pinned or running stay\n", verb, len(r.Tasks), sizeText(r.Free), sizeText(r.Used), r.Kept)
	return nil
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
