// Package nvml reads a GPU's own sensors through NVML, found at run time.
package nvml

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
)

// result is an nvmlReturn_t.
type result int32

// The results that this package distinguishes (nvml.h).
const (
	success      result = 0
	notSupported result = 3
	noPermission result = 4
	notFound     result = 6
)

// handle is an nvmlDevice_t.
type handle uintptr

// fieldValue is nvmlFieldValue_t: 40 bytes.
type fieldValue struct {
	FieldID   uint32
	ScopeID   uint32
	Timestamp int64 // µs since 1970
	LatencyUs int64
	ValueType uint32
	Return    result
	Value     [8]byte
}

// pciInfo is nvmlPciInfo_t: 68 bytes.
type pciInfo struct {
	BusIDLegacy                 [16]byte
	Domain, Bus, Device         uint32
	PCIDeviceID, PCISubsystemID uint32
	BusID                       [32]byte
}

// Fields of nvmlDeviceGetFieldValues (nvml.h).
const (
	fieldAverage = 185 // mW
	fieldInstant = 186 // mW
)

// library is the part of NVML that is used here: a table of functions, so that
// tests can put others in their place.
type library struct {
	// the library, and how it finds a card
	Init          func() result                               `c:"nvmlInit_v2"`
	Shutdown      func() result                               `c:"nvmlShutdown"`
	ErrorString   func(r result) *byte                        `c:"nvmlErrorString"`
	DriverVersion func(s *byte, size uint32) result           `c:"nvmlSystemGetDriverVersion"`
	NVMLVersion   func(s *byte, size uint32) result           `c:"nvmlSystemGetNVMLVersion?"`
	Count         func(n *uint32) result                      `c:"nvmlDeviceGetCount_v2"`
	ByIndex       func(i uint32, h *handle) result            `c:"nvmlDeviceGetHandleByIndex_v2"`
	ByUUID        func(s *byte, h *handle) result             `c:"nvmlDeviceGetHandleByUUID"`
	ByPCIBusID    func(s *byte, h *handle) result             `c:"nvmlDeviceGetHandleByPciBusId_v2"`
	Name          func(h handle, s *byte, size uint32) result `c:"nvmlDeviceGetName"`
	UUID          func(h handle, s *byte, size uint32) result `c:"nvmlDeviceGetUUID"`
	PCIInfo       func(h handle, p *pciInfo) result           `c:"nvmlDeviceGetPciInfo_v3"`
	MIGMode       func(h handle, now, next *uint32) result    `c:"nvmlDeviceGetMigMode?"`

	// power, energy, and what bears on them
	PowerUsage     func(h handle, mw *uint32) result                     `c:"nvmlDeviceGetPowerUsage"`
	TotalEnergy    func(h handle, mj *uint64) result                     `c:"nvmlDeviceGetTotalEnergyConsumption?"`
	FieldValues    func(h handle, n int32, v *fieldValue) result         `c:"nvmlDeviceGetFieldValues?"`
	ClockInfo      func(h handle, clock uint32, mhz *uint32) result      `c:"nvmlDeviceGetClockInfo"`
	Temperature    func(h handle, sensor uint32, degrees *uint32) result `c:"nvmlDeviceGetTemperature"`
	ThrottleReason func(
		h handle, bits *uint64,
	) result `c:"nvmlDeviceGetCurrentClocksEventReasons,nvmlDeviceGetCurrentClocksThrottleReasons?"`

	// processes; the symbols of version 3 of the call, else of version 2
	ComputeProcesses func(
		h handle, n *uint32, p *processInfo,
	) result `c:"nvmlDeviceGetComputeRunningProcesses_v3,nvmlDeviceGetComputeRunningProcesses_v2?"`
	GraphicsProcesses func(
		h handle, n *uint32, p *processInfo,
	) result `c:"nvmlDeviceGetGraphicsRunningProcesses_v3,nvmlDeviceGetGraphicsRunningProcesses_v2?"`
	ProcessUse func(h handle, p *processSample, n *uint32, since uint64) result `c:"nvmlDeviceGetProcessUtilization?"`
}

// Sentinel errors, wrapped with the call and the remedy.
var (
	// ErrNoNVML: libnvidia-ml cannot be loaded.
	ErrNoNVML = errors.New("no NVML library")
	// ErrNoDevice: NVML does not see the GPU that is wanted.
	ErrNoDevice = errors.New("no such GPU")
	// ErrNVML: a call failed; the text has its nvmlReturn_t.
	ErrNVML = errors.New("NVML call failed")
)

var libraries = []string{"libnvidia-ml.so.1", "libnvidia-ml.so"}

// load binds the library's functions. ErrNoNVML where it is missing or too old.
func load(names ...string) (*library, error) {
	return dl.Load[library](names, ErrNoNVML, "it comes with NVIDIA's driver", ErrNoNVML, "the driver is too old")
}

// check turns an nvmlReturn_t into an error with NVML's text; nil for success.
func (l *library) check(call string, r result) error {
	if r == success {
		return nil
	}
	return fmt.Errorf("%w: %s: %s (%d)", ErrNVML, call, cmp.Or(dl.String(l.ErrorString(r)), "unknown error"), int32(r))
}

