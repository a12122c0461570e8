// Package validate implements wattmark validate, which compares the GPU's own power
// readings with the meter, for stored tasks and for recordings of other tools.
//
//	subject (truth, readings, clock) → analysis/validate → report → text, JSON, SVG, HTML
//
// A subject is one measurement on one clock, the host's: the meter's power (truth), the
// readings of each software method, the span of the work and its kernels. TaskSubjects
// reads subjects from the database; a foreignRun builds one from the files of other tools,
// whose clocks are related by hand or from the edges of the power (clock.go).
//
// All times are in seconds since the subject's origin, powers in watts, energies in joules.
// An uncertainty named U is expanded (k = 2), every other one is standard (k = 1).
package validate

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/analysis/validate/page"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/study/correct"
	"github.com/wattmark/wattmark/cmd/internal/study/stored"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/store"
)

// ValidateFlags are the flags of validate. The zero value with resamples set selects
// stored tasks and writes no files.
type ValidateFlags struct {
	user, name      string // both are empty where the tasks are named by number
	limit           int
	svg, html, save string
	seed            uint64
	resamples       int // at least 100
	recorded        RecordedFlags
	sensor          correct.CorrectFlags // of which the sensor's own alone
}

// subjects yields the measurements to validate, one after another. A subject that comes
// with an error has its name set, so that the error can be attributed.
type subjects = iter.Seq2[validate.Subject, error]

//go:embed help.md
var help string

// Commands returns the command of this package. A flag of RecordedFlags selects a
// recording of other tools; without one the arguments and filters select stored tasks.
func Commands(a *cli.App) []*cobra.Command {
	var f ValidateFlags
	var given func(flag string) bool
	c := cli.Command("validate [TASK...]", "Hold what software says of the GPU's power against the meter", nil,
		func(ctx context.Context, args []string) error {
			// Zero is a valid value of both offsets.
			f.recorded.SmiTime.Given, f.recorded.OffsetGiven = given("utc-offset"), given("clock-offset")
			if slices.ContainsFunc(recordedNames, given) {
				return validateRecorded(a, ctx, args, f)
			}
			ids, err := f.check(ctx, a, args)
			if err != nil {
				return err
			}
			return validateTasks(a, ctx, ids, f)
		})
	fl := c.Flags()
	given = fl.Changed
	fl.StringVar(&f.user, "user", "", "tasks of this user")
	fl.StringVar(&f.name, "name", "", "tasks of this name; a trailing * matches what begins so")
	fl.IntVar(&f.limit, "limit", 50, "how many tasks at most, the newest, with --user and --name")
	cli.Section(fl, "Of recorded files", func() { f.recorded.flags(fl) })
	cli.Section(fl, "Corrected variants", func() { f.correctedFlags(fl) })
	cli.SVGFlag(fl, &f.svg, "draw the power by the meter and by each method, and the energies, into this file")
	cli.OutFlag(fl, &f.html, "html", "write a report as one self-contained page into this file", "HTML", ".html", ".htm")
	fl.StringVar(&f.save, "save-as", "", "keep the validation in the task database under this name")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the resampling")
	fl.IntVar(&f.resamples, "resamples", 1000, "resamples behind every interval")
	return cli.In(cli.Learn, help, a.HostFlag(a.JSONFlag(c)))
}

