package sensor

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/measure"
)

const recorded = "../../testdata/h200"

// rows reads a CSV file of numbers and texts.
func rows(t *testing.T, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	var out [][]string
	for {
		rec, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec)
	}
}

func micros(t *testing.T, s string) time.Time {
	t.Helper()
	us, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(1e9, us*1000)
}

func milli(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v / 1e3
}

// TestInstantMissesPulsesOnAnH200 replays what a real H200 said while a kernel
// that streams memory (about 450 W) and a sleeping one (about 136 W) took turns
// of 50 ms. The counter, whose slope is near the truth, tells 286 W.
func TestInstantMissesPulsesOnAnH200(t *testing.T) {
	dir := filepath.Join(recorded, "alternate")
	events := rows(t, filepath.Join(dir, "kernel-events.csv"))
	var w Watcher
	w.counter.steps = true
	s := span{micros(t, events[0][0]).UnixNano(), micros(t, events[len(events)-1][0]).UnixNano()}
	for _, r := range rows(t, filepath.Join(dir, "nvml-power.csv")) { // µs, instant, average, usage, energy
		at := micros(t, r[0])
		w.instant.add(at, milli(t, r[1]))
		w.average.add(at, milli(t, r[2]))
		w.mtsm.add(at, milli(t, r[3]))
		w.counter.add(at, milli(t, r[4]))
	}
	var on time.Duration
	for i := 0; i < len(events); i += 2 {
		if strings.HasPrefix(events[i][1], "mem") {
			on += micros(t, events[i+1][0]).Sub(micros(t, events[i][0]))
		}
	}
	if share := on.Seconds() / s.seconds(); math.Abs(share-0.5) > 0.001 {
		t.Fatalf("the kernel ran for %.3f of the time", share)
	}
	for m, want := range map[Method][2]float64{
		InstantField: {155, 168}, // what the product exists for
		Counter:      {280, 300},
		MTSM:         {205, 225}, // the mean of the last second, most of it rest
		AverageField: {205, 225},
	} {
		a, _ := w.answer(m, s)
		if p := float64(a.energy) / s.seconds(); !(p > want[0] && p < want[1]) {
			t.Errorf("%s: %.1f W, want %v to %v W (%v)", m, p, want[0], want[1], a.notes)
		}
	}
	// What the card draws on the average of the two kernels' own levels.
	truth := (450.0 + 136) / 2
	a, _ := w.answer(InstantField, s)
	if off := float64(a.energy)/s.seconds()/truth - 1; off > -0.4 {
		t.Errorf("the instant field is off by %.0f %%, want about -45 %%", 100*off)
	}
}

// TestInstantOverstatesPulsesOnAnH200 replays two recordings of pulses of 50 ms on
// and 50 ms off: on one card the instant field saw nothing but pulses, on the
// other first the one, then the other.
func TestInstantOverstatesPulsesOnAnH200(t *testing.T) {
	steady := instantPower(t, "memory") // the same kernel without a rest
	idle := 120.0
	duty := (steady + idle) / 2
	if p := instantPower(t, "pulse"); math.Abs(p/steady-1) > 0.05 || p/duty < 1.5 {
		t.Errorf("pulses read %.0f W; the kernel alone %.0f W, half of the time is %.0f W", p, steady, duty)
	}
	if p := instantPower(t, "pulse2"); p < 250 || p > 320 {
		t.Errorf("pulses on another card read %.0f W", p)
	}
}

// instantPower is the instant method's mean power of a recording, from its first
// to its last kernel.
func instantPower(t *testing.T, name string) float64 {
	t.Helper()
	dir := filepath.Join(recorded, name)
	var host struct {
		Started time.Time
		Kernels []struct{ Start, End time.Time }
	}
	b, err := os.ReadFile(filepath.Join(dir, "host.json"))
	if err == nil {
		err = json.Unmarshal(b, &host)
	}
	if err != nil || len(host.Kernels) == 0 {
		t.Fatalf("%d kernels: %v", len(host.Kernels), err)
	}
	var tr trace
	for _, r := range rows(t, filepath.Join(dir, "scans.csv"))[1:] { // scan, tick of 1 ns, mW
		ns, err := strconv.ParseInt(r[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		tr.add(host.Started.Add(time.Duration(ns)), milli(t, r[2]))
	}
	s := span{host.Kernels[0].Start.UnixNano(), host.Kernels[len(host.Kernels)-1].End.UnixNano()}
	a := answerField(&tr, s)
	if math.IsNaN(float64(a.energy)) {
		t.Fatal(name, a.notes)
	}
	return float64(measure.Watt(float64(a.energy) / s.seconds()))
}
