package nvml

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"github.com/wattmark/wattmark/measure"
)

// Device is one GPU's sensors. It is safe for concurrent use, as NVML is.
type Device struct {
	lib   *library
	h     handle
	info  gpu.Info
	close sync.Once
}

var (
	_ gpu.PowerSensor    = (*Device)(nil)
	_ gpu.PowerRegisters = (*Device)(nil)
	_ gpu.ProcessReader  = (*Device)(nil)
)

// Open finds a GPU by UUID (GPU-…), PCI bus id (0000:65:00.0), index, or the
// first for an empty selector. CUDA numbers GPUs its own way: to watch the GPU
// that runs the work, pass its UUID. It fails with ErrNoNVML where there is no
// library, and with ErrNoDevice where the GPU is not found.
func Open(selector string) (*Device, error) {
	lib, err := load(libraries...)
	if err != nil {
		return nil, fmt.Errorf("nvml: open: %w", err)
	}
	return open(lib, selector)
}

// open initialises the library, which counts its users, and finds the GPU. After an error
// the library has this user no more.
func open(lib *library, selector string) (*Device, error) {
	if err := lib.check("nvmlInit", lib.Init()); err != nil {
		return nil, fmt.Errorf("nvml: open: %w", err)
	}
	d := &Device{lib: lib}
	err := d.find(selector)
	if err == nil {
		err = d.identify()
	}
	if err != nil {
		lib.Shutdown()
		return nil, fmt.Errorf("nvml: open: %w", err)
	}
	return d, nil
}

// find sets the handle of the GPU that a selector names. Its errors are ErrNoDevice, with
// the number of GPUs that NVML sees, and gpu.ErrMIG.
func (d *Device) find(selector string) error {
	h := new(handle)
	var call string
	var r result
	switch {
	case gpu.NamesMIG(selector):
		return fmt.Errorf("%s: %w", selector, gpu.ErrMIG)
	case strings.HasPrefix(strings.ToUpper(selector), "GPU-"):
		call, r = "nvmlDeviceGetHandleByUUID", d.lib.ByUUID(dl.CString("GPU-"+selector[4:]), h)
	case strings.Contains(selector, ":"):
		call, r = "nvmlDeviceGetHandleByPciBusId", d.lib.ByPCIBusID(dl.CString(selector), h)
	default:
		index, err := strconv.Atoi(cmp.Or(selector, "0"))
		if err != nil || index < 0 {
			return fmt.Errorf("%w: %q: want an index, a UUID (GPU-…) or a PCI bus id (0000:65:00.0)", ErrNoDevice, selector)
		}
		call, r = "nvmlDeviceGetHandleByIndex", d.lib.ByIndex(uint32(index), h)
	}
	if err := d.lib.check(call, r); err != nil {
		var n uint32
		d.lib.Count(&n)
		return fmt.Errorf("%w: %q: %w; NVML sees %d", ErrNoDevice, selector, err, n)
	}
	d.h = *h
	return nil
}

// identify reads name, UUID, driver version and PCI bus id.
func (d *Device) identify() error {
	b := make([]byte, 96)
	for _, q := range []struct {
		call string
		ask  func(*byte, uint32) result
		into *string
	}{
		{"nvmlDeviceGetName", func(p *byte, n uint32) result { return d.lib.Name(d.h, p, n) }, &d.info.Name},
		{"nvmlDeviceGetUUID", func(p *byte, n uint32) result { return d.lib.UUID(d.h, p, n) }, &d.info.UUID},
		{"nvmlSystemGetDriverVersion", d.lib.DriverVersion, &d.info.Driver},
	} {
		clear(b)
		if err := d.lib.check(q.call, q.ask(&b[0], uint32(len(b)))); err != nil {
			return err
		}
		*q.into = dl.Text(b)
	}
	p := new(pciInfo)
	if err := d.lib.check("nvmlDeviceGetPciInfo", d.lib.PCIInfo(d.h, p)); err != nil {
		return err
	}
	d.info.PCIBusID = strings.ToLower(dl.Text(p.BusID[:]))
	return nil
}

// Info identifies the GPU.
func (d *Device) Info() gpu.Info { return d.info }

// Close ends the use of NVML. It is safe to call twice.
func (d *Device) Close() error {
	var err error
	d.close.Do(func() { err = d.lib.check("nvmlShutdown", d.lib.Shutdown()) })
	return err
}

// Read returns the GPU's power registers; those that it does not have are NaN.
// A call takes some microseconds: the energy counter, which takes milliseconds,
// is left out.
func (d *Device) Read() (out gpu.PowerReading, err error) {
	out.Energy = measure.Joule(math.NaN())
	begin := time.Now()
	if out.Instant, out.Average, err = d.ReadFields(); err != nil {
		return out, err
	}
	if out.Usage, err = d.ReadUsage(); err != nil {
		return out, err
	}
	out.At = begin.Add(time.Since(begin) / 2)
	return out, nil
}

