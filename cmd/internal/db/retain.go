package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/internal/backoff"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// RetainFlags are the bounds of retention: an age, a size, or both. Register them on a flag
// set, then read them with Options.
type RetainFlags struct {
	olderThan string
	keepSize  cli.Size // 0 for no bound
}

// Register adds --older-than and --keep-size, each behind prefix, to a flag set.
func (f *RetainFlags) Register(fl *pflag.FlagSet, prefix string) {
	fl.StringVar(&f.olderThan, prefix+"older-than", "",
		"delete tasks that came into the database longer ago: 90d, 12w or 36h")
	fl.Var(&f.keepSize, prefix+"keep-size",
		"delete the tasks that came first until the rest takes no more: 50GB or 500MiB; 0 for no bound")
}

func (f *RetainFlags) given() bool { return f.olderThan != "" || f.keepSize > 0 }

// Options converts the flags into store's options; an age becomes the moment now − age. It
// fails with ExitUsage for an age that does not parse.
func (f *RetainFlags) Options(now time.Time) (o store.RetainOptions, err error) {
	o.KeepBytes = int64(f.keepSize)
	o.Before, err = before(now, f.olderThan)
	return o, err
}

// before returns the moment an age before now, for an empty age the zero time. It fails with ExitUsage for an age
// that does not parse.
func before(now time.Time, age string) (time.Time, error) {
	if age == "" {
		return time.Time{}, nil
	}
	d, err := cli.ParseAge(age)
	return now.Add(-d), err
}

// RetainReport is the JSON of db retain. Used and Free are bytes; Free is an estimate
// from the tasks' rows, since the file keeps its size.
type RetainReport struct {
	Database string        `json:"database"`
	Done     bool          `json:"done"` // false: a dry run
	Tasks    []retiredTask `json:"tasks"`
	Used     int64         `json:"used_bytes"`
	Free     int64         `json:"freed_bytes"`
	Kept     int           `json:"kept_pinned_or_running"`
}

// retiredTask is a task that is deleted, or would be.
type retiredTask struct {
	store.Retired
	Why string `json:"why"` // "age" or "room"
}

// dbRetainCmd returns db retain, a dry run without --yes.
func dbRetainCmd(a *cli.App) *cobra.Command {
	var f RetainFlags
	var yes, dry bool
	c := cli.Command("retain --older-than AGE | --keep-size SIZE",
		"Delete old tasks, but never pinned ones or those that run", cobra.NoArgs,
		func(ctx context.Context, _ []string) error {
			if yes && dry {
				return cli.Usagef("--yes and --dry-run: choose one")
			}
			if !f.given() {
				return cli.Usagef("say what to keep: --older-than, --keep-size or both")
			}
			o, err := f.Options(time.Now())
			if err != nil {
				return err
			}
			return dbRetain(ctx, a, o, yes)
		})
	f.Register(c.Flags(), "")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do it")
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would go, and delete nothing: as without --yes")
	return a.JSONFlag(c)
}

// dbRetain lists the tasks beyond the bounds and, with yes, deletes them one at a time. The
// dry run opens the database for reading only.
func dbRetain(ctx context.Context, a *cli.App, o store.RetainOptions, yes bool) error {
	open, do := func(ctx context.Context) (*store.DB, error) { return a.OpenDB(ctx) }, (*store.DB).Retention
	verb, then := "Would delete", "\nNothing was deleted; --yes does it.\n"
	if yes {
		open, do, verb, then = a.OpenToChange, (*store.DB).Retain, "Deleted", "\n"
	}
	db, err := open(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	bar := a.Progress("deleting tasks")
	if yes {
		a.Keep("each task is deleted or whole; the same command goes on")
	}
	r, err := do(db, ctx, o)
	bar.End()
	if err != nil {
		return err
	}
	report := RetainReport{a.DB, yes, []retiredTask{}, r.Used, r.Free, r.Kept}
	for _, x := range r.Tasks {
		report.Tasks = append(report.Tasks, retiredTask{x, map[bool]string{true: "age", false: "room"}[x.Aged]})
	}
	return a.Print(report, func(w io.Writer) {
		if len(r.Tasks) > 0 {
			out.Table(w, out.Row{"task", "stored", "launched", "user", "name", "about", "for its"}, report.Tasks,
				func(x retiredTask) out.Row {
					return out.Row{x.Task, dateOf(x.Stored), dateOf(x.Launched), x.User, x.Name, cli.SizeText(x.Bytes), x.Why}
				})
		}
		fmt.Fprintf(w, "%s %s, about %s of %s; %d pinned or running stay%s", verb, measure.Plural(len(r.Tasks), "task"),
			cli.SizeText(r.Free), cli.SizeText(r.Used), r.Kept, then)
	})
}

// dateOf formats a day in the local time zone; the zero time gives the empty string.
func dateOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return cli.AtDay(t)
}

