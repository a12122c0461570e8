package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"wattmark/analysis/correct"
	"wattmark/analysis/sensor"
	"wattmark/analysis/validate"
	"wattmark/store"
)

// correctedFlags name a sensor whose doings are to be undone beside the methods.
func (f *validateFlags) correctedFlags(c *cobra.Command) {
	fl := c.Flags()
	f.sensor.slope = correct.Symmetric.String()
	fl.StringVar(&f.sensor.profile, "profile", "", "judge corrected variants too, by this stored sensor profile (of a task: those of its GPU are used by themselves)")
	fl.StringVar(&f.sensor.preset, "preset", "", "the same, by a published lag: "+strings.Join(correct.PresetNames(), ", "))
	fl.DurationVar(&f.sensor.tau, "tau", 0, "the same, by a lag's constant, as correct fit finds it")
	fl.DurationVar(&f.sensor.window, "window", 0, "the same, by what a reading is the mean of")
	fl.DurationVar(&f.sensor.period, "period", 0, "from one renewal of the register to the next, with --window or --tau")
}

// profiles are the sensors to be undone: what the flags name, else those that are
// stored of a GPU; db and uuid may be missing.
func (a *app) profiles(ctx context.Context, f *validateFlags, db *store.DB, uuid string) ([]*sensor.Profile, error) {
	if f.sensor.profile == "" && f.sensor.preset == "" && f.sensor.tau == 0 && f.sensor.window == 0 {
		return profilesOf(ctx, db, uuid)
	}
	p, _, err := a.sensorFrom(ctx, &f.sensor)
	return []*sensor.Profile{p}, err
}

// addCorrected adds to a subject's methods what its sensor would have said without
// its lag or window.
func addCorrected(s *validate.Subject, profiles []*sensor.Profile) {
	var out []validate.Method
	for _, p := range profiles {
		for _, m := range correctedOf(s, p) {
			// What was stored by wattmark correct is judged as it was.
			if !slices.ContainsFunc(s.Methods, func(x validate.Method) bool { return x.Name == m.Name }) {
				out = append(out, m)
			}
		}
	}
	s.Methods = append(s.Methods, out...)
}

// correctedOf undoes a profile in the readings of its field; a profile without a
// field is taken as that of the first method that has readings.
func correctedOf(s *validate.Subject, p *sensor.Profile) []validate.Method {
	for _, m := range s.Methods {
		field := strings.TrimPrefix(m.Name, smiPrefix)
		if len(m.Readings) < 2 || p.Field != "" && p.Field != field {
			continue
		}
		q := *p
		q.Field = m.Name
		return correct.Methods(m.Readings, &q, s.Work, s.Kernels)
	}
	return nil
}

// profilesOf are the newest stored profiles of a GPU's sensor, one a field.
func profilesOf(ctx context.Context, db *store.DB, uuid string) ([]*sensor.Profile, error) {
	if db == nil || uuid == "" {
		return nil, nil
	}
	list, err := db.Analyses(ctx, sensor.Kind)
	if err != nil {
		return nil, err
	}
	var out []*sensor.Profile
	for i, x := range list {
		newest := i+1 == len(list) || list[i+1].Name != x.Name
		if !newest || !strings.HasPrefix(x.Name, uuid+" ") {
			continue
		}
		var p sensor.Profile
		if err := json.Unmarshal(x.Content, &p); err != nil {
			return nil, fmt.Errorf("sensor profile %q: %w", x.Name, err)
		}
		out = append(out, &p)
	}
	return out, nil
}
