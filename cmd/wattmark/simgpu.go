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
	"syscall"
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

// plantService lets a simulated GPU in another process load a board: one of them for each
// connection. Its methods have the form that net/rpc wants.
type plantService struct {
	live *board.Live
	card *card
	self *cardUser
}

// Hello says which process it is.
func (s *plantService) Hello(p hostagent.ProcessUse, _ *bool) error {
	s.self.pid, s.self.name = p.PID, p.Name
	return nil
}

// Processes tells which processes have contexts.
func (s *plantService) Processes(t TimeSpan, out *[]hostagent.ProcessUse) error {
	caller := callerSays(t.Sent)
	*out = s.card.processes(caller.here(t.From), caller.here(t.To))
	return nil
}

// LoadChange asks for a load at a time of day. net/rpc wants it exported. Sent, in this
// and the other questions, is when it is asked, by the clock that its times are of.
type LoadChange struct {
	At   time.Time
	Load uint8
	Sent time.Time
}

// StepsChange asks for many steps of load at once. net/rpc wants it exported.
type StepsChange struct {
	At    time.Time
	Steps []board.Step
	Sent  time.Time
}

// TimeSpan is a span of the time of day.
type TimeSpan struct{ From, To, Sent time.Time }

// callerTime brings a caller's times of day to this process's monotonic clock, by which the
// board runs: a wall clock that is set moves nothing. The two read one clock, unless more
// than any call takes lies between what they read.
type callerTime struct {
	now   time.Time // here
	ahead time.Duration
}

func callerSays(sent time.Time) callerTime {
	c := callerTime{now: time.Now()}
	const longestCall = 100 * time.Millisecond
	if off := sent.Sub(c.now.Round(0)); !sent.IsZero() && off.Abs() > longestCall {
		c.ahead = off
	}
	return c
}

// here is a caller's time on this process's clock, there the reverse.
func (c callerTime) here(t time.Time) time.Time {
	return c.now.Add(t.Sub(c.now.Round(0)) - c.ahead)
}

func (c callerTime) there(t time.Time) time.Time {
	return c.now.Round(0).Add(t.Sub(c.now) + c.ahead)
}

// SetLoad returns when the load really changes.
func (s *plantService) SetLoad(c LoadChange, at *time.Time) error {
	caller := callerSays(c.Sent)
	lay := func() (time.Time, error) {
		return s.card.lay(s.self, caller.here(c.At), []board.Step{{Load: board.Load(c.Load)}})
	}
	if board.Load(c.Load) == board.Idle {
		lay = func() (time.Time, error) { return s.card.leave(s.self, caller.here(c.At)) }
	}
	begin, err := lay()
	*at = caller.there(begin)
	return err
}

// SetSteps returns when the first step really begins.
func (s *plantService) SetSteps(c StepsChange, at *time.Time) error {
	caller := callerSays(c.Sent)
	begin, err := s.card.lay(s.self, caller.here(c.At), c.Steps)
	*at = caller.there(begin)
	return err
}

// Cancel drops what was laid down for after an instant, From.
func (s *plantService) Cancel(after TimeSpan, _ *bool) error {
	s.card.cancel(s.self, callerSays(after.Sent).here(after.From))
	return nil
}

// MeanPower is the true mean power in watts, NaN where it is forgotten.
func (s *plantService) MeanPower(t TimeSpan, watts *float64) error {
	caller := callerSays(t.Sent)
	*watts = float64(s.live.MeanPower(caller.here(t.From), caller.here(t.To)))
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
	caller := callerSays(q.Sent)
	e, err := s.live.Energy(caller.here(q.From), caller.here(q.To))
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
	shared := &card{live: live}
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("--gpu: %w", err)
		}
		go shared.serve(c) // ends with the connection
	}
}

// serve lets one process use the card. What it has left there at its end goes with it.
func (k *card) serve(c net.Conn) {
	self := &cardUser{}
	server := rpc.NewServer()
	if server.RegisterName("Plant", &plantService{k.live, k, self}) != nil { // its methods are those of a service
		_ = c.Close()
		return
	}
	server.ServeConn(c)
	if k.has(self) {
		_, _ = k.leave(self, time.Now())
	}
}

// remotePlant is a board in another process. It is safe for concurrent use.
type remotePlant struct{ c *rpc.Client }

func (p remotePlant) SetLoad(at time.Time, l sim.Load) (begin time.Time, err error) {
	err = p.c.Call("Plant.SetLoad", LoadChange{at, uint8(l), time.Now()}, &begin)
	return since(at, begin), err
}

