package bench

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/calib"
)

// ParseDrift reads the limits of a data sheet for channels of a unit, empty for a shunt: gain=0.1%/year,
// offset=2mA/year, gain=50ppm/K, offset=0.1mA/K, or none where nothing moves. A limit is that of a
// rectangular distribution (GUM, 4.3.7): u = limit/√3. Offsets in another unit are left out. It is nil for an
// empty list, and fails with ExitUsage.
func ParseDrift(list []string, unit measure.Unit) (*calib.Drift, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var d calib.Drift
	entries := map[string]**float64{
		"gain/year": &d.GainPerYear, "offset/year": &d.OffsetPerYear, "gain/K": &d.GainPerK, "offset/K": &d.OffsetPerK,
	}
	if slices.Equal(list, []string{"none"}) {
		for _, e := range entries {
			*e = new(float64)
		}
		return &d, nil
	}
	for _, s := range list {
		of, limit, _ := strings.Cut(s, "=")
		limit, per, _ := strings.Cut(limit, "/")
		e, known := entries[of+"/"+per]
		if !known {
			return nil, cli.Usagef("--drift %q: want gain or offset = a data sheet's limit / year or K, such as "+
				"gain=0.1%%/year, offset=2mA/year or gain=50ppm/K; or none alone", s)
		}
		v, err := relative(limit)
		if of == "offset" {
			if m := quantity().FindStringSubmatch(limit); m != nil && m[3] != "" && m[3] != string(unit) {
				continue // of channels in another unit
			}
			v, err = ParseQuantity(limit, unit)
		}
		if err != nil || !(v >= 0) || math.IsInf(v, 0) {
			return nil, cli.Usagef("--drift %q: %q is no limit: want zero or more, a gain's as 0.1%% or 50ppm, an offset's "+
				"as 2mA", s, limit)
		}
		if *e != nil {
			return nil, cli.Usagef("--drift %q: %s/%s is stated twice", s, of, per)
		}
		v /= math.Sqrt(3)
		*e = &v
	}
	return &d, nil
}

// relative parses 0.1%, 50ppm or 0.001.
func relative(s string) (float64, error) {
	unit := 1.0
	if t, is := strings.CutSuffix(s, "%"); is {
		s, unit = t, 0.01
	} else if t, is := strings.CutSuffix(s, "ppm"); is {
		s, unit = t, 1e-6
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return v * unit, err
}

// drifts gives all channels and shunts of a record the drift of the flags.
func (f *calibrateFlags) drifts(rec *calib.Record) (err error) {
	for i := range rec.Channels {
		if c := &rec.Channels[i]; c.Scale != nil && err == nil {
			c.Drift, err = ParseDrift(f.drift, c.Unit)
		}
	}
	for i := range rec.Rails {
		if err == nil {
			rec.Rails[i].Drift, err = ParseDrift(f.drift, "")
		}
	}
	return err
}
