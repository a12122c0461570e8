package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// YesFlag adds --yes, which skips the question of Confirm.
func YesFlag(fl *pflag.FlagSet, yes *bool) {
	fl.BoolVarP(yes, "yes", "y", false, "do not ask")
}

// Confirm asks on the terminal whether to delete the things that subject names, and
// returns the answer. With yes it returns true without a question. Without a terminal, or
// with --json, no answer is possible: the result is a usage error that names --yes.
func Confirm(a *cli.App, yes bool, subject string) (bool, error) {
	if yes {
		return true, nil
	}
	if a.JSON || !out.IsTerminal(a.In) {
		return false, cli.Usagef("this would delete %s: give --yes to do it", subject)
	}
	ok, err := a.Ask("Delete " + subject + "? [y/N] ")
	if err == nil && !ok {
		fmt.Fprintln(a.Out, "Nothing was deleted.")
	}
	return ok, err
}

// deleteFlags select tasks by name or user; numbers are arguments.
type deleteFlags struct {
	name, user string
	yes, force bool // force: pinned tasks too
	purge      bool // keep no copy to undo it with
}

// deleteCmd returns the command delete. Numbers, name and user exclude each other: a mixture
// would leave open whether it is a union or an intersection.
func deleteCmd(a *cli.App) *cobra.Command {
	var f deleteFlags
	c := cli.Command("delete TASK… | --name NAME | --user USER", "Delete tasks by number, by name or by user", nil,
		func(ctx context.Context, args []string) error {
			if session.CountTrue(len(args) > 0, f.name != "", f.user != "") != 1 {
				return cli.Usagef("name what to delete by exactly one of: tasks, --name, --user")
			}
			var ids []store.TaskID
			for _, arg := range args {
				id, err := a.Number(ctx, arg)
				if err != nil {
					return err
				}
				if !slices.Contains(ids, id) { // a number given twice counts once
					ids = append(ids, id)
				}
			}
			return deleteTasks(ctx, a, ids, f)
		})
	c.Flags().StringVar(&f.name, "name", "", "all tasks of exactly this name")
	c.Flags().StringVar(&f.user, "user", "", "all tasks of this user")
	c.Flags().BoolVar(&f.force, "force", false, "pinned tasks too")
	c.Flags().BoolVar(&f.purge, "purge", false, "keep no copy, from which db import or db copy brings them back")
	YesFlag(c.Flags(), &f.yes)
	return a.HostFlag(a.JSONFlag(c))
}

// deleteTasks deletes the selected tasks in one transaction after a confirmation, and prints
// the number deleted and the pinned tasks that stay.
func deleteTasks(ctx context.Context, a *cli.App, ids []store.TaskID, f deleteFlags) error {
	if _, ok := a.OnHost(); ok {
		return a.AskHost(ctx, func(c *client.Client) error { return deleteOnHost(ctx, a, c, ids, f) })
	}
	db, err := a.OpenToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	chosen, err := selectForDeletion(ctx, a, db, ids, f)
	if err != nil {
		return err
	}
	gone := lists.Map(chosen.goes, func(t store.Brief) store.TaskID { return t.ID })
	return deletion(a, chosen, f, func(path string) error {
		copied, err := db.Detach(ctx, path, gone, nil)
		if err == nil && len(copied.Running) > 0 {
			err = fmt.Errorf("task %d still runs", copied.Running[0])
		}
		return err
	}, func() error { return db.DeleteTasks(ctx, gone, store.DeleteOptions{Pinned: f.force}) })
}

// deletion deletes tasks that were selected, and prints what is gone and what stays, as pinned. It asks first; then
// keep writes the tasks into a file, unless --purge is given: without one nothing is deleted.
func deletion(a *cli.App, chosen selection, f deleteFlags, keep func(path string) error, remove func() error) error {
	undo, goes := "", chosen.goes
	if len(goes) > 0 {
		ok, err := Confirm(a, f.yes, fmt.Sprintf("%s of %s: %s", measure.Plural(len(goes), "task"), a.DB, namedTasks(goes)))
		if err != nil || !ok {
			return err
		}
		if !f.purge {
			if undo, err = session.DeletedCopies(a.DB); err == nil {
				undo += fmt.Sprint(goes[0].ID)
				_ = os.Remove(undo) // of a deletion that failed: numbers are not used again
				if err = keep(undo); err != nil {
					_ = os.Remove(undo)
				}
			}
		}
		if err != nil {
			return fmt.Errorf("nothing was deleted, as no copy could be kept (--purge keeps none): %w", err)
		}
		if err := remove(); err != nil {
			return err
		}
	}
	return printDeleted(a, len(goes), chosen.stay, undo)
}

