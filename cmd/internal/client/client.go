// Package client has the command config: the client configuration, for what does not change
// from call to call.
package client

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/config"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/store"
)

// Setting is the JSON of one setting, a database's without its password. Source is a variable, a file, or "default".
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Shown is the JSON of config. File is the one that config set writes.
type Shown struct {
	File     string    `json:"file"`
	Context  string    `json:"context,omitempty"`
	Contexts []string  `json:"contexts"`
	Settings []Setting `json:"settings"`
}

//go:embed help.md
var help string

// Commands returns the command config.
func Commands(a *cli.App) []*cobra.Command {
	c := a.JSONFlag(cli.Command("config", "Show and set what does not change from call to call",
		cobra.NoArgs, func(context.Context, []string) error { return show(a) }))
	keys := cobra.FixedCompletions(config.Keys(), cobra.ShellCompDirectiveNoFileComp)
	set := cli.Command("set KEY VALUE", "Set a value, in a context with --context", cobra.ExactArgs(2),
		func(_ context.Context, args []string) error { return change(a, args[0], args[1]) })
	unset := cli.Command("unset KEY", "Remove a value, from a context with --context", cobra.ExactArgs(1),
		func(_ context.Context, args []string) error { return change(a, args[0], "") })
	set.ValidArgsFunction, unset.ValidArgsFunction = keys, keys
	c.AddCommand(a.JSONFlag(set), a.JSONFlag(unset), a.JSONFlag(cli.Command("use [CONTEXT]",
		"Use a context from now on, or none", cobra.MaximumNArgs(1),
		func(_ context.Context, args []string) error { return use(a, strings.Join(args, "")) })))
	return cli.In(cli.And, help, c)
}

// show prints the settings in force.
func show(a *cli.App) error {
	c, err := config.OpenClient(a.Context)
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	file, err := config.UserFile()
	if err != nil {
		return err
	}
	s := Shown{File: file, Context: c.Context, Contexts: append([]string{}, c.Contexts()...)}
	defaults := map[string]string{"monitor": cli.DefaultMonitor, "host": cli.DefaultHost, "db": cli.DefaultDB}
	for _, key := range config.Keys() {
		if v, source := c.Value(key); source != "" {
			s.Settings = append(s.Settings, Setting{key, store.Conceal(v), source})
		} else if v := defaults[key]; v != "" {
			s.Settings = append(s.Settings, Setting{key, v, "default"})
		}
	}
	return a.Print(s, func(w io.Writer) {
		out.Table(w, out.Row{"Key", "Value", "From"}, s.Settings, func(s Setting) out.Row {
			return out.Row{s.Key, s.Value, s.Source}
		})
		if len(s.Contexts) > 0 {
			fmt.Fprintf(w, "Contexts: %s\n", strings.Join(s.Contexts, ", "))
		}
	})
}

// change sets a key in the user's file, or removes it where value is empty: of the context of
// --context, else of what holds in all.
func change(a *cli.App, key, value string) error {
	key = strings.ReplaceAll(key, "-", "_")
	if !slices.Contains(config.Keys(), key) {
		return cli.Usagef("no setting is named %q: there are %s", key, strings.Join(config.Keys(), ", "))
	}
	value, err := config.Typed(key, value)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return edit(a, func(f *config.ClientFile) error {
		s := &f.Settings
		if a.Context != "" {
			if f.Contexts[a.Context] == nil {
				f.Contexts[a.Context] = &config.Settings{}
			}
			s = f.Contexts[a.Context]
		}
		*s.Field(key) = value
		if a.Context != "" && *s == (config.Settings{}) {
			delete(f.Contexts, a.Context)
			if f.Context == a.Context {
				f.Context = ""
			}
		}
		return nil
	})
}

// use puts a context in use for later calls; empty for none.
func use(a *cli.App, name string) error {
	return edit(a, func(f *config.ClientFile) error {
		if name != "" {
			if _, err := config.OpenClient(name); err != nil {
				return cli.WithCode(cli.ExitUsage, err)
			}
		}
		f.Context = name
		return nil
	})
}

// edit reads the user's file, changes and replaces it; with --json it prints what is in force then.
func edit(a *cli.App, f func(*config.ClientFile) error) error {
	path, err := config.UserFile()
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if path == "none" {
		return cli.Usagef("WATTMARK_CONFIG is none: there is no file to write")
	}
	file, err := config.ReadClient(path)
	if err == nil {
		err = f(file)
	}
	if err == nil {
		err = file.Write()
	}
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("config: %w", err)
	}
	if err == nil && a.JSON {
		err = show(a)
	}
	return err
}
