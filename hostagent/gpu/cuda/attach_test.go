package cuda

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/measure/marker"
)

// callers puts a program's context, current on every thread, into the fake.
func (g *fakeGPU) callers(c uintptr, uninitialised bool) *driver {
	d := g.driver()
	d.CtxCurrent = func(to *uintptr) result {
		if uninitialised {
			return errNotInitialized
		}
		*to = c
		return g.call("get current")
	}
	d.CtxDevice = func(dev *int32) result { *dev = 41; return g.call("device") }
	d.CtxSync = func() result { g.running = nil; return g.call("sync context") }
	launch := d.Launch
	d.Launch = func(fn uintptr, gx, gy, gz, bx, by, bz, shared uint32, s uintptr, p, e *unsafe.Pointer) result {
		g.streams = append(g.streams, s)
		return launch(fn, gx, gy, gz, bx, by, bz, shared, s, p, e)
	}
	return d
}

func TestCurrentContext(t *testing.T) {
	for name, tc := range map[string]struct {
		c, want       uintptr
		uninitialised bool
	}{"the program's": {c: 0xC7, want: 0xC7}, "none": {}, "no cuInit yet": {c: 0xC7, uninitialised: true}} {
		if got, err := newFakeGPU().callers(tc.c, tc.uninitialised).current(); got != tc.want || err != nil {
			t.Errorf("%s: got %#x, %v", name, got, err)
		}
	}
	g := newFakeGPU()
	g.fail["get current"] = 700
	if _, err := g.callers(1, false).current(); !errors.Is(err, ErrCUDA) {
		t.Errorf("got %v", err)
	}
}

func TestAttachUsesWhatIsTheCallers(t *testing.T) {
	g := newFakeGPU()
	d, err := attach(t.Context(), g.callers(0xC7, false), Caller{Context: 0xC7, Streams: []uintptr{0x77, 0x78}})
	if err != nil {
		t.Fatal(err)
	}
	if d.Info().PCIBusID != "0000:65:00.0" || g.count("retain") != 0 || g.count("stream") != 1 {
		t.Errorf("GPU %s, %d contexts taken, %d streams made", d.Info().PCIBusID, g.count("retain"), g.count("stream"))
	}
	if _, err := d.PlayMarker(t.Context(), marker.Spec{Code: marker.Barker13, Chip: 2e-3, Guard: 4},
		marker.Start); err != nil {
		t.Fatal(err)
	}
	for _, s := range g.streams {
		if s != 0x77 {
			t.Errorf("launched in stream %#x", s)
		}
	}
	if _, err := d.Mark(0x78); err != nil || g.streams[len(g.streams)-1] != 0x78 {
		t.Errorf("a mark in another stream: %v, %#x", err, g.streams[len(g.streams)-1])
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if g.count("release") != 0 || g.count("destroy") != 1 || len(g.mem) != 0 {
		t.Errorf("%d contexts released, %d streams destroyed, %d buffers left", g.count("release"),
			g.count("destroy"), len(g.mem))
	}
}

func TestMarksAndSettle(t *testing.T) {
	g := newFakeGPU()
	d, err := attach(t.Context(), g.callers(1, false), Caller{Context: 1, Streams: []uintptr{0x77, 0x78}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := time.Now()
	for want := range 3 {
		if n, err := d.Mark(0); n != want || err != nil {
			t.Fatalf("mark %d: got %d, %v", want, n, err)
		}
	}
	end, err := d.Settle()
	if err != nil || g.count("sync context") != 0 {
		t.Fatalf("%v; %d waits for the whole context", err, g.count("sync context"))
	}
	times, err := d.Times()
	if err != nil || len(times) != 3 {
		t.Fatalf("%v, %v", times, err)
	}
	at := before.Add(-time.Millisecond)
	for _, x := range append(times, end) {
		if x.Before(at) || x.After(time.Now().Add(time.Millisecond)) {
			t.Errorf("%v after the start, the one before %v", x.Sub(before), at.Sub(before))
		}
		at = x.Add(-time.Millisecond)
	}
	d.marked = Marks
	if _, err := d.Mark(0); !errors.Is(err, ErrStream) || !strings.Contains(err.Error(), "4096") {
		t.Errorf("one mark too many: %v", err)
	}
	if _, err := d.Settle(); err != nil || d.marked != Marks {
		t.Errorf("the end of the work behind as many marks as there can be: %v, %d marks", err, d.marked)
	}
	d.marked = 3
	if _, err := d.Mark(2); !errors.Is(err, ErrStream) || !strings.Contains(err.Error(), "per-thread") {
		t.Errorf("the per-thread stream: %v", err)
	}
}

// Without streams the whole context is waited for; an opened device has marks too.
func TestSettleTheWholeContext(t *testing.T) {
	g := newFakeGPU()
	d, err := open(t.Context(), g.callers(0, false), "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Settle(); err != nil || g.count("sync context") != 1 {
		t.Errorf("%v, %d waits", err, g.count("sync context"))
	}
	if x, err := d.Times(); err != nil || x != nil {
		t.Errorf("without marks: %v, %v", x, err)
	}
	if _, err := d.Mark(0); err != nil {
		t.Error(err)
	}
	g.fail["sync context"] = 700
	if _, err := d.Settle(); !errors.Is(err, ErrCUDA) || !strings.Contains(err.Error(), "cuCtxSynchronize") {
		t.Errorf("kernels that failed: %v", err)
	}
}

func TestAttachFailsCleanly(t *testing.T) {
	for _, call := range []string{
		"init", "current", "device", "name", "load", "function", "host alloc", "alloc",
		"info", "stream", "sync", "to host",
	} {
		t.Run(call, func(t *testing.T) {
			g := newFakeGPU()
			g.fail[call] = 2
			d, err := attach(t.Context(), g.callers(1, false), Caller{Context: 1})
			if d != nil || !errors.Is(err, ErrCUDA) || len(g.mem) != 0 || g.count("release") != 0 {
				t.Errorf("%v; %d buffers left", err, len(g.mem))
			}
		})
	}
	if _, err := attach(t.Context(), newFakeGPU().callers(1, false),
		Caller{Context: 1, Streams: []uintptr{2}}); !errors.Is(err, ErrStream) {
		t.Errorf("the per-thread stream: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := attach(ctx, newFakeGPU().callers(1, false), Caller{Context: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkMark is the host's cost of a mark, without the driver's.
func BenchmarkMark(b *testing.B) {
	g := newFakeGPU()
	d, err := attach(b.Context(), g.callers(1, false), Caller{Context: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	for b.Loop() {
		if _, err := d.Mark(0); err != nil {
			b.Fatal(err)
		}
		d.marked, g.log, g.streams = 0, g.log[:0], g.streams[:0]
	}
}
