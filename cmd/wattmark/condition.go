package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"wattmark/hostagent/sampler"
	"wattmark/measure"
	"wattmark/store"
)

// conditionReport is the GPU's condition just before and just after the work.
type conditionReport struct {
	Before *conditionPoint `json:"before"`
	After  *conditionPoint `json:"after"`
}

type conditionPoint struct {
	SMClockHz     *float64 `json:"sm_clock_hz,omitempty"`
	MemoryClockHz *float64 `json:"memory_clock_hz,omitempty"`
	TemperatureC  *float64 `json:"temperature_c,omitempty"`
	ThrottledBy   []string `json:"throttled_by,omitempty"`
}

// addSide adds what was read beside the meter.
func (r *report) addSide(ctx context.Context, db *store.DB) error {
	return errors.Join(r.addCondition(ctx, db), r.addMethods(ctx, db))
}

// addCondition adds what the GPU's sensor told of itself beside its power.
func (r *report) addCondition(ctx context.Context, db *store.DB) error {
	readings, err := db.Readings(ctx, store.TaskID(r.TaskID))
	if err != nil {
		return err
	}
	c := sampler.Conditions(readings)
	if len(c) == 0 {
		return nil
	}
	point := func(c sampler.ConditionAt) *conditionPoint {
		return &conditionPoint{number(float64(c.SM)), number(float64(c.Memory)), number(c.Temperature), c.Throttled()}
	}
	r.Condition = &conditionReport{Before: point(c[0])}
	if len(c) > 1 {
		r.Condition.After = point(c[len(c)-1])
	}
	return nil
}

// String is the condition on one line.
func (c *conditionReport) String() string {
	before, after := c.Before, c.After
	if after == nil {
		after = &conditionPoint{}
	}
	clock := func(v float64) string { return measure.Hertz(v).String() }
	parts := []string{
		change("SM ", before.SMClockHz, after.SMClockHz, clock),
		change("memory ", before.MemoryClockHz, after.MemoryClockHz, clock),
		change("", before.TemperatureC, after.TemperatureC, func(v float64) string { return fmt.Sprintf("%.0f °C", v) }),
	}
	switch {
	case c.After == nil:
	case len(after.ThrottledBy) > 0:
		parts = append(parts, "throttled by "+strings.Join(after.ThrottledBy, " and "))
	default:
		parts = append(parts, "not throttled")
	}
	return joinNonEmpty(", ", parts...)
}

// change writes a quantity before and after, once where it stayed.
func change(name string, before, after *float64, show func(float64) string) string {
	value := func(p *float64) float64 {
		if p == nil {
			return math.NaN()
		}
		return *p
	}
	b, a := value(before), value(after)
	switch {
	case math.IsNaN(b) && math.IsNaN(a):
		return ""
	case math.IsNaN(b):
		return name + show(a)
	case math.IsNaN(a) || show(a) == show(b):
		return name + show(b)
	}
	return name + show(b) + " → " + show(a)
}
