package rigol

import (
	"context"
	"errors"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/monitor/instrument"
)

// errEmpty: the scope gave less than it holds, as it does when it is asked too
// soon after a stop.
var errEmpty = errors.New("the scope gave fewer points than it holds")

// blockScans is the size of the blocks delivered.
const blockScans = 1 << 14

// download reads memory in pieces, each from all channels, and delivers it.
func (d *Device) download(ctx context.Context, held int, sink instrument.Sink) error {
	s, _ := sink.(instrument.DeferredSink)
	codes := make([][]byte, len(d.used))
	b := measure.Block{Counts: make([][]measure.Count, len(d.used))}
	for i := range b.Counts {
		b.Counts[i] = make([]measure.Count, blockScans)
	}
	for first := 0; first < held; first += readPoints {
		n := min(readPoints, held-first)
		for i, channel := range d.used {
			var err error
			codes[i], err = again(ctx, func() ([]byte, error) { return d.read(ctx, channel, first, n, codes[i][:0]) })
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

// read asks for n points of a channel behind the first. Everything is set anew
// each time: the link may be a new one.
func (d *Device) read(ctx context.Context, channel, first, n int, dst []byte) ([]byte, error) {
	for _, s := range []string{
		fmt.Sprintf(":WAV:SOUR CHAN%d", channel), ":WAV:MODE RAW", ":WAV:FORM BYTE",
		fmt.Sprintf(":WAV:STAR %d", first+1), fmt.Sprintf(":WAV:STOP %d", first+n),
	} {
		if err := d.client.Command(ctx, s); err != nil {
			return dst, err
		}
	}
	out, err := d.client.QueryBlock(ctx, ":WAV:DATA?", readPoints, dst)
	if err == nil && len(out) != n {
		err = fmt.Errorf("%w: %d of %d", errEmpty, len(out), n)
	}
	return out, err
}

// deliver makes a block of points [from, to) of a piece.
func (d *Device) deliver(b *measure.Block, codes [][]byte, first, from, to int, sink instrument.Sink) error {
	for i := range codes {
		col := b.Counts[i][:to-from]
		for k, code := range codes[i][from:to] {
			col[k] = measure.Count(code)
		}
		b.Counts[i] = col
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