// check finds the tasks and returns a usage error for contradictory flags.
func (f *ValidateFlags) check(ctx context.Context, a *cli.App, args []string) (ids []store.TaskID, err error) {
	for _, arg := range args {
		id, err := a.Number(ctx, arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	filtered := f.user != "" || f.name != ""
	switch {
	case len(ids) == 0 && !filtered:
		return nil, cli.Usagef("name the tasks by number, or choose them by --user and --name: list them with wattmark tasks")
	case len(ids) > 0 && filtered:
		return nil, cli.Usagef("name tasks by number or choose them by --user and --name, not both")
	case f.limit < 1:
		return nil, cli.Usagef("--limit %d: want at least one task", f.limit)
	case f.resamples < 100:
		return nil, cli.Usagef("--resamples %d: fewer than 100 tell no interval", f.resamples)
	}
	return ids, nil
}

// validateTasks validates stored tasks: those named by ids, else those that the filters
// select, oldest first. It returns an ExitNotFound error where the filters match no task.
func validateTasks(a *cli.App, ctx context.Context, ids []store.TaskID, f ValidateFlags) error {
	if len(ids) == 0 {
		list, err := a.List(ctx, store.Query{User: f.user, Name: f.name, Limit: f.limit})
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return cli.NotFoundf("no such tasks in %s: list them with wattmark tasks", a.DB)
		}
		for _, t := range slices.Backward(list) { // the query returns the newest task first
			ids = append(ids, t.ID)
		}
	}
	numbers := lists.Map(ids, func(id store.TaskID) string { return fmt.Sprint(id) })
	db, err := a.OpenDB(ctx, numbers...)
	if err != nil {
		return err
	}
	defer db.Close()
	return judgeSubjects(a, ctx, TaskSubjects(a, ctx, db, ids, &f), f, ids)
}

// judgeSubjects validates subjects one after another, writes the requested files and
// prints the report. It blocks until the last subject is done or ctx ends.
//
// An error that comes with a subject refuses that subject only; the call fails where
// every subject is refused. tasks are recorded as the inputs of a stored validation.
func judgeSubjects(a *cli.App, ctx context.Context, list subjects, f ValidateFlags, tasks []store.TaskID) error {
	v := &validation{}
	var errs []error
	bar := a.Progress("judging the methods")
	defer bar.End()
	for s, err := range list {
		bar.Set(len(v.Subjects)+len(v.Refused), len(tasks))
		var r *validate.Report
		if err == nil {
			r, err = validate.Run(ctx, s, validate.Options{Seed: f.seed, Resamples: f.resamples})
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			v.Refused, errs = append(v.Refused, page.Refusal{Name: s.Name, Reason: err.Error()}), append(errs, err)
		default:
			v.Subjects = append(v.Subjects, r)
		}
	}
	bar.End()
	if len(v.Subjects) == 0 {
		return errors.Join(errs...)
	}
	// With --recover a summary would count one measurement twice, under two clocks.
	if !f.recorded.recover {
		v.summary = validate.Summarise(v.Subjects, validate.Options{Seed: f.seed, Resamples: f.resamples})
	}
	v.Lines = append([]validate.SummaryLine{}, v.summary.Lines...)
	if err := v.keep(a, ctx, f, tasks); err != nil {
		return err
	}
	return a.Print(v, v.render)
}

// validation is the result of one call of the command: however many subjects there are, a list of them with its
// summary and the refused ones. The list and the summary are never null.
type validation struct {
	Subjects []*validate.Report     `json:"subjects"`
	Lines    []validate.SummaryLine `json:"summary"`
	Refused  []page.Refusal         `json:"refused,omitempty"`
	FilesReport
	summary validate.Summary
}

// FilesReport names the files and the stored analysis that the command wrote.
type FilesReport struct {
	SVG   string `json:"svg,omitempty"`
	HTML  string `json:"html,omitempty"`
	Saved string `json:"saved,omitempty"`
}

// ValidationKind is the kind of the analyses that --save-as stores.
const ValidationKind = "validation"

// keep writes the drawing, the page and the stored analysis that the flags ask for, and
// notes their names for the report. The analysis is a new version where its name exists;
// a database is created where there is none.
func (v *validation) keep(a *cli.App, ctx context.Context, f ValidateFlags, tasks []store.TaskID) (err error) {
	p := page.Page{
		Reports: v.Subjects, Summary: v.summary, Refused: v.Refused, Made: time.Now(), Maker: "wattmark " + cli.Version(),
	}
	v.SVG, v.HTML = f.svg, f.html
	if err = out.ToFile(f.svg, func(w io.Writer) error { return page.WriteSVG(w, v.Subjects) }); err == nil {
		err = out.ToFile(f.html, p.Write)
	}
	if err == nil && f.save != "" {
		_, err = stored.Kind{Kind: ValidationKind}.Keep(a, ctx, f.save, v, tasks)
		v.Saved = f.save
	}
	return err
}
