package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"wattmark/hostagent"
	"wattmark/hostagent/cuda"
	"wattmark/hostagent/gpus"
	"wattmark/hostagent/nvml"
	"wattmark/hostagent/sim"
	"wattmark/measure"
	"wattmark/monitor/emulator/board"
)

// simPrefix before a socket's path selects the simulated GPU of an emulated
// meter instead of a real one.
const simPrefix = "sim:"

// plantService lets a simulated GPU in another process load a board. Its
// methods have the form that net/rpc wants.
type plantService struct{ live *board.Live }

// LoadChange asks for a load at a time of day. net/rpc wants it exported.
type LoadChange struct {
	At   time.Time
	Load uint8
}

// StepsChange asks for many steps of load at once. net/rpc wants it exported.
type StepsChange struct {
	At    time.Time
	Steps []board.Step
}

// TimeSpan is a span of the time of day.
type TimeSpan struct{ From, To time.Time }

// SetLoad returns when the load really changes.
func (s *plantService) SetLoad(c LoadChange, at *time.Time) (err error) {
	*at, err = s.live.SetLoad(c.At, board.Load(c.Load))
	return err
}

// SetSteps returns when the first step really begins.
func (s *plantService) SetSteps(c StepsChange, at *time.Time) (err error) {
	*at, err = s.live.SetSteps(c.At, c.Steps)
	return err
}

// Cancel drops what was laid down for after an instant.
func (s *plantService) Cancel(after time.Time, _ *bool) error {
	s.live.Cancel(after)
	return nil
}

// MeanPower is the true mean power in watts, NaN where it is forgotten.
func (s *plantService) MeanPower(t TimeSpan, watts *float64) error {
	*watts = float64(s.live.MeanPower(t.From, t.To))
	return nil
}

// SourceChange puts something on rails in the card's place. net/rpc wants it
// exported.
type SourceChange struct {
	Rails   []string // none for all
	Card    bool     // back to the card
	Volts   float64
	Amperes float64
}

// Connect changes what is on the meter's inputs.
func (s *plantService) Connect(c SourceChange, _ *bool) error {
	if len(c.Rails) == 0 {
		for _, r := range s.live.Rails() {
			c.Rails = append(c.Rails, r.Name)
		}
	}
	var on *board.Reading
	if !c.Card {
		on = &board.Reading{V: measure.Volt(c.Volts), I: measure.Ampere(c.Amperes)}
	}
	var errs []error
	for _, r := range c.Rails {
		errs = append(errs, s.live.Connect(r, on))
	}
	return errors.Join(errs...)
}

// Energy is the true energy of some rails in joules; none named for all.
func (s *plantService) Energy(q RailSpan, joules *float64) error {
	e, err := s.live.Energy(q.From, q.To)
	if err != nil {
		return err
	}
	for i, r := range s.live.Rails() {
		if len(q.Rails) == 0 || slices.Contains(q.Rails, r.Name) {
			*joules += float64(e.Rails[i])
		}
	}
	return nil
}

// RailSpan is a span of the time of day, on some rails.
type RailSpan struct {
	TimeSpan
	Rails []string
}

// servePlant serves a board on a Unix socket until ctx ends.
func servePlant(ctx context.Context, socket string, live *board.Live) error {
	removeStale(socket)
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("--gpu: %w: is another emulator serving it? choose another name", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	server := rpc.NewServer()
	if err := server.RegisterName("Plant", &plantService{live}); err != nil {
		return errors.Join(err, l.Close())
	}
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("--gpu: %w", err)
		}
		go server.ServeConn(c) // ends with the connection
	}
}

// remotePlant is a board in another process. It is safe for concurrent use.
type remotePlant struct{ c *rpc.Client }

func (p remotePlant) SetLoad(at time.Time, l sim.Load) (begin time.Time, err error) {
	err = p.c.Call("Plant.SetLoad", LoadChange{at, uint8(l)}, &begin)
	return begin, err
}

func (p remotePlant) SetSteps(at time.Time, steps []sim.Step) (begin time.Time, err error) {
	err = p.c.Call("Plant.SetSteps", StepsChange{at, boardSteps(steps)}, &begin)
	return begin, err
}

// Cancel needs no answer: a board that is gone has nothing laid down.
func (p remotePlant) Cancel(after time.Time) { _ = p.c.Call("Plant.Cancel", after, nil) }

func (p remotePlant) MeanPower(from, to time.Time) measure.Watt {
	w := math.NaN()
	if p.c.Call("Plant.MeanPower", TimeSpan{from, to}, &w) != nil {
		return measure.Watt(math.NaN())
	}
	return measure.Watt(w)
}

// simLaunch leaves time to lay a marker's first chips down in another process
// before they are due.
const simLaunch = 5 * time.Millisecond

// simDevice is a simulated GPU that ends its connection when it is closed.
type simDevice struct {
	*sim.Device
	plant remotePlant
}

func (d simDevice) Close() error {
	return errors.Join(d.Device.Close(), d.plant.c.Close())
}

// gpuSensor is a GPU's own sensor, to be closed at the end.
type gpuSensor interface {
	hostagent.PowerSensor
	Close() error
}

// simSensor lives as long as its device.
type simSensor struct{ hostagent.PowerSensor }

func (simSensor) Close() error { return nil }

func dialPlant(socket string) (*rpc.Client, error) {
	c, err := rpc.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("simulated GPU: %w: is wattmark emulate --gpu %s running?", err, socket)
	}
	return c, nil
}

// simSeed makes each socket's GPU one of its own: its UUID follows from the seed.
func simSeed(socket string) uint64 {
	if abs, err := filepath.Abs(socket); err == nil {
		socket = abs
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(socket))
	return h.Sum64() & (1<<48 - 1)
}

// openSim opens the simulated GPU of an emulator; k is the kernel that its trains
// launch, nil for the built-in ones.
func openSim(socket string, k *sim.Kernel) (hostagent.Device, gpuSensor, error) {
	c, err := dialPlant(socket)
	if err != nil {
		return nil, nil, err
	}
	p := remotePlant{c}
	dev, err := sim.Open(sim.Config{Plant: p, Launch: simLaunch, Kernel: k, Seed: simSeed(socket)})
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return simDevice{dev, p}, simSensor{sim.NewSensor(p, sim.Wall{}, sim.Response{})}, nil
}

// openGPU opens the GPU that a selector names, and a function that opens its sensor.
func openGPU(ctx context.Context, selector string) (hostagent.Device, func() (gpuSensor, error), error) {
	if socket, ok := strings.CutPrefix(selector, simPrefix); ok {
		dev, sensor, err := openSim(socket, nil)
		return dev, func() (gpuSensor, error) { return sensor, nil }, err
	}
	dev, err := cuda.Open(ctx, selector)
	if err != nil {
		return nil, nil, fmt.Errorf("%w\nWithout a GPU, wattmark demo shows the whole job in software", err)
	}
	if err := gpus.Whole(dev.Info()); err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	return dev, func() (gpuSensor, error) { return nvml.Open(dev.Info().PCIBusID) }, nil
}

// removeStale removes a socket that nobody serves any more.
func removeStale(socket string) {
	i, err := os.Lstat(socket)
	if err != nil || i.Mode()&os.ModeSocket == 0 {
		return
	}
	if c, err := net.Dial("unix", socket); err == nil {
		_ = c.Close()
		return
	}
	_ = os.Remove(socket)
}
