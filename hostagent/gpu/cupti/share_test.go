package cupti

import (
	"strings"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/wattmark/wattmark/hostagent/gpu/cupti/cuptitest"
	"github.com/wattmark/wattmark/hostagent/gpu/launchlog"
)

// ownProfiler is a program's profiler: callbacks that count the records which it gets.
type ownProfiler struct {
	buffers [][]byte
	bytes   int
	sizes   int // of its buffers
}

func (o *ownProfiler) callbacks() (requested, completed uintptr) {
	return purego.NewCallback(func(buffer, size, records uintptr) uintptr {
			b := make([]byte, o.sizes)
			o.buffers = append(o.buffers, b)
			*pointer[uintptr](buffer), *pointer[uint64](size), *pointer[uint64](records) = addressOf(&b[0]), uint64(len(b)), 0
			return 0
		}), purego.NewCallback(func(_, _, _, _, valid uintptr) uintptr {
			o.bytes += int(valid)
			return 0
		})
}

// recordBytes is the size of the stand-in's record of version 10.
const recordBytes = 216

// watchedAs has the calls that the test makes by Call reach the stand-in's functions.
func watchedAs(t *testing.T) {
	t.Helper()
	attached.rec.Load().lib.through(attached.lib.calls)
}

func TestBothGetTheKernels(t *testing.T) {
	s, path, err := attach(t, cuptitest.Build(t, 10, 130001))
	if err != nil {
		t.Fatal(err)
	}
	watchedAs(t)
	n := []byte("k\x00")
	run := func(from, to int64) {
		for at := from; at < to; at++ {
			launch(s, &n[0], &launchlog.Kernel{Start: time.Now().UnixNano(), End: time.Now().UnixNano() + at})
		}
	}
	own := &ownProfiler{sizes: 4 * recordBytes}
	requested, completed := own.callbacks()
	begin := func() {
		if Call(CallRegister, requested, completed, 0)+Call(CallEnable, kindConcurrentKernel, 0, 0) != 0 {
			t.Fatal("the program's calls fail")
		}
	}
	end := func() {
		if Call(CallDisable, kindConcurrentKernel, 0, 0)+Call(CallFlush, 1, 0, 0) != 0 {
			t.Fatal("the program's calls fail")
		}
	}
	run(0, 10)
	begin()
	run(0, 7) // into the buffer that CUPTI had from before
	Call(CallFlush, 1, 0, 0)
	run(0, 9) // into its own
	end()
	run(0, 5)
	begin()
	end()
	if err := Detach(); err != nil {
		t.Fatal(err)
	}
	p, got := read(t, path)
	if want := (7 + 9) * recordBytes; own.bytes != want {
		t.Errorf("its own profiler got %d bytes, want %d", own.bytes, want)
	}
	if len(got) != 31 || p.Reported != 31 || p.Trouble != nil {
		t.Errorf("%d kernels, %+v", len(got), p)
	}
}

// The program's clock runs at another rate: the log has the host's times.
func TestTheProgramsClockIsRelated(t *testing.T) {
	s, path, err := attach(t, cuptitest.Build(t, 10, 130001))
	if err != nil {
		t.Fatal(err)
	}
	watchedAs(t)
	n := []byte("k\x00")
	began := time.Now()
	ticks := purego.NewCallback(func() uintptr { return uintptr(1e12 + 3*time.Since(began).Nanoseconds()) })
	if Call(CallClock, ticks, 0, 0)+Call(CallClock, ticks, 0, 0) != 0 {
		t.Fatal("the clock is refused")
	}
	var want []int64
	for range 20 {
		at := time.Now().UnixNano()
		launch(s, &n[0], &launchlog.Kernel{Start: at, End: at + 1000})
		Call(CallFlush, 0, 0, 0)
		want = append(want, at)
	}
	if err := Detach(); err != nil {
		t.Fatal(err)
	}
	_, got := read(t, path)
	if len(got) != len(want) {
		t.Fatalf("%d kernels", len(got))
	}
	close := 0
	for i, k := range got {
		// The machine may stop a thread between two readings of clocks; not always.
		if d := k.Start - want[i]; d > -20_000 && d < 20_000 && k.End-k.Start > 900 && k.End-k.Start < 1100 {
			close++
		}
	}
	if close < len(want)/2 {
		t.Errorf("%d of %d near their times: %v, want %v", close, len(want), got, want)
	}
}

// Serialized kernels exclude concurrent ones: the program's choice is recorded too.
func TestSerializedKernels(t *testing.T) {
	s, path, err := attach(t, cuptitest.Build(t, 10, 130001))
	if err != nil {
		t.Fatal(err)
	}
	watchedAs(t)
	own := &ownProfiler{sizes: 4 * recordBytes}
	requested, completed := own.callbacks()
	Call(CallRegister, requested, completed, 0)
	n := []byte("k\x00")
	k := launchlog.Kernel{Start: time.Now().UnixNano(), End: time.Now().UnixNano() + 5}
	if Call(CallEnable, kindKernel, 0, 0) != 0 {
		t.Fatal("refused")
	}
	launch(s, &n[0], &k)
	if Call(CallDisable, kindKernel, 0, 0) != 0 {
		t.Fatal("refused")
	}
	launch(s, &n[0], &k)
	if err := Detach(); err != nil {
		t.Fatal(err)
	}
	if p, got := read(t, path); len(got) != 2 || p.Trouble != nil || own.bytes != 2*recordBytes {
		t.Errorf("%d kernels, the program %d bytes, %+v", len(got), own.bytes, p)
	}
}

// The program ends CUPTI's work: what ran before is in the log, with the time; a profiler that begins
// again is recorded.
func TestFinalize(t *testing.T) {
	s, path, err := attach(t, cuptitest.Build(t, 10, 130001))
	if err != nil {
		t.Fatal(err)
	}
	watchedAs(t)
	n := []byte("k\x00")
	k := launchlog.Kernel{Start: time.Now().UnixNano(), End: time.Now().UnixNano() + 5}
	launch(s, &n[0], &k)
	Call(CallFinalize, 0, 0, 0)
	launch(s, &n[0], &k) // CUPTI does not work
	own := &ownProfiler{sizes: 4 * recordBytes}
	requested, completed := own.callbacks()
	Call(CallRegister, requested, completed, 0)
	launch(s, &n[0], &k)
	if err := Detach(); err != nil {
		t.Fatal(err)
	}
	p, got := read(t, path)
	if len(got) != 2 || p.Yielded < p.Started || len(p.Trouble) != 1 || !strings.Contains(p.Trouble[0], "recorded from") {
		t.Errorf("%d kernels, %+v", len(got), p)
	}
}
