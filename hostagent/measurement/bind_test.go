package measurement_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure/session"
)

func gpus(names ...string) (out []gpu.Info) {
	for _, n := range names {
		out = append(out, gpu.Info{Name: "H200", UUID: "GPU-" + n})
	}
	return out
}

func at(address, gpu string) measurement.MonitorBench {
	return measurement.MonitorBench{Address: address, Bench: session.Bench{Name: "bench " + address, GPU: gpu}}
}

func away(address string) measurement.MonitorBench {
	return measurement.MonitorBench{Address: address, Err: errors.New(address + " does not answer")}
}

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		name     string
		gpus     []gpu.Info
		monitors []measurement.MonitorBench
		want     []int
		missing  string
		fail     string
	}{
		{"one that says nothing", gpus("a"), []measurement.MonitorBench{at("m:1", "")}, []int{0}, "", ""},
		{
			"each its own, in any order and case", gpus("a", "b"),
			[]measurement.MonitorBench{at("m:1", "gpu-B"), at("m:2", "GPU-a")},
			[]int{1, 0},
			"", "",
		},
		{
			"one silent", gpus("a", "b"),
			[]measurement.MonitorBench{at("m:1", "GPU-b"), away("m:2")},
			[]int{-1, 0},
			"m:2 does not answer", "",
		},
		{
			"all silent", gpus("a", "b"),
			[]measurement.MonitorBench{away("m:1"), away("m:2")},
			nil, "",
			"m:1 does not answer\nm:2 does not answer",
		},
		{
			"two that say nothing", gpus("a", "b"),
			[]measurement.MonitorBench{at("m:1", "GPU-a"), at("m:2", "")},
			nil,
			"", "bench m:2 at m:2 does not say which GPU it measures: write gpu: GPU-… (nvidia-smi -L) into its bench " +
				"file",
		},
		{
			"two for one", gpus("a", "b"),
			[]measurement.MonitorBench{at("m:1", "GPU-a"), at("m:2", "GPU-a")},
			nil, "",
			"m:1 and m:2 both say that they measure GPU-a",
		},
		{
			"a stranger", gpus("a", "b"),
			[]measurement.MonitorBench{at("m:1", "GPU-a"), at("m:2", "GPU-c")},
			nil, "",
			"measures GPU-c, which is not among the GPUs to be measured (GPU-a, GPU-b)",
		},
		{
			"too few", gpus("a", "b"),
			[]measurement.MonitorBench{at("m:1", "GPU-a")},
			nil, "",
			"no bench measures GPU-b (H200): add its monitor",
		},
		{"too many", gpus("a"), []measurement.MonitorBench{at("m:1", "GPU-a"), at("m:2", "")}, nil, "", "does not say"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := measurement.Assign(c.gpus, c.monitors)
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got %v, want %s", err, c.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, w := range c.want {
				if got[i].Monitor != w || (w < 0) != (got[i].Missing != nil) {
					t.Errorf("GPU %d: %+v, want monitor %d", i, got[i], w)
				}
				if e := got[i].Missing; e != nil && !strings.Contains(e.Error(), c.missing) {
					t.Errorf("GPU %d: missing: %v", i, e)
				}
			}
		})
	}
}

// The work of one GPU is not measured on the bench of another.
func TestWrongGPUIsRefused(t *testing.T) {
	db := openDatabase(t)
	t.Cleanup(func() { _ = db.Close() })
	a, b := newBenchOn(t, db, 3, true), newBenchOn(t, db, 4, false)
	cfg := a.config()
	cfg.Device = b.device
	id, err := measurement.Measure(t.Context(), cfg, b.memory(time.Millisecond))
	if id != 0 || !errors.Is(err, measurement.ErrWrongGPU) ||
		!strings.Contains(err.Error(), "measures "+a.device.Info().UUID+", and the work is for "+b.device.Info().UUID) {
		t.Errorf("task %d: %v", id, err)
	}
	cfg = b.config()
	cfg.MustSayGPU = true
	if id, err := measurement.Measure(t.Context(), cfg, b.memory(time.Millisecond)); id != 0 ||
		!errors.Is(err, measurement.ErrWrongGPU) {
		t.Errorf("task %d: %v", id, err)
	}
	a.mustBeFree(t)
	b.mustBeFree(t)
	id, err = measurement.Measure(t.Context(), a.config(), a.memory(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if task := a.task(t, id); task.BenchGPU != a.device.Info().UUID || task.BenchGPU != task.GPUUUID {
		t.Errorf("the bench of %q, GPU %q", task.BenchGPU, task.GPUUUID)
	}
}
