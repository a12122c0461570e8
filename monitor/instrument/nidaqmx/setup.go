package nidaqmx

import (
	"context"
	"fmt"
	"math"

	"wattmark/measure"
	"wattmark/monitor/instrument"
	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// setUp adds the inputs, sets clock and buffer, and reads back what became of them.
func (d *Device) setUp(ctx context.Context) error {
	for k := range d.opts.Inputs {
		if err := d.addInput(ctx, k); err != nil {
			return fmt.Errorf("input %s: %w", d.opts.physical(k), err)
		}
	}
	buffer := uint32(math.Ceil(d.opts.Buffer.Seconds() * d.opts.Rate))
	_, err := call(ctx, callTime, d.api.CfgSampClkTiming, &nipb.CfgSampClkTimingRequest{
		Task: d.task, Rate: d.opts.Rate, SampsPerChan: uint64(buffer),
		ActiveEdgeEnum: &nipb.CfgSampClkTimingRequest_ActiveEdge{ActiveEdge: nipb.Edge_EDGE_RISING},
		SampleModeEnum: &nipb.CfgSampClkTimingRequest_SampleMode{SampleMode: nipb.SampleMode_SAMPLE_MODE_CONTINUOUS},
	})
	if err != nil {
		return fmt.Errorf("sample clock of %v: %w", measure.Hertz(d.opts.Rate), err)
	}
	if _, err := call(ctx, callTime, d.api.CfgInputBuffer, &nipb.CfgInputBufferRequest{Task: d.task, NumSampsPerChan: buffer}); err != nil {
		return fmt.Errorf("buffer of %d samples: %w", buffer, err)
	}
	// A full buffer must not stop the device: what is lost is counted instead.
	// Where that cannot be had, a loss costs a restart (see recover.go).
	err = d.setRead(ctx, nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_OVERWRITE, int32(nipb.ReadInt32Value_READ_INT32_VALUE_OVERWRITE))
	if err != nil && driverCode(err) == 0 {
		return fmt.Errorf("overwrite mode: %w", err)
	}
	return d.readBack(ctx, buffer)
}

func (d *Device) addInput(ctx context.Context, k int) error {
	i := d.opts.Inputs[k].withDefaults()
	_, err := call(ctx, callTime, d.api.CreateAIVoltageChan, &nipb.CreateAIVoltageChanRequest{
		Task: d.task, PhysicalChannel: d.opts.physical(k), NameToAssignToChannel: channelName(k),
		TerminalConfigEnum: &nipb.CreateAIVoltageChanRequest_TerminalConfig{TerminalConfig: terminals[i.Terminal]},
		MinVal:             -i.Range, MaxVal: i.Range,
		UnitsEnum: &nipb.CreateAIVoltageChanRequest_Units{Units: nipb.VoltageUnits_VOLTAGE_UNITS_VOLTS},
	})
	return err
}

// channelName is a channel's name in the task. The bench's own names may hold
// what the driver does not like in one.
func channelName(k int) string { return fmt.Sprintf("wattmark%d", k) }

// readBack learns the rate, the skew and the scale that the device keeps.
func (d *Device) readBack(ctx context.Context, buffer uint32) error {
	size, err := call(ctx, callTime, d.api.GetBufferAttributeUInt32, &nipb.GetBufferAttributeUInt32Request{
		Task: d.task, AttributeEnum: &nipb.GetBufferAttributeUInt32Request_Attribute{Attribute: nipb.BufferUInt32Attribute_BUFFER_U_INT32_ATTRIBUTE_INPUT_BUF_SIZE},
	})
	if err != nil {
		return fmt.Errorf("size of the buffer: %w", err)
	}
	if size.GetValue() < buffer {
		return fmt.Errorf("the driver's buffer holds %d scans, not %d: lower buffer", size.GetValue(), buffer)
	}
	rate, err := d.timing(ctx, nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_SAMP_CLK_RATE)
	if err != nil {
		return fmt.Errorf("rate of the sample clock: %w", err)
	}
	if !(math.Abs(rate/d.opts.Rate-1) < 0.01) {
		return fmt.Errorf("the device samples at %v a second, not %v: set rate: %v", rate, d.opts.Rate, rate)
	}
	step, err := d.skew(ctx, rate)
	if err != nil {
		return err
	}
	in := instrument.Inputs{Timebase: timebase(rate)}
	for k, raw := range d.opts.Inputs {
		c, err := d.coefficients(ctx, k)
		if err != nil {
			return fmt.Errorf("scale of %s: %w", d.opts.physical(k), err)
		}
		channel := linear(c, raw.withDefaults(), d.opts)
		channel.Skew = measure.Seconds(float64(k) * step)
		in.Channels = append(in.Channels, channel)
	}
	d.inputs = in
	return d.checkWidth(ctx)
}

// skew is the time between the conversions of two neighbours, in seconds.
func (d *Device) skew(ctx context.Context, rate float64) (float64, error) {
	n := len(d.opts.Inputs)
	if d.simultaneous || n == 1 {
		return 0, nil
	}
	convert, err := d.timing(ctx, nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_AI_CONV_RATE)
	if err != nil {
		return 0, fmt.Errorf("rate of the conversions: %w", err)
	}
	if !(convert*1.000001 >= rate*float64(n)) || math.IsInf(convert, 0) {
		return 0, fmt.Errorf("%v conversions a second cannot make %v scans of %d inputs", convert, rate, n)
	}
	return 1 / convert, nil
}

func (d *Device) coefficients(ctx context.Context, k int) ([]float64, error) {
	r, err := call(ctx, callTime, d.api.GetChanAttributeDoubleArray, &nipb.GetChanAttributeDoubleArrayRequest{
		Task: d.task, Channel: channelName(k),
		AttributeEnum: &nipb.GetChanAttributeDoubleArrayRequest_Attribute{Attribute: nipb.ChannelDoubleArrayAttribute_CHANNEL_DOUBLE_ARRAY_ATTRIBUTE_AI_DEV_SCALING_COEFF},
	})
	if err != nil {
		return nil, err
	}
	return r.GetValue(), checkScale(r.GetValue(), d.opts.Inputs[k].withDefaults().Range)
}

// checkWidth makes sure that raw samples are codes of 16 bits. A raw sample of the
// task is one input's to some, and a whole scan to others.
func (d *Device) checkWidth(ctx context.Context) error {
	r, err := call(ctx, callTime, d.api.GetReadAttributeUInt32, &nipb.GetReadAttributeUInt32Request{
		Task: d.task, AttributeEnum: &nipb.GetReadAttributeUInt32Request_Attribute{Attribute: nipb.ReadUInt32Attribute_READ_U_INT32_ATTRIBUTE_RAW_DATA_WIDTH},
	})
	if err != nil {
		return fmt.Errorf("width of a raw scan: %w", err)
	}
	if n := len(d.opts.Inputs); !knownWidth(int(r.GetValue()), n) {
		return fmt.Errorf("%w: a raw sample of %s has %d bytes: this driver knows converters of 16 bits (%d bytes, or %d for a scan of %s)",
			instrument.ErrIdentity, d.identity.Model, r.GetValue(), bytesCode, bytesCode*n, inputsText(n))
	}
	return nil
}
