package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"wattmark/store"
)

// labelFlags are what a run is labelled with.
type labelFlags struct {
	words  []string
	tags   map[string]string
	note   string
	redact bool
}

func (f *labelFlags) register(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.words, "tag", nil, "label the task: key=value (repeatable)")
	fl.StringVar(&f.note, "note", "", "a remark on the task")
	fl.BoolVar(&f.redact, "redact", false, "of the program's command line, keep only its name")
}

// check reads the tags before anything is measured.
func (f *labelFlags) check() (err error) {
	f.tags, err = parseTags(f.words, false)
	return err
}

// parseTags reads key=value words; alone allows a key without a value, which
// stands for any.
func parseTags(words []string, alone bool) (map[string]string, error) {
	out := map[string]string{}
	for _, w := range words {
		k, v, some := strings.Cut(w, "=")
		if !some && !alone || some && v == "" {
			return nil, withCode(exitUsage, fmt.Errorf("tag %q: write key=value", w))
		}
		if _, twice := out[k]; twice {
			return nil, withCode(exitUsage, fmt.Errorf("tag %s is given twice", k))
		}
		out[k] = v
	}
	if err := store.CheckTags(out); err != nil {
		return nil, withCode(exitUsage, err)
	}
	return out, nil
}

func (a *app) tagCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "tag TASK key=value… | -key…", Short: "Set tags of a task, or remove them with a minus before the key",
		Example:            "  wattmark tag 42 cooler=water node=a3\n  wattmark tag 42 -cooler\n  wattmark tasks --tag cooler=water",
		DisableFlagParsing: true, // -key is a word here
		RunE: func(cmd *cobra.Command, args []string) error {
			words, help, err := a.flagsByHand(args)
			if help {
				return cmd.Help()
			}
			if err == nil && len(words) < 2 {
				err = errors.New("name a task and its tags")
			}
			if err != nil {
				return withCode(exitUsage, fmt.Errorf("%w\nSee: %s --help", err, cmd.CommandPath()))
			}
			return a.tag(cmd.Context(), words[0], words[1:])
		},
	}
	return a.jsonFlag(c)
}

// flagsByHand takes --db and --json out of the words of a command to which
// -key is no flag.
func (a *app) flagsByHand(args []string) (words []string, help bool, err error) {
	for i := 0; i < len(args); i++ {
		switch w := args[i]; {
		case w == "--help" || w == "-h" && len(words) == 0:
			return nil, true, nil
		case w == "--json":
			a.json = true
		case strings.HasPrefix(w, "--db="):
			a.db = strings.TrimPrefix(w, "--db=")
		case w == "--db" && i+1 < len(args):
			i++
			a.db = args[i]
		case strings.HasPrefix(w, "--"):
			return nil, false, fmt.Errorf("unknown flag %s", w)
		default:
			words = append(words, w)
		}
	}
	return words, false, nil
}

func (a *app) tag(ctx context.Context, task string, words []string) error {
	id, err := taskID(task)
	if err != nil {
		return err
	}
	var set, remove []string
	for _, w := range words {
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
	return a.relabel(ctx, id, func(db *store.DB) error { return db.SetTags(ctx, id, tags, remove) })
}

func (a *app) noteCmd() *cobra.Command {
	var remove int
	c := &cobra.Command{
		Use: "note TASK TEXT | TASK --remove N", Short: "Add a remark to a task, or remove one", Args: cobra.MinimumNArgs(1),
		Example: "  wattmark note 42 'fan was at 40 %'\n  wattmark note 42 --remove 1\n  wattmark tasks --search fan",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (remove > 0) == (len(args) > 1) {
				return withCode(exitUsage, errors.New("give the remark's text, or --remove with the number of one"))
			}
			id, err := taskID(args[0])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			return a.relabel(ctx, id, func(db *store.DB) error {
				if remove > 0 {
					return db.RemoveNote(ctx, id, remove)
				}
				_, err := db.AddNote(ctx, id, time.Now(), strings.Join(args[1:], " "))
				return err
			})
		},
	}
	c.Flags().IntVar(&remove, "remove", 0, "number of the remark to remove, as wattmark show counts them")
	return a.jsonFlag(c)
}

func (a *app) pinCmd(pin bool) *cobra.Command {
	use, short := "pin TASK", "Keep a task from retention (wattmark db retain)"
	if !pin {
		use, short = "unpin TASK", "Give a task back to retention"
	}
	return a.jsonFlag(&cobra.Command{
		Use: use, Short: short, Args: oneTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := taskID(args[0])
			if err != nil {
				return err
			}
			return a.relabel(cmd.Context(), id, func(db *store.DB) error { return db.Pin(cmd.Context(), id, pin) })
		},
	})
}

// relabel changes a task's labels and shows what they are now.
func (a *app) relabel(ctx context.Context, id store.TaskID, change func(*store.DB) error) error {
	db, err := a.openToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := a.task(ctx, db, fmt.Sprint(id)); err != nil {
		return err
	}
	if err := change(db); err != nil {
		return err
	}
	t, err := a.task(ctx, db, fmt.Sprint(id))
	if err != nil {
		return err
	}
	r := &report{listedReport: listedReport{TaskID: int64(id), Name: t.Name, User: t.User}}
	r.addLabels(t)
	if a.json {
		return a.printJSON(struct {
			TaskID int64             `json:"task_id"`
			Tags   map[string]string `json:"tags"`
			Notes  []noteReport      `json:"notes"`
			Pinned bool              `json:"pinned"`
		}{r.TaskID, r.Tags, append([]noteReport{}, r.Notes...), r.Pinned})
	}
	fmt.Fprintf(a.out, "Task %d  %s, by %s\n", id, r.Name, r.User)
	renderLabels(a.out, r)
	return nil
}

type noteReport struct {
	Number int       `json:"number"`
	At     time.Time `json:"at"`
	Text   string    `json:"text"`
}

func (r *report) addLabels(t *store.Task) {
	r.Tags, r.Pinned = t.Tags, t.Pinned
	for _, n := range t.Notes {
		r.Notes = append(r.Notes, noteReport(n))
	}
	r.Provenance = newProvenanceReport(t.Provenance)
}

func renderLabels(w io.Writer, r *report) {
	if len(r.Tags) > 0 {
		var words []string
		for _, k := range slices.Sorted(maps.Keys(r.Tags)) {
			words = append(words, k+"="+r.Tags[k])
		}
		fmt.Fprintf(w, "  tags     %s\n", strings.Join(words, ", "))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  note %-3d %s  (%s)\n", n.Number, n.Text, n.At.Local().Format("2006-01-02 15:04"))
	}
	if r.Pinned {
		fmt.Fprintln(w, "  pinned   retention leaves it")
	}
	if r.Cold {
		fmt.Fprintf(w, "  packed   other programs need wattmark db expand %d first\n", r.TaskID)
	}
	r.Provenance.render(w)
}
