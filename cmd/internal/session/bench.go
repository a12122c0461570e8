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
	"math"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/wattmark/wattmark/cmd/internal/cli"
	"github.com/wattmark/wattmark/hostagent/gpu"
	hostnvml "github.com/wattmark/wattmark/hostagent/gpu/nvml"
	"github.com/wattmark/wattmark/hostagent/gpu/sim"
	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor"
	"github.com/wattmark/wattmark/monitor/bench"
	"github.com/wattmark/wattmark/monitor/calibration"
	"github.com/wattmark/wattmark/monitor/emulator/board"
	"github.com/wattmark/wattmark/monitor/emulator/pace"
	ps3face "github.com/wattmark/wattmark/monitor/emulator/powersensor3"
	"github.com/wattmark/wattmark/monitor/emulator/pty"
	"github.com/wattmark/wattmark/monitor/instrument/nvml"
	"github.com/wattmark/wattmark/monitor/instrument/registry"
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
	meter, err := b.NewInstrument(registry.Env{NVML: func(_ context.Context, selector string) (nvml.Sensor, error) {
		return openSensor(selector)
	}})
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
// it and serves a real pseudo-terminal, and a simulated GPU that loads the board.
type SoftBench struct {
	live *board.Live
	face *ps3face.Face
	Port *pty.Port
}

// NewSoftBench returns a bench that runs on the wall clock. An imperfect meter's gains,
// offsets and clock are off by amounts drawn from the uncertainties that its driver states;
// otherwise they match its stored configuration, and only noise and quantisation remain.
// seed determines the noise and the drawn amounts.
func NewSoftBench(seed uint64, imperfect bool) (*SoftBench, error) {
	b, err := board.New(board.Config{Seed: seed})
	if err != nil {
		return nil, err
	}
	epoch := time.Now()
	face, err := ps3face.New(b, pace.Real(epoch), ps3face.Config{Seed: seed, Draw: imperfect})
	if err != nil {
		return nil, err
	}
	port, err := pty.OpenPort()
	if err != nil {
		return nil, err
	}
	return &SoftBench{live: board.NewLive(b, epoch), face: face, Port: port}, nil
}

// Run runs the meter's firmware until ctx ends.
func (s *SoftBench) Run(ctx context.Context) error { return s.face.Run(ctx, s.Port) }

// GPU opens the simulated GPU, with a sensor of its own that is as misleading as a real one.
func (s *SoftBench) GPU() (gpu.Device, gpu.PowerSensor, error) {
	dev, err := sim.Open(sim.Config{Plant: s.live, Clock: sim.Wall{}})
	if err != nil {
		return nil, nil, err
	}
	return dev, sim.NewSensor(s.live, sim.Wall{}, sim.Response{}), nil
}

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
	text := "calibration: " + RecordsText(s)
	asked := f
	asked.Nominal = false
	folder := asked.Folder()
	switch {
	case len(s.Records) > 0:
		return fmt.Sprintf("%s\n(from %s; --nominal leaves them out)", text, folder)
	case f.Nominal && folder != "":
		return fmt.Sprintf("%s\n(--nominal leaves out those of %s)", text, folder)
	case folder != "":
		return fmt.Sprintf("%s\n(looked for in %s)", text, folder)
	}
	return text + "\n(--calibration names a folder of them; beside a bench file it is calibration/)"
}

// RecordsText returns the calibration records in force as text.
func RecordsText(s *measure.Setup) string {
	if len(s.Records) == 0 {
		return "nominal scale, no calibration record in force"
	}
	return fmt.Sprintf("%s in force (%s)", measure.Plural(len(s.Records), "calibration record"),
		measure.Printable(strings.Join(s.RecordIDs(), ", ")))
}
