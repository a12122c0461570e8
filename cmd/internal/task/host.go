package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// fetchTo writes tasks of a host into a new file.
func fetchTo(ctx context.Context, c *client.Client, path string, tasks []store.Brief) error {
	var ids []int64
	for i := range tasks {
		if tasks[i].State == store.Running {
			return fmt.Errorf("task %d still runs", tasks[i].ID)
		}
		ids = append(ids, int64(tasks[i].ID))
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(c.Fetch(ctx, ids, out), out.Close())
}

// deleteOnHost deletes the selected tasks of a host after a confirmation. Numbers are all looked
// up before the first is deleted; what is refused later ends the call, and is reported with the
// number of those deleted before.
func deleteOnHost(ctx context.Context, a *cli.App, c *client.Client, ids []store.TaskID, f deleteFlags) error {
	var chosen selection
	for _, id := range ids {
		d, err := c.Task(ctx, int64(id))
		if err != nil {
			return err
		}
		chosen.add(cli.RowOf(&d.Task).Brief, f)
	}
	if len(ids) > 0 && len(chosen.stay) > 0 {
		return errPinned(chosen.stay)
	}
	if len(ids) == 0 {
		for t, err := range c.Tasks(ctx, client.Query{User: f.user, Name: store.NamePattern(f.name)}) {
			if err != nil {
				return err
			}
			chosen.add(cli.RowOf(&t).Brief, f)
		}
	}
	remove := c.Delete
	if f.force {
		remove = c.DeletePinned
	}
	goes := chosen.goes
	return deletion(a, chosen, f, func(path string) error { return fetchTo(ctx, c, path, goes) }, func() error {
		for i := range goes {
			if err := remove(ctx, int64(goes[i].ID)); err != nil {
				if i > 0 {
					fmt.Fprintf(a.Err, "wattmark: %d of %s were deleted\n", i, measure.Plural(len(goes), "task"))
				}
				return err
			}
		}
		return nil
	})
}

// Watched is the JSON of one line of tasks --watch.
type Watched struct {
	Event string               `json:"event"` // watching, added, changed, deleted or list_anew
	Task  *report.ListedReport `json:"task,omitempty"`
}

// watchTasks prints a line for each change of the tasks of a host, until ctx ends.
func watchTasks(ctx context.Context, a *cli.App, q store.Query) error {
	if _, ok := a.OnHost(); !ok {
		return cli.Usagef("--watch follows the tasks of a wattmark host: name it with --host")
	}
	if q.Search != "" || !q.Since.IsZero() || !q.Until.IsZero() || q.Before != 0 {
		return cli.Usagef("--watch selects by --user, --name, --job, --tag and --without-tag alone")
	}
	w := client.Watch{User: q.User, Name: store.NamePattern(q.Name), Job: q.Job}
	w.Tags, w.WithoutTags = cli.TagTexts(q)
	return a.AskHost(ctx, func(c *client.Client) error {
		for e, err := range c.Watch(ctx, w) {
			if err != nil {
				return err
			}
			if err := printEvent(a, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// printEvent prints one change, as a JSON object on a line or as text.
func printEvent(a *cli.App, e client.Event) error {
	x := Watched{Event: client.Word(e.Kind)}
	var row store.Row
	if e.Task != nil {
		row = cli.RowOf(e.Task)
		x.Task = new(report.NewListedReport(&row, a.DB))
	}
	if a.JSON {
		return json.NewEncoder(cli.Raw(a.Out)).Encode(x)
	}
	line := fmt.Sprintf("%s  %-9s", time.Now().Format(time.TimeOnly), x.Event)
	if e.Kind == client.Deleted {
		line += fmt.Sprintf("  task %d", row.ID)
	} else if e.Task != nil {
		line += fmt.Sprintf("  task %d  %s, by %s: %s", row.ID, row.Name, row.User, row.State)
		if f := row.Result; f != nil {
			line += ", " + out.Energy(f.Total)
		}
	}
	_, err := fmt.Fprintln(a.Out, line)
	return err
}
