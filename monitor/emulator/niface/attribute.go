package niface

import (
	"context"

	"wattmark/monitor/instrument/nidaqmx/nipb"
)

// GetTimingAttributeDouble tells the rates that the device will keep.
func (f *Face) GetTimingAttributeDouble(ctx context.Context, q *nipb.GetTimingAttributeDoubleRequest) (*nipb.GetTimingAttributeDoubleResponse, error) {
	if q.GetAttributeEnum() == nil {
		return nil, unset("attribute")
	}
	out := &nipb.GetTimingAttributeDoubleResponse{}
	return out, f.with(ctx, "GetTimingAttributeDouble", q.GetTask(), func(t *task) int32 {
		if code := t.verify(); code != 0 {
			return code
		}
		switch nipb.TimingDoubleAttribute(int32(q.GetAttribute()) + q.GetAttributeRaw()) {
		case nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_SAMP_CLK_RATE:
			out.Value = 1 / f.scanPeriod(t.rate)
			return 0
		case nipb.TimingDoubleAttribute_TIMING_DOUBLE_ATTRIBUTE_AI_CONV_RATE:
			if f.cfg.Simultaneous {
				return errAttribute
			}
			out.Value = 1 / f.convertPeriod(t.rate, len(t.chans))
			return 0
		}
		return errAttribute
	})
}

// GetReadAttributeUInt32 tells what waits, and how wide a raw scan is.
func (f *Face) GetReadAttributeUInt32(ctx context.Context, q *nipb.GetReadAttributeUInt32Request) (*nipb.GetReadAttributeUInt32Response, error) {
	if q.GetAttributeEnum() == nil {
		return nil, unset("attribute")
	}
	out := &nipb.GetReadAttributeUInt32Response{}
	return out, f.with(ctx, "GetReadAttributeUInt32", q.GetTask(), func(t *task) int32 {
		switch nipb.ReadUInt32Attribute(int32(q.GetAttribute()) + q.GetAttributeRaw()) {
		case nipb.ReadUInt32Attribute_READ_U_INT32_ATTRIBUTE_AVAIL_SAMP_PER_CHAN:
			out.Value = uint32(max(0, int64(t.taken())-t.from()))
			return 0
		case nipb.ReadUInt32Attribute_READ_U_INT32_ATTRIBUTE_RAW_DATA_WIDTH:
			if out.Value = f.cfg.Width; out.Value == 0 {
				out.Value = uint32(bytesCode * len(t.chans))
			}
			return 0
		}
		return errAttribute
	})
}

// GetReadAttributeUInt64 tells where the last read ended, and how much was sampled.
func (f *Face) GetReadAttributeUInt64(ctx context.Context, q *nipb.GetReadAttributeUInt64Request) (*nipb.GetReadAttributeUInt64Response, error) {
	if q.GetAttributeEnum() == nil {
		return nil, unset("attribute")
	}
	out := &nipb.GetReadAttributeUInt64Response{}
	return out, f.with(ctx, "GetReadAttributeUInt64", q.GetTask(), func(t *task) int32 {
		switch nipb.ReadUInt64Attribute(int32(q.GetAttribute()) + q.GetAttributeRaw()) {
		case nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_CURR_READ_POS:
			out.Value = t.pos
			return 0
		case nipb.ReadUInt64Attribute_READ_U_INT64_ATTRIBUTE_TOTAL_SAMP_PER_CHAN_ACQUIRED:
			out.Value = t.taken()
			return 0
		}
		return errAttribute
	})
}

// SetReadAttributeInt32 says where reads begin. What happens to unread samples
// cannot be changed while the task runs.
func (f *Face) SetReadAttributeInt32(ctx context.Context, q *nipb.SetReadAttributeInt32Request) (*nipb.SetReadAttributeInt32Response, error) {
	switch {
	case q.GetAttributeEnum() == nil:
		return nil, unset("attribute")
	case q.GetValueEnum() == nil:
		return nil, unset("value")
	}
	value := int32(q.GetValue()) + q.GetValueRaw()
	return &nipb.SetReadAttributeInt32Response{}, f.with(ctx, "SetReadAttributeInt32", q.GetTask(), func(t *task) int32 {
		if f.cfg.Fixed {
			return errAttribute
		}
		switch nipb.ReadInt32Attribute(int32(q.GetAttribute()) + q.GetAttributeRaw()) {
		case nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_OVERWRITE:
			return t.setOverwrite(nipb.ReadInt32Value(value))
		case nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_RELATIVE_TO:
			switch nipb.ReadInt32Value(value) {
			case nipb.ReadInt32Value_READ_INT32_VALUE_FIRST_SAMPLE, nipb.ReadInt32Value_READ_INT32_VALUE_CURR_READ_POS,
				nipb.ReadInt32Value_READ_INT32_VALUE_MOST_RECENT_SAMP:
				t.relative = value
				return 0
			}
			return errValue
		case nipb.ReadInt32Attribute_READ_INT32_ATTRIBUTE_OFFSET:
			t.offset = value
			return 0
		}
		return errAttribute
	})
}

func (t *task) setOverwrite(v nipb.ReadInt32Value) int32 {
	switch {
	case t.running:
		return errNotWhileRunning
	case v != nipb.ReadInt32Value_READ_INT32_VALUE_OVERWRITE && v != nipb.ReadInt32Value_READ_INT32_VALUE_DO_NOT_OVERWRITE:
		return errValue
	}
	t.overwrite = int32(v)
	return 0
}