// number decodes the union of a field value by its type (nvmlValueType_t).
// It is NaN for a type that is not known here.
func (v *fieldValue) number() float64 {
	u := binary.NativeEndian.Uint64(v.Value[:])
	switch v.ValueType {
	case 0: // double
		return math.Float64frombits(u)
	case 1: // unsigned int
		return float64(binary.NativeEndian.Uint32(v.Value[:]))
	case 2, 3: // unsigned long, unsigned long long
		return float64(u)
	case 4: // signed long long
		return float64(int64(u))
	case 5: // signed int
		return float64(int32(binary.NativeEndian.Uint32(v.Value[:])))
	case 6: // unsigned short
		return float64(binary.NativeEndian.Uint16(v.Value[:]))
	}
	return math.NaN()
}

// processInfo is nvmlProcessInfo_t since version 2 of the calls: 24 bytes.
type processInfo struct {
	PID         uint32
	_           uint32
	Memory      uint64
	GPUInstance uint32
	Instance    uint32
}

// processSample is nvmlProcessUtilizationSample_t: 32 bytes. It is a mean over the time
// before At.
type processSample struct {
	PID                  uint32
	_                    uint32
	At                   uint64 // µs since 1970
	SM, Memory, Enc, Dec uint32 // per cent
}

// samplePeriod is the longest time that a sample of a process's use covers.
const samplePeriod = time.Second

const insufficientSize result = 7

// Processes returns the processes that have contexts on the GPU, and the share of its
// multiprocessors' time that each took within a span: the mean of NVML's samples that lie
// within it as a whole. Busy is NaN where the driver has no samples. In a container the
// process numbers may be those of the host machine.
func (d *Device) Processes(within gpu.Span) ([]gpu.ProcessUse, error) {
	var out []gpu.ProcessUse
	at := map[int]int{} // a process's place in out
	place := func(pid uint32) *gpu.ProcessUse {
		i, ok := at[int(pid)]
		if !ok {
			i = len(out)
			at[int(pid)] = i
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // of another machine or user there is none
			out = append(out, gpu.ProcessUse{PID: int(pid), Name: strings.TrimSpace(string(name)), Busy: math.NaN()})
		}
		return &out[i]
	}
	for call, list := range map[string]func(handle, *uint32, *processInfo) result{
		"nvmlDeviceGetComputeRunningProcesses":  d.lib.ComputeProcesses,
		"nvmlDeviceGetGraphicsRunningProcesses": d.lib.GraphicsProcesses,
	} {
		if list == nil {
			continue
		}
		infos, r := grown(32, func(n *uint32, p *processInfo) result { return list(d.h, n, p) })
		if r != success && r != notSupported && r != noPermission {
			return nil, fmt.Errorf("nvml: processes: %w", d.lib.check(call, r))
		}
		for _, p := range infos {
			place(p.PID)
		}
	}
	samples, told, err := d.use(within)
	if err != nil || !told {
		return out, err
	}
	// NVML has a sample a process and period, none where the process was idle: the largest
	// number of samples is that of the periods.
	most, n := 0, map[uint32]int{}
	for _, s := range samples {
		n[s.PID]++
		most = max(most, n[s.PID])
		place(s.PID)
	}
	for i := range out {
		out[i].Busy = 0
	}
	for _, s := range samples {
		place(s.PID).Busy += float64(s.SM) / 100 / float64(most)
	}
	return out, nil
}

// grown lists rows with more and more room until they fit: there may be more of them the next
// moment. Rows come with success alone.
func grown[T any](room uint32, list func(n *uint32, first *T) result) ([]T, result) {
	for range 4 {
		rows, n := make([]T, room), room
		r := list(&n, &rows[0])
		switch r {
		case success:
			return rows[:min(n, room)], r
		case insufficientSize:
			room = max(2*room, n+8)
		default:
			return nil, r
		}
	}
	return nil, notSupported
}

// use returns the samples that lie within a span as a whole; told is false where the driver
// has none to offer, or lacks the call or the right.
func (d *Device) use(within gpu.Span) (in []processSample, told bool, err error) {
	if d.lib.ProcessUse == nil || within.End.Sub(within.Start) < 2*samplePeriod {
		return nil, false, nil
	}
	since := uint64(max(0, within.Start.UnixMicro()))
	samples, r := grown(256, func(n *uint32, p *processSample) result { return d.lib.ProcessUse(d.h, p, n, since) })
	switch r {
	case success, notFound: // not found: no process used it
	case notSupported, noPermission:
		return nil, false, nil
	default:
		return nil, false, fmt.Errorf("nvml: processes: %w", d.lib.check("nvmlDeviceGetProcessUtilization", r))
	}
	for _, s := range samples {
		end := time.UnixMicro(int64(s.At))
		if s.PID != 0 && !end.Before(within.Start.Add(samplePeriod)) && !end.After(within.End) {
			in = append(in, s)
		}
	}
	return in, true, nil
}

// The sizes that NVML expects.
var (
	_ [24]byte = [unsafe.Sizeof(processInfo{})]byte{}
	_ [32]byte = [unsafe.Sizeof(processSample{})]byte{}
)
