package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/api/wire"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// HostFlag adds --host to a command that works on the database of a wattmark host too.
func (a *App) HostFlag(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&a.host, "host", "", "work on the task database of this wattmark host, host:port; as --db host://…")
	return c
}

// chooseHost sets --db to the host of --host, which has precedence over a configured database.
func (a *App) chooseHost(fl *pflag.FlagSet) error {
	if a.host == "" {
		return nil
	}
	if fl.Changed("db") {
		return Usagef("--db and --host: keep one of them")
	}
	return fl.Set("db", store.HostScheme+a.host)
}

// OnHost returns the address of the host that DB names, as in host://gpu-host:7552; false for a
// file and for PostgreSQL.
func (a *App) OnHost() (address string, ok bool) { return strings.CutPrefix(a.DB, store.HostScheme) }

// AskHost calls do with a connection to the host of DB. Errors of calls have the host's address and
// message, and an exit code.
func (a *App) AskHost(ctx context.Context, do func(*client.Client) error) error {
	address, _ := a.OnHost()
	c, err := DialTasks(ctx, address)
	if err != nil {
		return err
	}
	err = do(c)
	if s, ok := status.FromError(err); ok && err != nil && ctx.Err() == nil {
		plain, remedy := wire.Lost(s.Message(), "wattmark host")
		switch err = fmt.Errorf("%s: %s", address, s.Message()); s.Code() {
		case codes.NotFound:
			err = WithCode(ExitNotFound, err)
		case codes.DataLoss:
			err = WithCode(ExitDamaged, err)
		case codes.Unavailable:
			err = fmt.Errorf("%s: %s; %s", address, plain, remedy)
		case codes.Unimplemented:
			why := "its version of wattmark is older than this one's"
			if m := s.Message(); strings.Contains(m, "unknown service") || strings.Contains(m, "HTTP status") {
				why = "it is no wattmark host, which has port 7552"
			}
			err = fmt.Errorf("%w: %s", err, why)
		}
	}
	return errors.Join(err, c.Close())
}

// errHost refuses the host of DB for what wants a database itself.
func (a *App) errHost() error {
	return Usagef("%s is a wattmark host: this wants a SQLite file or a PostgreSQL database (--db); into a file "+
		"copies tasks: wattmark db copy --task N %s FILE.db", a.DB, a.DB)
}

// fetch returns a private copy of tasks of the host, which Close removes.
func (a *App) fetch(ctx context.Context, tasks []string) (*store.DB, error) {
	if len(tasks) == 0 {
		return nil, a.errHost()
	}
	var ids []int64
	for _, arg := range tasks {
		id, err := a.Number(ctx, arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, int64(id))
	}
	slices.Sort(ids)
	return store.OpenReceived(ctx, func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		err = a.AskHost(ctx, func(c *client.Client) error { return c.Fetch(ctx, slices.Compact(ids), f) })
		return errors.Join(err, f.Close())
	})
}

// Send stores tasks of a database at the host of DB, and returns their numbers there by those
// here. keepUsers keeps their users, where the caller is an operator.
func (a *App) Send(ctx context.Context, db *store.DB, keepUsers bool, ids ...store.TaskID,
) (out map[store.TaskID]client.Stored, err error) {
	dir, err := store.TempDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "tasks.db")
	if _, err := db.Detach(ctx, path, ids, nil); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out = map[store.TaskID]client.Stored{}
	err = a.AskHost(ctx, func(c *client.Client) error {
		stored, err := c.Store(ctx, f, keepUsers)
		for _, t := range stored {
			out[store.TaskID(t.FileTask)] = t
		}
		return err
	})
	for _, id := range ids {
		if _, ok := out[id]; !ok && err == nil {
			err = fmt.Errorf("%s did not store task %d", a.DB, id)
		}
	}
	return out, err
}

// List returns the tasks that a query selects, in its order, of a database or a host.
func (a *App) List(ctx context.Context, q store.Query) ([]store.Row, error) {
	if _, ok := a.OnHost(); ok {
		return a.listOf(ctx, q, 0)
	}
	return Reading(a, ctx, func(db *store.DB) ([]store.Row, error) { return db.Tasks(ctx, q) })
}

// listOf lists tasks of the host: those of a group, or with 0 of all.
func (a *App) listOf(ctx context.Context, q store.Query, group store.GroupID) (out []store.Row, err error) {
	limit := cmp.Or(q.Limit, 100)
	x := client.Query{
		User: q.User, Name: store.NamePattern(q.Name), Job: q.Job, Since: q.Since, Until: q.Until, Search: q.Search,
		Before: int64(q.Before), Group: int64(group), Page: limit,
		Order: client.Order(q.Order), Ascending: q.Ascending, // of one numbering
	}
	x.Tags, x.WithoutTags = TagTexts(q)
	for _, v := range q.Verdicts {
		x.Verdicts = append(x.Verdicts, client.Good+client.Verdict(v)) // in one order
	}
	err = a.AskHost(ctx, func(c *client.Client) error {
		for t, err := range c.Tasks(ctx, x) {
			if err != nil {
				return err
			}
			if out = append(out, RowOf(&t)); len(out) == limit {
				break
			}
		}
		return nil
	})
	return out, err
}

// TagTexts returns the tags of a query as a host takes them.
func TagTexts(q store.Query) (tags, without []string) {
	tags = lists.Map(slices.Sorted(maps.Keys(q.Tags)), func(k string) string { return tagText(k, q.Tags[k]) })
	without = lists.Map(q.Without, func(t store.Tag) string { return tagText(t.Key, t.Value) })
	return tags, without
}

// tagText writes a tag to select by: key=value, or the key alone for any value.
func tagText(key, value string) string {
	if value == "" {
		return key
	}
	return key + "=" + value
}

// RowOf returns a task of a host as a database lists it. A host's list is without driver,
// instrument, bench, calibration and clock.
func RowOf(t *client.Task) store.Row {
	b := store.Brief{
		ID: store.TaskID(t.ID), Name: t.Name, User: t.User, Job: t.Job, Launched: t.Launched, GPU: t.GPU,
		GPUUUID: t.GPUUUID, State: store.State(t.State), Reason: t.Reason, NVML: t.NVML, Scans: t.Stored,
		Group: store.GroupID(t.Group), Tags: t.Tags, Pinned: t.Pinned,
	}
	if w := t.Window; w != nil {
		b.Result = &measure.Result{
			From: w.From, To: max(w.To, w.From+w.Duration), Samples: w.Samples, Gaps: w.Gaps, Lost: w.Lost,
			Total: w.Energy, Mean: w.Mean, Peak: w.Peak,
		}
	}
	return store.Row{Brief: b}
}

// OpenGroup opens the database for reading a group of tasks. Of a host its tasks are fetched.
func (a *App) OpenGroup(ctx context.Context, group store.GroupID) (*store.DB, error) {
	if _, ok := a.OnHost(); !ok {
		return a.OpenDB(ctx)
	}
	list, err := a.listOf(ctx, store.Query{Limit: 1000}, group)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, NotFoundf("no group %d in %s: wattmark tasks shows the groups of tasks", group, a.DB)
	}
	return a.fetch(ctx, Numbers(list))
}

// Numbers returns the numbers of tasks as arguments.
func Numbers(list []store.Row) []string {
	return lists.Map(list, func(r store.Row) string { return fmt.Sprint(r.ID) })
}
