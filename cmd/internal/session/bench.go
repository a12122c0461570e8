// Package session opens the things a measurement needs: the GPU (real, simulated, or a
// board in software), the bench with its instrument, the monitor, and the work that is
// measured (a benchmark kernel, PTX, or a program). Commands that measure stand on it.
//
//	sim:SOCKET ─ a GPU of another process: calls as gobs, one card a board
//	softBench  ─ board, emulated meter and monitor in one process, for demo and studies
//	Within     ─ a monitor within this process, for run, demo and calibrate
//	work       ─ what runs between the markers, and how it ended
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/amdsmi"
	hostnvml "github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/hostagent/measurement"
	"github.com/wattmark/wattmark/internal/lists"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/measure/serving"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/calibration"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
	"github.com/wattmark/wattmark/store"
)

// OpenBench returns the bench of the flags: from a bench file, else from the instrument's own
// description, with the calibration records in force. The instrument is not opened yet; the
// function returned closes it.
func OpenBench(f BenchFlags) (monitor.Bench, func() error, error) {
	b, err := f.Load()
	if err != nil {
		return monitor.Bench{}, nil, err
	}
	return MakeBench(b, f.Folder())
}

// Folder returns the folder of the calibration records: the one given, else calibration/
// beside the bench file; empty for none.
func (f BenchFlags) Folder() calibration.Folder {
	if f.Nominal {
		return ""
	}
	return calibration.Folder(cmp.Or(f.Records, string(calibration.Beside(f.File))))
}

// Load reads the bench file, or makes a bench from the instrument's own description. Its
// errors are usage errors.
func (f BenchFlags) Load() (b *bench.Bench, err error) {
	if f.File != "" {
		b, err = bench.Load(f.File)
	} else {
		b, err = bench.Default(f.Instrument, cmp.Or(f.Port, f.GPU))
	}
	if err != nil {
		return nil, cli.WithCode(cli.ExitUsage, err)
	}
	return b, nil
}

// MakeBench returns the bench with its instrument and the calibration records of a folder.
// The instrument is not opened yet; the function returned closes it.
func MakeBench(b *bench.Bench, records calibration.Folder) (monitor.Bench, func() error, error) {
	meter, err := b.NewInstrument(registry.Env{
		NVML: func(_ context.Context, selector string) (nvml.Sensor, error) { return openSensor(selector) },
		AMD: func(_ context.Context, selector string) (nvml.Sensor, error) {
			c, err := amdsmi.Open(selector)
			if err != nil {
				return nil, err
			}
			return gpuMeter{c, c.Info, c.Close}, nil
		},
	})
	if err != nil {
		return monitor.Bench{}, nil, err
	}
	return monitor.Bench{Name: b.Name, GPU: b.GPU, Instrument: meter, Setup: b.Setup, Calibrate: records.Calibrate},
		meter.Close, nil
}

// openSensor opens the own sensor of a GPU, a simulated one among them, as a meter.
func openSensor(selector string) (nvml.Sensor, error) {
	if strings.HasPrefix(selector, sim.Prefix) {
		card, err := FindGPU(selector)
		if err != nil {
			return nil, err
		}
		s, err := card.OpenSensor()
		return gpuMeter{s, card.Info(), card.Close}, err
	}
	d, err := hostnvml.Open(selector)
	if err != nil {
		return nil, err
	}
	return gpuMeter{d, d.Info(), d.Close}, nil
}

// gpuMeter adapts the host agent's view of a GPU's sensor to the monitor's nvml driver: package
// monitor must not import a GPU library.
type gpuMeter struct {
	sensor gpu.PowerSensor
	info   gpu.Info
	end    func() error
}

func (g gpuMeter) Close() error { return g.end() }

func (g gpuMeter) Info() nvml.Info {
	return nvml.Info{Name: g.info.Name, UUID: g.info.UUID, Driver: g.info.Driver}
}

// Read returns the powers in mW, NoReading where one is not known.
func (g gpuMeter) Read() (nvml.Reading, error) {
	r, err := g.sensor.Read()
	return nvml.Reading{Instant: milliwatts(r.Instant), Average: milliwatts(r.Average), Usage: milliwatts(r.Usage)}, err
}

// milliwatts converts a power without loss: the registers count milliwatts. NaN and values
// out of range become nvml.NoReading.
func milliwatts(w measure.Watt) int32 {
	mw := math.Round(1e3 * float64(w))
	if math.IsNaN(mw) || mw < 0 || mw > math.MaxInt32 {
		return nvml.NoReading
	}
	return int32(mw)
}

