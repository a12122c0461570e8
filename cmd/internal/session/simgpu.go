package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cuda"
	"github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/measure"
)

// SimPrefix before a socket's path selects the simulated GPU of an emulated
// meter instead of a real one.
const SimPrefix = "sim:"

// RemotePlant is a board in another process. It is safe for concurrent use.
type RemotePlant struct{ c *PlantClient }

// SetLoad sets the load from an instant on, and returns the actual instant.
func (p RemotePlant) SetLoad(at time.Time, l sim.Load) (begin time.Time, err error) {
	err = p.c.Call("SetLoad", LoadChange{at, uint8(l), time.Now()}, &begin)
	return onClockOf(at, begin), err
}

// SetSteps schedules steps of load from an instant on, and returns the actual beginning.
func (p RemotePlant) SetSteps(at time.Time, steps []sim.Step) (begin time.Time, err error) {
	err = p.c.Call("SetSteps", StepsChange{at, boardSteps(steps), time.Now()}, &begin)
	return onClockOf(at, begin), err
}

// onClockOf returns the answer, a time of day, on the monotonic clock of asked, so that it can
// be waited for and compared with other local times.
func onClockOf(asked, answer time.Time) time.Time { return asked.Add(answer.Sub(asked.Round(0))) }

// Cancel removes the steps after an instant. Errors are ignored: a board whose process has
// ended has no steps.
func (p RemotePlant) Cancel(after time.Time) {
	_ = p.c.Call("Cancel", TimeSpan{From: after, Sent: time.Now()}, nil)
}

// MeanPower returns the true mean power of a span; NaN if it is unknown.
func (p RemotePlant) MeanPower(from, to time.Time) measure.Watt {
	var w measure.Watt
	if p.c.Call("MeanPower", TimeSpan{from, to, time.Now()}, &w) != nil {
		return measure.Watt(math.NaN())
	}
	return w
}

// SimLaunch is the delay of a simulated launch: time to schedule a marker's first chips in
// the emulator's process before they are due.
const SimLaunch = 5 * time.Millisecond

// SimDevice is a simulated GPU with its connection to the emulator, which Close closes.
type SimDevice struct {
	*sim.Device
	Plant RemotePlant
}

// Close ends the context and closes the connection.
func (d SimDevice) Close() error {
	return errors.Join(d.Device.Close(), d.Plant.c.Close())
}

// GPUSensor is a GPU's own power sensor; the caller closes it.
type GPUSensor interface {
	gpu.PowerSensor
	Close() error
}

// simSensor is the sensor of a simulated GPU, which also lists the processes on the card. It
// shares the device's connection.
type simSensor struct {
	gpu.PowerSensor
	plant RemotePlant
}

// Processes returns the processes on the card within a span, from the emulator.
func (s simSensor) Processes(within gpu.Span) (out []gpu.ProcessUse, err error) {
	err = s.plant.c.Call("Processes", TimeSpan{within.Start, within.End, time.Now()}, &out)
	return out, err
}

// Close does nothing: the device closes the connection.
func (simSensor) Close() error { return nil }

// SimSeed returns the seed of the simulated GPU of a socket, a 48-bit hash of its absolute
// path: the GPU's UUID follows from the seed and thus differs between sockets.
func SimSeed(socket string) uint64 {
	if abs, err := filepath.Abs(socket); err == nil {
		socket = abs
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(socket))
	return h.Sum64() & (1<<48 - 1)
}

// FindSim returns the simulated GPU of an emulator, not yet opened, and its sensor. k is the
// kernel that its trains launch; nil for the built-in ones.
func FindSim(socket string, k *sim.Kernel) (gpu.Device, GPUSensor, error) {
	c, err := DialPlant(socket)
	if err != nil {
		return nil, nil, err
	}
	p := RemotePlant{c}
	// If this fails, the process only lacks a name in the list of processes.
	_ = c.Call("Hello", gpu.ProcessUse{PID: os.Getpid(), Name: filepath.Base(os.Args[0])}, nil)
	dev, err := sim.Find(sim.Config{Plant: p, Launch: SimLaunch, Kernel: k, Seed: SimSeed(socket)})
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return SimDevice{dev, p}, simSensor{sim.NewSensor(p, sim.Wall{}, sim.Response{}), p}, nil
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
	if socket, ok := strings.CutPrefix(selector, SimPrefix); ok {
		dev, sensor, err := FindSim(socket, nil)
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
