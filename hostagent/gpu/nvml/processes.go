package nvml

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
)

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
			out = append(out, gpu.ProcessUse{PID: int(pid), Name: processName(int(pid)), Busy: math.NaN()})
		}
		return &out[i]
	}
	for call, list := range map[string]func(handle, *uint32, *processInfo) result{
		"nvmlDeviceGetComputeRunningProcesses":  d.lib.ComputeProcesses,
		"nvmlDeviceGetGraphicsRunningProcesses": d.lib.GraphicsProcesses,
	} {
		infos, err := d.running(call, list)
		if err != nil {
			return nil, err
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

// running lists one kind of processes; none where the driver lacks the call or the right.
func (d *Device) running(call string, list func(handle, *uint32, *processInfo) result) ([]processInfo, error) {
	if list == nil {
		return nil, nil
	}
	n := uint32(32)
	for range 4 { // there may be more the next moment
		infos := make([]processInfo, n)
		got := n
		switch r := list(d.h, &got, &infos[0]); r {
		case success:
			return infos[:min(got, n)], nil
		case insufficientSize:
			n = max(2*n, got+8)
		case notSupported, noPermission:
			return nil, nil
		default:
			return nil, fmt.Errorf("nvml: processes: %w", d.lib.check(call, r))
		}
	}
	return nil, nil
}

// use returns the samples that lie within a span as a whole; told is false where the driver
// has none to offer.
func (d *Device) use(within gpu.Span) (in []processSample, told bool, err error) {
	if d.lib.ProcessUse == nil || within.End.Sub(within.Start) < 2*samplePeriod {
		return nil, false, nil
	}
	since := uint64(max(0, within.Start.UnixMicro()))
	n := uint32(256)
	for range 4 {
		samples := make([]processSample, n)
		got := n
		switch r := d.lib.ProcessUse(d.h, &samples[0], &got, since); r {
		case success:
			for _, s := range samples[:min(got, n)] {
				end := time.UnixMicro(int64(s.At))
				if s.PID != 0 && !end.Before(within.Start.Add(samplePeriod)) && !end.After(within.End) {
					in = append(in, s)
				}
			}
			return in, true, nil
		case notFound:
			return nil, true, nil // no process used it
		case insufficientSize:
			n = max(2*n, got)
		case notSupported, noPermission:
			return nil, false, nil
		default:
			return nil, false, fmt.Errorf("nvml: processes: %w", d.lib.check("nvmlDeviceGetProcessUtilization", r))
		}
	}
	return nil, false, nil
}

// processName is a process's short name; empty where it is not this machine's to know.
func processName(pid int) string {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// The sizes that NVML expects.
var (
	_ [24]byte = [unsafe.Sizeof(processInfo{})]byte{}
	_ [32]byte = [unsafe.Sizeof(processSample{})]byte{}
)