// AddTo adds the flags that choose the bench, but for that of its GPU.
func (f *BenchFlags) AddTo(fl *pflag.FlagSet) {
	fl.StringVar(&f.Instrument, "instrument", "", "meter without a bench file; wattmark instruments --kinds lists them")
	fl.StringVar(&f.Port, "port", "",
		"where the meter is: /dev/ttyACM0, tcp:host:port, usbtmc:/dev/usbtmc0, or a recording")
	fl.StringVar(&f.File, "bench", "", "bench file")
	fl.StringVar(&f.Records, "calibration", "",
		"folder of the calibration records (default: calibration/ beside the bench file)")
}

// Check returns a usage error unless either a bench file or an instrument is named.
func (f *BenchFlags) Check() error {
	if (f.File == "") == (f.Instrument == "") {
		return cli.Usagef("name a bench file with --bench, or a meter with --instrument and --port")
	}
	return nil
}

// BenchFlags select the bench of a monitor: File, or Instrument with Port or GPU.
type BenchFlags struct {
	File, Instrument, Port, GPU string
	Records                     string // folder of the calibration records
	Nominal                     bool   // ignore the calibration records
}

// SoftBench is a bench in software: an emulated board, an emulated PowerSensor3 that measures
// it through a real pseudo-terminal, and a simulated GPU that loads the board, with a sensor of
// its own that is as misleading as a real one.
type SoftBench struct {
	Bench  monitor.Bench
	Device gpu.Device
	Sensor gpu.PowerSensor
	live   *board.Live
	face   *ps3face.Face
	port   *pty.Port
	end    func() error // of Bench
}

// NewSoftBench returns a bench that runs on the wall clock; Close it once. An imperfect meter's
// gains, offsets and clock are off by amounts drawn from the uncertainties that its driver states;
// otherwise they match its stored configuration, and only noise and quantisation remain.
// seed determines the noise and the drawn amounts.
func NewSoftBench(seed uint64, imperfect bool) (*SoftBench, error) {
	b, err := board.New(board.Config{Seed: seed})
	if err != nil {
		return nil, err
	}
	s := &SoftBench{live: board.NewLive(b, time.Now())}
	s.face, err = ps3face.New(b, pace.Real(s.live.Epoch), ps3face.Config{Seed: seed, Draw: imperfect})
	if err != nil {
		return nil, err
	}
	if s.port, err = pty.OpenPort(); err != nil {
		return nil, err
	}
	if s.Bench, s.end, err = OpenBench(BenchFlags{Instrument: "powersensor3", Port: s.port.Path()}); err != nil {
		return nil, errors.Join(err, s.port.Close())
	}
	if s.Device, err = sim.Open(sim.Config{Plant: s.live, Clock: sim.Wall{}}); err != nil {
		return nil, errors.Join(err, s.end(), s.port.Close())
	}
	s.Sensor = sim.NewSensor(s.live, sim.Wall{}, sim.Response{})
	return s, nil
}

// Run runs the meter's firmware until ctx ends.
func (s *SoftBench) Run(ctx context.Context) error { return s.face.Run(ctx, s.port) }

// Close closes the GPU and the meter.
func (s *SoftBench) Close() error { return errors.Join(s.Device.Close(), s.end(), s.port.Close()) }

// Truth returns the energy that the board drew in a span; an error if the span is older than
// the board's memory.
func (s *SoftBench) Truth(from, to time.Time) (measure.Joule, error) {
	e, err := s.live.Energy(from, to)
	if err != nil {
		return 0, errors.Join(errors.New("the board no longer knows that far back"), err)
	}
	return e.Total, nil
}

// CalibrationText returns the calibration in force and its folder as text, with the flags
// that change them.
func (f BenchFlags) CalibrationText(s *measure.Setup) string {
	asked := f
	asked.Nominal = false
	folder, where := asked.Folder(), "--calibration names a folder of them; beside a bench file it is calibration/"
	switch {
	case len(s.Records) > 0:
		where = fmt.Sprintf("from %s; --nominal leaves them out", folder)
	case f.Nominal && folder != "":
		where = fmt.Sprintf("--nominal leaves out those of %s", folder)
	case folder != "":
		where = fmt.Sprintf("looked for in %s", folder)
	}
	return fmt.Sprintf("calibration: %s\n(%s)", RecordsText(s), where)
}

