package cupti

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/google/go-cmp/cmp"

	"github.com/wattmark/wattmark/hostagent/gpu/cupti/cuptitest"
	"github.com/wattmark/wattmark/hostagent/gpu/internal/dl"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
)

// standin is the test's side of the stand-in library.
type standin struct {
	Kernel func(name *byte, start, end uint64, device, stream, correlation, graph uint32, grid, block *[3]int32) `c:"standin_kernel"`
	Drop   func(n uint64)                                                                                        `c:"standin_drop"`
	Calls  func() int32                                                                                          `c:"standin_calls"`
}

// attach loads a stand-in and attaches to it, as a new process would.
func attach(t *testing.T, lib string) (s standin, log string, err error) {
	t.Helper()
	forget := func() { attached.pid, attached.file, attached.lib = 0, nil, nil; attached.rec.Store(nil) }
	forget()
	t.Cleanup(forget)
	t.Setenv(EnvLibrary, lib)
	dir := t.TempDir()
	err = Attach(dir, Options{})
	if _, e := os.Stat(lib); e == nil {
		h, e := dl.Open(lib)
		if e == nil {
			e = dl.Bind(h, &s)
		}
		if e != nil {
			t.Fatal(e)
		}
	}
	return s, filepath.Join(dir, fmt.Sprintf("%d%s", os.Getpid(), LogSuffix)), err
}

func read(t *testing.T, path string) (launchlog.Process, []launchlog.Kernel) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := launchlog.Open(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var out []launchlog.Kernel
	for {
		var k launchlog.Kernel
		if err := l.Next(&k); errors.Is(err, io.EOF) {
			return l.Process, out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, k)
	}
}

func name(s string) *byte { return &append([]byte(s), 0)[0] }

func launch(s standin, n *byte, k *launchlog.Kernel) {
	g := [3]int32{int32(k.Grid[0]), int32(k.Grid[1]), int32(k.Grid[2])}
	b := [3]int32{int32(k.Block[0]), int32(k.Block[1]), int32(k.Block[2])}
	s.Kernel(n, uint64(k.Start), uint64(k.End), k.Device, k.Stream, k.Correlation, k.Graph, &g, &b)
}

// Every field of every version of the record, as a C compiler laid it out, over
// a real dlopen, CUPTI's buffers and a thread that Go did not make.
func TestRecordsOfEveryVersion(t *testing.T) {
	for _, c := range []struct {
		kernel  int
		version uint32
		graph   bool
	}{
		{4, 12, false},
		{5, 13, false},
		{5, 14, true},
		{6, 16, true},
		{7, 17, true},
		{8, 18, true},
		{9, 24, true},
		{10, 130001, true},
	} {
		t.Run(fmt.Sprintf("CUpti_ActivityKernel%d", c.kernel), func(t *testing.T) {
			s, path, err := attach(t, cuptitest.Build(t, c.kernel, c.version, "SMALL_BUFFERS"))
			if err != nil {
				t.Fatal(err)
			}
			names := []*byte{name("gemm"), name("_Z4vaddPKfS0_Pfi"), name("")}
			var want []launchlog.Kernel
			for i := range uint32(500) {
				k := launchlog.Kernel{
					Name: i % 3, Start: 1_700_000_000_000_000_000 + int64(i)*1000, Device: i % 2, Stream: 7 + i,
					Correlation: 1000 + i, Graph: i % 5,
					Grid: [3]uint32{i + 1, 2, 3}, Block: [3]uint32{32, i + 4, 5},
				}
				k.End = k.Start + 900
				launch(s, names[k.Name], &k)
				if !c.graph {
					k.Graph = 0
				}
				want = append(want, k)
			}
			s.Drop(5)
			if err := Detach(); err != nil {
				t.Fatal(err)
			}
			p, got := read(t, path)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if !p.Whole || p.Kernels != 500 || p.Reported != 500 || p.Dropped != 5 || p.CUPTI != c.version ||
				p.Trouble != nil ||
				!slices.Equal(p.Names, []string{"gemm", "_Z4vaddPKfS0_Pfi", ""}) {
				t.Errorf("%+v", p)
			}
			if made := len(attached.rec.Load().pool.own); made != spare {
				t.Errorf("%d buffers where %d are used again", made, spare)
			}
		})
	}
}

// An address that is another kernel's after its module was unloaded.
func TestANameThatChanges(t *testing.T) {
	s, path, err := attach(t, cuptitest.Build(t, 10, 130001))
	if err != nil {
		t.Fatal(err)
	}
	n := []byte("first\x00")
	k := launchlog.Kernel{Start: 1, End: 2}
	launch(s, &n[0], &k)
	if attached.lib.FlushAll(0) != 0 {
		t.Fatal("flush")
	}
	copy(n, "other")
	launch(s, &n[0], &k)
	if err := Detach(); err != nil {
		t.Fatal(err)
	}
	p, got := read(t, path)
	if len(got) != 2 || got[1].Name != 1 || !slices.Equal(p.Names, []string{"first", "other"}) {
		t.Errorf("%+v %+v", p, got)
	}
}

