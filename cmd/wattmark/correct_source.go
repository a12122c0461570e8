package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"wattmark/analysis/correct"
	"wattmark/analysis/sensor"
	"wattmark/analysis/smilog"
	"wattmark/measure"
	"wattmark/store"
)

// readReadings reads a file of readings, in seconds since the first of them, and
// tells which field they are of.
func readReadings(path, field string) ([]correct.Reading, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmi+1))
	if err != nil {
		return nil, "", err
	}
	if len(b) > maxSmi {
		return nil, "", fmt.Errorf("%s: larger than 1 GiB: cut out what is wanted", path)
	}
	head, _, _ := bytes.Cut(b, []byte("\n"))
	var rs []correct.Reading
	if bytes.Contains(head, []byte("power.draw")) {
		rs, field, err = smiColumn(b, field)
	} else {
		rs, err = correct.ParseCSV(bytes.NewReader(b))
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	if len(rs) == 0 {
		return nil, "", fmt.Errorf("%s: no readings in it", path)
	}
	first := rs[0].At
	for i := range rs {
		rs[i].At -= first
	}
	return rs, field, nil
}

// smiColumn reads a column of nvidia-smi: the named one, or that nearest to the truth.
func smiColumn(b []byte, field string) ([]correct.Reading, string, error) {
	log, err := smilog.Parse(bytes.NewReader(b), 0)
	if err != nil {
		return nil, "", err
	}
	best, list := log.Best()
	if field != "" {
		best = smilog.Field(strings.TrimPrefix(field, smiPrefix))
		if list = log.Columns[best]; len(list) == 0 {
			var have []string
			for f := range log.Columns {
				have = append(have, string(f))
			}
			slices.Sort(have)
			return nil, "", fmt.Errorf("no column %q with readings: there are %s", field, strings.Join(have, ", "))
		}
	}
	return sinceFirst(list), string(best), nil
}

func sinceFirst(list []smilog.Reading) []correct.Reading {
	out := make([]correct.Reading, len(list))
	for i, r := range list {
		out[i] = correct.Reading{At: measure.SecondsOf(r.At.Sub(list[0].At)), Power: r.Power}
	}
	return correct.Tidy(out)
}

// taskReadings are the stored readings of a task's sensor, in seconds since origin.
// Where no field is named, the first that is there of instant, usage, average and
// nvidia-smi's columns.
func taskReadings(ctx context.Context, db *store.DB, id store.TaskID, field string, origin time.Time) ([]correct.Reading, string, error) {
	all, err := db.Readings(ctx, id)
	if err != nil {
		return nil, "", err
	}
	by := map[string][]correct.Reading{}
	for _, r := range all {
		by[r.Method] = append(by[r.Method], correct.Reading{At: measure.SecondsOf(r.At.Sub(origin)), Power: measure.Watt(r.Value)})
	}
	fields := []string{"instant", "usage", "average", string(smilog.Instant), string(smilog.Draw), string(smilog.Average)}
	names := map[string]string{}
	for _, f := range fields {
		names[f] = "nvml." + f
		if strings.HasPrefix(f, "power.") {
			names[f] = smiPrefix + f
		}
	}
	if field != "" {
		stored, ok := names[strings.TrimPrefix(field, smiPrefix)]
		if !ok {
			return nil, "", withCode(exitUsage, fmt.Errorf("--field %q: want one of %s", field, strings.Join(fields, ", ")))
		}
		if len(by[stored]) == 0 {
			return nil, "", fmt.Errorf("task %d has no readings of %s", id, field)
		}
		return correct.Tidy(by[stored]), field, nil
	}
	for _, f := range fields {
		if len(by[names[f]]) > 0 {
			return correct.Tidy(by[names[f]]), f, nil
		}
	}
	return nil, "", fmt.Errorf("task %d has no readings of the GPU's own sensor: measure without --no-nvml, or take in a log with wattmark import nvidia-smi", id)
}

// profileIn reads the newest version of a sensor's profile.
func profileIn(ctx context.Context, db *store.DB, name string) (*sensor.Profile, error) {
	x, err := db.Analysis(ctx, sensor.Kind, name, 0)
	if errors.Is(err, store.ErrNotFound) {
		return nil, withCode(exitNotFound, fmt.Errorf("no sensor profile %q in the database: %s", name, profileNames(ctx, db)))
	}
	if err != nil {
		return nil, err
	}
	var p sensor.Profile
	if err := json.Unmarshal(x.Content, &p); err != nil {
		return nil, fmt.Errorf("sensor profile %q: %w", name, err)
	}
	return &p, p.Validate()
}

func profileNames(ctx context.Context, db *store.DB) string {
	list, err := db.Analyses(ctx, sensor.Kind)
	if err != nil || len(list) == 0 {
		return "there are none"
	}
	var names []string
	for _, x := range list {
		names = append(names, x.Name)
	}
	return "there are " + strings.Join(slices.Compact(names), ", ")
}