// RecordsText returns the calibration records in force as text.
func RecordsText(s *measure.Setup) string {
	if len(s.Records) == 0 {
		return "nominal scale, no calibration record in force"
	}
	return fmt.Sprintf("%s in force (%s)", measure.Plural(len(s.Records), "calibration record"),
		measure.Printable(strings.Join(s.RecordIDs(), ", ")))
}

// BenchmarkWork returns work that runs a built-in kernel for a time.
func BenchmarkWork(d gpu.Device, b gpu.Benchmark, length time.Duration) measurement.Work {
	return func(ctx context.Context) ([]gpu.Kernel, error) { return d.RunBenchmark(ctx, b, length) }
}

// PulseWork returns work that alternates a kernel (on) with rest (off) for length, the
// pattern that a sensor which averages over a quarter of the time misreads. The error depends
// on the phase between pulses and sensor, so pulses begin at whole periods of the wall clock
// to make runs repeatable. The work ends with the last pulse.
func PulseWork(d gpu.Device, b gpu.Benchmark, on, off, length time.Duration) measurement.Work {
	return func(ctx context.Context) ([]gpu.Kernel, error) {
		now := time.Now()
		// begin keeps now's monotonic reading: setting the wall clock does not move the pulses.
		begin := now.Add(on + off - now.Sub(now.Truncate(on+off)))
		kernels, _, err := Pulses(ctx, d, b, begin, on, on+off, length)
		return kernels, err
	}
}

// Pulses runs a kernel for the time on at begin and after each period, as long as a pulse begins within
// length, and returns when the next one would. Begins follow from each other, not from the time: a kernel
// that ends late does not shift the pulses behind it.
func Pulses(ctx context.Context, d gpu.Device, b gpu.Benchmark, begin time.Time, on, period, length time.Duration) (
	out []gpu.Kernel, next time.Time, err error,
) {
	next = begin
	for err == nil && next.Before(begin.Add(length)) {
		if err = PauseUntil(ctx, next); err == nil {
			var k []gpu.Kernel
			k, err = d.RunBenchmark(ctx, b, on)
			out, next = append(out, k...), next.Add(period)
		}
	}
	return out, next, err
}

// PauseUntil blocks until t, or until ctx ends and then returns its cause.
func PauseUntil(ctx context.Context, t time.Time) error {
	if !cli.SleepUntil(ctx, t) {
		return context.Cause(ctx)
	}
	return nil
}

// PTXWork returns work that launches a kernel from a PTX file; an error on a simulated GPU.
func PTXWork(d gpu.Device, launch gpu.PTXLaunch) (measurement.Work, error) {
	r, ok := d.(gpu.PTXRunner)
	if !ok {
		return nil, errors.New("a PTX file needs a real GPU; the simulated one runs the built-in benchmarks")
	}
	return func(ctx context.Context) ([]gpu.Kernel, error) { return r.RunPTX(ctx, launch) }, nil
}

// windowsKey is the context key of the folder for a program's windows.
type windowsKey struct{}

// WithWindows returns a context whose CommandWork lets programs write their windows into a folder.
func WithWindows(ctx context.Context, dir string) context.Context {
	return context.WithValue(ctx, windowsKey{}, dir)
}

// WindowsIn returns the folder of WithWindows; empty without one.
func WindowsIn(ctx context.Context) string {
	dir, _ := ctx.Value(windowsKey{}).(string)
	return dir
}

// CommandWork returns work that runs a program. It has our standard streams, except that with
// --json its output goes to standard error. env is added to its environment; tokens and
// passwords of this program are removed from it. When ctx ends, the program gets SIGTERM and
// 5 s later SIGKILL. Its failure is a *measurement.ProgramError with a shell's exit code: the
// program's own, or 128 plus the number of the signal.
func CommandWork(a *cli.App, args []string, env ...string) measurement.Work {
	return func(ctx context.Context) ([]gpu.Kernel, error) {
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Stdin, c.Stdout, c.Stderr = a.In, cli.Raw(a.Out), cli.Raw(a.Err)
		if a.JSON {
			c.Stdout = c.Stderr
		}
		c.Env = append(withoutSecrets(os.Environ(), a.DB), append(env, measurement.EnvWork+"="+strconv.Itoa(os.Getpid()))...)
		if dir := WindowsIn(ctx); dir != "" {
			c.Env = append(c.Env, serving.Env+"="+dir)
		}
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		c.WaitDelay = 5 * time.Second
		start := time.Now()
		err := c.Run()
		k := gpu.Kernel{Name: strings.Join(args, " "), Span: gpu.Span{Start: start, End: time.Now()}}
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			return []gpu.Kernel{k}, err
		}
		code := exit.ExitCode()
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			code = cli.Signalled + int(s.Signal())
			// The same signal may come here: a terminal sends Ctrl-C to both processes.
			cli.SleepUntil(ctx, time.Now().Add(50*time.Millisecond))
		}
		return []gpu.Kernel{k}, &measurement.ProgramError{Program: args[0], How: exit.String(), Code: code}
	}
}

