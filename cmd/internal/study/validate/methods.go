package validate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/cmd/internal/out"
	"github.com/wattmark/wattmark/cmd/internal/report"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/hostagent/sensor"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// taskMethods returns the software methods of a task: those with a stored result, then
// the fields and logs that have readings alone. work is the span of the result in force.
func taskMethods(ctx context.Context, db *store.DB, t *store.Task, times report.TaskTimes,
	work validate.Span,
) ([]validate.Method, error) {
	results, err := db.Methods(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	readings, err := db.Readings(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	// Readings by stored method; NaN marks a register that the poll did not return.
	by := map[string][]sensor.Point{}
	for _, r := range readings {
		if !math.IsNaN(r.Value) {
			by[r.Method] = append(by[r.Method], sensor.Point{At: r.At, Value: r.Value})
		}
	}
	var out []validate.Method
	for i := range results {
		out = append(out, taskMethod(&results[i], by, times, work))
	}
	// Fields and logs that no method covers: of tasks measured without methods, and of
	// recordings that were played back. Their energy is NaN, so that validation integrates
	// the readings. stored is the key of a name in the database.
	add := func(name, stored string) {
		if r := points(by[stored], times); len(r) > 0 &&
			!slices.ContainsFunc(out, func(m validate.Method) bool { return m.Name == name }) {
			out = append(out, validate.Method{Name: name, Readings: r, Energy: measure.Joule(math.NaN())})
		}
	}
	add(string(sensor.InstantField), sensor.InstantPower)
	add(string(sensor.AverageField), sensor.AveragePower)
	if len(results) == 0 {
		add("usage", sensor.UsagePower) // SMA and MTSM read the same register
	}
	for _, stored := range slices.Sorted(maps.Keys(by)) {
		if cli.ImportedName(stored) != "" {
			add(stored, stored)
		}
	}
	return out, nil
}

// taskMethod converts one stored method. Its energy follows the method's own rule; the
// readings are integrated instead where the window changed after the method was
// evaluated.
func taskMethod(x *store.MethodResult, by map[string][]sensor.Point, times report.TaskTimes,
	work validate.Span,
) validate.Method {
	m := validate.Method{
		Name: x.Method, Note: x.Note, Energy: x.Energy, U: x.U, Made: x.Readings, Silent: math.IsNaN(float64(x.Energy)),
	}
	switch sensor.Method(x.Method) {
	// The counter is cumulative energy: its differences over time are the power.
	case sensor.Counter, sensor.CounterEnds:
		m.Readings = points(report.PowerOf(by[measurement.MethodPrefix+string(sensor.Counter)]), times)
	// PAPI reads once at the end of the work: the first poll at or after it.
	case sensor.PAPI:
		for _, p := range by[measurement.MethodPrefix+x.Method] {
			if !p.At.Before(x.To) {
				m.Readings = points([]sensor.Point{p}, times)
				break
			}
		}
	case sensor.InstantField:
		m.Readings = points(by[sensor.InstantPower], times)
	case sensor.AverageField:
		m.Readings = points(by[sensor.AveragePower], times)
	default:
		stored := measurement.MethodPrefix + x.Method
		if len(by[stored]) == 0 {
			stored = x.Method // imported logs and corrected variants have no prefix
		}
		m.Readings = points(by[stored], times)
		m.Silent = m.Silent && cli.ImportedName(x.Method) == "" // a log may still span the work
	}
	// The stored energy belongs to another window: only its readings remain valid.
	if off, same := times.SameWork(x.From, x.To, work); !same && !math.IsNaN(float64(m.Energy)) {
		m.Energy, m.U = measure.Joule(math.NaN()), 0
		m.Note = out.JoinNonEmpty("; ", m.Note,
			fmt.Sprintf("the window is not the work that it spoke of (%v off): its readings are integrated", off))
	}
	return m
}

// points converts readings to the subject's clock, in order of time.
func points(list []sensor.Point, times report.TaskTimes) (out []validate.Reading) {
	for _, p := range list {
		out = append(out, validate.Reading{At: times.Wall(p.At), Power: measure.Watt(p.Value)})
	}
	slices.SortStableFunc(out, func(a, b validate.Reading) int { return cmp.Compare(a.At, b.At) })
	return out
}
