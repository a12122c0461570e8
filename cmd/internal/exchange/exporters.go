package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/wattmark/wattmark/api"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/chunk"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/replay"
	"github.com/wattmark/wattmark/store"
	"github.com/wattmark/wattmark/store/exchange"
	"github.com/wattmark/wattmark/store/exchange/arrowfile"
	"github.com/wattmark/wattmark/store/exchange/csvfile"
	"github.com/wattmark/wattmark/store/exchange/parquetfile"
	"github.com/wattmark/wattmark/store/exchange/perfetto"
	"github.com/wattmark/wattmark/store/exchange/sqlitefile"
)

// HostSide is the host's part of a recording (host.json): the marker, the times at which
// its chips were played, and the kernels. With the meter's part it suffices to find the
// markers and the window again. Started is the monitor's clock at device time zero; all
// times are UTC.
type HostSide struct {
	Task    string         `json:"task"`
	GPU     string         `json:"gpu"`
	Driver  string         `json:"driver"`
	Started time.Time      `json:"started"` // monitor's clock at device time zero
	Marker  markerJSON     `json:"marker"`
	Played  []store.Played `json:"played"`
	Kernels []store.Kernel `json:"kernels"`
}

// markerJSON is a marker.Spec; chip_s is the length of a chip in seconds.
type markerJSON struct {
	Code    marker.Code     `json:"code"`
	Chip    measure.Seconds `json:"chip_s"`
	Guard   int             `json:"guard_chips"`
	TagBits int             `json:"tag_bits"`
	Tag     uint32          `json:"tag"`
}

// HostFile is the name of the host's part in a recording's folder.
const HostFile = "host.json"

// counted is a database whose chunks count on a progress line.
type counted struct {
	*store.DB
	bar       *cli.Progress
	read, all int // samples
}

// newCounted begins to show the progress of what, which reads the samples of tasks.
func newCounted(a *cli.App, db *store.DB, what string, tasks []*store.Task) *counted {
	c := &counted{DB: db, bar: a.Progress(what)}
	for _, t := range tasks {
		c.all += int(t.Scans)
	}
	return c
}

func (c *counted) Chunks(ctx context.Context, id store.TaskID, from uint64) iter.Seq2[*chunk.Chunk, error] {
	return func(yield func(*chunk.Chunk, error) bool) {
		for x, err := range c.DB.Chunks(ctx, id, from) {
			if err == nil {
				c.read += x.Scans
				c.bar.Set(c.read, c.all)
			}
			if !yield(x, err) {
				return
			}
		}
	}
}