// errPinned refuses tasks that were chosen by number and are pinned.
func errPinned(stay []store.Brief) error {
	return fmt.Errorf("pinned, and nothing was deleted: %s: wattmark unpin %d, or --force", namedTasks(stay),
		stay[0].ID)
}

// printDeleted prints how many tasks were deleted, the pinned ones that stay, and the file to undo it with.
func printDeleted(a *cli.App, gone int, stay []store.Brief, undo string) error {
	pinned := append([]store.TaskID{}, lists.Map(stay, func(t store.Brief) store.TaskID { return t.ID })...)
	return a.Print(map[string]any{"deleted": gone, "pinned": pinned, "undo": undo}, func(w io.Writer) {
		switch {
		case gone > 0:
			fmt.Fprintf(w, "Deleted %s from %s\n", measure.Plural(gone, "task"), a.DB)
		case len(stay) == 0:
			fmt.Fprintf(w, "No task matches: nothing was deleted from %s\n", a.DB)
		}
		switch {
		case undo == "":
		case store.OnServer(a.DB):
			fmt.Fprintf(w, "As long as this file is there they can come back: wattmark db copy %s %s\n", undo, a.DB)
		default:
			fmt.Fprintf(w, "Until wattmark db vacuum they can come back: wattmark db import %s\n", undo)
		}
		if len(stay) > 0 {
			fmt.Fprintf(w, "Pinned, and kept: %s. --force deletes them too.\n", namedTasks(stay))
		}
	})
}

// selection holds the tasks to delete, and those that stay because they are pinned.
type selection struct{ goes, stay []store.Brief }

// add adds a task that the flags select. The query of a name takes a trailing * as a pattern, delete does not.
func (s *selection) add(t store.Brief, f deleteFlags) {
	switch {
	case f.name != "" && t.Name != f.name:
	case t.Pinned && !f.force:
		s.stay = append(s.stay, t)
	default:
		s.goes = append(s.goes, t)
	}
}

// selectForDeletion returns the selected tasks. For numbers it is all or none: one that does not
// exist or is pinned is an error.
func selectForDeletion(ctx context.Context, a *cli.App, db *store.DB, ids []store.TaskID, f deleteFlags) (s selection,
	err error,
) {
	if len(ids) == 0 {
		found, err := EveryTask(ctx, db.Tasks, store.Query{User: f.user, Name: f.name})
		for i := range found {
			s.add(found[i].Brief, f)
		}
		return s, err
	}
	// Collect all numbers that are missing or pinned, for one error that names them.
	var missing []string
	for _, id := range ids {
		t, err := db.Task(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			missing = append(missing, fmt.Sprint(id))
		case err != nil:
			return s, err
		default:
			s.add(t.Row().Brief, f)
		}
	}
	switch {
	case len(missing) > 0:
		return s, cli.NotFoundf("no task %s in %s, and nothing was deleted: list "+
			"them with wattmark tasks", strings.Join(missing, ", "), a.DB)
	case len(s.stay) > 0:
		return s, errPinned(s.stay)
	}
	return s, nil
}

// EveryTask returns all tasks that a query selects by list, newest first.
func EveryTask(ctx context.Context, list func(context.Context, store.Query) ([]store.Row, error), q store.Query,
) (out []store.Row, err error) {
	err = inPages(ctx, q, list, func(page []store.Row) { out = append(out, page...) })
	return out, err
}

// inPages calls add with all tasks that a query selects, newest first, in pages of 1000. Each
// continues below the smallest number of the page before.
func inPages(ctx context.Context, q store.Query, list func(context.Context, store.Query) ([]store.Row, error),
	add func([]store.Row),
) error {
	for q.Limit = 1000; ; {
		page, err := list(ctx, q)
		if err != nil {
			return err
		}
		add(page)
		if len(page) < q.Limit {
			return nil
		}
		q.Before = page[len(page)-1].ID
	}
}

// namedTasks lists tasks as "NUMBER NAME (USER)", at most eight of them, and the number of
// the others. Names come from users and are made printable.
func namedTasks(list []store.Brief) string {
	const most = 8
	words := lists.Map(list[:min(len(list), most)], func(t store.Brief) string {
		return fmt.Sprintf("%d %s (%s)", t.ID, measure.Printable(t.Name), measure.Printable(t.User))
	})
	if more := len(list) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}

