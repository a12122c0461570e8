package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/hostagent/gpu"
)

func TestListMakesNoContext(t *testing.T) {
	g := newFakeGPU()
	got, err := g.driver().list()
	if err != nil {
		t.Fatal(err)
	}
	want := []gpu.Info{
		{
			Name: "Fake GPU", UUID: "GPU-ab000000-0000-0000-0000-000000000000", PCIBusID: "0000:3b:00.0",
			Driver: "CUDA 13.0",
		},
		{
			Name: "Fake GPU", UUID: "GPU-ab000000-0000-0000-0000-000000000001", PCIBusID: "0000:65:00.0",
			Driver: "CUDA 13.0",
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if g.count("retain") != 0 {
		t.Error("a context was made")
	}
	g = newFakeGPU()
	g.fail["init"] = errNoDevice
	if _, err := g.driver().list(); !errors.Is(err, ErrNoDevice) ||
		!strings.Contains(err.Error(), "CUDA_VISIBLE_DEVICES") {
		t.Errorf("without a GPU: %v", err)
	}
}

func TestMIGIsRefused(t *testing.T) {
	g := newFakeGPU()
	if _, err := open(t.Context(), g.driver(), "MIG-8f6e1f2a-0b1c-2d3e-4f50-6172839405af"); !errors.Is(err,
		gpu.ErrMIG) {
		t.Errorf("by its UUID: %v", err)
	}
	drv := g.driver()
	drv.DeviceName = func(p *byte, n, _ int32) result { put(p, n, "NVIDIA A100-SXM4-40GB MIG 1g.5gb"); return success }
	if _, err := open(t.Context(), drv, ""); !errors.Is(err, gpu.ErrMIG) {
		t.Errorf("by its name: %v", err)
	}
	if g.count("retain") != 0 {
		t.Error("a context was made")
	}
}
