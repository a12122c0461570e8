package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
)

// GPUSensor is a GPU's own power sensor; the caller closes it.
type GPUSensor interface {
	gpu.PowerSensor
	Close() error
}

// FoundGPU is a GPU without a context on it. Open it once its bench is held: a context would
// disturb another measurement of the card.
type FoundGPU struct {
	gpu.Device
	OpenSensor func() (GPUSensor, error)
	sensor     GPUSensor // nil until Sensor has opened it
}

// Sensor returns the GPU's own sensor, which it opens at the first call and Close closes.
func (g *FoundGPU) Sensor() (gpu.PowerSensor, error) {
	if g.sensor == nil {
		s, err := g.OpenSensor()
		if err != nil {
			return nil, err // s may hold a nil pointer
		}
		g.sensor = s
	}
	return g.sensor, nil
}

// OpenToMeasure creates the context and opens the GPU's own sensor, unless without it. The
// meter measures all the same where the sensor fails: that is a warning, which calls it called.
func (g *FoundGPU) OpenToMeasure(ctx context.Context, a *cli.App, without bool, called string) (gpu.PowerSensor, error) {
	if err := g.Open(ctx); err != nil || without {
		return nil, err
	}
	s, err := g.Sensor()
	if err != nil {
		fmt.Fprintf(a.Err, "wattmark: %s is left out: %v\n", called, err)
	}
	return s, nil
}

// Close closes the sensor, if it was opened, and the GPU.
func (g *FoundGPU) Close() error {
	var err error
	if g.sensor != nil {
		err = g.sensor.Close()
	}
	return errors.Join(err, g.Device.Close())
}

// FindGPU returns the GPU of a selector, not yet opened: "sim:SOCKET", else a real one
// (FindCUDA).
func FindGPU(selector string) (*FoundGPU, error) {
	if socket, ok := strings.CutPrefix(selector, sim.Prefix); ok {
		dev, sensor, err := sim.FindRemote(socket, nil)
		if err != nil {
			return nil, err
		}
		return &FoundGPU{Device: dev, OpenSensor: func() (GPUSensor, error) { return sensor, nil }}, nil
	}
	dev, err := FindCUDA(selector)
	if err != nil {
		return nil, err
	}
	open := func() (GPUSensor, error) { return nvml.Open(dev.Info().PCIBusID) }
	return &FoundGPU{Device: dev, OpenSensor: open}, nil
}

// FindCUDA returns a real GPU, not yet opened. If NVML does not identify the GPU of the
// selector, its identity is known only after it is opened.
func FindCUDA(selector string) (*cuda.Device, error) {
	info := gpu.Info{}
	found, ok, err := measurement.LocateGPUs(cmp.Or(selector, "0"))
	if err != nil {
		return nil, cli.Usagef("--gpu: %w", err)
	}
	if ok && len(found) == 1 {
		info, selector = found[0], found[0].UUID
	}
	if err := cuda.Loads(); err != nil {
		return nil, fmt.Errorf("%w\nWithout a GPU, wattmark demo shows the whole job in software", err)
	}
	return cuda.Find(selector, info), nil
}

// Open creates the context. A real card in MIG mode is an error: its power is not one user's.
func (g *FoundGPU) Open(ctx context.Context) error {
	if err := OpenDevice(ctx, g.Device); err != nil {
		return err
	}
	if g.Info().Simulated {
		return nil
	}
	return measurement.WholeGPU(g.Info())
}

// OpenDevice creates the context of a device that was found only; nothing for other devices.
func OpenDevice(ctx context.Context, d gpu.Device) error {
	if o, ok := d.(gpu.Opener); ok {
		return o.Open(ctx)
	}
	return nil
}