// LabelFlags are the flags of commands that measure for the labels of the new task.
type LabelFlags struct {
	words  []string          // as given: key=value
	Tags   map[string]string // set by Check
	Note   string
	Redact bool // store only the program's name, without its arguments
}

// Register adds the flags to fl.
func (f *LabelFlags) Register(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.words, "tag", nil, "label the task: key=value (repeatable)")
	fl.StringVar(&f.Note, "note", "", "a remark on the task")
	fl.BoolVar(&f.Redact, "redact", false, "of the program's command line, keep only its name")
}

// Check parses the tags into Tags. Call it before the measurement: a malformed tag is a
// usage error.
func (f *LabelFlags) Check() (err error) {
	f.Tags, err = parseTags(f.words, false)
	return err
}

// parseTags parses key=value words. With alone a key without a value is allowed and matches
// any value. A key given twice, an empty value and a key that the store refuses are usage errors.
func parseTags(words []string, alone bool) (map[string]string, error) {
	out := map[string]string{}
	for _, w := range words {
		k, v, some := strings.Cut(w, "=")
		if !some && !alone || some && v == "" {
			return nil, cli.Usagef("tag %q: write key=value", w)
		}
		if _, twice := out[k]; twice {
			return nil, cli.Usagef("tag %s is given twice", k)
		}
		out[k] = v
	}
	if err := store.CheckTags(out); err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	return out, nil
}

