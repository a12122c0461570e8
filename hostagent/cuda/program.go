package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"wattmark/hostagent"
)

// Program is a kernel that was compiled from PTX text. Its parameters are 64-bit
// numbers and addresses of buffers.
type Program struct {
	d       *Device
	mod, fn uintptr
}

// Load compiles a kernel at an optimisation level, 0 (-O0) to 4. The text ends
// with a NUL.
func (d *Device) Load(source []byte, entry string, level int) (*Program, error) {
	if level < leastLevel || level > mostLevel {
		return nil, fmt.Errorf("cuda: load %s: optimisation level %d: want %d to %d", entry, level, leastLevel, mostLevel)
	}
	p := &Program{d: d}
	err := d.w.do(func() (err error) {
		if p.mod, err = d.drv.compileAt(source, level); err != nil {
			return err
		}
		if p.fn, err = d.drv.function(p.mod, entry); err != nil {
			err = errors.Join(err, d.drv.check("cuModuleUnload", d.drv.ModuleUnload(p.mod)))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: load %s: %w", entry, err)
	}
	return p, nil
}

// Run launches the kernel and waits for its end. The span is the host's, from the
// launch to the end of the synchronisation. A kernel that does not end cannot be
// stopped: ctx is looked at before the launch only.
func (p *Program) Run(ctx context.Context, grid, block [3]uint32, args ...uint64) (s hostagent.Span, err error) {
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	err = p.d.w.do(func() error {
		list := make([]*uint64, len(args))
		for i := range args {
			list[i] = &args[i]
		}
		s.Start = time.Now()
		if err := p.d.launchGrid(p.fn, grid, block, 0, params(list...)); err != nil {
			return err
		}
		err := p.d.sync()
		s.End = time.Now()
		return err
	})
	if err != nil {
		return s, fmt.Errorf("cuda: run program: %w", err)
	}
	return s, nil
}

// Blocks is how many blocks of so many threads are resident on the whole GPU.
func (p *Program) Blocks(threads uint32) (n uint32, err error) {
	var perSM int32
	err = p.d.w.do(func() error {
		return p.d.drv.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", p.d.drv.Occupancy(&perSM, p.fn, int32(threads), 0))
	})
	if err != nil {
		return 0, fmt.Errorf("cuda: program: %w", err)
	}
	return uint32(max(1, int(perSM)*p.d.sms)), nil
}

// Close unloads the kernel.
func (p *Program) Close() error {
	return p.d.w.do(func() error { return p.d.drv.check("cuModuleUnload", p.d.drv.ModuleUnload(p.mod)) })
}

// Buffer is memory of the GPU.
type Buffer struct {
	d    *Device
	at   uint64
	size uint64
}

// Allocate takes memory, filled with zeros.
func (d *Device) Allocate(size uint64) (*Buffer, error) {
	b := &Buffer{d: d, size: size}
	err := d.w.do(func() error {
		if err := d.drv.check("cuMemAlloc", d.drv.MemAlloc(&b.at, uintptr(size))); err != nil {
			return err
		}
		if err := d.zero(b.at, size); err != nil {
			return errors.Join(err, d.drv.check("cuMemFree", d.drv.MemFree(b.at)))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: %d bytes on the GPU: %w", size, err)
	}
	return b, nil
}

// Address is what a kernel takes.
func (b *Buffer) Address() uint64 { return b.at }

// Upload copies words into the buffer's begin.
func (b *Buffer) Upload(words []uint64) error {
	return b.move("upload", words, func(p []byte) error {
		if err := b.d.upload(b.at, p); err != nil {
			return err
		}
		return b.d.sync()
	})
}

// Download fills words from the buffer's begin.
func (b *Buffer) Download(words []uint64) error {
	return b.move("download", words, func(p []byte) error { return b.d.download(p, b.at) })
}

func (b *Buffer) move(what string, words []uint64, f func([]byte) error) error {
	if len(words) == 0 || uint64(8*len(words)) > b.size {
		return fmt.Errorf("cuda: %s %d words: the buffer has %d bytes", what, len(words), b.size)
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	if err := b.d.w.do(func() error { return f(raw) }); err != nil {
		return fmt.Errorf("cuda: %s: %w", what, err)
	}
	return nil
}

// Close gives the memory back.
func (b *Buffer) Close() error {
	return b.d.w.do(func() error { return b.d.drv.check("cuMemFree", b.d.drv.MemFree(b.at)) })
}

// Capability is the GPU's compute capability, as 90 for 9.0.
func (d *Device) Capability() (cc int, err error) {
	err = d.w.do(func() error {
		major, err := d.drv.attribute(d.dev, attrMajor)
		if err != nil {
			return err
		}
		minor, err := d.drv.attribute(d.dev, attrMinor)
		cc = 10*major + minor
		return err
	})
	return cc, err
}

// SMs is how many multiprocessors the GPU has.
func (d *Device) SMs() int { return d.sms }
