// Package stored reads, lists and deletes stored analyses for the studies that keep some:
// counter models, predictions, and profiles of sensors. An analysis is JSON in the task
// database under a kind and a name, in versions from 1 on; NAME stands for the newest
// version, NAME@VERSION for one of them.
package stored

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/task"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// Kind is a kind of analyses with its words in messages.
type Kind struct {
	Kind   string // of store.Analysis
	Noun   string // such as model
	Family string // the command whose list, show and delete are of this kind
}

// Version parses NAME or NAME@VERSION; version 0 stands for the newest.
func Version(arg string) (name string, version int, err error) {
	name, text, given := strings.Cut(arg, "@")
	if given {
		version, err = strconv.Atoi(text)
	}
	if err != nil || given && version < 1 || name == "" {
		return "", 0, cli.Usagef("%q: write NAME, or NAME@2 for its second version", arg)
	}
	return name, version, nil
}

// Get reads NAME or NAME@VERSION. An unknown one has the exit code ExitNotFound.
func (k Kind) Get(a *cli.App, ctx context.Context, arg string) (*store.Analysis, error) {
	name, version, err := Version(arg)
	if err != nil {
		return nil, err
	}
	return cli.Reading(a, ctx, func(db *store.DB) (*store.Analysis, error) {
		x, err := db.Analysis(ctx, k.Kind, name, version)
		return x, k.missing(a, err, name, version)
	})
}

// missing replaces store.ErrNotFound by an error that names the command that lists the
// kind; other errors, and nil, pass.
func (k Kind) missing(a *cli.App, err error, name string, version int) error {
	if errors.Is(err, store.ErrNotFound) {
		arg := name
		if version > 0 {
			arg = fmt.Sprintf("%s@%d", name, version)
		}
		return cli.NotFoundf("no %s %q in %s: list them with wattmark %s list", k.Noun, arg, a.DB, k.Family)
	}
	return err
}

// All reads all versions of all names, in the order of store.DB.Analyses.
func (k Kind) All(a *cli.App, ctx context.Context) ([]store.Analysis, error) {
	return cli.Reading(a, ctx, func(db *store.DB) ([]store.Analysis, error) { return db.Analyses(ctx, k.Kind) })
}

// Keep stores content as JSON as the next version of name, and creates the database if it
// is absent. tasks are kept as references to what the analysis was made from.
func (k Kind) Keep(a *cli.App, ctx context.Context, name string, content any,
	tasks []store.TaskID,
) (store.Analysis, error) {
	db, err := store.Open(ctx, a.DB)
	if err != nil {
		return store.Analysis{}, err
	}
	defer db.Close()
	return k.Put(ctx, db, name, content, tasks)
}

// Put is Keep in an open database.
func (k Kind) Put(ctx context.Context, db *store.DB, name string, content any,
	tasks []store.TaskID,
) (x store.Analysis, err error) {
	x = store.Analysis{Kind: k.Kind, Name: name, Made: time.Now(), Maker: "wattmark " + cli.Version(), Tasks: tasks}
	if x.Content, err = json.Marshal(content); err == nil {
		x.Version, err = db.PutAnalysis(ctx, x)
	}
	return x, err
}

// ListCmd returns the command list: it reads all versions and prints them under a key in JSON, as a
// table in text, or as none of the database where there are none and none is not empty. One that
// cannot be read is reported on standard error and left out.
func ListCmd[T any](a *cli.App, k Kind, key, short string, read func(*store.Analysis) (T, error), none string,
	head out.Row, row func(T) out.Row,
) *cobra.Command {
	return task.ListCmd(a, "list", short, key, func(ctx context.Context) (list []T, err error) {
		all, err := k.All(a, ctx)
		for i := range all {
			if x, err := read(&all[i]); err != nil {
				fmt.Fprintln(a.Err, "wattmark:", err)
			} else {
				list = append(list, x)
			}
		}
		return list, err
	}, none, head, row)
}

// DeleteCmd returns the command delete NAME[@VERSION]: one version, or all of a name.
func (k Kind) DeleteCmd(a *cli.App, short string) *cobra.Command {
	var yes bool
	c := cli.Command("delete NAME[@VERSION]", short, cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		name, version, err := Version(args[0])
		if err != nil {
			return err
		}
		return k.Delete(a, ctx, name, version, yes)
	})
	task.YesFlag(c.Flags(), &yes)
	return a.JSONFlag(c)
}

// Delete deletes one version, or with version 0 all of them, after a confirmation that yes
// skips, and prints the number deleted. An unknown one has the exit code ExitNotFound, without
// a question.
func (k Kind) Delete(a *cli.App, ctx context.Context, name string, version int, yes bool) error {
	db, err := a.OpenToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Analysis(ctx, k.Kind, name, version); err != nil {
		return k.missing(a, err, name, version)
	}
	// The question names the versions that would be lost.
	which := map[bool]string{true: fmt.Sprintf("version %d", version), false: "all versions"}[version > 0]
	subject := fmt.Sprintf("%s of the %s %s of %s", which, k.Noun, measure.Printable(name), a.DB)
	if ok, err := task.Confirm(a, yes, subject); err != nil || !ok {
		return err
	}
	n, err := db.DeleteAnalysis(ctx, k.Kind, name, version)
	if err != nil {
		return err
	}
	return a.Print(map[string]any{"name": name, "deleted": n}, func(w io.Writer) {
		fmt.Fprintf(w, "Deleted %s of %s from %s\n", measure.Plural(n, "version"), measure.Printable(name), a.DB)
	})
}