// recordInto writes the meter's part: events first, then all blocks of samples.
func recordInto(ctx context.Context, dir string, db *counted, t *store.Task) (err error) {
	in := instrument.Inputs{Timebase: t.Setup.Timebase, Response: t.Setup.Response, Channels: t.Setup.Channels}
	w, err := replay.Create(dir, instrument.Identity(t.Instrument), in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, e := range t.Events {
		if err := w.Event(e); err != nil {
			return err
		}
	}
	for b, err := range chunk.DecodeAll(db.Chunks(ctx, t.ID, 0), &t.Setup) {
		if err == nil {
			err = w.Block(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func writeHostSide(ctx context.Context, dir string, db *store.DB, t *store.Task) error {
	played, err := db.Played(ctx, t.ID)
	if err != nil {
		return err
	}
	kernels, err := db.Kernels(ctx, t.ID)
	if err != nil {
		return err
	}
	h := HostSide{
		Task: t.Name, GPU: t.GPU, Driver: t.Driver, Started: t.Started.UTC(), Marker: markerJSON(t.Marker), Played: played,
		Kernels: kernels,
	}
	if err := writeJSON(filepath.Join(dir, HostFile), h, 0o644); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

func writeJSON(path string, v any, mode os.FileMode) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), mode)
}

// choice converts the flags for one task: rails, raw counts, and the span of device time.
// Without --all the span is the window of the result; --from and --to cut it further. A nil
// Window selects all samples. It fails where no sample is left.
func (f *exportFlags) choice(ctx context.Context, db *store.DB, t *store.Task) (exchange.Choice, error) {
	c := exchange.Choice{Raw: f.raw, Rails: f.rails, HostTime: f.hostTime}
	if t.Scans == 0 {
		return c, fmt.Errorf("task %d has no samples: there is nothing to export", t.ID)
	}
	// A trace shows the window as a slice, and the markers around it.
	if r := t.Result; r != nil && !f.all && f.format != "perfetto" {
		c.Window = &measure.Window{From: r.From, To: r.To}
	}
	if !f.fromGiven && !f.toGiven {
		return c, nil
	}
	if c.Window == nil {
		from, to, err := db.Extent(ctx, t.ID)
		if err != nil {
			return c, err
		}
		c.Window = &measure.Window{From: from, To: to}
	}
	w := *c.Window
	if f.fromGiven {
		w.From = max(w.From, measure.SecondsOf(f.from))
	}
	if f.toGiven {
		w.To = min(w.To, measure.SecondsOf(f.to))
	}
	if w.From >= w.To {
		return c, cli.Usagef("task %d has nothing between --from and --to: its window "+
			"runs from %v to %v of device time (--all reaches beyond it)", t.ID, c.Window.From, c.Window.To)
	}
	c.Window = &w
	return c, nil
}

// madeBy returns this program's name and version, for the metadata of files.
func madeBy() string { return "wattmark " + cli.Version() }

// tableOf returns a task's table for the column formats, with the texts of its calibration
// records as notes. Rows are read as the table is written, so its size is not bounded by
// memory; db must stay open until then.
func tableOf(ctx context.Context, db *counted, t *store.Task, f exportFlags) (*exchange.Table, error) {
	c, err := f.choice(ctx, db.DB, t)
	if err != nil {
		return nil, err
	}
	tab, err := exchange.NewTable(ctx, db, t, madeBy(), c)
	if err != nil {
		return nil, noRail(err)
	}
	for _, r := range report.NewRecordReports(&t.Setup) {
		tab.Meta.Notes = append(tab.Meta.Notes, r.Text)
	}
	return tab, nil
}

// noRail adds ExitUsage to the error about an unknown --rail; others pass unchanged.
func noRail(err error) error {
	if errors.Is(err, exchange.ErrNoRail) {
		return cli.WithCode(cli.ExitUsage, err)
	}
	return err
}

func exportTable(ctx context.Context, w io.Writer, db *counted, t *store.Task, f exportFlags) error {
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

// Streamed are the formats that Stream writes.
var Streamed = []string{"csv", "parquet", "arrow", "perfetto"}

// Stream writes one task in one of the formats of Streamed, as export does: a zero span is the
// window of the result, of traces all that is stored.
func Stream(ctx context.Context, w io.Writer, db *store.DB, t *store.Task, format string, span measure.Window) error {
	f := exportFlags{format: format}
	if span != (measure.Window{}) {
		f.all, f.fromGiven, f.toGiven = true, true, true
		f.from, f.to = span.From.Duration(), span.To.Duration()
	}
	from := &counted{DB: db}
	if format == "perfetto" {
		return exportTimelines(ctx, w, from, []*store.Task{t}, f)
	}
	return exportTable(ctx, w, from, t, f)
}

// exportSQLite writes tasks into a new SQLite file, which appears whole or not at all.
func exportSQLite(ctx context.Context, path string, db *counted, tasks []*store.Task, f exportFlags) error {
	return cli.WriteWhole(path, func(part string) (err error) {
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

// exportTimelines writes tasks as one Perfetto trace. It reads all timelines
// before it writes the first byte, so that a task that cannot be exported leaves no partial
// file.
func exportTimelines(ctx context.Context, w io.Writer, db *counted, tasks []*store.Task, f exportFlags) error {
	var lines []*exchange.Timeline
	for _, t := range tasks {
		c, err := f.choice(ctx, db.DB, t)
		if err != nil {
			return err
		}
		l, err := exchange.NewTimeline(ctx, db, t, madeBy(), c, api.Readable)
		if err != nil {
			return noRail(err)
		}
		lines = append(lines, l)
	}
	out := perfetto.New(w)
	for _, l := range lines {
		if err := out.Add(l); err != nil {
			return err
		}
	}
	return out.Close()
}