// Kernels whose times CUPTI could not collect are counted, not invented.
func TestKernelsWithoutTimes(t *testing.T) {
	s, path, err := attach(t, cuptitest.Build(t, 9, 24))
	if err != nil {
		t.Fatal(err)
	}
	n := name("k")
	launch(s, n, &launchlog.Kernel{})
	launch(s, n, &launchlog.Kernel{Start: 5, End: 4})
	launch(s, n, &launchlog.Kernel{Start: 5, End: 5})
	if err := Detach(); err != nil {
		t.Fatal(err)
	}
	p, got := read(t, path)
	if len(got) != 1 || p.Reported != 3 || len(p.Trouble) != 1 ||
		!strings.Contains(p.Trouble[0], "2 kernels without time stamps") {
		t.Errorf("%+v %+v", p, got)
	}
}

// What goes wrong is told, in the log too, and the program runs on.
func TestFailuresAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		lib      func(t *testing.T) string
		attach   string // part of Attach's error; empty for none
		detach   string
		reported uint64
	}{
		"no library": {func(t *testing.T) string { return "/nowhere/libcupti.so" }, "nvidia-cuda-cupti", "", 0},
		"too old":    {func(t *testing.T) string { return cuptitest.Build(t, 4, 9) }, "too old", "", 0},
		"another profiler": {
			func(t *testing.T) string { return cuptitest.Build(t, 10, 130001, "FAIL_ENABLE") },
			"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39): does another profiler run", "", 0,
		},
		"a flush that fails": {
			func(t *testing.T) string { return cuptitest.Build(t, 10, 130001, "FAIL_FLUSH") },
			"", "cuptiActivityFlushAll: CUPTI_ERROR_UNKNOWN (999)", 0,
		},
		"a buffer that is bad": {
			func(t *testing.T) string { return cuptitest.Build(t, 10, 130001, "FAIL_RECORD") },
			"", "", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, path, err := attach(t, c.lib(t))
			if c.attach == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.attach) {
				t.Fatalf("attach: %v", err)
			}
			if s.Kernel != nil {
				n := []byte("k\x00")
				launch(s, &n[0], &launchlog.Kernel{Start: 1, End: 2})
			}
			err = Detach()
			if c.detach == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.detach) {
				t.Errorf("detach: %v", err)
			}
			p, got := read(t, path)
			if len(got) != 0 || len(p.Trouble) != 1 || !p.Whole || p.Reported != c.reported {
				t.Errorf("%+v, %+v", p, got)
			}
		})
	}
}

// The GPUs are named by the driver, once, at the end.
func TestDevicesAreNamed(t *testing.T) {
	s, path, err := attach(t, cuptitest.Build(t, 10, 130001))
	if err != nil {
		t.Fatal(err)
	}
	attached.rec.Load().drv = &driver{
		DeviceGet:  func(dev *int32, ordinal int32) int32 { *dev = 10 + ordinal; return ordinal / 5 }, // there are five
		DeviceUUID: func(uuid *[16]byte, dev int32) int32 { uuid[15] = byte(dev); return 0 },
	}
	n := []byte("k\x00")
	for _, d := range []uint32{3, 1, 3, 6} {
		launch(s, &n[0], &launchlog.Kernel{Start: 1, End: 2, Device: d})
	}
	if err := Detach(); err != nil {
		t.Fatal(err)
	}
	p, got := read(t, path)
	if diff := cmp.Diff(map[uint32][16]byte{1: {15: 11}, 3: {15: 13}}, p.Devices); diff != "" || len(got) != 4 ||
		!p.Whole {
		t.Errorf("%s, %+v", diff, p)
	}
}

// In a child that forked there is no recorder.
func TestAForkedChildIsRefused(t *testing.T) {
	if _, _, err := attach(t, cuptitest.Build(t, 10, 130001)); err != nil {
		t.Fatal(err)
	}
	attached.pid++
	if err := Detach(); !errors.Is(err, ErrFork) {
		t.Errorf("got %v", err)
	}
}

func TestWhereCUPTIIsLookedFor(t *testing.T) {
	env := map[string]string{"CUDA_HOME": "/opt/cuda", "VIRTUAL_ENV": "/venv", "HOME": "/home/lab"}
	glob := func(p string) ([]string, error) {
		switch p {
		case "/usr/local/cuda*/lib64/libcupti.so.12":
			return []string{"/usr/local/cuda-12.1/lib64/libcupti.so.12", "/usr/local/cuda-12.9/lib64/libcupti.so.12"},
				nil
		case "/opt/cuda/extras/CUPTI/lib64/libcupti.so.13",
			"/venv/lib/python3*/site-packages/nvidia/cu13/lib/libcupti.so.13":
			return []string{p}, nil
		}
		return nil, nil
	}
	getenv := func(k string) string { return env[k] }
	want := append(slices.Clone(names), "/opt/cuda/extras/CUPTI/lib64/libcupti.so.13",
		"/venv/lib/python3*/site-packages/nvidia/cu13/lib/libcupti.so.13",
		"/usr/local/cuda-12.9/lib64/libcupti.so.12", "/usr/local/cuda-12.1/lib64/libcupti.so.12")
	if diff := cmp.Diff(want, Candidates(getenv, glob)); diff != "" {
		t.Error(diff)
	}
	env[EnvLibrary] = "/mine.so"
	if got := Candidates(getenv, glob); !slices.Equal(got, []string{"/mine.so"}) {
		t.Errorf("got %v", got)
	}
}

