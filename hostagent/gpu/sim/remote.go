package sim

import (
	"context"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/cupti"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/load"
	"golang.org/x/sys/unix"
)

// Prefix before a socket's path selects the simulated GPU of an emulated meter
// (wattmark emulate --gpu sim:SOCKET) instead of a real one.
const Prefix = "sim:"

// StepsChange is the request for steps of load from a time of day on; idleness alone ends the
// caller's context. Sent, in this and the other requests, is when the caller sends the request.
type StepsChange struct {
	At    time.Time
	Steps []load.Step
	Sent  Moment
}

// TimeSpan is the request for a span of the time of day.
type TimeSpan struct {
	From, To time.Time
	Sent     Moment
}

// Moment is an instant by two clocks of the machine: the time of day, which can be set, and the
// monotonic clock (CLOCK_MONOTONIC), which cannot and is the same in all processes; 0 for unknown.
type Moment struct {
	Day time.Time
	Up  time.Duration
}

// Now returns the present moment.
func Now() Moment {
	var up unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &up) // leaves 0 where there is no such clock
	return Moment{time.Now(), time.Duration(up.Nano())}
}

// Connection calls the board of another process, and is that as a Plant. It is safe for concurrent
// use; calls wait for each other.
type Connection struct {
	mu   sync.Mutex
	conn net.Conn
	in   *gob.Decoder
	out  *gob.Encoder
}

// dialWait is how long Dial waits for an emulator that was started just before.
const dialWait = 2 * time.Second

// Dial connects to the emulator that serves a socket. It blocks for at most dialWait.
func Dial(socket string) (*Connection, error) {
	c, err := net.Dial("unix", socket)
	for end := time.Now().Add(dialWait); err != nil && time.Now().Before(end); c, err = net.Dial("unix", socket) {
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) {
			break
		}
		time.Sleep(dialWait / 100)
	}
	if err != nil {
		return nil, fmt.Errorf("simulated GPU: %w: is wattmark emulate --gpu %s%s running?", err, Prefix, socket)
	}
	return &Connection{conn: c, in: gob.NewDecoder(c), out: gob.NewEncoder(c)}, nil
}

// Call blocks until the board has answered, and stores the result in reply, a pointer, or drops
// it where that is nil.
func (c *Connection) Call(method string, args, reply any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := errors.Join(c.out.Encode(method), c.out.Encode(args)); err != nil {
		return err
	}
	var fault string
	if err := c.in.Decode(&fault); err != nil {
		return err
	}
	if fault != "" {
		return errors.New(fault)
	}
	return c.in.Decode(reply)
}

// Close closes the connection, which ends the caller's context on the card.
func (c *Connection) Close() error { return c.conn.Close() }

// SetSteps schedules steps of load from an instant on, and returns the actual beginning.
func (c *Connection) SetSteps(at time.Time, steps []load.Step) (begin time.Time, err error) {
	err = c.Call("SetSteps", StepsChange{at, steps, Now()}, &begin)
	return OnClockOf(at, begin), err
}

// OnClockOf returns the answer, a time of day, on the monotonic clock of asked, so that it can
// be waited for and compared with other local times.
func OnClockOf(asked, answer time.Time) time.Time { return asked.Add(answer.Sub(asked.Round(0))) }

// Cancel removes the steps after an instant. Errors are ignored: a board whose process has
// ended has no steps.
func (c *Connection) Cancel(after time.Time) {
	_ = c.Call("Cancel", TimeSpan{From: after, Sent: Now()}, nil)
}

// MeanPower returns the true mean power of a span; NaN if it is unknown.
func (c *Connection) MeanPower(from, to time.Time) measure.Watt {
	var w measure.Watt
	if c.Call("MeanPower", TimeSpan{from, to, Now()}, &w) != nil {
		return measure.Watt(math.NaN())
	}
	return w
}

// RemoteLaunch is the delay of a launch on a remote GPU: time to schedule a marker's first chips
// in the emulator's process before they are due.
const RemoteLaunch = 5 * time.Millisecond

// RemoteDevice is a simulated GPU with its connection to the emulator, which Close closes.
type RemoteDevice struct {
	*Device
	Plant *Connection
	log   *launches
}

