package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"wattmark/hostagent/monitorclient"
	"wattmark/measure"
	"wattmark/measure/calib"
	"wattmark/store"
)

func (a *app) calibrateShowCmd() *cobra.Command {
	var f calibrateFlags
	var task string
	c := &cobra.Command{
		Use: "show", Short: "Show the calibration in force, and its history", Args: cobra.NoArgs,
		Long: `Show the records of a folder: the newest of each channel, which is in force where
the instrument and the bench file still say what they said then, and all of them
by date. --monitor asks a monitor what it really follows, and what it does not and
why. --task shows the records that a task's results follow, out of the database.`,
		Example: "  wattmark calibrate show --bench bench.yaml\n  wattmark calibrate show --monitor 127.0.0.1:7551\n  wattmark calibrate show --task 42",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			switch {
			case task != "":
				return a.showTaskRecords(ctx, task)
			case f.monitor != "":
				return a.showMonitorRecords(ctx, f.monitor)
			}
			folder := f.bench.folder()
			if folder == "" {
				return withCode(exitUsage, errors.New("say whose calibration: --bench FILE, --calibration DIR, --monitor ADDRESS or --task N"))
			}
			h, err := folder.Load()
			if err != nil {
				return err
			}
			if !a.json {
				fmt.Fprintf(a.out, "%d record(s) in %s\n", len(h), folder)
			}
			return a.showHistory(h)
		},
	}
	f.where(c)
	c.Flags().StringVar(&task, "task", "", "the records of a task in the database")
	return a.jsonFlag(c)
}

// showHistory shows records: in force by channel, then all by date.
func (a *app) showHistory(h calib.History) error {
	if a.json {
		return a.printJSON(map[string]any{"records": append(calib.History{}, h...)})
	}
	if len(h) == 0 {
		fmt.Fprintln(a.out, "No records: the instrument's and the bench file's own scale is in force.")
		return nil
	}
	fmt.Fprintln(a.out)
	t := newTable(a.out)
	t.AppendHeader([]any{"in force", "record", "of", "by", "gain (a count)", "u, relative", "zero (at count 0)", "u of zero"})
	all := named(h)
	for _, n := range all {
		name := n.name
		r := h.InForce(n.of, name)
		if r == nil {
			continue
		}
		shown := name
		if all[0].of != all[len(all)-1].of { // of several instruments
			shown += " of " + n.of.String()
		}
		row := []any{measure.Printable(shown), r.ID, atDay(r.At) + expired(r), measure.Printable(r.By)}
		for _, c := range r.Channels {
			if c.Name == name {
				s := c.Scale
				row = append(row, fmt.Sprintf("%.7g %s", s.Gain, c.Unit), fmt.Sprintf("%.2g %%", 100*s.UGain), fmt.Sprintf("%.6g %s", s.Offset, c.Unit), fmt.Sprintf("%.2g %s", s.UOffset, c.Unit))
			}
		}
		for _, x := range r.Rails {
			if x.Name == name {
				row = append(row, fmt.Sprintf("%.6g Ω", x.Ohm), fmt.Sprintf("%.2g %%", 100*x.URel))
			}
		}
		t.AppendRow(row)
	}
	t.Render()
	fmt.Fprintln(a.out, "\nHistory:")
	for _, r := range h {
		fmt.Fprintf(a.out, "  %s  %s  %s\n", r.At.Local().Format("2006-01-02 15:04"), r.ID, recordText(&r))
	}
	return nil
}

// subject is a channel or a rail of a device.
type subject struct {
	of   calib.Instrument
	name string
}

// named are all channels and rails that records name, by device and name.
func named(h calib.History) (all []subject) {
	for _, r := range h {
		for _, c := range r.Channels {
			all = append(all, subject{r.Instrument, c.Name})
		}
		for _, x := range r.Rails {
			all = append(all, subject{r.Instrument, x.Name})
		}
	}
	slices.SortFunc(all, func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.of.Kind, b.of.Kind), cmp.Compare(a.of.Serial, b.of.Serial), cmp.Compare(a.name, b.name))
	})
	return slices.Compact(all)
}

func expired(r *calib.Record) string {
	if !r.ValidUntil.IsZero() && time.Now().After(r.ValidUntil) {
		return " (expired " + atDay(r.ValidUntil) + ")"
	}
	return ""
}

// recordText says in a line what a record is.
func recordText(r *calib.Record) string {
	var on []string
	for _, c := range r.Channels {
		on = append(on, c.Name)
	}
	for _, x := range r.Rails {
		on = append(on, x.Name)
	}
	text := string(r.Done)
	if len(on) > 0 {
		text += " of " + strings.Join(on, ", ")
	}
	text += ", by " + r.By
	if r.Conditions.Reference != "" {
		text += ", against " + r.Conditions.Reference
	}
	if t := r.Conditions.TemperatureC; t != nil {
		text += fmt.Sprintf(", at %g °C", *t)
	}
	if !r.ValidUntil.IsZero() {
		text += ", valid until " + atDay(r.ValidUntil)
	}
	if r.Remark != "" {
		text += ": " + r.Remark
	}
	return measure.Printable(text)
}

func (a *app) showMonitorRecords(ctx context.Context, address string) error {
	client, err := dialMeter(ctx, address, monitorclient.Options{Version: version()})
	if err != nil {
		return err
	}
	b, err := client.GetBench(ctx)
	if err = errors.Join(err, client.Close()); err != nil {
		return err
	}
	if len(b.Setup.Channels) == 0 {
		return errors.New(b.Trouble)
	}
	h, err := calib.HistoryOf(&b.Setup)
	if err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintf(a.out, "Bench %s, %s %s, calibration %s\n", b.Name, b.Instrument.Model, b.Instrument.Serial, b.CalibrationID)
		for _, n := range b.Notes {
			fmt.Fprintln(a.out, "Note:", n)
		}
	}
	return a.showHistory(h)
}

func (a *app) showTaskRecords(ctx context.Context, arg string) error {
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	t, err := a.task(ctx, db, arg)
	if err != nil {
		return err
	}
	if len(t.Results) == 0 {
		return a.showSetupRecords(t, "calibration "+t.CalibrationID)
	}
	for _, r := range t.Results {
		x, err := db.TaskResult(ctx, t.ID, r.Number)
		if err != nil {
			return err
		}
		if a.json && !r.InUse {
			continue
		}
		if err := a.showSetupRecords(&x, fmt.Sprintf("result %d%s, calibration %s", r.Number, inUse(r), r.CalibrationID)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showSetupRecords(t *store.Task, title string) error {
	h, err := calib.HistoryOf(&t.Setup)
	if err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintf(a.out, "Task %d, %s\n", t.ID, title)
	}
	return a.showHistory(h)
}
