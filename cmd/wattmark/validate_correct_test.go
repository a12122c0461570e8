package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	vreport "github.com/wattmark/wattmark/analysis/validate"

	"github.com/wattmark/wattmark/analysis/sensor"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/store"
)

// A sensor that lags is judged as it reads and with its lag undone: the energy over
// seconds hardly changes, but the readings follow the power.
func TestValidateCorrectedVariants(t *testing.T) {
	t.Parallel()
	noRaces(t)
	dir := publicRecording(t, "k40m-step")
	var v oneValidation
	object(t, inside(t, "validate", "--recording", dir, "--utc-offset", "1h", "--clock-offset", "-50ms", "--tau", "58ms", "--resamples", "100", "--json").ok(t).out, &v)
	raw, mended := verdictNamed(t, &v.Report, "nvidia-smi power.draw"), verdictNamed(t, &v.Report, "nvidia-smi power.draw corrected")
	if math.Abs(float64(raw.ErrorPct)-float64(mended.ErrorPct)) > 0.2 {
		t.Errorf("error %.2f %%, corrected %.2f %%: over 12 s a lag of 58 ms takes nothing", float64(raw.ErrorPct), float64(mended.ErrorPct))
	}
	if float64(mended.RMSE) > 0.8*float64(raw.RMSE) {
		t.Errorf("RMSE %.2f W, corrected %.2f W", float64(raw.RMSE), float64(mended.RMSE))
	}
	if raw.Lag == 0 || mended.Lag == 0 || float64(raw.Lag) < 0.03 || math.Abs(float64(mended.Lag)) > 0.02 {
		t.Errorf("lag %v, corrected %v", raw.Lag, mended.Lag)
	}
	inside(t, "validate", "--recording", dir, "--utc-offset", "1h", "--window", "1s").fails(t, cli.ExitUsage, "--period")
	inside(t, "validate", "--recording", dir, "--utc-offset", "1h", "--tau", "58ms", "--preset", "k20").fails(t, cli.ExitUsage, "one of")
}

func verdictNamed(t *testing.T, v *vreport.Report, name string) *vreport.MethodReport {
	t.Helper()
	for i := range v.Methods {
		if v.Methods[i].Name == name {
			return &v.Methods[i]
		}
	}
	var have []string
	for _, m := range v.Methods {
		have = append(have, m.Name)
	}
	t.Fatalf("no %q among %q", name, have)
	return nil
}

// A profile that is stored of a task's GPU is used without being named; another
// GPU's is not.
func TestValidateUsesTheProfileOfTheGPU(t *testing.T) {
	t.Parallel()
	noRaces(t)
	path := demoDB(t, longDemo)
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	task, err := db.Task(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for uuid, window := range map[string]float64{task.GPUUUID: 1, "GPU-other": 7} {
		p := sensor.Profile{Field: "average", Model: sensor.Boxcar, Window: 1, Period: 0.1, Gain: window}
		content, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.PutAnalysis(t.Context(), store.Analysis{Kind: sensor.Kind, Name: uuid + " average", Made: time.Now(), Content: content}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var v oneValidation
	object(t, inside(t, "validate", "1", "--db", path, "--resamples", "100", "--json").ok(t).out, &v)
	n := 0
	for _, m := range v.Methods {
		if strings.HasPrefix(m.Name, "average ") {
			n++
		}
	}
	if n == 0 || n > 2 {
		t.Errorf("%d corrected variants, want those of the GPU's own profile", n)
	}
	verdictNamed(t, &v.Report, "average deconvolved")
}
