package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"wattmark/analysis/sensor"
	"wattmark/hostagent/measurement"
	"wattmark/measure"
	"wattmark/store"
)

// sensorTask reads a stored task: its readings, and its meter's trace, or with
// events the kernels that it recorded.
func (a *app) sensorTask(ctx context.Context, db *store.DB, text string, events bool) (*sensorSource, error) {
	t, err := a.task(ctx, db, text)
	if err != nil {
		return nil, err
	}
	readings, err := db.Readings(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	s := &sensorSource{gpu: t.GPU, driver: t.Driver, uuid: t.GPUUUID, tasks: []store.TaskID{t.ID}, description: fmt.Sprintf("task %d, %s", t.ID, t.Name)}
	var toMeter func(time.Time) measure.Seconds
	if !events && t.Instrument.Kind != "nvml" && t.Scans > 0 && t.Clock != nil {
		s.origin = measurement.HostTime(*t.Clock, 0)
		fit := *t.Clock
		toMeter = func(at time.Time) measure.Seconds {
			m, _ := fit.Meter(measurement.HostSeconds(fit, at))
			return m
		}
	} else {
		s.origin = t.Launched
		toMeter = func(at time.Time) measure.Seconds { return measure.SecondsOf(at.Sub(t.Launched)) }
		events = true
	}
	s.place = toMeter
	for _, r := range readings {
		if field, ok := sensorField(r.Method); ok {
			s.add(field, sensor.Poll{At: toMeter(r.At), Power: measure.Watt(r.Value)})
		}
	}
	if len(s.fields) == 0 {
		return nil, fmt.Errorf("task %d holds no readings of the GPU's sensor: measure without --no-nvml, or import them with wattmark import nvidia-smi", t.ID)
	}
	if events {
		return s, a.taskPhases(ctx, db, t, s, toMeter)
	}
	sink, err := newLoadSink(&t.Setup)
	if err != nil {
		return nil, err
	}
	for b, err := range blocks(ctx, db, t) {
		if err := errors.Join(err, sink.Block(b)); err != nil {
			return nil, err
		}
	}
	l, err := sink.trace.Load()
	if err != nil {
		return nil, err
	}
	s.useMeter(l, "the meter's trace ("+t.Instrument.Kind+missingText(t.Setup.Missing)+")")
	return s, nil
}

func missingText(rails []string) string {
	if len(rails) == 0 {
		return ""
	}
	return "; not measured: " + strings.Join(rails, ", ")
}

// taskPhases takes the launches that were recorded as the load, or the kernels.
func (a *app) taskPhases(ctx context.Context, db *store.DB, t *store.Task, s *sensorSource, at func(time.Time) measure.Seconds) error {
	tables, err := db.LaunchTables(ctx, t.ID)
	if err != nil {
		return err
	}
	if len(tables.Names) > 0 {
		for l, err := range db.Launches(ctx, t.ID) {
			if err != nil {
				return err
			}
			s.phases = append(s.phases, sensor.Phase{Name: tables.Names[l.Name], From: at(time.Unix(0, l.Start)), To: at(time.Unix(0, l.End))})
		}
	} else {
		kernels, err := db.Kernels(ctx, t.ID)
		if err != nil {
			return err
		}
		for _, k := range kernels {
			s.phases = append(s.phases, sensor.Phase{Name: k.Name, From: at(k.Start), To: at(k.End)})
		}
	}
	if err := a.playedPhases(ctx, db, t, s, at); err != nil {
		return err
	}
	slices.SortStableFunc(s.phases, func(x, y sensor.Phase) int {
		switch {
		case x.From < y.From:
			return -1
		case x.From > y.From:
			return 1
		}
		return 0
	})
	return s.usePhases("the kernels that the task recorded")
}

// playedPhases adds the markers' high chips: the sensor saw them too.
func (a *app) playedPhases(ctx context.Context, db *store.DB, t *store.Task, s *sensorSource, at func(time.Time) measure.Seconds) error {
	played, err := db.Played(ctx, t.ID)
	if err != nil || len(played) == 0 {
		return err
	}
	first := -t.Marker.CodeStart()
	for i := 0; i+1 < len(played); i++ {
		x, next := played[i], played[i+1]
		chips := t.Marker.Chips(x.Kind)
		c := x.Chip - first
		if next.Kind != x.Kind || next.Chip != x.Chip+1 || c < 0 || c >= len(chips) {
			continue
		}
		name := "marker, low"
		if chips[c] {
			name = "marker, high"
		}
		s.phases = append(s.phases, sensor.Phase{Name: name, From: at(x.At), To: at(next.At)})
	}
	return nil
}

// sensorField is the sensor's field that a stored method's readings are of.
func sensorField(method string) (string, bool) {
	if f, ok := strings.CutPrefix(method, "nvml."); ok && f != "energy" {
		return f, true
	}
	if f, ok := strings.CutPrefix(method, "nvidia-smi "); ok {
		return f, true
	}
	return "", false
}