// withoutSecrets returns env without the user's token for wattmark's services and without the
// password of the task database db. The program's libraries need neither to connect to the
// host agent.
func withoutSecrets(env []string, db string) []string {
	var out []string
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case name == "WATTMARK_TOKEN", name == "PGPASSWORD" && store.OnServer(db):
		case name == "WATTMARK_DB":
			out = append(out, name+"="+store.Conceal(value))
		default:
			out = append(out, entry)
		}
	}
	return out
}

// ParseDims parses one to three positive sizes, "16" or "16,4,1"; those missing are 1.
func ParseDims(flag, s string) ([3]uint32, error) {
	out := [3]uint32{1, 1, 1}
	parts := strings.Split(s, ",")
	if len(parts) > 3 {
		return out, cli.Usagef("--%s %q: at most three sizes, as in 16,4,1", flag, s)
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(strings.TrimSpace(p), 10, 32)
		if err != nil || n == 0 {
			return out, cli.Usagef("--%s %q: %q is not a positive whole number", flag, s, p)
		}
		out[i] = uint32(n)
	}
	return out, nil
}

// CountTrue returns the number of flags that are true.
func CountTrue(flags ...bool) int {
	return len(lists.Filter(flags, func(f *bool) bool { return *f }))
}

// NotNegative returns a usage error for a flag's negative duration.
func NotNegative(flag string, d time.Duration) error {
	if d < 0 {
		return cli.Usagef("%s %v: want a time that is not negative", flag, d)
	}
	return nil
}

// Positive returns a usage error for a flag's duration that is zero or negative.
func Positive(flag string, d time.Duration) error {
	if d <= 0 {
		return cli.Usagef("%s %v: want a positive time", flag, d)
	}
	return nil
}

// FiniteFlag returns a usage error for NaN and infinity, which pflag's numbers accept.
func FiniteFlag(flag string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return cli.Usagef("%s %v: want a finite number", flag, v)
	}
	return nil
}

// CheckBenchmark returns a usage error unless name is a built-in benchmark.
func CheckBenchmark(flag, name string) error {
	if slices.Contains([]gpu.Benchmark{gpu.BenchHalf, gpu.BenchCompute, gpu.BenchMemory}, gpu.Benchmark(name)) {
		return nil
	}
	return cli.Usagef("%s %q: want half, compute or memory", flag, name)
}

// FindProgram returns an error, with a shell's exit code, if a program cannot be started.
func FindProgram(name string) error {
	_, err := exec.LookPath(name)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return cli.WithCode(cli.ExitNoProgram, fmt.Errorf("%s: no such program; nothing was measured", name))
	}
	return cli.WithCode(cli.ExitNoExec, fmt.Errorf("%s cannot be run: %w; nothing was measured", name, cause(err)))
}

// cause returns the innermost error of a system call, without its name and path.
func cause(err error) error {
	if call, ok := errors.AsType[*exec.Error](err); ok {
		return call.Err
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// Free returns a usage error for an output file that exists or whose folder is missing or not
// writable, so that a command fails before its measurement. Empty names are skipped.
func Free(files ...string) error {
	for _, path := range files {
		if path == "" {
			continue
		}
		if _, err := os.Lstat(path); err == nil {
			return cli.Usagef("%s exists: remove it first or name another file", path)
		}
		folder := filepath.Dir(path)
		if i, err := os.Stat(folder); err != nil || !i.IsDir() {
			return cli.Usagef("%s cannot be written: there is no folder %s", path, folder)
		}
		if err := Writable(folder); err != nil {
			return cli.Usagef("%s cannot be written: %w", path, err)
		}
	}
	return nil
}

// Writable returns an error if a folder is not writable. It creates a file there and removes it.
func Writable(folder string) error {
	f, err := os.CreateTemp(folder, ".wattmark-*")
	if err != nil {
		return cause(err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Appendable returns a usage error for a file that exists and is not writable, or cannot be
// created. An empty name is skipped.
func Appendable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrNotExist):
		return Free(path)
	}
	return cli.Usagef("%s cannot be written: %w", path, cause(err))
}
