package nvml

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl/dltest"
)

func TestLayouts(t *testing.T) {
	var f fieldValue
	var p pciInfo
	for _, tc := range []struct {
		name      string
		got, want uintptr
	}{
		{"nvmlFieldValue_t", unsafe.Sizeof(f), 40},
		{"scopeId", unsafe.Offsetof(f.ScopeID), 4},
		{"timestamp", unsafe.Offsetof(f.Timestamp), 8},
		{"latencyUsec", unsafe.Offsetof(f.LatencyUs), 16},
		{"valueType", unsafe.Offsetof(f.ValueType), 24},
		{"nvmlReturn", unsafe.Offsetof(f.Return), 28},
		{"value", unsafe.Offsetof(f.Value), 32},
		{"nvmlPciInfo_t", unsafe.Sizeof(p), 68},
		{"busId", unsafe.Offsetof(p.BusID), 36},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, tc.got, tc.want)
		}
	}
}

func TestFieldValueTypes(t *testing.T) {
	le := binary.LittleEndian
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the table is written for a little-endian machine")
	}
	for _, tc := range []struct {
		name string
		kind uint32
		bits uint64
		want float64
	}{
		{"double", 0, math.Float64bits(12.5), 12.5},
		{"unsigned int, the rest is rubbish", 1, 0xdeadbeef_00000007, 7},
		{"unsigned long", 2, 1 << 40, 1 << 40},
		{"unsigned long long", 3, 1 << 50, 1 << 50},
		{"signed long long", 4, math.MaxUint64, -1},
		{"signed int", 5, 0xffffffff, -1},
		{"unsigned short", 6, 0xffff0009, 9},
		{"not known", 99, 1, math.NaN()},
	} {
		v := fieldValue{ValueType: tc.kind}
		le.PutUint64(v.Value[:], tc.bits)
		if got := v.number(); got != tc.want && !(math.IsNaN(got) && math.IsNaN(tc.want)) {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// fake is a library in Go with one GPU whose abilities can be taken away.
func fake() *library {
	put := func(p *byte, n uint32, s string) { copy(unsafe.Slice(p, n), s+"\x00") }
	return &library{
		Init: func() result { return success }, Shutdown: func() result { return success },
		ErrorString:   func(r result) *byte { return dl.CString("said by NVML") },
		DriverVersion: func(p *byte, n uint32) result { put(p, n, "580.159.04"); return success },
		Count:         func(n *uint32) result { *n = 1; return success },
		ByIndex: func(i uint32, h *handle) result {
			*h = 7
			return map[bool]result{true: success, false: 2}[i == 0]
		},
		ByUUID: func(p *byte, h *handle) result {
			*h = 8
			return map[bool]result{true: success, false: notFound}[dl.String(p) == "GPU-1"]
		},
		ByPCIBusID: func(p *byte, h *handle) result {
			*h = 9
			return map[bool]result{true: success, false: notFound}[dl.String(p) == "0000:65:00.0"]
		},
		Name:    func(h handle, p *byte, n uint32) result { put(p, n, "Fake H200"); return success },
		UUID:    func(h handle, p *byte, n uint32) result { put(p, n, "GPU-1"); return success },
		PCIInfo: func(h handle, p *pciInfo) result { copy(p.BusID[:], "00000000:65:00.0\x00"); return success },
		PowerUsage: func(h handle, mw *uint32) result {
			*mw = 134500
			return success
		},
		TotalEnergy: func(h handle, mj *uint64) result { *mj = 5_000_000_000_123; return success },
		FieldValues: func(h handle, n int32, v *fieldValue) result {
			for i, f := range unsafe.Slice(v, n) {
				p := &unsafe.Slice(v, n)[i]
				p.ValueType = 1
				switch f.FieldID {
				case fieldInstant:
					binary.NativeEndian.PutUint32(p.Value[:], 452000)
				case fieldAverage:
					binary.NativeEndian.PutUint32(p.Value[:], 300250)
				default:
					p.Return = notSupported
				}
			}
			return success
		},
		ClockInfo:      func(h handle, c uint32, mhz *uint32) result { *mhz = 1000 * c; return success },
		Temperature:    func(h handle, s uint32, v *uint32) result { *v = 41; return success },
		ThrottleReason: func(h handle, v *uint64) result { *v = 4; return success },
	}
}

func TestOpenFindsTheGPU(t *testing.T) {
	for _, tc := range []struct {
		selector string
		h        handle
		fail     string
	}{
		{"", 7, ""},
		{"0", 7, ""},
		{"gpu-1", 8, ""},
		{"0000:65:00.0", 9, ""},
		{"1", 0, "nvmlDeviceGetHandleByIndex: said by NVML (2); NVML sees 1"},
		{"-1", 0, "want an index"},
		{"GPU-2", 0, "nvmlDeviceGetHandleByUUID"},
	} {
		d, err := open(fake(), tc.selector)
		if tc.fail != "" {
			if !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), tc.fail) {
				t.Errorf("%q: got %v", tc.selector, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tc.selector, err)
			continue
		}
		if d.h != tc.h {
			t.Errorf("%q: got GPU %d, want %d", tc.selector, d.h, tc.h)
		}
		want := gpu.Info{Name: "Fake H200", UUID: "GPU-1", PCIBusID: "00000000:65:00.0", Driver: "580.159.04"}
		if d.Info() != want {
			t.Errorf("got %+v", d.Info())
		}
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestRead(t *testing.T) {
	unsupported := func(h handle, n int32, v *fieldValue) result {
		for i := range unsafe.Slice(v, n) {
			unsafe.Slice(v, n)[i].Return = notSupported
		}
		return success
	}
	nan := math.NaN()
	for _, tc := range []struct {
		name                    string
		spoil                   func(*library)
		instant, average, usage float64
		fail                    string
	}{
		{"Hopper", func(*library) {}, 452, 300.25, 134.5, ""},
		{"fields not supported", func(l *library) { l.FieldValues = unsupported }, nan, nan, 134.5, ""},
		{"an old library", func(l *library) { l.FieldValues = nil }, nan, nan, 134.5, ""},
		{
			"no usage", func(l *library) { l.PowerUsage = func(handle, *uint32) result { return notSupported } }, 452,
			300.25, nan, "",
		},
		{
			"lost", func(l *library) { l.PowerUsage = func(handle, *uint32) result { return 15 } }, 0, 0, 0,
			"nvmlDeviceGetPowerUsage: said by NVML (15)",
		},
		{
			"fields lost", func(l *library) { l.FieldValues = func(handle, int32, *fieldValue) result { return 15 } },
			0,
			0, 0, "nvmlDeviceGetFieldValues",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := fake()
			tc.spoil(l)
			d, err := open(l, "")
			if err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			r, err := d.Read()
			if tc.fail != "" {
				if !errors.Is(err, ErrNVML) || !strings.Contains(err.Error(), tc.fail) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []struct{ got, want float64 }{
				{float64(r.Instant), tc.instant},
				{float64(r.Average), tc.average},
				{float64(r.Usage), tc.usage},
				{float64(r.Energy), nan},
			} {
				if v.got != v.want && !(math.IsNaN(v.got) && math.IsNaN(v.want)) {
					t.Errorf("got %+v", r)
				}
			}
			if r.At.Before(before) || r.At.After(time.Now()) {
				t.Errorf("read at %v, called at %v", r.At, before)
			}
		})
	}
}

func TestReadEnergy(t *testing.T) {
	d, _ := open(fake(), "")
	if e, err := d.ReadEnergy(); err != nil || float64(e) != 5_000_000_000.123 {
		t.Errorf("got %v, %v", e, err)
	}
	for name, f := range map[string]func(handle, *uint64) result{
		"not supported": func(handle, *uint64) result { return notSupported }, "old library": nil,
	} {
		l := fake()
		l.TotalEnergy = f
		d, _ := open(l, "")
		if e, err := d.ReadEnergy(); err != nil || !math.IsNaN(float64(e)) {
			t.Errorf("%s: got %v, %v", name, e, err)
		}
	}
}

func TestCondition(t *testing.T) {
	l := fake()
	d, _ := open(l, "")
	if c := d.Condition(); c != (gpu.Condition{SM: 1e9, Memory: 2e9, Temperature: 41, Throttle: 4}) {
		t.Errorf("got %+v", c)
	}
	l.Temperature = func(handle, uint32, *uint32) result { return notSupported }
	l.ThrottleReason = nil
	if c := d.Condition(); !math.IsNaN(c.Temperature) || c.Throttle != 0 {
		t.Errorf("got %+v", c)
	}
}

const tinyNVML = `
#include <string.h>
#include <stdint.h>
typedef struct { unsigned id, scope; long long ts, lat; unsigned type; int ret; union { double d; unsigned ui; unsigned long long ull; } v; } field;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int r) { return r == 15 ? "GPU is lost" : "?"; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "1.2", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *next) { *now = h == (void *)0x55; *next = 0; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)0x55; return i ? 2 : 0; }
int nvmlDeviceGetName(void *h, char *s, unsigned n) { strncpy(s, h == (void *)0x55 ? "Tiny GPU" : "wrong handle", n); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) { strncpy(s, "GPU-tiny", n); return 0; }
int nvmlDeviceGetPciInfo_v3(void *h, char *p) { memset(p, 0, 68); strcpy(p + 36, "00000000:0A:00.0"); return 0; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *mw) { *mw = 99000; return 0; }
int nvmlDeviceGetFieldValues(void *h, int n, field *f) {
	for (int i = 0; i < n; i++) { f[i].ret = 0; f[i].type = 3; f[i].v.ull = f[i].id * 1000ull; }
	return sizeof(field) == 40 ? 0 : 15;
}
int nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *mj) { return 15; }
`

func TestRealDlopen(t *testing.T) {
	lib, err := load(dltest.Build(t, "libnvidia-ml.so.1", tinyNVML+dltest.Stubs(library{}, tinyNVML, "3")))
	if err != nil {
		t.Fatal(err)
	}
	d, err := open(lib, "0")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if want := (gpu.Info{
		Name: "Tiny GPU", UUID: "GPU-tiny", PCIBusID: "00000000:0a:00.0",
		Driver: "1.2",
	}); d.Info() != want {
		t.Errorf("got %+v", d.Info())
	}
	if all, err := lib.list(); err != nil || len(all) != 1 || all[0].UUID != "GPU-tiny" || !all[0].Cut {
		t.Errorf("listed %+v, %v", all, err)
	}
	r, err := d.Read()
	if err != nil || r.Instant != 186 || r.Average != 185 || r.Usage != 99 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := d.ReadEnergy(); err == nil || !strings.Contains(err.Error(), "GPU is lost (15)") {
		t.Errorf("got %v", err)
	}
	if c := d.Condition(); !math.IsNaN(float64(c.SM)) || !math.IsNaN(c.Temperature) {
		t.Errorf("got %+v", c)
	}
	if _, err := load("libnvidia-ml-not-there.so.1"); !errors.Is(err, ErrNoNVML) {
		t.Errorf("got %v", err)
	}
}

func TestProcesses(t *testing.T) {
	begin := time.UnixMicro(1_700_000_000_000_000)
	window := gpu.Span{Start: begin, End: begin.Add(10 * time.Second)}
	list := func(pids ...uint32) func(handle, *uint32, *processInfo) result {
		return func(_ handle, n *uint32, p *processInfo) result {
			if int(*n) < len(pids) {
				*n = uint32(len(pids))
				return insufficientSize
			}
			for i, pid := range pids {
				unsafe.Slice(p, *n)[i] = processInfo{PID: pid}
			}
			*n = uint32(len(pids))
			return success
		}
	}
	use := func(samples ...processSample) func(handle, *processSample, *uint32, uint64) result {
		return func(_ handle, p *processSample, n *uint32, since uint64) result {
			if since != uint64(begin.UnixMicro()) {
				return 2
			}
			copy(unsafe.Slice(p, *n), samples)
			*n = uint32(len(samples))
			return success
		}
	}
	at := func(pid uint32, after time.Duration, sm uint32) processSample {
		return processSample{PID: pid, At: uint64(begin.Add(after).UnixMicro()), SM: sm}
	}
	many := make([]uint32, 70)
	for i := range many {
		many[i] = uint32(4_000_000 + i)
	}
	refuse := func(r result) func(handle, *processSample, *uint32, uint64) result {
		return func(handle, *processSample, *uint32, uint64) result { return r }
	}
	nan := math.NaN()
	for _, tc := range []struct {
		name    string
		spoil   func(*library)
		window  gpu.Span
		want    map[int]float64
		failing bool
	}{
		{"an old library", func(*library) {}, window, map[int]float64{}, false},
		{
			"contexts alone", func(l *library) { l.ComputeProcesses, l.GraphicsProcesses = list(11, 12), list(12, 13) },
			window,
			map[int]float64{11: nan, 12: nan, 13: nan},
			false,
		},
		{"used", func(l *library) {
			l.ComputeProcesses = list(11, 12)
			// The first sample covers time before the window, the last one time behind it.
			l.ProcessUse = use(at(12, 500*time.Millisecond, 90), at(11, 2*time.Second, 80), at(11, 3*time.Second, 60),
				at(12, 3*time.Second, 40), at(12, 11*time.Second, 100))
		}, window, map[int]float64{11: 0.7, 12: 0.2}, false},
		{
			"nobody used it", func(l *library) { l.ComputeProcesses, l.ProcessUse = list(11), refuse(notFound) },
			window,
			map[int]float64{11: 0},
			false,
		},
		{
			"use is not told", func(l *library) { l.ComputeProcesses, l.ProcessUse = list(11), refuse(notSupported) },
			window,
			map[int]float64{11: nan},
			false,
		},
		{
			"no permission", func(l *library) { l.ComputeProcesses, l.ProcessUse = list(11), refuse(noPermission) },
			window,
			map[int]float64{11: nan},
			false,
		},
		{
			"a window shorter than samples",
			func(l *library) { l.ComputeProcesses, l.ProcessUse = list(11), use(at(11, time.Second, 100)) },
			gpu.Span{Start: begin, End: begin.Add(time.Second)},
			map[int]float64{11: nan},
			false,
		},
		{"more than fit", func(l *library) { l.ComputeProcesses = list(many...) }, window, nil, false},
		{"a GPU that is lost", func(l *library) {
			l.ComputeProcesses = func(handle, *uint32,
				*processInfo,
			) result {
				return 15
			}
		}, window, nil, true},
		{
			"lost meanwhile", func(l *library) { l.ComputeProcesses, l.ProcessUse = list(11), refuse(15) }, window, nil,
			true,
		},
	} {
		l := fake()
		tc.spoil(l)
		d, err := open(l, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Processes(tc.window)
		if (err != nil) != tc.failing {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.failing {
			continue
		}
		if tc.want == nil && len(got) != len(many) || tc.want != nil && len(got) != len(tc.want) {
			t.Errorf("%s: %+v", tc.name, got)
			continue
		}
		for _, p := range got {
			if w, ok := tc.want[p.PID]; tc.want != nil &&
				(!ok || math.Abs(w-p.Busy) > 1e-9 || math.IsNaN(w) != math.IsNaN(p.Busy)) {
				t.Errorf("%s: %+v, want %v", tc.name, p, w)
			}
		}
	}
}