// RunBenchmark is Device.RunBenchmark. Its kernel is recorded where wattmark run --auto
// measures this process.
func (d RemoteDevice) RunBenchmark(ctx context.Context, b gpu.Benchmark, length time.Duration) ([]gpu.Kernel, error) {
	k, err := d.Device.RunBenchmark(ctx, b, length)
	return k, errors.Join(err, d.log.record(d.Info(), k))
}

// Close ends the context, the launch log and the connection.
func (d RemoteDevice) Close() error {
	return errors.Join(d.Device.Close(), d.log.end(), d.Plant.Close())
}

// launches is a launch log of the kernels of one simulated GPU in this process. Its file is made
// by the first kernel, in the folder that the environment names; without one nothing is recorded.
type launches struct {
	file *os.File
	w    *launchlog.Writer
}

// record appends kernels to the log.
func (l *launches) record(card gpu.Info, kernels []gpu.Kernel) (err error) {
	dir := os.Getenv(cupti.EnvLogs)
	if dir == "" || len(kernels) == 0 {
		return nil
	}
	if l.w == nil {
		if l.file, err = os.CreateTemp(dir, fmt.Sprintf("%d-*%s", os.Getpid(), cupti.LogSuffix)); err != nil {
			return fmt.Errorf("sim: record kernels: %w", err)
		}
		l.w = launchlog.NewWriter(l.file, uint32(os.Getpid()), 0, time.Now().UnixNano())
		var id [16]byte
		_, _ = hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimPrefix(card.UUID, "GPU-"), "-", "")))
		l.w.Device(0, id)
		if os.Getenv(cupti.EnvSelection) != "" {
			l.w.Trouble("no launch was bracketed: a simulated GPU plays no markers around the kernels of a program")
		}
	}
	for _, k := range kernels {
		n, _ := l.w.Name([]byte(k.Name))
		l.w.Reported(1)
		l.w.Kernel(&launchlog.Kernel{Name: n, Start: k.Span.Start.UnixNano(), End: k.Span.End.UnixNano()})
	}
	return nil
}

// end completes the log, if there is one.
func (l *launches) end() error {
	if l.w == nil {
		return nil
	}
	err := errors.Join(l.w.End(), l.file.Close())
	l.w = nil
	return err
}

// RemoteSensor is the sensor of a simulated GPU, which also lists the processes on the card. It
// shares the device's connection.
type RemoteSensor struct {
	*Sensor
	plant *Connection
}

// Processes returns the processes on the card within a span, from the emulator.
func (s RemoteSensor) Processes(within gpu.Span) (out []gpu.ProcessUse, err error) {
	err = s.plant.Call("Processes", TimeSpan{within.Start, within.End, Now()}, &out)
	return out, err
}

// Close does nothing: the device closes the connection.
func (RemoteSensor) Close() error { return nil }

// SocketSeed returns the seed of the simulated GPU of a socket, a 48-bit hash of its absolute
// path: the GPU's UUID follows from the seed and thus differs between sockets.
func SocketSeed(socket string) uint64 {
	if abs, err := filepath.Abs(socket); err == nil {
		socket = abs
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(socket))
	return h.Sum64() & (1<<48 - 1)
}

// FindRemote returns the simulated GPU of an emulator, not yet opened, and its sensor. k is the
// kernel that its trains launch; nil for the built-in ones.
func FindRemote(socket string, k *Kernel) (RemoteDevice, RemoteSensor, error) {
	c, err := Dial(socket)
	if err != nil {
		return RemoteDevice{}, RemoteSensor{}, err
	}
	// If this fails, the process only lacks a name in the list of processes.
	_ = c.Call("Hello", gpu.ProcessUse{PID: os.Getpid(), Name: filepath.Base(os.Args[0])}, nil)
	dev, err := Find(Config{Plant: c, Launch: RemoteLaunch, Kernel: k, Seed: SocketSeed(socket)})
	if err != nil {
		return RemoteDevice{}, RemoteSensor{}, errors.Join(err, c.Close())
	}
	return RemoteDevice{dev, c, &launches{}}, RemoteSensor{NewSensor(c, Wall{}, Response{}), c}, nil
}