// ReadFields asks for the instant and the average field in one call.
func (d *Device) ReadFields() (instant, average measure.Watt, err error) {
	nan := measure.Watt(math.NaN())
	if d.lib.FieldValues == nil {
		return nan, nan, nil
	}
	v := &[2]fieldValue{{FieldID: fieldInstant}, {FieldID: fieldAverage}}
	has, err := d.has("read", "nvmlDeviceGetFieldValues", d.lib.FieldValues(d.h, int32(len(v)), &v[0]))
	if !has {
		return nan, nan, err
	}
	return milliwatts(&v[0]), milliwatts(&v[1]), nil
}

// ReadUsage is nvmlDeviceGetPowerUsage, in half a microsecond.
func (d *Device) ReadUsage() (measure.Watt, error) {
	mw := new(uint32)
	if has, err := d.has("read", "nvmlDeviceGetPowerUsage", d.lib.PowerUsage(d.h, mw)); !has {
		return measure.Watt(math.NaN()), err
	}
	return measure.Watt(float64(*mw) / 1e3), nil
}

// has reports whether a call brought a reading: a GPU that lacks the register has none, which is no error.
func (d *Device) has(operation, call string, r result) (bool, error) {
	if r == success || r == notSupported {
		return r == success, nil
	}
	return false, fmt.Errorf("nvml: %s: %w", operation, d.lib.check(call, r))
}

// milliwatts converts a field in mW to watts. It is NaN on a GPU without the sensor, which
// sets the field's own result, or leaves a zero that no powered GPU draws.
func milliwatts(v *fieldValue) measure.Watt {
	n := v.number()
	if v.Return != success || n <= 0 {
		return measure.Watt(math.NaN())
	}
	return measure.Watt(n / 1e3)
}

// ReadEnergy returns the energy counter since the driver was loaded, NaN where
// the GPU has none. A call takes some 3 ms.
func (d *Device) ReadEnergy() (measure.Joule, error) {
	nan := measure.Joule(math.NaN())
	if d.lib.TotalEnergy == nil {
		return nan, nil
	}
	mj := new(uint64)
	has, err := d.has("read energy", "nvmlDeviceGetTotalEnergyConsumption", d.lib.TotalEnergy(d.h, mj))
	if !has {
		return nan, err
	}
	return measure.Joule(float64(*mj) / 1e3), nil
}

// Condition reads clocks, temperature and throttle reasons.
func (d *Device) Condition() gpu.Condition {
	ask := func(f func(*uint32) result) float64 {
		v := new(uint32)
		if f(v) != success {
			return math.NaN()
		}
		return float64(*v)
	}
	const clockSM, clockMemory, sensorGPU = 1, 2, 0
	c := gpu.Condition{
		SM:          measure.Hertz(1e6 * ask(func(v *uint32) result { return d.lib.ClockInfo(d.h, clockSM, v) })),
		Memory:      measure.Hertz(1e6 * ask(func(v *uint32) result { return d.lib.ClockInfo(d.h, clockMemory, v) })),
		Temperature: ask(func(v *uint32) result { return d.lib.Temperature(d.h, sensorGPU, v) }),
	}
	if d.lib.ThrottleReason != nil {
		bits := new(uint64)
		if d.lib.ThrottleReason(d.h, bits) == success {
			c.Throttle = *bits
		}
	}
	return c
}

// Card is one GPU as NVML sees it, whatever CUDA_VISIBLE_DEVICES hides.
type Card struct {
	gpu.Info
	// Cut: the card is cut into MIG devices.
	Cut bool
}

// List returns all cards of the machine, by PCI bus id. It fails with
// ErrNoNVML where there is no library.
func List() ([]Card, error) {
	lib, err := load(libraries...)
	if err != nil {
		return nil, fmt.Errorf("nvml: list: %w", err)
	}
	return lib.list()
}

// list enumerates all cards between an Init and a Shutdown of its own.
func (l *library) list() ([]Card, error) {
	if err := l.check("nvmlInit", l.Init()); err != nil {
		return nil, fmt.Errorf("nvml: list: %w", err)
	}
	defer l.Shutdown()
	n := new(uint32)
	if err := l.check("nvmlDeviceGetCount", l.Count(n)); err != nil {
		return nil, fmt.Errorf("nvml: list: %w", err)
	}
	out := make([]Card, *n)
	for i := range out {
		h := new(handle)
		if err := l.check("nvmlDeviceGetHandleByIndex", l.ByIndex(uint32(i), h)); err != nil {
			return nil, fmt.Errorf("nvml: list: GPU %d: %w", i, err)
		}
		d := Device{lib: l, h: *h}
		if err := d.identify(); err != nil {
			return nil, fmt.Errorf("nvml: list: GPU %d: %w", i, err)
		}
		// A card, or a library, that does not know of MIG is whole.
		now, next := new(uint32), new(uint32)
		out[i] = Card{d.info, l.MIGMode != nil && l.MIGMode(*h, now, next) == success && *now == 1}
	}
	return out, nil
}

// LibraryVersion returns NVML's own version; empty where there is no library, or one
// without that call.
func LibraryVersion() string {
	l, err := load(libraries...)
	if err != nil || l.NVMLVersion == nil || l.Init() != success {
		return ""
	}
	defer l.Shutdown()
	b := make([]byte, 96)
	if l.NVMLVersion(&b[0], uint32(len(b))) != success {
		return ""
	}
	return dl.Text(b)
}
