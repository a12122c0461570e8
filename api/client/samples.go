package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"google.golang.org/grpc"

	"wattmark/api/wattmarkv1"
	"wattmark/api/wire"
	"wattmark/measure"
	"wattmark/measure/chunk"
)

// Range is a range of sequence numbers: scans counted from the window's first
// (Detail.FirstScan), jumping over scans that were lost. The zero Range is all.
type Range struct {
	From  uint64 // first one wanted
	Limit uint64 // length of the range; 0 to the window's end
	// Result is the number of the result whose calibration is wanted; 0 for the
	// one in use.
	Result uint32
}

// Batch holds up to 4096 consecutive samples, one slice a quantity, each with
// one value a sample.
type Batch struct {
	FirstSeq uint64            // the others follow one by one
	Time     []measure.Seconds // since the window's begin
	Power    []measure.Watt    // all rails
	Rails    []Rail            // in the order of the setup
}

// Rail holds one rail's samples of a batch.
type Rail struct {
	Name    string
	Current []measure.Ampere // empty for a sensor that reads watts
	Voltage []measure.Volt   // empty for a sensor that reads watts
	Power   []measure.Watt
}

// Item is what a stream brings: exactly one of its fields is set.
type Item struct {
	Batch *Batch
	// Event is a gap or another event; it comes before the first sample that it
	// concerns. Its scans count from the capture's start, not from the window's.
	Event *measure.Event
}

// Samples yields a task's calibrated samples with the events between them. The
// stream is closed when the loop is left. A batch is the caller's to keep. An
// error is the last thing it yields.
func (c *Client) Samples(ctx context.Context, id int64, r Range) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.read(ctx, id, r, false)
		if err != nil {
			yield(Item{}, err)
			return
		}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			var item Item
			if err == nil {
				item, err = parseItem(m)
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// RawItem is what a raw stream brings: exactly one of its fields is set.
type RawItem struct {
	// Chunk holds raw counts; chunk.Decode and measure.PowerMeter make watts of
	// them. It is borrowed until the next item is asked for.
	Chunk *chunk.Chunk
	Event *measure.Event
}

// Chunks yields the chunks that hold the samples of a range, whole and with
// their checksums verified against setup (Detail.Setup), and the events between
// them. It is the fast way: nothing is converted or copied.
func (c *Client) Chunks(ctx context.Context, id int64, setup *measure.Setup, r Range) iter.Seq2[RawItem, error] {
	return func(yield func(RawItem, error) bool) {
		if setup == nil {
			yield(RawItem{}, fmt.Errorf("read chunks of task %d: no setup: the capture has not begun", id))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.read(ctx, id, r, true)
		if err != nil {
			yield(RawItem{}, err)
			return
		}
		receiver := wire.NewReceiver(stream)
		defer receiver.Free()
		var ch chunk.Chunk
		for {
			m, err := receiver.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			var item RawItem
			if err == nil {
				item, err = parseRaw(m, setup, &ch)
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

func (c *Client) read(ctx context.Context, id int64, r Range, raw bool) (grpc.ServerStreamingClient[wattmarkv1.ReadSamplesResponse], error) {
	return c.stub.ReadSamples(ctx, &wattmarkv1.ReadSamplesRequest{TaskId: id, FromSeq: r.From, Limit: r.Limit, Result: r.Result, Raw: raw})
}

func parseRaw(m *wattmarkv1.ReadSamplesResponse, setup *measure.Setup, ch *chunk.Chunk) (RawItem, error) {
	if m.GetEvent() != nil {
		e, err := wire.ParseEvent(m.GetEvent())
		return RawItem{Event: &e}, err
	}
	channels, columns := len(setup.Channels), len(setup.Channels)
	if setup.Timebase.Stamped {
		columns++
	}
	if err := wire.ParseChunk(m.GetChunk(), columns, ch); err != nil {
		return RawItem{}, err
	}
	return RawItem{Chunk: ch}, ch.Validate(setup.Timebase, channels)
}

func parseItem(m *wattmarkv1.ReadSamplesResponse) (Item, error) {
	if m.GetEvent() != nil {
		e, err := wire.ParseEvent(m.GetEvent())
		return Item{Event: &e}, err
	}
	p := m.GetSamples()
	if p == nil {
		return Item{}, fmt.Errorf("%w: neither samples nor an event", wire.ErrMessage)
	}
	n := len(p.TS)
	b := &Batch{FirstSeq: p.FirstSeq, Time: typed[measure.Seconds](p.TS), Power: typed[measure.Watt](p.PowerW)}
	if len(b.Power) != n {
		return Item{}, fmt.Errorf("%w: %d powers for %d samples", wire.ErrMessage, len(b.Power), n)
	}
	for _, r := range p.Rails {
		if !fits(len(r.CurrentA), n) || !fits(len(r.VoltageV), n) || len(r.PowerW) != n {
			return Item{}, fmt.Errorf("%w: rail %q: %d currents, %d voltages and %d powers for %d samples",
				wire.ErrMessage, r.Rail, len(r.CurrentA), len(r.VoltageV), len(r.PowerW), n)
		}
		b.Rails = append(b.Rails, Rail{
			Name: r.Rail, Current: typed[measure.Ampere](r.CurrentA), Voltage: typed[measure.Volt](r.VoltageV), Power: typed[measure.Watt](r.PowerW),
		})
	}
	return Item{Batch: b}, nil
}

// fits reports whether a column has a value a sample, or none at all.
func fits(column, samples int) bool { return column == 0 || column == samples }

// typed gives numbers their unit.
func typed[T ~float64](column []float64) []T {
	out := make([]T, len(column))
	for i, v := range column {
		out[i] = T(v)
	}
	return out
}
