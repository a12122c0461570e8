package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A program gets its parameters and its grid, and works on buffers.
func TestProgramRuns(t *testing.T) {
	g := newFakeGPU()
	var got fakeLaunch
	g.args = 3
	g.entries = map[string]func(fakeLaunch){"twice": func(l fakeLaunch) {
		got = l
		in, out := g.bytes(l.args[1]), g.bytes(l.args[0])
		for n := range 2 {
			binary.LittleEndian.PutUint64(out[8*n:], l.args[2]*binary.LittleEndian.Uint64(in[8*n:]))
		}
	}}
	d := openFake(t, g)
	own := len(g.levels)
	p, err := d.Load([]byte("…\x00"), "twice", 3)
	if err != nil {
		t.Fatal(err)
	}
	in, err := d.Allocate(16)
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.Allocate(32)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Upload([]uint64{20, 1 << 60}); err != nil {
		t.Fatal(err)
	}
	span, err := p.Run(t.Context(), [3]uint32{7, 2, 1}, [3]uint32{32, 1, 4}, out.Address(), in.Address(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if !span.End.After(span.Start) {
		t.Errorf("got span %v", span)
	}
	if d := cmp.Diff(fakeLaunch{[3]uint32{7, 2, 1}, [3]uint32{32, 1, 4}, []uint64{out.Address(), in.Address(), 2}},
		got, cmp.AllowUnexported(fakeLaunch{})); d != "" {
		t.Error(d)
	}
	left := make([]uint64, 3)
	if err := out.Download(left); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]uint64{40, 1 << 61, 0}, left); d != "" { // the third is zero: memory comes cleared
		t.Error(d)
	}
	if g.levels[own] != 3 {
		t.Errorf("compiled at level %d", g.levels[own])
	}
	if n, err := p.Blocks(64); err != nil || n != 20 {
		t.Errorf("%d blocks (%v), want 4 SMs × 5", n, err)
	}
	unloaded := g.count("unload")
	if err := errors.Join(p.Close(), in.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	if g.count("unload") != unloaded+1 {
		t.Error("the program was not unloaded")
	}
}

func TestCompilerLevel(t *testing.T) {
	g := newFakeGPU()
	d := openFake(t, g)
	if d := cmp.Diff([]uintptr{4}, g.levels); d != "" {
		t.Errorf("the product's own kernels: %s", d)
	}
	for level := range 5 {
		p, err := d.Load([]byte{0}, "k", level)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if g.levels[1+level] != uintptr(level) {
			t.Errorf("level %d became %d", level, g.levels[1+level])
		}
	}
	for _, level := range []int{-1, 5} {
		if _, err := d.Load([]byte{0}, "k", level); err == nil || !strings.Contains(err.Error(), "want 0 to 4") {
			t.Errorf("level %d: %v", level, err)
		}
	}
	if g.count("load") != 6 {
		t.Errorf("%d modules were loaded", g.count("load"))
	}
}

// Each call that fails is named, and leaves nothing behind.
func TestProgramFailsCleanly(t *testing.T) {
	whole := func(d *Device) error {
		p, err := d.Load([]byte{0}, "k", 0)
		if err != nil {
			return err
		}
		b, err := d.Allocate(64)
		if err != nil {
			return errors.Join(err, p.Close())
		}
		_, blocks := p.Blocks(256)
		_, run := p.Run(context.Background(), [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, b.Address())
		return errors.Join(blocks, b.Upload([]uint64{1}), run, b.Download(make([]uint64, 1)), p.Close(), b.Close())
	}
	for call, want := range map[string]string{
		"load": "load k: CUDA call failed: cuModuleLoadDataEx", "function": "cuModuleGetFunction k",
		"alloc":  "64 bytes on the GPU",
		"memset": "cuMemsetD8", "to device": "upload: CUDA call failed: cuMemcpyHtoD",
		"launch k": "run program: CUDA call failed: cuLaunchKernel",
		"sync":     "cuStreamSynchronize", "to host": "download: CUDA call failed: cuMemcpyDtoH",
		"occupancy": "cuOccupancy",
		"unload":    "cuModuleUnload", "free": "cuMemFree",
	} {
		t.Run(call, func(t *testing.T) {
			g := newFakeGPU()
			g.args, g.entries = 1, map[string]func(fakeLaunch){"k": func(fakeLaunch) {}}
			d := openFake(t, g)
			if err := whole(d); err != nil {
				t.Fatal(err)
			}
			before, loads, unloads := len(g.mem), g.count("load"), g.count("unload")
			g.fail[call] = 700
			err := whole(d)
			g.fail = map[string]result{}
			if err == nil || !errors.Is(err, ErrCUDA) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if len(g.mem) != before {
				t.Errorf("%d buffers are left", len(g.mem)-before)
			}
			if l, u := g.count("load")-loads, g.count("unload")-unloads; l != u && call != "load" {
				t.Errorf("%d modules were loaded, %d unloaded", l, u)
			}
		})
	}
}

func TestBufferHasItsSize(t *testing.T) {
	d := openFake(t, newFakeGPU())
	b, err := d.Allocate(16)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]uint64{nil, make([]uint64, 3)} {
		for name, f := range map[string]func([]uint64) error{"upload": b.Upload, "download": b.Download} {
			if err := f(words); err == nil || !strings.Contains(err.Error(), "the buffer has 16 bytes") {
				t.Errorf("%s of %d words: %v", name, len(words), err)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A kernel cannot be stopped, so that a context that has ended must not start one.
func TestCancelledProgramIsNotLaunched(t *testing.T) {
	g := newFakeGPU()
	g.args, g.entries = 0, map[string]func(fakeLaunch){"k": func(fakeLaunch) {}}
	d := openFake(t, g)
	p, err := d.Load([]byte{0}, "k", 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Run(ctx, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}); !errors.Is(err, context.Canceled) ||
		g.count("launch k") != 0 {
		t.Errorf("%v, %d launches", err, g.count("launch k"))
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestCapability(t *testing.T) {
	g := newFakeGPU()
	d := openFake(t, g)
	if cc, err := d.Capability(); err != nil || cc != 90 {
		t.Errorf("%d, %v", cc, err)
	}
	g.fail["attribute"] = 999
	if _, err := d.Capability(); !errors.Is(err, ErrCUDA) {
		t.Error(err)
	}
}
