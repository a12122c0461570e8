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

	"wattmark/hostagent/measurement"
	"wattmark/measure"
	"wattmark/measure/calib"
	"wattmark/monitor/calibration"
	"wattmark/store"
)

func (a *app) recalculateCmd() *cobra.Command {
	var records, name string
	var latest bool
	c := &cobra.Command{
		Use: "recalculate TASK…", Short: "Compute results of old tasks under a newer calibration",
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.MinimumNArgs(1)(c, args); err != nil {
				return err
			}
			for _, arg := range args {
				if _, err := taskID(arg); err != nil {
					return err
				}
			}
			return nil
		},
		Long: `Compute results of tasks anew from their stored counts, over the same window, under
another calibration. The earlier results stay, and wattmark show tells both; lists,
exports and the view data follow the new one. To go back, name the calibration of
the original.

The calibration is one of these:
  --latest             the newest that this database has of the same bench and
                       instrument: the one with the newest record (default)
  --calibration ID     one that this database has, by its name or by the beginning
                       of a record's id
  --records DIR        the records of a folder, as wattmark calibrate wrote them

A calibration of other channels, rails or another instrument is refused.`,
		Example: "  wattmark recalculate 12 13 --records lab/calibration\n  wattmark recalculate 12 --calibration 3f9a0c1d2e4b\n  wattmark recalculate 12",
		RunE: func(cmd *cobra.Command, args []string) error {
			if countTrue(records != "", name != "", latest) > 1 {
				return withCode(exitUsage, errors.New("name one calibration: --latest, --calibration or --records"))
			}
			return a.recalculate(cmd.Context(), args, records, name)
		},
	}
	fl := c.Flags()
	fl.StringVar(&records, "records", "", "folder of calibration records")
	fl.StringVar(&name, "calibration", "", "calibration in the database, by name or by a record of it")
	fl.BoolVar(&latest, "latest", false, "the newest calibration in the database that fits")
	return a.jsonFlag(c)
}

func (a *app) recalculate(ctx context.Context, args []string, records, name string) error {
	db, err := a.openToChange(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	var faults []error
	done := []*report{}
	for _, arg := range args {
		t, err := a.recalculateOne(ctx, db, arg, records, name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		r := newReport(t, a.db)
		if done = append(done, r); !a.json {
			fmt.Fprintf(a.out, "Task %d  %s\n", t.ID, r.Name)
			renderResults(a.out, r)
		}
	}
	if a.json {
		faults = append(faults, a.printJSON(map[string]any{"tasks": done}))
	}
	return errors.Join(faults...)
}

func (a *app) recalculateOne(ctx context.Context, db *store.DB, arg, records, name string) (*store.Task, error) {
	t, err := a.task(ctx, db, arg)
	if err != nil {
		return nil, err
	}
	s, err := chosenCalibration(ctx, db, t, records, name)
	if err != nil {
		return nil, fmt.Errorf("task %d: %w", t.ID, err)
	}
	if _, _, err := measurement.Recalculate(ctx, db, t.ID, s); err != nil {
		return nil, err
	}
	if err := shareAgain(ctx, db, t.ID); err != nil {
		return nil, err
	}
	return a.task(ctx, db, arg)
}

// chosenCalibration is the setup that the flags name for a task.
func chosenCalibration(ctx context.Context, db *store.DB, t *store.Task, records, name string) (measure.Setup, error) {
	if records != "" {
		return fromFolder(t, calibration.Folder(records))
	}
	all, err := db.Calibrations(ctx)
	if err != nil {
		return measure.Setup{}, err
	}
	if name != "" {
		return byName(t, all, name)
	}
	return newest(t, all)
}

// fromFolder puts the records of a folder on what the task's instrument and
// bench file said by themselves.
func fromFolder(t *store.Task, folder calibration.Folder) (measure.Setup, error) {
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

// byName finds a calibration by its name or by a record of it.
func byName(t *store.Task, all []store.Calibration, name string) (measure.Setup, error) {
	if len(name) < 4 {
		return measure.Setup{}, withCode(exitUsage, fmt.Errorf("--calibration %q: give at least 4 characters", name))
	}
	var fits []store.Calibration
	var found bool
	for _, c := range all {
		of := strings.HasPrefix(c.CalibrationID, name) || slices.ContainsFunc(c.Setup.Records, func(r measure.CalibrationRecord) bool { return strings.HasPrefix(r.ID, name) })
		found = found || of
		if of && c.Bench == t.Bench {
			fits = append(fits, c)
		}
	}
	switch {
	case !found:
		return measure.Setup{}, withCode(exitNotFound, fmt.Errorf("no calibration %q in the database: wattmark calibrate show --task N lists those of a task", name))
	case len(fits) == 0:
		return measure.Setup{}, fmt.Errorf("%w: calibration %s is of another bench than %s", calib.ErrMismatch, name, t.Bench)
	}
	// A record may be part of several calibrations: the newest of them.
	c := slices.MaxFunc(fits, byAge)
	if !slices.ContainsFunc(c.Instruments, sameDevice(t)) {
		return measure.Setup{}, fmt.Errorf("%w: it is of another instrument than %s %s", calib.ErrMismatch, t.Instrument.Kind, t.Instrument.Serial)
	}
	return c.Setup, nil
}

// newest is the calibration with the newest record that fits a task.
func newest(t *store.Task, all []store.Calibration) (measure.Setup, error) {
	all = slices.DeleteFunc(all, func(c store.Calibration) bool {
		_, err := calib.Under(t.Setup, c.Setup)
		return c.Bench != t.Bench || err != nil || !slices.ContainsFunc(c.Instruments, sameDevice(t))
	})
	if len(all) == 0 {
		return measure.Setup{}, fmt.Errorf("%w: the database has no calibration of this bench and instrument", calib.ErrMismatch)
	}
	return slices.MaxFunc(all, byAge).Setup, nil
}

func sameDevice(t *store.Task) func(store.Instrument) bool {
	return func(i store.Instrument) bool { return i.Kind == t.Instrument.Kind && i.Serial == t.Instrument.Serial }
}

// byAge orders calibrations by their newest record, then by their first use.
func byAge(a, b store.Calibration) int {
	return cmp.Or(newestRecord(a).Compare(newestRecord(b)), a.Since.Compare(b.Since))
}

func newestRecord(c store.Calibration) (at time.Time) {
	h, err := calib.HistoryOf(&c.Setup)
	if err != nil || len(h) == 0 {
		return at
	}
	return h[len(h)-1].At
}
