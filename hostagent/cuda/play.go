package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"wattmark/hostagent"
	"wattmark/hostagent/kernels"
	"wattmark/measure/marker"
)

// lead is the time from the first block's arrival to the first chip: all
// blocks are resident by then.
const lead = 200 * time.Microsecond

// PlayMarker plays a whole marker in one launch and returns when it has ended.
// The edges are those that the GPU saw, on the host's wall clock.
func (d *Device) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (hostagent.Played, error) {
	if err := spec.Validate(); err != nil {
		return hostagent.Played{}, fmt.Errorf("cuda: play marker: %w", err)
	}
	chips := spec.Chips(kind)
	chip := uint64(math.Round(float64(spec.Chip) * 1e9))
	var edges []uint64
	var s span
	err := d.w.do(func() (err error) {
		edges, s, err = d.playChips(ctx, chips, chip)
		return err
	})
	if err != nil {
		return hostagent.Played{}, fmt.Errorf("cuda: play marker: %w", err)
	}
	p := hostagent.Played{Kind: kind}
	for i, e := range edges {
		p.Edges = append(p.Edges, hostagent.PlayedEdge{Chip: i - spec.CodeStart(), At: s.host(e)})
	}
	p.Span = hostagent.Span{Start: p.Edges[0].At, End: p.Edges[len(chips)].At}
	return p, nil
}

// playChips runs the marker kernel and returns the GPU's time of every edge.
func (d *Device) playChips(ctx context.Context, chips []bool, chip uint64) ([]uint64, span, error) {
	words := make([]byte, 4*((len(chips)+31)/32))
	for i, high := range chips {
		if high {
			words[i/8] |= 1 << (i % 8)
		}
	}
	raw := make([]byte, 8*(len(chips)+1))
	var edgesAt, wordsAt uint64
	for _, a := range []struct {
		p    *uint64
		size int
	}{{&edgesAt, len(raw)}, {&wordsAt, len(words)}} {
		if err := d.drv.check("cuMemAlloc", d.drv.MemAlloc(a.p, uintptr(a.size))); err != nil {
			return nil, span{}, err
		}
		defer d.drv.MemFree(*a.p)
	}
	if err := errors.Join(d.zero(edgesAt, uint64(len(raw))), d.upload(wordsAt, words)); err != nil {
		return nil, span{}, err
	}
	f := d.fns[kernels.Marker]
	mask, ahead, n := d.part(f.blocks)-16, uint64(lead), uint32(len(chips))
	list := append(params(&d.ctl, &edgesAt, &wordsAt, &d.buf, &mask, &chip, &ahead), unsafe.Pointer(&n))
	s, err := d.runTimed(ctx, f, list)
	if err != nil {
		return nil, span{}, err
	}
	if err := d.download(raw, edgesAt); err != nil {
		return nil, span{}, err
	}
	edges := make([]uint64, len(chips)+1)
	for i := range edges {
		if edges[i] = binary.LittleEndian.Uint64(raw[8*i:]); edges[i] == 0 {
			return nil, span{}, fmt.Errorf("%w: the marker kernel ended before chip %d of %d", ErrCUDA, i, len(chips))
		}
	}
	return edges, s, nil
}

// runTimed runs a kernel that watches the control words, and relates the
// clocks before and after. When ctx ends, the kernel is told to stop.
func (d *Device) runTimed(ctx context.Context, f function, list []unsafe.Pointer) (span, error) {
	if err := ctx.Err(); err != nil {
		return span{}, context.Cause(ctx)
	}
	before, err := d.relate()
	if err != nil {
		return span{}, err
	}
	if err := errors.Join(d.zero(d.ctl, kernels.CtlSize), d.launch(f, list...)); err != nil {
		return span{}, err
	}
	if err := d.wait(ctx); err != nil {
		return span{}, err
	}
	after, err := d.relate()
	return span{before, after}, err
}

// poll is how often a running kernel is looked at: often enough that work
// follows a marker promptly, seldom enough to cost nothing.
const poll = 200 * time.Microsecond

// wait returns when the work stream is idle. When ctx ends it raises the stop
// word, over the other stream, and waits for the kernel to obey.
func (d *Device) wait(ctx context.Context) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	ended := ctx.Done()
	for {
		r := d.drv.StreamQuery(d.work)
		if r != errNotReady {
			if err := d.drv.check("cuStreamQuery", r); err != nil {
				return err
			}
			if ended == nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return nil
		}
		select {
		case <-ended:
			ended = nil
			r := d.drv.CopyToDevice(d.ctl+kernels.CtlStop, d.one, 4, d.side)
			if err := d.drv.check("cuMemcpyHtoD", r); err != nil {
				return errors.Join(context.Cause(ctx), err)
			}
		case <-tick.C:
		}
	}
}
