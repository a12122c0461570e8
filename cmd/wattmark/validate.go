package main

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"wattmark/analysis/validate"
	"wattmark/store"
)

// validateFlags are the flags of validate.
type validateFlags struct {
	user, name string
	limit      int
	svg, html  string
	save       string
	seed       uint64
	resamples  int
	recorded   recordedFlags
	sensor     correctFlags // of which the sensor's own alone
}

// subjects are what is to be judged, one after another; an error goes with a name.
type subjects = iter.Seq2[validate.Subject, error]

func (a *app) validateCmd() *cobra.Command {
	var f validateFlags
	c := &cobra.Command{
		Use: "validate [TASK...]", Short: "Hold what software says of the GPU's power against the meter",
		Long: `Hold every software method that was read beside a task (SMA, MTSM, PAPI, the
average and instant fields, the energy counter, columns of nvidia-smi) against the
meter: the energy and its error with a confidence interval, the bias, RMSE and MAPE
of the readings, by how much they trail the power, by kernel and overall, and a
verdict in one sentence.

Tasks are named by number, or chosen by --user and --name as in wattmark tasks; of
several, each is judged and then all together, by GPU and driver. The results in
force are used: the window and the calibration that wattmark show follows.

Instead of tasks, a public recording or files of other tools can be judged:
--recording takes a folder with PMD_data.bin, PMD_start_ts.txt, gpudata.csv and
timestamps.csv; --meter, --smi and --events take CSV files. How far the meter's
clock was off the host's, and how fast it ran, is found from the edges of the
power alone, unless --clock-offset gives it.

docs/validate.md defines every figure, docs/validate-clocks.md the clocks.`,
		Example: `  wattmark validate 42
  wattmark validate 42 --svg truth.svg --html report.html
  wattmark validate --user lab --name 'gemm*' --json
  wattmark validate 40 41 42 --save h200-driver-580
  wattmark validate --recording recordings/3090-square --utc-offset 1h
  wattmark validate --recording recordings/3090-square --utc-offset 1h --clock-offset -50ms --recover
  wattmark validate --meter meter.csv --smi smi.csv --events kernels.csv --zone Europe/Berlin`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.recorded.asked(cmd) {
				return a.validateRecorded(cmd.Context(), args, f)
			}
			ids, err := f.check(args)
			if err != nil {
				return err
			}
			return a.validateTasks(cmd.Context(), ids, f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.user, "user", "", "tasks of this user")
	fl.StringVar(&f.name, "name", "", "tasks of this name; a trailing * matches what begins so")
	fl.IntVar(&f.limit, "limit", 50, "how many tasks at most, the newest, with --user and --name")
	f.recorded.flags(c)
	f.correctedFlags(c)
	f.outputFlags(c)
	return a.jsonFlag(c)
}

// outputFlags are those that do not depend on where the subjects come from.
func (f *validateFlags) outputFlags(c *cobra.Command) {
	fl := c.Flags()
	svgFlag(fl, &f.svg, "draw the power by the meter and by each method, and the energies, into this file")
	outFlag(fl, &f.html, "html", "write a report as one self-contained page into this file", "HTML", ".html", ".htm")
	fl.StringVar(&f.save, "save", "", "keep the validation in the task database under this name")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the resampling")
	fl.IntVar(&f.resamples, "resamples", 1000, "resamples behind every interval")
}

// check reads the tasks' numbers and refuses what goes against itself.
func (f *validateFlags) check(args []string) (ids []store.TaskID, err error) {
	for _, arg := range args {
		id, err := taskID(arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	filtered := f.user != "" || f.name != ""
	switch {
	case len(ids) == 0 && !filtered:
		return nil, withCode(exitUsage, errors.New("name the tasks by number, or choose them by --user and --name: list them with wattmark tasks"))
	case len(ids) > 0 && filtered:
		return nil, withCode(exitUsage, errors.New("name tasks by number or choose them by --user and --name, not both"))
	case f.limit < 1:
		return nil, withCode(exitUsage, fmt.Errorf("--limit %d: want at least one task", f.limit))
	case f.resamples < 100:
		return nil, withCode(exitUsage, fmt.Errorf("--resamples %d: fewer than 100 tell no interval", f.resamples))
	}
	return ids, nil
}

func (a *app) validateTasks(ctx context.Context, ids []store.TaskID, f validateFlags) error {
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	named := len(ids) > 0
	if !named {
		list, err := db.Tasks(ctx, store.Query{User: f.user, Name: f.name, Limit: f.limit})
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return withCode(exitNotFound, fmt.Errorf("no such tasks in %s: list them with wattmark tasks", a.db))
		}
		for i := len(list) - 1; i >= 0; i-- {
			ids = append(ids, list[i].ID)
		}
	}
	return a.judgeSubjects(ctx, a.taskSubjects(ctx, db, ids, &f), f, ids)
}

// judgeSubjects validates subjects one after another and reports on them. An error
// that comes with a subject's name is that subject's; tasks are what a kept
// validation rests on.
func (a *app) judgeSubjects(ctx context.Context, list subjects, f validateFlags, tasks []store.TaskID) error {
	v := &validation{}
	for s, err := range list {
		var r *validate.Report
		if err == nil {
			r, err = validate.Run(ctx, s, validate.Options{Seed: f.seed, Resamples: f.resamples})
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			v.refused = append(v.refused, refusal{s.Name, err})
		default:
			v.reports = append(v.reports, r)
		}
	}
	if len(v.reports) == 0 {
		var errs []error
		for _, x := range v.refused {
			errs = append(errs, x.err)
		}
		return errors.Join(errs...)
	}
	if !f.recorded.recover { // else the subjects are one measurement
		v.summary = validate.Summarise(v.reports, validate.Options{Seed: f.seed, Resamples: f.resamples})
	}
	if err := a.keepValidation(ctx, v, f, tasks); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(v.json())
	}
	v.render(a.out)
	return nil
}

// validation is all that one call of the command came to.
type validation struct {
	reports []*validate.Report
	refused []refusal
	summary validate.Summary

	svg, html, saved string // what was written
}

// refusal is a subject that could not be judged.
type refusal struct {
	name string
	err  error
}

// keepValidation writes the files and the analysis that were asked for.
func (a *app) keepValidation(ctx context.Context, v *validation, f validateFlags, tasks []store.TaskID) error {
	if f.svg != "" {
		if err := writeFile(f.svg, v.writeSVG); err != nil {
			return err
		}
		v.svg = f.svg
	}
	if f.html != "" {
		if err := writeFile(f.html, v.writeHTML); err != nil {
			return err
		}
		v.html = f.html
	}
	if f.save != "" {
		return a.saveValidation(ctx, v, f.save, tasks)
	}
	return nil
}
