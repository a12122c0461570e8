package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"wattmark/measure"
	"wattmark/store"
	"wattmark/store/exchange"
	"wattmark/store/exchange/arrowfile"
	"wattmark/store/exchange/chrome"
	"wattmark/store/exchange/csvfile"
	"wattmark/store/exchange/parquetfile"
	"wattmark/store/exchange/perfetto"
	"wattmark/store/exchange/sqlitefile"
)

// choice is what the flags want of a task.
func (f *exportFlags) choice(ctx context.Context, db *store.DB, t *store.Task) (exchange.Choice, error) {
	c := exchange.Choice{Raw: f.raw, Rails: f.rails, HostTime: f.hostTime}
	if t.Scans == 0 {
		return c, fmt.Errorf("task %d has no samples: there is nothing to export", t.ID)
	}
	// A trace shows the window as a slice, and the markers around it.
	trace := f.format == "perfetto" || f.format == "chrome"
	if r := t.Result; r != nil && !f.all && !trace {
		c.Window = &measure.Window{From: r.From, To: r.To}
	}
	if !f.fromGiven && !f.toGiven {
		return c, nil
	}
	var w measure.Window
	if c.Window != nil {
		w = *c.Window
	} else {
		from, to, err := db.Extent(ctx, t.ID)
		if err != nil {
			return c, err
		}
		w = measure.Window{From: from, To: to}
	}
	whole := w
	if f.fromGiven {
		w.From = max(w.From, seconds(f.from))
	}
	if f.toGiven {
		w.To = min(w.To, seconds(f.to))
	}
	if w.From >= w.To {
		return c, withCode(exitUsage, fmt.Errorf("task %d has nothing between --from and --to: its window runs from %v to %v of device time (--all reaches beyond it)", t.ID, whole.From, whole.To))
	}
	c.Window = &w
	return c, nil
}

// madeBy names this program in what it writes.
func madeBy() string { return "wattmark " + version() }

// tableOf makes a task's table, with what the calibration's records say.
func tableOf(ctx context.Context, db *store.DB, t *store.Task, f exportFlags) (*exchange.Table, error) {
	c, err := f.choice(ctx, db, t)
	if err != nil {
		return nil, err
	}
	tab, err := exchange.NewTable(ctx, db, t, madeBy(), c)
	if err != nil {
		return nil, noRail(err)
	}
	for _, r := range newRecordReports(&t.Setup) {
		tab.Meta.Notes = append(tab.Meta.Notes, r.text)
	}
	return tab, nil
}

// noRail gives a rail that does not exist its exit code.
func noRail(err error) error {
	if errors.Is(err, exchange.ErrNoRail) {
		return withCode(exitUsage, err)
	}
	return err
}

func exportTable(ctx context.Context, w io.Writer, db *store.DB, t *store.Task, f exportFlags) error {
	tab, err := tableOf(ctx, db, t, f)
	if err != nil {
		return err
	}
	switch f.format {
	case "parquet":
		return parquetfile.Write(w, tab)
	case "arrow":
		return arrowfile.WriteFile(w, tab)
	case "arrow-stream":
		return arrowfile.WriteStream(w, tab)
	}
	return csvfile.Write(w, tab)
}

func exportSQLite(ctx context.Context, path string, db *store.DB, tasks []*store.Task, f exportFlags) error {
	return writeWhole(path, func(part string) (err error) {
		out, err := sqlitefile.Create(ctx, part)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
		for _, t := range tasks {
			tab, err := tableOf(ctx, db, t, f)
			if err == nil {
				err = out.Add(ctx, tab)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// exportTimelines writes tasks as one trace. All are looked at before the first
// byte is written, so that a task that cannot be exported leaves nothing.
func exportTimelines(ctx context.Context, w io.Writer, db *store.DB, tasks []*store.Task, f exportFlags) error {
	var lines []*exchange.Timeline
	for _, t := range tasks {
		c, err := f.choice(ctx, db, t)
		if err != nil {
			return err
		}
		l, err := exchange.NewTimeline(ctx, db, t, madeBy(), c, readable)
		if err != nil {
			return noRail(err)
		}
		lines = append(lines, l)
	}
	type writer interface {
		Add(*exchange.Timeline) error
		Close() error
	}
	var out writer = perfetto.New(w)
	if f.format == "chrome" {
		base := lines[0].Begin() // viewers drop what lies before
		for _, l := range lines {
			base = min(base, l.Begin())
		}
		out = chrome.New(w, base)
	}
	for _, l := range lines {
		if err := out.Add(l); err != nil {
			return err
		}
	}
	return out.Close()
}
