package monitor

import (
	"strings"
	"testing"

	"wattmark/api/wattmarkv1"
	"wattmark/monitor/instrument"
)

const (
	gpuA = "GPU-8f6e1f2a-0b1c-2d3e-4f50-6172839405af"
	gpuB = "GPU-00000000-0000-0000-0000-000000000002"
)

// sensorRamp is a GPU's own sensor.
type sensorRamp struct {
	ramp
	gpu string
}

func (s *sensorRamp) Identity() instrument.Identity {
	return instrument.Identity{Kind: "nvml", Serial: s.gpu}
}

// A bench says which GPU it measures, in GetBench and in the stream's header.
func TestBenchSaysItsGPU(t *testing.T) {
	for _, c := range []struct{ name, said, sensor, want, fail string }{
		{"said", gpuA, "", gpuA, ""},
		{"not said", "", "", "", ""},
		{"its own sensor", "", strings.ToUpper(gpuB), gpuB, ""},
		{"its own sensor, said too", gpuB, gpuB, gpuB, ""},
		{"another's sensor", gpuA, gpuB, gpuA, "wrong instrument: the bench measures " + gpuA + ", and this is the sensor of " + gpuB},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := rampConfig(t.TempDir())
			cfg.Bench.GPU, cfg.Bench.Instrument = c.said, &sensorRamp{ramp{rate: 50e3}, c.sensor}
			client, _, _ := serve(t, cfg)
			bench, err := client.GetBench(t.Context(), &wattmarkv1.GetBenchRequest{})
			if err != nil || bench.GpuUuid != c.want {
				t.Errorf("bench of %q, %v; want %q", bench.GetGpuUuid(), err, c.want)
			}
			s, err := client.StartCapture(t.Context(), &wattmarkv1.StartCaptureRequest{Holder: "ada@lab", TaskName: "gemm"})
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got %v, want %s", err, c.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.StopCapture(t.Context(), &wattmarkv1.StopCaptureRequest{CaptureId: s.CaptureId}); err != nil {
				t.Fatal(err)
			}
			got, err := read(t, client, &wattmarkv1.ReadCaptureRequest{CaptureId: s.CaptureId}, 0)
			if err != nil || got.header.GpuUuid != c.want {
				t.Errorf("header of %q, %v; want %q", got.header.GetGpuUuid(), err, c.want)
			}
		})
	}
}
