//go:build slow

package exchange_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/cmd/internal/exchange"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/marker"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"gonum.org/v1/gonum/stat"
)

// recordedSensor identifies the sensor of a session that it was recorded by itself: polls against kernels
// and chips, on the host's clock.
func recordedSensor(t *testing.T, name string) *sensor.Identified {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "testdata", "h200", name)
	var host exchange.HostSide
	b, err := os.ReadFile(filepath.Join(dir, exchange.HostFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &host); err != nil {
		t.Fatal(err)
	}
	var polls []sensor.Poll
	b, err = os.ReadFile(filepath.Join(dir, "scans.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(b), "\n") {
		var scan, tick, mw int64
		if _, err := fmt.Sscanf(line, "%d,%d,%d", &scan, &tick, &mw); err == nil && i > 0 {
			polls = append(polls, sensor.Poll{At: measure.Seconds(float64(tick) / 1e9), Power: measure.Watt(float64(mw) / 1e3)})
		}
	}
	var ph []sensor.Phase
	for _, k := range host.Kernels {
		ph = append(ph, sensor.Phase{Name: "kernel", From: measure.SecondsOf(k.Start.Sub(host.Started)), To: measure.SecondsOf(k.End.Sub(host.Started))})
	}
	spec := marker.Spec(host.Marker)
	for i := 0; i+1 < len(host.Played); i++ {
		x, next := host.Played[i], host.Played[i+1]
		chips := spec.Chips(marker.Kind(x.Kind))
		if c := x.Chip + spec.CodeStart(); next.Kind == x.Kind && next.Chip == x.Chip+1 && c >= 0 && c < len(chips) {
			ph = append(ph, sensor.Phase{Name: fmt.Sprint("chip ", chips[c]), From: measure.SecondsOf(x.At.Sub(host.Started)), To: measure.SecondsOf(next.At.Sub(host.Started))})
		}
	}
	slices.SortStableFunc(ph, func(a, b sensor.Phase) int { return cmp.Compare(a.From, b.From) })
	k, err := sensor.FromPhases(ph)
	if err != nil {
		t.Fatal(err)
	}
	x, err := sensor.Identify("instant", polls, k, sensor.Options{})
	if err != nil {
		t.Fatal(name, err)
	}
	return x
}

// TestDriverAgreesWithTheSensorOfRecordings: the mean lag of the driver's model lies where identification
// puts that of each recording, whose delay is somewhere from none to twice the mean.
func TestDriverAgreesWithTheSensorOfRecordings(t *testing.T) {
	names := []string{"memory", "compute", "half", "pulse", "pulse2"}
	for i := 1; i <= 8; i++ {
		names = append(names, fmt.Sprint("markers/", i))
	}
	d := nvml.ResponseOf(nvml.Hopper, nvml.FieldInstant)
	var off []float64
	for _, n := range names {
		p := recordedSensor(t, n).Profile
		late := float64(p.Lag - p.Period/2 - d.Tau - d.Delay)
		t.Logf("%-10s %s %v, delay %v (%v to %v) ± %v: %+.1f ms from the driver's", n, p.Model, max(p.Window, p.Tau), p.Delay, p.DelayLow, p.DelayHigh, p.UDelay, 1e3*late)
		if off = append(off, late); math.Abs(late) > math.Hypot(float64(p.ULag), 2*float64(d.Delay)/math.Sqrt(3)) {
			t.Errorf("%s: %v off", n, late)
		}
	}
	mean, sd := stat.MeanStdDev(off, nil)
	if most := 2 * float64(d.Delay) / math.Sqrt(3*float64(len(off))); math.Abs(mean) > most {
		t.Errorf("%+.1f ms off on the mean, scattered by %.1f: want %.1f at most", 1e3*mean, 1e3*sd, 1e3*most)
	}
}