// RetainLoop applies the flags' bounds at once and then every interval, until ctx ends. It
// returns at once without a bound. A failed deletion is logged and tried again at the next
// tick; flags that do not parse and a database on a server end the loop with an error.
func RetainLoop(ctx context.Context, db *store.DB, log *slog.Logger, f RetainFlags, every time.Duration) error {
	if !f.given() {
		return nil
	}
	for range backoff.Rounds(ctx.Done(), every) {
		// The age is relative: it needs the time of each round.
		o, err := f.Options(time.Now())
		if err != nil {
			return err
		}
		r, err := db.Retain(ctx, o)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrFileOnly):
			return cli.Usagef("to delete old tasks wants a SQLite file: %w", err)
		case err != nil:
			log.Warn("could not delete old tasks", "error", err)
		case len(r.Tasks) > 0:
			numbers := lists.Map(r.Tasks, func(t store.Retired) string { return fmt.Sprint(t.Task) })
			log.Info("deleted old tasks", "tasks", len(r.Tasks), "numbers", strings.Join(numbers, " "), "bytes", r.Free)
		}
	}
	return nil
}

// PackReport is the JSON of db compact and db expand; sizes in bytes are of the samples.
type PackReport struct {
	Database string       `json:"database"`
	Tasks    []packedTask `json:"tasks"`
	Before   int64        `json:"bytes_before"`
	After    int64        `json:"bytes"`
	Seconds  float64      `json:"took_s"`
}

// packedTask is one task's size before and after.
type packedTask struct {
	TaskID store.TaskID `json:"task_id"`
	store.Packed
}

// dbCompactCmd returns db compact, which wants task numbers or --older-than.
func dbCompactCmd(a *cli.App) *cobra.Command {
	var olderThan string
	c := cli.Command("compact TASK… | --older-than AGE", "Pack the samples of cold tasks tighter", nil,
		func(ctx context.Context, args []string) error {
			if (len(args) > 0) == (olderThan != "") {
				return cli.Usagef("name tasks, or --older-than for all that are older")
			}
			at, err := before(time.Now(), olderThan)
			if err != nil {
				return err
			}
			return repack(ctx, a, args, at, (*store.DB).Compact)
		})
	c.Flags().StringVar(&olderThan, "older-than", "", "all tasks that came into the database longer ago: 30d, 12w or 36h")
	return a.JSONFlag(c)
}

// dbExpandCmd returns db expand, the inverse of db compact.
func dbExpandCmd(a *cli.App) *cobra.Command {
	return a.JSONFlag(cli.Command("expand TASK…", "Unpack what db compact packed, for other programs",
		cobra.MinimumNArgs(1), func(ctx context.Context, args []string) error {
			return repack(ctx, a, args, time.Time{}, (*store.DB).Expand)
		}))
}

// repack applies turn (Compact or Expand) to the tasks of args, or to all cold tasks stored
// before a moment where args is empty. Each task is turned on its own, so an interrupted
// call can be repeated. Tasks without samples are skipped.
func repack(ctx context.Context, a *cli.App, args []string, before time.Time,
	turn func(*store.DB, context.Context, store.TaskID) (store.Packed, error),
) error {
	db, err := a.OpenToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	ids, err := taskIDs(ctx, a, db, args)
	if err == nil && !before.IsZero() {
		ids, err = db.Cold(ctx, before)
	}
	if err != nil {
		return err
	}
	r := PackReport{Database: a.DB, Tasks: []packedTask{}}
	// The time covers packing alone, not the selection of tasks.
	begun := time.Now()
	bar := a.Progress("packing")
	defer bar.End()
	for i, id := range ids {
		bar.Set(i, len(ids))
		a.Keep("%d of %d tasks are done; the same command goes on", i, len(ids))
		p, err := turn(db, ctx, id)
		if errors.Is(err, store.ErrNoHeader) {
			continue // it has no samples
		}
		if err != nil {
			return err
		}
		r.Tasks = append(r.Tasks, packedTask{id, p})
		r.Before, r.After = r.Before+p.Before, r.After+p.After
	}
	r.Seconds = time.Since(begun).Seconds()
	bar.End()
	return a.Print(r, func(w io.Writer) {
		for _, t := range r.Tasks {
			fmt.Fprintf(w, "task %d: %s, was %s (%s)\n", t.TaskID, cli.SizeText(t.After), cli.SizeText(t.Before),
				measure.Plural(t.Scans, "sample"))
		}
		fmt.Fprintf(w, "%s: %s, was %s\n", measure.Plural(len(r.Tasks), "task"), cli.SizeText(r.After),
			cli.SizeText(r.Before))
	})
}

func taskIDs(ctx context.Context, a *cli.App, db *store.DB, args []string) (ids []store.TaskID, err error) {
	for _, arg := range args {
		t, err := a.Task(ctx, db, arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, t.ID)
	}
	return ids, nil
}