// GetChanAttributeDoubleArray tells a channel's scale.
func (f *Face) GetChanAttributeDoubleArray(ctx context.Context, q *nipb.GetChanAttributeDoubleArrayRequest) (*nipb.GetChanAttributeDoubleArrayResponse, error) {
	if q.GetAttributeEnum() == nil {
		return nil, unset("attribute")
	}
	out := &nipb.GetChanAttributeDoubleArrayResponse{}
	return out, f.with(ctx, "GetChanAttributeDoubleArray", q.GetTask(), func(t *task) int32 {
		c := t.channel(q.GetChannel())
		switch {
		case nipb.ChannelDoubleArrayAttribute(int32(q.GetAttribute())+q.GetAttributeRaw()) != nipb.ChannelDoubleArrayAttribute_CHANNEL_DOUBLE_ARRAY_ATTRIBUTE_AI_DEV_SCALING_COEFF:
			return errAttribute
		case c == nil:
			return errInvalidChannel
		}
		out.Value = append(out.Value, c.poly...)
		return t.verify()
	})
}

// GetBufferAttributeUInt32 tells the buffer's size.
func (f *Face) GetBufferAttributeUInt32(ctx context.Context, q *nipb.GetBufferAttributeUInt32Request) (*nipb.GetBufferAttributeUInt32Response, error) {
	if q.GetAttributeEnum() == nil {
		return nil, unset("attribute")
	}
	out := &nipb.GetBufferAttributeUInt32Response{}
	return out, f.with(ctx, "GetBufferAttributeUInt32", q.GetTask(), func(t *task) int32 {
		if nipb.BufferUInt32Attribute(int32(q.GetAttribute())+q.GetAttributeRaw()) != nipb.BufferUInt32Attribute_BUFFER_U_INT32_ATTRIBUTE_INPUT_BUF_SIZE {
			return errAttribute
		}
		out.Value = uint32(t.size())
		return 0
	})
}

// device checks a call about a device.
func (f *Face) device(ctx context.Context, name string, known bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case name != f.cfg.Device:
		return refuse(ctx, errDevice)
	case f.unplugged:
		return refuse(ctx, errDeviceGone)
	case !known:
		return refuse(ctx, errAttribute)
	}
	return nil
}

// GetDeviceAttributeString tells the model.
func (f *Face) GetDeviceAttributeString(ctx context.Context, q *nipb.GetDeviceAttributeStringRequest) (*nipb.GetDeviceAttributeStringResponse, error) {
	if q.GetAttributeEnum() == nil {
		return nil, unset("attribute")
	}
	a := nipb.DeviceStringAttribute(int32(q.GetAttribute()) + q.GetAttributeRaw())
	return &nipb.GetDeviceAttributeStringResponse{Value: f.cfg.Product},
		f.device(ctx, q.GetDeviceName(), a == nipb.DeviceStringAttribute_DEVICE_STRING_ATTRIBUTE_PRODUCT_TYPE)
}

// GetDeviceAttributeUInt32 tells the serial number.
func (f *Face) GetDeviceAttributeUInt32(ctx context.Context, q *nipb.GetDeviceAttributeUInt32Request) (*nipb.GetDeviceAttributeUInt32Response, error) {
	if q.GetAttributeEnum() == nil {
		return nil, unset("attribute")
	}
	a := nipb.DeviceUInt32Attribute(int32(q.GetAttribute()) + q.GetAttributeRaw())
	return &nipb.GetDeviceAttributeUInt32Response{Value: f.cfg.Serial},
		f.device(ctx, q.GetDeviceName(), a == nipb.DeviceUInt32Attribute_DEVICE_U_INT32_ATTRIBUTE_SERIAL_NUM)
}

// GetDeviceAttributeBool tells how the device samples.
func (f *Face) GetDeviceAttributeBool(ctx context.Context, q *nipb.GetDeviceAttributeBoolRequest) (*nipb.GetDeviceAttributeBoolResponse, error) {
	if q.GetAttributeEnum() == nil {
		return nil, unset("attribute")
	}
	a := nipb.DeviceBoolAttribute(int32(q.GetAttribute()) + q.GetAttributeRaw())
	return &nipb.GetDeviceAttributeBoolResponse{Value: f.cfg.Simultaneous},
		f.device(ctx, q.GetDeviceName(), a == nipb.DeviceBoolAttribute_DEVICE_BOOL_ATTRIBUTE_AI_SIMULTANEOUS_SAMPLING_SUPPORTED)
}

// The driver's version.
const versionMajor, versionMinor = 24, 5

// GetSystemInfoAttributeUInt32 tells the driver's version.
func (f *Face) GetSystemInfoAttributeUInt32(ctx context.Context, q *nipb.GetSystemInfoAttributeUInt32Request) (*nipb.GetSystemInfoAttributeUInt32Response, error) {
	if q.GetAttributeEnum() == nil {
		return nil, unset("attribute")
	}
	switch nipb.SystemUInt32Attribute(int32(q.GetAttribute()) + q.GetAttributeRaw()) {
	case nipb.SystemUInt32Attribute_SYSTEM_U_INT32_ATTRIBUTE_NIDAQ_MAJOR_VERSION:
		return &nipb.GetSystemInfoAttributeUInt32Response{Value: versionMajor}, nil
	case nipb.SystemUInt32Attribute_SYSTEM_U_INT32_ATTRIBUTE_NIDAQ_MINOR_VERSION:
		return &nipb.GetSystemInfoAttributeUInt32Response{Value: versionMinor}, nil
	}
	return nil, refuse(ctx, errAttribute)
}
