package validate

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/analysis/correct"
	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/analysis/smilog"
	"github.com/wattmark/wattmark/analysis/validate"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	correctcmd "github.com/wattmark/wattmark/cmd/internal/study/correct"
	"github.com/wattmark/wattmark/store"
)

// correctedFlags adds the flags that describe a sensor, whose lag or window is corrected
// and validated beside the methods.
func (f *ValidateFlags) correctedFlags(fl *pflag.FlagSet) {
	f.sensor.Slope = correct.Symmetric.String()
	fl.StringVar(&f.sensor.Profile, "profile", "", "judge corrected variants too, by this stored sensor profile "+
		"(of a task: those of its GPU are used by themselves)")
	f.sensor.Certificate.Flags(fl)
	fl.StringVar(&f.sensor.Preset, "preset", "",
		"the same, by a published lag: "+strings.Join(correct.PresetNames(), ", "))
	fl.DurationVar(&f.sensor.Tau, "tau", 0, "the same, by a lag's constant, as correct fit finds it")
	fl.DurationVar(&f.sensor.Window, "window", 0, "the same, by what a reading is the mean of")
	fl.DurationVar(&f.sensor.Period, "period", 0, "from one renewal of the register to the next, with --window or --tau")
}

// addCorrected appends to the methods of s a variant for each profile, with the sensor's
// lag or window corrected. A profile without a field applies to the first method with at
// least two readings; one that fits no method is left out.
func addCorrected(s *validate.Subject, profiles []*sensor.Profile) {
	var out []validate.Method
	for _, p := range profiles {
		i := slices.IndexFunc(s.Methods, func(m validate.Method) bool {
			name := m.Name
			if _, field, ok := smilog.CutTool(name); ok {
				name = field
			}
			return len(m.Readings) >= 2 && (p.Field == "" || p.Field == name)
		})
		if i < 0 {
			continue
		}
		// The profile is shared between subjects: the field is set on a copy.
		q := *p
		q.Field = s.Methods[i].Name
		for _, m := range correct.Methods(s.Methods[i].Readings, &q, s.Work, s.Kernels) {
			// A variant that wattmark correct stored is validated as stored.
			if !slices.ContainsFunc(s.Methods, func(x validate.Method) bool { return x.Name == m.Name }) {
				out = append(out, m)
			}
		}
	}
	s.Methods = append(s.Methods, out...)
}

// findProfiles returns the sensor profiles to correct with: the one that the flags
// describe, else the newest stored one of each field of the GPU uuid. A certificate of
// another GPU or driver is refused. Without flags, a nil
// db or an empty uuid yields none. Stored profiles are named "UUID FIELD", and the list is
// ordered by name, then by version.
func findProfiles(a *cli.App, ctx context.Context, f *ValidateFlags, db *store.DB,
	uuid, driver string,
) ([]*sensor.Profile, error) {
	if f.sensor.Profile != "" || f.sensor.Certificate.Path != "" || f.sensor.Preset != "" || f.sensor.Tau != 0 || f.sensor.Window != 0 {
		p, _, err := correctcmd.SensorFrom(a, ctx, &f.sensor)
		if err == nil {
			err = f.sensor.Certificate.Fits(p, uuid, driver)
		}
		return []*sensor.Profile{p}, err
	}
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
		p, err := correctcmd.ReadProfile(&x)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
