package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/goccy/go-yaml"

	"wattmark/analysis/counters"
	"wattmark/analysis/model"
)

// of returns the columns that are asked for.
func (f *featureFlags) of(t *counters.Table) (counters.Set, error) {
	if f.set == "" && len(f.features) == 0 && f.file == "" {
		return t.Usual(), nil
	}
	s, err := f.named(t)
	if err != nil {
		return s, err
	}
	if f.file != "" {
		more, err := readFeatures(f.file)
		if err != nil {
			return s, err
		}
		s.Features = append(s.Features, more...)
	}
	for _, text := range f.features {
		name, formula, ok := strings.Cut(text, "=")
		if name, formula = strings.TrimSpace(name), strings.TrimSpace(formula); !ok || name == "" || formula == "" {
			return s, withCode(exitUsage, fmt.Errorf("--feature %q: want NAME = FORMULA", text))
		}
		s.Features = append(s.Features, counters.Feature{Name: name, Formula: formula})
	}
	return s, nil
}

func (f *featureFlags) named(t *counters.Table) (counters.Set, error) {
	s, known := counters.Named(f.set)
	switch {
	case f.set == "":
		return counters.Set{Name: "own"}, nil
	case known:
		return s, nil
	case f.set == "all" && t != nil:
		return t.All(), nil
	}
	s.Name = f.set
	for name := range strings.SplitSeq(f.set, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return s, withCode(exitUsage, fmt.Errorf("--set %q: a name is empty", f.set))
		}
		s.Features = append(s.Features, counters.Feature{Name: name})
	}
	return s, nil
}

// readFeatures reads a YAML file of name: formula, in its order.
func readFeatures(path string) ([]counters.Feature, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m yaml.MapSlice
	if err := yaml.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out []counters.Feature
	for _, item := range m {
		name, ok := item.Key.(string)
		formula, text := item.Value.(string)
		if !ok || !text {
			return nil, fmt.Errorf("%s: %v: want name: formula", path, item.Key)
		}
		out = append(out, counters.Feature{Name: name, Formula: formula})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no feature in it", path)
	}
	return out, nil
}

// modelData makes training data of a table; it wants powers.
func modelData(t *counters.Table, s counters.Set, scale string) (*model.Data, error) {
	d, err := t.Data(s.Features, counters.Scale(scale))
	if err != nil {
		return nil, modelUsage(fmt.Errorf("%s: %w", cmp.Or(s.Name, "features"), err))
	}
	for i, r := range t.Runs {
		if math.IsNaN(float64(r.Power)) {
			return nil, fmt.Errorf("%s: line %d (%s): no power: add a column power_w, a file with --power, or tasks with --tasks", r.File, r.Line, d.Rows[i].Name)
		}
	}
	return d, nil
}
