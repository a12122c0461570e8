package nidaqmx

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/monitor/instrument"
	"github.com/wattmark/wattmark/monitor/instrument/analog"
	"github.com/wattmark/wattmark/monitor/instrument/nidaqmx/nipb"
	"github.com/wattmark/wattmark/monitor/instrument/series"
)

// maxBlock is the most scans of a block.
const maxBlock = 8192

// stream is one Stream call.
type stream struct {
	d      *Device
	out    *series.Builder
	counts []measure.Count
	asked  int   // scans of a read
	zero   int64 // index of the scan that is the device's sample 0
	rate   series.Rate
	silent time.Duration // since the last sample
	warned int32
	blind  bool // the driver does not report positions
}

// errTaken: the session's name leads to a task that is not ours any more.
var errTaken = fmt.Errorf("%w: another program has taken the session over", instrument.ErrDisconnected)

// stream runs the task until ctx ends; then it takes the samples of the read in progress. The task is stopped in any
// case: one that ran on would keep the device from others.
func (d *Device) stream(ctx context.Context, sink instrument.Sink) error {
	s := &stream{
		d: d, counts: make([]measure.Count, len(d.In.Channels)), asked: d.opts.perRead(),
		rate: series.Rate{Nominal: float64(d.In.Timebase.TickHz)},
	}
	s.out = series.New(d.In, min(s.asked, maxBlock), sink)
	if err := d.start(ctx); err != nil {
		return err
	}
	err := s.run(ctx)
	if errors.Is(err, errTaken) || driverCode(err) == invalidTask {
		d.task, d.left = nil, false // or the other's task would be stopped and cleared
	} else {
		// Whatever ends the stream, the device is stopped.
		_, _ = call(context.WithoutCancel(ctx), lastTime, d.api.StopTask, &nipb.StopTaskRequest{Task: d.task})
	}
	return s.out.End(err)
}

