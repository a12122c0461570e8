package bench

import (
	"math"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/measure"
)

func TestParseDrift(t *testing.T) {
	d, err := ParseDrift([]string{"gain=0.1%/year", "offset=2mA/year", "offset=1mV/year", "gain=50ppm/K"}, measure.UnitAmpere)
	if err != nil || d.OffsetPerK != nil {
		t.Fatal(d, err)
	}
	for _, c := range [][2]float64{{*d.GainPerYear, 1e-3}, {*d.OffsetPerYear, 2e-3}, {*d.GainPerK, 50e-6}} {
		if math.Abs(c[0]*math.Sqrt(3)/c[1]-1) > 1e-12 {
			t.Errorf("%v, want %v/√3", c[0], c[1])
		}
	}
	if d, err = ParseDrift([]string{"none"}, ""); err != nil || *d.GainPerYear+*d.OffsetPerYear+*d.GainPerK+*d.OffsetPerK != 0 {
		t.Error(d, err)
	}
	if d, err = ParseDrift(nil, measure.UnitVolt); d != nil || err != nil {
		t.Error(d, err)
	}
	for in, want := range map[string]string{
		"gain=0.1%": "want gain or offset", "gain=x/K": "is no limit", "gain=-1%/K": "is no limit", "none,gain=1%/K": "want gain or offset",
		"gain=1%/K,gain=1%/K": "twice", "offset=5q/K": "is no limit", "gain=NaN/K": "is no limit",
	} {
		if _, err := ParseDrift(strings.Split(in, ","), measure.UnitAmpere); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", in, err)
		}
	}
}
