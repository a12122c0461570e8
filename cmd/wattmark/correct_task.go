package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"wattmark/analysis/correct"
	"wattmark/analysis/sensor"
	"wattmark/analysis/validate"
	"wattmark/measure"
	"wattmark/store"
)

// taskCorrection is what correct says of a task.
type taskCorrection struct {
	TaskID  int64           `json:"task_id"`
	Field   string          `json:"field"`
	Sensor  correctedSensor `json:"sensor"`
	RawJ    *float64        `json:"raw_energy_j"`
	Stored  bool            `json:"stored"`
	Methods []methodReport  `json:"methods"`
}

// correctTask corrects the stored readings of a task's sensor, and stores what comes
// out as software methods.
func (a *app) correctTask(ctx context.Context, arg string, p *sensor.Profile, f correctFlags) error {
	if f.givenFrom || f.givenTo || f.svg != "" || f.level != 0 || f.floor != 0 || f.cap != 0 || f.slope != correct.Symmetric.String() {
		return withCode(exitUsage, errors.New("--from, --to, --svg, --level, --slope, --floor and --cap are for files: a task knows when its work ran"))
	}
	open := a.openDB
	if !f.noStore {
		open = a.openToChange
	}
	db, err := open(ctx)
	if cannotWrite(err) {
		fmt.Fprintf(a.err, "%s may only be read here: what comes out is shown, and not stored.\n", a.db)
		f.noStore = true
		db, err = a.openDB(ctx)
	}
	if err != nil {
		return err
	}
	defer db.Close()
	t, err := a.task(ctx, db, arg)
	if err != nil {
		return err
	}
	from, to, err := workSpan(ctx, db, t.ID)
	if err != nil {
		return err
	}
	want := f.field
	if want == "" {
		want = p.Field
	}
	rs, field, err := taskReadings(ctx, db, t.ID, want, from)
	if err != nil {
		return err
	}
	kernels, err := correctedKernels(ctx, db, t.ID, from)
	if err != nil {
		return err
	}
	profile := *p
	profile.Field = field
	work := correct.Span{From: 0, To: measure.SecondsOf(to.Sub(from))}
	list := correct.Methods(rs, &profile, work, kernels)
	var results []store.MethodResult
	for _, m := range list {
		results = append(results, correctedResult(m, from, to))
	}
	if !f.noStore {
		if err := storeCorrected(ctx, db, t.ID, list, results, from); err != nil {
			return err
		}
	}
	r := newReport(t, a.db)
	out := taskCorrection{TaskID: int64(t.ID), Field: field, Sensor: newCorrectedSensor(&profile, correct.Symmetric.String()), Stored: !f.noStore}
	if raw, err := correct.Integrate(rs, work); err == nil {
		out.RawJ = number(float64(raw))
	}
	out.Methods = newMethodReports(results, r.truthOf())
	return a.printCorrected(t, &out)
}

// correctedResult is a corrected variant as the store has methods.
func correctedResult(m validate.Method, from, to time.Time) store.MethodResult {
	nan := measure.Seconds(math.NaN())
	none := store.Timing{P50: nan, P99: nan, Max: nan}
	return store.MethodResult{
		Method: m.Name, From: from, To: to, Energy: m.Energy, U: m.U, Mean: measure.Watt(float64(m.Energy) / to.Sub(from).Seconds()),
		Readings: uint64(len(m.Readings)), Call: none, Alone: none, Beside: none, Note: m.Note,
	}
}

// storeCorrected stores the variants and their traces, which plots can draw.
func storeCorrected(ctx context.Context, db *store.DB, id store.TaskID, list []validate.Method, results []store.MethodResult, origin time.Time) error {
	var readings []store.Reading
	for _, m := range list {
		for _, x := range m.Readings {
			readings = append(readings, store.Reading{Method: m.Name, At: origin.Add(x.At.Duration()), Value: float64(x.Power)})
		}
	}
	if err := db.PutReadings(ctx, id, readings); err != nil {
		return err
	}
	return db.PutMethods(ctx, id, results)
}

// correctedKernels are a task's kernels in seconds since origin.
func correctedKernels(ctx context.Context, db *store.DB, id store.TaskID, origin time.Time) ([]validate.Kernel, error) {
	ks, err := db.Kernels(ctx, id)
	if err != nil {
		return nil, err
	}
	var out []validate.Kernel
	for _, k := range ks {
		out = append(out, validate.Kernel{Name: k.Name, Span: correct.Span{From: measure.SecondsOf(k.Start.Sub(origin)), To: measure.SecondsOf(k.End.Sub(origin))}})
	}
	return out, nil
}

func (a *app) printCorrected(t *store.Task, out *taskCorrection) error {
	if a.json {
		return a.printJSON(out)
	}
	fmt.Fprintf(a.out, "Task %d  %s: %s, which %v\n", t.ID, t.Name, out.Field, out.Sensor)
	if out.RawJ != nil {
		fmt.Fprintf(a.out, "  as read  %.2f J\n", *out.RawJ)
	}
	renderMethods(a.out, out.Methods, "the meter")
	if out.Stored {
		fmt.Fprintf(a.out, "Stored with the task: wattmark show %d lists them beside the others.\n", t.ID)
	}
	return nil
}
