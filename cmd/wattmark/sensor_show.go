package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"wattmark/analysis/sensor"
	"wattmark/store"
)

// storedProfile is a profile as it is kept.
type storedProfile struct {
	Name    string         `json:"name"`
	Version int            `json:"version"`
	Made    time.Time      `json:"made"`
	Maker   string         `json:"maker"`
	Tasks   []store.TaskID `json:"tasks,omitempty"`
	sensor.Profile
}

func newStoredProfile(s *store.Analysis) (*storedProfile, error) {
	x := &storedProfile{Name: s.Name, Version: s.Version, Made: s.Made, Maker: s.Maker, Tasks: s.Tasks}
	if err := json.Unmarshal(s.Content, &x.Profile); err != nil {
		return nil, fmt.Errorf("profile %q, version %d: %w: delete it with wattmark sensor delete", s.Name, s.Version, err)
	}
	if err := x.Profile.Validate(); err != nil {
		return nil, fmt.Errorf("profile %q, version %d: %w", s.Name, s.Version, err)
	}
	return x, nil
}

// findProfile reads a profile by GPU and field; of the GPU's UUID the beginning is
// enough where only one fits. version 0 is the newest.
func (a *app) findProfile(ctx context.Context, db *store.DB, gpu, field string, version int) (*storedProfile, error) {
	all, err := db.Analyses(ctx, sensor.Kind)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, s := range all {
		if uuid, f, ok := cutLast(s.Name, " "); ok && f == field && (strings.HasPrefix(uuid, gpu) || strings.HasPrefix(uuid, "GPU-"+gpu)) {
			names[s.Name] = true
		}
	}
	switch len(names) {
	case 0:
		return nil, withCode(exitNotFound, fmt.Errorf("no profile of the %s field of a GPU %q in %s: see wattmark sensor list, or make one with wattmark sensor load", field, gpu, a.db))
	case 1:
	default:
		return nil, withCode(exitUsage, fmt.Errorf("%d GPUs fit %q: write more of the UUID", len(names), gpu))
	}
	for name := range names {
		s, err := db.Analysis(ctx, sensor.Kind, name, version)
		if errors.Is(err, store.ErrNotFound) {
			return nil, withCode(exitNotFound, fmt.Errorf("%q has no version %d: see wattmark sensor list", name, version))
		}
		if err != nil {
			return nil, err
		}
		return newStoredProfile(s)
	}
	return nil, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (a *app) sensorShowCmd() *cobra.Command {
	var version int
	c := &cobra.Command{
		Use: "show GPU FIELD", Short: "Show a stored profile of a GPU's sensor", Args: cobra.ExactArgs(2),
		Example: "  wattmark sensor show GPU-8f1d instant",
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			p, err := a.findProfile(cmd.Context(), db, args[0], args[1], version)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(p)
			}
			renderProfile(a.out, &p.Profile)
			fmt.Fprintf(a.out, "  stored   version %d, %s, by %s\n", p.Version, p.Made.Local().Format(time.DateTime), p.Maker)
			return nil
		},
	}
	c.Flags().IntVar(&version, "version", 0, "version (default: the newest)")
	return a.jsonFlag(c)
}

func (a *app) sensorListCmd() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "list", Short: "List the stored profiles of sensors", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sensorList(cmd.Context()) },
	})
}

func (a *app) sensorList(ctx context.Context) error {
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	all, err := db.Analyses(ctx, sensor.Kind)
	if err != nil {
		return err
	}
	out := struct {
		Profiles []*storedProfile `json:"profiles"`
	}{[]*storedProfile{}}
	for i := range all {
		p, err := newStoredProfile(&all[i])
		if err != nil {
			return err
		}
		p.Evidence = nil // show tells it
		out.Profiles = append(out.Profiles, p)
	}
	if a.json {
		return a.printJSON(out)
	}
	t := newTable(a.out)
	t.AppendHeader(table.Row{"GPU", "field", "version", "made", "period", "model", "constant", "sees"})
	for _, p := range out.Profiles {
		constant := p.Window
		if p.Model == sensor.FirstOrder {
			constant = p.Tau
		}
		t.AppendRow(table.Row{joinNonEmpty(" ", p.GPU, p.UUID), p.Field, p.Version, p.Made.Local().Format(time.DateTime), p.Period, p.Model, constant, shareText(p.Seen, 0)})
	}
	t.Render()
	return nil
}

func (a *app) sensorDeleteCmd() *cobra.Command {
	var version int
	var all, yes bool
	c := &cobra.Command{
		Use: "delete GPU FIELD", Short: "Delete a stored profile, one version or all", Args: cobra.ExactArgs(2),
		Example: "  wattmark sensor delete GPU-8f1d instant --version 2\n  wattmark sensor delete GPU-8f1d instant --all --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (version > 0) == all {
				return withCode(exitUsage, errors.New("say which: --version N or --all"))
			}
			db, err := a.openToChange(cmd.Context())
			if err != nil {
				return err
			}
			defer db.Close()
			p, err := a.findProfile(cmd.Context(), db, args[0], args[1], version)
			if err != nil {
				return err
			}
			n, err := a.deleteAnalysis(cmd.Context(), db, sensor.Kind, "profile", p.Name, version, yes)
			if err != nil || n == 0 {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"name": p.Name, "deleted": n})
			}
			fmt.Fprintf(a.out, "deleted %d of %s\n", n, p.Name)
			return nil
		},
	}
	c.Flags().IntVar(&version, "version", 0, "version to delete")
	c.Flags().BoolVar(&all, "all", false, "delete all versions")
	yesFlag(c.Flags(), &yes)
	return a.jsonFlag(c)
}
