// Package cupti records the kernels of the process that it runs in, through
// NVIDIA's libcupti, found at run time: it ships with the CUDA toolkit or a
// Python wheel, not with the driver. libcuda calls the injection
// (cmd/libwattmark) when the program initialises it; the injection calls Attach
// and, at the process's end, Detach. Nothing here is linked against CUDA.
package cupti

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"wattmark/hostagent/internal/dl"
)

// ErrNoLibrary: no libcupti was found.
var ErrNoLibrary = errors.New("CUPTI was not found")

// library is libcupti. CUPTI's results are CUptiResult, 0 for success.
type library struct {
	GetVersion        func(version *uint32) uint32                                  `c:"cuptiGetVersion"`
	RegisterCallbacks func(requested, completed uintptr) uint32                     `c:"cuptiActivityRegisterCallbacks"`
	Enable            func(kind uint32) uint32                                      `c:"cuptiActivityEnable"`
	FlushAll          func(flag uint32) uint32                                      `c:"cuptiActivityFlushAll"`
	NextRecord        func(buffer uintptr, valid uintptr, record *uintptr) uint32   `c:"cuptiActivityGetNextRecord"`
	Dropped           func(context uintptr, stream uint32, n *uint64) uint32        `c:"cuptiActivityGetNumDroppedRecords"`
	ResultString      func(result uint32, text **byte) uint32                       `c:"cuptiGetResultString?"`
	FlushPeriod       func(ms uint32) uint32                                        `c:"cuptiActivityFlushPeriod?"`
	Subscribe         func(subscriber *uintptr, callback, user uintptr) uint32      `c:"cuptiSubscribe?"`
	EnableCallback    func(on uint32, subscriber uintptr, domain, id uint32) uint32 `c:"cuptiEnableCallback?"`
	Disable           func(kind uint32) uint32                                      `c:"cuptiActivityDisable?"`
	Unsubscribe       func(subscriber uintptr) uint32                               `c:"cuptiUnsubscribe?"`

	calls Calls
}

// driver is what is asked of libcuda: whose ordinal a kernel ran on.
type driver struct {
	DeviceGet  func(device *int32, ordinal int32) int32 `c:"cuDeviceGet"`
	DeviceUUID func(uuid *[16]byte, device int32) int32 `c:"cuDeviceGetUuid_v2,cuDeviceGetUuid"`
}

// load finds CUPTI.
func load() (*library, error) {
	where := Candidates(os.Getenv, filepath.Glob)
	if os.Getenv(EnvLibrary) == "" {
		maps, _ := os.ReadFile("/proc/self/maps")
		where = append(mapped(string(maps)), where...)
	}
	h, err := dl.Open(where...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w\nIt comes with the CUDA toolkit (extras/CUPTI) or the Python wheel nvidia-cuda-cupti: install one, add its folder to LD_LIBRARY_PATH, or name the file in %s",
			ErrNoLibrary, err, EnvLibrary)
	}
	var l library
	if err := dl.Bind(h, &l); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	l.calls = Calls{
		Register: dl.Find(h, "cuptiActivityRegisterCallbacks"), Clock: dl.Find(h, "cuptiActivityRegisterTimestampCallback"),
		Subscribe: dl.Find(h, "cuptiSubscribe"), Flush: dl.Find(h, "cuptiActivityFlushAll"),
	}
	return &l, nil
}

// say turns a result into an error.
func (l *library) say(what string, result uint32) error {
	if result == 0 {
		return nil
	}
	text := "unknown result"
	if l.ResultString != nil {
		var p *byte
		if l.ResultString(result, &p) == 0 && p != nil {
			text = cString(p)
		}
	}
	return fmt.Errorf("%s: %s (%d)", what, text, result)
}
