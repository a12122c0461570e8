package scope

import (
	"context"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// blockScans is the size of the blocks delivered.
const blockScans = 1 << 14

// download reads what memory holds behind its first points, in pieces, each from
// all channels, and delivers it.
func (d *Device) download(ctx context.Context, before, held int, sink instrument.Sink) error {
	s, _ := sink.(instrument.DeferredSink)
	codes := make([][]byte, len(d.plan.Used))
	b := measure.Block{Counts: make([][]measure.Count, len(d.plan.Used))}
	for i := range b.Counts {
		b.Counts[i] = make([]measure.Count, blockScans)
	}
	for first := 0; first < held; first += d.mem.Piece {
		n := min(d.mem.Piece, held-first)
		for i, channel := range d.plan.Used {
			var err error
			codes[i], err = again(ctx, func() ([]byte, error) { return d.read(ctx, channel, before+first, n, codes[i][:0]) })
			if err != nil {
				return fmt.Errorf("read points %d to %d of channel %d: %w", first+1, first+n, channel, err)
			}
		}
		for from := 0; from < n; from += blockScans {
			if err := d.deliver(&b, codes, first, from, min(from+blockScans, n), sink); err != nil {
				return err
			}
		}
		if s != nil {
			s.Progress(uint64(first+n), uint64(held))
		}
	}
	return nil
}

// read asks for n points of a channel behind the first, all of them.
func (d *Device) read(ctx context.Context, channel, first, n int, dst []byte) ([]byte, error) {
	out, err := d.dialect.Read(ctx, d.client, channel, first, n, dst)
	if want := n * d.mem.Codes.Bytes; err == nil && len(out) != want {
		err = fmt.Errorf("%w: %d of %d bytes", ErrFewer, len(out), want)
	}
	return out, err
}

// deliver makes a block of points [from, to) of a piece.
func (d *Device) deliver(b *measure.Block, codes [][]byte, first, from, to int, sink instrument.Sink) error {
	for i := range codes {
		b.Counts[i] = b.Counts[i][:to-from]
		d.mem.Codes.Decode(b.Counts[i], codes[i][from*d.mem.Codes.Bytes:])
	}
	b.FirstScan = uint64(first + from)
	b.FirstTick = int64(math.Round(float64(first+from) * d.inputs.Timebase.TicksPerScan))
	return sink.Block(b)
}

// NaturalRails pairs a current on chN with the voltage on the channel after it;
// a scope says nothing of its probes, so that this is a guess for a first look.
func NaturalRails(in instrument.Inputs) (rails []measure.Rail, missing []string) {
	for i := 0; i+1 < len(in.Channels); i++ {
		x, y := in.Channels[i], in.Channels[i+1]
		if x.Unit == measure.UnitAmpere && y.Unit == measure.UnitVolt {
			rails = append(rails, measure.Rail{Name: x.Name, Role: instrument.RoleOf(x.Name), Wiring: measure.WiringClamp, X: i, Y: i + 1})
		}
	}
	return rails, nil
}