// start begins to sample, with reads that follow each other.
func (d *Device) start(ctx context.Context) error {
	if d.moved {
		if err := d.readOn(ctx); err != nil {
			return err
		}
	}
	if _, err := call(ctx, callTime, d.api.StartTask, &nipb.StartTaskRequest{Task: d.task}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return nil
}

// run reads until ctx ends. The read in progress is let end, as it holds samples
// from before.
func (s *stream) run(ctx context.Context) error {
	reading, cancel := instrument.Outlast(ctx, s.d.opts.Interval+lastTime)
	defer cancel()
	for {
		err := s.read(reading)
		switch driverCode(err) {
		case noLongerAvailable:
			err = s.overwritten(reading)
		case stoppedToProtect, fifoOverflow, fifoOverflowOld, busTooSlow:
			if err = s.out.Overflow(err.Error()); err == nil {
				err = s.restart(reading)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// read asks for the next samples and takes those that come.
func (s *stream) read(ctx context.Context) error {
	b, first, err := s.next(ctx)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		s.silent = 0
		return s.take(b, first)
	}
	if s.silent += s.wait(); s.silent >= s.d.opts.Silence {
		return fmt.Errorf("%w: the device has not sampled for %v (%w)", instrument.ErrDisconnected, s.silent,
			instrument.ErrSilent)
	}
	return nil
}

// wait is how long the driver waits for the samples of a read.
func (s *stream) wait() time.Duration { return 2*s.d.opts.Interval + 100*time.Millisecond }

// next reads up to a read's scans. It returns them, and the device's number of
// the first: sessions are known by name alone, so that another program may have
// read in between, or made a new task of that name.
func (s *stream) next(ctx context.Context) (b []byte, first int64, err error) {
	if b, err = s.raw(ctx, s.asked); err != nil {
		return nil, 0, err
	}
	if s.blind {
		return b, s.due(), nil
	}
	r, err := call(ctx, callTime, s.d.api.GetReadAttributeUInt64, &nipb.GetReadAttributeUInt64Request{
		Task: s.d.task, AttributeEnum: &nipb.GetReadAttributeUInt64Request_Attribute{Attribute: currentReadPosition},
	})
	end := r.GetValue()
	first = int64(end) - int64(len(b)/(bytesCode*len(s.counts)))
	switch {
	case err == nil && first >= 0:
		return b, first, nil
	case err == nil:
		err = fmt.Errorf("it tells %d", end)
	case driverCode(err) == 0 || driverCode(err) == invalidTask:
		return nil, 0, err
	}
	s.blind = true
	return b, s.due(), s.out.Note("the driver does not report positions (%v): what a full buffer loses will be "+
		"estimated", err)
}

// due is the device's number of the next sample, if nothing is lost.
func (s *stream) due() int64 { return int64(s.out.Next()) - s.zero }

// take puts scans into blocks; scans missing before them are a gap.
func (s *stream) take(b []byte, first int64) error {
	lost := first - s.due()
	if lost < 0 {
		return errTaken
	}
	if lost > 0 {
		if err := s.out.Gap(uint64(lost), true, "%s were overwritten, or read by another program",
			measure.Plural(lost, "scan")); err != nil {
			return err
		}
	}
	s.zero = int64(s.out.Next()) - first
	if err := analog.Scans(b, s.counts, s.out.Add); err != nil {
		return err
	}
	s.rate.Seen(time.Now(), int64(s.out.Next()))
	return s.out.Flush()
}

// raw reads up to n scans.
func (s *stream) raw(ctx context.Context, n int) ([]byte, error) {
	inputs := len(s.counts)
	r, err := call(ctx, s.wait()+s.d.opts.Silence, s.d.api.ReadRaw, &nipb.ReadRawRequest{
		Task: s.d.task, NumSampsPerChan: int32(n), Timeout: s.wait().Seconds(),
		ArraySizeInBytes: uint32(n * inputs * bytesCode),
	})
	if err != nil {
		return nil, err
	}
	if w := r.GetStatus(); w > 0 && w != s.warned {
		s.warned = w
		if err := s.out.Note("NI-DAQmx warning %d", w); err != nil {
			return nil, err
		}
	}
	return samples(r, n, inputs)
}

// readFrom sets where reads begin, and remembers whether they are moved.
func (d *Device) readFrom(ctx context.Context, point nipb.ReadInt32Value, offset int32) error {
	if err := d.setRead(ctx, nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_RELATIVE_TO, int32(point)); err != nil {
		return err
	}
	d.moved = true
	if err := d.setRead(ctx, nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_OFFSET, offset); err != nil {
		return err
	}
	d.moved = point != nipb.ReadInt32Value_READ_INT32_VALUE_CURR_READ_POS || offset != 0
	return nil
}

// readOn lets each read begin where the last one ended.
func (d *Device) readOn(ctx context.Context) error {
	if err := d.readFrom(ctx, nipb.ReadInt32Value_READ_INT32_VALUE_CURR_READ_POS, 0); err != nil {
		return fmt.Errorf("read on where the last read ended: %w", err)
	}
	return nil
}

// overwritten goes on after the buffer has run over. The driver refuses to read
// where the samples are gone, again and again; so one read is moved to the middle
// of the buffer's contents, and the position at which it ended shows the loss to the
// sample. Where the driver does not let itself be moved, the task
// is started again.
func (s *stream) overwritten(ctx context.Context) error {
	if err := s.out.Overflow("the buffer on NI's machine ran over: it is not read fast enough"); err != nil {
		return err
	}
	if s.blind {
		return s.restart(ctx)
	}
	b, first, err := s.jump(ctx)
	switch {
	case driverCode(err) != 0, err == nil && (s.blind || len(b) == 0):
		return s.restart(ctx)
	case err != nil:
		return err
	}
	return s.take(b, first)
}

// jump reads once from the middle of the buffer; reads after it follow on.
func (s *stream) jump(ctx context.Context) (b []byte, first int64, err error) {
	d := s.d
	back := int32(math.Ceil(d.opts.Buffer.Seconds() * d.opts.Rate / 2))
	if err := d.readFrom(ctx, nipb.ReadInt32Value_READ_INT32_VALUE_MOST_RECENT_SAMP, -back); err != nil {
		return nil, 0, err
	}
	if b, first, err = s.next(ctx); err != nil {
		return nil, 0, err
	}
	return b, first, d.readOn(ctx)
}

// restart stops and starts the task. No samples are counted meanwhile: the
// host's clock gives the approximate number of missing scans.
func (s *stream) restart(ctx context.Context) error {
	// A StopTask that repeats the error that stopped the task has stopped it.
	if _, err := call(ctx, callTime, s.d.api.StopTask, &nipb.StopTaskRequest{Task: s.d.task}); err != nil &&
		driverCode(err) == 0 {
		return err
	}
	before := time.Now()
	if err := s.d.start(ctx); err != nil {
		return err
	}
	began := before.Add(time.Since(before) / 2)
	lost := uint64(1)
	if n, ok := s.rate.At(began); ok && n > float64(s.out.Next())+1 {
		lost = uint64(math.Round(n)) - s.out.Next()
	}
	if err := s.out.Gap(lost, false, "the task was started again; about %d scans are missing by the host's clock",
		lost); err != nil {
		return err
	}
	s.zero = int64(s.out.Next())
	return nil
}

// errReply: the server's answer is inconsistent.
var errReply = errors.New("the server's reply does not add up")

// knownWidth reports whether samples of so many bytes are 16-bit codes: a sample is one
// input's code to some, and a whole scan to others.
func knownWidth(bytes, inputs int) bool { return bytes == bytesCode || bytes == bytesCode*inputs }

// samples returns the bytes of the scans in a reply to ReadRaw that asked for at
// most so many, of so many inputs. The server sends all of the room that it was
// given; the bytes behind the samples mean nothing.
func samples(r *nipb.ReadRawResponse, asked, inputs int) ([]byte, error) {
	n := int(r.GetSampsRead())
	if n < 0 || n > asked {
		return nil, fmt.Errorf("%w: %s where %d were asked for", errReply, measure.Plural(n, "sample"), asked)
	}
	if n == 0 {
		return nil, nil
	}
	if w := int(r.GetNumBytesPerSamp()); !knownWidth(w, inputs) {
		return nil, fmt.Errorf("%w: %d bytes a sample: this driver knows converters of 16 bits", errReply, w)
	}
	size := n * inputs * bytesCode
	if b := r.GetReadArray(); len(b) >= size {
		return b[:size], nil
	}
	return nil, fmt.Errorf("%w: %d bytes for %d scans of %d inputs", errReply, len(r.GetReadArray()), n, inputs)
}

// maxCoefficients bounds a scaling polynomial; real ones have two to four.
const maxCoefficients = 16

// checkScale refuses coefficients that are no scale of a converter of 16 bits with at
// least a range in volts: of finer ones two bytes are not a whole code.
func checkScale(c []float64, rng float64) error {
	if len(c) < 2 || len(c) > maxCoefficients {
		return fmt.Errorf("%d scaling coefficients: want 2 to %d", len(c), maxCoefficients)
	}
	if slices.ContainsFunc(c, func(v float64) bool { return !measure.Known(v) }) {
		return fmt.Errorf("scaling coefficients %v: they must be finite", c)
	}
	if c[1] == 0 {
		return fmt.Errorf("scaling coefficients %v: every code would read the same", c)
	}
	if spans := math.Abs(c[1]) * halfScale; spans < 0.9*rng {
		return fmt.Errorf("%w: codes of 16 bits span ±%.3g V of a range of ±%.3g V: its codes are longer, and this "+
			"driver knows converters of 16 bits", instrument.ErrIdentity, spans, rng)
	}
	return nil
}

// linear makes a channel of an input's polynomial. A Channel is a straight line:
// it takes the first two coefficients, and the most that the others would add
// anywhere in the range goes into the zero's uncertainty, as a rectangle. On a
// USB-6259 that is some ten ppm of the range.
func linear(c []float64, i Input, o Options) measure.Channel {
	per := math.Abs(i.PerVolt)
	// The device may have taken a larger range than was asked for.
	rng := max(i.Range, math.Abs(c[1])*halfScale/overRange)
	volts := math.Hypot(o.UOffset*rng+offFloor, bend(c, rng)/math.Sqrt(3))
	return measure.Channel{
		Name: i.Name, Unit: analog.Units[i.Unit], Gain: c[1] * i.PerVolt, Offset: c[0] * i.PerVolt,
		UGain: o.UGain, UOffset: volts * per, Noise: math.Hypot(noiseRel*rng, noiseFloor) * per,
		MinCount: -halfScale, MaxCount: halfScale - 1,
	}
}

// bend is the most that a polynomial's higher terms add, in volts, where the
// straight line lies within the range.
func bend(c []float64, rng float64) (most float64) {
	const steps = 256
	for k := -steps; k <= steps; k++ {
		x := float64(halfScale) * float64(k) / steps
		if math.Abs(c[0]+c[1]*x) > rng {
			continue
		}
		v := 0.0
		for p := len(c) - 1; p >= 2; p-- {
			v = (v + c[p]) * x
		}
		most = max(most, math.Abs(v*x))
	}
	return most
}
