package bench

import (
	"errors"
	"strings"
	"testing"
)

const (
	gpuA = "GPU-8f6e1f2a-0b1c-2d3e-4f50-6172839405af"
	gpuB = "GPU-00000000-0000-0000-0000-000000000002"
)

func TestBenchIsBoundToAGPU(t *testing.T) {
	for _, c := range []struct{ name, text, want, fail string }{
		{"said", "gpu: " + strings.ToLower(gpuA) + "\ninstruments: [{kind: replay, address: x}]", gpuA, ""},
		{"not said", "instruments: [{kind: replay, address: x}]", "", ""},
		{"its own sensor", "instruments: [{kind: nvml, address: " + gpuB + "}]", gpuB, ""},
		{"its own sensor, said too", "gpu: " + gpuB + "\ninstruments: [{kind: nvml, address: " + gpuB + "}]", gpuB, ""},
		{"sensor of an index", "instruments: [{kind: nvml, address: \"1\"}]", "", ""},
		{"another's sensor", "gpu: " + gpuA + "\ninstruments: [{kind: nvml, address: " + gpuB + "}]", "", "b.yaml:1:6: gpu: the bench measures " + gpuA + ", and its instrument is the sensor of " + gpuB},
		{"an index", "gpu: 0\ninstruments: [{kind: replay, address: x}]", "", `b.yaml:1:6: gpu: "0" is not the UUID of a GPU: want GPU-`},
		{"a MIG device", "gpu: MIG-8f6e1f2a-0b1c-2d3e-4f50-6172839405af\ninstruments: [{kind: replay, address: x}]", "", "gpu: \"MIG-8f6e1f2a-0b1c-2d3e-4f50-6172839405af\" is a MIG device"},
		{"misspelt", "gpus: " + gpuA + "\ninstruments: [{kind: replay, address: x}]", "", `b.yaml:1:1: unknown field "gpus"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := Parse("b.yaml", []byte(c.text))
			var e *Error
			if c.fail != "" {
				if !errors.As(err, &e) || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("got %v, want %s", err, c.fail)
				}
				return
			}
			if err != nil || b.GPU != c.want {
				t.Errorf("got %+v, %v; want %s", b, err, c.want)
			}
		})
	}
	if b, err := Default("nvml", gpuA); err != nil || b.GPU != gpuA {
		t.Errorf("without a file: %+v, %v", b, err)
	}
}
