package main

import (
	"context"
	"math"

	hostnvml "wattmark/hostagent/nvml"
	"wattmark/measure"
	"wattmark/monitor"
	"wattmark/monitor/bench"
	"wattmark/monitor/calibration"
	"wattmark/monitor/instrument/nvml"
	"wattmark/monitor/instrument/registry"
)

// openBench makes what a monitor measures with, from a bench file or from the
// meter's own description, under the calibration records in force. Nothing is opened yet; the closer is for the end.
func openBench(f benchFlags) (monitor.Bench, func() error, error) {
	b, err := f.load()
	if err != nil {
		return monitor.Bench{}, nil, err
	}
	return makeBench(b, f.folder())
}

// folder is where the calibration records are; empty for none.
func (f benchFlags) folder() calibration.Folder {
	if f.nominal {
		return ""
	}
	return calibration.Folder(firstOf(f.records, string(calibration.Beside(f.file))))
}

// load reads the bench file, or the meter's own description.
func (f benchFlags) load() (b *bench.Bench, err error) {
	if f.file != "" {
		b, err = bench.Load(f.file)
	} else {
		b, err = bench.Default(f.instrument, firstOf(f.port, f.gpu))
	}
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	return b, nil
}

// makeBench makes a bench's instruments, under the calibration records of a folder;
// nothing is opened yet.
func makeBench(b *bench.Bench, records calibration.Folder) (monitor.Bench, func() error, error) {
	meter, err := b.NewInstrument(registry.Env{NVML: openNVML})
	if err != nil {
		return monitor.Bench{}, nil, err
	}
	return monitor.Bench{Name: b.Name, GPU: b.GPU, Instrument: meter, Setup: b.Setup, Calibrate: records.Calibrate}, meter.Close, nil
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