func (p remotePlant) SetSteps(at time.Time, steps []sim.Step) (begin time.Time, err error) {
	err = p.c.Call("Plant.SetSteps", StepsChange{at, boardSteps(steps), time.Now()}, &begin)
	return since(at, begin), err
}

// since is an answer's time of day on the monotonic clock of the time that was asked for,
// on which it is awaited and held against other times.
func since(asked, answer time.Time) time.Time { return asked.Add(answer.Sub(asked.Round(0))) }

// Cancel needs no answer: a board that is gone has nothing laid down.
func (p remotePlant) Cancel(after time.Time) {
	_ = p.c.Call("Plant.Cancel", TimeSpan{From: after, Sent: time.Now()}, nil)
}

func (p remotePlant) MeanPower(from, to time.Time) measure.Watt {
	w := math.NaN()
	if p.c.Call("Plant.MeanPower", TimeSpan{from, to, time.Now()}, &w) != nil {
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

// sharedSensor also tells which processes use the card.
type sharedSensor struct {
	simSensor
	plant remotePlant
}

// Processes asks the emulator.
func (s sharedSensor) Processes(within hostagent.Span) (out []hostagent.ProcessUse, err error) {
	err = s.plant.c.Call("Plant.Processes", TimeSpan{within.Start, within.End, time.Now()}, &out)
	return out, err
}

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

// findSim finds the simulated GPU of an emulator; k is the kernel that its trains
// launch, nil for the built-in ones.
func findSim(socket string, k *sim.Kernel) (hostagent.Device, gpuSensor, error) {
	c, err := dialPlant(socket)
	if err != nil {
		return nil, nil, err
	}
	p := remotePlant{c}
	_ = c.Call("Plant.Hello", hostagent.ProcessUse{PID: os.Getpid(), Name: filepath.Base(os.Args[0])}, nil) // without it, it has no name there
	dev, err := sim.Find(sim.Config{Plant: p, Launch: simLaunch, Kernel: k, Seed: simSeed(socket)})
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return simDevice{dev, p}, sharedSensor{simSensor{sim.NewSensor(p, sim.Wall{}, sim.Response{})}, p}, nil
}

// foundGPU is a GPU that has been found, and is opened once its bench is held: a context
// on a card would disturb whoever measures it. The device is not open before open.
type foundGPU struct {
	hostagent.Device
	openSensor func() (gpuSensor, error)
}

// findGPU finds the GPU that a selector names, without a context on it.
func findGPU(selector string) (*foundGPU, error) {
	if socket, ok := strings.CutPrefix(selector, simPrefix); ok {
		dev, sensor, err := findSim(socket, nil)
		if err != nil {
			return nil, err
		}
		return &foundGPU{dev, func() (gpuSensor, error) { return sensor, nil }}, nil
	}
	dev, err := findCUDA(selector)
	if err != nil {
		return nil, err
	}
	return &foundGPU{dev, func() (gpuSensor, error) { return nvml.Open(dev.Info().PCIBusID) }}, nil
}

// findCUDA finds a real GPU. Where NVML does not tell which one is meant, its identity is
// known when it is open.
func findCUDA(selector string) (*cuda.Device, error) {
	info := hostagent.Info{}
	found, ok, err := gpus.Locate(firstOf(selector, "0"))
	if err != nil {
		return nil, withCode(exitUsage, fmt.Errorf("--gpu: %w", err))
	}
	if ok && len(found) == 1 {
		info, selector = found[0], found[0].UUID
	}
	if err := cuda.Loads(); err != nil {
		return nil, fmt.Errorf("%w\nWithout a GPU, wattmark demo shows the whole job in software", err)
	}
	return cuda.Find(selector, info), nil
}

// open makes the context, and refuses a card that is cut in parts.
func (g *foundGPU) open(ctx context.Context) error {
	if err := openDevice(ctx, g.Device); err != nil {
		return err
	}
	if g.Info().Simulated {
		return nil
	}
	return gpus.Whole(g.Info())
}

// openDevice makes the context of a device that was only found.
func openDevice(ctx context.Context, d hostagent.Device) error {
	if o, ok := d.(hostagent.Opener); ok {
		return o.Open(ctx)
	}
	return nil
}

// removeStale removes a socket that nobody serves any more.
func removeStale(socket string) {
	i, err := os.Lstat(socket)
	if err != nil || i.Mode()&os.ModeSocket == 0 {
		return
	}
	c, err := net.Dial("unix", socket)
	if err == nil {
		_ = c.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) { // any other error says nothing of who listens
		_ = os.Remove(socket)
	}
}
