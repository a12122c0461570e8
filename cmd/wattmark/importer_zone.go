package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	_ "time/tzdata" // zones are named on machines without them too

	"wattmark/analysis/smilog"
	"wattmark/measure"
	"wattmark/store"
)

// place moves a log's local times to UTC, and says by what.
func (f *smiFlags) place(log *smilog.Log, from, to time.Time) (string, error) {
	if log.Absolute {
		if f.given || f.zone != "" {
			return "", withCode(exitUsage, errors.New("its times count from 1970 or name their zone: leave --utc-offset and --zone out"))
		}
		return "0s (its times say so)", covering(log, from, to)
	}
	if f.given {
		return f.offset.String(), covering(log.Shift(-f.offset), from, to)
	}
	if f.zone != "" {
		loc, err := time.LoadLocation(f.zone)
		if err != nil {
			return "", withCode(exitUsage, fmt.Errorf("--zone %q: %w: name it as in Europe/Berlin, or give --utc-offset", f.zone, err))
		}
		off, err := log.OffsetIn(loc)
		if err != nil {
			return "", fmt.Errorf("%w\nGive --utc-offset", err)
		}
		return fmt.Sprintf("%v (%s)", off, f.zone), covering(log.Shift(-off), from, to)
	}
	return guess(log, from, to)
}

// guess tries this machine's zone and UTC.
func guess(log *smilog.Log, from, to time.Time) (string, error) {
	offsets := map[time.Duration]string{0: "UTC"}
	local, err := log.OffsetIn(time.Local)
	if err != nil {
		return "", fmt.Errorf("%w\nGive --utc-offset", err)
	}
	offsets[local] = "this machine's zone"
	var fits []time.Duration
	for off := range offsets {
		if log.Covers(from.Add(off), to.Add(off)) {
			fits = append(fits, off)
		}
	}
	switch len(fits) {
	case 1:
		log.Shift(-fits[0])
		return fmt.Sprintf("%v (%s, since it fits)", fits[0], offsets[fits[0]]), nil
	case 0:
		return "", fmt.Errorf("%w\nIt was tried as UTC and in this machine's zone. If it is of another zone, give --utc-offset or --zone", covering(log, from, to))
	}
	return "", errors.New("it covers the task's work as UTC and in this machine's zone too: say which it is with --utc-offset or --zone")
}

// covering fails where a log does not cover the task's work.
func covering(log *smilog.Log, from, to time.Time) error {
	if log.Covers(from, to) {
		return nil
	}
	first, last := log.Extent()
	const layout = "2006-01-02 15:04:05.000"
	return fmt.Errorf("the log runs from %s to %s, the task's work from %s to %s (UTC): it does not cover it",
		first.Format(layout), last.Format(layout), from.UTC().Format(layout), to.UTC().Format(layout))
}

// smiPrefix stands before a column of nvidia-smi in the names of methods.
const smiPrefix = "nvidia-smi "

// storeSmi stores a log's readings, and each column's energy over the work.
func storeSmi(ctx context.Context, db *store.DB, id store.TaskID, log *smilog.Log, from, to time.Time) ([]store.MethodResult, error) {
	var results []store.MethodResult
	var readings []store.Reading
	nan := measure.Seconds(math.NaN())
	none := store.Timing{P50: nan, P99: nan, Max: nan}
	for _, field := range []smilog.Field{smilog.Draw, smilog.Average, smilog.Instant} {
		column := log.Columns[field]
		if len(column) == 0 {
			continue
		}
		m := store.MethodResult{Method: smiPrefix + string(field), From: from, To: to, Call: none, Alone: none, Beside: none}
		e, err := smilog.Energy(column, from, to)
		if err != nil {
			e, m.Note = measure.Joule(math.NaN()), err.Error()
		}
		m.Energy, m.Mean = e, measure.Watt(float64(e)/to.Sub(from).Seconds())
		for _, r := range column {
			readings = append(readings, store.Reading{Method: m.Method, At: r.At, Value: float64(r.Power)})
			if !r.At.Before(from) && !r.At.After(to) {
				m.Readings++
			}
		}
		results = append(results, m)
	}
	if err := db.PutReadings(ctx, id, readings); err != nil {
		return nil, err
	}
	return results, db.PutMethods(ctx, id, results)
}

// importReport is what import prints.
type importReport struct {
	TaskID  int64          `json:"task_id"`
	Offset  string         `json:"utc_offset"`
	Skipped int            `json:"values_skipped"`
	Methods []methodReport `json:"methods"`
}

func (a *app) printImported(ctx context.Context, db *store.DB, t *store.Task, log *smilog.Log, zone string, results []store.MethodResult) error {
	r := newReport(t, a.db)
	if err := r.addMethods(ctx, db); err != nil {
		return err
	}
	out := importReport{TaskID: int64(t.ID), Offset: zone, Skipped: log.Skipped}
	for _, m := range r.Methods {
		if slices.ContainsFunc(results, func(x store.MethodResult) bool { return x.Method == m.Method }) {
			out.Methods = append(out.Methods, m)
		}
	}
	if a.json {
		return a.printJSON(out)
	}
	fmt.Fprintf(a.out, "Task %d  %s: the log's time was taken as %s ahead of UTC; %d values were no numbers\n", t.ID, t.Name, zone, log.Skipped)
	renderMethods(a.out, out.Methods, "the meter")
	return nil
}
