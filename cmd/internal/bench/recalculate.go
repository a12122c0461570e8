package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/cmd/internal/session"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
	"github.com/wattmark/wattmark/monitor/calibration"
	"github.com/wattmark/wattmark/store"
)

// recalculateCmd returns the command recalculate, which adds a result to each task under the
// chosen calibration. It goes on behind a task that fails, and returns the errors together.
// Earlier results are kept.
func recalculateCmd(a *cli.App) *cobra.Command {
	var records, name string
	var latest bool
	c := cli.Command("recalculate TASK…", "Compute results of old tasks under a newer calibration",
		cobra.MatchAll(cobra.MinimumNArgs(1), cli.Tasks),
		func(ctx context.Context, args []string) error {
			if session.CountTrue(records != "", name != "", latest) > 1 {
				return cli.Usagef("name one calibration: --latest, --stored or --calibration")
			}
			db, err := a.OpenToChange(ctx)
			if err != nil {
				return err
			}
			defer db.Close()
			var faults []error
			done := []*report.Report{}
			for _, arg := range args {
				t, err := recalculateOne(ctx, a, db, arg, records, name)
				if err != nil {
					faults = append(faults, err)
					continue
				}
				r := report.NewReport(t, a.DB)
				if done = append(done, r); !a.JSON {
					fmt.Fprintf(a.Out, "Task %d  %s\n", t.ID, r.Name)
					report.RenderResults(a.Out, r)
				}
			}
			if a.JSON {
				faults = append(faults, a.PrintJSON(map[string]any{"tasks": done}))
			}
			return errors.Join(faults...)
		})
	fl := c.Flags()
	fl.StringVar(&records, "calibration", "", "folder of calibration records")
	fl.StringVar(&name, "stored", "", "calibration in the database, by name or by a record of it")
	fl.BoolVar(&latest, "latest", false, "the newest calibration in the database that fits")
	return a.JSONFlag(c)
}

// recalculateOne recalculates one task, divides the new energy among its kernels where the
// old one was divided, and returns the task as stored.
func recalculateOne(ctx context.Context, a *cli.App, db *store.DB, arg, records, name string) (*store.Task, error) {
	t, err := a.Task(ctx, db, arg)
	if err != nil {
		return nil, err
	}
	s, err := chosenCalibration(ctx, db, t, records, name)
	if err != nil {
		return nil, fmt.Errorf("task %d: %w", t.ID, err)
	}
	switch _, added, err := measurement.Recalculate(ctx, db, t.ID, s); {
	case err != nil:
		return nil, err
	case !added && records == "" && name == "":
		fmt.Fprintf(a.Err, "wattmark: task %d: the database has no newer calibration; a record reaches it\n"+
			"  with the next measurement. From a folder: --calibration DIR\n", t.ID)
	}
	// Energies by kernel follow the result in use.
	if err := report.ShareAgain(ctx, db, t.ID); err != nil {
		return nil, err
	}
	return a.Task(ctx, db, arg)
}

// chosenCalibration returns the setup that the flags select for a task: the records of a
// folder, a named calibration of the database, or the newest that fits.
func chosenCalibration(ctx context.Context, db *store.DB, t *store.Task, records, name string) (measure.Setup, error) {
	if records != "" {
		return fromFolder(t, calibration.Folder(records))
	}
	all, err := db.Calibrations(ctx)
	switch {
	case err != nil:
		return measure.Setup{}, err
	case name != "":
		return byName(t, all, name)
	}
	return newest(t, all)
}

// fromFolder applies the records of a folder to the task's nominal scale, which the
// instrument and the bench file stated when it ran. It fails with ErrMismatch where no
// record fits.
func fromFolder(t *store.Task, folder calibration.Folder) (measure.Setup, error) {
	if _, err := os.Stat(string(folder)); err != nil { // which Load takes for an empty one
		return measure.Setup{}, cli.Usagef("--calibration: %w: name the folder of the records", err)
	}
	h, err := folder.Load()
	if err != nil {
		return measure.Setup{}, err
	}
	nominal, err := calib.Nominal(t.Setup)
	if err != nil {
		return measure.Setup{}, err
	}
	s, notes, err := h.Apply(nominal, t.Instrument, time.Now())
	if err != nil {
		return measure.Setup{}, err
	}
	if len(s.Records) == 0 {
		return s, fmt.Errorf("%w: no record in %s fits it\n%s", calib.ErrMismatch, folder, strings.Join(notes, "\n"))
	}
	return s, nil
}

// byName finds the calibration whose id, or one of whose records' ids, begins with name. It
// must be of the task's bench and instrument (ErrMismatch).
func byName(t *store.Task, all []store.Calibration, name string) (measure.Setup, error) {
	if len(name) < 4 {
		return measure.Setup{}, cli.Usagef("--stored %q: give at least 4 characters", name)
	}
	found := lists.Filter(all, func(c *store.Calibration) bool {
		return slices.ContainsFunc(append(c.Setup.RecordIDs(), c.CalibrationID),
			func(id string) bool { return strings.HasPrefix(id, name) })
	})
	fits := lists.Filter(found, func(c *store.Calibration) bool { return c.Bench == t.Bench })
	switch {
	case len(found) == 0:
		return measure.Setup{}, cli.NotFoundf("no calibration %q in the database: "+
			"wattmark calibrate show --task N lists those of a task", name)
	case len(fits) == 0:
		return measure.Setup{}, fmt.Errorf("%w: calibration %s is of another bench than %s", calib.ErrMismatch, name,
			t.Bench)
	}
	// A record may be part of several calibrations: the newest of them.
	c := slices.MaxFunc(fits, byAge)
	if !slices.ContainsFunc(c.Instruments, sameDevice(t)) {
		return measure.Setup{}, fmt.Errorf("%w: it is of another instrument than %s %s", calib.ErrMismatch,
			t.Instrument.Kind, t.Instrument.Serial)
	}
	return c.Setup, nil
}

// newest returns the setup with the newest record among the calibrations of the task's
// bench and instrument that have the same channels and rails. It fails with ErrMismatch
// without one.
func newest(t *store.Task, all []store.Calibration) (measure.Setup, error) {
	all = slices.DeleteFunc(all, func(c store.Calibration) bool {
		_, err := calib.Under(t.Setup, c.Setup)
		return c.Bench != t.Bench || err != nil || !slices.ContainsFunc(c.Instruments, sameDevice(t))
	})
	if len(all) == 0 {
		return measure.Setup{}, fmt.Errorf("%w: the database has no calibration of this bench and instrument",
			calib.ErrMismatch)
	}
	return slices.MaxFunc(all, byAge).Setup, nil
}

// sameDevice returns a predicate for the task's instrument: kind and serial number.
func sameDevice(t *store.Task) func(store.Instrument) bool {
	return func(i store.Instrument) bool { return i.Kind == t.Instrument.Kind && i.Serial == t.Instrument.Serial }
}

// byAge orders calibrations by their newest record, then by their first use.
func byAge(a, b store.Calibration) int {
	return cmp.Or(newestRecord(a).Compare(newestRecord(b)), a.Since.Compare(b.Since))
}

// newestRecord returns the date of the last record; the zero time without records.
func newestRecord(c store.Calibration) (at time.Time) {
	if h, err := calib.HistoryOf(&c.Setup); err == nil && len(h) > 0 {
		at = h[len(h)-1].At
	}
	return at
}
