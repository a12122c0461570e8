package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"wattmark/analysis/validate"
	"wattmark/hostagent/measurement"
	"wattmark/hostagent/methods"
	"wattmark/hostagent/sampler"
	"wattmark/measure"
	"wattmark/store"
)

// taskMethods are what software read of a task: the methods with results of their
// own, and fields that were read without.
func taskMethods(ctx context.Context, db *store.DB, t *store.Task, times taskTimes, work validate.Span) ([]validate.Method, error) {
	results, err := db.Methods(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	readings, err := db.Readings(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	by := map[string][]methods.Point{}
	for _, r := range readings {
		if !math.IsNaN(r.Value) {
			by[r.Method] = append(by[r.Method], methods.Point{At: r.At, Value: r.Value})
		}
	}
	var out []validate.Method
	for i := range results {
		out = append(out, taskMethod(&results[i], by, times, work))
	}
	return append(out, otherReadings(by, out, times)...), nil
}

// otherReadings are the fields and logs that no method spoke of: of tasks that were
// measured without methods, and of recordings that were played back.
func otherReadings(by map[string][]methods.Point, known []validate.Method, times taskTimes) (out []validate.Method) {
	add := func(name, stored string) {
		if r := points(by[stored], times); len(r) > 0 && !slices.ContainsFunc(known, func(m validate.Method) bool { return m.Name == name }) {
			out = append(out, validate.Method{Name: name, Readings: r, Energy: measure.Joule(math.NaN())})
		}
	}
	add(string(methods.Instant), sampler.Instant)
	add(string(methods.Average), sampler.Average)
	if len(known) == 0 {
		add("usage", sampler.Usage) // SMA and MTSM read the same register
	}
	for _, stored := range slices.Sorted(maps.Keys(by)) {
		if importedName(stored) != "" {
			add(stored, stored)
		}
	}
	return out
}

// taskMethod is one method of a task. Its energy follows its own rule, unless its
// readings are to be integrated, or the window was changed since the method spoke.
func taskMethod(x *store.MethodResult, by map[string][]methods.Point, times taskTimes, work validate.Span) validate.Method {
	m := validate.Method{Name: x.Method, Note: x.Note, Energy: x.Energy, U: x.U, Made: x.Readings, Silent: math.IsNaN(float64(x.Energy))}
	switch methods.Method(x.Method) {
	case methods.Counter, methods.CounterEnds:
		m.Readings = points(powerOf(by[measurement.MethodPrefix+string(methods.Counter)]), times)
	case methods.PAPI:
		for _, p := range by[measurement.MethodPrefix+x.Method] {
			if !p.At.Before(x.To) {
				m.Readings = points([]methods.Point{p}, times)
				break
			}
		}
	case methods.Instant:
		m.Readings = points(by[sampler.Instant], times)
	case methods.Average:
		m.Readings = points(by[sampler.Average], times)
	default:
		stored := measurement.MethodPrefix + x.Method
		if len(by[stored]) == 0 {
			stored = x.Method // of a log, or corrected
		}
		m.Readings = points(by[stored], times)
		m.Silent = m.Silent && importedName(x.Method) == "" // a log's ends may be reached all the same
	}
	if off, same := times.sameWork(x.From, x.To, work); !same && !math.IsNaN(float64(m.Energy)) {
		m.Energy, m.U = measure.Joule(math.NaN()), 0
		m.Note = joinNonEmpty("; ", m.Note, fmt.Sprintf("the window is not the work that it spoke of (%v off): its readings are integrated", off))
	}
	return m
}

// sameWork reports whether what a method spoke of is the work, and how far off it is.
// A clock fit leaves the work's ends within fractions of a millisecond.
func (t taskTimes) sameWork(from, to time.Time, work validate.Span) (off measure.Seconds, same bool) {
	off = max(abs(t.wall(from)-work.From), abs(t.wall(to)-work.To))
	return off, off <= max(2e-3, work.Length()/1000)
}

// importedName is the name of the readings of an imported log's column.
func importedName(method string) string {
	if strings.HasPrefix(method, "nvidia-smi ") {
		return method
	}
	return ""
}

func abs(s measure.Seconds) measure.Seconds { return max(s, -s) }

// points are readings on the subject's clock, in order.
func points(list []methods.Point, times taskTimes) (out []validate.Reading) {
	for _, p := range list {
		out = append(out, validate.Reading{At: times.wall(p.At), Power: measure.Watt(p.Value)})
	}
	slices.SortStableFunc(out, func(a, b validate.Reading) int { return cmp.Compare(a.At, b.At) })
	return out
}
