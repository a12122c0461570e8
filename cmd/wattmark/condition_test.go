package main

import (
	"testing"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/sampler"
	"wattmark/measure"
	"wattmark/store"
)

func TestConditionOnOneLine(t *testing.T) {
	db, err := store.Open(t.Context(), t.TempDir()+"/power.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := hostagent.Condition{SM: 1.98e9, Memory: 2.619e9, Temperature: 45}
	hot := hostagent.Condition{SM: 1.755e9, Memory: 2.619e9, Temperature: 61, Throttle: 0x24}
	for name, c := range map[string]struct {
		points []hostagent.Condition
		want   string
	}{
		"throttled":    {[]hostagent.Condition{before, hot}, "SM 1.98 GHz → 1.755 GHz, memory 2.619 GHz, 45 °C → 61 °C, throttled by its power cap and heat (software)"},
		"undisturbed":  {[]hostagent.Condition{before, before}, "SM 1.98 GHz, memory 2.619 GHz, 45 °C, not throttled"},
		"cut off":      {[]hostagent.Condition{before}, "SM 1.98 GHz, memory 2.619 GHz, 45 °C"},
		"nothing told": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := db.BeginTask(t.Context(), store.NewTask{Name: "gemm", User: "lab", Launched: at})
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range c.points {
				if err := db.PutReadings(t.Context(), id, sampler.ConditionReadings(p, at.Add(time.Duration(i)*time.Second))); err != nil {
					t.Fatal(err)
				}
			}
			r := &report{listedReport: listedReport{TaskID: int64(id)}}
			if err := r.addCondition(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			if (r.Condition == nil) != (c.want == "") {
				t.Fatalf("condition %v, want %q", r.Condition, c.want)
			}
			if r.Condition != nil && r.Condition.String() != c.want {
				t.Errorf("got  %s\nwant %s", r.Condition, c.want)
			}
		})
	}
	if got := measure.Hertz(1.755e9).String(); got != "1.755 GHz" {
		t.Errorf("1.755e9 Hz is written %s", got)
	}
}
