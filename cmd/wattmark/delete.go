package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"wattmark/measure"
	"wattmark/store"
)

// yesFlag registers the flag that answers confirm.
func yesFlag(fl *pflag.FlagSet, yes *bool) {
	fl.BoolVarP(yes, "yes", "y", false, "do not ask")
}

// confirm asks before something is deleted. Where nobody can be asked, as in a script,
// --yes must be given.
func (a *app) confirm(yes bool, what string) (bool, error) {
	if yes {
		return true, nil
	}
	if a.json || !isTerminalInput(a.in) {
		return false, withCode(exitUsage, fmt.Errorf("this would delete %s: give --yes to do it", what))
	}
	ok, err := a.ask("Delete " + what + "? [y/N] ")
	if err == nil && !ok {
		fmt.Fprintln(a.out, "Nothing was deleted.")
	}
	return ok, err
}

func isTerminalInput(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

type deleteFlags struct {
	name, user string
	yes, force bool
}

func (a *app) deleteCmd() *cobra.Command {
	var f deleteFlags
	c := &cobra.Command{
		Use: "delete TASK… | --name NAME | --user USER", Short: "Delete tasks by number, by name or by user",
		Long: `Delete tasks with all that belongs to them, for good. On a terminal it asks first;
elsewhere --yes must be given.

Of several numbers all are deleted or, where one is not there or is pinned (wattmark
pin), none. By name or by user, pinned tasks stay and are named. --force deletes
pinned tasks too.`,
		Example: "  wattmark delete 42\n  wattmark delete 4 5 6 --yes\n  wattmark delete --name warmup --yes\n  wattmark delete --user guest --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			given := min(len(args), 1)
			for _, s := range []string{f.name, f.user} {
				if s != "" {
					given++
				}
			}
			if given != 1 {
				return withCode(exitUsage, errors.New("name what to delete by exactly one of: task numbers, --name, --user"))
			}
			var ids []store.TaskID
			for _, arg := range args {
				id, err := taskID(arg)
				if err != nil {
					return err
				}
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
			return a.deleteTasks(cmd.Context(), ids, f)
		},
	}
	c.Flags().StringVar(&f.name, "name", "", "all tasks of exactly this name")
	c.Flags().StringVar(&f.user, "user", "", "all tasks of this user")
	c.Flags().BoolVar(&f.force, "force", false, "pinned tasks too")
	yesFlag(c.Flags(), &f.yes)
	return a.jsonFlag(c)
}

func (a *app) deleteTasks(ctx context.Context, ids []store.TaskID, f deleteFlags) error {
	db, err := a.openToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	goes, stay, err := a.toDelete(ctx, db, ids, f)
	if err != nil {
		return err
	}
	if len(goes) > 0 {
		ok, err := a.confirm(f.yes, fmt.Sprintf("%d task(s) of %s: %s", len(goes), a.db, namedTasks(goes)))
		if err != nil || !ok {
			return err
		}
		gone := make([]store.TaskID, len(goes))
		for i := range goes {
			gone[i] = goes[i].ID
		}
		if err := db.DeleteTasks(ctx, gone, store.DeleteOptions{Pinned: f.force}); err != nil {
			return err
		}
	}
	if a.json {
		pinned := []int64{}
		for i := range stay {
			pinned = append(pinned, int64(stay[i].ID))
		}
		return a.printJSON(map[string]any{"deleted": len(goes), "pinned": pinned})
	}
	fmt.Fprintf(a.out, "Deleted %d task(s) from %s\n", len(goes), a.db)
	if len(stay) > 0 {
		fmt.Fprintf(a.out, "Pinned, and kept: %s. --force deletes them too.\n", namedTasks(stay))
	}
	return nil
}

// toDelete finds the tasks that go, and those of a name or a user that stay because they
// are pinned. Numbers that are not there, or pinned, are errors.
func (a *app) toDelete(ctx context.Context, db *store.DB, ids []store.TaskID, f deleteFlags) (goes, stays []store.Brief, err error) {
	if len(ids) == 0 {
		found, err := everyTask(ctx, db, store.Query{User: f.user, Name: f.name})
		if err != nil {
			return nil, nil, err
		}
		for i := range found {
			t := found[i].Brief
			switch {
			case f.name != "" && t.Name != f.name: // of a longer name: a * at the end is no pattern here
			case t.Pinned && !f.force:
				stays = append(stays, t)
			default:
				goes = append(goes, t)
			}
		}
		return goes, stays, nil
	}
	var missing []string
	for _, id := range ids {
		t, err := db.Task(ctx, id)
		b := store.Brief{ID: t.ID, Name: t.Name, User: t.User}
		switch {
		case errors.Is(err, store.ErrNotFound):
			missing = append(missing, fmt.Sprint(id))
		case err != nil:
			return nil, nil, err
		case t.Pinned && !f.force:
			stays = append(stays, b)
		default:
			goes = append(goes, b)
		}
	}
	switch {
	case len(missing) > 0:
		return nil, nil, withCode(exitNotFound, fmt.Errorf("no task %s in %s, and nothing was deleted: list them with wattmark tasks", strings.Join(missing, ", "), a.db))
	case len(stays) > 0:
		return nil, nil, fmt.Errorf("pinned, and nothing was deleted: %s: wattmark unpin %d, or --force", namedTasks(stays), stays[0].ID)
	}
	return goes, nil, nil
}

// deleteAnalysis deletes a version of what was worked out, or with version 0 all of them,
// and returns how many; 0 where the user did not want to. what is its kind in words.
func (a *app) deleteAnalysis(ctx context.Context, db *store.DB, kind, what, name string, version int, yes bool) (int64, error) {
	if _, err := db.Analysis(ctx, kind, name, version); err != nil {
		return 0, err
	}
	which := "all versions"
	if version > 0 {
		which = fmt.Sprintf("version %d", version)
	}
	if ok, err := a.confirm(yes, fmt.Sprintf("%s of the %s %s of %s", which, what, measure.Printable(name), a.db)); err != nil || !ok {
		return 0, err
	}
	return db.DeleteAnalysis(ctx, kind, name, version)
}

// everyTask returns all tasks that a query selects.
func everyTask(ctx context.Context, db *store.DB, q store.Query) (out []store.Row, err error) {
	q.Limit = 1000
	for {
		page, err := db.Tasks(ctx, q)
		if err != nil {
			return nil, err
		}
		out = append(out, page...)
		if len(page) < q.Limit {
			return out, nil
		}
		q.Before = page[len(page)-1].ID
	}
}

// namedTasks is tasks in words: the first of them where there are many.
func namedTasks(list []store.Brief) string {
	const most = 8
	var words []string
	for _, t := range list[:min(len(list), most)] {
		words = append(words, fmt.Sprintf("%d %s (%s)", t.ID, measure.Printable(t.Name), measure.Printable(t.User)))
	}
	if more := len(list) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}
