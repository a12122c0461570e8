package cli

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/api/client"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
	"github.com/wattmark/wattmark/store"
)

// completionTime bounds how long the completion of a value waits for a host or a database server.
const completionTime = 2 * time.Second

// recent is how many of the newest tasks completion offers.
const recent = 50

// enumerations are the flags whose usage lists all their values: "half, compute or memory".
var enumerations = map[string]bool{
	"benchmark": true, "carrier": true, "format": true, "method": true, "scheme": true, "estimator": true, "role": true,
	"machine": true, "meters": true, "slope": true,
	"field": true, "log-level": true, "quantity": true, "transport": true,
}

var (
	alternatives = regexp.MustCompile(`[a-z][a-z0-9-]*(?: \([a-z ]+\))?(?:, [a-z][a-z0-9-]*(?: \([a-z ]+\))?)*(?:,? or |, )[a-z][a-z0-9-]+`)
	alternative  = regexp.MustCompile(`(?:^|, (?:or )?| or )([a-z][a-z0-9-]*)`)
)

// valuesIn returns the values that the usage of a flag lists.
func valuesIn(usage string) []string {
	found := alternative.FindAllStringSubmatch(alternatives.FindString(usage), -1)
	return lists.Map(found, func(m []string) string { return m[1] })
}

// CompleteValues makes the shell complete the values of the flags of c and of all below it, and the numbers of
// tasks: by the name of a flag, by its type, and by TASK in the usage of a command. What a command completes
// itself stays.
func (a *App) CompleteValues(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if values := a.valuesOf(f); values != nil {
			if _, there := c.GetFlagCompletionFunc(f.Name); !there {
				_ = c.RegisterFlagCompletionFunc(f.Name, values) // fails for a flag that does not exist
			}
		}
	})
	if c.ValidArgsFunction == nil && c.ValidArgs == nil && strings.Contains(c.Use, "TASK") {
		c.ValidArgsFunction = a.ofTasks(taskChoice)
	}
	for _, sub := range c.Commands() {
		a.CompleteValues(sub)
	}
}

// valuesOf returns the completion of a flag; nil for that of files.
func (a *App) valuesOf(f *pflag.Flag) cobra.CompletionFunc {
	switch f.Name {
	case "instrument":
		names := lists.Map(registry.Kinds(), func(k registry.Kind) string {
			return cobra.CompletionWithDesc(k.Name, FirstLine(k.Summary))
		})
		return cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)
	case "context":
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if settings, err := config.OpenClient(""); err == nil {
				names = settings.Contexts()
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		}
	case "user":
		return a.inTime(func(ctx context.Context) []string {
			users, _ := a.Users(ctx) // an error: no values
			return lists.Map(users, func(u store.UserTasks) string { return u.User })
		})
	case "name":
		return a.ofTasks(func(t *store.Row) string { return t.Name })
	case "task":
		return a.ofTasks(taskChoice)
	}
	if enumerations[f.Name] {
		if values := valuesIn(f.Usage); len(values) > 1 {
			return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
		}
	}
	switch f.Value.Type() {
	case "duration":
		return withUnits("ms", "s", "m", "h")
	case "size":
		return withUnits("MB", "GB", "MiB", "GiB")
	}
	return nil
}

// withUnits completes a number by units.
func withUnits(units ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) (values []string, d cobra.ShellCompDirective) {
		if number := strings.TrimRight(begun, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"); number != "" {
			values = lists.Map(units, func(u string) string { return number + u })
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// taskChoice is a task's number, with name and day as its description.
func taskChoice(t *store.Row) string {
	return cobra.CompletionWithDesc(fmt.Sprint(t.ID), OneLine(t.Name)+", "+AtDay(t.Launched))
}

// ofTasks completes what text makes of the newest tasks, each once.
func (a *App) ofTasks(text func(*store.Row) string) cobra.CompletionFunc {
	return a.inTime(func(ctx context.Context) (values []string) {
		tasks, _ := a.List(ctx, store.Query{Limit: recent}) // an error: no values
		for i := range tasks {
			if v := text(&tasks[i]); v != "" {
				values = lists.AddNew(values, v)
			}
		}
		return values
	})
}

// Users lists the users of the database or the host.
func (a *App) Users(ctx context.Context) (out []store.UserTasks, err error) {
	if _, ok := a.OnHost(); ok {
		err = a.AskHost(ctx, func(c *client.Client) error {
			list, err := c.Users(ctx)
			for _, u := range list {
				out = append(out, store.UserTasks{User: u.Name, Tasks: u.Tasks})
			}
			return err
		})
		return out, err
	}
	return Reading(a, ctx, func(db *store.DB) ([]store.UserTasks, error) { return db.Users(ctx) })
}

// inTime completes what read returns: of a file when it is read, of another machine within completionTime, else
// nothing. read gets the database of flags, environment and client configuration; it may outlast the call.
func (a *App) inTime(read func(context.Context) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) (values []string, d cobra.ShellCompDirective) {
		if a.chooseHost(c.Flags()) != nil || a.configure(c) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := Trusting(c.Context(), &a.Trust)
		if _, onHost := a.OnHost(); onHost || store.OnServer(a.DB) {
			inTime, cancel := context.WithTimeout(ctx, completionTime)
			defer cancel()
			ctx = inTime
		}
		done := make(chan []string, 1)
		go func() { done <- read(ctx) }()
		select {
		case values = <-done:
		case <-ctx.Done():
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}
