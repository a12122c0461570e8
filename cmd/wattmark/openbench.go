package main

import (
	"context"
	"math"

	"wattmark/hostagent"
	hostnvml "wattmark/hostagent/nvml"
	"wattmark/measure"
	"wattmark/monitor"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/nvml"
	"wattmark/monitor/instrument/registry"
)

func openBench(f benchFlags) (monitor.Bench, func() error, error) {
	k, err := registry.Lookup(f.instrument)
	if err != nil {
		return monitor.Bench{}, nil, err
	}
	addr := firstOf(f.port, f.gpu)
	d, err := k.New(registry.Env{NVML: openNVML}, addr, k.Options())
	if err != nil {
		return monitor.Bench{}, nil, err
	}
	return monitor.Bench{Name: f.instrument, Instrument: d, Setup: func(in instrument.Inputs) (measure.Setup, error) {
		rails, missing := k.Rails(in)
		s := measure.Setup{Timebase: in.Timebase, Response: in.Response, Channels: in.Channels, Rails: rails, Missing: missing}
		return s, s.Validate()
	}}, d.Close, nil
}

// gpuMeter lets the monitor's nvml driver read a GPU through the host agent's
// bindings: the monitor itself knows no GPU library.
type gpuMeter struct{ *hostnvml.Device }

func openNVML(_ context.Context, gpu string) (nvml.Sensor, error) {
	d, err := hostnvml.Open(gpu)
	if err != nil {
		return nil, err
	}
	return gpuMeter{d}, nil
}

func (g gpuMeter) Info() nvml.Info {
	i := g.Device.Info()
	return nvml.Info{Name: i.Name, UUID: i.UUID, Driver: i.Driver}
}

func (g gpuMeter) Read() (nvml.Reading, error) {
	r, err := g.Device.Read()
	return nvml.Reading{Instant: milliwatts(r.Instant), Average: milliwatts(r.Average), Usage: milliwatts(r.Usage)}, err
}

// milliwatts is exact: the registers count milliwatts.
func milliwatts(w measure.Watt) int32 {
	mw := math.Round(1e3 * float64(w))
	if math.IsNaN(mw) || mw < 0 || mw > math.MaxInt32 {
		return nvml.NoReading
	}
	return int32(mw)
}

var _ hostagent.PowerSensor = (*hostnvml.Device)(nil)
