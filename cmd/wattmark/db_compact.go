package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"wattmark/store"
)

type packReport struct {
	Database string       `json:"database"`
	Tasks    []packedTask `json:"tasks"`
	Before   int64        `json:"bytes_before"`
	After    int64        `json:"bytes"`
	Seconds  float64      `json:"took_s"`
}

type packedTask struct {
	TaskID int64  `json:"task_id"`
	Chunks uint64 `json:"chunks"`
	Scans  uint64 `json:"samples"`
	Before int64  `json:"bytes_before"`
	After  int64  `json:"bytes"`
}

func (a *app) dbCompactCmd() *cobra.Command {
	var olderThan string
	c := &cobra.Command{
		Use: "compact TASK… | --older-than AGE", Short: "Pack the samples of cold tasks tighter",
		Long: `Pack the samples of tasks tighter. Everything in wattmark reads such a task as
before, to the byte; a stock sqlite3 cannot: there the view data has one row without
values for it, and the view cold says what to do. wattmark db expand brings it back.
The file keeps its size, and what comes next uses the room: wattmark db vacuum gives
it back.`,
		Example: "  wattmark db compact 42\n  wattmark db compact --older-than 30d && wattmark db vacuum",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) > 0) == (olderThan != "") {
				return withCode(exitUsage, errors.New("name tasks, or --older-than for all that are older"))
			}
			var before time.Time
			if olderThan != "" {
				age, err := parseAge(olderThan)
				if err != nil {
					return err
				}
				before = time.Now().Add(-age)
			}
			return a.repack(cmd.Context(), args, before, (*store.DB).Compact)
		},
	}
	c.Flags().StringVar(&olderThan, "older-than", "", "all tasks that came into the database longer ago: 30d, 12w or 36h")
	return a.jsonFlag(c)
}

func (a *app) dbExpandCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "expand TASK…", Short: "Unpack what db compact packed, for other programs", Args: cobra.MinimumNArgs(1),
		Example: "  wattmark db expand 42",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.repack(cmd.Context(), args, time.Time{}, (*store.DB).Expand)
		},
	}
	return a.jsonFlag(c)
}

// repack packs or unpacks tasks by number, or all that were stored before a moment.
func (a *app) repack(ctx context.Context, args []string, before time.Time, turn func(*store.DB, context.Context, store.TaskID) (store.Packed, error)) error {
	db, err := a.openToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	ids, err := a.coldTasks(ctx, db, args, before)
	if err != nil {
		return err
	}
	r := packReport{Database: a.db, Tasks: []packedTask{}}
	begun := time.Now()
	for _, id := range ids {
		p, err := turn(db, ctx, id)
		if errors.Is(err, store.ErrNoHeader) {
			continue // it has no samples
		}
		if err != nil {
			return err
		}
		r.Tasks = append(r.Tasks, packedTask{int64(id), p.Chunks, p.Scans, p.Before, p.After})
		r.Before, r.After = r.Before+p.Before, r.After+p.After
	}
	r.Seconds = time.Since(begun).Seconds()
	if a.json {
		return a.printJSON(r)
	}
	for _, t := range r.Tasks {
		fmt.Fprintf(a.out, "task %d: %s, was %s (%d samples)\n", t.TaskID, sizeText(t.After), sizeText(t.Before), t.Scans)
	}
	fmt.Fprintf(a.out, "%d task(s): %s, was %s\n", len(r.Tasks), sizeText(r.After), sizeText(r.Before))
	return nil
}

// coldTasks are tasks by number, or those stored before a moment that have ended and are
// not packed yet.
func (a *app) coldTasks(ctx context.Context, db *store.DB, args []string, before time.Time) (ids []store.TaskID, err error) {
	for _, arg := range args {
		t, err := a.task(ctx, db, arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, t.ID)
	}
	if before.IsZero() {
		return ids, nil
	}
	return db.Cold(ctx, before)
}