func FuzzDecode(f *testing.F) {
	good := make([]byte, sizeKernel5)
	binary.LittleEndian.PutUint32(good, kindConcurrentKernel)
	f.Add(uint32(130001), good)
	f.Add(uint32(12), good[:sizeKernel4])
	f.Fuzz(func(t *testing.T, version uint32, b []byte) {
		l, err := layoutOf(version)
		if err != nil {
			return
		}
		var k launchlog.Kernel
		_, ok := l.decode(b, &k)
		if ok && (len(b) < l.size || k.Graph != 0 && !l.graph) {
			t.Errorf("%+v out of %d bytes", k, len(b))
		}
	})
}

// The whole way of a record: CUPTI's walk, decoding, the log.
func BenchmarkRecords(b *testing.B) {
	lib := &library{Dropped: func(uintptr, uint32, *uint64) uint32 { return 0 }}
	rec := make([]byte, sizeKernel5)
	kernel := []byte("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>\x00")
	binary.LittleEndian.PutUint32(rec, kindConcurrentKernel)
	binary.LittleEndian.PutUint64(rec[offStart:], 1000)
	binary.LittleEndian.PutUint64(rec[offEnd:], 2000)
	binary.LittleEndian.PutUint64(rec[offName:], uint64(uintptr(unsafe.Pointer(&kernel[0]))))
	l, err := layoutOf(130001)
	if err != nil {
		b.Fatal(err)
	}
	r := newRecorder(lib, nil, l, launchlog.NewWriter(io.Discard, 1, 130001, 0))
	b.ReportAllocs()
	for range b.N {
		r.take(rec, 0)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "kernels/s")
}

// A profiler that replaces the callbacks unseen keeps the buffers that CUPTI held.
func TestCallbacksReplacedUnseen(t *testing.T) {
	s, path, err := attach(t, cuptitest.Build(t, 10, 130001))
	if err != nil {
		t.Fatal(err)
	}
	n := []byte("k\x00")
	launch(s, &n[0], &launchlog.Kernel{Start: 1, End: 2})
	if attached.lib.RegisterCallbacks(purego.NewCallback(func(_, _, _ uintptr) uintptr { return 0 }),
		purego.NewCallback(func(_, _, _, _, _ uintptr) uintptr { return 0 })) != 0 {
		t.Fatal("register")
	}
	if err := Detach(); err != nil {
		t.Fatal(err)
	}
	p, _ := read(t, path)
	if len(p.Trouble) != 1 || !strings.Contains(p.Trouble[0], "1 of CUPTI's buffers never came back") {
		t.Errorf("%q", p.Trouble)
	}
}

// Ranges have the calls that launch recorded: these alone where CUPTI can, else all of their kinds. No thread that names
// a range waits for the log.
func TestRangesHaveTheirCalls(t *testing.T) {
	for version, how := range map[uint32]int32{18: 1, 130001: 2} {
		kernel := map[uint32]int{18: 8, 130001: 10}[version]
		s, path, err := attach(t, cuptitest.Build(t, kernel, version))
		if err != nil {
			t.Fatal(err)
		}
		n := name("k")
		launch(s, n, &launchlog.Kernel{Start: 1, End: 2, Correlation: 1})
		const steps = 3 * mostEvents
		attached.rec.Load().mu.Lock() // as while a buffer is read
		for i := range steps / 2 {
			Range(launchlog.Range{Kind: launchlog.Push, Thread: 3, At: int64(2 * i)}, "step")
			Range(launchlog.Range{Kind: launchlog.Pop, Thread: 3, At: int64(2*i + 1)}, "")
		}
		attached.rec.Load().mu.Unlock()
		launch(s, n, &launchlog.Kernel{Start: 3, End: 4, Correlation: 2})
		if got := s.Calls(); got != how {
			t.Errorf("CUPTI %d: calls are recorded by way %d, want %d", version, got, how)
		}
		if err := Detach(); err != nil {
			t.Fatal(err)
		}
		p, got := read(t, path)
		if len(got) != 2 || len(p.Ranges) != steps || len(p.Calls) != 1 {
			t.Errorf("CUPTI %d: %d kernels, %d events of ranges, %d calls, want 2, %d and 1", version, len(got),
				len(p.Ranges), len(p.Calls), steps)
		}
		for i, r := range p.Ranges {
			if r.At != int64(i) {
				t.Fatalf("CUPTI %d: event %d is of %d ns: not in the order of their thread", version, i, r.At)
			}
		}
	}
}
