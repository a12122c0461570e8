package main

import (
	"errors"
	"fmt"
	"strings"

	"wattmark/hostagent/cuda"
	"wattmark/hostagent/cupti"
	"wattmark/hostagent/nvml"
)

// driver looks for libcuda, NVML and their GPUs.
func (d *doctor) driver() (out []finding) {
	missing := warn
	if d.role == roleHost {
		missing = failed
	}
	cards, err := d.cards()
	switch {
	case errors.Is(err, nvml.ErrNoNVML):
		out = append(out, missing("NVML", "install NVIDIA's driver; the machine with the meter needs none", "%s", firstLineOf(err)))
	case err != nil:
		out = append(out, failed("NVML", "look at nvidia-smi; after an update of the driver, restart the machine", "%s", firstLineOf(err)))
	case len(cards) == 0:
		out = append(out, missing("NVML", "look at nvidia-smi and lspci", "the driver sees no GPU"))
	}
	for i, c := range cards {
		if c.Cut {
			out = append(out, warn("MIG", "its energy is the whole card's: switch MIG off (nvidia-smi -i <GPU> -mig 0), or keep the other slices idle",
				"%s (%s) is cut into MIG devices: a meter cannot tell whose power it reads", c.Name, c.UUID))
		}
		if i == 0 {
			out = append(out, ok("NVML", "%s, driver %s, NVML %s: %s", plural(len(cards), "GPU"), c.Driver, firstOf(d.nvmlVersion(), "of an unknown version"), c.Name))
		}
	}
	gpus, err := d.gpus()
	switch {
	case errors.Is(err, cuda.ErrNoDriver):
		out = append(out, missing("CUDA", "install NVIDIA's driver, which brings libcuda.so.1", "%s", firstLineOf(err)))
	case err != nil && len(cards) > 0:
		out = append(out, failed("CUDA", "look at CUDA_VISIBLE_DEVICES and at the driver's log (dmesg)", "%s", firstLineOf(err)))
	case err != nil:
		out = append(out, missing("CUDA", "look at nvidia-smi and CUDA_VISIBLE_DEVICES", "%s", firstLineOf(err)))
	case len(gpus) < len(cards):
		out = append(out, ok("CUDA", "%s; sees %d of %d GPUs (CUDA_VISIBLE_DEVICES=%s)", gpus[0].Driver, len(gpus), len(cards), d.getenv("CUDA_VISIBLE_DEVICES")))
	default:
		out = append(out, ok("CUDA", "%s, %s", gpus[0].Driver, plural(len(gpus), "GPU")))
	}
	return out
}

// recording looks for what run --auto needs, and for who else records.
func (d *doctor) recording() (out []finding) {
	tried := cupti.Candidates(d.getenv, d.glob)
	found := ""
	for _, path := range tried {
		if d.loadable(path) {
			found = path
			break
		}
	}
	if found != "" {
		out = append(out, ok("CUPTI", "%s", found))
	} else {
		out = append(out, warn("CUPTI", "install the CUDA toolkit or the wheel nvidia-cuda-cupti, or name the file with "+cupti.EnvLibrary+"; only run --auto needs it",
			"not found in %s", plural(len(tried), "place")))
	}
	if lib := d.library(); lib != "" {
		out = append(out, ok("libwattmark", "%s", lib))
	} else {
		out = append(out, warn("libwattmark", "make lib, and put libwattmark.so beside wattmark, or into ../lib; run --auto and programs in C need it", "not beside this program"))
	}
	var others []string
	for _, v := range []string{injectionEnv, "NVTX_INJECTION64_PATH", "CUDA_INJECTION32_PATH"} {
		if x := d.getenv(v); x != "" && !strings.Contains(x, "libwattmark") {
			others = append(others, fmt.Sprintf("%s=%s", v, x))
		}
	}
	for _, p := range d.processes() {
		if who, ok := profilers[p]; ok {
			others = append(others, who)
		}
	}
	if len(others) > 0 {
		return append(out, warn("profilers", "end them while run --auto measures: profilers exclude each other, and load the GPU; dcgmi profile --pause for DCGM", "%s", strings.Join(others, "; ")))
	}
	return append(out, ok("profilers", "none seen"))
}

// profilers by the name of their process.
var profilers = map[string]string{
	"nsys": "Nsight Systems runs (nsys)", "ncu": "Nsight Compute runs (ncu)", "nv-hostengine": "DCGM runs (nv-hostengine)",
	"dcgm-exporter": "DCGM's exporter runs (dcgm-exporter)", "nvprof": "nvprof runs",
}
