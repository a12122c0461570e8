package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/wattmark/wattmark/hostagent/gpu"
	"github.com/wattmark/wattmark/hostagent/gpu/kernels"
	"github.com/wattmark/wattmark/measure/marker"
)

// lead is the time from the first block's arrival to the first chip: all
// blocks are resident by then.
const lead = 200 * time.Microsecond

// PlayMarker plays a whole marker in one launch and returns when it has ended.
// The edges are those that the GPU saw, on the host's wall clock.
func (d *Device) PlayMarker(ctx context.Context, spec marker.Spec, kind marker.Kind) (gpu.Played, error) {
	if err := spec.Validate(); err != nil {
		return gpu.Played{}, fmt.Errorf("cuda: play marker: %w", err)
	}
	chips := spec.Chips(kind)
	chip := uint64(math.Round(float64(spec.Chip) * 1e9))
	return ask(d, "play marker", func() (gpu.Played, error) {
		p := gpu.Played{Kind: kind}
		edges, s, err := d.playChips(ctx, chips, chip)
		if err != nil {
			return p, err
		}
		for i, e := range edges {
			p.Edges = append(p.Edges, gpu.PlayedEdge{Chip: i - spec.CodeStart(), At: s.host(e)})
		}
		p.Span = gpu.Span{Start: p.Edges[0].At, End: p.Edges[len(chips)].At}
		return p, nil
	})
}

// playChips runs the marker kernel and returns the GPU's time of every edge.
func (d *Device) playChips(ctx context.Context, chips []bool, chip uint64) (edges []uint64, s span, err error) {
	// A bit a chip, the first in the lowest bit; the kernel writes a time stamp at each of the
	// n + 1 edges, and zero means that it did not get there.
	words := make([]byte, 4*((len(chips)+31)/32))
	for i, high := range chips {
		if high {
			words[i/8] |= 1 << (i % 8)
		}
	}
	raw := make([]byte, 8*(len(chips)+1))
	a := arena{d: d}
	defer a.close()
	edgesAt, err := a.alloc(uint64(len(raw)))
	if err != nil {
		return nil, s, err
	}
	wordsAt, err := a.alloc(uint64(len(words)))
	if err == nil {
		err = d.upload(wordsAt, words)
	}
	if err != nil {
		return nil, s, err
	}
	f := d.fns[kernels.Marker]
	mask, ahead, n := d.part(f.blocks)-16, uint64(lead), uint32(len(chips))
	list := append(params(&d.ctl, &edgesAt, &wordsAt, &d.buf, &mask, &chip, &ahead), unsafe.Pointer(&n))
	if s, err = d.runTimed(ctx, f, list); err == nil {
		err = d.download(raw, edgesAt)
	}
	if err != nil {
		return nil, s, err
	}
	edges = make([]uint64, len(chips)+1)
	for i := range edges {
		if edges[i] = binary.LittleEndian.Uint64(raw[8*i:]); edges[i] == 0 {
			return nil, s, fmt.Errorf("%w: the marker kernel ended before chip %d of %d", ErrCUDA, i, len(chips))
		}
	}
	return edges, s, nil
}

// runTimed runs a kernel that polls the control words, and relates the clocks before and
// after. When ctx ends it raises the kernel's stop word and returns ctx's cause.
func (d *Device) runTimed(ctx context.Context, f function, list []unsafe.Pointer) (span, error) {
	if err := ctx.Err(); err != nil {
		return span{}, context.Cause(ctx)
	}
	return d.related(func() error {
		if err := errors.Join(d.zero(d.ctl, kernels.CtlSize), d.launch(f, list...)); err != nil {
			return err
		}
		return d.wait(ctx)
	})
}

// related runs fn between two relations of the clocks, by which instants of the GPU's clock within it are
// mapped. It blocks for the round trips of both, some milliseconds.
func (d *Device) related(fn func() error) (s span, err error) {
	if s.a, err = d.relate(); err != nil {
		return s, err
	}
	if err = fn(); err != nil {
		return s, err
	}
	s.b, err = d.relate()
	return s, err
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

// relation is one pair of instants on the GPU's clock and on the host's wall clock.
type relation struct {
	gpu  uint64        // ns of %globaltimer
	host time.Time     // with a monotonic reading, so that steps of the wall clock cancel
	u    time.Duration // half the round trip: the GPU's reading lies within host ± u
}

const roundTrips = 24

// relate takes the shortest of some round trips of a kernel that reads the
// GPU's clock.
func (d *Device) relate() (relation, error) {
	best := relation{u: 1 << 62}
	b := make([]byte, 8)
	// The kernel reads the clock somewhere within the round trip: half of the shortest is the
	// bound of the error.
	for range roundTrips {
		t0 := time.Now()
		if err := errors.Join(d.stamp(d.work, d.stamps), d.sync()); err != nil {
			return relation{}, err
		}
		trip := time.Since(t0)
		if err := d.download(b, d.stamps); err != nil {
			return relation{}, err
		}
		if trip/2 < best.u {
			best = relation{binary.LittleEndian.Uint64(b), t0.Add(trip / 2), trip / 2}
		}
	}
	return best, nil
}

// stamp queues a kernel in a stream that writes the GPU's time, in ns, to an address.
func (d *Device) stamp(stream uintptr, at uint64) error {
	one := [3]uint32{1, 1, 1}
	return d.launchIn(stream, d.fns[kernels.Clock].handle, one, one, 0, params(&at))
}

// span maps the GPU's clock to the host's between two relations. The clocks
// drift apart by some parts per million, so both ends count.
type span struct{ a, b relation }

// host returns the host's time of an instant on the GPU's clock, with a monotonic
// reading.
func (s span) host(gpu uint64) time.Time {
	since := int64(gpu - s.a.gpu)
	rate := 1.0
	// Over less than 0.1 s, a round trip's jitter exceeds any drift: the rate is 1.
	if d := int64(s.b.gpu - s.a.gpu); d > int64(100*time.Millisecond) {
		rate = float64(s.b.host.Sub(s.a.host)) / float64(d)
	}
	return s.a.host.Add(time.Duration(float64(since) * rate))
}