// tagCmd returns the command tag, which parses its flags itself: cobra would take -key for one.
// It does so before the root's own preparation, which needs them.
func tagCmd(a *cli.App) *cobra.Command {
	var words []string
	c := &cobra.Command{
		Use: "tag TASK key=value… | -key…", Short: "Set tags of a task, or remove them with a minus before the key",
		DisableFlagParsing: true, // -key is a word here
		PersistentPreRunE: func(cmd *cobra.Command, args []string) (err error) {
			if words, err = flagsByHand(cmd, args); err != nil {
				return cli.Usagef("%w\nSee: %s --help", err, cmd.CommandPath())
			}
			return cmd.Root().PersistentPreRunE(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if help, err := cmd.Flags().GetBool("help"); help || err != nil {
				return errors.Join(cmd.Help(), err)
			}
			if len(words) < 2 {
				return cli.Usagef("name a task and its tags\nSee: %s --help", cmd.CommandPath())
			}
			var set, remove []string // key=value, and keys
			for _, w := range words[1:] {
				if k, minus := strings.CutPrefix(w, "-"); minus {
					remove = append(remove, k)
				} else {
					set = append(set, w)
				}
			}
			tags, err := parseTags(set, false)
			if err != nil {
				return err
			}
			ctx := cmd.Context() // both changes are one transaction
			said := func(t *store.Task) string { return "tags " + cmp.Or(cell(t.Tags), "none") }
			return relabel(ctx, a, words[0], said,
				func(db *store.DB, id store.TaskID) error { return db.SetTags(ctx, id, tags, remove) },
				func(c *client.Client, id int64) error {
					_, err := c.SetTags(ctx, id, tags, remove...)
					return err
				})
		},
	}
	return a.HostFlag(a.JSONFlag(c))
}

// flagsByHand parses the flags of tag, the command to which -key is an argument and no flag: it
// sets the flags that begin with two minus signs, and returns the other words. -h before the
// first word is --help; later, it removes the tag h.
func flagsByHand(c *cobra.Command, args []string) (words []string, err error) {
	for i := 0; i < len(args); i++ { // i also advances past the values of flags
		if args[i] == "-h" && len(words) == 0 {
			args[i] = "--help"
		}
		flag, long := strings.CutPrefix(args[i], "--")
		if !long {
			words = append(words, args[i])
			continue
		}
		name, value, given := strings.Cut(flag, "=")
		f := c.Flag(name)
		switch {
		case f == nil:
			return nil, fmt.Errorf("unknown flag %s", args[i])
		case given:
		case f.NoOptDefVal != "":
			value = f.NoOptDefVal
		case i+1 == len(args):
			return nil, fmt.Errorf("flag needs an argument: %s", args[i])
		default:
			i++
			value = args[i]
		}
		if err := c.Flags().Set(name, value); err != nil {
			return nil, err
		}
	}
	return words, nil
}

// noteCmd returns the command note, which adds a remark or, with --remove, deletes one.
func noteCmd(a *cli.App) *cobra.Command {
	var remove int
	c := cli.Command("note TASK TEXT | TASK --remove N", "Add a remark to a task, or remove one", cobra.MinimumNArgs(1),
		func(ctx context.Context, args []string) error {
			if (remove > 0) == (len(args) > 1) {
				return cli.Usagef("give the remark's text, or --remove with the number of one")
			}
			said := func(t *store.Task) string {
				switch last := len(t.Notes) - 1; {
				case remove > 0:
					return fmt.Sprintf("note %d removed", remove)
				case last < 0: // another process has removed it
					return "note added"
				default:
					return fmt.Sprintf("note %d, %s", t.Notes[last].Number, t.Notes[last].Text)
				}
			}
			return relabel(ctx, a, args[0], said, func(db *store.DB, id store.TaskID) error {
				if remove > 0 {
					err := db.RemoveNote(ctx, id, remove)
					if errors.Is(err, store.ErrNotFound) { // the task is there
						err = cli.NotFoundf("task %d has no note %d: wattmark show %d lists them", id, remove, id)
					}
					return err
				}
				_, err := db.AddNote(ctx, id, time.Now(), strings.Join(args[1:], " "))
				return err
			}, func(c *client.Client, id int64) error {
				if remove > 0 {
					return c.RemoveNote(ctx, id, uint32(remove))
				}
				_, err := c.AddNote(ctx, id, strings.Join(args[1:], " "))
				return err
			})
		})
	c.Flags().IntVar(&remove, "remove", 0, "number of the remark to remove, as wattmark show counts them")
	return a.HostFlag(a.JSONFlag(c))
}

func pinCmd(a *cli.App, pin bool) *cobra.Command {
	use, short := "pin TASK", "Keep a task from retention (wattmark db retain)"
	if !pin {
		use, short = "unpin TASK", "Give a task back to retention"
	}
	return a.HostFlag(a.JSONFlag(cli.Command(use, short, cli.OneTask, func(ctx context.Context, args []string) error {
		said := func(t *store.Task) string {
			return map[bool]string{true: "pinned, retention leaves it", false: "not pinned"}[t.Pinned]
		}
		return relabel(ctx, a, args[0], said, func(db *store.DB, id store.TaskID) error { return db.Pin(ctx, id, pin) },
			func(c *client.Client, id int64) error {
				_, err := c.Pin(ctx, id, pin)
				return err
			})
	})))
}

// relabel applies a change to a task of the database, or of the host, and prints what said says of it, in JSON the
// labels that it then has. A task that does not exist gets the exit code 4 before the change.
func relabel(ctx context.Context, a *cli.App, arg string, said func(*store.Task) string,
	change func(*store.DB, store.TaskID) error, changeHost func(*client.Client, int64) error,
) error {
	id, err := a.Number(ctx, arg)
	if err != nil {
		return err
	}
	if _, ok := a.OnHost(); ok {
		return a.AskHost(ctx, func(c *client.Client) error {
			if err := changeHost(c, int64(id)); err != nil {
				return err
			}
			d, err := c.Task(ctx, int64(id))
			if err != nil {
				return err
			}
			t := &store.Task{NewTask: store.NewTask{Name: d.Name, User: d.User, Tags: d.Tags}, Pinned: d.Pinned}
			for _, n := range d.Notes {
				t.Notes = append(t.Notes, store.Note{Number: int(n.Number), At: n.At, Text: n.Text})
			}
			return printLabels(a, id, t, said)
		})
	}
	db, err := a.OpenToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := a.TaskByID(ctx, db, id); err != nil {
		return err
	}
	if err := change(db, id); err != nil {
		return err
	}
	t, err := a.TaskByID(ctx, db, id)
	if err != nil {
		return err
	}
	return printLabels(a, id, t, said)
}

// printLabels prints what said says of a task, in JSON its labels.
func printLabels(a *cli.App, id store.TaskID, t *store.Task, said func(*store.Task) string) error {
	labels := struct {
		TaskID int64             `json:"task_id"`
		Tags   map[string]string `json:"tags"`
		Notes  []store.Note      `json:"notes"` // never null
		Pinned bool              `json:"pinned"`
	}{int64(id), t.Tags, append([]store.Note{}, t.Notes...), t.Pinned}
	return a.Print(labels, func(w io.Writer) { fmt.Fprintf(w, "Task %d  %s: %s\n", id, t.Name, said(t)) })
}
